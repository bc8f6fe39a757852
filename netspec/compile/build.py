"""From a spec to graph values: every layer, loss and metric built, or every shape error there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from netspec.errors import Problem, SpecError, did_you_mean, listing
from netspec.graph.op import Accepts, nothing
from netspec.graph.ops.cropping import CropAndFlip
from netspec.graph.ops.elementwise import Cast
from netspec.graph.ops.linear import Gather
from netspec.graph.ops.source import Constant
from netspec.graph.types import DType, Precision, TensorType
from netspec.graph.value import Scope, ShapeMismatch, Value, explain, in_scope
from netspec.layers.base import Builder, arity
from netspec.layers.judging import MetricSpec
from netspec.schema.links import LayerLink, Links, LossLink, MetricLink, resolve_names
from netspec.schema.net import InputSpec, NetSpec

LOSS = "loss"
"""Name of the total loss among the results of a program."""

REGULARIZATION = "regularization"
"""Name of the sum of all penalties among the losses; no loss of a net can be called so."""


@dataclass
class Built:
    """A net as graph values, before any pass."""

    builder: Builder
    values: dict[str, Value]
    """Every input and every layer's outputs, by the names by which layers read them."""
    masks: dict[str, Value] = field(default_factory=dict)
    """Of those that have one, which of their places count: bool."""
    outputs: dict[str, Value] = field(default_factory=dict)
    losses: dict[str, Value] = field(default_factory=dict)
    """Each weighted loss, and `regularization` where layers have penalties: their sum is what training makes small."""
    metrics: dict[str, tuple[MetricSpec, tuple[Value, ...]]] = field(default_factory=dict)


def build(
    spec: NetSpec,
    batch_size: int,
    *,
    training: bool,
    dtype: DType | Precision = DType.FLOAT32,
    judged: bool = True,
    standing: Mapping[str, str] = MappingProxyType({}),
    workers: int = 1,
    postponed: Mapping[str, Any] = MappingProxyType({}),
    accepts: Accepts = nothing,
) -> Built:
    """The net as graph values. Raises `SpecError` with every shape error there is, not only the first.

    What reads a layer that is wrong is passed over: nothing can be said of it. Without `judged` the losses and metrics
    are left out, and with them the inputs that only they use. `standing` says which other state is read in place of a
    parameter, `postponed` what is to be done with inputs that come as bytes, `accepts` which ops that could be written
    out have kernels.
    """
    names = resolve_names(spec)
    dtype = dtype.computed
    builder = Builder(training, dtype, standing=standing, workers=workers, accepts=accepts)
    values: dict[str, Value | None] = {
        name: _input(builder, name, input_type(one, batch_size, dtype), postponed.get(name))
        for name, one in spec.inputs.items()
    }
    taken = {*values, *(layer.name for layer in names.layers)}
    masks: dict[str, Value | None] = {}
    problems: list[Problem] = []

    def call(link: LayerLink | LossLink | MetricLink, what: str) -> Any:
        """Build one layer, loss or metric; None if it, or what it reads, is wrong."""
        thing: Any = link.fields
        found = [values[source] for source in link.sources]
        inputs = [value for value in found if value is not None]
        weighed_by = None if isinstance(link, LayerLink) else link.fields.sample_weight
        weight = values[weighed_by] if weighed_by is not None else None
        if len(inputs) < len(found) or (weighed_by is not None and weight is None):
            return None
        masked = [masks.get(source) for source in link.sources]
        with in_scope(builder.enter(thing, link.name, masked, weight)) as scope:
            try:
                _check_arity(thing, inputs, scope)
                if isinstance(link, LayerLink):
                    made, mask = thing.call(builder, *inputs), thing.mask(builder, *inputs)
                    given = mask if isinstance(mask, tuple) else (mask,)
                    masks.update({link.name: given[0], **dict(zip(link.outputs, given, strict=False))})
                    return made
                made = thing.build(builder, *inputs)
                return made * thing.weight if isinstance(link, LossLink) and thing.weight != 1.0 else made
            except ShapeMismatch as mismatch:
                wrong = [explain(inputs, mismatch)]
            except SpecError as error:
                wrong = list(error.problems)
        hint = _another_input(spec, names, link)
        problems.extend(replace(one, path=f"{what}.{link.name}", hint=one.hint or hint) for one in wrong)
        return None

    for layer in names.layers:
        made = call(layer, "layers")
        results = made if isinstance(made, tuple) else (made,) * len(layer.outputs)
        values[layer.name] = results[0]
        values |= {name: one for name, one in zip(layer.outputs, results, strict=True) if name not in taken}
        if made is not None:
            problems += _multiplier_problems(layer, builder)
    built = Built(builder, {name: value for name, value in values.items() if value is not None})
    built.masks = {name: mask for name, mask in masks.items() if mask is not None}
    built.outputs = {name: built.values[name] for name in names.outputs if name in built.values}
    if judged:
        for loss in names.losses:
            problems += _reserved(loss, loss.name == REGULARIZATION, "loss", "the sum of all penalties is called so")
            value = call(loss, "losses")
            if value is not None:
                built.losses[loss.name] = value
        for metric in names.metrics:
            clashes = metric.name.partition("/")[0] == LOSS
            problems += _reserved(metric, clashes, "metric", "the sum of all losses is called so")
            totals = call(metric, "metrics")
            if totals is not None:
                assert isinstance(metric.fields, MetricSpec)
                built.metrics[metric.name] = (metric.fields, totals)
    if problems:
        raise SpecError(problems)
    if builder.penalties and built.losses:
        built.losses[REGULARIZATION] = total(builder.penalties)
    return built


def _input(builder: Builder, name: str, kind: TensorType, late: Any | None) -> Value:
    """An input, or what the bytes stand for of parts of it, as the data room's `Late` says."""
    if late is None:
        return builder.input(name, kind)
    import numpy as np

    samples, table = kind.shape[0], late.table
    place = builder.input(name, TensorType((samples, *late.shape), DType.UINT8))
    for number, (height, width, fill) in enumerate(late.parts):
        where = builder.input(f"{name}/part{number}", TensorType((samples, 4), DType.INT32))
        with in_scope(place.node.scope):
            place = CropAndFlip(height, width, fill)(place, where)
    channels = len(table)
    with in_scope(place.node.scope):
        if channels > 1:
            start = (np.arange(channels, dtype=np.int32) * 256).reshape(channels, *(1,) * (len(kind.shape) - 2))
            first = Constant(start.tobytes(), TensorType(start.shape, DType.INT32))()
            place = Cast(DType.INT32)(place) + first
        numbers = np.ascontiguousarray(table, str(kind.dtype)).reshape(-1)
        return Gather()(Constant(numbers.tobytes(), TensorType(numbers.shape, kind.dtype))(), place)


def _check_arity(thing: Any, inputs: list[Value], scope: Scope) -> None:
    least, most = arity(type(thing))
    if len(inputs) < least or (most is not None and len(inputs) > most):
        span = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise ShapeMismatch(
            f"{scope.kind} takes {span} input{'s' if span != '1' else ''}, not {len(inputs)}",
            expected=f"`from` with {span} name{'s' if span != '1' else ''}", got=f"{len(inputs)}",
        )  # fmt: skip


def _multiplier_problems(link: LayerLink, builder: Builder) -> Iterator[Problem]:
    """Multipliers that would be without effect: of parameters that the layer does not have, or that it shares."""
    own = f"{link.fields.share or link.name}/"
    inside = [(made, layer) for made, layer in builder.inner if made.startswith(own)]
    for made, layer in ((own, link.fields), *inside):
        part = made.removeprefix(own).replace("/", ".")
        known = [name.removeprefix(made) for name in builder.states if name.startswith(made)]
        for field_ in ("learning_rate_multiplier", "weight_decay_multiplier"):
            given, path = getattr(layer, field_), f"layers.{link.name}.{part}{field_}"
            if layer.share and given != 1.0:
                message = f"layer `{link.name}` shares its parameters: its `{field_}` would be without effect"
                yield Problem(message, layer.where(field_), path, hint=f"give it to `{layer.share}`")
            elif isinstance(given, Mapping):
                for name in given:
                    if name not in known:
                        yield Problem(
                            f"layer `{link.name}` has no parameter `{name}`", layer.where(field_, name, key=True),
                            f"{path}.{name}", expected=f"one of {listing(known)}" if known else "nothing: it has none",
                            hint=did_you_mean(name, known),
                        )  # fmt: skip


def _reserved(link: LossLink | MetricLink, clashes: bool, what: str, why: str) -> Iterator[Problem]:
    """A problem if the name of a loss or metric clashes with one of the program's own."""
    if clashes:
        path = f"{'losses' if what == 'loss' else 'metrics'}.{link.name}.name"
        message = f"a {what} can't be called `{link.name}`: {why}"
        yield Problem(message, link.fields.where("name"), path, expected="another name")


def _another_input(spec: NetSpec, names: Links, link: LayerLink | LossLink | MetricLink) -> str | None:
    """A hint for a first layer that is not told what it reads, and reads a label where another input has no reader."""
    if link is not names.layers[0] or link.fields.from_ is not None:
        return None
    judges: tuple[LossLink | MetricLink, ...] = (*names.losses, *names.metrics)
    judged = {source for one in judges for source in one.sources}
    read = judged.union(*(one.sources for one in names.layers))
    spare = [name for name in spec.inputs if name not in read]
    if not spare or not judged.intersection(link.sources):
        return None
    return f"the first layer reads the first input, `{link.sources[0]}`: another is named by `from: {spare[0]}`"


def input_type(spec: InputSpec, batch_size: int, dtype: DType) -> TensorType:
    """The type of an input for a batch size; `float32` means the precision of the graph."""
    return TensorType((batch_size, *spec.shape), dtype if spec.dtype == "float32" else DType(spec.dtype))


def total(values: Iterable[Value]) -> Value:
    """The sum of scalars."""
    first, *rest = values
    for value in rest:
        first = first + value
    return first

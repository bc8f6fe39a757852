"""Spec → graph values: builds every layer, loss and metric, or reports every shape error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from netspec.errors import Problem, SpecError, did_you_mean, listing
from netspec.graph.op import AcceptsOp, accepts_nothing
from netspec.graph.ops.crop import CropAndFlip
from netspec.graph.ops.elementwise import Cast
from netspec.graph.ops.linear import Gather
from netspec.graph.ops.source import Constant
from netspec.graph.types import DType, Precision, TensorType
from netspec.graph.value import MAX_TENSOR_BYTES, Scope, ShapeMismatch, Value, in_scope, mismatch_problem
from netspec.layers.base import Builder, arity
from netspec.layers.losses_and_metrics import MetricSpec
from netspec.schema.specs.links import LayerLink, Links, LossLink, MetricLink, resolve_names
from netspec.schema.specs.net import InputSpec, NetSpec

LOSS = "loss"
"""Name of the total loss among the results of a program."""

REGULARIZATION = "regularization"
"""Name of the sum of all penalties among the losses; no loss of a net can be called so."""


@dataclass
class NetGraph:
    """A net as graph values, before any pass."""

    builder: Builder
    values: dict[str, Value]
    """Every input and every layer's outputs, by the names by which layers read them."""
    masks: dict[str, Value] = field(default_factory=dict)
    """Which elements of a value count, as bool, by the names of the values that have a mask."""
    outputs: dict[str, Value] = field(default_factory=dict)
    losses: dict[str, Value] = field(default_factory=dict)
    """Each weighted loss, and `regularization` if layers have penalties: training minimizes their sum."""
    metrics: dict[str, tuple[MetricSpec, tuple[Value, ...]]] = field(default_factory=dict)


def build(
    spec: NetSpec,
    batch_size: int,
    *,
    training: bool,
    dtype: DType | Precision = DType.FLOAT32,
    with_losses: bool = True,
    evaluated_as: Mapping[str, str] = MappingProxyType({}),
    workers: int = 1,
    uint8_inputs: Mapping[str, Any] = MappingProxyType({}),
    accepts: AcceptsOp = accepts_nothing,
) -> NetGraph:
    """Build the net as graph values. Raises `SpecError` with all shape errors, not only the first.

    Layers that read a wrong layer are skipped. Without `with_losses` the losses and metrics are omitted, and the inputs
    that only they use. `evaluated_as` names the state that is read instead of a parameter, `uint8_inputs` the decoding
    of inputs that arrive as bytes, and `accepts` returns whether a composite op has a kernel.
    """
    dtype = dtype.compute_dtype
    _check_inputs(spec, batch_size, dtype)
    builder = Builder(training, dtype, state_aliases=evaluated_as, workers=workers, accepts=accepts)
    net = _NetBuilder(spec, builder)
    for name, field_ in spec.inputs.items():
        net.values[name] = _input(builder, name, input_type(field_, batch_size, dtype), uint8_inputs.get(name))
    net.build_layers()
    if with_losses:
        net.build_losses()
        net.build_metrics()
    return net.finish()


class _NetBuilder:
    """Builds layers, losses and metrics in order, and collects what is wrong with them."""

    def __init__(self, spec: NetSpec, builder: Builder) -> None:
        self._spec, self._builder, self._names = spec, builder, resolve_names(spec)
        self.values: dict[str, Value | None] = {}
        """Every input and output by its name; None if it could not be built."""
        self._masks: dict[str, Value | None] = {}
        self._losses: dict[str, Value] = {}
        self._metrics: dict[str, tuple[MetricSpec, tuple[Value, ...]]] = {}
        self._problems: list[Problem] = []

    def build_layers(self) -> None:
        """Build all layers."""
        taken = {*self.values, *(layer.name for layer in self._names.layers)}
        for layer in self._names.layers:
            output = self._call(layer, "layers")
            outputs = output if isinstance(output, tuple) else (output,) * len(layer.outputs)
            self.values[layer.name] = outputs[0]
            named = zip(layer.outputs, outputs, strict=True)
            self.values |= {name: value for name, value in named if name not in taken}
            if output is not None:
                self._problems += _multiplier_problems(layer, self._builder)

    def build_losses(self) -> None:
        """Build all losses, weighted."""
        for loss in self._names.losses:
            clashes = loss.name == REGULARIZATION
            self._problems += _reserved(loss, clashes, "loss", "the sum of all penalties is called so")
            value = self._call(loss, "losses")
            if value is not None:
                self._losses[loss.name] = value

    def build_metrics(self) -> None:
        """Build the totals of all metrics."""
        for metric in self._names.metrics:
            clashes = metric.name.partition("/")[0] == LOSS
            self._problems += _reserved(metric, clashes, "metric", "the sum of all losses is called so")
            totals = self._call(metric, "metrics")
            if totals is not None:
                assert isinstance(metric.fields, MetricSpec)
                self._metrics[metric.name] = (metric.fields, totals)

    def finish(self) -> NetGraph:
        """Return the net. Raises `SpecError` with all problems."""
        if self._problems:
            raise SpecError(self._problems)
        if self._builder.penalties and self._losses:
            self._losses[REGULARIZATION] = total(self._builder.penalties)
        values = {name: value for name, value in self.values.items() if value is not None}
        masks = {name: mask for name, mask in self._masks.items() if mask is not None}
        outputs = {name: values[name] for name in self._names.outputs if name in values}
        return NetGraph(self._builder, values, masks, outputs, self._losses, self._metrics)

    def _call(self, link: LayerLink | LossLink | MetricLink, section: str) -> Any:
        """Build one layer, loss or metric; None if it, or what it reads, is wrong."""
        sources = [self.values[source] for source in link.sources]
        inputs = [value for value in sources if value is not None]
        weight_name = None if isinstance(link, LayerLink) else link.fields.sample_weight
        weight = self.values[weight_name] if weight_name is not None else None
        if len(inputs) < len(sources) or (weight_name is not None and weight is None):
            return None
        masks = [self._masks.get(source) for source in link.sources]
        with in_scope(self._builder.enter(link.fields, link.name, masks, weight)) as scope:
            try:
                _check_arity(link.fields, inputs, scope)
                return self._build(link, inputs)
            except ShapeMismatch as mismatch:
                wrong = [mismatch_problem(inputs, mismatch)]
            except SpecError as error:
                wrong = list(error.problems)
        hint = _another_input(self._spec, self._names, link)
        path = f"{section}.{link.name}"
        self._problems.extend(replace(problem, path=path, hint=problem.hint or hint) for problem in wrong)
        return None

    def _build(self, link: LayerLink | LossLink | MetricLink, inputs: Sequence[Value]) -> Any:
        fields: Any = link.fields
        if not isinstance(link, LayerLink):
            result = fields.build(self._builder, *inputs)
            return result * fields.weight if isinstance(link, LossLink) and fields.weight != 1.0 else result
        result, mask = fields.call(self._builder, *inputs), fields.mask(self._builder, *inputs)
        masks = mask if isinstance(mask, tuple) else (mask,)
        self._masks.update({link.name: masks[0], **dict(zip(link.outputs, masks, strict=False))})
        return result


def _check_inputs(spec: NetSpec, batch_size: int, dtype: DType) -> None:
    """Raise `SpecError` if a batch of an input is larger than `MAX_TENSOR_BYTES`."""
    types = {name: input_type(field, batch_size, dtype) for name, field in spec.inputs.items()}
    problems = [
        Problem(
            f"the input `{name}` is too large", spec.inputs[name].where("shape"), f"inputs.{name}.shape",
            expected=f"at most {MAX_TENSOR_BYTES:,} bytes in a batch", got=f"{type_}: {type_.nbytes:,} bytes",
        )
        for name, type_ in types.items() if type_.nbytes > MAX_TENSOR_BYTES
    ]  # fmt: skip
    if problems:
        raise SpecError(problems)


def _input(builder: Builder, name: str, kind: TensorType, late: Any | None) -> Value:
    """An input, or what the bytes stand for of parts of it, as the data room's `DeferredDecode` says."""
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
    inside = [(made, layer) for made, layer in builder.inner_layers if made.startswith(own)]
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

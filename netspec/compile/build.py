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
"""Name of the sum of all penalties among the losses; a loss of a net cannot have this name."""


@dataclass
class NetGraph:
    """A net as graph values, before any pass."""

    builder: Builder
    values: dict[str, Value]
    """Every input and every layer's outputs, by the names by which layers read them."""
    masks: dict[str, Value] = field(default_factory=dict)
    """Masks (bool, False for masked elements) by the names of the values that have one."""
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

    Layers that read an invalid layer are skipped. Without `with_losses` the losses and metrics are omitted, and the
    inputs that only they use. `evaluated_as` maps parameters to the states that are read instead, `uint8_inputs` maps
    inputs that arrive as bytes to their decoding, and `accepts` returns whether a composite op has a kernel.
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
    """Builds layers, losses and metrics in order, and collects their problems."""

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
        reserved = {*self.values, *(layer.name for layer in self._names.layers)}
        for layer in self._names.layers:
            output = self._call(layer, "layers")
            outputs = output if isinstance(output, tuple) else (output,) * len(layer.outputs)
            self.values[layer.name] = outputs[0]
            named = zip(layer.outputs, outputs, strict=True)
            self.values |= {name: value for name, value in named if name not in reserved}
            if output is not None:
                self._problems += _multiplier_problems(layer, self._builder)

    def build_losses(self) -> None:
        """Build all losses, multiplied by their weights."""
        for loss in self._names.losses:
            clashes = loss.name == REGULARIZATION
            self._problems += _reserved_name(loss, clashes, "loss", "the name is reserved for the sum of all penalties")
            value = self._call(loss, "losses")
            if value is not None:
                self._losses[loss.name] = value

    def build_metrics(self) -> None:
        """Build the totals of all metrics."""
        for metric in self._names.metrics:
            clashes = metric.name.partition("/")[0] == LOSS
            self._problems += _reserved_name(
                metric, clashes, "metric", "the name is reserved for the sum of all losses"
            )
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
        """Build one layer, loss or metric; None if it or one of its inputs is invalid."""
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
                problems = [mismatch_problem(inputs, mismatch)]
            except SpecError as error:
                problems = list(error.problems)
        hint = _unused_input_hint(self._spec, self._names, link)
        path = f"{section}.{link.name}"
        self._problems.extend(replace(problem, path=path, hint=problem.hint or hint) for problem in problems)
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


def _input(builder: Builder, name: str, tensor_type: TensorType, decode: Any | None) -> Value:
    """A net input; with `decode` (the data package's `DeferredDecode`), its value decoded from bytes."""
    if decode is None:
        return builder.input(name, tensor_type)
    import numpy as np

    samples, table = tensor_type.shape[0], decode.table
    image = builder.input(name, TensorType((samples, *decode.shape), DType.UINT8))
    for index, (height, width, fill) in enumerate(decode.parts):
        crop = builder.input(f"{name}/part{index}", TensorType((samples, 4), DType.INT32))
        with in_scope(image.node.scope):
            image = CropAndFlip(height, width, fill)(image, crop)
    channels = len(table)
    with in_scope(image.node.scope):
        if channels > 1:
            start = (np.arange(channels, dtype=np.int32) * 256).reshape(channels, *(1,) * (len(tensor_type.shape) - 2))
            first = Constant(start.tobytes(), TensorType(start.shape, DType.INT32))()
            image = Cast(DType.INT32)(image) + first
        decoded = np.ascontiguousarray(table, str(tensor_type.dtype)).reshape(-1)
        return Gather()(Constant(decoded.tobytes(), TensorType(decoded.shape, tensor_type.dtype))(), image)


def _check_arity(fields: Any, inputs: list[Value], scope: Scope) -> None:
    minimum, maximum = arity(type(fields))
    if len(inputs) < minimum or (maximum is not None and len(inputs) > maximum):
        at_least = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"
        span = str(minimum) if maximum == minimum else at_least
        raise ShapeMismatch(
            f"{scope.kind} takes {span} input{'s' if span != '1' else ''}, not {len(inputs)}",
            expected=f"`from` with {span} name{'s' if span != '1' else ''}", got=f"{len(inputs)}",
        )  # fmt: skip


def _multiplier_problems(link: LayerLink, builder: Builder) -> Iterator[Problem]:
    """Problems of multipliers without effect: for parameters that the layer does not have, or does not own."""
    own_prefix = f"{link.fields.share or link.name}/"
    inner = [(prefix, layer) for prefix, layer in builder.inner_layers if prefix.startswith(own_prefix)]
    for prefix, layer in ((own_prefix, link.fields), *inner):
        part = prefix.removeprefix(own_prefix).replace("/", ".")
        for field_ in ("learning_rate_multiplier", "weight_decay_multiplier"):
            multiplier, path = getattr(layer, field_), f"layers.{link.name}.{part}{field_}"
            if layer.share and multiplier != 1.0:
                message = f"layer `{link.name}` shares its parameters: its `{field_}` would have no effect"
                yield Problem(message, layer.where(field_), path, hint=f"set it in `{layer.share}`")
            elif isinstance(multiplier, Mapping):
                parameters = [name.removeprefix(prefix) for name in builder.states if name.startswith(prefix)]
                for name in multiplier:
                    if name not in parameters:
                        yield Problem(
                            f"layer `{link.name}` has no parameter `{name}`", layer.where(field_, name, key=True),
                            f"{path}.{name}", expected=f"one of {listing(parameters)}" if parameters else "none",
                            hint=did_you_mean(name, parameters),
                        )  # fmt: skip


def _reserved_name(link: LossLink | MetricLink, clashes: bool, noun: str, reason: str) -> Iterator[Problem]:
    """A problem if the name of a loss or metric is reserved."""
    if clashes:
        path = f"{'losses' if noun == 'loss' else 'metrics'}.{link.name}.name"
        message = f"a {noun} can't have the name `{link.name}`: {reason}"
        yield Problem(message, link.fields.where("name"), path, expected="a different name")


def _unused_input_hint(spec: NetSpec, names: Links, link: LayerLink | LossLink | MetricLink) -> str | None:
    """Hint for a first layer without `from` that reads a label although another input is unused."""
    if link is not names.layers[0] or link.fields.from_ is not None:
        return None
    losses_and_metrics: tuple[LossLink | MetricLink, ...] = (*names.losses, *names.metrics)
    targets = {source for link_ in losses_and_metrics for source in link_.sources}
    read = targets.union(*(layer.sources for layer in names.layers))
    unused = [name for name in spec.inputs if name not in read]
    if not unused or not targets.intersection(link.sources):
        return None
    first = link.sources[0]
    return f"the first layer reads the first input, `{first}`; to read a different one, set `from: {unused[0]}`"


def input_type(spec: InputSpec, batch_size: int, dtype: DType) -> TensorType:
    """The type of an input for a batch size; `float32` means the precision of the graph."""
    return TensorType((batch_size, *spec.shape), dtype if spec.dtype == "float32" else DType(spec.dtype))


def total(values: Iterable[Value]) -> Value:
    """The sum of scalars."""
    first, *rest = values
    for value in rest:
        first = first + value
    return first

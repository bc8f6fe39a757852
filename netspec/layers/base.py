"""Base classes of layers: `LayerSpec`, and the `Builder` that losses and metrics use too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from typing import Any, ClassVar, TypeAlias
from zlib import crc32

from netspec.graph.op import AcceptsOp, accepts_nothing, as_tuple
from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.random import RNG_INPUT, RNG_TYPE, RandomUniform
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.special import NormalQuantile
from netspec.graph.types import DType, TensorType
from netspec.graph.value import MAX_TENSOR_BYTES, Scope, ShapeMismatch, Value, current_scope, in_scope
from netspec.layers.checks import require
from netspec.layers.states import Adapted, Domain, Initial, Penalty, Projection, StateInfo, Totals
from netspec.schema.specs.kinds import LayerFields, LossFields, MetricFields

ParameterTransform: TypeAlias = Callable[[str, Value], Value]
"""Maps a parameter of an inner layer, given its name, to the value that the inner layer computes with."""


@dataclass
class Builder:
    """Collects what layers create: states, their updates, penalties. One builder makes one graph.

    `training` selects the training form of layers; `dtype` is the type that `float32` in a spec stands for.
    """

    training: bool
    dtype: DType
    states: dict[str, StateInfo] = field(default_factory=dict)
    updates: dict[str, Value] = field(default_factory=dict)
    penalties: list[Value] = field(default_factory=list)
    domains: dict[str, Domain] = field(default_factory=dict)
    adapted: dict[str, Adapted] = field(default_factory=dict)
    """States to compute from the training data, by the layer that owns them, in the order of the layers."""
    inputs: dict[str, Value] = field(default_factory=dict)
    state_aliases: Mapping[str, str] = field(default_factory=dict)
    """Parameters that are read from another state, with the name of that state."""
    inner_layers: list[tuple[str, LayerFields]] = field(default_factory=list)
    """Layers in fields of layers, with the prefix of their states' names."""
    masks: tuple[Value | None, ...] = ()
    """Mask of each input of the layer being built, bool (N, …), False for masked elements; None if none is masked."""
    workers: int = 1
    """Number of workers that train together, each on a part of the batch."""
    accepts: AcceptsOp = accepts_nothing
    """Whether the backend has a kernel for an op that could be decomposed into simpler ones."""
    sample_weight: Value | None = None
    """Weight of each sample, or of each of its elements, for the loss or metric being built; None if all are 1."""
    _layer: LayerFields | None = None
    _within: tuple[tuple[str, LayerFields | None], ...] = ()
    _steps: int = 1
    _transform: tuple[ParameterTransform, tuple[tuple[str, LayerFields | None], ...]] | None = None
    _name: str = ""
    _streams: int = 0

    def input(self, name: str, type_: TensorType, kind: str = "input") -> Value:
        """The graph input `name`, created on the first call; `kind` differs from `input` if it does not hold data."""
        if name not in self.inputs:
            with in_scope(Scope(name, kind)):
                self.inputs[name] = Input(name, type_)()
        return self.inputs[name]

    def enter(
        self,
        layer: LayerFields | LossFields | MetricFields,
        name: str,
        masks: Sequence[Value | None] = (),
        sample_weight: Value | None = None,
    ) -> Scope:
        """Start building a layer, loss or metric, which owns the parameters and random streams created next.

        `masks` are the masks of its inputs; `sample_weight` is the value that its field `sample_weight` refers to.
        """
        self.masks, self.sample_weight = tuple(masks), sample_weight
        self._layer = layer if isinstance(layer, LayerFields) else None
        self._name, self._within, self._streams = name, (), 0
        noun = "loss" if isinstance(layer, LossFields) else "metric" if isinstance(layer, MetricFields) else "layer"
        return Scope(name, str(getattr(layer, "type", "")), layer.where(), noun=noun)

    @contextmanager
    def within(
        self,
        name: str,
        layer: LayerFields | None = None,
        *,
        masks: Sequence[Value | None] | None = None,
        steps: int = 1,
        parameters: ParameterTransform | None = None,
    ) -> Iterator[None]:
        """Build a part of the current layer inside the block; its parameters are named `NAME/…`.

        If the part is a layer, errors show its location. `masks` are the masks of its inputs, by default the outer
        layer's. The part processes `steps` times as many samples. `parameters` maps each of its parameters, except
        those of inner layers, to the value that it uses instead; states created by `parameters` belong to the outer
        layer.
        """
        before, scope = (self._within, self.masks, self._steps, self._transform), current_scope()
        self._transform = None if parameters is None else (parameters, self._within)
        self._within, self._steps = (*self._within, (name, layer)), self._steps * steps
        self.masks = self.masks if masks is None else tuple(masks)
        if layer is not None:
            self.inner_layers.append((self._full_name(""), layer))
            scope = replace(scope, kind=str(getattr(layer, "type", "")), location=layer.where() or scope.location)
        try:
            with in_scope(scope):
                yield
        finally:
            self._within, self.masks, self._steps, self._transform = before

    def _owner(self) -> str:
        """Name of the layer that owns the states being created."""
        return (self._layer.share if self._layer else None) or self._name

    def _full_name(self, name: str) -> str:
        """Full name of a state of the part being built."""
        return "/".join([self._owner(), *(part for part, _ in self._within), name])

    def _owners(self, name: str) -> list[tuple[LayerFields, str]]:
        """Layers that contain the part being built, outermost first, and the parameter's name within each."""
        parts, layers = [part for part, _ in self._within], [self._layer, *(layer for _, layer in self._within)]
        return [(layer, "/".join([*parts[k:], name])) for k, layer in enumerate(layers) if layer is not None]

    @property
    def is_learning(self) -> bool:
        """Whether the layer is built for training and not frozen."""
        return self.training and all(layer.trainable for layer, _ in self._owners(""))

    def parameter(
        self,
        name: str,
        shape: tuple[int, ...],
        initial: Initial,
        penalty: Penalty | None = None,
        constraint: Projection | None = None,
    ) -> Value:
        """The layer's parameter `name`; with `share`, the owner's, which must have the same shape.

        The penalty is added to the loss; the constraint projects the parameter after each step.
        """
        value = self._state(name, shape, initial, "parameter", constraint)
        if self._transform is not None:
            (transform, outer), inner = self._transform, self._within
            self._within, self._transform = outer, None
            value = transform(name, value)
            self._within, self._transform = inner, (transform, outer)
        if penalty is not None and self.is_learning and not (self._layer and self._layer.share):
            self.penalties.append(penalty.penalty(value))
        return value

    def parameter_of(self, layer: Any, name: str, shape: tuple[int, ...], fields: str = "") -> Value:
        """The parameter `name`, described by fields of a layer or cell such as `bias_initializer`.

        `fields` is the prefix of its fields …_initializer, …_regularizer and …_constraint, by default the last part of
        `name`.
        """
        prefix = fields or name.rpartition("/")[2]
        return self.parameter(
            name, shape, *(getattr(layer, f"{prefix}_{part}") for part in ("initializer", "regularizer", "constraint"))
        )

    def statistic(self, name: str, shape: tuple[int, ...], initial: Initial, dtype: DType | None = None) -> Value:
        """A state of the layer that no gradient changes; give it its next value with `update`."""
        return self._state(name, shape, initial, "statistic", dtype=dtype)

    def _state(
        self,
        name: str,
        shape: tuple[int, ...],
        initial: Initial,
        role: str,
        constraint: Projection | None = None,
        dtype: DType | None = None,
    ) -> Value:
        layer, owner = self._layer, self._owner()
        full, tensor_type = self._full_name(name), TensorType(shape, self.dtype if dtype is None else dtype)
        if tensor_type.nbytes > MAX_TENSOR_BYTES:
            raise ShapeMismatch(
                f"the parameter `{name}` is too large",
                expected=f"at most {MAX_TENSOR_BYTES:,} bytes",
                got=f"{tensor_type.describe(batch=False)}: {tensor_type.nbytes:,} bytes",
            )
        for rule, noun in ((initial, "initializer"), (constraint, "constraint")):
            reason = rule.reject_reason(shape) if rule is not None else None
            require(
                reason is None,
                f"the {noun} does not fit the parameter `{name}`: {reason}",
                got=tensor_type.describe(batch=False),
                hint=f"change the {noun} of this parameter",
            )
        state = self.states.get(full)
        if state is not None:
            if state.value.type != tensor_type:
                raise ShapeMismatch(
                    f"the shared parameter `{name}` of `{owner}` has the wrong shape",
                    state.value.type.describe(batch=False),
                    tensor_type.describe(batch=False),
                )
            return state.value
        with in_scope(Scope(owner, "parameter", layer.where() if layer else None)):
            value = State(self.state_aliases.get(full, full), tensor_type)()
        owners = self._owners(name)
        rate, decay = (
            prod(_multiplier(owner_, field_, local_name) for owner_, local_name in owners)
            for field_ in ("learning_rate_multiplier", "weight_decay_multiplier")
        )
        trainable = role == "parameter" and all(owner_.trainable for owner_, _ in owners) and rate > 0
        self.states[full] = StateInfo(value, initial, role, trainable, rate, decay, constraint)
        return value

    def adapt(self, states: Sequence[Value], results: Sequence[Value], totals: Callable[..., Totals]) -> None:
        """Let one pass over the training data compute the values of `states`: see `Adapted`.

        If layers share the states, the definition of the first one, their owner, is used.
        """
        names = tuple(state.op.label for state in states if isinstance(state.op, State))
        self.adapted.setdefault(self._full_name("").rstrip("/"), Adapted(names, tuple(results), totals))

    def penalize_activity(self, penalty: Penalty, *outputs: Value) -> None:
        """Add the penalty on each output in training, divided by the number of samples."""
        if self.training:
            self.penalties += [penalty.penalty(self.floating(y)) * (1 / y.shape[0]) for y in outputs]

    def mask(self, index: int = 0) -> Value | None:
        """The mask of an input: bool, False for masked elements; None if none is masked."""
        return self.masks[index] if index < len(self.masks) else None

    def update(self, state: Value, new: Value) -> None:
        """Set `state` to `new` in each training step; the solver's update of a trained parameter starts from `new`."""
        assert isinstance(state.op, State)
        self.updates[state.op.label] = new

    def is_trained(self, state: Value) -> bool:
        """Whether the solver updates `state`: it is a parameter, and not frozen."""
        assert isinstance(state.op, State)
        return self.training and self.states[state.op.label].trainable

    def latest(self, state: Value) -> Value:
        """The value of `state` that an update starts from: the latest one if layers share the state."""
        assert isinstance(state.op, State)
        return self.updates.get(state.op.label, state)

    def uniform_op(self, shape: tuple[int, ...]) -> tuple[RandomUniform, Value]:
        """The op that draws uniform random numbers in [0, 1) of `shape`, and its operand.

        The numbers change with every step; axis 0 is the batch. In the op's result, axis 0 may be split in two.
        """
        stream = crc32(f"{self._name}/{self._streams}".encode())
        self._streams += 1
        by_sample = (shape[0] // self._steps, self._steps, *shape[1:]) if self._steps > 1 else shape
        return RandomUniform(TensorType(by_sample, self.dtype), stream), self.input(RNG_INPUT, RNG_TYPE, "counter")

    def uniform(self, shape: tuple[int, ...]) -> Value:
        """Uniform random numbers in [0, 1), new at every step; axis 0 is the batch."""
        draw, counter = self.uniform_op(shape)
        return reshape_to(draw(counter), shape)

    def normal(self, shape: tuple[int, ...]) -> Value:
        """Normal random numbers of mean 0 and variance 1, new at every step; axis 0 is the batch.

        They are computed from 2²⁴ uniform numbers, at the middle of each interval, so their magnitude is at most 5.4.
        """
        return NormalQuantile()(self.uniform(shape) - (0.5 - 2.0**-25))

    def floating(self, x: Value) -> Value:
        """`x` as a float of this graph's precision (uint8 images, integer features)."""
        return x if x.dtype.is_float else cast(x, self.dtype)

    def to_common_dtype(self, values: Sequence[Value]) -> list[Value]:
        """The values in one type: an integer type if all are int32 or int64, else a float type."""
        types = {x.dtype for x in values}
        if types <= {DType.INT32, DType.INT64}:
            return [cast(x, DType.INT32 if types == {DType.INT32} else DType.INT64) for x in values]
        return [self.floating(x) for x in values]

    def require_range(
        self,
        x: Value,
        low: int,
        high: int,
        why: str,
        also: Collection[int] = (),
        setting: tuple[str, str] | None = None,
    ) -> None:
        """If `x` is an input of integers, require them to be in low … high - 1 or in `also`; the loader checks it.

        `setting` is the (layer, field) that sets the number of classes.
        """
        if isinstance(x.op, Input):
            domain, present = Domain(low, high, why, frozenset(also), setting), self.domains.get(x.op.label)
            self.domains[x.op.label] = domain.within(present) if present else domain


def _multiplier(layer: LayerFields, field_: str, name: str) -> float:
    multiplier = getattr(layer, field_)
    return float(multiplier.get(name, 1.0)) if isinstance(multiplier, Mapping) else float(multiplier)


def arity(cls: type[Any]) -> tuple[int, int | None]:
    """Minimum and maximum number of inputs of `build` (None: any number), from its signature."""
    return _arity_of(cls.build)


@cache
def _arity_of(build: Callable[..., Any]) -> tuple[int, int | None]:
    parameters = list(inspect.signature(build).parameters.values())[2:]
    is_variadic = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    positional = [parameter for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    minimum = sum(parameter.default is parameter.empty for parameter in positional)
    return minimum, None if is_variadic else len(positional)


@dataclass(frozen=True)
class Sample:
    """A small configuration of a class for the registry-wide tests: its fields and the shapes of its inputs."""

    fields: Mapping[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...] = ()
    """Types of the inputs, if any is not a float."""
    high: int = 4
    """Integer inputs are drawn from low … high - 1."""
    ranges: tuple[tuple[float, float] | None, ...] = ()
    """Intervals that the float inputs are drawn from; None, or no entry, for normal numbers."""
    no_onnx_roundtrip: bool = False
    """Whether the layer with these fields does not survive an ONNX round trip as one layer."""
    masks: tuple[tuple[int, ...] | None, ...] = ()
    """Shapes of the masks of the inputs; None, or no entry, for an input without one."""
    weight: tuple[int, ...] | None = None
    """Shape of the sample weights of a loss or metric, if any."""
    low: int = 0
    """Smallest integer that is drawn."""

    @classmethod
    def of(
        cls,
        *shapes: tuple[int, ...],
        dtypes: Sequence[str] = (),
        high: int = 4,
        ranges: Sequence[tuple[float, float] | None] = (),
        no_onnx_roundtrip: bool = False,
        masks: Sequence[tuple[int, ...] | None] = (),
        weight: tuple[int, ...] | None = None,
        low: int = 0,
        **fields: Any,
    ) -> Sample:
        """Create a sample from input shapes (batch axis included) and fields."""
        dtypes = tuple(dtypes) or ("float32",) * len(shapes)
        return cls(fields, shapes, dtypes, high, tuple(ranges), no_onnx_roundtrip, tuple(masks), weight, low)


@dataclass(frozen=True)
class StepStates:
    """States that a layer which reads a sequence step by step passes from one step to the next, per sample."""

    replaced: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of states that each step replaces, by name; they begin with zeros."""
    appended: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes (steps, …) of states of which each step computes the row at its position, by name."""
    needs_position: bool = False
    """Whether sequences have a last position, after which no step can follow."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all states."""
        return (*self.replaced, *self.appended)


@dataclass(frozen=True)
class StepPosition:
    """The position of a step in a sequence."""

    index: Value
    """The position, counted from 0: (N,) of int32."""
    steps: int
    """Number of steps of the longest sequence."""


class LayerSpec(LayerFields):
    """Base of layers: fields, and `build` in terms of ops."""

    samples: ClassVar[tuple[Sample, ...]] = ()
    onnx_roundtrip_blocker: ClassVar[str | None] = None
    """Reason why export to ONNX and import does not restore the layer as one layer; None if it does."""
    onnx_equivalents: ClassVar[tuple[str, ...]] = ()
    """Layers with the same ONNX form, any of which a round trip may restore."""
    shardable_parameter: ClassVar[str | None] = None
    """The parameter, a matrix (features, units), that multiplies the last axis of the input: workers may have shards
    of it."""
    passes_mask: ClassVar[bool] = False
    """Whether the mask of the first input is also the mask of the output."""

    def call(self, builder: Builder, *inputs: Value) -> Any:
        """Build the layer; in training, also add the penalty on its output."""
        outputs = self.build(builder, *inputs)
        if self.activity_regularizer is not None:
            penalty: Any = self.activity_regularizer  # a `RegularizerSpec`, as all members of that registry are
            builder.penalize_activity(penalty, *as_tuple(outputs))
        return outputs

    def resolved_fields(self, *inputs: Value) -> dict[str, Any]:
        """Fields whose values depend on the shapes of the inputs, with the values for these inputs."""
        return {}

    def mask(self, builder: Builder, *inputs: Value) -> Value | tuple[Value | None, ...] | None:
        """The mask of the first output, or of each output, from `builder.masks` and the inputs; None: no mask."""
        return builder.mask() if self.passes_mask else None

    def step_states(self, steps: int) -> StepStates | None:
        """Return what `build_step` needs for a sequence of `steps` steps.

        The default, None: the layer does not implement `build_step`. A layer that treats each step separately does not
        need it: `build` serves for one step too.
        """
        return None

    def build_step(self, builder: Builder, x: Value, states: Sequence[Value], at: StepPosition) -> tuple[Value, ...]:
        """Build one step of a sequence: x: (N, 1, …) → the output (N, 1, …), then each state or its new row.

        `states` are those of `step_states`, in the order of their names.
        """
        raise NotImplementedError  # layers with `step_states` implement it

    def kernel_matrix(self, kernel: Value) -> Value:
        """A kernel or table as a matrix with one column per element of the axis that is last in Keras."""
        columns = kernel.shape[-1]
        return reshape_to(kernel, (kernel.type.size // columns, columns))

    def build(self, builder: Builder, *inputs: Any, **_: Any) -> Value | tuple[Value, ...]:
        """Build the layer's output from its inputs, as graph values. The signature defines the number of inputs.

        A layer with several outputs returns a tuple in the order of `output_names`.
        """
        raise NotImplementedError  # subclasses implement it

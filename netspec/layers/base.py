"""What layers are built on: `LayerSpec`, and the `Builder` that losses and metrics use too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar, TypeAlias
from zlib import crc32

from netspec.graph.fused import several
from netspec.graph.op import Accepts, nothing
from netspec.graph.ops.elementwise import cast
from netspec.graph.ops.random import RNG_INPUT, RNG_TYPE, RandomUniform
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.special import NormalQuantile
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Scope, ShapeMismatch, Value, current_scope, in_scope
from netspec.layers.checks import need
from netspec.layers.states import Adapted, ConstraintSpec, Domain, Initial, RegularizerSpec, StateInfo, Totals
from netspec.schema.kinds import LayerFields, LossFields, MetricFields

MAX_BYTES = 2**47
"""Bytes of one array: more have no addresses in a process on today's 64-bit machines."""


Revision: TypeAlias = Callable[[str, Value], Value]
"""What a layer makes of a parameter of the layer in its field: (name, parameter) → what that layer computes with."""


@dataclass
class Builder:
    """Collects what layers make: states, their updates, penalties. One builder makes one graph.

    `training` tells the training form of a layer from the inference form; `dtype` is what `float32` in a spec means.
    """

    training: bool
    dtype: DType
    states: dict[str, StateInfo] = field(default_factory=dict)
    updates: dict[str, Value] = field(default_factory=dict)
    penalties: list[Value] = field(default_factory=list)
    domains: dict[str, Domain] = field(default_factory=dict)
    adapted: dict[str, Adapted] = field(default_factory=dict)
    """By the layer that wants it, in the order in which layers are built."""
    inputs: dict[str, Value] = field(default_factory=dict)
    standing: Mapping[str, str] = field(default_factory=dict)
    """Parameters in whose place another state is read, and the name of that."""
    inner: list[tuple[str, LayerFields]] = field(default_factory=list)
    """Layers in fields of layers, and what the names of their states begin with."""
    masks: tuple[Value | None, ...] = ()
    """For each input of what is being built which of its places count, as bool (N, …); None where all do."""
    workers: int = 1
    """How many train together, each on a part of the batch."""
    accepts: Accepts = nothing
    """Whether who runs the graph has a kernel for an op that could be written out as simpler ones."""
    sample_weight: Value | None = None
    """Of the loss or metric being built: how much each sample, or each place of it, counts; None where all do alike."""
    _layer: LayerFields | None = None
    _within: tuple[tuple[str, LayerFields | None], ...] = ()
    _steps: int = 1
    _revising: tuple[Revision, tuple[tuple[str, LayerFields | None], ...]] | None = None
    _name: str = ""
    _streams: int = 0

    def input(self, name: str, type_: TensorType, kind: str = "input") -> Value:
        """The input of the graph called `name`; of another `kind` where no data comes in by it."""
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
        """Start building the layer, loss or metric; parameters and random streams made next belong to it.

        `masks` are those of its inputs, `sample_weight` what the field of that name says.
        """
        self.masks, self.sample_weight = tuple(masks), sample_weight
        self._layer = layer if isinstance(layer, LayerFields) else None
        self._name, self._within, self._streams = name, (), 0
        what = "loss" if isinstance(layer, LossFields) else "metric" if isinstance(layer, MetricFields) else "layer"
        return Scope(name, str(getattr(layer, "type", "")), layer.where(), what=what)

    @contextmanager
    def within(
        self,
        name: str,
        layer: LayerFields | None = None,
        *,
        masks: Sequence[Value | None] | None = None,
        steps: int = 1,
        parameters: Revision | None = None,
    ) -> Iterator[None]:
        """Inside, what is made belongs to a part of the layer being built, whose parameters are called `NAME/…`.

        Where the part is a layer itself, errors are told at its place. `masks` are those of its inputs, if not those of
        the layer around it; it has `steps` times as many samples. It computes with what `parameters` makes of each of
        its parameters (not of those of layers in its fields); states made by that belong to the layer around it.
        """
        before, scope = (self._within, self.masks, self._steps, self._revising), current_scope()
        self._revising = None if parameters is None else (parameters, self._within)
        self._within, self._steps = (*self._within, (name, layer)), self._steps * steps
        self.masks = self.masks if masks is None else tuple(masks)
        if layer is not None:
            self.inner.append((self._full(""), layer))
            scope = replace(scope, kind=str(getattr(layer, "type", "")), location=layer.where() or scope.location)
        try:
            with in_scope(scope):
                yield
        finally:
            self._within, self.masks, self._steps, self._revising = before

    def _owner(self) -> str:
        """The layer in the net whose states are made now."""
        return (self._layer.share if self._layer else None) or self._name

    def _full(self, name: str) -> str:
        """What a state made now is called in the net."""
        return "/".join([self._owner(), *(part for part, _ in self._within), name])

    def _owners(self, name: str) -> list[tuple[LayerFields, str]]:
        """The layers, from the outermost on, that a parameter made now belongs to, and what it is called in each."""
        parts, layers = [part for part, _ in self._within], [self._layer, *(layer for _, layer in self._within)]
        return [(layer, "/".join([*parts[k:], name])) for k, layer in enumerate(layers) if layer is not None]

    @property
    def learning(self) -> bool:
        """True where the layer being built is built for training and is not frozen."""
        return self.training and all(layer.trainable for layer, _ in self._owners(""))

    def parameter(
        self,
        name: str,
        shape: tuple[int, ...],
        initial: Initial,
        penalty: RegularizerSpec | None = None,
        constraint: ConstraintSpec | None = None,
    ) -> Value:
        """The layer's parameter `name`; with `share`, that of the owner, which must have the same shape.

        The loss grows by the penalty; after each step the parameter is projected on what the constraint allows.
        """
        made = self._state(name, shape, initial, "parameter", constraint)
        if self._revising is not None:
            (revised, around), inside = self._revising, self._within
            self._within, self._revising = around, None
            made = revised(name, made)
            self._within, self._revising = inside, (revised, around)
        if penalty is not None and self.learning and not (self._layer and self._layer.share):
            self.penalties.append(penalty.penalty(made))
        return made

    def statistic(self, name: str, shape: tuple[int, ...], initial: Initial, dtype: DType | None = None) -> Value:
        """A state of the layer that no gradient changes; give it its next value with `update`."""
        return self._state(name, shape, initial, "statistic", dtype=dtype)

    def _state(
        self,
        name: str,
        shape: tuple[int, ...],
        initial: Initial,
        role: str,
        constraint: ConstraintSpec | None = None,
        dtype: DType | None = None,
    ) -> Value:
        layer, owner = self._layer, self._owner()
        full, kind = self._full(name), TensorType(shape, self.dtype if dtype is None else dtype)
        need(
            kind.nbytes <= MAX_BYTES,
            f"the parameter `{name}` is too large",
            expected=f"at most 2 ** {MAX_BYTES.bit_length() - 1} bytes, which is all that a process can address",
            got=f"{kind}: {kind.nbytes:,} bytes",
        )
        for one, can in ((initial, "start so"), (constraint, "be constrained so")):
            why = one.why_not(shape) if one is not None else None
            need(why is None, f"the parameter `{name}` can't {can}: {why}", got=kind)
        known = self.states.get(full)
        if known is not None:
            if known.value.type != kind:
                raise ShapeMismatch(
                    f"the shared parameter `{name}` of `{owner}` has another shape", f"{known.value.type}", f"{kind}"
                )
            return known.value
        with in_scope(Scope(owner, "parameter", layer.where() if layer else None)):
            value = State(self.standing.get(full, full), kind)()
        owners = self._owners(name)
        rate, decay = (
            prod(_multiplier(one, field_, called) for one, called in owners)
            for field_ in ("learning_rate_multiplier", "weight_decay_multiplier")
        )
        trainable = role == "parameter" and all(one.trainable for one, _ in owners) and rate > 0
        self.states[full] = StateInfo(value, initial, role, trainable, rate, decay, constraint)
        return value

    def adapt(self, states: Sequence[Value], results: Sequence[Value], totals: Callable[..., Totals]) -> None:
        """Let one pass over the training data give `states` their values: see `Adapted`.

        Of layers that share them the owner, which comes first, says which.
        """
        names = tuple(state.op.label for state in states if isinstance(state.op, State))
        self.adapted.setdefault(self._full("").rstrip("/"), Adapted(names, tuple(results), totals))

    def penalize_activity(self, penalty: RegularizerSpec, *outputs: Value) -> None:
        """In training add the penalty on each output, divided by the number of samples."""
        if self.training:
            self.penalties += [penalty.penalty(self.floating(y)) * (1 / y.shape[0]) for y in outputs]

    def mask(self, index: int = 0) -> Value | None:
        """The mask of an input of what is being built: bool, True where a place counts; None where all do."""
        return self.masks[index] if index < len(self.masks) else None

    def update(self, state: Value, new: Value) -> None:
        """Give `state` the value `new` in each training step; a parameter that is trained moves on from there."""
        assert isinstance(state.op, State)
        self.updates[state.op.label] = new

    def trains(self, state: Value) -> bool:
        """Whether training moves `state`: it is a parameter, and not frozen."""
        assert isinstance(state.op, State)
        return self.training and self.states[state.op.label].trainable

    def latest(self, state: Value) -> Value:
        """The value of `state` that an update starts from: the last one given, where layers share the state."""
        assert isinstance(state.op, State)
        return self.updates.get(state.op.label, state)

    def draws(self, shape: tuple[int, ...]) -> tuple[RandomUniform, Value]:
        """The op that draws uniform random numbers in [0, 1) for each place of `shape`, and its operand.

        They are other ones at every step; axis 0 is the batch. The op's result may have axis 0 split in two.
        """
        stream = crc32(f"{self._name}/{self._streams}".encode())
        self._streams += 1
        by_sample = (shape[0] // self._steps, self._steps, *shape[1:]) if self._steps > 1 else shape
        return RandomUniform(TensorType(by_sample, self.dtype), stream), self.input(RNG_INPUT, RNG_TYPE, "counter")

    def uniform(self, shape: tuple[int, ...]) -> Value:
        """Uniform random numbers in [0, 1), other ones at every step; axis 0 is the batch."""
        draw, counter = self.draws(shape)
        return reshape_to(draw(counter), shape)

    def normal(self, shape: tuple[int, ...]) -> Value:
        """Normal random numbers of mean 0 and variance 1, other ones at every step; axis 0 is the batch.

        Made of uniform ones, of which there are 2²⁴: the middle of each interval, so up to 5.4.
        """
        return NormalQuantile()(self.uniform(shape) - (0.5 - 2.0**-25))

    def floating(self, x: Value) -> Value:
        """`x` as a float of this graph's precision (uint8 images, integer features)."""
        return x if x.dtype.is_float else cast(x, self.dtype)

    def common(self, values: Sequence[Value]) -> list[Value]:
        """The values in one element type: whole numbers where all are int32 or int64, else floats."""
        types = {x.dtype for x in values}
        if types <= {DType.INT32, DType.INT64}:
            return [cast(x, DType.INT32 if types == {DType.INT32} else DType.INT64) for x in values]
        return [self.floating(x) for x in values]

    def require_range(self, x: Value, low: int, high: int, why: str, also: Collection[int] = ()) -> None:
        """Declare that the whole numbers `x` must lie in low … high - 1, or be one of `also`, if they are an input."""
        if isinstance(x.op, Input):
            made, known = Domain(low, high, why, frozenset(also)), self.domains.get(x.op.label)
            self.domains[x.op.label] = made.within(known) if known else made


def _multiplier(layer: LayerFields, field_: str, name: str) -> float:
    given = getattr(layer, field_)
    return float(given.get(name, 1.0)) if isinstance(given, Mapping) else float(given)


def arity(cls: type[Any]) -> tuple[int, int | None]:
    """How many inputs `build` takes: least and most (None: any number), read from its signature."""
    parameters = list(inspect.signature(cls.build).parameters.values())[2:]
    several = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    least = sum(one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty for one in parameters)
    most = None if several else sum(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters)
    return least, most


@dataclass(frozen=True)
class Sample:
    """A small configuration of a class for the registry-wide tests: its fields and the shapes of its inputs."""

    fields: Mapping[str, Any]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...] = ()
    """Element types of the inputs, where one is not a float."""
    high: int = 4
    """Integer inputs are drawn from 0 … high - 1."""
    ranges: tuple[tuple[float, float] | None, ...] = ()
    """Intervals that the float inputs are drawn from; None, or no entry, for normal numbers."""
    one_way: bool = False
    """Whether the layer with these fields does not come back from an ONNX file as one layer."""
    masks: tuple[tuple[int, ...] | None, ...] = ()
    """Shapes of the masks of the inputs; None, or no entry, for an input without one."""
    weight: tuple[int, ...] | None = None
    """Shape of the weights of the samples, where a loss or metric is given some."""

    @classmethod
    def of(
        cls,
        *shapes: tuple[int, ...],
        dtypes: Sequence[str] = (),
        high: int = 4,
        ranges: Sequence[tuple[float, float] | None] = (),
        one_way: bool = False,
        masks: Sequence[tuple[int, ...] | None] = (),
        weight: tuple[int, ...] | None = None,
        **fields: Any,
    ) -> Sample:
        """A sample from shapes (batch axis included) and fields."""
        dtypes = tuple(dtypes) or ("float32",) * len(shapes)
        return cls(fields, shapes, dtypes, high, tuple(ranges), one_way, tuple(masks), weight)


class LayerSpec(LayerFields):
    """Base of layers: fields, and `build` in terms of ops."""

    samples: ClassVar[tuple[Sample, ...]] = ()
    one_way: ClassVar[str | None] = None
    """Why the layer does not come back from an ONNX file as one layer, where it does not."""
    alike: ClassVar[tuple[str, ...]] = ()
    """Layers that are written the same in ONNX, and that it may come back as."""
    divides: ClassVar[str | None] = None
    """The parameter, a matrix (features, units), by which samples are multiplied along their last axis: workers may
    have parts of it."""
    passes_mask: ClassVar[bool] = False
    """Whether the places of the first input that count are those of the output: then its mask is passed on."""

    def call(self, net: Builder, *inputs: Value) -> Any:
        """What `build` makes; in training also the penalty on it."""
        made = self.build(net, *inputs)
        if self.activity_regularizer is not None:
            penalty: Any = self.activity_regularizer  # a `RegularizerSpec`, as all members of that registry are
            net.penalize_activity(penalty, *several(made))
        return made

    def settled(self, *inputs: Value) -> dict[str, Any]:
        """Fields that say by a word, or by nothing, what the shapes of the inputs make numbers of: those numbers."""
        return {}

    def mask(self, net: Builder, *inputs: Value) -> Value | tuple[Value | None, ...] | None:
        """The mask of the first output, or of several, from `net.masks` and the inputs; None: all places count."""
        return net.mask() if self.passes_mask else None

    def kernel_matrix(self, kernel: Value) -> Value:
        """The layer's kernel, or table, as a matrix with a column for each place along Keras's last axis of it."""
        columns = kernel.shape[-1]
        return reshape_to(kernel, (kernel.type.size // columns, columns))

    def build(self, net: Builder, *inputs: Any, **_: Any) -> Value | tuple[Value, ...]:
        """The layer's output from its inputs, as graph values. The signature says how many inputs it takes.

        A layer with several outputs gives a tuple of them, in the order of `output_names`.
        """
        raise NotImplementedError  # abstract: subclasses say

"""Means over the samples of all workers, as graph values.

Each worker weighs what it has by its share of the nominal batch; sums over all workers are divided by that of the
weights. A worker without samples in a step has the weight 0, and takes part with numbers that do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from netspec.compile.build import NetGraph
from netspec.distributed.partitioning.optimizer_sharding import OptimizerSharding
from netspec.distributed.partitioning.sufficient_factors import key, sum_factors
from netspec.graph.ops.all_gather import AllGatherRows, FactorPair, SufficientFactorPlan
from netspec.graph.ops.all_reduce import WEIGHT, AllReduce, CommEncoding
from netspec.graph.ops.elementwise import Equal, Where, cast, scalar
from netspec.graph.ops.source import State
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Scope, Value, in_scope
from netspec.layers.states import ConstantInitial, StateInfo

COMMUNICATION = "communication"
"""Phase of nodes that sum over workers."""
RESIDUAL = "residual"
"""Role of the states that hold the part of a gradient that a worker will send later."""


def uncompressed(shape: tuple[int, ...]) -> CommEncoding:
    """Return the encoding that sends a gradient unencoded."""
    return CommEncoding()


class GradientReduction:
    """Means over workers, in a graph with the input `WEIGHT`."""

    def __init__(
        self,
        built: NetGraph,
        dtype: DType,
        sending: Callable[[tuple[int, ...]], CommEncoding] = uncompressed,
        factoring: SufficientFactorPlan | None = None,
    ) -> None:
        """`sending` says how gradients are sent, by their shapes; `factoring`, of which factors are sent instead."""
        self.built, self.sending, self.factoring = built, sending, factoring
        self._gathered: dict[object, Value] = {}
        self.weight = built.builder.input(WEIGHT, TensorType((), dtype))
        self.states: dict[str, StateInfo] = {}
        """What each worker keeps of its gradients for the next step."""
        self.updates: dict[str, Value] = {}
        """Their new values."""

    @cached_property
    def total(self) -> Value:
        """What all samples of the step count together: 1, where the batch is as large as it should be."""
        return AllReduce(deferred=True, contents=("samples",))(self.weight)

    def weight_by_samples(self, value: Value) -> Value:
        """What the value of this worker counts."""
        return value * cast(self.weight, value.dtype)

    def mean(self, weighed: Value, name: str) -> Value:
        """The mean over all workers of what is weighed already."""
        with in_scope(replace(weighed.node.scope, phase=COMMUNICATION)):
            return AllReduce(deferred=True, contents=(name,))(weighed) / cast(self.total, weighed.dtype)

    def gradients(self, weighed: Mapping[str, Value], scale: Value | None = None) -> dict[str, Value]:
        """The mean of gradients that are weighed already, and times the scale of the loss if there is one.

        What the form of sending leaves out is added to the gradient of the next step: Seide et al. 2014. A momentum of
        the workers is that of Lin et al. 2018, section 3: each adds up velocities, and forgets those of what it sends.
        """
        return {name: self._gradient(name, value, scale) for name, value in weighed.items()}

    def pieces(self, weighed: Mapping[str, Value], division: OptimizerSharding) -> tuple[dict[str, Value], list[Value]]:
        """This worker's pieces of the means of gradients that are weighed already; and what came with them."""
        with in_scope(Scope("", "ScatterSums", None, COMMUNICATION)):
            sums, beside = division.reduce_scatter(weighed)
            return {name: one / cast(self.total, one.dtype) for name, one in sums.items()}, beside

    def of_batch(self, name: str, weighed: Value) -> Value:
        """What is added up of the gradients of several batches: this worker's, or of all where factors are sent."""
        if self.factoring is None or name not in self.factoring.products:
            return weighed
        terms = iter(self.factoring.products[name])
        return sum_factors(weighed, lambda node: self._product(name, node, next(terms)), self.total)

    def _gradient(self, name: str, value: Value, scale: Value | None) -> Value:
        how = self.sending(value.shape)
        factored = self.factoring is not None and name in self.factoring.products
        if factored or self.built.builder.states[name].shard is not None:  # of all samples already
            return value / cast(self.total, value.dtype)
        with in_scope(replace(value.node.scope, phase=COMMUNICATION)):
            kept, velocity = _Kept(self, name, value.type, scale), value
            if how.momentum:
                velocity = value = value + how.momentum * kept.read("/velocity")
            if how.split is not None:
                value, rest = how.split.call_multi(value + kept.read())
                kept.write(rest)
                zero = scalar(0.0, value.dtype)
                velocity = Where()(Equal()(value, zero), velocity, zero)  # what was sent is driven on no more
            if how.momentum:
                kept.write(velocity, "/velocity")
            return AllReduce(deferred=True, encoding=how.encoding, contents=(name,))(value) / cast(
                self.total, value.dtype
            )

    def _product(self, name: str, node: Node, factors: FactorPair) -> Value:
        """A product over the rows of all workers: every one makes the same, of the same rows in the same order."""
        assert self.factoring is not None
        gather = AllGatherRows(self.factoring.workers, factors.positions * self.factoring.max_samples, (name,))
        with in_scope(replace(node.scope, phase=COMMUNICATION)):
            for factor in node.inputs:
                if key(factor) not in self._gathered:  # sent once, however many products read it
                    self._gathered[key(factor)] = gather(factor)
        with in_scope(node.scope):
            return node.op(*(self._gathered[key(factor)] for factor in node.inputs))

    def means(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The mean of each value over all workers."""
        return {name: self.mean(self.weight_by_samples(value), name) for name, value in values.items()}

    def statistics(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """New values of states, with the means of those that differ from worker to worker: moving averages."""
        states = self.built.builder.states
        differing = {
            name: value for name, value in values.items() if states[name].role == "statistic" and value.dtype.is_float
        }
        return {**values, **self.means(differing)}


class _Kept:
    """States in which a worker keeps something of a gradient for the next step: without the scale of the loss."""

    def __init__(self, spread: GradientReduction, name: str, kind: TensorType, scale: Value | None) -> None:
        self._spread, self._label, self._kind = spread, f"{RESIDUAL}/{name}", kind
        self._factor = None if scale is None else cast(scale, kind.dtype)

    def read(self, what: str = "") -> Value:
        """What was kept in the last step, times the scale."""
        label = self._label + what
        left = State(label, self._kind)()
        self._spread.states[label] = StateInfo(left, ConstantInitial(), RESIDUAL)
        return left if self._factor is None else left * self._factor

    def write(self, value: Value, what: str = "") -> None:
        """Keep a value."""
        self._spread.updates[self._label + what] = value if self._factor is None else value / self._factor

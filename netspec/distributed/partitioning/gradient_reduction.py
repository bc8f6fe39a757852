"""Means over the samples of all workers, as graph values.

Each worker weights its values by its share of the nominal batch; sums over all workers are divided by the sum of the
weights. A worker without samples in a step has weight 0, and its values have no effect.
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
"""Phase of nodes that communicate."""
RESIDUAL = "residual"
"""Role of the states that hold the part of a gradient that a worker will send later."""


def uncompressed(shape: tuple[int, ...]) -> CommEncoding:
    """Return the encoding that sends a gradient unencoded."""
    return CommEncoding()


class GradientReduction:
    """Builds means over workers, in a graph with the input `WEIGHT`."""

    def __init__(
        self,
        built: NetGraph,
        dtype: DType,
        comm_encoding: Callable[[tuple[int, ...]], CommEncoding] = uncompressed,
        factoring: SufficientFactorPlan | None = None,
    ) -> None:
        """`comm_encoding` returns a gradient's encoding by its shape; `factoring` lists gradients sent as factors."""
        self.built, self.comm_encoding, self.factoring = built, comm_encoding, factoring
        self._gathered: dict[object, Value] = {}
        self.weight = built.builder.input(WEIGHT, TensorType((), dtype))
        self.states: dict[str, StateInfo] = {}
        """States in which each worker keeps a part of its gradients for the next step."""
        self.updates: dict[str, Value] = {}
        """New values of these states."""

    @cached_property
    def total(self) -> Value:
        """Sum of the weights of all samples of the step: 1 if the batch has its nominal size."""
        return AllReduce(deferred=True, contents=("samples",))(self.weight)

    def weight_by_samples(self, value: Value) -> Value:
        """Multiply a value by this worker's weight."""
        return value * cast(self.weight, value.dtype)

    def mean(self, weighted: Value, name: str) -> Value:
        """Return the mean of a weighted value over all workers."""
        with in_scope(replace(weighted.node.scope, phase=COMMUNICATION)):
            return AllReduce(deferred=True, contents=(name,))(weighted) / cast(self.total, weighted.dtype)

    def gradients(self, weighted: Mapping[str, Value], scale: Value | None = None) -> dict[str, Value]:
        """Return the means of weighted gradients, times the loss scale if there is one.

        The quantization error of a lossy encoding is added to the gradient of the next step: Seide et al. 2014. The
        momentum of workers follows Lin et al. 2018, section 3: each worker accumulates a velocity per element, and
        resets the velocities of the elements that it sends.
        """
        return {name: self._gradient(name, value, scale) for name, value in weighted.items()}

    def pieces(
        self, weighted: Mapping[str, Value], division: OptimizerSharding
    ) -> tuple[dict[str, Value], list[Value]]:
        """Return this worker's pieces of the means of weighted gradients, and the order value of each bucket."""
        with in_scope(Scope("", "ScatterSums", None, COMMUNICATION)):
            sums, orders = division.reduce_scatter(weighted)
            return {name: total / cast(self.total, total.dtype) for name, total in sums.items()}, orders

    def contribution(self, name: str, weighted: Value) -> Value:
        """Return what a batch adds to a gradient's sum: from this worker, or from all workers if factors are sent."""
        if self.factoring is None or name not in self.factoring.products:
            return weighted
        terms = iter(self.factoring.products[name])
        return sum_factors(weighted, lambda node: self._product(name, node, next(terms)), self.total)

    def _gradient(self, name: str, value: Value, scale: Value | None) -> Value:
        encoding = self.comm_encoding(value.shape)
        factored = self.factoring is not None and name in self.factoring.products
        if factored or self.built.builder.states[name].shard is not None:  # it covers the samples of all workers
            return value / cast(self.total, value.dtype)
        with in_scope(replace(value.node.scope, phase=COMMUNICATION)):
            residual, velocity = _ResidualState(self, name, value.type, scale), value
            if encoding.momentum:
                velocity = value = value + encoding.momentum * residual.read("/velocity")
            if encoding.split is not None:
                value, remainder = encoding.split.call_multi(value + residual.read())
                residual.write(remainder)
                zero = scalar(0.0, value.dtype)
                velocity = Where()(Equal()(value, zero), velocity, zero)  # elements that were sent lose their velocity
            if encoding.momentum:
                residual.write(velocity, "/velocity")
            return AllReduce(deferred=True, encoding=encoding.encoding, contents=(name,))(value) / cast(
                self.total, value.dtype
            )

    def _product(self, name: str, node: Node, factors: FactorPair) -> Value:
        """Multiply the rows of all workers; every worker computes the same product, with rows in the same order."""
        assert self.factoring is not None
        gather = AllGatherRows(self.factoring.workers, factors.positions * self.factoring.max_samples, (name,))
        with in_scope(replace(node.scope, phase=COMMUNICATION)):
            for factor in node.inputs:
                if key(factor) not in self._gathered:  # rows that several products read are sent once
                    self._gathered[key(factor)] = gather(factor)
        with in_scope(node.scope):
            return node.op(*(self._gathered[key(factor)] for factor in node.inputs))

    def means(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the mean of each value over all workers."""
        return {name: self.mean(self.weight_by_samples(value), name) for name, value in values.items()}

    def statistics(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return new values of states. Moving averages differ between workers, and are replaced by their means."""
        states = self.built.builder.states
        differing = {
            name: value for name, value in values.items() if states[name].role == "statistic" and value.dtype.is_float
        }
        return {**values, **self.means(differing)}


class _ResidualState:
    """States that keep a part of a worker's gradient for the next step, without the loss scale."""

    def __init__(self, reduction: GradientReduction, name: str, kind: TensorType, scale: Value | None) -> None:
        self._reduction, self._label, self._kind = reduction, f"{RESIDUAL}/{name}", kind
        self._factor = None if scale is None else cast(scale, kind.dtype)

    def read(self, suffix: str = "") -> Value:
        """Return the value kept by the last step, times the loss scale."""
        label = self._label + suffix
        residual = State(label, self._kind)()
        self._reduction.states[label] = StateInfo(residual, ConstantInitial(), RESIDUAL)
        return residual if self._factor is None else residual * self._factor

    def write(self, value: Value, suffix: str = "") -> None:
        """Keep a value for the next step."""
        self._reduction.updates[self._label + suffix] = value if self._factor is None else value / self._factor

"""Means over the samples of all workers, as graph values.

Each worker weighs what it has by its share of the nominal batch; sums over all workers are divided by that of the
weights. A worker without samples in a step has the weight 0, and takes part with numbers that do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from netspec.compile.build import Built
from netspec.compile.division import Division
from netspec.compile.factors import key, summed
from netspec.graph.ops.communication import WEIGHT, AllReduce, Sending
from netspec.graph.ops.elementwise import Equal, Where, cast, scalar
from netspec.graph.ops.gathering import Factoring, Factors, GatherRows
from netspec.graph.ops.source import State
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node, Scope, Value, in_scope
from netspec.layers.states import Constant, StateInfo

COMMUNICATION = "communication"
"""Phase of nodes that sum over workers."""
RESIDUAL = "residual"
"""Role of what a worker has not sent yet of a gradient."""


def send_plainly(shape: tuple[int, ...]) -> Sending:
    """As it is."""
    return Sending()


class Spread:
    """Means over workers, in a graph with the input `WEIGHT`."""

    def __init__(
        self,
        built: Built,
        dtype: DType,
        sending: Callable[[tuple[int, ...]], Sending] = send_plainly,
        factoring: Factoring | None = None,
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
        return AllReduce(late=True, holds=("samples",))(self.weight)

    def weighed(self, value: Value) -> Value:
        """What the value of this worker counts."""
        return value * cast(self.weight, value.dtype)

    def mean(self, weighed: Value, name: str) -> Value:
        """The mean over all workers of what is weighed already."""
        with in_scope(replace(weighed.node.scope, phase=COMMUNICATION)):
            return AllReduce(late=True, holds=(name,))(weighed) / cast(self.total, weighed.dtype)

    def gradients(self, weighed: Mapping[str, Value], scale: Value | None = None) -> dict[str, Value]:
        """The mean of gradients that are weighed already, and times the scale of the loss if there is one.

        What the form of sending leaves out is added to the gradient of the next step: Seide et al. 2014. A momentum of
        the workers is that of Lin et al. 2018, section 3: each adds up velocities, and forgets those of what it sends.
        """
        return {name: self._gradient(name, value, scale) for name, value in weighed.items()}

    def pieces(self, weighed: Mapping[str, Value], division: Division) -> tuple[dict[str, Value], list[Value]]:
        """This worker's pieces of the means of gradients that are weighed already; and what came with them."""
        with in_scope(Scope("", "ScatterSums", None, COMMUNICATION)):
            sums, beside = division.scattered(weighed)
            return {name: one / cast(self.total, one.dtype) for name, one in sums.items()}, beside

    def of_batch(self, name: str, weighed: Value) -> Value:
        """What is added up of the gradients of several batches: this worker's, or of all where factors are sent."""
        if self.factoring is None or name not in self.factoring.products:
            return weighed
        terms = iter(self.factoring.products[name])
        return summed(weighed, lambda node: self._product(name, node, next(terms)), self.total)

    def _gradient(self, name: str, value: Value, scale: Value | None) -> Value:
        how = self.sending(value.shape)
        factored = self.factoring is not None and name in self.factoring.products
        if factored or self.built.builder.states[name].piece is not None:  # of all samples already
            return value / cast(self.total, value.dtype)
        with in_scope(replace(value.node.scope, phase=COMMUNICATION)):
            kept, velocity = _Kept(self, name, value.type, scale), value
            if how.momentum:
                velocity = value = value + how.momentum * kept.read("/velocity")
            if how.split is not None:
                value, rest = how.split.many(value + kept.read())
                kept.write(rest)
                zero = scalar(0.0, value.dtype)
                velocity = Where()(Equal()(value, zero), velocity, zero)  # what was sent is driven on no more
            if how.momentum:
                kept.write(velocity, "/velocity")
            return AllReduce(late=True, encoding=how.encoding, holds=(name,))(value) / cast(self.total, value.dtype)

    def _product(self, name: str, node: Node, factors: Factors) -> Value:
        """A product over the rows of all workers: every one makes the same, of the same rows in the same order."""
        assert self.factoring is not None
        gather = GatherRows(self.factoring.workers, factors.positions * self.factoring.most, (name,))
        with in_scope(replace(node.scope, phase=COMMUNICATION)):
            for factor in node.inputs:
                if key(factor) not in self._gathered:  # sent once, however many products read it
                    self._gathered[key(factor)] = gather(factor)
        with in_scope(node.scope):
            return node.op(*(self._gathered[key(factor)] for factor in node.inputs))

    def means(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The mean of each value over all workers."""
        return {name: self.mean(self.weighed(value), name) for name, value in values.items()}

    def statistics(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """New values of states, with the means of those that differ from worker to worker: moving averages."""
        states = self.built.builder.states
        differing = {
            name: value for name, value in values.items() if states[name].role == "statistic" and value.dtype.is_float
        }
        return {**values, **self.means(differing)}


class _Kept:
    """States in which a worker keeps something of a gradient for the next step: without the scale of the loss."""

    def __init__(self, spread: Spread, name: str, kind: TensorType, scale: Value | None) -> None:
        self._spread, self._label, self._kind = spread, f"{RESIDUAL}/{name}", kind
        self._factor = None if scale is None else cast(scale, kind.dtype)

    def read(self, what: str = "") -> Value:
        """What was kept in the last step, times the scale."""
        label = self._label + what
        left = State(label, self._kind)()
        self._spread.states[label] = StateInfo(left, Constant(), RESIDUAL)
        return left if self._factor is None else left * self._factor

    def write(self, value: Value, what: str = "") -> None:
        """Keep a value."""
        self._spread.updates[self._label + what] = value if self._factor is None else value / self._factor

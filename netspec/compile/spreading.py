"""Means over the samples of all workers, as graph values.

Each worker weighs what it has by its share of the nominal batch; sums over all workers are divided by that of the
weights. A worker without samples in a step has the weight 0, and takes part with numbers that do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from netspec.compile.build import Built
from netspec.compile.steps import WEIGHT
from netspec.graph.ops.communication import AllReduce
from netspec.graph.ops.elementwise import cast
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value, in_scope

COMMUNICATION = "communication"
"""Phase of nodes that sum over workers."""


class Spread:
    """Means over workers, in a graph with the input `WEIGHT`."""

    def __init__(self, built: Built, dtype: DType) -> None:
        self.built = built
        self.weight = built.builder.input(WEIGHT, TensorType((), dtype))

    @cached_property
    def total(self) -> Value:
        """What all samples of the step count together: 1, where the batch is as large as it should be."""
        return AllReduce(late=True)(self.weight)

    def weighed(self, value: Value) -> Value:
        """What the value of this worker counts."""
        return value * cast(self.weight, value.dtype)

    def mean(self, weighed: Value) -> Value:
        """The mean over all workers of what is weighed already."""
        with in_scope(replace(weighed.node.scope, phase=COMMUNICATION)):
            return AllReduce(late=True)(weighed) / cast(self.total, weighed.dtype)

    def means(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The mean of each value over all workers."""
        return {name: self.mean(self.weighed(value)) for name, value in values.items()}

    def statistics(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """New values of states, with the means of those that differ from worker to worker: moving averages."""
        states = self.built.builder.states
        differing = {
            name: value for name, value in values.items() if states[name].role == "statistic" and value.dtype.is_float
        }
        return {**values, **self.means(differing)}

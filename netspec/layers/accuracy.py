"""Metrics that count right answers."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, cast, scalar
from netspec.graph.ops.reduce import ArgMax, ReduceSum
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, MetricSpec, Sample
from netspec.layers.targets import classes
from netspec.schema.kinds import METRICS


def hits(right: Value) -> tuple[Value, Value]:
    """How many elements of a bool value are true, and how many there are; counted in int64, exact over any set."""
    return ReduceSum()(cast(right, DType.INT64)), scalar(prod(right.shape), DType.INT64)


@METRICS.register
class SparseCategoricalAccuracy(MetricSpec):
    """Share of samples whose greatest score is that of the right class; targets are class numbers.

    Prediction (N, C) scores or probabilities, target (N) or (N, 1) whole numbers. Of equal scores the first counts.
    """

    type: Literal["SparseCategoricalAccuracy"] = "SparseCategoricalAccuracy"
    axis: int = -1
    """the axis of the classes"""

    samples: ClassVar = (
        Sample.of((5, 4), (5,), dtypes=("float32", "int32")),
        Sample.of((5, 4), (5, 1), dtypes=("float32", "int64")),
        Sample.of((2, 4, 3, 2), (2, 3, 2), dtypes=("float32", "int32"), axis=1),
    )

    def build(self, net: Builder, prediction: Value, label: Value) -> tuple[Value, ...]:
        """prediction: (N, …, C, …), label: (N, …) → right answers, answers."""
        scores, label, axis = classes(net, prediction, label, self.axis)
        return hits(Equal()(ArgMax(axis)(scores), cast(label, DType.INT64)))

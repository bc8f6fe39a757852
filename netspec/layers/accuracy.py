"""Metrics that count right answers."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, Greater, GreaterOrEqual, Where, cast, elementwise, scalar
from netspec.graph.ops.reduce import ArgMax, ReduceSum
from netspec.graph.ops.shape import OneHot
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, MetricSpec, PositiveInt, Sample, need, sample_axis
from netspec.layers.targets import alike, classes
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


@METRICS.register
class CategoricalAccuracy(MetricSpec):
    """Share of samples whose greatest score is where the target's greatest number is.

    Prediction (N, C) scores or probabilities, target (N, C). Of equal numbers the first counts.
    """

    type: Literal["CategoricalAccuracy"] = "CategoricalAccuracy"
    axis: int = -1
    """the axis of the classes"""

    samples: ClassVar = (Sample.of((5, 4), (5, 4)), Sample.of((2, 4, 3), (2, 4, 3), axis=1))

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …, C, …) → right answers, answers."""
        axis = sample_axis(prediction, self.axis, "of classes")
        prediction, target = alike(net, prediction, target)
        return hits(Equal()(ArgMax(axis)(prediction), ArgMax(axis)(target)))


@METRICS.register
class BinaryAccuracy(MetricSpec):
    """Share of numbers that are on the target's side of a threshold.

    Prediction and target (N, …), target 0 or 1; (N, 1) beside (N) is accepted. A number over the threshold means 1. For
    scores before the sigmoid the threshold is 0.
    """

    type: Literal["BinaryAccuracy"] = "BinaryAccuracy"
    threshold: float = 0.5
    """a prediction greater than this means yes"""

    samples: ClassVar = (
        Sample.of((6, 2), (6, 2), dtypes=("float32", "int32"), high=2),
        Sample.of((6, 1), (6,), dtypes=("float32", "int32"), high=2, threshold=0.0),
    )

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → right answers, answers."""
        prediction, target = alike(net, prediction, target)
        yes = cast(elementwise(Greater(), prediction, self.threshold), target.dtype)
        return hits(Equal()(yes, target))


@METRICS.register
class SparseTopKCategoricalAccuracy(MetricSpec):
    """Share of samples whose right class is among the `k` greatest scores; targets are class numbers.

    Prediction (N, C), target (N) or (N, 1) whole numbers. As in Keras a tie counts for the right class: it is among the
    k greatest if fewer than k scores are greater.
    """

    type: Literal["SparseTopKCategoricalAccuracy"] = "SparseTopKCategoricalAccuracy"
    k: PositiveInt = 5
    """how many scores count"""
    axis: int = -1
    """the axis of the classes"""

    samples: ClassVar = (
        Sample.of((5, 6), (5,), dtypes=("float32", "int32"), high=6),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int64"), k=2, axis=1),
    )

    def build(self, net: Builder, prediction: Value, label: Value) -> tuple[Value, ...]:
        """prediction: (N, …, C, …), label: (N, …) → right answers, answers."""
        scores, label, axis = classes(net, prediction, label, self.axis)
        count = scores.shape[axis]
        need(self.k <= count, f"there are not {self.k} classes", expected=f"`k` up to {count}", got=f"k: {self.k}")
        one_hot = cast(OneHot(count, scores.dtype, axis)(label), DType.BOOL)
        own = ReduceSum((axis,), keepdims=True)(elementwise(Where(), one_hot, scores, 0.0))
        # Not "how many are greater": a score that is not a number must not count as right.
        reached = ReduceSum((axis,))(cast(GreaterOrEqual()(own, scores), DType.INT64))
        return hits(elementwise(GreaterOrEqual(), reached, count - self.k + 1))

"""Metrics that count right answers."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, Greater, GreaterOrEqual, Where, cast, elementwise
from netspec.graph.ops.reduce import ArgMax, ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot, Slice
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, need, sample_axis
from netspec.layers.judging import Judged, PairMetric
from netspec.layers.targets import alike, classes, unless
from netspec.schema.kinds import METRICS
from netspec.schema.spec import Spec


class ClassAxis(Spec):
    """Field of metrics of classes."""

    axis: int = -1
    """the axis of the classes"""


@METRICS.register
class Accuracy(PairMetric):
    """Share of numbers that are those of the target: of class numbers, say, that the net itself gives.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted. For scores of classes there is
    SparseCategoricalAccuracy.
    """

    type: Literal["Accuracy"] = "Accuracy"

    samples: ClassVar = (Sample.of((6, 2), (6, 2), dtypes=("int32", "int32"), weight=(6,)),)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return Judged(Equal()(*alike(net, prediction, target)))


@METRICS.register
class SparseCategoricalAccuracy(ClassAxis, PairMetric):
    """Share of samples whose greatest score is that of the right class; targets are class numbers.

    Prediction (N, C) scores or probabilities, target (N) or (N, 1) whole numbers. Of equal scores the first counts.
    """

    type: Literal["SparseCategoricalAccuracy"] = "SparseCategoricalAccuracy"
    ignore_class: int | None = None
    """class number of places that do not count, such as 255 or -1"""

    samples: ClassVar = (
        Sample.of((5, 4), (5,), dtypes=("float32", "int32")),
        Sample.of((5, 4), (5, 1), dtypes=("float32", "int64"), weight=(5,)),
        Sample.of((2, 4, 3, 2), (2, 3, 2), dtypes=("float32", "int32"), axis=1, ignore_class=2),
    )

    def judge(self, net: Builder, prediction: Value, label: Value) -> Judged:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        scores, label, axis = classes(net, prediction, label, self.axis, self.ignore_class)
        label, mask = unless(label, self.ignore_class)
        return Judged(Equal()(ArgMax(axis)(scores), cast(label, DType.INT64)), mask=mask)


@METRICS.register
class CategoricalAccuracy(ClassAxis, PairMetric):
    """Share of samples whose greatest score is where the target's greatest number is.

    Prediction (N, C) scores or probabilities, target (N, C). Of equal numbers the first counts.
    """

    type: Literal["CategoricalAccuracy"] = "CategoricalAccuracy"

    samples: ClassVar = (Sample.of((5, 4), (5, 4), weight=(5,)), Sample.of((2, 4, 3), (2, 4, 3), axis=1))

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C, …) → (N, …)."""
        axis = sample_axis(prediction, self.axis, "of classes")
        prediction, target = alike(net, prediction, target)
        return Judged(Equal()(ArgMax(axis)(prediction), ArgMax(axis)(target)))


@METRICS.register
class BinaryAccuracy(PairMetric):
    """Share of numbers that are on the target's side of a threshold.

    Prediction and target (N, …), target 0 or 1; (N, 1) beside (N) is accepted. A number over the threshold means 1. For
    scores before the sigmoid the threshold is 0.
    """

    type: Literal["BinaryAccuracy"] = "BinaryAccuracy"
    threshold: float = 0.5
    """a prediction greater than this means yes"""

    samples: ClassVar = (
        Sample.of((6, 2), (6, 2), dtypes=("float32", "int32"), high=2, weight=(6,)),
        Sample.of((6, 1), (6,), dtypes=("float32", "int32"), high=2, threshold=0.0),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = alike(net, prediction, target)
        return Judged(Equal()(cast(elementwise(Greater(), prediction, self.threshold), target.dtype), target))


class TopK(ClassAxis):
    """Field of metrics that look at the greatest scores, and who is among them."""

    k: PositiveInt = 5
    """how many scores count"""

    def among(self, scores: Value, label: Value, axis: int) -> Judged:
        """Whether the score of the class `label` (N, …) is one of the k greatest along `axis` of (N, …, C, …)."""
        count = scores.shape[axis]
        need(self.k <= count, f"there are not {self.k} classes", expected=f"`k` up to {count}", got=f"k: {self.k}")
        one_hot = cast(OneHot(count, scores.dtype, axis)(label), DType.BOOL)
        own = ReduceSum((axis,), keepdims=True)(elementwise(Where(), one_hot, scores, 0.0))
        # Not "how many are greater": a score that is not a number must not count as right.
        reached = ReduceSum((axis,))(cast(GreaterOrEqual()(own, scores), DType.INT64))
        return Judged(elementwise(GreaterOrEqual(), reached, count - self.k + 1))


@METRICS.register
class SparseTopKCategoricalAccuracy(TopK, PairMetric):
    """Share of samples whose right class is among the `k` greatest scores; targets are class numbers.

    Prediction (N, C), target (N) or (N, 1) whole numbers. As in Keras a tie counts for the right class: it is among the
    k greatest if fewer than k scores are greater.
    """

    type: Literal["SparseTopKCategoricalAccuracy"] = "SparseTopKCategoricalAccuracy"
    from_sorted_ids: bool = False
    """true: the prediction holds class numbers, the likeliest first, not scores"""

    samples: ClassVar = (
        Sample.of((5, 6), (5,), dtypes=("float32", "int32"), high=6, weight=(5,)),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int64"), k=2, axis=1),
        Sample.of((5, 4), (5,), dtypes=("int32", "int32"), k=2, from_sorted_ids=True),
    )

    def judge(self, net: Builder, prediction: Value, label: Value) -> Judged:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        if not self.from_sorted_ids:
            return self.among(*classes(net, prediction, label, self.axis))
        axis = sample_axis(prediction, self.axis, "of class numbers")
        count = prediction.shape[axis]
        need(
            self.k <= count, f"there are not {self.k} class numbers", expected=f"`k` up to {count}", got=f"k: {self.k}"
        )
        ids = Slice(axis, 0, self.k)(cast(prediction, DType.INT64))
        shape = (*ids.shape[:axis], 1, *ids.shape[axis + 1 :])
        fits = label.shape in (shape, shape[:axis] + shape[axis + 1 :])
        need(fits, "the class numbers do not fit the prediction", expected=f"sizes {list(shape[1:])}", got=label.type)
        found = Equal()(ids, reshape_to(cast(label, DType.INT64), shape))
        return Judged(elementwise(GreaterOrEqual(), ReduceSum((axis,))(cast(found, DType.INT64)), 1))


@METRICS.register
class TopKCategoricalAccuracy(TopK, PairMetric):
    """Share of samples whose right class is among the `k` greatest scores; targets are vectors over the classes.

    Prediction (N, C), target (N, C): the right class is where it is greatest. A tie counts for the right class.
    """

    type: Literal["TopKCategoricalAccuracy"] = "TopKCategoricalAccuracy"

    samples: ClassVar = (
        Sample.of((5, 6), (5, 6), weight=(5,)),
        Sample.of((2, 4, 3), (2, 4, 3), k=2, axis=1),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C, …) → (N, …)."""
        axis = sample_axis(prediction, self.axis, "of classes")
        prediction, target = alike(net, prediction, target)
        return self.among(prediction, ArgMax(axis)(target), axis)

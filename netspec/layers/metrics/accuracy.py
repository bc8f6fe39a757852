"""Metrics that count right answers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from netspec.graph.ops.elementwise import Equal, Greater, GreaterOrEqual, Where, call_elementwise, cast
from netspec.graph.ops.reduce import ArgMax, ReduceSum, reshape_to
from netspec.graph.ops.shape import OneHot, Slice
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, require, sample_axis
from netspec.layers.losses_and_metrics import ElementLosses, PairMetric
from netspec.layers.targets import align_target, class_scores, mask_ignored
from netspec.schema.specs.kinds import METRICS
from netspec.schema.specs.spec import Spec


class ClassAxis(Spec):
    """The field `axis` of metrics of classes."""

    axis: int = -1
    """The axis of the classes."""


class AccuracyMetric(PairMetric):
    """Base of metrics that are the fraction of correct predictions."""

    monitor_mode: ClassVar[Literal["max"]] = "max"


@METRICS.register
class Accuracy(AccuracyMetric):
    """Share of elements that equal the target, such as class indices that the net itself outputs.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted. For scores of classes use
    SparseCategoricalAccuracy.
    """

    type: Literal["Accuracy"] = "Accuracy"

    samples: ClassVar = (Sample.of((6, 2), (6, 2), dtypes=("int32", "int32"), weight=(6,)),)

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        return ElementLosses(Equal()(*align_target(builder, prediction, target)))


@METRICS.register
class SparseCategoricalAccuracy(ClassAxis, AccuracyMetric):
    """Share of samples whose greatest score is that of the right class. Targets are class indices.

    Prediction (N, C): scores or probabilities. Target (N) or (N, 1): integers. Of equal scores the first counts.
    """

    type: Literal["SparseCategoricalAccuracy"] = "SparseCategoricalAccuracy"
    ignore_class: int | None = None
    """Class index of elements to leave out, such as 255 or -1."""

    samples: ClassVar = (
        Sample.of((5, 4), (5,), dtypes=("float32", "int32")),
        Sample.of((5, 4), (5, 1), dtypes=("float32", "int64"), weight=(5,)),
        Sample.of((2, 4, 3, 2), (2, 3, 2), dtypes=("float32", "int32"), axis=1, ignore_class=2),
    )

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        scores, label, axis = class_scores(builder, prediction, label, self.axis, self.ignore_class)
        label, mask = mask_ignored(label, self.ignore_class)
        return ElementLosses(Equal()(ArgMax(axis)(scores), cast(label, DType.INT64)), mask=mask)

    def target_counts(self, target: Any) -> Any:
        """Return the number of elements of each class."""
        import numpy as np

        labels = target[(target >= 0) & (target != self.ignore_class)]
        return np.bincount(labels.astype(np.int64))


@METRICS.register
class CategoricalAccuracy(ClassAxis, AccuracyMetric):
    """Share of samples whose greatest score is at the target's greatest element.

    Prediction (N, C): scores or probabilities. Target (N, C). Of equal elements the first counts.
    """

    type: Literal["CategoricalAccuracy"] = "CategoricalAccuracy"

    samples: ClassVar = (Sample.of((5, 4), (5, 4), weight=(5,)), Sample.of((2, 4, 3), (2, 4, 3), axis=1))

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C, …) → (N, …)."""
        axis = sample_axis(prediction, self.axis, "for classes")
        prediction, target = align_target(builder, prediction, target)
        return ElementLosses(Equal()(ArgMax(axis)(prediction), ArgMax(axis)(target)))

    def target_counts(self, target: Any) -> Any:
        """Return the number of elements of each class."""
        import numpy as np

        return np.bincount(target.argmax(self.axis).reshape(-1))


@METRICS.register
class BinaryAccuracy(AccuracyMetric):
    """Share of elements that are on the target's side of a threshold.

    Prediction and target (N, …), target 0 or 1; (N, 1) with (N) is accepted. An element over the threshold means 1. For
    scores before the sigmoid, set the threshold to 0.
    """

    type: Literal["BinaryAccuracy"] = "BinaryAccuracy"
    threshold: float = 0.5
    """Predictions greater than this are positive."""

    samples: ClassVar = (
        Sample.of((6, 2), (6, 2), dtypes=("float32", "int32"), high=2, weight=(6,)),
        Sample.of((6, 1), (6,), dtypes=("float32", "int32"), high=2, threshold=0.0),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → (N, …)."""
        prediction, target = align_target(builder, prediction, target)
        return ElementLosses(
            Equal()(cast(call_elementwise(Greater(), prediction, self.threshold), target.dtype), target)
        )

    def target_counts(self, target: Any) -> Any:
        """Return the number of elements that are 0 and 1."""
        import numpy as np

        return np.array([(target == 0).sum(), (target == 1).sum()])


class TopKFields(ClassAxis):
    """The field `k` of top-k metrics, and the test whether a class is among the k greatest scores."""

    k: PositiveInt = 5
    """Number of highest scores that count."""

    def in_top_k(self, scores: Value, label: Value, axis: int) -> ElementLosses:
        """Whether the score of class `label` (N, …) is one of the k largest along `axis` of `scores` (N, …, C, …)."""
        count = scores.shape[axis]
        require(
            self.k <= count, f"there are fewer than {self.k} classes", expected=f"`k` up to {count}", got=f"k: {self.k}"
        )
        one_hot = cast(OneHot(count, scores.dtype, axis)(label), DType.BOOL)
        label_score = ReduceSum((axis,), keepdims=True)(call_elementwise(Where(), one_hot, scores, 0.0))
        # Counts the scores that are not greater: counting greater ones would treat a NaN score as correct.
        not_greater = ReduceSum((axis,))(cast(GreaterOrEqual()(label_score, scores), DType.INT64))
        return ElementLosses(call_elementwise(GreaterOrEqual(), not_greater, count - self.k + 1))


@METRICS.register
class SparseTopKCategoricalAccuracy(TopKFields, AccuracyMetric):
    """Share of samples whose right class is among the `k` greatest scores. Targets are class indices.

    Prediction (N, C), target (N) or (N, 1): integers. As in Keras, a tie counts for the right class: it is among the k
    greatest if fewer than k scores are greater.
    """

    type: Literal["SparseTopKCategoricalAccuracy"] = "SparseTopKCategoricalAccuracy"
    from_sorted_ids: bool = False
    """`true`: the prediction holds class indices, the likeliest first, not scores."""

    samples: ClassVar = (
        Sample.of((5, 6), (5,), dtypes=("float32", "int32"), high=6, weight=(5,)),
        Sample.of((2, 4, 3), (2, 3), dtypes=("float32", "int64"), k=2, axis=1),
        Sample.of((5, 4), (5,), dtypes=("int32", "int32"), k=2, from_sorted_ids=True),
    )

    def per_element(self, builder: Builder, prediction: Value, label: Value) -> ElementLosses:
        """prediction: (N, …, C, …), label: (N, …) → (N, …)."""
        if not self.from_sorted_ids:
            return self.in_top_k(*class_scores(builder, prediction, label, self.axis))
        axis = sample_axis(prediction, self.axis, "for class indices")
        count = prediction.shape[axis]
        require(
            self.k <= count, f"there are fewer than {self.k} classes", expected=f"`k` up to {count}", got=f"k: {self.k}"
        )
        ids = Slice(axis, 0, self.k)(cast(prediction, DType.INT64))
        shape = (*ids.shape[:axis], 1, *ids.shape[axis + 1 :])
        fits = label.shape in (shape, shape[:axis] + shape[axis + 1 :])
        require(
            fits,
            "the class indices do not match the prediction",
            expected=batch_shape(shape),
            got=label.type,
        )
        matches = Equal()(ids, reshape_to(cast(label, DType.INT64), shape))
        return ElementLosses(call_elementwise(GreaterOrEqual(), ReduceSum((axis,))(cast(matches, DType.INT64)), 1))


@METRICS.register
class TopKCategoricalAccuracy(TopKFields, AccuracyMetric):
    """Share of samples whose right class is among the `k` greatest scores. Targets are one-hot vectors.

    Prediction (N, C), target (N, C), which is greatest for the right class. A tie counts for the right class.
    """

    type: Literal["TopKCategoricalAccuracy"] = "TopKCategoricalAccuracy"

    samples: ClassVar = (
        Sample.of((5, 6), (5, 6), weight=(5,)),
        Sample.of((2, 4, 3), (2, 4, 3), k=2, axis=1),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …, C, …) → (N, …)."""
        axis = sample_axis(prediction, self.axis, "for classes")
        prediction, target = align_target(builder, prediction, target)
        return self.in_top_k(prediction, ArgMax(axis)(target), axis)

"""Metrics of the confusion matrix: the matrix itself, a report of the classes, and intersections over unions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import GreaterOrEqual, LessOrEqual, Where, call_elementwise, cast
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import ArgMax, reshape_to
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, require, sample_axis
from netspec.layers.losses_and_metrics import ElementLosses, MetricResult, MetricSpec
from netspec.layers.metrics.accuracy import ClassAxis
from netspec.layers.metrics.counting import safe_quotient, weighted_bincount
from netspec.layers.targets import EPSILON, class_scores, mask_ignored
from netspec.schema.specs.kinds import METRICS
from netspec.schema.specs.spec import Spec, problem


def confusion_totals(builder: Builder, predicted: Value, label: Value, count: int, mask: Value | None) -> Value:
    """Totals (count, count): number of elements of the row's class that were predicted as the column's class.

    predicted, label: (N, …) int64. Elements that are masked are left out.
    """
    _, weights, _ = ElementLosses(predicted, mask=mask).weighted(builder)
    return reshape_to(weighted_bincount(label * count + predicted, count * count, weights), (count, count))


def index_range(count: int, *values: Value) -> Value:
    """Elementwise: True if all of `values` are from 0 to count - 1."""
    in_range: Value | None = None
    for value in values:
        bounded = And()(call_elementwise(GreaterOrEqual(), value, 0), call_elementwise(LessOrEqual(), value, count - 1))
        in_range = bounded if in_range is None else And()(in_range, bounded)
    assert in_range is not None
    return in_range


class ConfusionMatrixMetric(ClassAxis, MetricSpec):
    """Base of tables computed from scores and class indices."""

    ignore_class: int | None = None
    """Class index of elements to leave out, such as 255 or -1."""
    class_names: list[str] | None = None
    """Names of the classes; default: those of the data, or their indices."""

    samples: ClassVar[tuple[Sample, ...]] = (
        Sample.of((9, 3), (9,), dtypes=("float32", "int32"), high=3),
        Sample.of(
            (3, 3, 4), (3, 4), dtypes=("float32", "int32"), high=3, axis=1, ignore_class=2,
            class_names=["cat", "dog", "bird"], weight=(3,),
        ),
    )  # fmt: skip

    def build(self, builder: Builder, prediction: Value, label: Value) -> tuple[Value, ...]:
        """prediction: (N, …, C, …), label: (N, …) → (C, C)."""
        scores, label, axis = class_scores(builder, prediction, label, self.axis, self.ignore_class)
        count = scores.shape[axis]
        if self.class_names is not None:
            require(
                len(self.class_names) == count,
                "`class_names` must have one name per class",
                expected=f"{count} names",
                got=f"{len(self.class_names)} names",
            )
        label, mask = mask_ignored(label, self.ignore_class)
        return (confusion_totals(builder, ArgMax(axis)(scores), cast(label, DType.INT64), count, mask),)

    def with_class_names(self, names: Sequence[str]) -> Self:
        """Return the metric with these names, unless it declares its own."""
        return self if self.class_names is not None else self.model_copy(update={"class_names": list(names)})

    def named(self, count: int) -> list[str]:
        """The names of the classes; their indices if the data has names for another number of classes."""
        names = self.class_names or []
        return names if len(names) == count else [str(number) for number in range(count)]


@METRICS.register
class ConfusionMatrix(ConfusionMatrixMetric):
    """Confusion matrix: how often each class (row) was predicted as each class (column); a table.

    Prediction (N, …, C, …): scores; the class with the greatest score is predicted. Target (N, …): class indices.
    """

    type: Literal["ConfusionMatrix"] = "ConfusionMatrix"

    def result(self, *totals: Any) -> MetricResult:
        """The table: integers if there are no weights."""
        (matrix,) = totals
        names = self.named(len(matrix))
        return {
            name: {predicted: _count(total) for predicted, total in zip(names, row, strict=True)}
            for name, row in zip(names, matrix, strict=True)
        }


def _count(number: Any) -> float:
    return int(number) if float(number).is_integer() else float(number)


@METRICS.register
class ClassificationReport(ConfusionMatrixMetric):
    """Precision, recall, F1 score and number of targets (support) of each class, and their means; a table.

    Prediction (N, …, C, …): scores; the class with the greatest score is predicted. Target (N, …): class indices. The
    last rows are the accuracy, and the means over the classes, unweighted and weighted by support.
    """

    type: Literal["ClassificationReport"] = "ClassificationReport"
    iou: bool = False
    """Whether to add the intersection over union of each class, for masks: targets that are predicted as the class,
    over elements that are its targets, its predictions or both. Its macro average is that of MeanIoU: absent classes do
    not count."""

    def result(self, *totals: Any) -> MetricResult:
        (matrix,) = totals
        correct, predicted, actual = matrix.diagonal(), matrix.sum(axis=0), matrix.sum(axis=1)
        rates = {
            "precision": safe_quotient(correct, predicted),
            "recall": safe_quotient(correct, actual),
            "f1_score": safe_quotient(2 * correct, predicted + actual),
        }
        union = predicted + actual - correct
        if self.iou:
            rates["iou"] = safe_quotient(correct, union)
        total = actual.sum()
        rows = {
            name: {**{rate: float(values[index]) for rate, values in rates.items()}, "support": _count(actual[index])}
            for index, name in enumerate(self.named(len(matrix)))
        }
        support = {"support": _count(total)}
        return {
            **rows,
            "accuracy": {"f1_score": float(safe_quotient(correct.sum(), total)), **support},
            "macro average": {
                **{rate: float(values[union > 0 if rate == "iou" else ...].mean()) for rate, values in rates.items()},
                **support,
            },
            "weighted average": {
                **{rate: float(safe_quotient((values * actual).sum(), total)) for rate, values in rates.items()},
                **support,
            },
        }  # fmt: skip


class IoUBase(MetricSpec):
    """Base of the mean over classes of intersection over union."""

    samples: ClassVar[tuple[Sample, ...]] = ()
    misread: ClassVar[str | None] = "if the prediction holds scores, set `sparse_y_pred: false`"
    """Hint for a prediction and a target of different shapes."""

    @property
    def selected_classes(self) -> list[int] | None:
        """The classes to average; None for all."""
        return None

    def matrix(self, builder: Builder, predicted: Value, label: Value, count: int, ignored: int | None = None) -> Value:
        """Totals (count, count) of class indices; indices out of range are left out."""
        require(
            predicted.shape == label.shape,
            "prediction and target differ in shape",
            expected=f"a target of shape {batch_shape(predicted.shape)}",
            got=batch_shape(label.shape),
            hint=self.misread,
        )
        predicted, label = cast(predicted, DType.INT64), cast(label, DType.INT64)
        label, mask = mask_ignored(label, ignored)
        in_range = index_range(count, predicted, label)
        mask = in_range if mask is None else And()(mask, in_range)
        predicted, label = (call_elementwise(Where(), mask, index, 0) for index in (predicted, label))
        return confusion_totals(builder, predicted, label, count, mask)

    def result(self, *totals: Any) -> MetricResult:
        """The mean over the selected classes that occur in the targets or predictions."""
        (matrix,) = totals
        correct = matrix.diagonal()
        union = matrix.sum(axis=0) + matrix.sum(axis=1) - correct
        if self.selected_classes is not None:
            correct, union = correct[self.selected_classes], union[self.selected_classes]
        occurs = union > 0
        return float((correct[occurs] / (union[occurs] + EPSILON)).sum() / (occurs.sum() + EPSILON))


class TargetClasses(Spec):
    """The field `target_class_ids` of metrics of some classes."""

    target_class_ids: list[int] = Field(min_length=1)
    """The classes to average."""

    @property
    def selected_classes(self) -> list[int] | None:
        return self.target_class_ids


class CheckedTargetClasses(TargetClasses):
    """As `TargetClasses`, with `num_classes`, below which class indices must be."""

    num_classes: PositiveInt
    """Number of classes."""

    @model_validator(mode="after")
    def _are_there(self) -> Self:
        for index, class_id in enumerate(self.target_class_ids):
            if not 0 <= class_id < self.num_classes:
                raise problem(
                    f"`target_class_ids.{index}` is out of range: there are {self.num_classes} classes",
                    field=f"target_class_ids.{index}",
                    expected=f"0 to {self.num_classes - 1}", got=str(class_id),
                )  # fmt: skip
        return self


class SparseFields(ClassAxis):
    """Fields of metrics whose inputs are class indices or scores."""

    ignore_class: int | None = None
    """Class index of elements to leave out, such as 255 or -1."""
    sparse_y_pred: bool = True
    """`false`: the prediction holds scores of the classes along `axis`, not class indices."""

    def class_indices(self, value: Value, sparse: bool, count: int) -> Value:
        """Class indices (N, …): `value` itself if `sparse`, else the index of the greatest element along the axis."""
        if sparse:
            return value
        axis = sample_axis(value, self.axis, "for classes")
        size = value.shape[axis]
        require(
            size == count, "the axis for classes has the wrong size", expected=f"{count}, as `num_classes`", got=size
        )
        return ArgMax(axis)(value)


class IndexOrScoreIoU(SparseFields, IoUBase):
    """Base of metrics whose inputs are class indices by default."""

    num_classes: PositiveInt
    """Number of classes."""
    sparse_y_true: bool = True
    """`false`: the target holds one-hot vectors along `axis`, not class indices."""

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction: (N, …) or (N, …, C, …), target: likewise → (C, C)."""
        predicted = self.class_indices(prediction, self.sparse_y_pred, self.num_classes)
        label = self.class_indices(target, self.sparse_y_true, self.num_classes)
        return (self.matrix(builder, predicted, label, self.num_classes, self.ignore_class),)


class OneHotIoUBase(SparseFields, IoUBase):
    """Base of metrics whose inputs are vectors over the classes by default."""

    num_classes: PositiveInt
    """Number of classes."""
    sparse_y_pred: bool = False

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction: (N, …, C, …) or (N, …), target: (N, …, C, …) → (C, C)."""
        predicted = self.class_indices(prediction, self.sparse_y_pred, self.num_classes)
        label = self.class_indices(target, False, self.num_classes)
        return (self.matrix(builder, predicted, label, self.num_classes, self.ignore_class),)


@METRICS.register
class IoU(CheckedTargetClasses, IndexOrScoreIoU):
    """Intersection over union of some classes: elements of the class predicted as such, over elements that are either.

    Prediction (N, …): class indices, or with `sparse_y_pred: false` scores. Target (N, …): class indices, or with
    `sparse_y_true: false` vectors. Elements whose class is `num_classes` or more are left out.
    """

    type: Literal["IoU"] = "IoU"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), dtypes=("int32", "int32"), high=3, num_classes=3, target_class_ids=[0, 2]),
        Sample.of(
            (4, 2, 3), (4, 2), dtypes=("float32", "int32"), high=3, num_classes=3, target_class_ids=[1, 2],
            sparse_y_pred=False, ignore_class=0,
        ),
    )  # fmt: skip


@METRICS.register
class BinaryIoU(TargetClasses, IoUBase):
    """Intersection over union of positive and negative elements, or of one; positive from the threshold on.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1.
    """

    type: Literal["BinaryIoU"] = "BinaryIoU"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    misread: ClassVar = None
    target_class_ids: list[Literal[0, 1]] = Field(default=[0, 1], min_length=1)  # type: ignore[assignment]  # a part of them
    """Classes to average: 0 (negative), 1 (positive), or both."""
    threshold: float = 0.5
    """Predictions of at least this are positive."""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), high=2),
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), high=2, target_class_ids=[1], threshold=0.2),
    )

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → (2, 2)."""
        yes = call_elementwise(GreaterOrEqual(), builder.floating(prediction), self.threshold)
        return (self.matrix(builder, yes, target, 2),)


@METRICS.register
class MeanIoU(IndexOrScoreIoU):
    """Mean intersection over union of the classes; absent classes do not count.

    Prediction (N, …): class indices, or with `sparse_y_pred: false` scores. Target (N, …): class indices, or with
    `sparse_y_true: false` vectors. Elements whose class is `num_classes` or more are left out.
    """

    type: Literal["MeanIoU"] = "MeanIoU"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), dtypes=("int32", "int32"), high=3, num_classes=4),
        Sample.of((6, 3), (6, 3), num_classes=3, sparse_y_pred=False, sparse_y_true=False, weight=(6,)),
    )


@METRICS.register
class OneHotIoU(CheckedTargetClasses, OneHotIoUBase):
    """Intersection over union of some classes, from scores and one-hot vectors.

    Prediction (N, …, C, …): scores, or with `sparse_y_pred: true` class indices. Target (N, …, C, …).
    """

    type: Literal["OneHotIoU"] = "OneHotIoU"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    samples: ClassVar = (Sample.of((6, 3), (6, 3), num_classes=3, target_class_ids=[0, 2]),)


@METRICS.register
class OneHotMeanIoU(OneHotIoUBase):
    """Mean intersection over union of the classes, from scores and one-hot vectors.

    Prediction (N, …, C, …): scores, or with `sparse_y_pred: true` class indices. Target (N, …, C, …).
    """

    type: Literal["OneHotMeanIoU"] = "OneHotMeanIoU"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    samples: ClassVar = (Sample.of((6, 3), (6, 3), num_classes=3, ignore_class=1),)

"""Which class was taken for which: the matrix itself, a report of the classes, and intersections over unions."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.elementwise import GreaterOrEqual, LessOrEqual, Where, cast, elementwise
from netspec.graph.ops.logic import And
from netspec.graph.ops.reduce import ArgMax, reshape_to
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, need, sample_axis
from netspec.layers.judging import Figure, Judged, MetricSpec
from netspec.layers.metrics.accuracy import ClassAxis
from netspec.layers.metrics.counting import quotient, tally
from netspec.layers.targets import EPSILON, classes, unless
from netspec.schema.kinds import METRICS
from netspec.schema.spec import Spec, problem


def confusions(net: Builder, taken: Value, label: Value, count: int, counted: Value | None) -> Value:
    """Totals (count, count): places of the class of the row that were taken for that of the column.

    taken, label: (N, …) int64. Places that are not `counted`, or where a number is of no class, are left out.
    """
    judged = Judged(taken, mask=counted)
    _, weights, _ = judged.weighted(net)
    return reshape_to(tally(label * count + taken, count * count, weights), (count, count))


def within(count: int, *values: Value) -> Value:
    """Where all of the values are from 0 to count - 1."""
    found: Value | None = None
    for one in values:
        here = And()(elementwise(GreaterOrEqual(), one, 0), elementwise(LessOrEqual(), one, count - 1))
        found = here if found is None else And()(found, here)
    assert found is not None
    return found


class OfMatrix(ClassAxis, MetricSpec):
    """Base of metrics of scores and class numbers that are tables."""

    ignore_class: int | None = None
    """class number of places that do not count, such as 255 or -1"""
    class_names: list[str] | None = None
    """what to call the classes; default: by their numbers"""

    samples: ClassVar[tuple[Sample, ...]] = (
        Sample.of((9, 3), (9,), dtypes=("float32", "int32"), high=3),
        Sample.of(
            (3, 3, 4), (3, 4), dtypes=("float32", "int32"), high=3, axis=1, ignore_class=2,
            class_names=["cat", "dog", "bird"], weight=(3,),
        ),
    )  # fmt: skip

    def build(self, net: Builder, prediction: Value, label: Value) -> tuple[Value, ...]:
        """prediction: (N, …, C, …), label: (N, …) → (C, C)."""
        scores, label, axis = classes(net, prediction, label, self.axis, self.ignore_class)
        count = scores.shape[axis]
        if self.class_names is not None:
            need(
                len(self.class_names) == count,
                "not every class has a name",
                expected=f"{count} names",
                got=f"{len(self.class_names)} names",
            )
        label, counted = unless(label, self.ignore_class)
        return (confusions(net, ArgMax(axis)(scores), cast(label, DType.INT64), count, counted),)

    def named(self, count: int) -> list[str]:
        """The names of the classes."""
        return self.class_names or [str(number) for number in range(count)]


@METRICS.register
class ConfusionMatrix(OfMatrix):
    """How often each class, in the rows, was taken for each, in the columns; a table.

    Prediction (N, …, C, …) scores, of which the greatest is taken, target (N, …) class numbers.
    """

    type: Literal["ConfusionMatrix"] = "ConfusionMatrix"

    def result(self, *totals: Any) -> Figure:
        """The table: whole numbers where nothing is weighted."""
        (matrix,) = totals
        names = self.named(len(matrix))
        return {
            name: {other: _count(one) for other, one in zip(names, row, strict=True)}
            for name, row in zip(names, matrix, strict=True)
        }


def _count(number: Any) -> float:
    return int(number) if float(number).is_integer() else float(number)


@METRICS.register
class ClassificationReport(OfMatrix):
    """Precision, recall and F1 score of each class, how often it is there (support), and the means; a table.

    Prediction (N, …, C, …) scores, of which the greatest is taken, target (N, …) class numbers. The last rows are the
    share of right answers, and the means of the classes, plain and by support.
    """

    type: Literal["ClassificationReport"] = "ClassificationReport"

    def result(self, *totals: Any) -> Figure:
        """The table."""
        (matrix,) = totals
        found, taken, there = matrix.diagonal(), matrix.sum(axis=0), matrix.sum(axis=1)
        rates = {
            "precision": quotient(found, taken),
            "recall": quotient(found, there),
            "f1_score": quotient(2 * found, taken + there),
        }
        total = there.sum()
        rows = {
            name: {**{rate: float(of[number]) for rate, of in rates.items()}, "support": _count(there[number])}
            for number, name in enumerate(self.named(len(matrix)))
        }
        support = {"support": _count(total)}
        return {
            **rows,
            "accuracy": {"f1_score": float(quotient(found.sum(), total)), **support},
            "macro average": {**{rate: float(of.mean()) for rate, of in rates.items()}, **support},
            "weighted average": {
                **{rate: float(quotient((of * there).sum(), total)) for rate, of in rates.items()}, **support
            },
        }  # fmt: skip


class Intersections(MetricSpec):
    """Base of the mean over classes of intersection over union."""

    samples: ClassVar[tuple[Sample, ...]] = ()
    misread: ClassVar[str | None] = "where the prediction holds scores: `sparse_y_pred: false`"
    """What may be meant where prediction and target differ in shape."""

    @property
    def chosen(self) -> list[int] | None:
        """The classes that count; None for all."""
        return None

    def matrix(self, net: Builder, taken: Value, label: Value, count: int, ignored: int | None = None) -> Value:
        """Totals (count, count) of class numbers; what is of no class is left out."""
        need(
            taken.shape == label.shape,
            "prediction and target differ in shape",
            expected=f"a target of sizes {list(taken.shape[1:])} per sample",
            got=f"{list(label.shape[1:])}",
            hint=self.misread,
        )
        taken, label = cast(taken, DType.INT64), cast(label, DType.INT64)
        label, counted = unless(label, ignored)
        known = within(count, taken, label)
        counted = known if counted is None else And()(counted, known)
        taken, label = (elementwise(Where(), counted, one, 0) for one in (taken, label))
        return confusions(net, taken, label, count, counted)

    def result(self, *totals: Any) -> Figure:
        """The mean over the chosen classes that are there or were taken for there."""
        (matrix,) = totals
        found = matrix.diagonal()
        union = matrix.sum(axis=0) + matrix.sum(axis=1) - found
        if self.chosen is not None:
            found, union = found[self.chosen], union[self.chosen]
        there = union > 0
        return float((found[there] / (union[there] + EPSILON)).sum() / (there.sum() + EPSILON))


class SomeClasses(Spec):
    """Fields of metrics of some classes."""

    target_class_ids: list[int] = Field(min_length=1)
    """the classes whose mean is taken"""

    @property
    def chosen(self) -> list[int] | None:
        """These."""
        return self.target_class_ids


class CheckedClasses(SomeClasses):
    """Some of so many classes."""

    num_classes: PositiveInt
    """how many classes there are"""

    @model_validator(mode="after")
    def _are_there(self) -> Self:
        for place, one in enumerate(self.target_class_ids):
            if not 0 <= one < self.num_classes:
                raise problem(
                    f"there is no class {one}", field=f"target_class_ids.{place}",
                    expected=f"0 to {self.num_classes - 1}", got=str(one),
                )  # fmt: skip
        return self


class SparseOrNot(ClassAxis):
    """Fields of metrics that take class numbers or scores."""

    ignore_class: int | None = None
    """class number of places that do not count, such as 255 or -1"""
    sparse_y_pred: bool = True
    """false: the prediction holds scores of the classes along `axis`, not class numbers"""

    def numbers(self, value: Value, sparse: bool, count: int) -> Value:
        """Class numbers (N, …): the value, or where it is greatest along the axis."""
        if sparse:
            return value
        axis = sample_axis(value, self.axis, "of classes")
        size = value.shape[axis]
        need(size == count, "the axis of classes has another size", expected=f"{count} classes", got=f"{size}")
        return ArgMax(axis)(value)


class OfNumbersOrScores(SparseOrNot, Intersections):
    """Base of metrics of class numbers."""

    num_classes: PositiveInt
    """how many classes there are"""
    sparse_y_true: bool = True
    """false: the target holds vectors over the classes along `axis`, not class numbers"""

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction: (N, …) or (N, …, C, …), target: likewise → (C, C)."""
        taken = self.numbers(prediction, self.sparse_y_pred, self.num_classes)
        label = self.numbers(target, self.sparse_y_true, self.num_classes)
        return (self.matrix(net, taken, label, self.num_classes, self.ignore_class),)


class OfOneHot(SparseOrNot, Intersections):
    """Base of metrics of vectors over the classes."""

    num_classes: PositiveInt
    """how many classes there are"""
    sparse_y_pred: bool = False

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction: (N, …, C, …) or (N, …), target: (N, …, C, …) → (C, C)."""
        taken = self.numbers(prediction, self.sparse_y_pred, self.num_classes)
        label = self.numbers(target, False, self.num_classes)
        return (self.matrix(net, taken, label, self.num_classes, self.ignore_class),)


@METRICS.register
class IoU(CheckedClasses, OfNumbersOrScores):
    """Intersection over union of some classes: places of the class that were taken for it, of all that are either.

    Prediction (N, …) class numbers, or with `sparse_y_pred: false` scores; target (N, …) class numbers, or with
    `sparse_y_true: false` vectors. Places of no class below `num_classes` are left out.
    """

    type: Literal["IoU"] = "IoU"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), dtypes=("int32", "int32"), high=3, num_classes=3, target_class_ids=[0, 2]),
        Sample.of(
            (4, 2, 3), (4, 2), dtypes=("float32", "int32"), high=3, num_classes=3, target_class_ids=[1, 2],
            sparse_y_pred=False, ignore_class=0,
        ),
    )  # fmt: skip


@METRICS.register
class BinaryIoU(SomeClasses, Intersections):
    """Intersection over union of yes and no, or of one of them; a prediction of at least the threshold is a yes.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape.
    """

    type: Literal["BinaryIoU"] = "BinaryIoU"
    misread: ClassVar = None
    target_class_ids: list[Literal[0, 1]] = Field(default=[0, 1], min_length=1)  # type: ignore[assignment]  # a part of them
    """0 for the noes, 1 for the yeses, or both"""
    threshold: float = 0.5
    """a prediction of at least this means yes"""

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), high=2),
        Sample.of((4, 3), (4, 3), dtypes=("float32", "int32"), high=2, target_class_ids=[1], threshold=0.2),
    )

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → (2, 2)."""
        yes = elementwise(GreaterOrEqual(), net.floating(prediction), self.threshold)
        return (self.matrix(net, yes, target, 2),)


@METRICS.register
class MeanIoU(OfNumbersOrScores):
    """Mean over the classes of intersection over union; classes that are nowhere do not count.

    Prediction (N, …) class numbers, or with `sparse_y_pred: false` scores; target (N, …) class numbers, or with
    `sparse_y_true: false` vectors. Places of no class below `num_classes` are left out.
    """

    type: Literal["MeanIoU"] = "MeanIoU"

    samples: ClassVar = (
        Sample.of((4, 3), (4, 3), dtypes=("int32", "int32"), high=3, num_classes=4),
        Sample.of((6, 3), (6, 3), num_classes=3, sparse_y_pred=False, sparse_y_true=False, weight=(6,)),
    )


@METRICS.register
class OneHotIoU(CheckedClasses, OfOneHot):
    """Intersection over union of some classes, of scores and vectors over the classes.

    Prediction (N, …, C, …) scores, or with `sparse_y_pred: true` class numbers; target (N, …, C, …).
    """

    type: Literal["OneHotIoU"] = "OneHotIoU"

    samples: ClassVar = (Sample.of((6, 3), (6, 3), num_classes=3, target_class_ids=[0, 2]),)


@METRICS.register
class OneHotMeanIoU(OfOneHot):
    """Mean over the classes of intersection over union, of scores and vectors over the classes.

    Prediction (N, …, C, …) scores, or with `sparse_y_pred: true` class numbers; target (N, …, C, …).
    """

    type: Literal["OneHotMeanIoU"] = "OneHotMeanIoU"

    samples: ClassVar = (Sample.of((6, 3), (6, 3), num_classes=3, ignore_class=1),)

"""AUC: the area under a curve of one rate over another, as the threshold goes from 0 to 1."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.graph.ops.shape import Slice
from netspec.graph.ops.softmax import Softmax
from netspec.graph.ops.source import constant
from netspec.graph.ops.unary import Sigmoid
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import require
from netspec.layers.losses_and_metrics import MetricResult, MetricSpec
from netspec.layers.metrics.counting import Counts, ThresholdGrid, Thresholds, safe_quotient, threshold_counts
from netspec.layers.targets import EPSILON, align_target, one_hot_target
from netspec.schema.specs.kinds import METRICS
from netspec.schema.specs.spec import describe, problem


@METRICS.register
class AUC(MetricSpec):
    """Area under the ROC or the precision-recall curve, approximated by thresholds from 0 to 1 as in Keras.

    Prediction (N, …) probabilities, or with `from_logits` scores before the sigmoid; target 0 or 1 of the same shape.
    With `multi_label` both are (N, C), each class has a curve, and the areas are averaged. The target of a prediction
    (N, C) may also be class indices (N); with `from_logits` the prediction then has scores before the softmax. With two
    classes the curve is that of class 1; with more, each class has a curve against all others.
    """

    type: Literal["AUC"] = "AUC"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    num_thresholds: Annotated[int, Field(gt=1)] = 200
    """Number of thresholds, evenly from 0 to 1."""
    curve: Literal["ROC", "PR", "PRGAIN"] = "ROC"
    """ROC: recall over the rate of false positives; PR: precision over recall; PRGAIN: the
    precision-recall-gain curve."""
    summation_method: Literal["interpolation", "minoring", "majoring"] = "interpolation"
    """Area between two thresholds: the curve's trapezoid (for PR that of Davis and Goadrich 2006), or a rectangle with
    the lower (`minoring`) or the higher (`majoring`) of the two heights."""
    thresholds: Thresholds | None = None
    """Thresholds in addition to 0 and 1; default: `num_thresholds` evenly."""
    multi_label: bool = False
    """`true`: a curve for each class."""
    label_weights: list[Annotated[float, Field(ge=0)]] | None = None
    """Weight of each class on the last axis; default: all equal."""
    from_logits: bool = False
    """`true`: the prediction holds scores before the sigmoid."""

    samples: ClassVar = (
        Sample.of((8, 1), (8,), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None), weight=(8,)),
        Sample.of((8, 2), (8, 2), dtypes=("float32", "int32"), high=2, from_logits=True, summation_method="minoring"),
        Sample.of(
            (8, 3), (8, 3), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None), curve="PR",
            num_thresholds=12, multi_label=True,
        ),
        Sample.of(
            (8, 2), (8, 2), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None), curve="PR",
            thresholds=[0.2, 0.35, 0.7], summation_method="majoring", label_weights=[1.0, 2.0],
        ),
        Sample.of(
            (8, 2), (8, 2), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None), curve="PRGAIN",
            multi_label=True, label_weights=[1.0, 3.0], num_thresholds=5,
        ),
    )  # fmt: skip

    @model_validator(mode="after")
    def _thresholds_are_inside(self) -> Self:
        if self.thresholds is not None and (self.thresholds[0] <= 0 or self.thresholds[-1] >= 1):
            raise problem(
                "`thresholds` contains 0 or 1, which are always used", field="thresholds",
                expected="numbers between 0 and 1", got=describe(self.thresholds),
            )  # fmt: skip
        return self

    @property
    def _levels(self) -> ThresholdGrid:
        if self.thresholds is None:
            return ThresholdGrid(None, self.num_thresholds, closed=True)
        return ThresholdGrid.of(-EPSILON, *self.thresholds, 1 + EPSILON)

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → counts by target and thresholds exceeded, (classes or 1, 2, thresholds + 1)."""
        prediction, target, separate = self._operands(builder, prediction, target)
        rank, count = len(prediction.shape), prediction.shape[-1]
        require(
            rank == 2 or not self.multi_label, "`multi_label` needs a matrix", expected="(N, C)", got=prediction.type
        )
        extra_weights: tuple[Value, ...] = ()
        if self.label_weights is not None:
            fits = rank == 2 and len(self.label_weights) == count
            expected = f"{count} numbers" if rank == 2 else "a prediction (N, C)"
            require(
                fits,
                "`label_weights` must have one weight per label",
                expected=expected,
                got=f"{len(self.label_weights)} numbers",
            )
            if not separate:
                import numpy as np

                extra_weights = (constant(np.array([self.label_weights], str(builder.dtype))),)
        return (threshold_counts(builder, self._levels, prediction, target, count if separate else 1, extra_weights),)

    def _operands(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, Value, bool]:
        """Probabilities and targets of one shape, and whether each class on the last axis has a separate curve."""
        vectors = one_hot_target(builder, prediction, target)
        if vectors is target:
            prediction, target = align_target(builder, prediction, target)
            return Sigmoid()(prediction) if self.from_logits else prediction, target, self.multi_label
        probabilities = builder.floating(prediction)
        if self.from_logits:
            probabilities = Softmax(1)(probabilities)
        if vectors.shape[1] == 2 and not self.multi_label and self.label_weights is None:
            of_class_1 = Slice(1, 1, 2)
            return of_class_1(probabilities), of_class_1(vectors), False
        return probabilities, vectors, True

    def result(self, *totals: Any) -> MetricResult:
        """The area, or the mean over the classes."""
        counts = Counts.of(*totals)
        if self.curve == "PR" and self.summation_method == "interpolation":
            areas = _interpolated(counts)
        else:
            x, y = self._curve(counts)
            left, right = y[:, :-1], y[:, 1:]
            height = {
                "interpolation": (left + right) / 2,
                "minoring": (left + right - abs(left - right)) / 2,
                "majoring": (left + right + abs(left - right)) / 2,
            }[self.summation_method]
            areas = ((x[:, :-1] - x[:, 1:]) * height).sum(-1)
        weights = self.label_weights
        if weights is None or len(areas) == 1:
            return float(areas.mean())
        return float(safe_quotient((areas * weights).sum(), sum(weights)))

    def _curve(self, counts: Counts) -> tuple[Any, Any]:
        """Coordinates x and y of the curve at each threshold."""
        if self.curve == "ROC":
            return safe_quotient(counts.fp, counts.fp + counts.tn), counts.recall
        if self.curve == "PR":
            return counts.recall, counts.precision
        import numpy as np

        odds = safe_quotient(counts.tp + counts.fn, counts.tn + counts.fp)
        none = counts.tp == 0
        recall = np.where(none, 0.0, 1 - odds * safe_quotient(counts.fn, counts.tp))
        precision = np.where(none, 1.0, 1 - odds * safe_quotient(counts.fp, counts.tp))
        return np.maximum(recall, 0.0), precision


def _interpolated(counts: Counts) -> Any:
    """The area under precision over recall, interpolated with true ∝ predicted positives between thresholds.

    Davis and Goadrich, "The relationship between precision-recall and ROC curves", ICML 2006.
    """
    import numpy as np

    predicted = counts.tp + counts.fp
    first, last = predicted[:, :-1], predicted[:, 1:]
    true_positives = counts.tp[:, :-1] - counts.tp[:, 1:]
    slope = safe_quotient(true_positives, np.maximum(first - last, 0))
    intercept = counts.tp[:, 1:] - slope * last
    both = (first > 0) & (last > 0)
    logarithm = np.log(np.where(both, safe_quotient(first, last), 1.0), where=both, out=np.zeros_like(slope))
    return safe_quotient(
        slope * (true_positives + intercept * logarithm), np.maximum(counts.tp[:, 1:] + counts.fn[:, 1:], 0)
    ).sum(-1)

"""Metrics of binary decisions at thresholds: counts, Precision, Recall, and the best rate at a minimum of another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import Where, call_elementwise
from netspec.graph.ops.shape import Slice
from netspec.graph.ops.topk import InTopK
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import PositiveInt, require
from netspec.layers.losses_and_metrics import MetricResult, MetricSpec
from netspec.layers.metrics.counting import Counts, ThresholdGrid, Thresholds, threshold_counts
from netspec.layers.targets import align_target
from netspec.schema.specs.kinds import METRICS
from netspec.schema.specs.spec import Spec

BELOW_THRESHOLDS = -1e30
"""Replaces scores that are not among the greatest; it is below all thresholds."""
ANSWERS = Sample.of((6, 2), (6, 2), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None))
WEIGHTED = Sample.of(
    (6, 1), (6,), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None), weight=(6,), thresholds=[0.3, 0.6]
)


def per_threshold(values: Any, thresholds: tuple[float, ...]) -> MetricResult:
    """The value of a single threshold, or a value for each of several."""
    if len(thresholds) == 1:
        return float(values[0, 0])
    return {f"{threshold:g}": float(value) for threshold, value in zip(thresholds, values[0], strict=True)}


class ThresholdMetric(MetricSpec):
    """Base of metrics at given thresholds."""

    thresholds: Thresholds = (0.5,)
    """Elements greater than this are positive; one threshold, or several, each with its own result. For scores before
    the sigmoid: 0."""

    samples: ClassVar[tuple[Sample, ...]] = (ANSWERS, WEIGHTED)

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → counts by target and number of thresholds exceeded, (1, 2, thresholds + 1)."""
        prediction, target = align_target(builder, prediction, target)
        return (threshold_counts(builder, ThresholdGrid.of(*self.thresholds), prediction, target),)


@METRICS.register
class TruePositives(ThresholdMetric):
    """Number of positive targets that are over the threshold.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["TruePositives"] = "TruePositives"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    def result(self, *totals: Any) -> MetricResult:
        """One value, or one per threshold."""
        return per_threshold(Counts.of(*totals).tp, self.thresholds)


@METRICS.register
class FalsePositives(ThresholdMetric):
    """Number of negative targets that are over the threshold.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["FalsePositives"] = "FalsePositives"
    monitor_mode: ClassVar[Literal["min"]] = "min"

    def result(self, *totals: Any) -> MetricResult:
        """One value, or one per threshold."""
        return per_threshold(Counts.of(*totals).fp, self.thresholds)


@METRICS.register
class TrueNegatives(ThresholdMetric):
    """Number of negative targets that are not over the threshold.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["TrueNegatives"] = "TrueNegatives"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    def result(self, *totals: Any) -> MetricResult:
        """One value, or one per threshold."""
        return per_threshold(Counts.of(*totals).tn, self.thresholds)


@METRICS.register
class FalseNegatives(ThresholdMetric):
    """Number of positive targets that are not over the threshold.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["FalseNegatives"] = "FalseNegatives"
    monitor_mode: ClassVar[Literal["min"]] = "min"

    def result(self, *totals: Any) -> MetricResult:
        """One value, or one per threshold."""
        return per_threshold(Counts.of(*totals).fn, self.thresholds)


class ClassIdField(Spec):
    """Field of metrics that can be limited to one class."""

    class_id: int | None = Field(default=None, ge=0)
    """Index of the only class to count, on the last axis; default: all."""

    def select_class(self, *values: Value) -> tuple[Value, ...]:
        """Slice `class_id`, if it is set, from the last axis of each value."""
        if self.class_id is None:
            return values
        require(len(values[0].shape) >= 2, "`class_id` needs a prediction with an axis for classes", got=values[0].type)
        axis, count = len(values[0].shape) - 1, values[0].shape[-1]
        require(
            self.class_id < count,
            f"`class_id` is out of range: the prediction has {count} classes",
            expected=f"0 to {count - 1}",
            got=self.class_id,
        )
        return tuple(Slice(axis, self.class_id, self.class_id + 1)(value) for value in values)


class PrecisionRecallBase(ClassIdField, MetricSpec):
    """Base of Precision and Recall."""

    thresholds: Thresholds | None = None
    """Elements greater than this are positive; one threshold, or several, each with its own result. Default: 0.5, or
    none with `top_k`. For scores before the sigmoid: 0."""
    top_k: PositiveInt | None = None
    """Number of greatest scores along the last axis that can be positive; default: all."""

    samples: ClassVar[tuple[Sample, ...]] = (
        ANSWERS,
        WEIGHTED,
        Sample.of((6, 4), (6, 4), dtypes=("float32", "int32"), high=2, top_k=2),
        Sample.of(
            (6, 4), (6, 4), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None), top_k=3, class_id=2,
            thresholds=0.2,
        ),
    )  # fmt: skip

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → counts by target and number of thresholds exceeded, (1, 2, thresholds + 1)."""
        prediction, target = align_target(builder, prediction, target)
        if self.top_k is not None:
            count = prediction.shape[-1]
            expected = f"`top_k` up to {count}"
            require(
                self.top_k <= count,
                f"there are fewer than {self.top_k} classes",
                expected=expected,
                got=f"top_k: {self.top_k}",
            )
            prediction = call_elementwise(Where(), InTopK(self.top_k)(prediction), prediction, BELOW_THRESHOLDS)
        prediction, target = self.select_class(prediction, target)
        return (threshold_counts(builder, ThresholdGrid.of(*self._levels), prediction, target),)

    @property
    def _levels(self) -> tuple[float, ...]:
        return self.thresholds or ((0.5,) if self.top_k is None else (BELOW_THRESHOLDS / 2,))


@METRICS.register
class Precision(PrecisionRecallBase):
    """Share of positive targets among the elements over the threshold.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["Precision"] = "Precision"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    def result(self, *totals: Any) -> MetricResult:
        """One value, or one per threshold."""
        return per_threshold(Counts.of(*totals).precision, self._levels)


@METRICS.register
class Recall(PrecisionRecallBase):
    """Share of the positive targets that are over the threshold.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1; (N, 1) with (N) is accepted.
    """

    type: Literal["Recall"] = "Recall"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    def result(self, *totals: Any) -> MetricResult:
        """One value, or one per threshold."""
        return per_threshold(Counts.of(*totals).recall, self._levels)


class ConstrainedBest(ClassIdField, MetricSpec):
    """Base of metrics that maximize one rate over the thresholds at which another rate is high enough."""

    num_thresholds: PositiveInt = 200
    """Number of thresholds, spaced evenly from 0 to 1; 1: only the threshold 0.5."""

    samples: ClassVar[tuple[Sample, ...]] = ()

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → counts by target and number of thresholds exceeded, (1, 2, thresholds + 1)."""
        prediction, target = self.select_class(*align_target(builder, prediction, target))
        grid = ThresholdGrid.of(0.5) if self.num_thresholds == 1 else ThresholdGrid(None, self.num_thresholds)
        return (threshold_counts(builder, grid, prediction, target),)

    @staticmethod
    def best(rates: Any, constrained: Any, minimum: float) -> float:
        """The largest rate at thresholds where the constrained rate is at least `minimum`; 0 if there is none."""
        return float(rates[constrained >= minimum].max(initial=0.0))


def samples_of(name: str) -> tuple[Sample, ...]:
    """Samples of a metric whose field `name` is the minimum rate."""
    first: dict[str, Any] = {name: 0.4}
    second: dict[str, Any] = {name: 0.6, "num_thresholds": 20, "class_id": 1}
    plain = Sample.of((8, 2), (8, 2), dtypes=("float32", "int32"), high=2, ranges=((0.02, 0.98), None))
    return replace(plain, fields=first), replace(plain, fields=second, weight=(8,))


@METRICS.register
class SensitivityAtSpecificity(ConstrainedBest):
    """The best sensitivity (recall) at a threshold with at least a given specificity (recall of negatives).

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1.
    """

    type: Literal["SensitivityAtSpecificity"] = "SensitivityAtSpecificity"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    specificity: float = Field(ge=0, le=1)
    """Minimum specificity."""

    samples: ClassVar = samples_of("specificity")

    def result(self, *totals: Any) -> MetricResult:
        counts = Counts.of(*totals)
        return self.best(counts.recall, counts.specificity, self.specificity)


@METRICS.register
class SpecificityAtSensitivity(ConstrainedBest):
    """The best specificity (recall of negatives) at a threshold with at least a given sensitivity (recall).

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1.
    """

    type: Literal["SpecificityAtSensitivity"] = "SpecificityAtSensitivity"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    sensitivity: float = Field(ge=0, le=1)
    """Minimum sensitivity."""

    samples: ClassVar = samples_of("sensitivity")

    def result(self, *totals: Any) -> MetricResult:
        counts = Counts.of(*totals)
        return self.best(counts.specificity, counts.recall, self.sensitivity)


@METRICS.register
class PrecisionAtRecall(ConstrainedBest):
    """The best precision at a threshold with at least a given recall.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1.
    """

    type: Literal["PrecisionAtRecall"] = "PrecisionAtRecall"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    recall: float = Field(ge=0, le=1)
    """Minimum recall."""

    samples: ClassVar = samples_of("recall")

    def result(self, *totals: Any) -> MetricResult:
        counts = Counts.of(*totals)
        return self.best(counts.precision, counts.recall, self.recall)


@METRICS.register
class RecallAtPrecision(ConstrainedBest):
    """The best recall at a threshold with at least a given precision.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1.
    """

    type: Literal["RecallAtPrecision"] = "RecallAtPrecision"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    precision: float = Field(ge=0, le=1)
    """Minimum precision."""

    samples: ClassVar = samples_of("precision")

    def result(self, *totals: Any) -> MetricResult:
        counts = Counts.of(*totals)
        return self.best(counts.recall, counts.precision, self.precision)

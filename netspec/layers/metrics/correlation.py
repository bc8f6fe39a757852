"""Correlations of prediction and target, R², and the mean and sum of any value."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import scalar
from netspec.graph.ops.reduce import ReduceMean, ReduceSum
from netspec.graph.ops.unary import Sqrt
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.losses_and_metrics import ElementLosses, MeanMetric, MetricResult, MetricSpec, PairMetric
from netspec.layers.targets import EPSILON, align_target
from netspec.schema.specs.kinds import METRICS
from netspec.schema.specs.spec import Spec


class AxisField(Spec):
    """The field `axis` of correlations."""

    axis: int = -1
    """The axis to correlate along; the results are averaged."""

    def centered(self, builder: Builder, prediction: Value, target: Value) -> tuple[int, Value, Value, Value, Value]:
        """The axis; prediction and target minus their means along it; both means."""
        axis = sample_axis(prediction, self.axis, "to correlate along")
        mean = ReduceMean((axis,), keepdims=True)
        p, t = align_target(builder, prediction, target)
        return axis, p - mean(p), t - mean(t), mean(p), mean(t)


SAMPLES = (Sample.of((3, 5), (3, 5), weight=(3,)), Sample.of((2, 4, 3), (2, 4, 3), axis=1))


@METRICS.register
class PearsonCorrelation(AxisField, PairMetric):
    """Pearson correlation of prediction and target along an axis, averaged: from -1 to 1.

    Prediction and target have one shape (N, …), with elements along the axis that are not all equal.
    """

    type: Literal["PearsonCorrelation"] = "PearsonCorrelation"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    samples: ClassVar = SAMPLES

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → correlations, without the axis."""
        axis, p, t, _, _ = self.centered(builder, prediction, target)
        mean = ReduceMean((axis,))
        return ElementLosses(mean(p * t) / (Sqrt()(mean(p * p)) * Sqrt()(mean(t * t))))


@METRICS.register
class ConcordanceCorrelation(AxisField, PairMetric):
    """2 · cov / (var prediction + var target + (difference of the means)²) along an axis, averaged: 1 if both agree.

    Prediction and target have one shape (N, …). Lin 1989.
    """

    type: Literal["ConcordanceCorrelation"] = "ConcordanceCorrelation"
    monitor_mode: ClassVar[Literal["max"]] = "max"

    samples: ClassVar = SAMPLES

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → correlations, without the axis."""
        axis, p, t, mean_p, mean_t = self.centered(builder, prediction, target)
        mean, off = ReduceMean((axis,)), ReduceMean((axis,))(mean_p - mean_t)
        return ElementLosses(mean(p * t) * 2.0 / (mean(p * p) + mean(t * t) + off * off + EPSILON))


@METRICS.register
class R2Score(MetricSpec):
    """1 - Σ (target - prediction)² / Σ (target - its mean)² for each output, then averaged.

    Prediction and target have one shape (N, …); (N, 1) with (N) is accepted. The score is 0 if all targets are equal.
    """

    type: Literal["R2Score"] = "R2Score"
    monitor_mode: ClassVar[Literal["max"]] = "max"
    mean_baseline: ClassVar[float | None] = 0.0
    class_aggregation: Literal["uniform_average", "variance_weighted_average"] | None = "uniform_average"
    """Average over the scores of the outputs; null for all scores."""
    num_regressors: int = Field(default=0, ge=0)
    """Number of regressors, for the adjusted score; 0 for no adjustment."""

    samples: ClassVar = (
        Sample.of((6, 2), (6, 2), weight=(6,)),
        Sample.of((6, 1), (6,), num_regressors=2),
        Sample.of((6, 3), (6, 3), class_aggregation="variance_weighted_average"),
        Sample.of((6, 3), (6, 3), class_aggregation=None),
    )

    def build(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → sums of target, its square, squared errors and weights, number of elements."""
        p, t = align_target(builder, prediction, target)
        total = ReduceSum((0,))
        weighted = [ElementLosses(x).weighted(builder) for x in (t, t * t, (t - p) * (t - p))]
        weights = weighted[0][1]
        count = p * 0.0 + 1.0 if weights is None else p * 0.0 + weights
        return (*(total(values) for values, _, _ in weighted), total(count), scalar(p.type.size, DType.INT64))

    def result(self, *totals: Any) -> MetricResult:
        """The score, or one per output."""
        import numpy as np

        from netspec.layers.metrics.counting import safe_quotient

        sums, squares, errors, weights = (np.asarray(total, float).reshape(-1) for total in totals[:4])
        spread = squares - sums * safe_quotient(sums, weights)
        scores = np.where(spread > 0, 1 - safe_quotient(errors, spread), 0.0)
        if self.class_aggregation == "variance_weighted_average":
            scores = safe_quotient((spread * scores).sum(keepdims=True), spread.sum(keepdims=True))
        elif self.class_aggregation is not None:
            scores = scores.mean(keepdims=True)
        degrees_of_freedom = float(totals[4]) - 1 - self.num_regressors
        if self.num_regressors and degrees_of_freedom > 0:
            scores = 1 - (1 - scores) * (float(totals[4]) - 1) / degrees_of_freedom
        if self.class_aggregation is not None:
            return float(scores[0])
        return {str(index): float(score) for index, score in enumerate(scores)}


@METRICS.register
class Mean(MeanMetric):
    """Mean of any value of the net over the set.

    `from` names the value, (N, …).
    """

    compares = False

    type: Literal["Mean"] = "Mean"

    samples: ClassVar = (Sample.of((4, 3)), Sample.of((4, 3), weight=(4,)))

    def build(self, builder: Builder, values: Value) -> tuple[Value, ...]:
        """values: (N, …) → sum of the weighted values, sum of the weights."""
        return self.totals(builder, ElementLosses(builder.floating(values)))


@METRICS.register
class Sum(MetricSpec):
    """Sum of any value of the net over the set.

    `from` names the value, (N, …).
    """

    compares = False

    type: Literal["Sum"] = "Sum"

    samples: ClassVar = (Sample.of((4, 3)), Sample.of((4, 3), weight=(4,)))

    def build(self, builder: Builder, values: Value) -> tuple[Value, ...]:
        """values: (N, …) → the sum of the weighted values."""
        return (ReduceSum()(ElementLosses(builder.floating(values)).weighted(builder)[0]),)

    def result(self, *totals: Any) -> MetricResult:
        return float(totals[0])

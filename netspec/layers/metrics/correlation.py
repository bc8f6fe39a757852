"""Metrics of how prediction and target go together: correlations, R², and the mean and the sum of any value."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.elementwise import scalar
from netspec.graph.ops.functions import Sqrt
from netspec.graph.ops.reduce import ReduceMean, ReduceSum
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import sample_axis
from netspec.layers.judging import Figure, Judged, MeanMetric, MetricSpec, PairMetric
from netspec.layers.targets import EPSILON, alike
from netspec.schema.kinds import METRICS
from netspec.schema.spec import Spec


class Along(Spec):
    """Field of correlations."""

    axis: int = -1
    """the axis along which numbers are correlated; the results are averaged"""

    def centred(self, net: Builder, prediction: Value, target: Value) -> tuple[int, Value, Value, Value, Value]:
        """The axis; both less their means along it; both means."""
        axis = sample_axis(prediction, self.axis, "to correlate along")
        mean = ReduceMean((axis,), keepdims=True)
        p, t = alike(net, prediction, target)
        return axis, p - mean(p), t - mean(t), mean(p), mean(t)


SAMPLES = (Sample.of((3, 5), (3, 5), weight=(3,)), Sample.of((2, 4, 3), (2, 4, 3), axis=1))


@METRICS.register
class PearsonCorrelation(Along, PairMetric):
    """Pearson's correlation of prediction and target along an axis, averaged: from -1 to 1.

    Prediction and target of one shape (N, …), with some numbers along the axis that are not all equal.
    """

    type: Literal["PearsonCorrelation"] = "PearsonCorrelation"

    samples: ClassVar = SAMPLES

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → the axes that are left."""
        axis, p, t, _, _ = self.centred(net, prediction, target)
        mean = ReduceMean((axis,))
        return Judged(mean(p * t) / (Sqrt()(mean(p * p)) * Sqrt()(mean(t * t))))


@METRICS.register
class ConcordanceCorrelation(Along, PairMetric):
    """2 · cov / (var prediction + var target + (difference of the means)²) along an axis, averaged: 1 where both agree.

    Prediction and target of one shape (N, …). Lin 1989.
    """

    type: Literal["ConcordanceCorrelation"] = "ConcordanceCorrelation"

    samples: ClassVar = SAMPLES

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → the axes that are left."""
        axis, p, t, mean_p, mean_t = self.centred(net, prediction, target)
        mean, off = ReduceMean((axis,)), ReduceMean((axis,))(mean_p - mean_t)
        return Judged(mean(p * t) * 2.0 / (mean(p * p) + mean(t * t) + off * off + EPSILON))


@METRICS.register
class R2Score(MetricSpec):
    """1 - Σ (target - prediction)² / Σ (target - its mean)², of each number of a sample, then averaged.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted. Where all targets are equal it is 0.
    """

    type: Literal["R2Score"] = "R2Score"
    class_aggregation: Literal["uniform_average", "variance_weighted_average"] | None = "uniform_average"
    """how the scores of the numbers of a sample are averaged; null for all of them"""
    num_regressors: int = Field(default=0, ge=0)
    """so many things predicted from: the score is adjusted by them; 0 for not at all"""

    samples: ClassVar = (
        Sample.of((6, 2), (6, 2), weight=(6,)),
        Sample.of((6, 1), (6,), num_regressors=2),
        Sample.of((6, 3), (6, 3), class_aggregation="variance_weighted_average"),
        Sample.of((6, 3), (6, 3), class_aggregation=None),
    )

    def build(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, ...]:
        """prediction, target: (N, …) → sums of target, its square, squared errors and weights, how many numbers."""
        p, t = alike(net, prediction, target)
        total = ReduceSum((0,))
        weighted = [Judged(one).weighted(net) for one in (t, t * t, (t - p) * (t - p))]
        weights = weighted[0][1]
        count = p * 0.0 + 1.0 if weights is None else p * 0.0 + weights
        return (*(total(one) for one, _, _ in weighted), total(count), scalar(p.type.size, DType.INT64))

    def result(self, *totals: Any) -> Figure:
        """The score, or one for each number of a sample."""
        import numpy as np

        from netspec.layers.metrics.counting import quotient

        sums, squares, errors, weights = (np.asarray(one, float).reshape(-1) for one in totals[:4])
        spread = squares - sums * quotient(sums, weights)
        scores = np.where(spread > 0, 1 - quotient(errors, spread), 0.0)
        if self.class_aggregation == "variance_weighted_average":
            scores = quotient((spread * scores).sum(keepdims=True), spread.sum(keepdims=True))
        elif self.class_aggregation is not None:
            scores = scores.mean(keepdims=True)
        free = float(totals[4]) - 1 - self.num_regressors
        if self.num_regressors and free > 0:
            scores = 1 - (1 - scores) * (float(totals[4]) - 1) / free
        if self.class_aggregation is not None:
            return float(scores[0])
        return {str(number): float(one) for number, one in enumerate(scores)}


@METRICS.register
class Mean(MeanMetric):
    """Mean of a value of the net over the set, whatever it is.

    `from` names the one value, (N, …).
    """

    type: Literal["Mean"] = "Mean"

    samples: ClassVar = (Sample.of((4, 3)), Sample.of((4, 3), weight=(4,)))

    def build(self, net: Builder, values: Value) -> tuple[Value, ...]:
        """values: (N, …) → sum of the weighted values, sum of the weights."""
        return self.summed(net, Judged(net.floating(values)))


@METRICS.register
class Sum(MetricSpec):
    """Sum of a value of the net over the set, whatever it is.

    `from` names the one value, (N, …).
    """

    type: Literal["Sum"] = "Sum"

    samples: ClassVar = (Sample.of((4, 3)), Sample.of((4, 3), weight=(4,)))

    def build(self, net: Builder, values: Value) -> tuple[Value, ...]:
        """values: (N, …) → the sum of the weighted values."""
        return (ReduceSum()(Judged(net.floating(values)).weighted(net)[0]),)

    def result(self, *totals: Any) -> Figure:
        """The sum."""
        return float(totals[0])

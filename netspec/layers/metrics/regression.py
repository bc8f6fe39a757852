"""Metrics of numbers: means of what the losses of the same names take, and of other measures."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar, Literal

from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.judging import Figure, Judged, PairMetric
from netspec.layers.losses.regression import (
    SAMPLES,
    CosineAxis,
    absolute_errors,
    cosines,
    log_cosh_errors,
    logarithmic_errors,
    percentage_errors,
    squared_errors,
)
from netspec.schema.kinds import METRICS

WEIGHTED = Sample.of((4, 3), (4, 3), weight=(4,))


@METRICS.register
class MeanSquaredErrorMetric(PairMetric):
    """Mean of (prediction - target)² over all numbers of the set.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanSquaredError"] = "MeanSquaredError"

    samples: ClassVar = (*SAMPLES, WEIGHTED)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return squared_errors(net, prediction, target)


@METRICS.register
class RootMeanSquaredErrorMetric(PairMetric):
    """√ of the mean of (prediction - target)² over all numbers of the set.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["RootMeanSquaredError"] = "RootMeanSquaredError"

    samples: ClassVar = (WEIGHTED,)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return squared_errors(net, prediction, target)

    def result(self, *totals: Any) -> Figure:
        """The root of the quotient."""
        return sqrt(self.mean(*totals))


@METRICS.register
class MeanAbsoluteErrorMetric(PairMetric):
    """Mean of |prediction - target| over all numbers of the set.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanAbsoluteError"] = "MeanAbsoluteError"

    samples: ClassVar = SAMPLES

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return absolute_errors(net, prediction, target)


@METRICS.register
class MeanAbsolutePercentageErrorMetric(PairMetric):
    """Mean of 100 · |prediction - target| / |target| over all numbers of the set.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted. |target| is taken for at least 1e-7.
    """

    type: Literal["MeanAbsolutePercentageError"] = "MeanAbsolutePercentageError"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=(None, (0.5, 2.0))),)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return percentage_errors(net, prediction, target)


@METRICS.register
class MeanSquaredLogarithmicErrorMetric(PairMetric):
    """Mean of (ln(1 + prediction) - ln(1 + target))² over all numbers of the set.

    Prediction and target of one shape (N, …), not negative; (N, 1) beside (N) is accepted.
    """

    type: Literal["MeanSquaredLogarithmicError"] = "MeanSquaredLogarithmicError"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), ranges=((0.1, 3.0), (0.1, 2.0))),)

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return logarithmic_errors(net, prediction, target)


@METRICS.register
class LogCoshErrorMetric(PairMetric):
    """Mean of ln cosh(prediction - target) over all numbers of the set.

    Prediction and target of one shape (N, …); (N, 1) beside (N) is accepted.
    """

    type: Literal["LogCoshError"] = "LogCoshError"

    samples: ClassVar = SAMPLES[:1]

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return log_cosh_errors(net, prediction, target)


@METRICS.register
class CosineSimilarityMetric(CosineAxis, PairMetric):
    """Mean cosine of the angle between prediction and target: 1 where they point the same way.

    Prediction and target of one shape (N, …, C, …), vectors along `axis`.
    """

    type: Literal["CosineSimilarity"] = "CosineSimilarity"

    samples: ClassVar = (Sample.of((4, 3), (4, 3), weight=(4,)), Sample.of((2, 3, 2), (2, 3, 2), axis=1))

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C, …) → (N, …)."""
        return Judged(cosines(net, prediction, target, self.axis))

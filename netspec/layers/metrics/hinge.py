"""Metrics of margins: means of what the hinge losses of the same names take."""

from __future__ import annotations

from typing import ClassVar, Literal

from netspec.graph.value import Value
from netspec.layers.base import Builder
from netspec.layers.judging import Judged, PairMetric
from netspec.layers.losses.hinge import SAMPLES, VECTORS, categorical_hinges, hinges
from netspec.schema.kinds import METRICS


@METRICS.register
class HingeMetric(PairMetric):
    """Mean of max(0, 1 - prediction · target) over all numbers of the set.

    Prediction (N, …) scores, target -1 or 1 of the same shape, or 0 or 1; (N, 1) beside (N) is accepted.
    """

    type: Literal["Hinge"] = "Hinge"

    samples: ClassVar = SAMPLES

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        return Judged(hinges(net, prediction, target))


@METRICS.register
class SquaredHingeMetric(PairMetric):
    """Mean of max(0, 1 - prediction · target)² over all numbers of the set.

    Prediction (N, …) scores, target -1 or 1 of the same shape, or 0 or 1; (N, 1) beside (N) is accepted.
    """

    type: Literal["SquaredHinge"] = "SquaredHinge"

    samples: ClassVar = SAMPLES

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → (N, …)."""
        losses = hinges(net, prediction, target)
        return Judged(losses * losses)


@METRICS.register
class CategoricalHingeMetric(PairMetric):
    """Mean of how far the greatest score of a wrong class is above that of the right one less 1; at least 0.

    Prediction and target (N, …, C): scores, and vectors with one 1 and else 0, along the last axis.
    """

    type: Literal["CategoricalHinge"] = "CategoricalHinge"

    samples: ClassVar = VECTORS

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …, C) → (N, …)."""
        return categorical_hinges(net, prediction, target)

"""Losses that measure how little two regions overlap: Dice, Tversky."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import Axes, sample_axis
from netspec.layers.losses_and_metrics import ElementLosses, PairLoss
from netspec.layers.targets import EPSILON, align_target
from netspec.schema.specs.kinds import LOSSES
from netspec.schema.specs.spec import Spec


class OverlapFields(Spec):
    """Field of losses that compare regions."""

    axis: Axes | None = None
    """The axes of a region, such as `[2, 3]` for one region per channel; default: the whole batch is one region."""

    def sums(self, builder: Builder, prediction: Value, target: Value) -> tuple[Value, Value, Value]:
        """Σ target · prediction, Σ target and Σ prediction over each region."""
        axes = None if self.axis is None else tuple(sample_axis(prediction, axis, "to sum over") for axis in self.axis)
        prediction, target = align_target(builder, prediction, target)
        total = ReduceSum(axes)
        return total(target * prediction), total(target), total(prediction)


RANGES = ((0.05, 0.95), (0.0, 1.0))


@LOSSES.register
class Dice(OverlapFields, PairLoss):
    """1 - 2 · Σ target · prediction / (Σ target + Σ prediction), averaged over the regions.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1. Without `axis` the whole batch is one region,
    and samples cannot be weighted.
    """

    type: Literal["Dice"] = "Dice"

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), ranges=RANGES),
        Sample.of((2, 3, 2, 2), (2, 3, 2, 2), ranges=RANGES, axis=[2, 3], weight=(2, 3)),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → one loss per region."""
        both, targets, predictions = self.sums(builder, prediction, target)
        return ElementLosses(1.0 - both * 2.0 / (targets + predictions + EPSILON))


@LOSSES.register
class Tversky(OverlapFields, PairLoss):
    """1 - b / (b + alpha · Σ t · (1 - p) + beta · Σ p · (1 - t)) for predictions p and targets t, with b = Σ t · p.

    Prediction (N, …): probabilities. Target of the same shape: 0 or 1. Equal to Dice if alpha and beta are ½. Salehi et
    al. 2017, arXiv:1706.05721.
    """

    type: Literal["Tversky"] = "Tversky"
    alpha: float = Field(default=0.5, ge=0)
    """Weight of false negatives."""
    beta: float = Field(default=0.5, ge=0)
    """Weight of false positives."""

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), ranges=RANGES, alpha=0.7, beta=0.2),
        Sample.of((2, 3, 2), (2, 3, 2), ranges=RANGES, axis=[1, 2], weight=(2,)),
    )

    def per_element(self, builder: Builder, prediction: Value, target: Value) -> ElementLosses:
        """prediction, target: (N, …) → one loss per region."""
        both, targets, predictions = self.sums(builder, prediction, target)
        weighted_errors = (targets - both) * self.alpha + (predictions - both) * self.beta
        return ElementLosses(1.0 - both / (both + weighted_errors + EPSILON))

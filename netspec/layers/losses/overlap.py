"""Losses of how little two regions overlap: Dice, Tversky."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.value import Value
from netspec.layers.base import Builder, Sample
from netspec.layers.checks import Axes, sample_axis
from netspec.layers.judging import Judged, PairLoss
from netspec.layers.targets import EPSILON, alike
from netspec.schema.kinds import LOSSES
from netspec.schema.spec import Spec


class Regions(Spec):
    """Field of losses that compare regions."""

    axis: Axes | None = None
    """the axes of one region, such as `[2, 3]` for one in each channel; default: the whole batch is one"""

    def sums(self, net: Builder, prediction: Value, target: Value) -> tuple[Value, Value, Value]:
        """Σ target · prediction, Σ target and Σ prediction over each region."""
        axes = None if self.axis is None else tuple(sample_axis(prediction, one, "of a region") for one in self.axis)
        prediction, target = alike(net, prediction, target)
        total = ReduceSum(axes)
        return total(target * prediction), total(target), total(prediction)


RANGES = ((0.05, 0.95), (0.0, 1.0))


@LOSSES.register
class Dice(Regions, PairLoss):
    """1 - 2 · Σ target · prediction / (Σ target + Σ prediction), averaged over the regions.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape. Without `axis` the whole batch is one region; the
    samples then have no losses of their own to weigh.
    """

    type: Literal["Dice"] = "Dice"

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), ranges=RANGES),
        Sample.of((2, 3, 2, 2), (2, 3, 2, 2), ranges=RANGES, axis=[2, 3], weight=(2, 3)),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → the axes that are not of a region."""
        both, targets, predictions = self.sums(net, prediction, target)
        return Judged(1.0 - both * 2.0 / (targets + predictions + EPSILON))


@LOSSES.register
class Tversky(Regions, PairLoss):
    """1 - b / (b + alpha · Σ target · (1 - prediction) + beta · Σ prediction · (1 - target)), b Σ target · prediction.

    Prediction (N, …) probabilities, target 0 or 1 of the same shape. As Dice where alpha and beta are ½. Salehi et al.
    2017, arXiv:1706.05721.
    """

    type: Literal["Tversky"] = "Tversky"
    alpha: float = Field(default=0.5, ge=0)
    """factor of what the prediction leaves out"""
    beta: float = Field(default=0.5, ge=0)
    """factor of what the prediction has too much"""

    samples: ClassVar = (
        Sample.of((3, 4), (3, 4), ranges=RANGES, alpha=0.7, beta=0.2),
        Sample.of((2, 3, 2), (2, 3, 2), ranges=RANGES, axis=[1, 2], weight=(2,)),
    )

    def judge(self, net: Builder, prediction: Value, target: Value) -> Judged:
        """prediction, target: (N, …) → the axes that are not of a region."""
        both, targets, predictions = self.sums(net, prediction, target)
        amiss = (targets - both) * self.alpha + (predictions - both) * self.beta
        return Judged(1.0 - both / (both + amiss + EPSILON))

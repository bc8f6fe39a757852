"""The schedule that falls along half a cosine wave."""

from __future__ import annotations

from math import cos, pi
from typing import ClassVar, Literal

from pydantic import Field

from netspec.schema.kinds import SCHEDULES
from netspec.solvers.schedules.base import InitialSchedule, Steps


@SCHEDULES.register
class CosineDecay(InitialSchedule):
    """lr(t) = initial · ((1 - alpha) · (1 + cos(π · min(t, T) / T)) / 2 + alpha), with T = decay_steps

    Loshchilov and Hutter 2017, "SGDR", arXiv:1608.03983, without restarts; Keras's CosineDecay. PyTorch's
    CosineAnnealingLR says the last rate itself: `eta_min` = initial · alpha.
    """

    type: Literal["CosineDecay"] = "CosineDecay"
    decay_steps: Steps | None = None
    """steps until the rate is least; default: the length of the training"""
    alpha: float = Field(default=0.0, ge=0, le=1)
    """the least rate as a share of `initial`"""
    samples: ClassVar = ({"initial": 0.1}, {"initial": 0.1, "decay_steps": 6, "alpha": 0.1})

    def value(self, step: int, total_steps: int) -> float:
        period = self.decay_steps or total_steps
        wave = (1 + cos(pi * min(step, period) / period)) / 2
        return self.initial * ((1 - self.alpha) * wave + self.alpha)

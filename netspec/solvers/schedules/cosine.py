"""Schedules that decay along half a cosine wave, once or with restarts."""

from __future__ import annotations

from math import cos, inf, pi
from typing import ClassVar, Literal

from pydantic import Field

from netspec.schema.specs.kinds import SCHEDULES
from netspec.solvers.schedules.base import InitialSchedule, Steps


@SCHEDULES.register
class CosineDecay(InitialSchedule):
    """lr(t) = initial · ((1 - alpha) · (1 + cos(π · min(t, T) / T)) / 2 + alpha), with T = decay_steps

    Loshchilov and Hutter 2017, "SGDR", arXiv:1608.03983, without restarts; Keras's CosineDecay. PyTorch's
    CosineAnnealingLR takes the last rate itself: `eta_min` = initial · alpha.
    """

    type: Literal["CosineDecay"] = "CosineDecay"
    decay_steps: Steps | None = None
    """Number of steps until the minimum. By default the length of the run."""
    alpha: float = Field(default=0.0, ge=0, le=1)
    """Minimum as a share of `initial`."""
    samples: ClassVar = ({"initial": 0.1}, {"initial": 0.1, "decay_steps": 6, "alpha": 0.1})

    def value(self, step: int, total_steps: int) -> float:
        period = self.decay_steps or total_steps
        wave = (1 + cos(pi * min(step, period) / period)) / 2
        return self.initial * ((1 - self.alpha) * wave + self.alpha)


@SCHEDULES.register
class CosineDecayRestarts(InitialSchedule):
    """lr(t) = initial · ((1 - alpha) · m_mul^n · (1 + cos(π · s / T)) / 2 + alpha), s steps after n periods

    T is `first_decay_steps` · t_mul^n: each period is longer than the previous one by this factor. Loshchilov and
    Hutter 2017, "SGDR", arXiv:1608.03983; Keras's CosineDecayRestarts. PyTorch's CosineAnnealingWarmRestarts has no
    `m_mul`, its default of `T_mult` is 1, and it takes the minimum itself: `eta_min` = initial · alpha.
    """

    type: Literal["CosineDecayRestarts"] = "CosineDecayRestarts"
    first_decay_steps: Steps
    """Number of steps of the first period."""
    t_mul: float = Field(default=2.0, ge=1)
    """Factor on the length of a period, from one period to the next."""
    m_mul: float = Field(default=1.0, gt=0)
    """Factor on the initial rate of a period, from one period to the next."""
    alpha: float = Field(default=0.0, ge=0, le=1)
    """Minimum as a share of `initial`."""
    samples: ClassVar = (
        {"initial": 0.1, "first_decay_steps": 3},
        {"initial": 0.1, "first_decay_steps": 4, "t_mul": 1.0, "m_mul": 0.5, "alpha": 0.1},
        {"initial": 0.1, "first_decay_steps": 2, "t_mul": 1.5, "m_mul": 0.9},
    )

    @property
    def upper_bound(self) -> float:
        return self.initial if self.m_mul <= 1 else inf

    def value(self, step: int, total_steps: int) -> float:
        period, start, index = float(self.first_decay_steps), 0.0, 0
        if self.t_mul == 1:
            index, start = step // self.first_decay_steps, float(step - step % self.first_decay_steps)
        else:  # a closed form with logarithms could round to the wrong period
            while step >= start + period:
                start, period, index = start + period, period * self.t_mul, index + 1
        wave = (1 + cos(pi * (step - start) / period)) / 2
        return self.initial * ((1 - self.alpha) * self.m_mul**index * wave + self.alpha)

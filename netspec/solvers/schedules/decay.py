"""Schedules that decay along a smooth curve: exponential, a power of the time, or a sigmoid."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field

from netspec.schema.specs.kinds import SCHEDULES
from netspec.solvers.schedules.base import InitialSchedule, Rate, Steps, elapsed


@SCHEDULES.register
class ExponentialDecay(InitialSchedule):
    """lr(t) = initial · decay_rate^(t / decay_steps)

    Keras's ExponentialDecay; with `decay_steps: 1` Caffe's policy `exp` and PyTorch's ExponentialLR.
    """

    type: Literal["ExponentialDecay"] = "ExponentialDecay"
    decay_rate: float = Field(gt=0, le=1)
    """Factor on the rate over `decay_steps` steps."""
    decay_steps: Steps | None = None
    """Number of steps over which the rate is multiplied by `decay_rate`. By default the length of the run."""
    staircase: bool = False
    """Whether the rate changes only at every `decay_steps`-th step."""
    samples: ClassVar = (
        {"initial": 0.1, "decay_rate": 0.5},
        {"initial": 0.1, "decay_rate": 0.9, "decay_steps": 2},
        {"initial": 0.1, "decay_rate": 0.3, "decay_steps": 4, "staircase": True},
    )

    def value(self, step: int, total_steps: int) -> float:
        time = elapsed(step, self.decay_steps or total_steps, staircase=self.staircase)
        return self.initial * math.pow(self.decay_rate, time)


@SCHEDULES.register
class InverseTimeDecay(InitialSchedule):
    """lr(t) = initial · (1 + decay_rate · t / decay_steps)^-power

    With `power: 1` Keras's InverseTimeDecay; with `decay_steps: 1` Caffe's policy `inv` (its `gamma` is
    `decay_rate`).
    """

    type: Literal["InverseTimeDecay"] = "InverseTimeDecay"
    decay_rate: float = Field(gt=0)
    """Speed of the decay per `decay_steps` steps."""
    decay_steps: Steps = 1
    """Unit of time, in steps."""
    power: float = Field(default=1.0, gt=0)
    """Exponent of the decay."""
    staircase: bool = False
    """Whether the rate changes only at every `decay_steps`-th step."""
    samples: ClassVar = (
        {"initial": 0.01, "decay_rate": 1e-4, "power": 0.75},
        {"initial": 0.1, "decay_rate": 0.5, "decay_steps": 3},
        {"initial": 0.1, "decay_rate": 0.5, "decay_steps": 3, "power": 2, "staircase": True},
    )

    def value(self, step: int, total_steps: int) -> float:
        time = elapsed(step, self.decay_steps, staircase=self.staircase)
        return self.initial * math.pow(1 + self.decay_rate * time, -self.power)


@SCHEDULES.register
class PolynomialDecay(InitialSchedule):
    """lr(t) = (initial - end) · (1 - min(t, T) / T)^power + end, with T = decay_steps

    With `cycle`, T is the smallest multiple of `decay_steps` that is ≥ t: the rate rises again at each multiple.
    Keras's PolynomialDecay; with `end: 0` Caffe's policy `poly` and PyTorch's PolynomialLR.
    """

    type: Literal["PolynomialDecay"] = "PolynomialDecay"
    decay_steps: Steps | None = None
    """Number of steps until the rate is `end`. By default the length of the run."""
    end: float = Field(default=1e-4, ge=0)
    """The last learning rate."""
    power: float = Field(default=1.0, gt=0)
    """Exponent of the decay; 1: linear."""
    cycle: bool = False
    """Whether to restart with a longer period when `end` is reached."""
    samples: ClassVar = (
        {"initial": 0.1},
        {"initial": 0.1, "end": 0.02, "decay_steps": 4, "power": 2},
        {"initial": 0.1, "end": 0.0, "decay_steps": 4, "power": 0.5, "cycle": True},
    )

    @property
    def upper_bound(self) -> float:
        return max(self.initial, self.end)

    def value(self, step: int, total_steps: int) -> float:
        period = self.decay_steps or total_steps
        if self.cycle:
            period *= max(1, -(-step // period))
        left = 1 - min(step, period) / period
        return (self.initial - self.end) * math.pow(left, self.power) + self.end


@SCHEDULES.register
class InverseSqrtDecay(InitialSchedule):
    """lr(t) = initial · √(T / (T + t)), with T = decay_steps

    After a Warmup of T steps this is fairseq's `inverse_sqrt`, and Vaswani et al. 2017, "Attention is all you need",
    arXiv:1706.03762, section 5.3, with `initial` = (d_model · T)^-½; their first step is step 1, here it is step 0.
    """

    type: Literal["InverseSqrtDecay"] = "InverseSqrtDecay"
    decay_steps: Steps
    """Unit of time, in steps: usually the length of the preceding warm-up."""
    samples: ClassVar = ({"initial": 0.1, "decay_steps": 1}, {"initial": 0.1, "decay_steps": 4})

    def value(self, step: int, total_steps: int) -> float:
        return self.initial * math.sqrt(self.decay_steps / (self.decay_steps + step))


@SCHEDULES.register
class SigmoidDecay(InitialSchedule):
    """lr(t) = initial / (1 + exp(-gamma · (t - step_size)))

    Caffe's policy `sigmoid`: the rate falls from `initial` if gamma is below 0, and rises to it if gamma is above 0.
    """

    type: Literal["SigmoidDecay"] = "SigmoidDecay"
    initial: Rate
    """Learning rate long before the middle of a fall, or long after the middle of a rise."""
    gamma: float
    """Steepness; the rate falls if it is below 0."""
    step_size: Steps
    """Step at which the rate is half of `initial`."""
    samples: ClassVar = (
        {"initial": 0.1, "gamma": -0.5, "step_size": 5},
        {"initial": 0.1, "gamma": 2.0, "step_size": 3},
    )

    def value(self, step: int, total_steps: int) -> float:
        return self.initial * (1 + math.tanh(self.gamma * (step - self.step_size) / 2)) / 2

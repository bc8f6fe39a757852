"""Schedules that rise and fall: once, once with a plateau, or in repeated cycles."""

from __future__ import annotations

from math import cos, pi, sqrt
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.schema.specs.kinds import SCHEDULES
from netspec.schema.specs.spec import problem
from netspec.solvers.schedules.base import InitialSchedule, Rate, ScheduleSpec, Steps


@SCHEDULES.register
class OneCycle(ScheduleSpec):
    """lr(t) = a rise from peak / div_factor to `peak` until t = pct_start · T - 1, then a fall until T - 1

    T is `decay_steps`. The fall ends at peak / (div_factor · final_div_factor); with `three_phase` the rate first
    returns to its initial value, as fast as it rose. Smith and Topin 2018, "Super-convergence", arXiv:1708.07120;
    PyTorch's OneCycleLR. Its momentum (`cycle_momentum`) falls and rises again: `momentum: {type: OneCycle, initial:
    0.95, peak: 0.85, end: 0.95}`.
    """

    type: Literal["OneCycle"] = "OneCycle"
    peak: Rate
    """Rate at the turning point: the maximum, unless `initial` or `end` is larger."""
    initial: Rate | None = None
    """Learning rate of the first step. By default `peak` divided by `div_factor`."""
    end: Rate | None = None
    """Learning rate of the last step. By default the initial rate divided by `final_div_factor`."""
    decay_steps: Annotated[int, Field(ge=2)] | None = None
    """Length of the cycle in steps, after which the rate stays constant. By default the length of the run."""
    pct_start: float = Field(default=0.3, gt=0, lt=1)
    """Share of the cycle during which the rate rises."""
    anneal_strategy: Literal["cos", "linear"] = "cos"
    """Interpolation between the rates: along a cosine, or linear."""
    div_factor: float = Field(default=25.0, ge=1)
    """Divisor of `peak` for the initial rate, if `initial` is not set."""
    final_div_factor: float = Field(default=1e4, ge=1)
    """Divisor of the initial rate for the last rate, if `end` is not set."""
    three_phase: bool = False
    """Whether the rate first falls to the initial rate as fast as it rose, and then to the last rate."""
    samples: ClassVar = (
        {"peak": 0.1},
        {"peak": 0.1, "decay_steps": 10, "anneal_strategy": "linear", "pct_start": 0.25, "div_factor": 10.0},
        {"peak": 0.1, "decay_steps": 11, "three_phase": True, "final_div_factor": 100.0},
        {"peak": 0.85, "initial": 0.95, "end": 0.9},
    )

    @model_validator(mode="after")
    def _no_rate_twice(self) -> Self:
        for name, factor in (("initial", "div_factor"), ("end", "final_div_factor")):
            if getattr(self, name) is not None and getattr(self, factor) != type(self).model_fields[factor].default:
                raise problem(
                    f"`{name}` and `{factor}` set the same rate", field=factor,
                    expected=f"one of `{name}` and `{factor}`", got="both",
                )  # fmt: skip
        return self

    def _ends(self) -> tuple[float, float]:
        """Return the initial rate and the last rate."""
        first = self.peak / self.div_factor if self.initial is None else self.initial
        return first, first / self.final_div_factor if self.end is None else self.end

    @property
    def upper_bound(self) -> float:
        return max(self.peak, *self._ends())

    def value(self, step: int, total_steps: int) -> float:
        total = self.decay_steps or max(2, total_steps)
        (first, last), rise = self._ends(), self.pct_start * total - 1
        turns = [(rise, self.peak), (total - 1.0, last)]
        if self.three_phase:
            turns.insert(1, (2 * self.pct_start * total - 2, first))
        before, low = 0.0, first
        for end, high in turns:
            if step <= end:
                if end <= before:  # a rise of no steps
                    return high
                return self._between(low, high, (step - before) / (end - before))
            before, low = end, high
        return last

    def _between(self, start: float, end: float, share: float) -> float:
        """Interpolate between `start` and `end`, with a share from 0 to 1."""
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2 * (1 + cos(pi * share))
        return start + (end - start) * share


@SCHEDULES.register
class CyclicLR(InitialSchedule):
    """lr(t) = initial + (peak - initial) · h · s, where h rises from 0 to 1 and falls to 0 again in each cycle

    h rises linearly over `step_size_up` steps, and falls linearly over `step_size_down` steps. s is 1 (`triangular`),
    2^-n after n complete cycles (`triangular2`), or gamma^t (`exp_range`). Smith 2017, "Cyclical Learning Rates for
    Training Neural Networks", arXiv:1506.01186; PyTorch's CyclicLR. With its `cycle_momentum`, the momentum
    cycles the other way round: `momentum: {type: CyclicLR, initial: 0.9, peak: 0.8, …}`.
    """

    type: Literal["CyclicLR"] = "CyclicLR"
    foreign_fields: ClassVar[dict[str, str]] = {
        "base_lr": "use `initial`",
        "scale_fn": "not supported: the height is one of the three values of `mode`",
        "scale_mode": "not supported: the height is one of the three values of `mode`",
    }
    peak: Rate
    """Learning rate at the peak of the first cycle."""
    step_size_up: Steps = 2000
    """Number of steps from `initial` to the peak."""
    step_size_down: Steps | None = None
    """Number of steps from the peak to `initial`. By default `step_size_up`."""
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    """Height of the cycles: constant, halved in each cycle, or multiplied by `gamma` in each step."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Factor on the height in each step with `exp_range`."""
    samples: ClassVar = (
        {"initial": 0.01, "peak": 0.1, "step_size_up": 3},
        {"initial": 0.01, "peak": 0.1, "step_size_up": 2, "step_size_down": 4, "mode": "triangular2"},
        {"initial": 0.01, "peak": 0.1, "step_size_up": 3, "mode": "exp_range", "gamma": 0.9},
    )

    @property
    def upper_bound(self) -> float:
        return max(self.initial, self.peak)

    def value(self, step: int, total_steps: int) -> float:
        up, down = self.step_size_up, self.step_size_down or self.step_size_up
        cycle, position = divmod(step, up + down)
        height = position / up if position <= up else (up + down - position) / down
        scale = {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**step}[self.mode]
        return self.initial + (self.peak - self.initial) * height * scale


@SCHEDULES.register
class WarmupStableDecay(ScheduleSpec):
    """lr(t) = peak · min(1, t / warmup_steps), and peak · (end + (1 - end) · f(s)) in the last `decay_steps` steps

    s goes from 0 to 1 over the fall; f is 1 - s (`linear`), (1 + cos(π · s)) / 2 (`cosine`) or 1 - √s (`sqrt`). Hu et
    al. 2024, "MiniCPM", arXiv:2404.06395; the forms of the fall are those of Hägele et al. 2024, arXiv:2405.18392.
    """

    type: Literal["WarmupStableDecay"] = "WarmupStableDecay"
    peak: Rate
    """Learning rate between rise and fall."""
    warmup_steps: int = Field(default=0, ge=0)
    """Number of steps of the rise from 0."""
    decay_steps: Steps | None = None
    """Number of steps of the fall at the end of the run. By default a fifth of the run."""
    shape: Literal["linear", "cosine", "sqrt"] = "linear"
    """Shape of the fall."""
    end: float = Field(default=0.0, ge=0, le=1)
    """The last rate as a share of `peak`."""
    samples: ClassVar = (
        {"peak": 0.1},
        {"peak": 0.1, "warmup_steps": 3, "decay_steps": 4, "shape": "cosine", "end": 0.1},
        {"peak": 0.1, "warmup_steps": 2, "decay_steps": 6, "shape": "sqrt"},
    )

    @property
    def upper_bound(self) -> float:
        return self.peak

    def value(self, step: int, total_steps: int) -> float:
        if step < self.warmup_steps:
            return self.peak * step / self.warmup_steps
        fall = self.decay_steps or max(1, total_steps // 5)
        done = min(1.0, max(0, step - (total_steps - fall)) / fall)
        left = {"linear": 1 - done, "cosine": (1 + cos(pi * done)) / 2, "sqrt": 1 - sqrt(done)}[self.shape]
        return self.peak * (self.end + (1 - self.end) * left)

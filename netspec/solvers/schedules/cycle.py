"""Schedules that rise and fall once: one cycle, and warm-up, hold, fall."""

from __future__ import annotations

from math import cos, pi, sqrt
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from netspec.schema.kinds import SCHEDULES
from netspec.solvers.schedules.base import Rate, ScheduleSpec, Steps


@SCHEDULES.register
class OneCycle(ScheduleSpec):
    """lr(t) = a rise from peak / div_factor to `peak` until t = pct_start · T - 1, then a fall until T - 1

    T is `decay_steps`. The fall ends at peak / (div_factor · final_div_factor); with `three_phase` the rate first comes
    back to where it began, as fast as it rose. Smith and Topin 2018, "Super-convergence", arXiv:1708.07120; PyTorch's
    OneCycleLR, which can also let the momentum fall and rise (`cycle_momentum`): here it stays.
    """

    type: Literal["OneCycle"] = "OneCycle"
    peak: Rate
    """the largest rate"""
    decay_steps: Annotated[int, Field(ge=2)] | None = None
    """length of the cycle in steps; default: the length of the training. The rate stays at the last one after it"""
    pct_start: float = Field(default=0.3, gt=0, lt=1)
    """share of the cycle in which the rate rises"""
    anneal_strategy: Literal["cos", "linear"] = "cos"
    """how it gets from one rate to the next: along a cosine, or a straight line"""
    div_factor: float = Field(default=25.0, ge=1)
    """the first rate is `peak` divided by this"""
    final_div_factor: float = Field(default=1e4, ge=1)
    """the last rate is the first one divided by this"""
    three_phase: bool = False
    """true: back to the first rate as fast as it rose, and only then further down"""
    samples: ClassVar = (
        {"peak": 0.1},
        {"peak": 0.1, "decay_steps": 10, "anneal_strategy": "linear", "pct_start": 0.25, "div_factor": 10.0},
        {"peak": 0.1, "decay_steps": 11, "three_phase": True, "final_div_factor": 100.0},
    )

    def value(self, step: int, total_steps: int) -> float:
        total = self.decay_steps or max(2, total_steps)
        first = self.peak / self.div_factor
        last, rise = first / self.final_div_factor, self.pct_start * total - 1
        turns = [(rise, self.peak), (total - 1.0, last)]
        if self.three_phase:
            turns.insert(1, (2 * self.pct_start * total - 2, first))
        before, low = 0.0, first
        for end, high in turns:
            if step <= end:
                if end <= before:  # a rise that has no room
                    return high
                return self._between(low, high, (step - before) / (end - before))
            before, low = end, high
        return last

    def _between(self, start: float, end: float, share: float) -> float:
        """From `start` to `end`, a share of the way."""
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2 * (1 + cos(pi * share))
        return start + (end - start) * share


@SCHEDULES.register
class WarmupStableDecay(ScheduleSpec):
    """lr(t) = peak · min(1, t / warmup_steps), and peak · (end + (1 - end) · f(s)) in the last `decay_steps` steps

    s goes from 0 to 1 over the fall; f is 1 - s (`linear`), (1 + cos(π · s)) / 2 (`cosine`) or 1 - √s (`sqrt`). Hu et
    al. 2024, "MiniCPM", arXiv:2404.06395; the forms of the fall are those of Hägele et al. 2024, arXiv:2405.18392.
    """

    type: Literal["WarmupStableDecay"] = "WarmupStableDecay"
    peak: Rate
    """the rate between rise and fall"""
    warmup_steps: int = Field(default=0, ge=0)
    """steps of the rise, from 0"""
    decay_steps: Steps | None = None
    """steps of the fall, at the end of the training; default: a fifth of the training"""
    shape: Literal["linear", "cosine", "sqrt"] = "linear"
    """the form of the fall"""
    end: float = Field(default=0.0, ge=0, le=1)
    """the last rate as a share of `peak`"""
    samples: ClassVar = (
        {"peak": 0.1},
        {"peak": 0.1, "warmup_steps": 3, "decay_steps": 4, "shape": "cosine", "end": 0.1},
        {"peak": 0.1, "warmup_steps": 2, "decay_steps": 6, "shape": "sqrt"},
    )

    def value(self, step: int, total_steps: int) -> float:
        if step < self.warmup_steps:
            return self.peak * step / self.warmup_steps
        fall = self.decay_steps or max(1, total_steps // 5)
        done = min(1.0, max(0, step - (total_steps - fall)) / fall)
        left = {"linear": 1 - done, "cosine": (1 + cos(pi * done)) / 2, "sqrt": 1 - sqrt(done)}[self.shape]
        return self.peak * (self.end + (1 - self.end) * left)

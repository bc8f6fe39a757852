"""Warm-up: a linear rise before another schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from netspec.schema.specs.kinds import SCHEDULES
from netspec.solvers.schedules.base import ScheduleSpec, Steps
from netspec.solvers.schedules.constant import InnerSchedule


@SCHEDULES.register
class Warmup(ScheduleSpec):
    """lr(t) = initial + (then(0) - initial) · t / steps for t < steps, and then(t - steps) after that

    The steps of `then` are counted from the end of the warm-up, and its length is the rest of the run. Goyal et
    al. 2017, "Accurate, Large Minibatch SGD", arXiv:1706.02677, section 2.2.
    """

    type: Literal["Warmup"] = "Warmup"
    steps: Steps
    """Number of steps of the rise."""
    initial: float = Field(default=0.0, ge=0)
    """Learning rate of the first step."""
    then: InnerSchedule
    """The schedule after the rise, or a number. The rise ends at its first rate."""
    samples: ClassVar = (
        {"steps": 4, "then": 0.1},
        {"steps": 3, "initial": 0.01, "then": {"type": "CosineDecay", "initial": 0.1}},
        {"steps": 2, "then": {"type": "Warmup", "steps": 2, "initial": 0.05, "then": 0.2}},
    )

    @property
    def upper_bound(self) -> float:
        return max(self.initial, self.then.upper_bound)

    def beyond(self, total_steps: int) -> Iterator[str]:
        if self.steps > total_steps:
            yield f"the end of a warm-up of {self.steps:,} steps"
        elif self.steps < total_steps:
            yield from self.then.beyond(total_steps - self.steps)

    def value(self, step: int, total_steps: int) -> float:
        remaining = max(1, total_steps - self.steps)  # a training may be shorter than its warm-up
        if step >= self.steps:
            return self.then.value(step - self.steps, remaining)
        return self.initial + (self.then.value(0, remaining) - self.initial) * (step / self.steps)

"""Warm-up: a straight rise before any other schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from netspec.schema.specs.kinds import SCHEDULES
from netspec.solvers.schedules.base import ScheduleSpec, Steps
from netspec.solvers.schedules.constant import InnerSchedule


@SCHEDULES.register
class Warmup(ScheduleSpec):
    """lr(t) = initial + (then(0) - initial) · t / steps for t < steps, and then(t - steps) from there on

    The clock of `then` starts after the warm-up, and what is left of the training is its length. Goyal et al. 2017,
    "Accurate, Large Minibatch SGD", arXiv:1706.02677, section 2.2.
    """

    type: Literal["Warmup"] = "Warmup"
    steps: Steps
    """steps of the rise"""
    initial: float = Field(default=0.0, ge=0)
    """learning rate of the first step"""
    then: InnerSchedule
    """what follows: a schedule, or a number; the rise ends where it starts"""
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
        left = max(1, total_steps - self.steps)  # a training that ends before its warm-up does still has a rate
        if step >= self.steps:
            return self.then.value(step - self.steps, left)
        return self.initial + (self.then.value(0, left) - self.initial) * (step / self.steps)

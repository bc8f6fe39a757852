"""The schedule that reduces the rate when evaluations no longer improve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from netspec.errors import Problem
from netspec.schema.specs.kinds import SCHEDULES
from netspec.schema.specs.monitor import Monitor, without_evaluations
from netspec.solvers.schedules.base import ScheduleSpec, ScheduleState, Steps
from netspec.solvers.schedules.constant import InnerSchedule


@SCHEDULES.register
class ReduceLROnPlateau(Monitor, ScheduleSpec):
    """lr(t) = max(factor^n · schedule(t), min), after n reductions

    The rate is reduced when `patience` evaluations in a row do not improve `monitor`; the `cooldown`-th evaluation
    after a reduction is the first that counts towards the next. Keras's ReduceLROnPlateau. In PyTorch, patience and
    cooldown are 1 less, and the threshold is `relative`. Evaluations are those of `train.test_every`.
    """

    type: Literal["ReduceLROnPlateau"] = "ReduceLROnPlateau"
    schedule: InnerSchedule
    """The rate to reduce: a number, or any schedule."""
    factor: float = Field(default=0.1, gt=0, lt=1)
    """Factor on the rate at each reduction."""
    patience: Steps = 10
    """Number of evaluations without improvement after which the rate is reduced."""
    threshold: float = Field(default=1e-4, ge=0)
    """Smallest change that counts as an improvement."""
    relative: bool = False
    """Whether `threshold` is relative to the best value, as with `threshold_mode: rel` in PyTorch."""
    cooldown: int = Field(default=0, ge=0)
    """Number of the first evaluation after a reduction that counts again; 0 and 1: the next."""
    min: float = Field(default=0.0, ge=0)
    """Lower bound of a reduced rate."""
    samples: ClassVar = (
        {"schedule": 0.1},
        {
            "schedule": {"type": "Warmup", "steps": 4, "then": {"type": "CosineDecay", "initial": 0.1}},
            "monitor": "accuracy", "mode": "max", "factor": 0.5, "patience": 2, "cooldown": 1, "min": 0.01,
        },
    )  # fmt: skip

    def conflicts(self, training: Any) -> Iterator[Problem]:
        yield from without_evaluations(training, "ReduceLROnPlateau", self)
        yield from self.unknown_values(training)

    @property
    def watches(self) -> str:
        return self.monitor

    @property
    def upper_bound(self) -> float:
        return self.schedule.upper_bound

    def beyond(self, total_steps: int) -> Iterator[str]:
        yield from self.schedule.beyond(total_steps)

    def value(self, step: int, total_steps: int) -> float:
        return self.schedule.value(step, total_steps)

    def start(self) -> ScheduleState:
        return {"best": None, "waited": 0, "cooling": 0, "reductions": 0}

    def observed(self, state: ScheduleState, values: Mapping[str, float]) -> ScheduleState:
        value, best = self.value_in(values), state["best"]
        cooling = max(0, state["cooling"] - 1)
        waited = 0 if state["cooling"] else state["waited"]
        margin = self.threshold * abs(best or 0.0) if self.relative else self.threshold
        if self.improves(value, best, margin):
            return {**state, "best": value, "waited": 0, "cooling": cooling}
        waited += not cooling
        if waited < self.patience:
            return {**state, "waited": waited, "cooling": cooling}
        return {"best": best, "waited": 0, "cooling": self.cooldown, "reductions": state["reductions"] + 1}

    def rate(self, step: int, total_steps: int, state: ScheduleState) -> float:
        scheduled = self.value(step, total_steps)
        reductions: int = state["reductions"]
        return max(math.pow(self.factor, reductions) * scheduled, min(self.min, scheduled))

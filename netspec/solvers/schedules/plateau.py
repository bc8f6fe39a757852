"""The schedule that reduces the rate when evaluations no longer improve."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.schema.specs.field_types import Name
from netspec.schema.specs.kinds import SCHEDULES
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.spec import problem
from netspec.solvers.schedules.base import ScheduleSpec, ScheduleState, Steps
from netspec.solvers.schedules.constant import InnerSchedule


@SCHEDULES.register
class ReduceLROnPlateau(ScheduleSpec):
    """lr(t) = max(factor^n · schedule(t), min), after n reductions

    The rate is reduced when `patience` evaluations in a row do not improve `monitor`; the `cooldown`-th evaluation
    after a reduction is the first that counts towards the next. Keras's ReduceLROnPlateau. In PyTorch, patience and
    cooldown are 1 less, and the threshold is `relative`. Evaluations are those of `train.test_every`.
    """

    type: Literal["ReduceLROnPlateau"] = "ReduceLROnPlateau"
    schedule: InnerSchedule
    """The rate to reduce: a number, or any schedule."""
    monitor: Name = "loss"
    """Value that must improve: `loss`, or the name of a metric, on the validation data or else the test data."""
    mode: Literal["min", "max"] | None = None
    """Whether lower or higher is better. `min` for `loss`; required for a metric."""
    factor: float = Field(default=0.1, gt=0, lt=1)
    """Factor on the rate at each reduction."""
    patience: Steps = 10
    """Number of evaluations without improvement after which the rate is reduced."""
    threshold: float = Field(default=1e-4, ge=0)
    """Smallest change that counts as an improvement."""
    relative: bool = False
    """Whether `threshold` is relative to the best value, as with `threshold_mode: rel` in PyTorch."""
    cooldown: int = Field(default=0, ge=0)
    """Which evaluation after a reduction is the first that counts again; 0 and 1: the next."""
    min: float = Field(default=0.0, ge=0)
    """Lower bound of a reduced rate."""
    samples: ClassVar = (
        {"schedule": 0.1},
        {
            "schedule": {"type": "Warmup", "steps": 4, "then": {"type": "CosineDecay", "initial": 0.1}},
            "monitor": "accuracy", "mode": "max", "factor": 0.5, "patience": 2, "cooldown": 1, "min": 0.01,
        },
    )  # fmt: skip

    @model_validator(mode="after")
    def _has_a_direction(self) -> Self:
        if self.mode is None and self.monitor != "loss":
            raise problem(
                f"`mode` is required for `{self.monitor}`",
                field="monitor", expected="`mode: max` or `mode: min`", got="no `mode`",
            )  # fmt: skip
        return self

    def conflicts(self, training: Any) -> Iterator[Problem]:
        evaluated = training.data.monitored in training.data.splits()
        if not evaluated or training.train.test_every == 0:
            yield Problem(
                "ReduceLROnPlateau needs evaluations during the training", self.where(),
                expected="`data.validation` or `data.test`, and `train.test_every` above 0",
                got="no such data" if not evaluated else "`test_every: 0`",
            )  # fmt: skip
        names = ["loss", *(metric.name for metric in resolve_names(training.net).metrics)]
        if self.monitor not in names:
            yield Problem(
                f"there is no loss or metric `{self.monitor}`", self.where("monitor"), "monitor",
                expected=f"one of {listing(names)}", hint=did_you_mean(self.monitor, names),
            )  # fmt: skip

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
        if self.monitor not in values:
            raise InputError(f"`{self.monitor}` is not a single number", location=self.where("monitor"))
        value, best = values[self.monitor], state["best"]
        cooling = max(0, state["cooling"] - 1)
        waited = 0 if state["cooling"] else state["waited"]
        if self._improves(value, best):
            return {**state, "best": value, "waited": 0, "cooling": cooling}
        waited += not cooling
        if waited < self.patience:
            return {**state, "waited": waited, "cooling": cooling}
        return {"best": best, "waited": 0, "cooling": self.cooldown, "reductions": state["reductions"] + 1}

    def _improves(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best one by the threshold; NaN never is."""
        if best is None:
            return not math.isnan(value)
        sign = -1.0 if self.mode == "max" else 1.0
        margin = self.threshold * abs(best) if self.relative else self.threshold
        return sign * value < sign * best - margin

    def rate(self, step: int, total_steps: int, state: ScheduleState) -> float:
        scheduled = self.value(step, total_steps)
        reductions: int = state["reductions"]
        return max(math.pow(self.factor, reductions) * scheduled, min(self.min, scheduled))

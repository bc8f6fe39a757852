"""The schedule that falls when an evaluation finds nothing better."""

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
from netspec.solvers.schedules.base import ScheduleSpec, Seen, Steps
from netspec.solvers.schedules.constant import InnerSchedule


@SCHEDULES.register
class ReduceLROnPlateau(ScheduleSpec):
    """lr(t) = max(factor^n · schedule(t), min), after n reductions

    A reduction follows when `patience` evaluations, one after the other, found `monitor` no better than the best one
    before; the `cooldown`-th evaluation after it is the first that counts towards the next. Keras's ReduceLROnPlateau;
    PyTorch's has a patience and a cooldown that are 1 less, and a threshold that is `relative`. Here evaluations are
    those of `train.test_every`, and the factor is on any schedule.
    """

    type: Literal["ReduceLROnPlateau"] = "ReduceLROnPlateau"
    schedule: InnerSchedule
    """the rate that is reduced: a number, or any schedule"""
    monitor: Name = "loss"
    """what is watched: `loss`, the loss on the test data, or the name of a metric"""
    mode: Literal["min", "max"] | None = None
    """whether less is better, or more; `loss` is to be less, for a metric it must be said"""
    factor: float = Field(default=0.1, gt=0, lt=1)
    """factor of each reduction"""
    patience: Steps = 10
    """evaluations without anything better before a reduction"""
    threshold: float = Field(default=1e-4, ge=0)
    """by how much a figure must be better than the best one to count as better"""
    relative: bool = False
    """true: `threshold` is a share of the best figure, as PyTorch has it (`threshold_mode: rel`)"""
    cooldown: int = Field(default=0, ge=0)
    """which evaluation after a reduction is the first to count again; 0 and 1: the next"""
    min: float = Field(default=0.0, ge=0)
    """no reduction takes the rate below this"""
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
                "a plateau needs an evaluation to monitor", self.where(),
                expected="`data.validation` or `data.test`, and `train.test_every` above 0",
                got="no such data" if not evaluated else "`test_every: 0`",
            )  # fmt: skip
        known = ["loss", *(metric.name for metric in resolve_names(training.net).metrics)]
        if self.monitor not in known:
            yield Problem(
                f"there is no loss or metric named `{self.monitor}` to monitor", self.where("monitor"), "monitor",
                expected=f"one of {listing(known)}", hint=did_you_mean(self.monitor, known),
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

    def start(self) -> Seen:
        return {"best": None, "waited": 0, "cooling": 0, "reductions": 0}

    def observed(self, seen: Seen, figures: Mapping[str, float]) -> Seen:
        if self.monitor not in figures:
            raise InputError(f"`{self.monitor}` is not one number to watch", location=self.where("monitor"))
        figure, best = figures[self.monitor], seen["best"]
        cooling = max(0, seen["cooling"] - 1)
        waited = 0 if seen["cooling"] else seen["waited"]
        if self._better(figure, best):
            return {**seen, "best": figure, "waited": 0, "cooling": cooling}
        waited += not cooling
        if waited < self.patience:
            return {**seen, "waited": waited, "cooling": cooling}
        return {"best": best, "waited": 0, "cooling": self.cooldown, "reductions": seen["reductions"] + 1}

    def _better(self, figure: float, best: float | None) -> bool:
        """Whether a figure is better than the best one by the threshold; one that is not a number never is."""
        if best is None:
            return figure == figure  # noqa: PLR0124  false for what is not a number
        sign = -1.0 if self.mode == "max" else 1.0
        margin = self.threshold * abs(best) if self.relative else self.threshold
        return sign * figure < sign * best - margin

    def rate(self, step: int, total_steps: int, seen: Seen) -> float:
        scheduled = self.value(step, total_steps)
        reductions: int = seen["reductions"]
        return max(math.pow(self.factor, reductions) * scheduled, min(self.min, scheduled))

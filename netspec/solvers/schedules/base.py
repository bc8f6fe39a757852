"""`ScheduleSpec`: the base of schedules, and the fields that several of them have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field

from netspec.schema.specs.spec import Spec

Rate = Annotated[float, Field(gt=0)]
Steps = Annotated[int, Field(gt=0)]
Seen: TypeAlias = dict[str, Any]
"""What a schedule that watches the training remembers of it: plain JSON data."""


class ScheduleSpec(Spec):
    """Base of schedules: plain functions of the step, so that any of them can be plotted before a run."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Small configurations for the registry-wide tests."""
    foreign_fields: ClassVar[dict[str, str]] = {
        "initial_learning_rate": "here it is `initial`",
        "value": "here it is `initial`",
        "learning_rate": "here it is `initial`",
        "base_lr": "`base_lr` is Caffe's name: here it is `initial`",
        "lr": "here it is `initial`",
        "start_lr": "here it is `initial`",
        "end_learning_rate": "here it is `end`",
        "stepsize": "`stepsize` is Caffe's name: here it is `step_size`",
        "stepvalue": "`stepvalue` is Caffe's name: here it is `milestones`, a list, of MultiStepDecay",
        "boundaries": "`milestones` are the first steps of the next rates; PiecewiseConstantDecay has `boundaries`, "
        "the last steps of those before",
        "max_iter": "`max_iter` is Caffe's name: here it is `decay_steps`",
        "T_max": "`T_max` is PyTorch's name: here it is `decay_steps`",
        "eta_min": "`eta_min` is PyTorch's name: here it is `alpha`, as a share of `initial`",
        "T_0": "`T_0` is PyTorch's name: here it is `first_decay_steps`",
        "T_mult": "`T_mult` is PyTorch's name: here it is `t_mul`",
        "max_lr": "`max_lr` is PyTorch's name: here it is `peak`",
        "total_steps": "here it is `decay_steps`; default: the length of the training",
        "schedules": "here they are `parts`: `[{steps: …, schedule: …}, …]`",
        "min_delta": "`min_delta` is Keras's name: here it is `threshold`",
        "min_lr": "here it is `min`",
        "cycle_momentum": "the momentum has a separate schedule: `momentum: {type: …}` of the solver",
        "base_momentum": "the momentum has a separate schedule: it is the `peak` of that schedule",
        "max_momentum": "the momentum has a separate schedule: it is the `initial` of that schedule",
        "warmup_steps": "warm up with `{type: Warmup, steps: …, then: <this schedule>}`",
        "warmup_target": "warm up with `{type: Warmup, steps: …, then: <this schedule>}`",
        "warmup_epochs": "warm up with `{type: Warmup, steps: …, then: <this schedule>}`",
    }

    type: str
    """name of the schedule"""

    def value(self, step: int, total_steps: int) -> float:
        """The learning rate of step `step`, counted from 0, of a training of `total_steps` steps. Finite and ≥ 0."""
        raise NotImplementedError  # abstract: subclasses say

    @property
    def key(self) -> str:
        """A text that is equal for equal schedules only."""
        return f"{type(self).__qualname__} {self.model_dump_json()}"

    @property
    def upper_bound(self) -> float:
        """Upper bound of all values, in a training of any length; infinite if none is known."""
        return inf

    def beyond(self, total_steps: int) -> Iterator[str]:
        """Describe the parts of the schedule that a training of `total` steps never reaches."""
        yield from ()

    @property
    def watches(self) -> str | None:
        """Name of the figure of an evaluation that the rate depends on too; None: the rate is known beforehand."""
        return None

    def start(self) -> Seen:
        """What is remembered before the first evaluation."""
        return {}

    def observed(self, seen: Seen, figures: Mapping[str, float]) -> Seen:
        """What is remembered after an evaluation with these figures."""
        return seen

    def rate(self, step: int, total_steps: int, seen: Seen) -> float:
        """The learning rate of a step, with what was remembered before it."""
        return self.value(step, total_steps)


class InitialSchedule(ScheduleSpec):
    """Base of schedules that start at a given rate."""

    initial: Rate
    """learning rate of the first step"""

    @property
    def upper_bound(self) -> float:
        """The initial rate, since these schedules never rise above it."""
        return self.initial


def elapsed(step: int, period: int, *, staircase: bool) -> float:
    """How many periods have passed at `step`; whole ones with `staircase`."""
    return float(step // period) if staircase else step / period

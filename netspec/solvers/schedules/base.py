"""`ScheduleSpec`: the base class of schedules, and the fields that several schedules have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field

from netspec.schema.specs.spec import Spec

Rate = Annotated[float, Field(gt=0)]
Steps = Annotated[int, Field(gt=0)]
ScheduleState: TypeAlias = dict[str, Any]
"""State of a schedule that depends on evaluations, as JSON data."""


class ScheduleSpec(Spec):
    """Base of schedules: functions of the step, which can be plotted before a run."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Small configurations for the registry-wide tests."""
    foreign_fields: ClassVar[dict[str, str]] = {
        "initial_learning_rate": "use `initial`",
        "value": "use `initial`",
        "learning_rate": "use `initial`",
        "base_lr": "`base_lr` is Caffe's name: use `initial`",
        "lr": "use `initial`",
        "start_lr": "use `initial`",
        "end_learning_rate": "use `end`",
        "stepsize": "`stepsize` is Caffe's name: use `step_size`",
        "stepvalue": "`stepvalue` is Caffe's name: use `milestones` (a list) of MultiStepDecay",
        "boundaries": "use `milestones`, the first step of each rate; `boundaries` of PiecewiseConstantDecay "
        "are the last steps",
        "max_iter": "`max_iter` is Caffe's name: use `decay_steps`",
        "T_max": "`T_max` is PyTorch's name: use `decay_steps`",
        "eta_min": "`eta_min` is PyTorch's name: use `alpha`, as a share of `initial`",
        "T_0": "`T_0` is PyTorch's name: use `first_decay_steps`",
        "T_mult": "`T_mult` is PyTorch's name: use `t_mul`",
        "max_lr": "`max_lr` is PyTorch's name: use `peak`",
        "total_steps": "use `decay_steps`, by default the length of the run",
        "schedules": "use `parts`: `[{steps: …, schedule: …}, …]`",
        "min_delta": "`min_delta` is Keras's name: use `threshold`",
        "min_lr": "use `min`",
        "cycle_momentum": "the momentum has a separate schedule: `momentum: {type: …}` of the solver",
        "base_momentum": "use `peak` of the schedule that is set as the solver's `momentum`",
        "max_momentum": "use `initial` of the schedule that is set as the solver's `momentum`",
        "warmup_steps": "warm up with `{type: Warmup, steps: …, then: <this schedule>}`",
        "warmup_target": "warm up with `{type: Warmup, steps: …, then: <this schedule>}`",
        "warmup_epochs": "warm up with `{type: Warmup, steps: …, then: <this schedule>}`",
    }

    type: str
    """Name of the schedule."""

    def value(self, step: int, total_steps: int) -> float:
        """Return the learning rate of `step`, from 0, in a training of `total_steps` steps. Finite and ≥ 0."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """A string that is equal for equal schedules only."""
        return f"{type(self).__qualname__} {self.model_dump_json()}"

    @property
    def upper_bound(self) -> float:
        """Upper bound of all values, in a training of any length; infinite if none is known."""
        return inf

    def beyond(self, total_steps: int) -> Iterator[str]:
        """Describe the parts of the schedule that a training of `total_steps` steps never reaches."""
        yield from ()

    @property
    def watches(self) -> str | None:
        """Name of the loss or metric that the rate depends on; None: the rate depends on the step alone."""
        return None

    def start(self) -> ScheduleState:
        """Return the state before the first evaluation."""
        return {}

    def observed(self, state: ScheduleState, values: Mapping[str, float]) -> ScheduleState:
        """Return the state after an evaluation with these values of losses and metrics, by name."""
        return state

    def rate(self, step: int, total_steps: int, state: ScheduleState) -> float:
        """Return the learning rate of a step, with the state before it."""
        return self.value(step, total_steps)


class InitialSchedule(ScheduleSpec):
    """Base of schedules that start at a given rate."""

    initial: Rate
    """Learning rate of the first step."""

    @property
    def upper_bound(self) -> float:
        """The initial rate, which these schedules never exceed."""
        return self.initial


def elapsed(step: int, period: int, *, staircase: bool) -> float:
    """Return the number of periods before `step`; only complete ones with `staircase`."""
    return float(step // period) if staircase else step / period

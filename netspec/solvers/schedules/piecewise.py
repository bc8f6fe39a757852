"""Schedules that change in steps: at regular intervals, or at given steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.schema.specs.kinds import SCHEDULES
from netspec.schema.specs.spec import problem
from netspec.solvers.schedules.base import InitialSchedule, Rate, ScheduleSpec, Steps


@SCHEDULES.register
class StepDecay(InitialSchedule):
    """lr(t) = initial · gamma^⌊t / step_size⌋

    Caffe's policy `step` (caffe.proto, `lr_policy`), PyTorch's StepLR.
    """

    type: Literal["StepDecay"] = "StepDecay"
    gamma: float = Field(default=0.1, gt=0, le=1)
    """Factor on the rate at the end of each interval."""
    step_size: Steps
    """Number of steps of an interval."""
    samples: ClassVar = ({"initial": 0.1, "step_size": 3}, {"initial": 0.1, "gamma": 0.5, "step_size": 1})

    def value(self, step: int, total_steps: int) -> float:
        return self.initial * self.gamma ** (step // self.step_size)


@SCHEDULES.register
class MultiStepDecay(InitialSchedule):
    """lr(t) = initial · gamma^n, where n is the number of milestones ≤ t

    PyTorch's MultiStepLR, Caffe's policy `multistep` (its `stepvalue`): a milestone is the first step with the
    next rate. Keras's PiecewiseConstantDecay changes one step later.
    """

    type: Literal["MultiStepDecay"] = "MultiStepDecay"
    milestones: Annotated[tuple[Steps, ...], Field(strict=False, min_length=1)]
    """Steps at which the rate changes, in increasing order."""
    gamma: float = Field(default=0.1, gt=0, le=1)
    """Factor on the rate at each milestone."""
    samples: ClassVar = (
        {"initial": 0.1, "milestones": [3]},
        {"initial": 0.1, "milestones": [1, 4, 5], "gamma": 0.5},
    )

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        _check_increasing("milestones", self.milestones)
        return self

    def value(self, step: int, total_steps: int) -> float:
        return self.initial * self.gamma ** bisect_right(self.milestones, step)


def _check_increasing(name: str, steps: tuple[int, ...]) -> None:
    if any(first >= second for first, second in pairwise(steps)):
        raise problem(
            f"`{name}` must increase", field=name, expected="each step after the one before", got=str(list(steps))
        )


@SCHEDULES.register
class PiecewiseConstantDecay(ScheduleSpec):
    """lr(t) = values[i] for boundaries[i-1] < t ≤ boundaries[i]

    Keras's PiecewiseConstantDecay: a boundary is the last step with the rate before it. In Caffe and PyTorch it is the
    first step with the next rate: MultiStepDecay.
    """

    type: Literal["PiecewiseConstantDecay"] = "PiecewiseConstantDecay"
    boundaries: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False, min_length=1)]
    """The last step of each value except the last value, in increasing order."""
    values: Annotated[tuple[Rate, ...], Field(strict=False)]
    """The learning rates, one more than the boundaries."""
    samples: ClassVar = (
        {"boundaries": [3], "values": [0.1, 0.01]},
        {"boundaries": [0, 2, 7], "values": [0.01, 0.1, 0.05, 0.001]},
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_increasing("boundaries", self.boundaries)
        if len(self.values) != len(self.boundaries) + 1:
            raise problem(
                "`values` must have one element more than `boundaries`",
                field="values",
                expected=f"{len(self.boundaries) + 1} values",
                got=f"{len(self.values)} values",
            )
        return self

    @property
    def upper_bound(self) -> float:
        return max(self.values)

    def value(self, step: int, total_steps: int) -> float:
        return self.values[bisect_left(self.boundaries, step)]

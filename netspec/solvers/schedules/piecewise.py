"""Schedules that fall in steps: at regular distances, or where the spec says."""

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
    """factor at each fall"""
    step_size: Steps
    """steps from one fall to the next"""
    samples: ClassVar = ({"initial": 0.1, "step_size": 3}, {"initial": 0.1, "gamma": 0.5, "step_size": 1})

    def value(self, step: int, total_steps: int) -> float:
        return self.initial * self.gamma ** (step // self.step_size)


@SCHEDULES.register
class MultiStepDecay(InitialSchedule):
    """lr(t) = initial · gamma^n, where n of the milestones are at t or before

    PyTorch's MultiStepLR, Caffe's policy `multistep` (its `stepvalue`): the step called a milestone has the next rate.
    Keras's PiecewiseConstantDecay falls one step later.
    """

    type: Literal["MultiStepDecay"] = "MultiStepDecay"
    milestones: Annotated[tuple[Steps, ...], Field(strict=False, min_length=1)]
    """the first step of each next rate, rising"""
    gamma: float = Field(default=0.1, gt=0, le=1)
    """factor at each milestone"""
    samples: ClassVar = (
        {"initial": 0.1, "milestones": [3]},
        {"initial": 0.1, "milestones": [1, 4, 5], "gamma": 0.5},
    )

    @model_validator(mode="after")
    def _rise(self) -> Self:
        _check_rise("milestones", self.milestones)
        return self

    def value(self, step: int, total_steps: int) -> float:
        return self.initial * self.gamma ** bisect_right(self.milestones, step)


def _check_rise(name: str, steps: tuple[int, ...]) -> None:
    if any(first >= second for first, second in pairwise(steps)):
        expected, got = "steps, each after the one before", str(list(steps))
        raise problem(f"the {name} do not rise", field=name, expected=expected, got=got)


@SCHEDULES.register
class PiecewiseConstantDecay(ScheduleSpec):
    """lr(t) = values[i] for boundaries[i-1] < t ≤ boundaries[i]

    Keras's PiecewiseConstantDecay: the step called a boundary still has the rate before it. Caffe and PyTorch fall at
    the boundary itself: MultiStepDecay.
    """

    type: Literal["PiecewiseConstantDecay"] = "PiecewiseConstantDecay"
    boundaries: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False, min_length=1)]
    """the last step of each value but the last one, rising"""
    values: Annotated[tuple[Rate, ...], Field(strict=False)]
    """the learning rates, one more than there are boundaries"""
    samples: ClassVar = (
        {"boundaries": [3], "values": [0.1, 0.01]},
        {"boundaries": [0, 2, 7], "values": [0.01, 0.1, 0.05, 0.001]},
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_rise("boundaries", self.boundaries)
        if len(self.values) != len(self.boundaries) + 1:
            raise problem(
                "`values` and `boundaries` do not fit together",
                field="values",
                expected=f"{len(self.boundaries) + 1} values, one more than there are boundaries",
                got=f"{len(self.values)} values",
            )
        return self

    @property
    def upper_bound(self) -> float:
        return max(self.values)

    def value(self, step: int, total_steps: int) -> float:
        return self.values[bisect_left(self.boundaries, step)]

"""A sequence of schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.schema.specs.kinds import SCHEDULES
from netspec.schema.specs.spec import Spec, problem
from netspec.solvers.schedules.base import ScheduleSpec, Steps
from netspec.solvers.schedules.constant import InnerSchedule


class SchedulePart(Spec):
    """A schedule and its length, as part of a sequence."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "length": "use `steps`, or `share` for a share of the run",
        "epochs": "use `steps`, or `share` for a share of the run",
        "learning_rate": "use `schedule`",
    }

    steps: Steps | None = None
    """Length in steps. Alternatively set `share`."""
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Length as a share of the run, such as 0.1. The last part needs no length: it takes the remaining steps."""
    schedule: InnerSchedule
    """The schedule, or a number. Its steps are counted from the start of the part, and its length is the part's."""

    def length(self, total_steps: int) -> int | None:
        """Return the number of steps in a training; None for all that remain."""
        return round(self.share * total_steps) if self.share is not None else self.steps


@SCHEDULES.register
class Sequence(ScheduleSpec):
    """lr(t) = the rate of the part that contains t, with t counted from the start of the part

    A list in place of a schedule means this schedule: `[{steps: 500, schedule: 0.1}, {schedule: {type: CosineDecay,
    initial: 0.1}}]`. The last part continues until the end of the run. PyTorch's SequentialLR.
    """

    type: Literal["Sequence"] = "Sequence"
    parts: Annotated[tuple[SchedulePart, ...], Field(strict=False, min_length=1)]
    """The schedules in order, each with its length: `{steps: 500, schedule: …}`, `{share: 0.2, schedule: …}`."""
    samples: ClassVar = (
        {
            "parts": [
                {"steps": 3, "schedule": {"type": "Warmup", "steps": 3, "then": 0.1}},
                {"share": 0.25, "schedule": 0.1},
                {"schedule": {"type": "CosineDecay", "initial": 0.1}},
            ]
        },
        {
            "parts": [
                {"steps": 2, "schedule": 0.1},
                {"steps": 4, "schedule": {"type": "PolynomialDecay", "initial": 0.1}},
            ]
        },
    )

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        for index, part in enumerate(self.parts):
            path = f"parts.{index}"
            if part.steps is not None and part.share is not None:
                raise problem(
                    "`steps` and `share` set the same length", field=f"{path}.share",
                    expected="one of `steps` and `share`", got="both",
                )  # fmt: skip
            if part.steps is None and part.share is None and part is not self.parts[-1]:
                raise problem(
                    "only the last part may have no length", field=path,
                    expected="`steps` or `share`", got="neither",
                )  # fmt: skip
        shares = sum(part.share or 0.0 for part in self.parts)
        if shares > 1 + 1e-9:
            raise problem(
                "the parts are longer than the run", field="parts",
                expected="a sum of `share` of at most 1", got=f"{shares:g}",
            )  # fmt: skip
        return self

    @property
    def upper_bound(self) -> float:
        return max(part.schedule.upper_bound for part in self.parts)

    def beyond(self, total_steps: int) -> Iterator[str]:
        start = 0
        for number, part in enumerate(self.parts, start=1):
            remaining = total_steps - start
            if remaining <= 0:
                yield f"part {number}, from step {start + 1:,}"
            else:
                length = part.length(total_steps) or remaining
                yield from part.schedule.beyond(length)
                start += length

    def value(self, step: int, total_steps: int) -> float:
        start, last = 0, self.parts[-1]
        for part in self.parts[:-1]:
            length = part.length(total_steps) or 0
            if step < start + length:
                return part.schedule.value(step - start, length)
            start += length
        return last.schedule.value(step - start, max(1, last.length(total_steps) or total_steps - start))

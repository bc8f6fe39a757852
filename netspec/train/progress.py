"""How far a training has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from netspec.backends.steps import Outcome
from netspec.train.stepper import Part


@dataclass
class Progress:
    """What of the loop's own outlives a checkpoint."""

    step: int = 0
    """Steps done."""
    best_loss: float | None = None
    """The lowest test loss so far."""
    best_step: int = 0
    last_test: dict[str, Any] | None = None
    """The last evaluation, as plain data."""
    tested_step: int = -1
    """The step after which it was."""
    loss_sum: float = 0.0
    """Sum of the losses since the last log line, and how many they are."""
    loss_count: int = 0
    part: Part = field(default_factory=Part)
    """What is done of a step that reads several batches."""
    seen: dict[str, Any] = field(default_factory=dict)
    """What the schedules remember of evaluations, by the inputs that they feed."""
    skipped: int = 0
    """Damaged samples left out in this epoch so far, and in those before."""
    skipped_before: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        """The inverse of `dataclasses.asdict`; what older checkpoints do not say is as at the start."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{**known, "part": Part(**known.get("part", {}))})


@dataclass(frozen=True)
class Begun:
    """A step of which it is not known yet whether its loss is finite."""

    outcome: Outcome
    losses: int
    before: Progress
    """What there was before it."""
    place: tuple[int, int, int]
    """Of the batch after it."""

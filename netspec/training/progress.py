"""Progress of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from netspec.backends.executor import Outcome
from netspec.training.stepper import PartialStep

if TYPE_CHECKING:
    from netspec.training.session import Session


@dataclass
class Progress:
    """State of the training loop that checkpoints store."""

    step: int = 0
    """Number of steps done."""
    best_value: float | None = None
    """The best monitored value of an evaluation so far."""
    best_step: int = 0
    best_evaluation: dict[str, Any] | None = None
    """The evaluation with that value, as plain data."""
    last_test: dict[str, Any] | None = None
    """The last evaluation on the test data, as plain data."""
    tested_step: int = -1
    """Number of steps done before the last evaluation on the test data."""
    last_validation: dict[str, Any] | None = None
    """The last evaluation on the validation data, as plain data."""
    validated_step: int = -1
    """Number of steps done before the last evaluation on the validation data."""
    loss_sum: float = 0.0
    """Sum of the losses since the last log line."""
    loss_count: int = 0
    """Number of these losses."""
    metric_totals: dict[str, list[float]] = field(default_factory=dict)
    """Sums of the totals of metrics of the training batches since the last log line, by metric."""
    worker_losses: list[tuple[float, int]] = field(default_factory=list)
    """`loss_sum` and `loss_count` by rank in a checkpoint, if each worker knows only the losses of its own samples."""
    part: PartialStep = field(default_factory=PartialStep)
    """Finished part of a step that reads several batches."""
    seen: dict[str, Any] = field(default_factory=dict)
    """State that schedules keep of evaluations, by the inputs that they feed."""
    skipped_samples: list[int] = field(default_factory=list)
    """Indices of the damaged samples that were left out, up to the end of the last epoch."""
    newly_skipped: list[int] = field(default_factory=list)
    """Indices of further damaged samples that this worker left out in this epoch so far."""
    callbacks: dict[str, Any] = field(default_factory=dict)
    """States of the user's callbacks in a checkpoint, by name."""

    def evaluated_step(self, split: str) -> int:
        """Return the number of steps done before the last evaluation on `validation` or `test`; -1 if there is none."""
        return self.validated_step if split == "validation" else self.tested_step

    def evaluation(self, split: str) -> dict[str, Any] | None:
        """Return the last evaluation of a split, as plain data."""
        if split in ("validation", "test"):
            return self.last_validation if split == "validation" else self.last_test
        others: dict[str, dict[str, Any]] = (self.last_validation or self.last_test or {}).get("others", {})
        return others.get(split)

    def record_evaluation(self, split: str, evaluation: dict[str, Any]) -> None:
        """Record the evaluation of a split after this step."""
        if split == "validation":
            self.last_validation, self.validated_step = evaluation, self.step
        else:
            self.last_test, self.tested_step = evaluation, self.step

    def add_totals(self, totals: Mapping[str, Sequence[float]]) -> None:
        """Add the totals of metrics of a batch. Copies of this object keep theirs."""
        totals_before = self.metric_totals
        self.metric_totals = {
            name: [before + value for before, value in zip(totals_before[name], values, strict=True)]
            if len(totals_before.get(name, ())) == len(values) else list(values)
            for name, values in totals.items()
        }  # fmt: skip

    def forget_best(self) -> None:
        """Start the search for the best evaluation again."""
        self.best_value, self.best_step, self.best_evaluation = None, 0, None

    def resume_losses(self, session: Session) -> None:
        """Restore unreported losses, each worker its own or the root all of them, and all metrics on the root."""
        if not session.is_root:
            self.metric_totals = {}
        saved = self.worker_losses or [(self.loss_sum, self.loss_count)]
        if session.losses_differ and len(saved) == session.size:
            saved = [saved[session.rank]]
        elif session.losses_differ and not session.is_root:
            saved = []
        self.loss_sum, self.loss_count = sum(total for total, _ in saved), sum(count for _, count in saved)
        self.worker_losses = []

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        """Return the inverse of `dataclasses.asdict`. Fields that older checkpoints lack have their defaults."""
        renamed = {"best_value": data["best_loss"]} if "best_loss" in data else {}  # until version 0.2
        fields = renamed | {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{**fields, "part": PartialStep(**fields.get("part", {}))})


@dataclass(frozen=True)
class PendingStep:
    """A step whose loss may turn out not to be finite."""

    outcome: Outcome
    losses: int
    """1 if the step has a loss, 0 if this worker had no samples."""
    before: Progress
    """Progress before the step."""
    position: tuple[int, int, int]
    """Position of the next batch in the data."""

"""Stop a training when evaluations no longer improve."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from netspec.errors import InputError, Problem, counted, did_you_mean, listing
from netspec.schema.specs.field_types import Name
from netspec.schema.specs.kinds import CALLBACKS
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.spec import problem
from netspec.training.callbacks.base import Callback, CallbackSpec

if TYPE_CHECKING:
    from netspec.training.evaluation import Evaluation
    from netspec.training.loop import TrainingLoop


@CALLBACKS.register
class EarlyStopping(CallbackSpec):
    """Ends the training if `patience` evaluations in a row do not improve `monitor`.

    The weights of the best evaluation are in `best.h5` of the run directory, as in every run. Keras's EarlyStopping.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "restore_best_weights": "not needed: `best.h5` of the run directory holds the best weights",
        "threshold": "here it is `min_delta`",
    }

    type: Literal["EarlyStopping"] = "EarlyStopping"
    monitor: Name = "loss"
    """Value that must improve: `loss`, the loss on the test data, or the name of a metric."""
    mode: Literal["min", "max"] | None = None
    """Whether lower or higher is better. `min` for `loss`; required for a metric."""
    patience: PositiveInt = 3
    """Number of evaluations without improvement after which the training ends."""
    min_delta: float = Field(default=0.0, ge=0)
    """Smallest change that counts as an improvement."""
    samples: ClassVar = ({}, {"monitor": "accuracy", "mode": "max", "patience": 5, "min_delta": 0.001})

    @model_validator(mode="after")
    def _has_a_direction(self) -> Self:
        if self.mode is None and self.monitor != "loss":
            raise problem(
                f"`mode` is required for `{self.monitor}`", field="monitor", expected="`mode: max` or `mode: min`",
                got="no `mode`",
            )  # fmt: skip
        return self

    def conflicts(self, training: Any) -> Iterator[Problem]:
        evaluated = training.data.monitored in training.data.splits()
        if not evaluated or training.train.test_every == 0:
            yield Problem(
                "EarlyStopping needs evaluations during the training", self.where(),
                expected="`data.validation` or `data.test`, and `train.test_every` above 0",
                got="no such data" if not evaluated else "`test_every: 0`",
            )  # fmt: skip
        known = ["loss", *(metric.name for metric in resolve_names(training.net).metrics)]
        if self.monitor not in known:
            yield Problem(
                f"there is no loss or metric `{self.monitor}`", self.where("monitor"), "monitor",
                expected=f"one of {listing(known)}", hint=did_you_mean(self.monitor, known),
            )  # fmt: skip

    def build(self) -> Callback:
        return _EarlyStopping(self)


class _EarlyStopping(Callback):
    def __init__(self, spec: EarlyStopping) -> None:
        self._spec = spec
        self.best: float | None = None
        self.waited = 0

    def on_evaluation_end(self, training: TrainingLoop, evaluation: Evaluation) -> None:
        spec = self._spec
        value = {"loss": evaluation.loss, **evaluation.metrics}.get(spec.monitor)
        if value is None:
            raise InputError(f"`{spec.monitor}` is not a single number", location=spec.where("monitor"))
        sign = -1.0 if spec.mode == "max" else 1.0
        best = self.best
        if not isnan(value) and (best is None or sign * value < sign * best - spec.min_delta):
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited >= spec.patience and not training.finished:
            self.stop_training = True
            waited = counted(self.waited, "evaluation")
            message = f"early stopping after step {training.step:,}: {spec.monitor} has not improved in {waited}"
            training.emit("note", message=message)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.waited = state["best"], state["waited"]

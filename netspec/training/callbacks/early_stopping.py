"""Stop a training when evaluations no longer improve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from netspec.errors import Problem, counted
from netspec.schema.specs.kinds import CALLBACKS
from netspec.schema.specs.monitor import EarlyStoppingFields, Monitor, without_evaluations
from netspec.training.callbacks.base import Callback, CallbackSpec

if TYPE_CHECKING:
    from netspec.training.evaluation import Evaluation
    from netspec.training.loop import TrainingLoop


@CALLBACKS.register
class EarlyStopping(CallbackSpec, EarlyStoppingFields, Monitor):  # the base class of the registry comes first
    """Ends the training if `patience` evaluations in a row do not improve `monitor`. Keras's EarlyStopping.

    `train: {early_stopping: …}` does the same with the `monitor` and `mode` of `train`, which also choose the best
    weights.
    """

    type: Literal["EarlyStopping"] = "EarlyStopping"
    samples: ClassVar = ({}, {"monitor": "accuracy", "mode": "max", "patience": 5, "min_delta": 0.001})

    def conflicts(self, training: Any) -> Iterator[Problem]:
        yield from without_evaluations(training, "EarlyStopping", self)
        yield from self.unknown_values(training)

    def build(self) -> Callback:
        return _EarlyStopping(self)


class _EarlyStopping(Callback):
    def __init__(self, spec: EarlyStopping) -> None:
        self._spec = spec
        self.best: float | None = None
        self.waited = self.skipped = 0

    def on_evaluation_end(self, training: TrainingLoop, evaluation: Evaluation) -> None:
        spec, value = self._spec, self._spec.value_in(evaluation.all_values())
        if self.skipped < spec.start_after:
            self.skipped += 1
            return
        if spec.improves(value, self.best, spec.min_delta):
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited >= spec.patience and not training.finished:
            self.stop_training = True
            waited = counted(self.waited, "evaluation")
            message = f"early stopping after step {training.step:,}: {spec.monitor} has not improved in {waited}"
            training.emit("note", message=message)

    def state_dict(self) -> dict[str, Any]:
        spec = self._spec
        return {
            "best": self.best, "waited": self.waited, "skipped": self.skipped, "monitor": spec.monitor,
            "mode": spec.mode,
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        spec = self._spec
        monitored = {"monitor": spec.monitor, "mode": spec.mode}
        if monitored != {name: state.get(name, value) for name, value in monitored.items()}:
            return  # the best value was that of another metric
        self.best, self.waited, self.skipped = state["best"], state["waited"], state.get("skipped", 0)

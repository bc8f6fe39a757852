"""Callbacks that log training losses and pass events to listeners."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from netspec.compile import LEARNING_RATE, SCALE, SKIPPED, is_rate
from netspec.training.callbacks.base import Callback
from netspec.training.evaluation import in_target_units

if TYPE_CHECKING:
    from netspec.training.events import Event, Listener
    from netspec.training.loop import TrainingLoop

DEFAULT_LOG_EVERY = 100
"""Steps between two `log` events, unless evaluations are more frequent."""
PROGRESS_EVERY = 0.1
"""Seconds between two `progress` events."""


class EventListener(Callback):
    """Calls a function with every event."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def on_event(self, training: TrainingLoop, event: Event) -> None:
        self._listener(event)


class StepLog(Callback):
    """Emits `log` every `log_every` steps, and `progress` in between."""

    def __init__(self) -> None:
        self._samples, self._seconds, self._shown = 0, 0.0, 0.0
        """Samples and seconds of the training at the last `log`, and the time of the last event."""

    def on_step_end(self, training: TrainingLoop) -> None:
        now, step = time.perf_counter(), training.step
        due = _is_due(training)
        if not due and now - self._shown <= PROGRESS_EVERY:
            return
        training.settle()
        self._shown = now
        progress = training.progress
        mean = training.mean_loss() if due else progress.loss_sum / max(progress.loss_count, 1)
        metrics = training.mean_metrics() if due or training.session.size == 1 else {}  # all workers log if it is `due`
        norm = training.stepper.gradient_norm()
        facts: dict[str, Any] = {"metrics": metrics} if metrics else {}
        if metrics and due and (scales := training.loader.unit_scales):
            facts["in_units"] = in_target_units(training.spec.net, scales, metrics)
        facts |= {} if norm is None else {"gradient_norm": norm}
        speed = (training.samples_read - self._samples) / max(training.step_seconds - self._seconds, 1e-9)
        training.emit(
            "log" if due else "progress", step=step, epoch=round(training.epoch, 4), loss=mean, **facts,
            learning_rate=training.rates[LEARNING_RATE], **_momenta(training), **_loss_scale(training),
            **training.session.step_facts(), steps=training.total, samples_per_second=round(speed, 1),
        )  # fmt: skip
        if due:
            progress.loss_sum, progress.loss_count, progress.metric_totals = 0.0, 0, {}
            self._samples, self._seconds = training.samples_read, training.step_seconds


def _is_due(training: TrainingLoop) -> bool:
    """Whether a line of the log is due after this step: also after the first and the last, in a short run."""
    train = training.spec.train
    if training.step == 1 or training.finished:
        return True
    if train.log_every is None and 0 < training.evaluation_interval < DEFAULT_LOG_EVERY:
        return training.is_due(train.test_every)
    return training.step % (train.log_every or DEFAULT_LOG_EVERY) == 0


def _momenta(training: TrainingLoop) -> dict[str, float]:
    """The scheduled momenta, as the log names them: `momentum`, `momentum/1`, …"""
    return {name.removeprefix("$"): value for name, value in training.rates.items() if not is_rate(name)}


def _loss_scale(training: TrainingLoop) -> dict[str, float]:
    """The loss scale and the number of skipped steps, if the scale adapts."""
    states = training.compiler.states
    if SCALE not in states:
        return {}
    return {"loss_scale": float(states[SCALE]), "skipped_steps": int(states[SKIPPED])}

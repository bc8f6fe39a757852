"""Callbacks that evaluate and that write checkpoints and weights."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from netspec.compile import LEARNING_RATE
from netspec.exchange.formats.native.hdf5 import write_checkpoint
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.specs.monitor import LOSS, monitored_value
from netspec.training.callbacks.base import Callback
from netspec.training.environment import threads, versions
from netspec.training.inference.model import save_weights
from netspec.training.stepper import PartialStep

if TYPE_CHECKING:
    from netspec.training.evaluation import Evaluation
    from netspec.training.loop import TrainingLoop
    from netspec.training.progress import Progress
    from netspec.training.session import GatheredStates

DECAYED = 0.05
"""Share of the highest learning rate at or below which a rate has decayed."""


class Evaluations(Callback):
    """Evaluates on the validation data, or else on the test data, and on further sets, every `test_every` steps."""

    def on_train_start(self, training: TrainingLoop) -> None:
        """Evaluate if a run was interrupted between a checkpoint and the evaluation after it."""
        self.on_step_end(training)

    def on_step_end(self, training: TrainingLoop) -> None:
        if training.finished or training.is_due(training.spec.train.test_every):
            training.evaluate()


class FinalTest(Callback):
    """Evaluates the final weights on the test data once, if the training was evaluated on validation data."""

    def on_train_end(self, training: TrainingLoop) -> None:
        if training.finished:
            training.test_final_weights()


class BestWeights(Callback):
    """Writes the weights of the evaluation with the best monitored value to `best.h5`.

    Emits a note if this was the last of several evaluations of a complete training, since more steps may help; not if
    the learning rate has decayed: then the last weights are usually the best.
    """

    def __init__(self) -> None:
        self._improved = False
        """Whether an evaluation of this call was better than an earlier one."""

    def on_train_end(self, training: TrainingLoop) -> None:
        progress, loop = training.progress, training.spec.train
        if not (self._improved and training.reached_end and progress.best_step == progress.step):
            return
        highest = training.schedules[LEARNING_RATE].upper_bound
        if isfinite(highest) and training.rates[LEARNING_RATE] <= DECAYED * highest:
            return
        split, monitor = monitored_value(loop.monitor, training.spec)
        unit, field = ("epochs", "max_epochs") if loop.max_epochs is not None else ("steps", "max_steps")
        best = "highest" if loop.mode == "max" else "lowest"
        message = f"the last evaluation has the {best} {split} {monitor}: more {unit} may improve it (train.{field})"
        training.emit("note", message=message)

    def on_evaluation_end(self, training: TrainingLoop, evaluation: Evaluation) -> None:
        progress, loop, values = training.progress, training.spec.train, evaluation.all_values()
        if loop.monitor not in values and monitored_value(loop.monitor, training.spec)[1] == LOSS:
            # a net without losses
            return
        value = loop.value_in(values)
        if not isfinite(value) or not loop.improves(value, progress.best_value):
            return
        self._improved = progress.best_value is not None
        progress.best_value, progress.best_step, progress.best_evaluation = value, progress.step, evaluation.scalars()
        if training.is_root:
            training.mend_folder()
            meta = {"step": progress.step, "best": training.best_criterion()}
            save_weights(training.compiler, training.folder.best, training.preprocessing, **meta)


class FinalWeights(Callback):
    """Writes the weights of the last step to `weights.h5`."""

    def on_train_end(self, training: TrainingLoop) -> None:
        if training.finished and training.is_root:
            training.mend_folder()
            save_weights(training.compiler, training.folder.weights, training.preprocessing, step=training.step)


class Checkpoints(Callback):
    """Writes a checkpoint every `checkpoint_every` steps, on request, at the end, and after a failure."""

    def __init__(self) -> None:
        self._saved: Progress | None = None
        """The training's progress at the last checkpoint."""
        self._gave_up = False
        """True after an attempt to save after a failure."""
        self._spec = ""
        """The training's spec, as every checkpoint holds it."""

    def on_step_end(self, training: TrainingLoop) -> None:
        requested, every = training.vote.snapshot, training.spec.train.checkpoint_every
        if requested or (training.is_due(every) and not training.finished):  # `on_train_end` saves the last step
            training.signals.snapshot = False
            self.save(training)

    def on_train_end(self, training: TrainingLoop) -> None:
        training.progress.callbacks = training.callback_states()
        if self._saved != training.progress:
            self.save(training)

    def on_exception(self, training: TrainingLoop, error: Exception) -> None:
        self.save_after_failure(training)

    def save(self, training: TrainingLoop) -> None:
        """Write a checkpoint of the states of all workers. Collective."""
        training.settle()
        progress, session = training.progress, training.session
        losses = [progress.loss_sum, progress.loss_count]
        progress.worker_losses = [*map(tuple, session.gather(losses))] if session.losses_differ else []
        progress.callbacks = training.callback_states()
        totals, progress.metric_totals = progress.metric_totals, training.all_metric_totals()
        with session.synchronized_view(training.compiler):
            gathered = session.gather_states(training.compiler)
            if session.size == 1 or not progress.part.batches:  # no single worker has all of an unfinished step
                self._saved = replace(progress, part=replace(progress.part), worker_losses=[], metric_totals=totals)
                path = training.folder.checkpoint(progress.step)
                if training.is_root:
                    self._write(training, gathered, path)
                training.call("on_checkpoint", path)
        progress.worker_losses, progress.metric_totals = [], totals

    def save_after_failure(self, training: TrainingLoop) -> None:
        """Write a checkpoint of the last complete step unless there is one. All remaining workers must call it.

        Devices with collectives of their own may leave states half written: then no checkpoint is possible.
        """
        session, compiler = training.session, training.compiler
        if training.step == 0 and session.alone:
            return  # nothing is lost
        if self._gave_up or (session.joint_steps and compiler.device.has_collectives):
            return
        training.settle()
        self._gave_up = True
        saved = -1 if self._saved is None else self._saved.step
        if session.can_save_after_failure(training.step, saved, unchanged=not training.stepper.changed):
            training.loader.seek(*training.agree_on_position())
            if training.stepper.restarts:
                training.stepper.rewind()
                training.progress.part = PartialStep()
            self.save(training)
            session.barrier()  # no worker ends the job before the checkpoint is written

    def _write(self, training: TrainingLoop, gathered: GatheredStates, path: Path) -> None:
        session, compiler, progress = training.session, training.compiler, training.progress
        session.report_activity(progress.step, "writing a checkpoint")
        layout = session.layout(compiler)
        # Gradient sums are needed only in the middle of a step.
        left_out = ("gathered", "gradient") if not progress.part.batches else ("gathered",)
        info = {name: state for name in layout.replicated if (state := compiler.info[name]).role not in left_out}
        states = {**{name: compiler.states[name] for name in info}, **gathered.full}
        roles = {**{name: state.role for name, state in info.items()}, **layout.roles}
        meta = {
            **asdict(progress),
            **training.preprocessing.as_meta(),
            "loader": training.loader.state(),
            "threads": threads(),
            "versions": dict(versions()),
        }
        # A state that was gathered from pieces is stored under its own name.
        stored = {name: compiler.info[label].gathers or label for name, label in compiler.evaluated.items()}
        evaluated = {name: label for name, label in stored.items() if label != name}
        training.mend_folder()
        self._spec = self._spec or canonical_yaml(training.spec)
        write_checkpoint(path, states, roles, meta, self._spec, evaluated=evaluated, worker_states=gathered.by_worker)
        training.folder.prune(training.spec.train.keep_checkpoints)
        training.emit("checkpoint", step=progress.step, path=str(path))

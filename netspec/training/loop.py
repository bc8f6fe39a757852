"""The training loop: steps, and the hooks of the callbacks between them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from netspec.backends.process_group import PeerFailure
from netspec.backends.program import NonFiniteLoss
from netspec.compile import LEARNING_RATE, Compiler, scheduled_inputs
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.errors import InputError, NetspecError, Problem, RunError
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.schema.specs.monitor import monitored_value
from netspec.schema.specs.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.training.callbacks.base import Callback
from netspec.training.callbacks.log import StepLog
from netspec.training.callbacks.weights import BestWeights, Checkpoints, Evaluations, FinalTest, FinalWeights
from netspec.training.diagnostics.call_record import FailedCall
from netspec.training.diagnostics.non_finite import NonFiniteDiagnosis
from netspec.training.evaluation import Evaluation, evaluate, swapped_weights
from netspec.training.events import MAX_EXAMPLES, Clock, data_name
from netspec.training.inference.model import Parameters
from netspec.training.preprocessing import PreprocessingRecord
from netspec.training.progress import PendingStep, Progress
from netspec.training.run_directory import RunDir
from netspec.training.session import Session, StopVote, gather_joint
from netspec.training.signals import Signals
from netspec.training.stepper import PartialStep


class TrainingLoop:
    """A training, as callbacks see it. Runs steps until the training is finished or asked to stop.

    For callbacks: `step`, `total`, `epoch`, `loss`, `rates`, `finished`, `parameters`, `spec`, `run_dir`, `is_root`,
    `emit`, `evaluate`, `save_checkpoint`.
    """

    def __init__(
        self,
        spec: TrainSpec,
        compiler: Compiler,
        loader: Loader,
        *,
        evaluation_loaders: Mapping[str, Loader],
        folder: RunDir,
        signals: Signals,
        progress: Progress,
        session: Session,
        listeners: Sequence[Callback] = (),
        callbacks: Sequence[Callback] = (),
        began: float | None = None,
    ) -> None:
        """`listeners` are called before all others; `callbacks` are the user's. `began` is passed to `Clock`."""
        assert isinstance(spec.solver, SolverSpec)
        self.spec, self.compiler, self.loader = spec, compiler, loader
        self.evaluation_loaders = evaluation_loaders
        """The data to evaluate on, by split: `validation`, `test`, and the names in `data.evaluate`."""
        self.folder, self.signals, self.progress, self.session = folder, signals, progress, session
        self.clock = Clock(folder.log, began)
        """Stamps all events."""
        self.stopped = False
        """Whether the loop ended before the training was finished, because it was asked to."""
        self.schedules = scheduled_inputs(spec.solver)
        progress.seen = {name: progress.seen.get(name, schedule.start()) for name, schedule in self.schedules.items()}
        self.stepper = session.stepper(spec, compiler, loader)
        self.total = spec.train.max_steps or (spec.train.max_epochs or 0) * self.stepper.steps_per_epoch
        """Total number of training steps."""
        self.preprocessing = PreprocessingRecord.of(
            evaluation_loaders.get("test") or next(iter(evaluation_loaders.values()), loader),
            {name: split for name, split in evaluation_loaders.items() if split.is_held_out},
        )
        """Preprocessing of the samples that the net is evaluated on."""
        self.position = loader.position
        """Position in the data after the last batch that was used."""
        self._after_non_finite: tuple[int, int, int] | None = None
        """Position in the data after the batch whose loss or gradient is not finite, if there is one."""
        self.rates: Mapping[str, float] = {}
        """The scheduled learning rates and momenta of the last step, by the inputs of the program."""
        self.epoch = 0.0
        """Passes over the training data so far."""
        self.samples_read, self.step_seconds = 0, 0.0
        """Samples of this call's steps, and the time that they took without callbacks."""
        self.last_loss = nan
        self.vote: StopVote
        """Whether any worker was asked to stop or to write a checkpoint, during the last step."""
        self._resumed_at = time.perf_counter()
        self._pending: PendingStep | None = None
        """The last step, until its loss is known. Devices that run ahead report it during the next step."""
        self._damaged: list[str] = []
        self._event_error: Exception | None = None
        """The first error that a callback raised in `on_event`."""
        self._add_callbacks(listeners, callbacks)

    def _add_callbacks(self, listeners: Sequence[Callback], callbacks: Sequence[Callback]) -> None:
        """Order all callbacks, and restore the states of the user's."""
        self._checkpoints = Checkpoints()
        self._user_callbacks = _named(callbacks)
        self.callbacks = (
            *listeners, StepLog(), BestWeights(), FinalTest(), *callbacks, self._checkpoints, Evaluations(),
            FinalWeights(),
        )  # fmt: skip
        """All callbacks, in the order in which their hooks are called."""
        self._waits_for_loss = any(
            callback.reads_loss and type(callback).on_step_end is not Callback.on_step_end for callback in callbacks
        )
        for name, callback in self._user_callbacks.items():
            if (saved := self.progress.callbacks.get(name)) is not None:
                callback.stop_training = saved["stop_training"]
                callback.load_state_dict(saved["state"])

    def steps(self) -> Iterator[None]:
        """Train to the end, or until a stop is requested, and save; yield between two steps.

        A training that is stopped early is not evaluated. After a damaged sample, or the failure of a callback or of
        another worker, a checkpoint is written before the error is raised.
        """
        try:
            yield from self._train()
        except (NetspecError, OSError, PeerFailure) as error:
            for callback in self.callbacks:
                with suppress(Exception):  # the first error is the one to report
                    callback.on_exception(self, error)
            if isinstance(error, PeerFailure):
                raise self.session.peer_failure() from None
            if self._event_error is None:
                raise
        if self._event_error is not None:
            raise self._event_error

    def _train(self) -> Iterator[None]:
        self.call("on_train_start")
        for batch in () if self.finished else self.loader:
            self._step(batch)
            if not self.stepper.is_midstep(self.progress.part) and (self.finished or self.vote.stop):
                self.stopped = not self.finished
                break  # else the step continues with the next batch
            yield
            self._resumed_at = time.perf_counter()
        self.settle()
        self.call("on_train_end")

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a hook of all callbacks. A foreign exception of a user's callback becomes a `RunError`."""
        for callback in self.callbacks:
            try:
                getattr(callback, hook)(self, *arguments)
            except (NetspecError, OSError, PeerFailure):
                raise
            except Exception as error:
                if (failure := self._callback_failure(callback, hook, error)) is None:
                    raise
                raise failure from error

    def _callback_failure(self, callback: Callback, hook: str, error: Exception) -> RunError | None:
        """Return the error for a foreign exception of a user's callback; None for netspec's own callbacks."""
        name = next((name for name, user in self._user_callbacks.items() if user is callback), None)
        if name is None:
            return None
        return RunError(f"the callback `{name}` failed in `{hook}`", got=f"{type(error).__name__}: {error}")

    def emit(self, event: str, **facts: Any) -> None:
        """Send an event to all callbacks, on the root.

        If a callback fails in `on_event` (for example on a closed pipe), all workers are asked to stop.
        """
        if not self.is_root:
            return
        stamped = self.clock.stamp({"event": event, **facts})
        for callback in self.callbacks:
            try:
                callback.on_event(self, dict(stamped))
            except Exception as error:
                known = isinstance(error, (NetspecError, OSError))
                failure = error if known else self._callback_failure(callback, "on_event", error)
                if failure is None:
                    raise
                self._event_error = self._event_error or failure
                self.request_stop("an error")

    def emit_skipped(self, split: str, samples: int, examples: Sequence[str], *, epoch: int | None = None) -> None:
        """Emit how many damaged samples of a split were left out: in an epoch, an evaluation, or so far."""
        when = {} if epoch is None else {"epoch": epoch}
        self.emit("skipped", split=split, **when, samples=samples, examples=list(examples[:MAX_EXAMPLES]))

    @property
    def step(self) -> int:
        """Number of steps done, those before a resume included."""
        return self.progress.step

    @property
    def is_root(self) -> bool:
        """Whether this worker writes files and prints."""
        return self.session.is_root

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self.folder.folder

    @property
    def parameters(self) -> Parameters:
        """The parameters and statistics of this worker by name: copies, which can be assigned."""
        return Parameters(self.compiler)

    @property
    def finished(self) -> bool:
        """Whether all steps or epochs are done, or a callback ended the training.

        Epochs may have fewer steps than planned if damaged samples are left out.
        """
        return self.reached_end or any(callback.stop_training for callback in self.callbacks)

    @property
    def reached_end(self) -> bool:
        """Whether all steps or epochs are done."""
        epochs = self.spec.train.max_epochs
        return self.progress.step >= self.total or (epochs is not None and self.loader.epoch >= epochs)

    @property
    def loss(self) -> float:
        """Loss of the last step; nan before the first one. Waits for the device."""
        self.settle()
        return self.last_loss

    def final_evaluation(self, split: str) -> Evaluation | None:
        """Return the evaluation on `validation` or `test` of the weights that the run ends with."""
        progress, is_best = self.progress, self.ends_with_best and split == self.spec.data.monitored
        evaluation = progress.best_evaluation if is_best else progress.evaluation(split)
        return Evaluation.from_json(evaluation) if evaluation else None

    def best_criterion(self) -> dict[str, Any]:
        """Return by which value the best weights were chosen, and its best value: files and logs record it."""
        loop = self.spec.train
        split, monitor = monitored_value(loop.monitor, self.spec)
        return {"split": split, "monitor": monitor, "mode": loop.mode, "value": self.progress.best_value}

    def callback_states(self) -> dict[str, Any]:
        """Return the states of the user's callbacks, by name. Raises `RunError` if JSON can't hold them."""
        states = {}
        for name, callback in self._user_callbacks.items():
            state = callback.state_dict()
            try:
                states[name] = {"stop_training": callback.stop_training, "state": json.loads(json.dumps(state))}
            except (TypeError, ValueError) as error:
                raise RunError(
                    f"JSON can't hold the state of the callback `{name}`", got=_json_problem(state) or str(error),
                    hint="`float(x)` converts a scalar, `x.tolist()` an array",
                ) from error  # fmt: skip
        return states

    def nothing_left(self) -> bool:
        """Return whether a resumed run was complete: its weights are those of its last step, and were evaluated."""
        if not self.finished or not all(map(self._is_evaluated, ("validation", "test"))):
            return False
        try:
            return read_weights(self.folder.weights).meta.get("step") == self.progress.step
        except InputError:  # killed before they were written, or damaged since
            return False

    @property
    def evaluation_interval(self) -> int:
        """Number of steps between two evaluations; 0 if there are none before the end."""
        if self.spec.data.monitored not in self.evaluation_loaders:
            return 0
        every = self.spec.train.test_every
        return self.stepper.steps_per_epoch if every is None else every

    def is_due(self, every: int | None) -> bool:
        """Return whether an action that is done every `every` steps is due now; None: after every epoch."""
        if not self.progress.step or every == 0:
            return False
        return self.loader.between_epochs if every is None else self.progress.step % every == 0

    def request_stop(self, reason: str) -> None:
        """Ask all workers to stop after this step or the next one, and to save, as Ctrl-C does. Not collective.

        The run can be resumed. `reason`, for example "the time limit", is in the log, in the message of `netspec train`
        and in `netspec.Interrupted`.
        """
        self.signals.request_stop(reason)

    def save_checkpoint(self) -> None:
        """Write a checkpoint now. All workers must call this after the same step."""
        self._checkpoints.save(self)

    def _step(self, batch: Batch) -> None:
        """Run a step, or the part of a step that the batch belongs to."""
        step, rates = self.progress.step, self._scheduled()
        self.session.report_activity(step, "training")
        self.vote = self.session.vote_on_stop(self.signals, step + 1)
        try:
            started = self.stepper.run(batch, step, self.session.scheduled(rates), self.progress.part)
        except NonFiniteLoss as error:
            if not error.late:
                self.settle()
            raise self._not_finite(error, self._pending) from None
        self.settle()
        if self.stepper.metric_totals:
            self.progress.add_totals(self.stepper.metric_totals)
        if started is not None or not self.stepper.restarts:
            self.position = self.loader.position
        self.samples_read += batch.end - batch.position
        if started is None:
            self._note_skipped(batch)
            return
        self._pending = PendingStep(*started, copy(self.progress), self.position)
        self.stepper.calls.complete(self._pending)
        self.progress.step = step + 1
        if (self.session.size > 1 and not self.session.joint_steps) or self._waits_for_loss:
            self.settle()  # other workers and callbacks must only see finite values
        if self.session.sends_states(self.progress.step):
            self._check_states()
        self.session.after_step(self.progress.step, self.compiler)
        self._note_skipped(batch)
        self.rates, self.epoch = rates, batch.epoch + batch.end / self.loader.samples
        self.step_seconds += time.perf_counter() - self._resumed_at
        if self.reached_end or any(map(self.is_due, (self.spec.train.test_every, self.spec.train.checkpoint_every))):
            self._check_states()
        self.call("on_step_end")
        if self.loader.between_epochs:
            self.call("on_epoch_end")
        self._resumed_at = time.perf_counter()

    def settle(self) -> None:
        """Wait for the loss of the last step. Raises `RunError` if it is not finite."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            loss = pending.outcome()
        except NonFiniteLoss as error:
            raise self._not_finite(error, pending) from None
        self.progress.loss_sum += loss
        self.progress.loss_count += pending.losses
        self.last_loss = loss if pending.losses else self.last_loss

    def _check_states(self) -> None:
        """Raise `RunError` if a step left a parameter that is not finite, before it is evaluated or saved."""
        self.settle()
        try:
            self.stepper.calls.check()
        except NonFiniteLoss as error:
            raise self._not_finite(error, None) from None

    def mean_loss(self) -> float:
        """Return the mean loss since the last log line, over all workers if their losses differ."""
        total, count = self.progress.loss_sum, self.progress.loss_count
        if self.session.losses_differ:
            total, count = map(sum, zip(*self.session.gather([total, count]), strict=True))
        return total / count if count else nan

    def mean_metrics(self) -> dict[str, float]:
        """Return the metrics of the training batches since the last log line, over all workers. Collective.

        Empty if they are not computed.
        """
        metrics, results = self.compiler.metrics, {}
        for name, totals in self.all_metric_totals().items():
            result = metrics[name].result(*map(np.asarray, totals)) if name in metrics else None
            if isinstance(result, (int, float)):
                results[name] = float(result)
        return results

    def all_metric_totals(self) -> dict[str, list[float]]:
        """Return the totals of metrics since the last log line, over all workers. Collective."""
        totals = Progress()
        if not self.compiler.logs_metrics:  # then not collective: workers may log after different steps
            return {}
        for of_worker in self.session.gather(self.progress.metric_totals):
            totals.add_totals(of_worker)
        return totals.metric_totals

    def _scheduled(self) -> dict[str, float]:
        """Return the scheduled values of the next step, by the inputs of the program."""
        step, states = self.progress.step, self.progress.seen
        return {name: schedule.rate(step, self.total, states[name]) for name, schedule in self.schedules.items()}

    def _note_skipped(self, batch: Batch) -> None:
        """Record the damaged samples that were left out; at the end of an epoch, report those that are new."""
        progress = self.progress
        if self.loader.between_epochs:
            self.settle()
        if batch.skipped:
            counted = {*progress.skipped_samples, *progress.newly_skipped}
            new = [sample for sample in batch.skipped if sample.index not in counted]
            progress.newly_skipped = [*progress.newly_skipped, *dict.fromkeys(sample.index for sample in new)]
            self._damaged += [str(sample) for sample in new[: MAX_EXAMPLES - len(self._damaged)]]
        if not (self.loader.between_epochs and self.loader.skips):
            return
        by_worker = self.session.gather([progress.newly_skipped, self._damaged])
        indices = {index for of_worker, _ in by_worker for index in of_worker}
        if indices:
            examples = [example for _, of_worker in by_worker for example in of_worker]
            self.emit_skipped("train", len(indices), examples, epoch=batch.epoch + 1)
            progress.skipped_samples = sorted({*progress.skipped_samples, *indices})
        progress.newly_skipped, self._damaged = [], []

    def _is_evaluated(self, split: str) -> bool:
        """Return whether there is no such data, or it was evaluated after this step."""
        return split not in self.evaluation_loaders or self.progress.evaluated_step(split) == self.step

    def evaluate(self) -> None:
        """Evaluate on `validation`, or else on `test`, and on the sets in `data.evaluate`. Collective.

        Does nothing if there is no such data, or if it was evaluated after this step.
        """
        split = self.spec.data.monitored
        if self._is_evaluated(split):
            return
        self.settle()
        with self.session.synchronized_view(self.compiler):
            evaluation = self._evaluate(split, self.step)
            others = {name: self._evaluate(name, self.step) for name in self.spec.data.evaluate}
            evaluation = replace(evaluation, others=others)
            self.progress.record_evaluation(split, evaluation.scalars())
            self._update_schedules(evaluation)
            self.call("on_evaluation_end", evaluation)

    def test_final_weights(self) -> None:
        """Evaluate, on the test data, the weights that the run ends with: the best, or those of the last step.

        Does nothing if there is no test data, or if that was done after this step. Collective.
        """
        if self._is_evaluated("test"):
            return
        self.settle()
        best = self._best_weights() if self.is_root and self.ends_with_best else None
        restored = self.session.gather(best is not None)[0]
        with self.session.synchronized_view(self.compiler):
            if restored:
                with swapped_weights(self.compiler, best, self.session):
                    evaluation = self._evaluate("test", self.progress.best_step)
            else:
                evaluation = self._evaluate("test", self.step)
        self.progress.record_evaluation("test", evaluation.scalars())

    def _evaluate(self, split: str, step: int) -> Evaluation:
        """Evaluate on a split, and report it as an evaluation of the weights of `step`."""
        self.session.report_activity(self.step, "evaluating")
        began = time.perf_counter()
        evaluation = evaluate(self.compiler, self.evaluation_loaders[split], self.session)
        seconds = round(time.perf_counter() - began, 3)
        reported = (self.progress.evaluation(split) or {}).get("skipped", 0)
        earlier = {"best_weights": True} if step != self.step else {}
        self.emit("test", step=step, **earlier, split=split, **evaluation.scalars(), seconds=seconds)
        if evaluation.skipped != reported:
            self.emit_skipped(split, evaluation.skipped, evaluation.damaged)
        if evaluation.non_finite:
            message = f"not finite (nan or infinite) on the {data_name(split)}: {', '.join(evaluation.non_finite)}"
            self.emit("warning", message=message, step=step)
        return evaluation

    @property
    def ends_with_best(self) -> bool:
        """Whether the run ends with the weights of an evaluation before its last step."""
        progress = self.progress
        return self.spec.train.restore_best and progress.best_value is not None and progress.best_step != progress.step

    def _best_weights(self) -> Mapping[str, Any] | None:
        """Return the weights of the best evaluation; None, with a warning, if they can't be read."""
        try:
            weights = read_weights(self.folder.best)
            if weights.meta.get("step") == self.progress.best_step:
                return weights.arrays
            reason = f"{self.folder.best} is not of step {self.progress.best_step:,}"
        except InputError as error:
            reason = error.problems[0].message
        message = f"the best weights can't be tested, so those of the last step are: {reason}"
        self.emit("warning", message=message, step=self.progress.step)
        return None

    def _update_schedules(self, evaluation: Evaluation) -> None:
        """Pass the evaluation to the schedules if it was due: a resumed run must not count an additional last one."""
        if self.is_due(self.spec.train.test_every):
            values, states = evaluation.all_values(), self.progress.seen
            self.progress.seen = {
                name: schedule.observed(states[name], values) for name, schedule in self.schedules.items()
            }

    def mend_folder(self) -> None:
        """Create the run directory again if somebody removed it, so that the weights can be saved."""
        if (removed := self.folder.recreate()) is not None:
            message = f"{removed} was removed during the run; it is created again"
            self.emit("warning", message=message, step=self.progress.step)

    def _not_finite(self, error: NonFiniteLoss, pending: PendingStep | None) -> RunError:
        """Save the weights and a capsule of the step; return the error that names the first value that is not finite.

        `pending` is the failed step; its progress is undone. If a state was not finite before it, an earlier step
        failed, and that one is undone. Collective if the workers share the step.
        """
        state = next(filter(None, gather_joint(self.session, error.state)), None)
        error = NonFiniteLoss(error.node, state, error.late)  # this state is the cause on all workers
        failed = self.stepper.calls.failed_call(error)
        if state is not None:
            pending = failed.call.pending if failed is not None else None
        notes = self._undo_step(pending, failed, state)
        diagnosis = NonFiniteDiagnosis(self.spec, self.compiler, self.session, self.folder)
        report = diagnosis.report(error, failed, self.progress.step + 1, self.stepper.calls.unknown_reason)
        notes += [*report.notes, f"learning rate: {self._scheduled()[LEARNING_RATE]:.6g}"]
        return RunError(Problem(report.message, report.location, got=report.got, hint=report.hint, notes=tuple(notes)))

    def _undo_step(self, pending: PendingStep | None, failed: FailedCall | None, state: str | None) -> list[str]:
        """Return to the point before a step, and save the weights; return the note on them.

        `state` is the one that was not finite. Nothing is saved if the states of this point are not known.
        """
        if pending is not None:
            self._pending = None
            vars(self.progress).update(vars(pending.before))
            self.loader.seek(*pending.position)
        self._after_non_finite = self.loader.position
        if failed is not None and failed.states_before_step is not None:
            self.progress.part = PartialStep()
            for name, array in failed.states_before_step.items():
                self.compiler.states.assign(name, array)
        if not all(gather_joint(self.session, state is None or self._is_restored(failed, state))):
            self.stepper.changed = True
            return []
        if self.session.alone or (self.session.joint_steps and not self.progress.part.batches):
            self.save_checkpoint()
        else:
            with suppress(NetspecError, OSError, PeerFailure):
                self._checkpoints.save_after_failure(self)
        path = self.folder.checkpoint(self.progress.step)
        is_saved = gather_joint(self.session, path.is_file())[0]  # the root writes it
        return [f"the weights before this step are in {path}"] if is_saved else []

    def agree_on_position(self) -> tuple[int, int, int]:
        """Return where a run continues in the data after a failure: after a batch that was not finite on any worker.

        Without such a batch, after the last one that this worker used. Collective.
        """
        skipped = [tuple(position) for position in self.session.gather(self._after_non_finite) if position is not None]
        return max([self.position, *skipped])

    def _is_restored(self, failed: FailedCall | None, state: str) -> bool:
        """Return whether the states are those before a step; `state` is the one that was not finite."""
        restarts = failed is not None and failed.states_before_step is not None
        is_same_step = failed is None or restarts or failed.call.step == self.progress.step
        if self.compiler.info[state].role == "gradient":  # a step that starts again sets it to 0
            return is_same_step
        return failed is not None and is_same_step and bool(np.isfinite(self.compiler.states[state]).all())


def _json_problem(state: Any) -> str | None:
    """Return the first entry of a callback's state that JSON can't hold, and why."""
    for key, value in state.items() if isinstance(state, Mapping) else ():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            return f"`{key}`: {error}"
    return None


def _named(callbacks: Sequence[Callback]) -> dict[str, Callback]:
    """Return the callbacks by their names in checkpoints: the class name, numbered from its second callback on."""
    named: dict[str, Callback] = {}
    for callback in callbacks:
        name = type(callback).__name__.removeprefix("_")
        count = sum(key == name or key.startswith(f"{name}-") for key in named)
        named[f"{name}-{count + 1}" if count else name] = callback
    return named

"""The training loop: steps, and what happens between them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict, replace
from functools import partial
from math import isfinite
from typing import Any

from netspec.backends.program import NonFiniteLoss
from netspec.compile import LEARNING_RATE, SCALE, SKIPPED, Compiler, rate_inputs
from netspec.data.batches import Batch
from netspec.data.loader import Loader
from netspec.errors import InputError, NetspecError, Problem, RunError
from netspec.exchange.hdf5 import read_weights, write_checkpoint
from netspec.graph.fused import scopes
from netspec.parallel.activity import at_work
from netspec.parallel.base import Broken
from netspec.schema.provenance import canonical_yaml
from netspec.schema.train import TrainSpec
from netspec.solvers.base import SolverSpec
from netspec.train.crew import Asked, AskedOfServers, Crew, Origin
from netspec.train.environment import threads
from netspec.train.evaluation import Evaluation, evaluate
from netspec.train.events import MOST_EXAMPLES, Event, Listener, tell, tell_skipped
from netspec.train.interrupt import Signals
from netspec.train.model import save_weights
from netspec.train.preparation import Preparation
from netspec.train.progress import Begun, Progress
from netspec.train.rundir import RunDir
from netspec.train.shards import stepper
from netspec.train.stepper import Part

PROGRESS_EVERY = 0.1
"""Seconds between two `progress` events."""


class Loop:
    """Runs steps until the training is long enough or is asked to stop."""

    def __init__(
        self,
        spec: TrainSpec,
        compiler: Compiler,
        loader: Loader,
        test: Loader | None,
        folder: RunDir,
        listeners: Sequence[Listener],
        signals: Signals,
        progress: Progress,
        crew: Crew,
    ) -> None:
        assert isinstance(spec.solver, SolverSpec)
        self.crew = crew
        self.stopped = False
        """Whether the loop ended before the training did, as it was asked to."""
        self.spec, self.compiler, self.loader, self.test_loader = spec, compiler, loader, test
        self.folder, self.signals, self.progress = folder, signals, progress
        self.listeners = [partial(self._told, one) for one in listeners]
        self._unheard: NetspecError | OSError | None = None
        """Why a listener could not go on, the first one that could not."""
        self.schedules = rate_inputs(spec.solver)
        progress.seen = {name: progress.seen.get(name, one.start()) for name, one in self.schedules.items()}
        timing = spec.train
        self.stepper = stepper(spec, compiler, loader, crew)
        epoch = self.stepper.steps_per_epoch
        self.total = timing.max_steps or (timing.max_epochs or 0) * epoch
        self.preparation = Preparation.of(test or loader)
        """What is done to the samples that the net is evaluated on."""
        self._saved: Progress | None = None
        self._begun: Begun | None = None
        """The last step. Devices that run ahead are asked when the next one has begun, or something is due."""
        self._gave_up = False
        """Whether it was tried to save what there is, since a worker has failed."""
        self._place = loader.place
        """Of the batch after the last one that was of use."""
        self._damaged: list[str] = []
        self._asked: Asked | AskedOfServers
        self.skips = loader.skips
        self._samples, self._since, self._shown = 0, time.perf_counter(), 0.0

    def run(self) -> None:
        """Train to the end, or to the step during which a stop was asked for; then evaluate and save.

        A sample that can't be used, in training or in an evaluation, loses nothing of what was learned before; nor does
        it where another worker finds it, nor a listener that can't go on: its error is raised when all have stopped.
        """
        try:
            self._train()
        except (NetspecError, OSError, Broken) as error:
            with suppress(NetspecError, OSError, Broken):  # what went wrong first is what is told
                self._save_after_failure()
            if isinstance(error, Broken):
                raise self.crew.end() from None
            if self._unheard is None:
                raise
        if self._unheard is not None:
            raise self._unheard

    def _told(self, listener: Listener, event: Event) -> None:
        """Tell a listener. One that can't go on (nobody reads what it prints) asks all workers to stop."""
        try:
            listener(event)
        except (NetspecError, OSError) as error:
            self._unheard = self._unheard or error
            self.signals.stop = self.signals.stop or "an error"

    def _train(self) -> None:
        if self._is_due(self.spec.train.test_every):  # the run ended between the checkpoint and the evaluation after it
            self._test()
        for batch in () if self.finished else self.loader:
            self._step(batch)
            if not self.stepper.midway(self.progress.part) and (self.finished or self._asked.stop):
                self.stopped = not self.finished
                break  # else the step goes on with the next batch
        if self.finished:
            self._test()
        self._settle()
        if self._saved != self.progress:
            self._save_together()
        if self.finished and self.crew.is_first:
            self._mend_folder()
            save_weights(self.compiler, self.folder.weights, self.preparation, step=self.progress.step)

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or all epochs, which may have fewer steps where damaged samples are left out."""
        epochs = self.spec.train.max_epochs
        return self.progress.step >= self.total or (epochs is not None and self.loader.epoch >= epochs)

    @property
    def last_test(self) -> Evaluation | None:
        """The last evaluation of the run, before a resume or after it."""
        return Evaluation.from_json(self.progress.last_test) if self.progress.last_test else None

    def nothing_left(self) -> bool:
        """Whether a resumed run had come to its end: its weights are those of its last step, and were evaluated."""
        untested = self.test_loader is not None and self.progress.tested_step != self.progress.step
        if not self.finished or untested:
            return False
        try:
            return read_weights(self.folder.weights).meta.get("step") == self.progress.step
        except InputError:  # killed before they were written, or damaged since
            return False

    def _step(self, batch: Batch) -> None:
        """Run a step, or the part of one that a batch is for."""
        step, rates = self.progress.step, self._rates()
        at_work(step)
        self._asked = self.crew.ask(self.signals, step + 1)
        try:
            taken = self.stepper.take(batch, step, self.crew.rates(rates), self.progress.part)
        except NonFiniteLoss as error:
            if not error.late:
                self._settle()
            raise self._not_finite(error, self._begun) from None
        self._settle()
        if taken is not None or self.crew.alone:  # several workers begin a step that fails anew
            self._place = self.loader.place
        self._samples += batch.end - batch.position
        if taken is None:
            self._note_skipped(batch)
            return
        self._begun = Begun(*taken, copy(self.progress), self._place)
        self.progress.step = step + 1
        if self.crew.size > 1 and not self.crew.sums:
            self._settle()  # what others get is to be good
        self.crew.after_step(self.progress.step, self.compiler)
        self._note_skipped(batch)
        self._after(batch, rates[LEARNING_RATE])

    def _settle(self) -> None:
        """Ask for the loss of the last step. Raises `RunError` where it is not finite."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        try:
            self.progress.loss_sum += begun.outcome()
        except NonFiniteLoss as error:
            raise self._not_finite(error, begun) from None
        self.progress.loss_count += begun.losses

    def _rates(self) -> dict[str, float]:
        """The learning rates of the next step, by the inputs of the program."""
        step, seen = self.progress.step, self.progress.seen
        return {name: one.rate(step, self.total, seen[name]) for name, one in self.schedules.items()}

    def _after(self, batch: Batch, rate: float) -> None:
        """What is due after a step."""
        step, timing = self.progress.step, self.spec.train
        now = time.perf_counter()
        due = step == 1 or step % timing.log_every == 0 or self.finished  # a short run shows its loss too
        if due or now - self._shown > PROGRESS_EVERY:
            self._settle()
            self._shown = now
            found = self.progress.loss_sum, self.progress.loss_count
            mean = self.crew.mean(*found) if due else found[0] / max(found[1], 1)
            speed = self._samples / max(now - self._since, 1e-9)
            epoch = batch.epoch + batch.end / self.loader.samples
            facts = {"step": step, "epoch": round(epoch, 4), "loss": mean, "learning_rate": rate, **self._scaling(),
                     **self.crew.late_facts()}  # fmt: skip
            name = "log" if due else "progress"
            tell(self.listeners, name, **facts, steps=self.total, samples_per_second=round(speed, 1))
        if due:
            self.progress.loss_sum, self.progress.loss_count = 0.0, 0
            self._samples, self._since = 0, now
        pause = time.perf_counter()
        last = self.finished  # what is due then waits for the last evaluation, which it is to hold
        if self._asked.snapshot or (self._is_due(timing.checkpoint_every) and not last):  # first: evaluating may fail
            self.signals.snapshot = False
            self._save_together()
        if self._is_due(timing.test_every) and not last:
            self._test()
        self._since += time.perf_counter() - pause

    def _scaling(self) -> dict[str, float]:
        """The scale of the loss, and how many steps were skipped, where it adapts."""
        states = self.compiler.states
        if SCALE not in states:
            return {}
        return {"loss_scale": float(states[SCALE]), "skipped_steps": int(states[SKIPPED])}

    def _is_due(self, every: int | None) -> bool:
        """Whether something is due that is done every so many steps; None: after every epoch."""
        if not self.progress.step or every == 0:
            return False
        return self.loader.between_epochs if every is None else self.progress.step % every == 0

    def _note_skipped(self, batch: Batch) -> None:
        """Count the damaged samples that were left out, and tell how many they are at the end of an epoch."""
        progress = self.progress
        if self.loader.between_epochs:
            self._settle()
        progress.skipped += len(batch.skipped)
        self._damaged += [str(one) for one in batch.skipped[: MOST_EXAMPLES - len(self._damaged)]]
        if self.loader.between_epochs and self.skips:
            progress.skipped, self._damaged = self.crew.skipped(progress.skipped, self._damaged)
        if self.loader.between_epochs and progress.skipped:
            tell_skipped(self.listeners, "train", progress.skipped, self._damaged, epoch=batch.epoch + 1)
            progress.skipped_before, progress.skipped = progress.skipped_before + progress.skipped, 0
            self._damaged = []

    def _test(self) -> None:
        """Evaluate, unless there is nothing to evaluate on, or it was done after this very step."""
        progress = self.progress
        if self.test_loader is None or progress.tested_step == progress.step:
            return
        self._settle()
        at_work(progress.step, "evaluating")
        with self.crew.looking(self.compiler):
            self._look(self.test_loader)

    def _look(self, samples: Loader) -> None:
        """Evaluate on these samples, and keep what is best."""
        progress, began = self.progress, time.perf_counter()
        found = evaluate(self.compiler, samples, self.crew)
        progress.last_test, progress.tested_step = found.scalars(), progress.step
        seconds = round(time.perf_counter() - began, 3)
        tell(self.listeners, "test", step=progress.step, **found.scalars(), seconds=seconds)
        if self._is_due(self.spec.train.test_every):  # the evaluation at the end is one too many for a run that goes on
            figures = {**found.metrics, **({} if found.loss is None else {"loss": found.loss})}
            seen = progress.seen
            progress.seen = {name: one.observed(seen[name], figures) for name, one in self.schedules.items()}
        if found.skipped:
            tell_skipped(self.listeners, "test", found.skipped, found.damaged)
        if found.non_finite:
            message = f"not finite (nan or infinite) on the test data: {', '.join(found.non_finite)}"
            tell(self.listeners, "warning", message=message, step=progress.step)
        if self._is_best(found.loss):
            progress.best_loss, progress.best_step = found.loss, progress.step
            if self.crew.is_first:
                self._mend_folder()
                save_weights(self.compiler, self.folder.best, self.preparation, step=progress.step)

    def _is_best(self, loss: float | None) -> bool:
        """Whether a test loss is the lowest so far; one that is not finite never is."""
        best = self.progress.best_loss
        return loss is not None and isfinite(loss) and (best is None or loss < best)

    def _save_after_failure(self) -> None:
        """Write a checkpoint of the last step that was done, if it is not written yet. All come here, once.

        Where devices sum up by themselves, those of the others wait for one another for ever, with states half written.
        """
        if self._gave_up or (self.crew.sums and self.compiler.device.sums_itself):
            return
        self._settle()
        self._gave_up = True
        saved = -1 if self._saved is None else self._saved.step
        if self.crew.fits_together(self.progress.step, saved, whole=not self.stepper.changed):
            self.loader.go_on_from(*self._place)
            if not self.crew.alone:
                self.stepper.rewind()
                self.progress.part = Part()
            self._save_together()
            self.crew.workers.barrier()  # it is written before the job ends

    def _save_together(self) -> None:
        """Write a checkpoint of what all workers have. All come here."""
        self._settle()
        with self.crew.looking(self.compiler):
            self._save(self.crew.own_states(self.compiler), self.crew.assembled(self.compiler))

    def _save(self, own: Sequence[Mapping[str, Any]] = (), wholes: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint: the first worker does. Of a step that is half done no worker has all that it needs.

        `wholes` are those of the states of which each worker has a part; without them there is none where it does.
        """
        known = self.crew.wholes(self.compiler)
        divided = bool(known.kept or self.compiler.owners)
        if (wholes is None and divided) or (self.crew.size > 1 and self.progress.part.batches):
            return
        self._saved = replace(self.progress, part=replace(self.progress.part))
        if self.crew.is_first:
            self._write_checkpoint(own, wholes or {})

    def _write_checkpoint(self, own: Sequence[Mapping[str, Any]], wholes: Mapping[str, Any]) -> None:
        at_work(self.progress.step, "writing a checkpoint")
        path, known = self.folder.checkpoint(self.progress.step), self.crew.wholes(self.compiler)
        # Sums that no step has begun are of no use.
        left_out = ("gathered", "gradient") if not self.progress.part.batches else ("gathered",)
        info = {name: one for name in known.common if (one := self.compiler.info[name]).role not in left_out}
        states = {**{name: self.compiler.states[name] for name in info}, **wholes}
        roles = {**{name: one.role for name, one in info.items()}, **{one.name: one.role for one in known.kept}}
        progress = {
            **asdict(self.progress),
            **self.preparation.as_meta(),
            "loader": self.loader.state(),
            "threads": threads(),
        }
        # What was gathered from pieces stands in the file under its own name.
        standing = {name: self.compiler.info[one].gathers or one for name, one in self.compiler.evaluated.items()}
        spec, evaluated = canonical_yaml(self.spec), {name: one for name, one in standing.items() if one != name}
        self._mend_folder()
        write_checkpoint(path, states, roles=roles, progress=progress, spec=spec, evaluated=evaluated, own=own)
        self.folder.prune(self.spec.train.keep_checkpoints)
        tell(self.listeners, "checkpoint", step=self.progress.step, path=str(path))

    def _mend_folder(self) -> None:
        """Make the run directory again if somebody removed it: what was learned is not lost with it."""
        if (gone := self.folder.made_again()) is not None:
            message = f"{gone} was removed during the training: it is made again, for what is saved now"
            tell(self.listeners, "warning", message=message, step=self.progress.step)

    def _not_finite(self, error: NonFiniteLoss, begun: Begun | None) -> RunError:
        """Where the first value that is not finite came from; the weights before the step are saved.

        Of a step that had `begun` it is as if it had not.
        """
        if begun is not None:
            self._begun = None
            vars(self.progress).update(vars(begun.before))
            self.loader.go_on_from(*begun.place)
        step = self.progress.step
        if self.crew.sums and not self.progress.part.batches:
            self._save_together()
        elif self.crew.alone:
            self._save()
        else:
            with suppress(NetspecError, OSError, Broken):
                self._save_after_failure()
        if error.state is not None:
            what = f"`{error.state}` is not finite since the step before"
        elif layers := {one.layer: one.kind for one in scopes(error.node) if one.layer} if error.node else {}:
            named = [f"`{name}` ({kind})" for name, kind in layers.items()]
            what = f"first in layer {named[0]}" if len(named) == 1 else f"first in one of the layers {', '.join(named)}"
        else:
            what = "in the sum of the losses"
        place = error.node.scope.location if error.node is not None else None
        found = self.crew.origin(Origin(what, place, error.state is not None or error.node is not None))
        path = self.folder.checkpoint(step)
        return RunError(
            Problem(
                f"the loss is not finite at step {step + 1}: {found.what}", found.location,
                got=f"learning rate {self._rates()[LEARNING_RATE]:.6g}",
                hint="lower the learning rate, add `global_clipnorm`, or look at the data of this step",
                notes=(f"the weights before this step are in {path}",) if path.is_file() else (),
            )
        )  # fmt: skip

"""A training with stages: ordinary runs one after the other, each in its own folder in the run directory.

The first stage starts like any run; each other stage starts with the final weights of the stage before. The run
directory contains the spec with all stages, one log of all stages, and the final weights. Steps count on from stage to
stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError, NetspecError, Problem, counted, listing
from netspec.exchange.files import write_atomically
from netspec.exchange.formats.native.hdf5 import read_weights, write_weights
from netspec.schema.language.provenance import resolved_yaml
from netspec.schema.load import load_train
from netspec.schema.specs.stages import StageSpec, stage_specs
from netspec.schema.specs.train import TrainSpec
from netspec.training.callbacks.base import Callback, CallbackSpec
from netspec.training.class_weights import with_class_weights
from netspec.training.events import Event, Listener, LogFiles, done_event, elapsed, format_event
from netspec.training.resume import check_unchanged
from netspec.training.run_directory import BEST, STAGE, WEIGHTS, RunDir
from netspec.training.session import Session

if TYPE_CHECKING:
    from netspec.training.loop import TrainingLoop
    from netspec.training.run import Run

MAY_NOT_CHANGE = ("train", "data.validation", "data.evaluate")
"""Settings that may change when a run resumes, but not for a finished stage, whose weights depend on them."""


def stage_folder(run_dir: Path, number: int) -> Path:
    """Return the run directory of a stage, counted from 1."""
    return run_dir / f"{STAGE}{number}"


def steps_before(folder: Path) -> int:
    """Return the number of steps of the stages before the one in this folder."""
    number = int(folder.name.removeprefix(STAGE))
    ends = [done_event(stage_folder(folder.parent, earlier)) for earlier in range(1, number)]
    return sum(int(done["steps"]) for done in ends if done is not None)


def train_stages(
    spec: TrainSpec,
    session: Session,
    folder: RunDir,
    train: Callable[..., Run],
    *,
    weights: str | Path | None,
    listeners: Sequence[Listener],
    callbacks: Sequence[Callback | CallbackSpec],
) -> Run:
    """Train all stages of a spec in an open run directory, and return the run; finished stages are not repeated.

    `train(spec, run_dir=…, weights=…, listeners=…, callbacks=…)` runs or continues a stage. Of several workers, the
    root writes the files of the run and decides which stages have ended. Raises the errors of `train`,
    `StoppedBetweenStages`, and `InputError` if the settings of a finished stage have changed.
    """
    spec, notes = with_class_weights(spec)
    session.report_run_dir(folder.folder)
    with ExitStack() as stack:
        log: list[Listener] = []
        if session.is_root:
            log += [_SpecWriter(folder, spec), stack.enter_context(LogFiles(folder.folder))]
        run, steps, seconds = None, 0, 0.0
        for number, stage in enumerate(stage_specs(spec), 1):
            stage_run = RunDir(stage_folder(folder.folder, number))
            is_last = number == len(spec.stages)
            ended = _ended(stage_run, stage, spec, number) if session.is_root and not is_last else None
            if (ended := session.broadcast(ended)) is not None:
                steps, weights = steps + ended, stage_run.final_weights(restore_best=stage.train.restore_best)
                seconds += elapsed(stage_run.log)
                continue
            events = _StageEvents(number, spec, steps, seconds, (*log, *listeners) if session.is_root else ())
            events.announce(stage, notes)
            notes = []
            with _recorded(folder, stage_run, number, log):
                stop = _StopRequest()
                run = train(
                    stage, run_dir=stage_run.folder, weights=weights, listeners=[events], callbacks=[*callbacks, stop]
                )
                if not is_last:
                    stop.check(session, run, stage_run)
            steps, weights = steps + run.steps, run.weights
            seconds += elapsed(stage_run.log)
        assert run is not None
        before = steps - run.steps
        if session.is_root:
            _copy_weights(stage_run, folder, before)
            with suppress(OSError):
                folder.checkpoints.rmdir()
        session.leave()
        result = replace(
            run, run_dir=folder.folder, steps=steps, seconds=seconds, log=folder.log,
            weights=folder.folder / run.weights.name,
            weights_step=None if run.weights_step is None else run.weights_step + before,
        )  # fmt: skip
        if session.is_root:
            events.finish(result)
    return result


def _ended(stage_run: RunDir, stage: TrainSpec, spec: TrainSpec, number: int) -> int | None:
    """Return the number of steps of a finished stage; None if it is unfinished.

    A finished stage may be continued by a greater length as long as no later stage has begun. Raises `InputError` if
    other settings that affect its weights have changed.
    """
    done = done_event(stage_run.folder)
    if done is None or not stage_run.spec.is_file() or not stage_run.final_weights(restore_best=True).is_file():
        return None
    changed = check_unchanged(load_train(stage_run.spec), stage, stage_run)
    fixed = [path for path in changed if path.split(".")[0] in MAY_NOT_CHANGE or path in MAY_NOT_CHANGE]
    if fixed:
        raise InputError(
            Problem(
                f"stage {number} has ended, so its settings cannot change: {listing(fixed)}",
                spec.where("stages", number - 1), f"stages.{number - 1}",
                expected="; ".join(f"{path}: {changed[path]}" for path in fixed),
                hint="start a new run with --run-dir",
            )
        )  # fmt: skip
    return int(done["steps"])


class StoppedBetweenStages(Exception):
    """The training was asked to stop during the last step of a stage that is not the last one."""

    def __init__(self, folder: Path, step: int, options: Sequence[str], reason: str) -> None:
        super().__init__(f"stopped after step {step}")
        self.folder, self.step, self.options, self.reason = folder, step, options, reason


class _StopRequest(Callback):
    """Records whether a stage that reached its end was asked to stop."""

    reason: str | None = None

    def on_train_end(self, training: TrainingLoop) -> None:
        self.reason = training.signals.stop

    def check(self, session: Session, run: Run, stage_run: RunDir) -> None:
        """Raise `StoppedBetweenStages` if any worker was asked to stop. Collective."""
        reason = session.broadcast(next(filter(None, session.gather(self.reason)), None))
        if reason is not None:
            raise StoppedBetweenStages(stage_run.folder, run.steps, session.resume_options(), reason)


class _SpecWriter:
    """Writes the spec of the run when a stage starts: settings that a resume may not change are refused before."""

    def __init__(self, folder: RunDir, spec: TrainSpec) -> None:
        self._folder, self._text = folder, resolved_yaml(spec)

    def __call__(self, event: Event) -> None:
        """Write the spec before the first step of a stage."""
        if event["event"] == "start":
            self._folder.write_spec(self._text)


@contextmanager
def _recorded(folder: RunDir, stage_run: RunDir, number: int, log: Sequence[Listener]) -> Iterator[None]:
    """Record in the log why a stage fails; discard a run whose first stage fails before its first step."""
    try:
        yield
    except (NetspecError, OSError) as error:
        folder.discarded = number == 1 and not stage_run.folder.is_dir()
        problems = [problem.as_json() for problem in error.problems] if isinstance(error, NetspecError) else []
        status = error.exit_status if isinstance(error, NetspecError) else 1
        for listener in log:
            with suppress(NetspecError, OSError):  # the error to report is the one that ended the stage
                listener({"event": "error", "stage": number, "problems": problems, "exit_status": status})
        raise


def _copy_weights(stage_run: RunDir, folder: RunDir, before: int) -> None:
    """Write the weights of the last stage to the run directory, with steps counted from the first stage on."""
    for name in (WEIGHTS, BEST):
        source = stage_run.folder / name
        if not source.is_file():
            continue
        stored = read_weights(source)
        meta = stored.meta | ({"step": stored.meta["step"] + before} if "step" in stored.meta else {})

        def write(temporary: Path, stored: Any = stored, meta: Any = meta) -> None:
            write_weights(temporary, stored.arrays, net=stored.net, name=stored.name, **meta)

        write_atomically(folder.folder / name, write)


@dataclass
class _StageEvents:
    """Passes on the events of a stage, with its number and the steps counted from the first stage on."""

    number: int
    spec: TrainSpec
    before: int
    """Total number of steps of the earlier stages."""
    seconds: float
    """Total duration of the earlier stages."""
    listeners: Sequence[Listener]

    @property
    def _stage(self) -> StageSpec:
        return self.spec.stages[self.number - 1]

    def _send(self, event: Event) -> None:
        for listener in self.listeners:
            listener(dict(event))

    def announce(self, stage: TrainSpec, notes: Sequence[str]) -> None:
        """Send a note that the stage begins, after other notes."""
        for note in notes:
            self._send({"event": "note", "stage": self.number, "message": note})
        name = f" ({self._stage.name})" if self._stage.name else ""
        frozen = f", frozen: {listing(self._stage.freeze)}" if self._stage.freeze else ""
        epochs, steps = stage.train.max_epochs, stage.train.max_steps
        length = counted(epochs, "epoch") if epochs is not None else counted(steps or 0, "step")
        self._send({
            "event": "note", "stage": self.number,
            "message": f"stage {self.number} of {len(self.spec.stages)}{name}: {length}{frozen}",
        })  # fmt: skip

    def __call__(self, event: Event) -> None:
        """Pass on an event. The end of a stage becomes a note; `finish` sends the end of the run."""
        if event["event"] == "done":
            self._last = event
            if self.number < len(self.spec.stages):
                text = format_event(event).removeprefix("done: ")
                self._send({"event": "note", "stage": self.number, "message": f"stage {self.number} done: {text}"})
            return
        changed = {**event, "stage": self.number}
        if event["event"] == "start" and not event["step"]:  # not a resume
            self._send({**changed, "steps": event["steps"] + self.before})
            return
        for field, before in (("step", self.before), ("steps", self.before), ("elapsed", self.seconds)):
            if isinstance(event.get(field), (int, float)):
                changed[field] = event[field] + before
        self._send(changed)

    def finish(self, run: Run) -> None:
        """Send the end of the run."""
        seconds = round(run.seconds, 3)
        self._send({
            **self._last, "run_dir": str(run.run_dir), "steps": run.steps, "seconds": seconds, "elapsed": seconds,
            "weights": str(run.weights), "weights_step": run.weights_step, "log": str(run.log),
        })  # fmt: skip

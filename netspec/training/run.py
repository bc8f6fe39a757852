"""Training: from a spec to a run directory with weights, checkpoints and logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from netspec.backends.memory import machine_memory
from netspec.compile import Compiler
from netspec.data.base import Source as DataSource
from netspec.data.loader import Loader, open_loader
from netspec.data.missing_paths import missing_paths
from netspec.errors import InputError, Location, NetspecError, Problem, RunError, as_netspec_error, listing
from netspec.schema.language.provenance import origin_in_comment, resolved_yaml
from netspec.schema.load import Overrides, Source, load_train, spec_file
from netspec.schema.replaced_variables import replaced_variables
from netspec.schema.specs.monitor import set_modes
from netspec.schema.specs.train import TrainSpec
from netspec.training.adaptation import adapt
from netspec.training.callbacks.base import Callback, CallbackSpec, unknown_hooks
from netspec.training.callbacks.early_stopping import EarlyStopping
from netspec.training.callbacks.log import EventListener
from netspec.training.class_weights import with_class_weights
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.diagnostics.causality_warnings import causality_warnings
from netspec.training.diagnostics.class_count_warnings import class_count_warnings
from netspec.training.environment import machine, threads, versions
from netspec.training.evaluation import Evaluation, open_evaluation_loader
from netspec.training.events import (
    Event,
    Listener,
    LogFiles,
    data_name,
    describe_best,
    duration,
    read_log,
    stop_reason_suffix,
)
from netspec.training.inference.model import count_elements, load_weights
from netspec.training.lockstep import Lockstep
from netspec.training.loop import TrainingLoop
from netspec.training.progress import Progress
from netspec.training.resume import StartingPoint, restore_run, resume_command, start_from_checkpoint
from netspec.training.run_directory import RunDir, find_run, interrupted_run, open_run_dir, run_of
from netspec.training.samples import with_samples
from netspec.training.session import Session, open_session
from netspec.training.signals import Signals
from netspec.training.stages import StoppedBetweenStages, steps_before, train_stages
from netspec.training.transfer import init_from

AUTO = "auto"
"""Value of `resume`: continue the run if there is one, otherwise start one."""


@dataclass(frozen=True)
class Run:
    """A finished training, as `netspec.train` and `netspec.open_run` return it.

    `run_dir` is its folder and `weights` the file of its final weights: the best ones, or those of the last step with
    `restore_best: false`. `test` and `validation` have their `loss` and `metrics` on the test and validation data;
    `history` has all logged losses and metrics. `netspec.load(run.run_dir)` loads the trained model.

        >>> run = netspec.train("train.yaml")
        >>> run.test.metrics["accuracy"]
        >>> [event["loss"] for event in run.history if event["event"] == "log"]
    """

    run_dir: Path
    """Folder of the run: resolved spec, log, checkpoints, weights."""
    steps: int
    """Total number of steps, those before a resume included."""
    seconds: float
    """Duration of the run, with opening the data and compiling, without the time between a stop and a resume."""
    test: Evaluation | None
    """Evaluation of `weights` on the test data; None without test data."""
    weights: Path
    """File of the final weights: `best.h5`, or `weights.h5` if the run has no evaluation or `restore_best: false`."""
    log: Path
    """Log of the run: one JSON object per line."""
    skipped: int = 0
    """Number of damaged training samples that were left out, each counted once."""
    validation: Evaluation | None = None
    """Evaluation of `weights` on the validation data; None without validation data."""
    weights_step: int | None = None
    """Number of steps after which the run had `weights`; None on parameter servers."""
    best: Mapping[str, Any] | None = None
    """Choice of `weights`, if they are the best: `split`, `monitor`, `mode`, `value`."""

    @property
    def best_weights(self) -> Path | None:
        """The weights of the best evaluation; None if there was no evaluation."""
        path = RunDir(self.run_dir).best
        return path if path.is_file() else None

    @property
    def last_weights(self) -> Path:
        """The weights of the last step."""
        return RunDir(self.run_dir).weights

    @property
    def history(self) -> list[Event]:
        """All events `log` and `test` of the run, in the order of steps: losses, learning rates, metrics.

        Read from the log. If a resume repeated a step, its last event counts.
        Raises `InputError` if the log is missing.
        """
        kinds = ("log", "test")
        logged = [event for event in read_log(self.log) if event["event"] in kinds]
        events = {(event["step"], event["event"], event.get("split", "test")): event for event in logged}
        order = sorted(events, key=lambda key: (key[0], kinds.index(key[1]), key[2] == "test"))
        return [events[key] for key in order]

    def _repr_html_(self) -> str:
        from netspec.training.notebook import run_html

        best = f", weights {describe_best({'weights_step': self.weights_step, 'best': self.best})}" if self.best else ""
        title = f"{self.run_dir}: {self.steps:,} steps in {duration(self.seconds)}{best}"
        missing = "" if self.log.is_file() else " (its log is missing)"
        history = [] if missing else self.history
        return run_html(title + missing, history, {"validation": self.validation, "test": self.test})


class Interrupted(KeyboardInterrupt):
    """The training was asked to stop: it finished the step and wrote a checkpoint, or stopped at once."""

    def __init__(
        self, run_dir: Path, step: int | None, *, at_once: bool = False, options: Sequence[str] = (),
        reason: str | None = None,
    ) -> None:  # fmt: skip
        """`step` is the step of the newest checkpoint, None if there is none. `options` resume with as many workers.

        `reason` is the name of the signal, or what a callback passed to `TrainingLoop.request_stop`.
        """
        after = f"stopped after step {step}{stop_reason_suffix(reason)}"
        super().__init__(f"stopped at once in {run_dir}" if at_once else after)
        self.run_dir, self.step, self.at_once, self.options, self.reason = run_dir, step, at_once, options, reason


@dataclass
class PreparedTraining:
    """A training whose data is open and whose net is compiled, before its states have values."""

    spec: TrainSpec
    session: Session
    compiler: Compiler
    loader: Loader
    evaluation_loaders: dict[str, Loader]
    folder: RunDir


def run(
    source: Source | TrainSpec,
    overrides: Overrides = (),
    *,
    run_dir: str | Path | None = None,
    resume: bool | str | Path = False,
    weights: str | Path | None = None,
    samples: Mapping[str, Any] | None = None,
    device: str = "auto",
    listeners: Sequence[Listener] = (),
    callbacks: Sequence[Callback | CallbackSpec] = (),
) -> Run:
    """Run the training that the spec describes.

    `resume=True` continues from the newest intact checkpoint of the run directory (of the run that `source` is the
    `spec.yaml` of), and reaches bit-identical weights; `"auto"` does so if there is a run, and starts one otherwise;
    the path of a checkpoint starts a new run from it. `weights` starts from the parameters of a file that match by name
    and shape. `samples` is the data of splits with `source: python`. Each of `listeners` is called with every event;
    the hooks of `callbacks` run after those of the callbacks in the spec. A run that fails before its first step is
    removed; later failures are recorded in its log.
    Raises `InputError` (the spec, the data, the checkpoint), `RunError` (a loss that is not finite) or `Interrupted`.
    """
    steps = training_steps(
        source, overrides, run_dir=run_dir, resume=resume, weights=weights, samples=samples, device=device,
        listeners=listeners, callbacks=callbacks,
    )  # fmt: skip
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Run = end.value
            return result


def training_steps(
    source: Source | TrainSpec,
    overrides: Overrides = (),
    *,
    run_dir: str | Path | None = None,
    resume: bool | str | Path = False,
    weights: str | Path | None = None,
    samples: Mapping[str, Any] | None = None,
    device: str = "auto",
    listeners: Sequence[Listener] = (),
    callbacks: Sequence[Callback | CallbackSpec] = (),
    lockstep: Lockstep | None = None,
) -> Generator[None, None, Run]:
    """Run a training as `run` does, but as a generator: it yields once its data is open, and between two steps.

    So a caller can run several trainings in turns. These share the data, programs and signals of `lockstep`; the caller
    advances each of them to its first `yield` before it advances any of them further. A training with `stages` never
    yields.
    """
    began = time.perf_counter()
    checked = _checked(source, overrides, samples, resume=resume, weights=weights)
    if checked.stages:
        path = Path(run_dir) if run_dir else _own_run(source) if resume in (True, AUTO) else None
        train = partial(run, resume=AUTO, device=device)
        return _run_stages(
            checked, path, train, resume=resume, weights=weights, listeners=listeners, callbacks=callbacks
        )
    spec, notes = with_class_weights(checked)
    with open_session(spec) as session, ExitStack() as stack:
        compiler = training_compiler(spec, device, session)
        if session.is_server:
            return _serve(session, compiler, began)
        path = Path(run_dir) if run_dir else _own_run(source) if resume in (True, AUTO) else None
        if resume == AUTO:
            exists = session.is_root and find_run(spec.name or spec.net.name, path) is not None
            resume = bool(session.gather(exists)[0])
        data = _open_data(stack, spec, session, compiler, lockstep)
        yield
        training = _prepare(stack, spec, session, compiler, data, path, resume=resume is True)
        start = _restore(training, resume, weights) if resume else _initialize(training, weights)
        log = [stack.enter_context(LogFiles(training.folder.folder))] if session.is_root else []
        all_callbacks = [*spec.callbacks, *_early_stopping(spec), *callbacks]
        signals = Signals() if lockstep is None else lockstep.signals.follower()
        loop = _synchronize(stack, training, start, [*log, *listeners], all_callbacks, signals, began)
        with _recorded_failure(loop, log):
            _report_start(loop, start, resume, notes)
            yield from _train(loop, start, resumed=bool(resume), chosen_by_name=path is None)
            return _finish(loop)


def _run_stages(
    spec: TrainSpec, path: Path | None, train: Callable[..., Run], *, resume: bool | str | Path,
    weights: str | Path | None, listeners: Sequence[Listener], callbacks: Sequence[Callback | CallbackSpec],
) -> Run:  # fmt: skip
    """Run or continue a training with stages in a run directory. Raises the errors of `run`."""
    if resume not in (True, False, AUTO):
        raise InputError(
            "a run with stages cannot start from a checkpoint", expected="--resume, or --weights FILE",
            got=f"--resume {resume}", location=spec.where("stages", key=True),
        )  # fmt: skip
    with open_session(spec) as session, ExitStack() as stack:
        resumes = find_run(spec.name or spec.net.name, path) is not None if resume == AUTO else bool(resume)
        folder = _open_folder(stack, spec, session, path, resume=resumes)
        try:
            return train_stages(spec, session, folder, train, weights=weights, listeners=listeners, callbacks=callbacks)
        except StoppedBetweenStages as stop:
            step = steps_before(stop.folder) + stop.step
            raise Interrupted(folder.folder, step, options=stop.options, reason=stop.reason) from None
        except Interrupted as stop:
            step = steps_before(stop.run_dir) + (stop.step or 0)
            raise Interrupted(
                folder.folder, step or None, at_once=stop.at_once, options=stop.options, reason=stop.reason
            ) from None


@contextmanager
def _recorded_failure(loop: TrainingLoop, log: Sequence[Listener]) -> Iterator[None]:
    """Record in the log why a run ends before its last step; discard a run that ends before its first."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        best = {"best": loop.best_criterion(), "weights_step": loop.progress.best_step}
        facts: Event = {"step": loop.step, **(best if loop.progress.best_value is not None else {})}
        if isinstance(error, KeyboardInterrupt):
            reason = error.reason if isinstance(error, Interrupted) else None
            event: Event = {"event": "stopped", **facts, **({"reason": reason} if reason else {})}
        else:
            failure = as_netspec_error(error)
            problems = [problem.as_json() for problem in failure.problems]
            event = {"event": "error", **facts, "problems": problems, "exit_status": failure.exit_status}
        loop.folder.discarded = loop.step == 0 and loop.folder.newest_step() is None
        for listener in log:
            with suppress(NetspecError, OSError):  # the error to report is the one that ended the run
                listener(loop.clock.stamp(event))
        resumable = not loop.folder.discarded and loop.folder.spec.is_file()
        # with several workers, errors have such a hint already
        if isinstance(error, RunError) and isinstance(error.__cause__, OSError) and resumable and loop.session.alone:
            raise _with_resume_note(error, loop) from error
        raise


def _with_resume_note(error: RunError, loop: TrainingLoop) -> RunError:
    """Return an error of the disk with a note on how to continue when its cause is gone."""
    step, resume = loop.folder.newest_step(), resume_command(loop.folder, loop.session)
    saved = "there is no checkpoint yet" if step is None else f"the newest checkpoint is of step {step:,}"
    (problem,) = error.problems
    return RunError(replace(problem, notes=(*problem.notes, f"{saved}; to continue: {resume}")))


def _checked(
    source: Source | TrainSpec,
    overrides: Overrides,
    samples: Mapping[str, Any] | None,
    *,
    resume: bool | str | Path,
    weights: str | Path | None,
) -> TrainSpec:
    """Read the spec. Raises `InputError` for arguments that cannot be combined, and for data that does not exist."""
    if resume and resume != AUTO and weights is not None:
        raise InputError("--resume and --weights cannot be combined: a checkpoint holds the weights")
    spec = with_samples(source if isinstance(source, TrainSpec) else load_train(source, overrides), samples)
    if weights is not None and spec.init_from is not None:
        hint = "remove it with `~init_from`, or set the file with `init_from.file=FILE`"
        raise InputError("--weights and `init_from` cannot be combined", location=spec.where("init_from"), hint=hint)
    missing: dict[Problem, Problem] = {}  # parts of one source share the locations of their fields
    for name, split in spec.data.splits().items():
        for problem in missing_paths(split, spec.data.path_of(name)) if isinstance(split, DataSource) else ():
            missing.setdefault(replace(problem, path="" if problem.location else problem.path), problem)
    if missing:
        raise InputError(list(missing.values()))
    return spec


def _open_data(
    stack: ExitStack, spec: TrainSpec, session: Session, compiler: Compiler, lockstep: Lockstep | None
) -> dict[str, Loader]:
    """Open the data of all splits, and let the compiler share its plans."""
    open_data = open_loader if lockstep is None else lockstep.loaders.open
    train = stack.enter_context(open_training_loader(spec, compiler, session, open_data))
    others = [split for split in spec.data.splits() if split != "train"]
    if lockstep is not None:
        lockstep.plans.add(compiler)
    return {"train": train} | {
        split: stack.enter_context(open_evaluation_loader(spec, split, compiler, train.learned, session, open_data))
        for split in others
    }


def _prepare(
    stack: ExitStack, spec: TrainSpec, session: Session, compiler: Compiler, data: Mapping[str, Loader],
    run_dir: Path | None, *, resume: bool,
) -> PreparedTraining:  # fmt: skip
    """Compile the first program, and open the run directory."""
    loader, evaluation_loaders = data["train"], {split: data[split] for split in data if split != "train"}
    compiler.program(compiler.batch_program, loader.batch_sizes[0])  # raise its errors before creating a folder
    folder = _open_folder(stack, spec, session, run_dir, resume=resume)
    session.report_run_dir(folder.folder)
    return PreparedTraining(spec, session, compiler, loader, evaluation_loaders, folder)


def _open_folder(stack: ExitStack, spec: TrainSpec, session: Session, run_dir: Path | None, *, resume: bool) -> RunDir:
    """Open the run directory on the root, and return it on all workers. Collective."""
    folder = None
    if session.is_root:
        folder = stack.enter_context(open_run_dir(spec.name or spec.net.name, run_dir, resume=resume))
    path = Path(session.broadcast(None if folder is None else str(folder.folder)))
    return folder or RunDir(path)


def _restore(training: PreparedTraining, resume: bool | str | Path, weights: str | Path | None) -> StartingPoint:
    """Read the states from the run's newest checkpoint, or from the checkpoint file `resume`, on the root.

    A run without a checkpoint starts from `weights`, such as those of the previous stage.
    """
    spec, session, compiler, loader = training.spec, training.session, training.compiler, training.loader
    session.layout(compiler)  # collective
    if not session.is_root:
        return StartingPoint(Progress())
    if isinstance(resume, bool):
        start = restore_run(training.folder, spec, compiler, loader, session)
    else:
        start = start_from_checkpoint(Path(resume), spec, compiler, loader, session)
        start.files["resume"] = str(resume)
    if start.progress.step == 0:
        set_first_values(spec, compiler, loader, start, weights)
    return start


def _initialize(training: PreparedTraining, weights: str | Path | None) -> StartingPoint:
    """Give the states their first values, on the root."""
    training.session.layout(training.compiler)  # collective
    start = StartingPoint(Progress())
    if training.session.is_root:
        set_first_values(training.spec, training.compiler, training.loader, start, weights)
    return start


def set_first_values(
    spec: TrainSpec, compiler: Compiler, loader: Loader, start: StartingPoint, weights: str | Path | None
) -> None:
    """Take initial weights from files, and adapt states to the training data; record the results in `start`."""
    start.transfer = init_from(spec, compiler)
    loaded: list[str] = []
    if weights is not None:
        start.files["weights"] = str(weights)
        loaded = load_weights(compiler, weights, partial=True).loaded
        start.warnings += _not_loaded(compiler, loaded, weights)
    initialized = {*loaded, *(start.transfer.coverage.arrays if start.transfer is not None else ())}
    start.adapted = adapt(compiler, loader, initialized)
    compiler.reset_copies()


def _synchronize(
    stack: ExitStack,
    training: PreparedTraining,
    start: StartingPoint,
    listeners: Sequence[Listener],
    callbacks: Sequence[object],
    signals: Signals,
    began: float,
) -> TrainingLoop:
    """Give all workers the root's states, write the spec, and set up the loop."""
    spec, session, compiler, loader = training.spec, training.session, training.compiler, training.loader
    progress = session.align(compiler, loader, start)
    progress.resume_losses(session)
    built = [built_callback(callback, spec) for callback in callbacks]  # raises errors before the spec is written
    if session.is_root:
        training.folder.write_spec(resolved_yaml(spec, _origin_in_run(training.folder, start.changed)))
    stack.enter_context(signals)
    loop = TrainingLoop(
        spec, compiler, loader, evaluation_loaders=training.evaluation_loaders, folder=training.folder,
        signals=signals, progress=progress, session=session,
        listeners=[EventListener(listener) for listener in listeners],
        callbacks=built, began=began,
    )  # fmt: skip
    session.expect_traffic(compiler, loader, spec.train.accumulate, range(progress.step, loop.total))
    return loop


def _early_stopping(spec: TrainSpec) -> list[Callback | CallbackSpec]:
    """Return the callback that `train.early_stopping` stands for."""
    loop = spec.train
    if loop.early_stopping is None:
        return []
    return [EarlyStopping(monitor=loop.monitor, mode=loop.mode, **loop.early_stopping.model_dump())]


def built_callback(callback: object, spec: TrainSpec) -> Callback:
    """Return a callback, or the one that a spec describes. Raises `InputError` if it does not fit the training."""
    if isinstance(callback, CallbackSpec):
        set_modes([callback], spec.net, spec.data.evaluate)
        if problems := list(callback.conflicts(spec)):
            raise InputError(problems)
        callback = callback.build()
    if not isinstance(callback, Callback):
        name = (
            callback.__name__ if isinstance(callback, type) and issubclass(callback, (Callback, CallbackSpec)) else None
        )
        raise InputError(
            "not a callback", expected="an object of a subclass of `netspec.Callback`", got=repr(callback)[:80],
            hint=f"pass an object of the class: `{name}()`" if name else None,
        )  # fmt: skip
    if problems := unknown_hooks(callback):
        raise InputError(problems)
    return callback


def _report_start(loop: TrainingLoop, start: StartingPoint, resume: bool | str | Path, notes: Sequence[str]) -> None:
    """Emit the events of a training before its first step."""
    compiler, loader = loop.compiler, loop.loader
    no_steps = [] if isinstance(resume, bool) or not loop.finished else [_no_steps_left(loop, f"{resume}")]
    for message in (
        *compiler.device.warnings,
        *start.warnings,
        *no_steps,
        *_unreached_schedules(loop),
        *class_count_warnings(compiler, loader),
        *causality_warnings(loop.spec, compiler, loop.session),
        *_empty_classes({"train": loader, **loop.evaluation_loaders}),
    ):
        loop.emit("warning", message=message)
    remarks = (compiler.device.remark, compiler.remark, loop.session.remark(), loader.sampling)
    for remark in filter(None, (*remarks, *replaced_variables(loop.spec), *notes, *_not_logged(loop))):
        loop.emit("note", message=remark)
    if start.transfer is not None:
        loop.emit("init_from", **start.transfer.as_json())
    if start.adapted:
        loop.emit("note", message=f"computed from the training data: {', '.join(start.adapted)}")
    loop.emit("start", **_facts(loop), **({"started_from": start.files} if start.files else {}))
    if loader.skipped_at_opening:
        loop.emit_skipped("train", loader.skipped_at_opening, loader.damaged_at_opening)


def _empty_classes(loaders: Mapping[str, Loader]) -> Iterator[str]:
    """Yield a warning for each part of the training's source that has no sample of some classes."""
    for split, loader in loaders.items():
        names = loader.classes_without_samples
        if names and (split == "train" or loader.is_held_out):
            kind = "class" if len(names) == 1 else "classes"
            yield f"the {data_name(split)} has no sample of the {kind} {listing(names)}"


def _not_logged(loop: TrainingLoop) -> Iterator[str]:
    """Yield each value that the spec asks to log and this training can't, with the reason."""
    compiler, fields = loop.compiler, loop.spec.train
    strategy = f"with `strategy: {getattr(loop.spec.parallel, 'strategy', loop.session.description)}`"
    if fields.log_gradient_norm and not compiler.logs_gradient_norm:
        location = fields.where("log_gradient_norm")
        yield f"{f'{location}: ' if location else ''}the log has no norm of the gradients {strategy}"
    logged = any(not metric.collects for metric in compiler.metrics.values())
    if logged and fields.log_metrics and not compiler.logs_metrics:
        reason = "on a GPU, which would have to wait after each step" if compiler.device.runs_ahead else strategy
        yield f"the log has no metrics of the training batches {reason}; evaluations have them"


def _train(loop: TrainingLoop, start: StartingPoint, *, resumed: bool, chosen_by_name: bool) -> Iterator[None]:
    """Run the steps of the loop, unless a resumed run has nothing left to do.

    Raises `Interrupted` if it is stopped at once.
    """
    try:
        # Gather, which involves only workers: parameter servers are serving already and take part in no broadcast.
        if resumed and loop.session.gather(not start.other_test and loop.nothing_left())[0]:
            loop.clock.exclude_call()
            loop.emit("note", message=f"nothing to do: the run is complete after {loop.progress.step:,} steps")
            name = loop.spec.name or loop.spec.net.name
            if chosen_by_name and loop.is_root and (other := interrupted_run(name)) is not None:
                again = resume_command(RunDir(other), loop.session)
                loop.emit("note", message=f"{other} was interrupted; to continue: {again}")
        else:
            yield from loop.steps()
    except KeyboardInterrupt:
        options = loop.session.resume_options()
        raise Interrupted(loop.folder.folder, loop.folder.newest_step(), at_once=True, options=options) from None


def _finish(loop: TrainingLoop) -> Run:
    """Leave the session and report the result. Raises `Interrupted` if the training was asked to stop."""
    progress, folder, session = loop.progress, loop.folder, loop.session
    evaluations = {split: loop.final_evaluation(split) for split in ("validation", "test")}
    weights = folder.final_weights(restore_best=loop.spec.train.restore_best)
    is_best = weights == folder.best
    weights_step, best = (progress.best_step, loop.best_criterion()) if is_best else (progress.step, None)
    results = {split: evaluation and evaluation.as_json() for split, evaluation in evaluations.items()}
    stopped = loop.stopped and not loop.finished
    reason = next(filter(None, session.gather(loop.signals.stop)), None) if stopped else None
    session.leave([progress.step, stopped, reason])
    if stopped:
        raise Interrupted(folder.folder, progress.step, options=session.resume_options(), reason=reason)
    for split, evaluation in evaluations.items():
        for note in evaluation.notes if evaluation else ():
            loop.emit("note", message=f"on the {data_name(split)}, {note}")
    seconds = loop.clock.elapsed
    left_out = loop.loader.skipped_at_opening + len(progress.skipped_samples) + len(progress.newly_skipped)
    loop.emit(
        "done", run_dir=str(folder.folder), steps=progress.step, seconds=seconds,
        **results, weights=str(weights), weights_step=weights_step, best=best, log=str(folder.log),
        **({"skipped": left_out} if left_out else {}), **session.done_facts(), elapsed=seconds,
    )  # fmt: skip
    test, validation = evaluations["test"], evaluations["validation"]
    return Run(
        folder.folder, progress.step, seconds, test, weights, folder.log, left_out, validation, weights_step, best
    )  # fmt: skip


def _serve(session: Session, compiler: Compiler, began: float) -> Run:
    """Run a parameter server until the workers leave."""
    folder = RunDir(Path(session.broadcast(None)))
    session.report_run_dir(folder.folder)
    try:
        with Signals():  # the workers decide when all stop
            session.serve(compiler)
        step, stopped, reason = session.leave()
    except KeyboardInterrupt:
        options = session.resume_options()
        raise Interrupted(folder.folder, folder.newest_step(), at_once=True, options=options) from None
    if stopped:
        raise Interrupted(folder.folder, step, options=session.resume_options(), reason=reason)
    return Run(folder.folder, step, time.perf_counter() - began, None, folder.weights, folder.log)


def _facts(loop: TrainingLoop) -> Event:
    spec, compiler, loader = loop.spec, loop.compiler, loop.loader
    return {
        "name": spec.name or spec.net.name,
        "run_dir": str(loop.folder.folder),
        "device": compiler.device.name,
        "verification": None if (checked := compiler.device.verification) is None else checked.facts(),
        "precision": spec.train.precision,
        "parameters": count_elements(compiler, "parameter"),
        "samples": loader.samples,
        "batch_size": loader.batch_size,
        "steps_per_epoch": loop.stepper.steps_per_epoch,
        "steps": loop.total,
        "step": loop.progress.step,
        "seed": spec.train.seed,
        "threads": threads(),
        "versions": dict(versions()),
        "machine": {**machine(), "memory_bytes": machine_memory(), "gpu": compiler.device.product},
        **loop.session.start_facts(loader.batch_size),
    }


def _own_run(source: object) -> Path | None:
    return run_of(Path(spec_file(fspath(source)))) if isinstance(source, (str, PathLike)) else None


def _origin_in_run(folder: RunDir, changed: Collection[Location]) -> Callable[[Location], str | None]:
    """Return a function for the origins of unchanged values, read from the run's spec before it is replaced."""
    is_own = cache(folder.is_own)
    return lambda location: origin_in_comment(location) if is_own(location.file) and location not in changed else None


def _no_steps_left(loop: TrainingLoop, checkpoint: str) -> str:
    """Return the warning that a new run starts from a checkpoint of its last step, or of a later one."""
    return (
        f"no steps left to train: {checkpoint} is of step {loop.progress.step:,}, and the run ends at step "
        f"{loop.total:,}; steps before the checkpoint count, so set `train.max_steps` or `train.max_epochs` higher"
    )


def _unreached_schedules(loop: TrainingLoop) -> Iterator[str]:
    """Yield a warning for each schedule that the training does not reach the end of."""
    for schedule in loop.schedules.values():
        if left := ", ".join(schedule.beyond(loop.total)):
            location = schedule.where()
            yield f"{f'{location}: ' if location else ''}the {loop.total:,} steps of the run never reach {left}"


def _not_loaded(compiler: Compiler, loaded: list[str], weights: str | Path) -> list[str]:
    """Return a warning with the parameters and statistics that the file did not have, if there are any."""
    missing = sorted(set(compiler.names("parameter", "statistic")) - set(loaded))
    reason = "not in it, or of another shape, so initialized"
    return [f"{len(loaded)} arrays loaded from {weights}; {reason}: {', '.join(missing)}"] if missing else []

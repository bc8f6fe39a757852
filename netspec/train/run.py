"""Training: from a spec to a run directory with weights, checkpoints and logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

from netspec.compile import Compiler
from netspec.data.loader import Loader
from netspec.errors import InputError, Location
from netspec.parallel import join
from netspec.parallel.activity import training, writes_to
from netspec.parallel.strategies.base import Strategy
from netspec.parallel.world import be_patient
from netspec.schema.load import Overrides, Source, load_train
from netspec.schema.provenance import resolved_yaml, told_origin
from netspec.schema.train import TrainSpec
from netspec.train.adapting import adapt
from netspec.train.crew import Crew
from netspec.train.environment import threads, versions
from netspec.train.evaluation import Evaluation, open_test_loader
from netspec.train.events import Event, Listener, LogFiles, tell, tell_skipped
from netspec.train.fitting import check_workers
from netspec.train.interrupt import Signals
from netspec.train.loop import Loop
from netspec.train.model import count_of, load_weights
from netspec.train.progress import Progress
from netspec.train.resume import Begun, restore, take_over
from netspec.train.rundir import RunDir, open_run_dir, run_of
from netspec.train.samples import with_samples
from netspec.train.sending import Epoch
from netspec.train.trainer import open_training_loader, trainer
from netspec.train.transfer import Transfer, init_from


@dataclass(frozen=True)
class Run:
    """A finished training."""

    run_dir: Path
    steps: int
    """Steps done in all, those before a resume included."""
    seconds: float
    """Wall time of this call."""
    test: Evaluation | None
    """The last evaluation."""
    weights: Path
    log: Path
    skipped: int = 0
    """How many damaged samples of the training data were left out: at opening and in all epochs, resumed or not."""


class Interrupted(KeyboardInterrupt):
    """The training was asked to stop: it finished the step and wrote a checkpoint, or was told to stop at once."""

    def __init__(self, run_dir: Path, step: int | None, *, at_once: bool = False) -> None:
        super().__init__(f"stopped at once in {run_dir}" if at_once else f"stopped after step {step}")
        self.run_dir, self.step, self.at_once = run_dir, step, at_once
        """`step` is that of the newest checkpoint; None where there is none."""


@training()
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
) -> Run:
    """Train as the spec says.

    `resume` goes on from the newest sound checkpoint of the run directory (of the run itself, where the spec is its
    `spec.yaml`), to bitwise the weights that an uninterrupted run reaches; with the path of a checkpoint a new run goes
    on from that. `weights` starts from a file instead:
    parameters that fit by name and shape are taken. `samples` are those of splits of `source: python`.
    Raises `InputError` (the spec, the data, the checkpoint), `RunError` (a loss that is not finite) or `Interrupted`.
    """
    began = time.perf_counter()
    if resume and weights is not None:
        raise InputError("--resume and --weights exclude each other: a checkpoint holds the weights")
    spec = with_samples(source if isinstance(source, TrainSpec) else load_train(source, overrides), samples)
    if weights is not None and spec.init_from is not None:
        hint = "remove it by `~init_from`, or give the file by `init_from.file=FILE`"
        raise InputError("--weights and `init_from` exclude each other", location=spec.where("init_from"), hint=hint)
    strategy = spec.parallel
    assert strategy is None or isinstance(strategy, Strategy)
    crew = Crew(join(), strategy)
    be_patient(crew.strategy.heartbeat, crew.strategy.stall)
    crew.use_own_cores()
    check_workers(spec, crew.everyone.size, one_host=crew.everyone.on_one_host)
    compiler = trainer(spec, device, crew)
    if crew.serves:
        return _serve(crew, compiler, began)
    with ExitStack() as stack:
        loader = stack.enter_context(open_training_loader(spec, compiler, crew))
        test = stack.enter_context(open_test_loader(spec, compiler, loader.learned, crew)) if spec.data.test else None
        compiler.program(compiler.of_batch, loader.batch_sizes[0])  # what can't run says so before a folder is made
        again = resume is True
        given = Path(run_dir) if run_dir else _own_run(source) if again else None
        folder = _folder(stack, spec, crew, given, resume=again)
        begun, taken, adapted = _begin(spec, crew, compiler, loader, folder, resume=resume, weights=weights)
        progress = crew.align(compiler, loader, begun.progress, begun.own, begun.wholes)
        everyone: list[Listener] = []
        if crew.is_first:
            folder.write_spec(resolved_yaml(spec, _told_before(folder, begun.changed)))
            everyone = [stack.enter_context(LogFiles(folder.folder)), *listeners]
        signals = stack.enter_context(Signals())
        loop = Loop(spec, compiler, loader, test, folder, everyone, signals, progress, crew)
        crew.expect(compiler, Epoch.of(loader, spec.train.accumulate), range(progress.step, loop.total))
        for message in (*begun.warnings, *_beyond(loop)):
            tell(everyone, "warning", message=message)
        remark = None if crew.alone else crew.strategy.remark(crew.hosts)
        for one in filter(None, (compiler.device.remark, compiler.remark, remark)):
            tell(everyone, "note", message=one)
        if taken is not None:
            tell(everyone, "init_from", **taken.as_json())
        if adapted:
            tell(everyone, "note", message=f"found in the training data: {', '.join(adapted)}")
        tell(everyone, "start", **_facts(spec, compiler, loader, folder, loop))
        if loader.skipped_at_opening:
            tell_skipped(everyone, "train", loader.skipped_at_opening, loader.damaged_at_opening)
        try:
            if resume and crew.workers.shared(not begun.other_test and loop.nothing_left()):
                tell(everyone, "note", message=f"nothing was left to do: the run has done its {progress.step:,} steps")
            else:
                loop.run()
        except KeyboardInterrupt:
            raise Interrupted(folder.folder, folder.newest_step(), at_once=True) from None
        seconds = time.perf_counter() - began
        found = loop.last_test
        crew.leave([progress.step, loop.stopped and not loop.finished])
        left_out = loader.skipped_at_opening + progress.skipped_before + progress.skipped
        if loop.stopped and not loop.finished:
            raise Interrupted(folder.folder, progress.step)
        tell(
            everyone, "done", run_dir=str(folder.folder), steps=progress.step, seconds=round(seconds, 3),
            test=found.as_json() if found else None, weights=str(folder.weights), log=str(folder.log),
            **({"skipped": left_out} if left_out else {}), **crew.late_facts(), **crew.sent_facts(),
        )  # fmt: skip
    return Run(folder.folder, progress.step, seconds, found, folder.weights, folder.log, left_out)


def _serve(crew: Crew, compiler: Compiler, began: float) -> Run:
    """The part of a training that is a server's."""
    folder = RunDir(Path(crew.everyone.shared(None)))
    writes_to(folder.folder)
    try:
        with Signals():  # the workers say when all stop
            crew.serve(compiler)
        step, stopped = crew.leave()
    except KeyboardInterrupt:
        raise Interrupted(folder.folder, folder.newest_step(), at_once=True) from None
    if stopped:
        raise Interrupted(folder.folder, step)
    return Run(folder.folder, step, time.perf_counter() - began, None, folder.weights, folder.log)


def _begin(
    spec: TrainSpec,
    crew: Crew,
    compiler: Compiler,
    loader: Loader,
    folder: RunDir,
    *,
    resume: bool | str | Path,
    weights: str | Path | None,
) -> tuple[Begun, Transfer | None, list[str]]:
    """Give the states their first values, or those of a checkpoint, on the first worker.

    Where the training begins, what `init_from` took, and the layers that found something in the data.
    """
    crew.wholes(compiler)  # which all come to together
    if not crew.is_first:
        return Begun(Progress()), None, []
    if not isinstance(resume, bool):
        begun = take_over(Path(resume), spec, compiler, loader, crew)
    else:
        begun = restore(folder, spec, compiler, loader, crew) if resume else Begun(Progress())
    fresh = begun.progress.step == 0
    taken = init_from(spec, compiler) if fresh else None
    loaded = load_weights(compiler, weights, partial=True).loaded if weights is not None else []
    begun.warnings += _fresh(compiler, loaded, weights) if weights is not None else []
    known = {*loaded, *(taken.coverage.arrays if taken is not None else ())}
    adapted = adapt(compiler, loader, known) if fresh else []
    if fresh:
        compiler.follow()
    return begun, taken, adapted


def _folder(stack: ExitStack, spec: TrainSpec, crew: Crew, given: Path | None, *, resume: bool) -> RunDir:
    """The run directory, which the first worker opens, and alone writes to."""
    opened = None
    if crew.is_first:
        opened = stack.enter_context(open_run_dir(spec.name or spec.net.name, given, resume=resume))
    found = RunDir(Path(crew.everyone.shared(str(opened.folder) if opened is not None else None)))
    writes_to(found.folder)
    return found


def _facts(spec: TrainSpec, compiler: Compiler, loader: Loader, folder: RunDir, loop: Loop) -> Event:
    return {
        "name": spec.name or spec.net.name,
        "run_dir": str(folder.folder),
        "device": compiler.device.name,
        "precision": spec.train.precision,
        "parameters": count_of(compiler, "parameter"),
        "samples": loader.samples,
        "batch_size": loader.batch_size,
        "steps_per_epoch": loop.stepper.steps_per_epoch,
        "steps": loop.total,
        "step": loop.progress.step,
        "seed": spec.train.seed,
        "threads": threads(),
        "versions": versions(),
        **loop.crew.facts(loader.batch_size),
        **loop.crew.sent_facts(),
    }


def _own_run(source: object) -> Path | None:
    return run_of(Path(source)) if isinstance(source, (str, PathLike)) else None


def _told_before(folder: RunDir, changed: Collection[Location]) -> Callable[[Location], str | None]:
    """The origins that the run's own spec, which is written anew, tells of values that have not changed since."""
    is_own = cache(folder.is_own)
    return lambda place: told_origin(place) if is_own(place.file) and place not in changed else None


def _beyond(loop: Loop) -> Iterator[str]:
    """A warning for each schedule that the training ends before."""
    for schedule in loop.schedules.values():
        if left := ", ".join(schedule.beyond(loop.total)):
            place = schedule.where()
            yield f"{f'{place}: ' if place else ''}the {loop.total:,} steps of the training never reach {left}"


def _fresh(compiler: Compiler, loaded: list[str], weights: str | Path) -> list[str]:
    fresh = sorted(set(compiler.names("parameter", "statistic")) - set(loaded))
    return [f"{len(loaded)} arrays taken from {weights}; start fresh: {', '.join(fresh)}"] if fresh else []

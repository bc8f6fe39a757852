"""Going on from a checkpoint: what may change between it and the run that goes on, and taking its states over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netspec.compile import Compiler
from netspec.data.loader import Loader
from netspec.errors import InputError, Location, Problem, command, listing
from netspec.exchange.checkpoints import find_latest_checkpoint
from netspec.exchange.hdf5 import CheckpointFile, read_checkpoint
from netspec.parallel import world
from netspec.parallel.strategies.all_reduce import AllReduce
from netspec.parallel.tether import options
from netspec.schema.comparing import MISSING, differences, plain
from netspec.schema.load import load_train
from netspec.schema.paths import FilePath
from netspec.schema.reader import parse_yaml
from netspec.schema.train import TrainSpec
from netspec.train.crew import Crew
from netspec.train.environment import threads
from netspec.train.other_workers import OF_SEVERAL, as_of_these
from netspec.train.progress import Progress
from netspec.train.rundir import SPEC, RunDir
from netspec.train.wholes import Wholes

MAY_CHANGE = (
    "description",
    "expect",
    "net.expect",
    "train.max_steps",
    "train.max_epochs",
    "train.test_every",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.log_every",
    "train.memory_budget",
    "train.recompute",
    "data.train.prefetch",
    "data.train.workers",
    "data.test",
    "parallel.heartbeat",
    "parallel.stall",
    "net.description",
    "net.metrics",
    "net.vars",
    "vars",
)
"""Values that do not alter what a step computes (the length may move a schedule, which is what is asked for then)."""

OF_THE_TEST = ("data.test", "net.metrics")
"""Values that an evaluation depends on."""


@dataclass
class Begun:
    """Where a run begins, or goes on."""

    progress: Progress
    warnings: list[str] = field(default_factory=list)
    own: Sequence[Mapping[str, Any]] = ()
    """What each further worker has of its own, the first one's being the compiler's: values of states by name."""
    wholes: Mapping[str, Any] = field(default_factory=dict)
    """States of which each worker is to have a piece, by name."""
    other_test: bool = False
    """Whether the last evaluation was of something else than is asked for now."""
    changed: frozenset[Location] = frozenset()
    """Where the spec says something else than the run began with."""


def restore(folder: RunDir, spec: TrainSpec, compiler: Compiler, loader: Loader, crew: Crew) -> Begun:
    """States, cursor and progress from the newest sound checkpoint; from the start where there is none yet.

    Raises `InputError` where the spec, the data or the arrays are not those of the run.
    """
    begun = Begun(Progress())
    found = find_latest_checkpoint(folder.checkpoints)
    checkpoint = None if found.path is None else read_checkpoint(found.path)
    before = _spec_of_run(folder, checkpoint)
    if before is not None:
        changed = compare(before, spec, folder)
        begun.warnings += [f"changed since the run began: {path}: {change}" for path, change in changed.items()]
        begun.changed = frozenset(filter(None, (_place(spec, path) for path in changed)))
        begun.other_test = any(_is_below(path, OF_THE_TEST) for path in changed)
    begun.warnings += found.notes
    if checkpoint is None:
        if found.notes or folder.has_saved():
            raise _without_checkpoint(folder, found.notes)
        begun.warnings.append("there is no checkpoint yet: starting from the beginning")
        return begun
    checkpoint, told = as_of_these(checkpoint, compiler, crew)
    begun.warnings += told
    _assign(checkpoint, f"{found.path}", compiler, crew.wholes(compiler))
    begun.own, begun.wholes = checkpoint.own, _wholes(checkpoint, crew.wholes(compiler))
    loader.restore(checkpoint.progress["loader"])
    then, now = checkpoint.progress.get("threads"), threads()
    if then is not None and then != now:
        begun.warnings.append(
            f"{now} threads now, {then} before: sums are split another way, so the weights are the same but for "
            f"rounding (OMP_NUM_THREADS={then} makes them the same bit for bit)"
        )
    begun.progress = Progress.from_json(checkpoint.progress)
    if begun.other_test:
        begun.progress.tested_step = Progress.tested_step
    return begun


def take_over(path: Path, spec: TrainSpec, compiler: Compiler, loader: Loader, crew: Crew) -> Begun:
    """States and step of a checkpoint file for a new run: of another run, or of another program by `netspec import`.

    The place in the data is that of the checkpoint, or, where it knows none, the one after as many steps. Raises
    `InputError` where the arrays are not those of the net and the solver, or the data is not that of the checkpoint.
    """
    checkpoint, warnings = as_of_these(read_checkpoint(path), compiler, crew)
    _assign(checkpoint, f"{path}", compiler, crew.wholes(compiler))
    progress = Progress.from_json(checkpoint.progress)
    if "loader" in checkpoint.progress:
        loader.restore(checkpoint.progress["loader"])
    else:
        loader.go_to(progress.step * spec.train.accumulate)
    return Begun(progress, warnings, checkpoint.own, _wholes(checkpoint, crew.wholes(compiler)))


def _wholes(checkpoint: CheckpointFile, known: Wholes) -> dict[str, Any]:
    """What a checkpoint has of the states that are divided among the workers."""
    return {one.name: checkpoint.states[one.name] for one in known.kept}


def _assign(checkpoint: CheckpointFile, name: str, compiler: Compiler, known: Wholes) -> None:
    """Give the states of which all workers have the whole the values of a checkpoint.

    What only several workers have may be missing: their number may change. Raises `InputError` where it
    has other states than there are.
    """
    wanted = {
        state: compiler.info[state].value.type
        for state in known.common
        if compiler.info[state].role not in ("gradient", *OF_SEVERAL) or state in checkpoint.states
    } | {one.name: one.kind for one in known.kept}
    unfit = [one for one, kind in wanted.items() if getattr(checkpoint.states.get(one), "shape", None) != kind.shape]
    unfit += [one for one in checkpoint.states if one not in wanted]
    if unfit:
        told = listing(unfit, 10)
        raise InputError(f"{name} is of another net or solver", expected=f"{len(wanted)} arrays", got=f"others: {told}")
    for state in wanted:
        if state not in known:
            compiler.states.assign(state, checkpoint.states[state])
    for state, info in compiler.info.items():
        if state not in wanted and info.follows is not None:
            compiler.states.assign(state, compiler.states[info.follows])


def _spec_of_run(folder: RunDir, checkpoint: CheckpointFile | None) -> TrainSpec | None:
    """The spec that the run has had so far: what its checkpoint says, or, where there is none yet, its own file."""
    if checkpoint is not None:
        return load_train(parse_yaml(checkpoint.spec, f"{folder.spec}"))
    return load_train(folder.spec) if folder.spec.exists() else None


def _without_checkpoint(folder: RunDir, notes: Sequence[str]) -> InputError:
    """The error of a run that has written checkpoints, none of which is there and sound."""
    sound = [f"--weights {path}" for path in (folder.weights, folder.best) if path.is_file()]
    gone = f"there is no checkpoint in {folder.checkpoints}, though the run has written one"
    return InputError(
        f"no checkpoint in {folder.checkpoints} can be read" if notes else gone,
        expected="a checkpoint as it was written",
        got="; ".join(note.removeprefix("left out: ") for note in notes) or "none",
        hint=f"begin a new run{f' with {sound[0]}' if sound else ''}, or bring back a copy of a checkpoint",
    )  # fmt: skip


def go_on(run_dir: Path) -> str:
    """The words of the command that goes on with a run, whatever it was begun with."""
    return command("train", run_dir / SPEC, "--resume", *options(world().size))


def compare(before: TrainSpec, now: TrainSpec, folder: RunDir) -> dict[str, str]:
    """Differences that are allowed, by path. Raises `InputError` with all that are not."""
    allowed: dict[str, str] = {}
    problems: list[Problem] = []
    again = f"`{go_on(folder.folder)}` goes on as the run began"
    may_change = (*MAY_CHANGE, *_files_of(now))
    for path, old, new in _differences(before, now):
        if _is_below(path, may_change):
            allowed[path] = f"{_show(old)} → {_show(new)}"
        else:
            place = _place(now, path)
            is_own = place is not None and folder.is_own(place.file)
            mend = "write back what it was" if is_own or not folder.spec.exists() else again
            problems.append(
                Problem(
                    f"`{path}` is not what it was when the run began", place, path, expected=_show(old), got=_show(new),
                    hint=f"{mend}; or start a new run with {_other_way(path, folder)}",
                )
            )  # fmt: skip
    if problems:
        raise InputError(problems)
    return allowed


def _differences(before: TrainSpec, now: TrainSpec) -> Iterator[tuple[str, Any, Any]]:
    """Where two specs differ: without `parallel` they have its default, and of two strategies only the names count."""
    old, new = plain(before), plain(now)
    for one in (old, new):
        one["parallel"] = one["parallel"] or plain(AllReduce())
    if old["parallel"]["strategy"] != new["parallel"]["strategy"]:
        for one in (old, new):
            one["parallel"] = {"strategy": one["parallel"]["strategy"]}
    return differences(old, new)


def _other_way(path: str, folder: RunDir) -> str:
    """The option that begins a new run with another value: how workers train does not alter what a checkpoint holds."""
    step = folder.newest_step()
    return "--weights" if step is None or not _is_below(path, ("parallel",)) else f"--resume {folder.checkpoint(step)}"


def _place(spec: TrainSpec, path: str) -> Location | None:
    """Where a value is written, by its path in plain data: of the key, which stands even where the value is a block."""
    return spec.where(*path.split("."), key=True)


def _files_of(spec: TrainSpec) -> list[str]:
    """The fields that say where the training data lies: whether it is the same is told by its fingerprint."""
    source = spec.data.train
    return [f"data.train.{name}" for name in type(source).model_fields if _is_files(getattr(source, name))]


def _is_files(value: Any) -> bool:
    return isinstance(value, FilePath) or (isinstance(value, list) and all(isinstance(one, FilePath) for one in value))


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root + ".") for root in roots)


def _show(value: Any) -> str:
    return "nothing" if value is MISSING or value is None else str(value)

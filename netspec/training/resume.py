"""Resume from a checkpoint: which values of the spec may change, and how states are restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from netspec.compile import Compiler
from netspec.data.loader import Loader
from netspec.errors import InputError, Location, Problem, command, listing
from netspec.exchange.formats.native.hdf5 import CheckpointFile, find_latest_checkpoint, read_checkpoint
from netspec.exchange.formats.pytorch.optimizers import is_training, read_training
from netspec.schema.language.overrides import COMMAND_LINE
from netspec.schema.load import load_train
from netspec.schema.specs.comparison import MISSING, differences, plain
from netspec.schema.specs.kinds import STRATEGIES
from netspec.schema.specs.monitor import monitored_value
from netspec.schema.specs.paths import FilePath
from netspec.schema.specs.train import TrainSpec
from netspec.schema.yaml.python_data import PYTHON
from netspec.schema.yaml.reader import parse_yaml
from netspec.solvers.base import SolverSpec
from netspec.training.checkpoint_resharding import MULTI_WORKER_ROLES, reshard_checkpoint
from netspec.training.environment import threads, versions
from netspec.training.events import read_log
from netspec.training.progress import Progress
from netspec.training.run_directory import RunDir
from netspec.training.session import LOCAL, Session, StateLayout
from netspec.training.transfer import Transfer

MAY_CHANGE = (
    "callbacks",
    "description",
    "expect",
    "net.expect",
    "train.early_stopping",
    "train.max_steps",
    "train.max_epochs",
    "train.test_every",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.log_every",
    "train.log_gradient_norm",
    "train.log_metrics",
    "train.memory_budget",
    "train.mode",
    "train.monitor",
    "train.recompute",
    "train.restore_best",
    "data.train.prefetch",
    "data.train.workers",
    "data.validation",
    "data.test",
    "data.evaluate",
    "parallel.heartbeat",
    "parallel.stall",
    "search",
    "net.description",
    "net.metrics",
    "net.vars",
    "vars",
)
"""Values that do not change a step. A new length may stretch a schedule, which is what the user requests then."""

TEST_VALUES = (
    "data.validation", "data.test", "data.evaluate", "net.metrics", "train.monitor", "train.mode", "train.restore_best",
)  # fmt: skip
"""Values of the spec that an evaluation, or the choice of the evaluated weights, depends on."""

UNSCORED = ("batch_size", "prefetch", "workers")
"""Fields of a split that do not change its evaluation."""


@dataclass
class StartingPoint:
    """The state from which a run starts or resumes."""

    progress: Progress
    warnings: list[str] = field(default_factory=list)
    worker_states: Sequence[Mapping[str, Any]] = ()
    """For each worker except the root, its own values of states, by name. The compiler holds those of the root."""
    sharded: Mapping[str, Any] = field(default_factory=dict)
    """Full arrays of the states that are sharded over the workers, by name."""
    other_test: bool = False
    """Whether the validation data, the test data or the metrics changed since the last evaluation."""
    other_best: bool = False
    """Whether the best evaluation so far can't be compared with later ones."""
    changed: frozenset[Location] = frozenset()
    """Locations of the values of the spec that changed since the run began."""
    files: dict[str, str] = field(default_factory=dict)
    """Files that the run started from, by the option that named them: `weights`, `resume`."""
    transfer: Transfer | None = None
    """Values that `init_from` loaded from a file."""
    adapted: list[str] = field(default_factory=list)
    """Names of the layers whose states were adapted to the training data."""


def restore_run(folder: RunDir, spec: TrainSpec, compiler: Compiler, loader: Loader, session: Session) -> StartingPoint:
    """Restore states, data position and progress from the newest intact checkpoint, if there is one.

    Raises `InputError` if the spec, the data or the arrays are not those of the run.
    """
    start = StartingPoint(Progress())
    latest = find_latest_checkpoint(folder.checkpoints)
    checkpoint = latest.content
    before = _spec_of_run(folder, checkpoint)
    if before is not None:
        changed = check_unchanged(before, spec, folder, session)
        start.warnings += [f"changed since the run began: {path}: {change}" for path, change in changed.items()]
        start.changed = frozenset(filter(None, (_key_location(spec, path) for path in changed)))
        start.other_test = any(_is_below(path, TEST_VALUES) for path in changed)
        monitored = spec.data.path_of(monitored_value(spec.train.monitor, spec)[0])
        start.other_best = any(_changes_best(path, monitored) for path in changed)
    start.warnings += latest.notes
    if checkpoint is None:
        if latest.notes or folder.has_saved():
            raise _without_checkpoint(folder, latest.notes)
        start.warnings.append("there is no checkpoint yet: starting from step 0")
        return start
    checkpoint, warnings = reshard_checkpoint(checkpoint, compiler, session)
    start.warnings += warnings
    layout = session.layout(compiler)
    _assign(checkpoint, f"{latest.path}", compiler, layout)
    start.worker_states, start.sharded = checkpoint.own, _sharded(checkpoint, layout)
    loader.restore(checkpoint.progress["loader"])
    start.warnings += _changed_environment(checkpoint)
    start.progress = Progress.from_json(checkpoint.progress)
    _restore_best(start, folder)
    return start


def _changed_environment(checkpoint: CheckpointFile) -> Iterator[str]:
    """Yield a warning for each change since the checkpoint after which kernels may round differently."""
    then, now = checkpoint.progress.get("threads"), threads()
    if then is not None and then != now:
        yield (
            f"{now} threads are used instead of {then}: sums are split differently, so the weights "
            f"will differ by rounding (set OMP_NUM_THREADS={then} for bit-identical weights)"
        )
    before, installed = checkpoint.progress.get("versions", {}), versions()
    changed = [
        f"{name} {before.get(name, 'missing')} → {installed.get(name, 'missing')}"
        for name in sorted({*before, *installed}, key=str.lower)
        if before and before.get(name) != installed.get(name)
    ]
    if changed:
        yield f"versions changed since the checkpoint, so the weights may differ by rounding: {', '.join(changed)}"


def _restore_best(start: StartingPoint, folder: RunDir) -> None:
    """Forget evaluations that no longer count: of other data, or the best one if its weights are gone."""
    progress = start.progress
    lost = progress.best_value is not None and not folder.best.is_file()
    if lost:
        start.warnings.append(f"{folder.best} is missing: the best evaluation so far does not count")
    if start.other_test or lost:
        progress.tested_step, progress.validated_step = Progress.tested_step, Progress.validated_step
    if start.other_best or lost:
        progress.forget_best()
    if progress.best_value is not None and progress.best_evaluation is None and folder.log.is_file():
        # a checkpoint of version 0.2 or earlier, which stored only the loss
        tests = [event for event in read_log(folder.log) if event["event"] == "test"]
        progress.best_evaluation = next((event for event in tests if event["step"] == progress.best_step), None)


def _changes_best(path: str, monitored: str) -> bool:
    """Return whether evaluations before and after the change of a value can't be compared."""
    if _is_below(path, (monitored,)):
        return path.rpartition(".")[2] not in UNSCORED
    return path in ("train.monitor", "train.mode")


def start_from_checkpoint(
    path: Path, spec: TrainSpec, compiler: Compiler, loader: Loader, session: Session
) -> StartingPoint:
    """Restore states and step from a checkpoint file for a new run.

    The file is a checkpoint of another run or from `netspec import`, or a PyTorch training in a safetensors file. The
    position in the data is that of the checkpoint, or the one after its number of steps if it has none. Raises
    `InputError` if the arrays do not match the net and the solver, or the data is not that of the checkpoint.
    """
    layout = session.layout(compiler)
    stored, notes = _of_pytorch(path, spec, compiler, layout) if is_training(path) else (read_checkpoint(path), ())
    checkpoint, warnings = reshard_checkpoint(stored, compiler, session)
    warnings += notes
    _assign(checkpoint, f"{path}", compiler, layout)
    progress = Progress.from_json(checkpoint.progress)
    if "loader" in checkpoint.progress:
        loader.restore(checkpoint.progress["loader"])
    else:
        loader.seek_batch(progress.step * spec.train.accumulate)
    progress.forget_best()  # the weights are in the directory of another run
    return StartingPoint(progress, warnings, checkpoint.own, _sharded(checkpoint, layout))


def _of_pytorch(
    path: Path, spec: TrainSpec, compiler: Compiler, layout: StateLayout
) -> tuple[CheckpointFile, tuple[str, ...]]:
    """Read a PyTorch training as a checkpoint, with notes; states that PyTorch lacks keep their first values."""
    info = {name: compiler.info[name] for name in layout.replicated}
    kinds = {name: state.value.type for name, state in info.items()} | layout.kinds
    roles = {name: state.role for name, state in info.items()} | layout.roles
    solver = spec.solver
    assert isinstance(solver, SolverSpec)
    solvers = [solver, *(group.solver for group in solver.groups if group.solver is not None)]
    checkpoint, notes = read_training(path, kinds, roles, solvers)
    fresh = [
        name for name in info if name not in checkpoint.states and roles[name] not in ("gradient", *MULTI_WORKER_ROLES)
    ]
    states = {**{name: compiler.states[name] for name in fresh}, **checkpoint.states}
    return replace(checkpoint, states=states, roles={name: roles[name] for name in states}), notes


def _sharded(checkpoint: CheckpointFile, layout: StateLayout) -> dict[str, Any]:
    """Return the full arrays of the sharded states."""
    return {name: checkpoint.states[name] for name in layout.sharded}


def _assign(checkpoint: CheckpointFile, name: str, compiler: Compiler, layout: StateLayout) -> None:
    """Assign the values of a checkpoint to the states that are complete on all workers.

    States that exist only on several workers may be missing: the number of workers may change. Raises `InputError` if
    the states of the checkpoint are not those of the training.
    """
    types = {
        state: compiler.info[state].value.type
        for state in layout.replicated
        if compiler.info[state].role not in ("gradient", *MULTI_WORKER_ROLES) or state in checkpoint.states
    } | layout.kinds
    mismatched = [
        state for state, kind in types.items() if getattr(checkpoint.states.get(state), "shape", None) != kind.shape
    ]
    mismatched += [state for state in checkpoint.states if state not in types]
    if mismatched:
        raise InputError(
            f"{name} belongs to a different net or solver", expected=f"the {len(types)} states of this training file",
            got=f"missing, unknown or of another shape: {listing(mismatched, 10)}",
        )  # fmt: skip
    for state in types:
        if state not in layout.sharded:
            compiler.states.assign(state, checkpoint.states[state])
    for state, info in compiler.info.items():
        if state not in types and info.initialized_from is not None:
            compiler.states.assign(state, compiler.states[info.initialized_from])


def _spec_of_run(folder: RunDir, checkpoint: CheckpointFile | None) -> TrainSpec | None:
    """Return the spec of the run so far: from its checkpoint, or from its own file if there is no checkpoint yet."""
    if checkpoint is not None:
        return load_train(parse_yaml(checkpoint.spec, f"{folder.spec}"))
    return load_train(folder.spec) if folder.spec.exists() else None


def _without_checkpoint(folder: RunDir, notes: Sequence[str]) -> InputError:
    """Return the error for a run whose checkpoints are all missing or damaged."""
    options = [f"--weights {path}" for path in (folder.weights, folder.best) if path.is_file()]
    missing = f"there is no checkpoint in {folder.checkpoints}, although the run wrote one"
    return InputError(
        f"no checkpoint in {folder.checkpoints} can be read" if notes else missing,
        expected="an intact checkpoint",
        got="; ".join(note.removeprefix("left out: ") for note in notes) or "none",
        hint=f"start a new run{f' with {options[0]}' if options else ''}, or restore a copy of a checkpoint",
    )  # fmt: skip


def resume_command(folder: RunDir, session: Session) -> str:
    """Return the command line that resumes a run with as many workers."""
    return command("train", folder.resumable_spec, "--resume", *session.resume_options())


def check_unchanged(before: TrainSpec, now: TrainSpec, folder: RunDir, session: Session = LOCAL) -> dict[str, str]:
    """Return the differences that are allowed, by path. Raises `InputError` with all others."""
    allowed: dict[str, str] = {}
    problems: list[Problem] = []
    continue_hint = f"`{resume_command(folder, session)}` continues with the values of the run"
    may_change = (*MAY_CHANGE, *_files_of(now))
    for path, old, new in _differences(before, now):
        if _is_below(path, may_change):
            allowed[path] = f"{_show(old)} → {_show(new)}"
        else:
            location = _setting_location(now, path)
            is_own = location is not None and folder.is_own(location.file)
            fix = "restore the earlier value" if is_own or not folder.spec.exists() else continue_hint
            problems.append(
                Problem(
                    f"`{path}` has changed since the run began", location, path, expected=_show(old), got=_show(new),
                    hint=f"{fix}; or start a new run with {_new_run_option(path, folder)}",
                )
            )  # fmt: skip
    if problems:
        raise InputError(problems)
    return allowed


def _differences(before: TrainSpec, now: TrainSpec) -> Iterator[tuple[str, Any, Any]]:
    """Yield the differences of two specs: `parallel` has its default, and of two strategies only the names count."""
    old, new = plain(before), plain(now)
    if before.parallel is None and now.parallel is None:
        return differences(old, new)
    for spec in (old, new):
        spec["parallel"] = spec["parallel"] or plain(STRATEGIES["all_reduce"]())
    if old["parallel"]["strategy"] != new["parallel"]["strategy"]:
        for spec in (old, new):
            spec["parallel"] = {"strategy": spec["parallel"]["strategy"]}
    return differences(old, new)


def _new_run_option(path: str, folder: RunDir) -> str:
    """Return the option that starts a new run. Checkpoints do not depend on `parallel`, so they remain usable."""
    step = folder.newest_step()
    return "--weights" if step is None or not _is_below(path, ("parallel",)) else f"--resume {folder.checkpoint(step)}"


def _key_location(spec: TrainSpec, path: str) -> Location | None:
    """Return the location of the key of a value, by the path of the value in plain data."""
    return spec.where(*path.split("."), key=True)


def _setting_location(spec: TrainSpec, path: str) -> Location | None:
    """Return the location of the override that sets a value, or else that of the value's key."""
    value = spec.where(*path.split("."))
    return value if value is not None and value.file in (COMMAND_LINE, PYTHON) else _key_location(spec, path)


def _files_of(spec: TrainSpec) -> list[str]:
    """Return the fields with paths of the training data. They may change: a fingerprint identifies the data."""
    source = spec.data.train
    return [f"data.train.{name}" for name in type(source).model_fields if _is_files(getattr(source, name))]


def _is_files(value: Any) -> bool:
    return isinstance(value, FilePath) or (
        isinstance(value, list) and all(isinstance(item, FilePath) for item in value)
    )


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(root + ".") for root in roots)


def _show(value: Any) -> str:
    return "nothing" if value is MISSING or value is None else str(value)

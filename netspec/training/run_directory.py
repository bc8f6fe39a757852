"""The run directory. A run writes no file outside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from netspec.errors import InputError, RunError
from netspec.exchange.files import remove_unfinished, write_text_atomically
from netspec.schema.load import RESOLVED_SPEC
from netspec.training.events import read_ends
from netspec.training.lock import LOCK, is_locked, locked

WEIGHTS, BEST, LOG = "weights.h5", "best.h5", "log.jsonl"
STAGE = "stage-"
"""Beginning of the name of a stage's folder, which is in the run directory of all stages."""


@dataclass
class RunDir:
    """Paths of the files of a run."""

    folder: Path
    discarded: bool = field(default=False, init=False)
    """Whether the run did nothing, so that its files are removed when the directory is closed."""
    _spec_text: str | None = field(default=None, init=False)

    @property
    def spec(self) -> Path:
        """The resolved spec: all values, each with its origin."""
        return self.folder / RESOLVED_SPEC

    @property
    def weights(self) -> Path:
        """The weights of the last step."""
        return self.folder / WEIGHTS

    @property
    def best(self) -> Path:
        """The weights of the best evaluation."""
        return self.folder / BEST

    def final_weights(self, *, restore_best: bool) -> Path:
        """The weights that the run ends with: the best ones, if `restore_best` and they exist, or the last ones."""
        return self.best if restore_best and self.best.is_file() else self.weights

    @property
    def log(self) -> Path:
        """The log, one JSON object a line."""
        return self.folder / LOG

    @property
    def histograms(self) -> Path:
        """The histograms of the callback `Histograms`, one JSON object a line."""
        return self.folder / "histograms.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """The checkpoint after `step` steps."""
        return self.checkpoints / f"step-{step:08d}.h5"

    def capsule(self, step: int, worker: int | None = None) -> Path:
        """The capsule of the step `step`, counted from 1, whose loss or gradient was not finite on a worker."""
        return self.folder / f"capsule-{step:08d}{'' if worker is None else f'-worker-{worker}'}.h5"

    def newest_step(self) -> int | None:
        """Return the step of the newest checkpoint, from its name; None if there is no checkpoint."""
        names = [path.stem.removeprefix("step-") for path in self.checkpoints.glob("step-*.h5")]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def prune(self, keep: int) -> None:
        """Remove all but the newest `keep` checkpoints."""
        for path in sorted(self.checkpoints.glob("step-*.h5"))[:-keep]:
            path.unlink(missing_ok=True)

    def write_spec(self, text: str) -> None:
        """Write the resolved spec atomically."""
        self._spec_text = text
        write_text_atomically(self.spec, text)

    def recreate(self) -> Path | None:
        """Create the folders and the resolved spec again if they were removed; return the removed folder, if any.

        Raises `RunError` if they can't be created.
        """
        if self.checkpoints.is_dir():
            return None
        removed = self.checkpoints if self.folder.is_dir() else self.folder
        _make(self.checkpoints)
        if self._spec_text is not None and not self.spec.exists():
            self.write_spec(self._spec_text)
        return removed

    @property
    def resumable_spec(self) -> Path:
        """The resolved spec that resumes the run; for a stage, the spec of all stages."""
        of_all = self.folder.parent / RESOLVED_SPEC
        is_stage = self.folder.name.startswith(STAGE) and self.folder.name.removeprefix(STAGE).isdigit()
        return of_all if is_stage and of_all.is_file() else self.spec

    def is_own(self, file: str) -> bool:
        """Whether a file is the resolved spec of the run."""
        return Path(file).resolve() == self.resumable_spec.resolve()

    def has_saved(self) -> bool:
        """Return whether the run wrote a checkpoint, according to its log or its final weights."""
        return self.weights.is_file() or (self.log.is_file() and "checkpoint" in _events(self.log))


@contextmanager
def open_run_dir(name: str, path: Path | None, *, resume: bool) -> Iterator[RunDir]:
    """Open the directory of the run `name`, and lock it while the block runs.

    It is `path`, or the next free of `runs/NAME`, `runs/NAME-2`, …; with `resume` it is `path`, or the newest of these.
    Raises `InputError` if a new run would overwrite another, if there is no run to resume, or if another process writes
    it. If a new run fails before it writes its spec, or is `discarded`, the folders and files that it created are
    removed.
    """
    target = Path("runs", "any") if path is None else path
    missing_parents = [folder for folder in target.parents if not folder.is_dir()]
    existed = path is not None and path.is_dir()
    folder = _folder_to_resume(name, path) if resume else _new_folder(name, path)
    with locked(folder):
        if not resume:
            _refuse_another(folder)  # again, now that the folder is locked
        opened = RunDir(folder)
        _make(opened.checkpoints)
        for written in (folder, opened.checkpoints):
            remove_unfinished(written)
        try:
            yield opened
        finally:
            if not resume and opened.discarded:
                for file in (opened.spec, opened.log, opened.log.with_suffix(".txt")):
                    file.unlink(missing_ok=True)
            if not resume and not opened.spec.exists() and not opened.log.exists():
                _remove_empty(opened, [] if existed else [opened.folder, *missing_parents])


def find_run(name: str, path: Path | None) -> Path | None:
    """Return the run that `resume` continues, in `path` or the newest of the name; None if there is none."""
    folders = numbered_folders(name)[-1:] if path is None else [path]
    return next((folder for folder in folders if (folder / RESOLVED_SPEC).is_file()), None)


def interrupted_run(name: str) -> Path | None:
    """Return the run `name` in `runs` that was interrupted last, whatever its folder is called; None if there is none.

    A run without a checkpoint does not count: there is nothing to resume.
    """
    logs = [(log.stat().st_mtime_ns, log) for log in Path("runs").glob(f"*/{LOG}")]
    return next((log.parent for _, log in sorted(logs, reverse=True) if _is_interrupted(log, name)), None)


def _is_interrupted(log: Path, name: str) -> bool:
    events = [event for event in read_ends(log) if event["event"] in ("start", "stopped", "done", "error")]
    if not events or events[0].get("name") != name or events[-1]["event"] not in ("start", "stopped"):
        return False
    return RunDir(log.parent).newest_step() is not None and not is_locked(log.parent)


def _remove_empty(opened: RunDir, folders: Sequence[Path]) -> None:
    """Remove the folders of a run that never began, unless they contain something else."""
    with suppress(OSError):
        opened.checkpoints.rmdir()
        (opened.folder / LOCK).unlink(missing_ok=True)
        for folder in folders:  # the innermost first
            folder.rmdir()


def run_of(spec: Path) -> Path | None:
    """Return the run directory that a file is the resolved spec of; None for any other file."""
    run = RunDir(spec.parent)
    outputs = (run.checkpoints, run.log, run.weights, run.best)
    return run.folder if spec.name == RESOLVED_SPEC and any(output.exists() for output in outputs) else None


def _events(log: Path) -> set[str]:
    """Return the kinds of events in a log. Damaged lines are ignored."""
    kinds = set()
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                kinds.add(str(json.loads(line)["event"]))
    return kinds


def _folder_to_resume(name: str, path: Path | None) -> Path:
    folder = _newest(name) if path is None else path
    if not folder.is_dir():
        raise InputError(f"there is no run to resume in {folder}", hint="start one without --resume")
    return folder


def _new_folder(name: str, path: Path | None) -> Path:
    if path is not None:
        _refuse_another(path)
        _make(path)
        return path
    return new_numbered_folder(name)


def new_numbered_folder(name: str) -> Path:
    """Create the next free of the folders `runs/NAME`, `runs/NAME-2`, … and return it."""
    while True:
        folder = _next_free(name)
        try:
            _make(folder, new=True)
        except FileExistsError:  # another run has just taken the name
            continue
        return folder


def _refuse_another(folder: Path) -> None:
    if (folder / RESOLVED_SPEC).exists():
        raise InputError(
            f"{folder} already contains a run",
            hint="continue it with --resume, or choose another folder with --run-dir",
        )


def _make(folder: Path, *, new: bool = False) -> None:
    """Create a folder. Raises `FileExistsError` if it must be `new` and exists, `RunError` if it can't be created."""
    try:
        folder.mkdir(parents=True, exist_ok=not new)
    except OSError as error:
        if new and isinstance(error, FileExistsError):
            raise
        raise RunError(f"cannot create the run directory {folder}: {error.strerror}") from error


def numbered_folders(name: str, base: Path = Path("runs")) -> list[Path]:
    """Return the folders `runs/NAME`, `runs/NAME-2`, … that exist, the newest last; `base` is the folder of runs."""
    plain = name.replace("/", "_")
    numbered = [
        (int(tail), path) for path in base.glob(f"{plain}-*") if (tail := path.name[len(plain) + 1 :]).isdigit()
    ]
    first = [(1, base / plain)] if (base / plain).exists() else []
    return [path for _, path in sorted(first + numbered)]


def _next_free(name: str) -> Path:
    candidates = numbered_folders(name)
    plain = Path("runs") / name.replace("/", "_")
    if not candidates:
        return plain
    last = candidates[-1].name[len(plain.name) + 1 :]
    return plain.with_name(f"{plain.name}-{int(last or 1) + 1}")


def _newest(name: str) -> Path:
    candidates = numbered_folders(name)
    if not candidates:
        raise InputError(f"there is no run of `{name}` in runs/ to resume", hint="start one without --resume")
    return candidates[-1]

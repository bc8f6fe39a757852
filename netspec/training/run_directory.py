"""The run directory: a run writes nothing outside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from netspec.errors import InputError, RunError
from netspec.exchange.files import remove_unfinished, write_atomically
from netspec.training.lock import LOCK, locked

SPEC, WEIGHTS, BEST, LOG = "spec.yaml", "weights.h5", "best.h5", "log.jsonl"


@dataclass
class RunDir:
    """Paths of the files of a run."""

    folder: Path
    _spec_text: str | None = field(default=None, init=False)

    @property
    def spec(self) -> Path:
        """The resolved spec: everything filled in, with the origin of each value."""
        return self.folder / SPEC

    @property
    def weights(self) -> Path:
        """The final weights."""
        return self.folder / WEIGHTS

    @property
    def best(self) -> Path:
        """The weights of the evaluation with the lowest loss."""
        return self.folder / BEST

    @property
    def log(self) -> Path:
        """The log, one JSON object a line."""
        return self.folder / LOG

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.folder / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """The checkpoint after `step` steps."""
        return self.checkpoints / f"step-{step:08d}.h5"

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

        def write(temporary: Path) -> None:
            temporary.write_text(text, encoding="utf-8")

        write_atomically(self.spec, write)

    def recreate(self) -> Path | None:
        """Create the folders and the resolved spec again if somebody removed them; return the one that was removed.

        Raises `RunError` if they can't be created.
        """
        if self.checkpoints.is_dir():
            return None
        gone = self.checkpoints if self.folder.is_dir() else self.folder
        _make(self.checkpoints)
        if self._spec_text is not None and not self.spec.exists():
            self.write_spec(self._spec_text)
        return gone

    def is_own(self, file: str) -> bool:
        """Whether a file is the resolved spec of the run."""
        return Path(file).resolve() == self.spec.resolve()

    def has_saved(self) -> bool:
        """Return whether the run wrote a checkpoint, according to its log or its final weights."""
        return self.weights.is_file() or (self.log.is_file() and "checkpoint" in _events(self.log))


@contextmanager
def open_run_dir(name: str, given: Path | None, *, resume: bool) -> Iterator[RunDir]:
    """The directory for a run called `name`, which no other process writes while the block runs.

    It is the one given, or the next free of `runs/NAME`, `runs/NAME-2`, …; with `resume` the one given, or the newest
    of those. Raises `InputError` where a new run would overwrite another, where there is none to resume, or where
    another process is writing it. Of a new run that fails before it has written its spec nothing is left.
    """
    wanted = Path("runs", "any") if given is None else given
    made = [folder for folder in wanted.parents if not folder.is_dir()]
    there = given is not None and given.is_dir()
    folder = _to_resume(name, given) if resume else _for_a_new_run(name, given)
    with locked(folder):
        if not resume:
            _refuse_another(folder)  # once more: a run may have come and gone since
        opened = RunDir(folder)
        _make(opened.checkpoints)
        for one in (folder, opened.checkpoints):
            remove_unfinished(one)
        try:
            yield opened
        finally:
            if not resume and not opened.spec.exists() and not opened.log.exists():
                _remove_empty(opened, [] if there else [opened.folder, *made])


def _remove_empty(opened: RunDir, folders: Sequence[Path]) -> None:
    """Remove what a run that never began has made; folders that hold something else stay."""
    with suppress(OSError):
        opened.checkpoints.rmdir()
        (opened.folder / LOCK).unlink(missing_ok=True)
        for folder in folders:  # the innermost first
            folder.rmdir()


def run_of(spec: Path) -> Path | None:
    """The run directory that a spec file is the resolved spec of, if it is one."""
    here = RunDir(spec.parent)
    outputs = (here.checkpoints, here.log, here.weights, here.best)
    return here.folder if spec.name == SPEC and any(one.exists() for one in outputs) else None


def _events(log: Path) -> set[str]:
    """The kinds of events in a log; lines that are damaged are passed over."""
    found = set()
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                found.add(str(json.loads(line)["event"]))
    return found


def _to_resume(name: str, given: Path | None) -> Path:
    folder = _newest(name) if given is None else given
    if not folder.is_dir():
        raise InputError(f"there is no run to resume in {folder}", hint="start one without --resume")
    return folder


def _for_a_new_run(name: str, given: Path | None) -> Path:
    if given is not None:
        _refuse_another(given)
        _make(given)
        return given
    while True:
        folder = _next_free(name)
        try:
            _make(folder, new=True)
        except FileExistsError:  # another run took the name just now
            continue
        return folder


def _refuse_another(folder: Path) -> None:
    if (folder / SPEC).exists():
        raise InputError(
            f"{folder} already holds a run", hint="go on with it by --resume, or name another folder by --run-dir"
        )


def _make(folder: Path, *, new: bool = False) -> None:
    """Create a folder. Raises `FileExistsError` if it must be `new` and exists, `RunError` if it can't be created."""
    try:
        folder.mkdir(parents=True, exist_ok=not new)
    except OSError as error:
        if new and isinstance(error, FileExistsError):
            raise
        raise RunError(f"cannot make the run directory {folder}: {error.strerror}") from None


def _candidates(name: str) -> list[Path]:
    base = Path("runs")
    plain = name.replace("/", "_")
    numbered = [
        (int(tail), path) for path in base.glob(f"{plain}-*") if (tail := path.name[len(plain) + 1 :]).isdigit()
    ]
    first = [(1, base / plain)] if (base / plain).exists() else []
    return [path for _, path in sorted(first + numbered)]


def _next_free(name: str) -> Path:
    found = _candidates(name)
    plain = Path("runs") / name.replace("/", "_")
    if not found:
        return plain
    last = found[-1].name[len(plain.name) + 1 :]
    return plain.with_name(f"{plain.name}-{int(last or 1) + 1}")


def _newest(name: str) -> Path:
    found = _candidates(name)
    if not found:
        raise InputError(f"there is no run of `{name}` below runs/ to resume", hint="start one without --resume")
    return found[-1]

"""The run directory: everything that a run writes, and nothing else does it write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from netspec.errors import InputError, RunError
from netspec.exchange.files import write_atomically

SPEC, WEIGHTS, BEST, LOG = "spec.yaml", "weights.h5", "best.h5", "log.jsonl"


@dataclass(frozen=True)
class RunDir:
    """Where the files of a run are."""

    folder: Path

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

    def prune(self, keep: int) -> None:
        """Remove all but the newest `keep` checkpoints."""
        for path in sorted(self.checkpoints.glob("step-*.h5"))[:-keep]:
            path.unlink(missing_ok=True)

    def write_spec(self, text: str) -> None:
        """Write the resolved spec, whole or not at all."""

        def write(temporary: Path) -> None:
            temporary.write_text(text, encoding="utf-8")

        write_atomically(self.spec, write)


def open_run_dir(name: str, given: Path | None, *, resume: bool) -> RunDir:
    """The directory for a run called `name`: the one given, or the next free of `runs/NAME`, `runs/NAME-2`, …

    With `resume` it is the one given, or the newest of those. Raises `InputError` where a new run would overwrite
    another, or there is none to resume.
    """
    if given is None:
        given = _newest(name) if resume else _next_free(name)
    if resume and not given.is_dir():
        raise InputError(f"there is no run to resume in {given}", hint="start one without --resume")
    if not resume and (given / SPEC).exists():
        raise InputError(
            f"{given} already holds a run", hint="go on with it by --resume, or name another folder by --run-dir"
        )
    try:
        (given / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the run directory {given}: {error.strerror}") from None
    return RunDir(given)


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

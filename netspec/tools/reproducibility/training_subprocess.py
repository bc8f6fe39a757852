"""Run short trainings in subprocesses, for `verify-parallel` and `verify-resume`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from netspec.errors import RunError


def training_command(
    spec: str | Path, changes: Sequence[str], run_dir: Path, workers: int, options: Sequence[str] = ()
) -> list[str]:
    """Return the command line that trains on some number of workers of this machine."""
    words = ["train", str(spec), *changes, "--run-dir", str(run_dir), *options]
    return [sys.executable, "-m", "netspec", *words, *(["--workers", str(workers)] if workers > 1 else [])]


def train_in_subprocess(command: Sequence[str], description: str) -> None:
    """Run a training. Raises `RunError` with its error messages if it fails."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise training_failure(description, process.stderr)


def training_failure(description: str, messages: str) -> RunError:
    """Return the error for a training that failed with these messages."""
    return RunError(f"{description} failed", got=messages.strip())

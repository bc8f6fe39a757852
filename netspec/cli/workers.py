"""`--workers N`: the same command as N workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netspec.errors import InputError
from netspec.parallel.told import launched, told_size

if TYPE_CHECKING:
    from netspec.parallel.mpiexec import Mpiexec


MOST_A_CORE = 64
"""Processes that are started for each core: more would take the machine down before they say so."""


def to_start(workers: int) -> bool:
    """Whether workers are to be started. Raises `InputError` where another number was started already."""
    if workers < 1:
        raise InputError("--workers must be 1 or more", got=str(workers))
    if not launched():
        return workers > 1
    there = told_size()
    if there is not None and there != workers:
        raise InputError(
            f"--workers {workers}, and a launcher of MPI has started {there} processes",
            hint="leave --workers out: what started them says how many there are",
        )
    return False


def start(workers: int, words: Sequence[str]) -> int:
    """Run netspec with `words`, a command and what follows it, as several workers; its exit status.

    Raises `InputError` for what is missing here before anything is started, and `RunError` where a worker dies.
    """
    from netspec.parallel.launch import launch

    cores = os.cpu_count() or 1
    if workers > MOST_A_CORE * cores:
        raise InputError(
            f"--workers starts processes of this machine, which has {cores:,} cores",
            expected=f"{MOST_A_CORE * cores:,} or fewer", got=str(workers),
            hint="many hosts have a launcher of their own: docs/guide/launch.md",
        )  # fmt: skip

    return launch(what_starts_workers(), workers, [*_program(), *words], dict(os.environ))


def what_starts_workers() -> Mpiexec:
    """The `mpiexec` of this machine. Raises `InputError` where it or mpi4py is missing or can't be used."""
    from netspec.parallel.found import INSTALL, describe_mpi
    from netspec.parallel.mpiexec import Mpiexec

    found = describe_mpi()
    missing: dict[str, str] = found["missing"]
    if missing:
        why = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise InputError(f"--workers needs {' and '.join(missing)}, not usable here", got=why, hint=INSTALL)
    return Mpiexec(**found["mpiexec"])


def _program() -> list[str]:
    """How this command line is called again, by the same Python with the same modules."""
    called, debug = Path(sys.argv[0]), ["--debug"] * ("--debug" in sys.argv)
    words = [str(called)] if called.stem == "netspec" and called.is_file() else ["-m", "netspec"]
    return [sys.executable, *words, *debug]

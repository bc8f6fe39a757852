"""`--workers N`: the same command as N workers."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from netspec.backends.launcher_env import CONTROL_SOCKET, is_host_spokesman, is_launched_job, launcher_size
from netspec.errors import InputError
from netspec.tools.bounds import require_at_least

MAX_PROCESSES_PER_CORE = 64
"""Processes that are started for each core: more would take the machine down before they say so."""


def to_start(workers: int) -> bool:
    """Whether workers are to be started. Raises `InputError` where another number was started already."""
    require_at_least(1, {"--workers": workers})
    if not is_launched_job():
        return workers > 1
    launched = launcher_size()
    if launched is not None and launched != workers:
        raise InputError(
            f"--workers {workers} contradicts the MPI launcher, which started {launched} processes",
            hint="leave out --workers: the launcher sets the number",
        )
    return False


def start(workers: int, words: Sequence[str]) -> int:
    """Run netspec with `words`, a command and its arguments, on several workers; return the exit status.

    Raises `InputError` for what is missing here before anything is started, and `RunError` where a worker dies.
    """
    from netspec.distributed.launcher.launch import launch
    from netspec.distributed.launcher.mpi_discovery import require_mpiexec

    cores = os.cpu_count() or 1
    if workers > MAX_PROCESSES_PER_CORE * cores:
        raise InputError(
            f"--workers starts processes on this machine, which has {cores:,} cores",
            expected=f"{MAX_PROCESSES_PER_CORE * cores:,} or fewer", got=str(workers),
            hint="for several hosts use an MPI launcher or a scheduler: docs/guide/launch.md",
        )  # fmt: skip

    return launch(require_mpiexec(), workers, [*_program(), *words], dict(os.environ))


def _program() -> list[str]:
    """Return the words that call this command line again, with the same Python and modules."""
    called, debug = Path(sys.argv[0]), ["--debug"] * ("--debug" in sys.argv)
    words = [str(called)] if called.stem == "netspec" and called.is_file() else ["-m", "netspec"]
    return [sys.executable, *words, *debug]


TOGETHER = ("train", "time", "profile", "verify-parallel")
"""Commands that all workers of a job run together; the others each runs by itself."""
TOLD_WITHIN = 1.0
"""Seconds that the reporting process has: when the first process ends, a launcher may kill all."""


def enter() -> None:
    """Join the job that this process was started for, if there is one.

    Ignores a job that can't be joined: commands that each worker runs by itself don't need it; a training reports it.
    """
    if CONTROL_SOCKET in os.environ:
        from netspec.distributed.launcher.control_socket import connect

        connect()
    if is_launched_job():
        from netspec.distributed.world import join

        with suppress(InputError):
            join()


def leave(status: int) -> int:
    """The exit status with which this process ends; where it is one of several and did not do its work, all end."""
    if status:
        end_job(status)
    if is_launched_job():
        from netspec.distributed.launcher.control_socket import report_exit

        report_exit(status)
    return status


def told_by_another(command: str) -> bool:
    """Whether another process tells the failure of a command, and has had time to: none could join their job."""
    by_another = command in TOGETHER and is_launched_job() and not is_host_spokesman()
    if by_another:
        time.sleep(TOLD_WITHIN)
    return by_another


def end_job(status: int, *, error: str = "", output: str = "") -> None:
    """End the job with what there is to tell, if this process is one of several; else return."""
    if not is_launched_job():
        return
    from netspec.distributed.world import watchdog

    watch = watchdog()
    if watch is not None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends already
        watch.fail(status, error=error, output=output)

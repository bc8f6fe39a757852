"""The option `--workers N`, which runs a command as N workers, and the end of a job of workers."""

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
"""Largest number of processes per core: more could exhaust the memory of the machine before an error is reported."""


def should_start(workers: int) -> bool:
    """Return whether to start workers. Raises `InputError` if a launcher has started a different number."""
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

    Raises `InputError` if MPI is missing or the number is too large, `RunError` if a worker dies.
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
    """Return the command line that runs netspec again, with the same Python and modules."""
    called, debug = Path(sys.argv[0]), ["--debug"] * ("--debug" in sys.argv)
    words = [str(called)] if called.stem == "netspec" and called.is_file() else ["-m", "netspec"]
    return [sys.executable, *words, *debug]


COLLECTIVE_COMMANDS = ("train", "time", "profile", "verify-parallel")
"""Commands that all workers of a job run together; each worker runs any other command by itself."""
REPORT_SECONDS = 1.0
"""Seconds that another process has to report a failure: once a process ends, a launcher may kill all."""


def join_job() -> None:
    """Join the job that this process was started for, if there is one.

    A job that can't be joined is ignored here: some commands run in each worker by itself, and a training reports it.
    """
    if CONTROL_SOCKET in os.environ:
        from netspec.distributed.launcher.control_socket import connect

        connect()
    if is_launched_job():
        from netspec.distributed.world import join

        with suppress(InputError):
            join()


def leave_job(status: int) -> int:
    """Report the exit status of this process, and return it. If it failed as one of several workers, end the job."""
    if status:
        end_job(status)
    if is_launched_job():
        from netspec.distributed.launcher.control_socket import report_exit

        report_exit(status)
    return status


def reported_by_another(command: str) -> bool:
    """Return whether another process reports the failure of a command, after giving it time to do so."""
    by_another = command in COLLECTIVE_COMMANDS and is_launched_job() and not is_host_spokesman()
    if by_another:
        time.sleep(REPORT_SECONDS)
    return by_another


def end_job(status: int, *, error: str = "", output: str = "") -> None:
    """If this process is one of several, end the job with an error message and output; otherwise return."""
    if not is_launched_job():
        return
    from netspec.distributed.world import watchdog

    watch = watchdog()
    if watch is not None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the job ends already
        watch.fail(status, error=error, output=output)

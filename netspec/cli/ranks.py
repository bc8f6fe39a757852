"""A command as one of several workers: how it begins and ends where MPI has started it more than once."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

from netspec.errors import InputError
from netspec.parallel.told import TETHER, launched, speaks_for_others
from netspec.parallel.world import join, watchdog

TOGETHER = ("train", "time", "verify-parallel")
"""Commands that all workers of a job run together; the others each runs by itself."""
TOLD_WITHIN = 1.0
"""Seconds that the process has that tells: with the first one that ends a launcher may kill all."""


def enter() -> None:
    """Join the job that this process was started for, if there is one.

    A job that can't be joined is no matter of commands that each worker does by itself; a training says so.
    """
    if TETHER in os.environ:
        from netspec.parallel.tether import attach

        attach()
    if launched():
        with suppress(InputError):
            join()


def leave(status: int) -> int:
    """The exit status with which this process ends; where it is one of several and did not do its work, all end."""
    if status:
        end_job(status)
    if launched():
        from netspec.parallel.tether import leave as say

        say(status)
    return status


def told_by_another(command: str) -> bool:
    """Whether another process tells the failure of a command, and has had time to: none could join their job."""
    found = command in TOGETHER and launched() and not speaks_for_others()
    if found:
        time.sleep(TOLD_WITHIN)
    return found


def end_job(status: int, *, error: str = "", output: str = "") -> None:
    """End the job with what there is to tell, if this process is one of several; else return."""
    watch = watchdog()
    if watch is not None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends already
        watch.fail(status, error=error, output=output)

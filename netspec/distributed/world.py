"""The workers that this process is one of: those that a launcher of MPI started together, or itself alone."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from netspec.backends.launcher_env import launched, told_size
from netspec.distributed.communicators.base import Communicator
from netspec.distributed.communicators.shared_memory import free_names
from netspec.distributed.monitoring.failure_reports import FAILED, INTERRUPTED
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.distributed.monitoring.watchdog import Watchdog

_ALONE = Communicator()
_joined: list[Communicator] = []
_watchdogs: list[Watchdog] = []


def world() -> Communicator:
    """All workers of the job that was joined; this process alone where none was."""
    return _joined[-1] if _joined else _ALONE


def join() -> Communicator:
    """Join the job that this process was started for, if there is one; the world from then on.

    Raises `InputError` where a launcher of MPI started the process and mpi4py is not there.
    """
    if not _joined and launched():
        try:
            from netspec.distributed.communicators.mpi import MpiCommunicator, MpiMailbox
            from netspec.distributed.monitoring.watchdog import Watchdog
        except ImportError as error:
            raise InputError(
                "a launcher of MPI started this process, and mpi4py cannot be loaded", got=str(error),
                hint="`pip install 'netspec[mpi]'`, or on a cluster with an MPI of its own `pip install mpi4py`",
            ) from None  # fmt: skip
        group, expected = MpiCommunicator(), told_size()
        if expected is not None and group.size != expected:
            raise InputError(
                f"{expected} processes were started together, and MPI says that they are {group.size}",
                got=str(group.describe()["mpi"]), expected="the MPI whose launcher started them",
                hint="the launcher is of another MPI than the library that mpi4py finds; `netspec devices` shows both",
            )  # fmt: skip
        if group.host_rank == 0:
            free_names()
        _joined.append(group)
        if group.size > 1:
            everyone = group.all_gather_objects({"host": group.host, "pid": os.getpid()})
            _watchdogs.append(Watchdog(MpiMailbox(), group.abort, everyone))
            _watchdogs[-1].start()
            sys.excepthook = _uncaught
    return world()


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End the job where a program ends by an error that it does not catch: the others would wait for it."""
    status = INTERRUPTED if issubclass(kind, KeyboardInterrupt) else FAILED
    _watchdogs[-1].fail(status, error="".join(traceback.format_exception(error)).rstrip(), output="")


def watchdog() -> Watchdog | None:
    """That of this worker; None where it is alone."""
    return _watchdogs[-1] if _watchdogs else None


def set_timeouts(silence: float, stall: float) -> None:
    """Set how many seconds a worker may stay silent, and the others may wait for it, before the job ends."""
    for one in _watchdogs:
        one.set_timeouts(silence, stall)


def announce_failure(workers: int) -> None:
    """Inform the first `workers` workers that one has failed."""
    for one in _watchdogs:
        one.announce_failure(workers)


@contextmanager
def acting_as(group: Communicator) -> Iterator[Communicator]:
    """Make `group` the world inside the block: for tests, and for what is to be done by this process alone."""
    _joined.append(group)
    try:
        yield group
    finally:
        _joined.pop()

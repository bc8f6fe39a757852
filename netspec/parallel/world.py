"""The workers that this process is one of: those that a launcher of MPI started together, or itself alone."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from netspec.errors import InputError
from netspec.parallel.base import Communicator
from netspec.parallel.shared_memory import free_names
from netspec.parallel.told import launched, told_size
from netspec.parallel.words import FAILED, INTERRUPTED

if TYPE_CHECKING:
    from netspec.parallel.watch import Watchdog

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
            from netspec.parallel.mpi import MpiCommunicator, MpiPost
            from netspec.parallel.watch import Watchdog
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
            everyone = group.gather({"host": group.host, "pid": os.getpid()})
            _watchdogs.append(Watchdog(MpiPost(), group.abort, everyone))
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


def be_patient(silence: float, stall: float) -> None:
    """How many seconds a worker may stay silent, and the others wait for it in vain, before the job ends."""
    for one in _watchdogs:
        one.be_patient(silence, stall)


def break_off(workers: int) -> None:
    """Tell the first so many workers that one has failed."""
    for one in _watchdogs:
        one.break_off(workers)


@contextmanager
def acting_as(group: Communicator) -> Iterator[Communicator]:
    """Make `group` the world inside the block: for tests, and for what is to be done by this process alone."""
    _joined.append(group)
    try:
        yield group
    finally:
        _joined.pop()

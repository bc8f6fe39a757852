"""The group of workers of this process: those that an MPI launcher started together, or the process alone."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from netspec.backends.launcher_env import is_launched_job, launcher_size
from netspec.distributed.communicators.base import Communicator
from netspec.distributed.communicators.shared_memory import unlink_mpich_segments
from netspec.distributed.launcher.mpi_discovery import how_to_install
from netspec.distributed.monitoring.failure_reports import FAILED, INTERRUPTED
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.distributed.monitoring.watchdog import Watchdog

_ALONE = Communicator()
_joined: list[Communicator] = []
_watchdogs: list[Watchdog] = []


def world() -> Communicator:
    """Return the group of all workers of the joined job, or of this process alone."""
    return _joined[-1] if _joined else _ALONE


def join() -> Communicator:
    """Join the job that this process was started for, if there is one, and return the world.

    Raises `InputError` if an MPI launcher started the process and mpi4py is missing.
    """
    if not _joined and is_launched_job():
        try:
            from netspec.distributed.communicators.mpi import MpiCommunicator, MpiMailbox
            from netspec.distributed.monitoring.watchdog import Watchdog
        except ImportError as error:
            raise InputError(
                "an MPI launcher started this process, but mpi4py can't be imported", got=str(error),
                hint=how_to_install(),
            ) from None  # fmt: skip
        group, expected = MpiCommunicator(), launcher_size()
        if expected is not None and group.size != expected:
            raise InputError(
                f"{expected} processes were started together, but MPI reports {group.size}",
                got=str(group.describe()["mpi"]), expected="the MPI whose launcher started them",
                hint="the launcher belongs to a different MPI than the library that mpi4py loads; "
                "`netspec devices` shows both",
            )  # fmt: skip
        if group.host_rank == 0:
            unlink_mpich_segments()
        _joined.append(group)
        if group.size > 1:
            everyone = group.all_gather_objects({"host": group.host, "pid": os.getpid()})
            _watchdogs.append(Watchdog(MpiMailbox(), group.abort, everyone))
            _watchdogs[-1].start()
            sys.excepthook = _uncaught
    return world()


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End the job after an uncaught exception: the other workers would wait for this one."""
    status = INTERRUPTED if issubclass(kind, KeyboardInterrupt) else FAILED
    _watchdogs[-1].fail(status, error="".join(traceback.format_exception(error)).rstrip(), output="")


def watchdog() -> Watchdog | None:
    """Return the watchdog of this worker; None for a single worker."""
    return _watchdogs[-1] if _watchdogs else None


def set_timeouts(silence: float, stall: float) -> None:
    """Set how many seconds a worker may be silent, or keep others waiting, before the job ends."""
    for watchdog in _watchdogs:
        watchdog.set_timeouts(silence, stall)


def announce_failure(workers: int) -> None:
    """Inform the first `workers` workers that one has failed."""
    for watchdog in _watchdogs:
        watchdog.announce_failure(workers)


@contextmanager
def acting_as(group: Communicator) -> Iterator[Communicator]:
    """Make `group` the world inside the block, for tests and for work that only some of the workers do."""
    _joined.append(group)
    try:
        yield group
    finally:
        _joined.pop()

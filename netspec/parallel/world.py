"""The workers that this process is one of: those that a launcher of MPI started together, or itself alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from netspec.errors import InputError
from netspec.parallel.base import Communicator

LAUNCHED = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK", "SLURM_STEP_NUM_TASKS")
"""What launchers of MPI tell the processes that they start: MPICH's and Intel's, Open MPI's, PMIx, Slurm's srun."""

_ALONE = Communicator()
_joined: list[Communicator] = []


def world() -> Communicator:
    """All workers of the job that was joined; this process alone where none was."""
    return _joined[-1] if _joined else _ALONE


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher of MPI has started this process as one of several."""
    told = [environment[name] for name in LAUNCHED if name in environment]
    sizes = [environment[name] for name in LAUNCHED if name in environment and name != "PMIX_RANK"]
    return bool(told) and (not sizes or any(one.isdigit() and int(one) > 1 for one in sizes))


def join() -> Communicator:
    """Join the job that this process was started for, if there is one; the world from then on.

    Raises `InputError` where a launcher of MPI started the process and mpi4py is not there.
    """
    if not _joined and launched():
        try:
            from netspec.parallel.mpi import MpiCommunicator
        except ImportError as error:
            raise InputError(
                "a launcher of MPI started this process, and mpi4py cannot be loaded", got=str(error),
                hint="`pip install 'netspec[mpi]'`, or on a cluster with an MPI of its own `pip install mpi4py`",
            ) from None  # fmt: skip
        _joined.append(MpiCommunicator())
    return world()


@contextmanager
def acting_as(group: Communicator) -> Iterator[Communicator]:
    """Make `group` the world inside the block: for tests, and for what is to be done by this process alone."""
    _joined.append(group)
    try:
        yield group
    finally:
        _joined.pop()

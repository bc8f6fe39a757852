"""What launchers tell the processes that they start, before any MPI library is asked: environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""How many: MPICH's and Intel's, Open MPI's, Slurm's srun."""
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
"""Which one of them."""
HOST_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""Which one of those on its host."""
WITHOUT_SIZE = "PMIX_RANK"
"""Launchers with PMIx tell it, those that tell no size included."""
CONTROL_SOCKET = "NETSPEC_CONTROL_SOCKET"
"""The path of the socket of `netspec train --workers N`, of the processes that it starts (`control_socket.py`)."""


def told_size(environment: Mapping[str, str] = os.environ) -> int | None:
    """How many processes were started together with this one; None where that was not told."""
    sizes = [environment[name] for name in SIZES if environment.get(name, "").isdigit()]
    return max(map(int, sizes)) if sizes else None


def told_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Which one of them this process is; None where that was not told."""
    return _first(RANKS, environment)


def speaks_for_others(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is to tell what all that were started on its host find, who can't ask each other."""
    return _first((*HOST_RANKS, *RANKS), environment) in (None, 0)


def _first(names: Sequence[str], environment: Mapping[str, str]) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher of MPI has started this process as one of several."""
    size = told_size(environment)
    return WITHOUT_SIZE in environment if size is None else size > 1

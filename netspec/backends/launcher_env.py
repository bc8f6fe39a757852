"""Environment variables by which launchers describe the job, read without loading an MPI library."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Number of processes: MPICH and Intel MPI, Open MPI, Slurm's srun."""
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
"""Rank of this process."""
HOST_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""Rank of this process on its host."""
PMIX_RANK = "PMIX_RANK"
"""Set by launchers with PMIx, some of which do not set a size."""
CONTROL_SOCKET = "NETSPEC_CONTROL_SOCKET"
"""Variable with the path of the control socket, for processes that `netspec train --workers N` starts."""

OUTER_VARIABLES = re.compile(r"(PMI|HYDI|OMPI_COMM|PMIX_(?!MCA_)|MPI_LOCAL)\w*|OMPI_UNIVERSE_SIZE|PRTE_LAUNCHED")
"""Environment variables of a surrounding MPI job, which a new job must not inherit."""


def launcher_size(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of processes that were started together; None if the launcher does not set it."""
    sizes = [environment[name] for name in SIZES if environment.get(name, "").isdigit()]
    return max(map(int, sizes)) if sizes else None


def launcher_rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank of this process; None if the launcher does not set it."""
    return _first(RANKS, environment)


def is_host_spokesman(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process prints the messages that are the same for all processes of its host."""
    return _first((*HOST_RANKS, *RANKS), environment) in (None, 0)


def _first(names: Sequence[str], environment: Mapping[str, str]) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)


def is_launched_job(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether an MPI launcher has started this process as one of several."""
    size = launcher_size(environment)
    return PMIX_RANK in environment if size is None else size > 1


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a new MPI job, without the variables of an outer launcher."""
    return {name: value for name, value in environment.items() if not OUTER_VARIABLES.fullmatch(name)}

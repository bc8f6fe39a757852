"""The backend `workers`: communication ops on arrays of the CPU, run by the communicator of `world()`."""

from __future__ import annotations

from netspec.distributed import world


def unavailable_reason() -> None:
    """Return None: a single worker can use it too."""


def description() -> str:
    """Return the number of workers and their MPI library."""
    group = world()
    return (
        f"{group.size} workers of {group.describe()['mpi']}"
        if group.size > 1
        else "one worker, which does not communicate"
    )

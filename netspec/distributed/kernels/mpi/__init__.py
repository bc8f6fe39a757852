"""The backend of what needs other workers: sums over all of them, which the communicator carries."""

from __future__ import annotations

from netspec.distributed import world


def unavailable_reason() -> None:
    """It can always be used: alone, a worker has nobody to ask."""


def description() -> str:
    """Who the workers are."""
    group = world()
    return f"{group.size} workers of {group.describe()['mpi']}" if group.size > 1 else "one worker, which asks nobody"

"""The backend of what a GPU needs of other workers' GPUs: sums over all of them, which NCCL carries.

Kernels are those of the backend `workers`, on a GPU's arrays: what is started goes on in a stream beside, and joining
it has the step's stream wait for an event, so that both can be part of a CUDA graph. No call waits for another worker.
"""

from __future__ import annotations

from netspec.parallel import world


def missing() -> None:
    """It can always be used: alone, a worker has nobody to ask; several can't open a GPU without NCCL."""


def about() -> str:
    """What carries, and who the workers are."""
    from netspec.parallel.nccl import INSTALL, version

    group, found = world(), version()
    if group.size > 1:
        return f"NCCL {found}: {group.size} workers, brought together by {group.describe()['mpi']}"
    return f"no NCCL: one worker alone; for several {INSTALL}" if found is None else f"NCCL {found}, of several workers"

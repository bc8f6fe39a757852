"""Kernels of communication between GPUs of several workers, through NCCL.

They mirror the kernels of the backend `workers` on GPU arrays: a started call runs on a side stream, and joining it has
the step's stream wait for an event, so that both can be part of a CUDA graph. No call blocks the CPU.
"""

from __future__ import annotations

from netspec.distributed import world


def unavailable_reason() -> None:
    """It can always be used: alone, a worker has nobody to ask; several can't open a GPU without NCCL."""


def description() -> str:
    """What carries, and who the workers are."""
    from netspec.distributed.communicators.nccl import INSTALL, version

    group, found = world(), version()
    if group.size > 1:
        return f"NCCL {found}: {group.size} workers, brought together by {group.describe()['mpi']}"
    return f"no NCCL: one worker alone; for several {INSTALL}" if found is None else f"NCCL {found}, of several workers"

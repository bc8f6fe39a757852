"""Kernels of communication between GPUs of several workers, through NCCL.

They mirror the kernels of the backend `workers` on GPU arrays: a started call runs on a side stream, and joining it
makes the step's stream wait for an event, so that both can be part of a CUDA graph. No call blocks the CPU.
"""

from __future__ import annotations

from netspec.distributed import world


def unavailable_reason() -> None:
    """Return None: a single worker can use it too, and several can't open a GPU without NCCL."""


def description() -> str:
    """Return the version of NCCL and the number of workers."""
    from netspec.distributed.communicators.nccl import INSTALL, version

    group, installed = world(), version()
    if group.size > 1:
        return f"NCCL {installed}: {group.size} workers, started by {group.describe()['mpi']}"
    return (
        f"no NCCL: a single worker; for several {INSTALL}"
        if installed is None
        else f"NCCL {installed}, for several workers"
    )

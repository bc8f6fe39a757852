"""Training with several workers: communicators, launching, strategies, partitioning, kernels and cost model.

Importing this package makes the other workers known to devices and programs, and registers the kernels of communication
ops.
"""

from __future__ import annotations

from netspec.backends.backend import register_backend
from netspec.backends.process_group import install_world
from netspec.distributed.communicators.base import Communicator, Pending
from netspec.distributed.world import join, world

__all__ = ["Communicator", "Pending", "join", "world"]

install_world(world)
register_backend("workers", f"{__name__}.backends.mpi")
register_backend("nccl", f"{__name__}.backends.nccl")

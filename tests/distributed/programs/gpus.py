"""Run trainings like `trainings.py`, with a simulated GPU for each worker."""

import runpy
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import pytest
from mpi4py import MPI

from netspec.backends import device_registry
from netspec.backends.backend import load_kernels
from netspec.backends.cuda import launch
from netspec.distributed.communicators import mpi
from netspec.distributed.monitoring import activity
from tests.backends.cuda import library, nccl
from tests.backends.cuda.fake import Machine, StreamEngine


class Gpu(library.LibraryDevice):
    """A GPU whose library calls are also enqueued on streams."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "nccl", "library", "cuda")

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        load_kernels("nccl")
        return super().kernels


class Plain(Gpu):
    """Computes everything but messages by NumPy on streams, so that little is compiled."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "nccl", "library")


with pytest.MonkeyPatch.context() as patch:
    machine = library.machine = Machine(MPI.COMM_WORLD.size, eager=range(9))
    patch.setattr(launch, "engine", StreamEngine(machine))
    patch.setitem(device_registry.DEVICES, "cuda", Gpu)
    patch.setitem(device_registry.DEVICES, "plain", Plain)
    nccl.install(patch, machine, MPI.COMM_WORLD)
    # The simulated GPU proceeds while its process waits for another worker.
    waits = activity.wait_until

    def wait_until(done: Callable[[], bool], *, idle: bool = False) -> None:
        def look() -> bool:
            machine.advance()
            return done()

        waits(look, idle=idle)

    patch.setattr(mpi, "wait_until", wait_until)
    runpy.run_path(str(Path(__file__).parent / "trainings.py"), run_name="__main__")
    machine.synchronize()  # finish the messages that other workers wait for

"""Trainings as `trainings.py` runs them, each worker with a GPU of the tests' own: a machine on the CPU."""

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
    """All but what workers exchange is NumPy's, in streams: little is compiled."""

    backends: ClassVar[tuple[str, ...]] = ("reference", "nccl", "library")


with pytest.MonkeyPatch.context() as patch:
    machine = library.machine = Machine(MPI.COMM_WORLD.size, eager=range(9))
    patch.setattr(launch, "engine", StreamEngine(machine))
    patch.setitem(device_registry.DEVICES, "cuda", Gpu)
    patch.setitem(device_registry.DEVICES, "plain", Plain)
    nccl.install(patch, machine, MPI.COMM_WORLD)
    # A GPU does what it is given while its process waits for another one.
    waits = activity.wait_until

    def wait_until(done: Callable[[], bool], *, idle: bool = False) -> None:
        def look() -> bool:
            machine.advance()
            return done()

        waits(look, idle=idle)

    patch.setattr(mpi, "wait_until", wait_until)
    runpy.run_path(str(Path(__file__).parent / "trainings.py"), run_name="__main__")
    machine.synchronize()  # what the others wait for still

"""`CudaDevice`: the memory of an NVIDIA GPU, and CuPy's arrays in it.

CuPy is imported when the device is opened, never before: `import netspec` does not touch CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, ClassVar

from netspec.backends.base import ArrayDevice
from netspec.backends.cuda.flow import Flow
from netspec.backends.cuda.gpus import named
from netspec.backends.cuda.presence import check_apart, usable_gpu
from netspec.backends.cuda.recording import Recording
from netspec.backends.cuda.steps import SLOTS, GraphSteps
from netspec.backends.failures import OutOfMemory
from netspec.backends.steps import Bound, Steps
from netspec.graph.kernel import Thunk
from netspec.graph.plan import Plan
from netspec.graph.rates import Rates
from netspec.graph.types import DType

BFLOAT16_CAPABILITY = 80
"""Compute capability times ten: of products of bfloat16."""
MOST_CALLS = 10_000
"""Of a kernel that is timed."""


class CudaDevice(ArrayDevice):
    """A GPU. Ops that have no kernel of the backend `cuda` run their reference code on CuPy arrays."""

    name = "cuda"
    backends: ClassVar[tuple[str, ...]] = ("reference", "nccl", "cuda", "cublaslt", "cudnn")
    narrow: tuple[DType, ...] = (DType.BFLOAT16, DType.FLOAT16)
    prefers_bytes = True
    slots = SLOTS
    sums_itself = True

    def __init__(self, number: int | None = None) -> None:
        """The GPU with this number, or else the first one; of several workers of a host each has one of its own.

        Raises `InputError` where it can't be used, and there are too few for all: see `usable_gpu` and `check_apart`.
        """
        cupy, number = usable_gpu(number)
        check_apart(cupy, number)
        self._gpu = cupy.cuda.Device(number)
        capability = int(self._gpu.compute_capability)
        if capability < BFLOAT16_CAPABILITY:
            self.narrow = tuple(one for one in self.narrow if one != DType.BFLOAT16)
        self._gpu.use()
        self.xp = cupy
        self.flow = Flow(cupy)
        """What it is given to do."""

    def allocate(self, nbytes: int) -> Any:
        """Zeroed bytes; CuPy aligns them to 512. Raises `RunError` where there are not as many."""
        try:
            with self.running():
                return self.xp.zeros(nbytes, self.xp.uint8)
        except self.xp.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemory(
                f"out of memory: {nbytes / 1e9:,.1f} GB of the GPU's are needed at once",
                got=f"{self.free_bytes() / 1e9:,.1f} GB are free",
                hint="`netspec plan` says what the net's states and a batch need; `--device cpu` has the machine's",
            ) from error

    def free_bytes(self) -> int:
        """What is left of the GPU's memory, what CuPy keeps for later included."""
        free: int = self.xp.cuda.runtime.memGetInfo()[0]
        return free + int(self.xp.get_default_memory_pool().free_bytes())

    def upload(self, array: Any, host: Any) -> None:
        """Copy, converting the element type. Nothing else goes on meanwhile: inputs of programs go another way."""
        with self.running():
            self.flow.stream.synchronize()
            super().upload(array, host)
            self.settle()

    def copier(self, target: Any, source: Any) -> Thunk:
        """A kernel of our own, which can be stopped."""
        from netspec.backends.cuda.elementwise import copy

        return copy(source.reshape(target.shape), target)

    def timed(self, call: Thunk, least: float) -> float:
        """By events of the stream, between which nothing waits for the processor unless calls are shorter than it."""
        runtime = self.xp.cuda

        def between(calls: int) -> float:
            start, stop = runtime.Event(), runtime.Event()
            start.record()
            for _ in range(calls):
                call()
            stop.record()
            stop.synchronize()
            return float(runtime.get_elapsed_time(start, stop)) / 1e3  # it says milliseconds

        once = between(1)
        calls = min(max(1, round(least / max(once, 1e-6))), MOST_CALLS)
        return between(calls) / calls

    @cached_property
    def rates(self) -> Rates:  # type: ignore[override]  # nobody sets it
        """Those of a GPU of this name."""
        return named(self._properties["name"].decode()).rates

    @cached_property
    def _properties(self) -> dict[str, Any]:
        """What the driver says of the GPU."""
        found: dict[str, Any] = self.xp.cuda.runtime.getDeviceProperties(self._gpu.id)
        return found

    def identity(self) -> list[Any]:
        """The GPU, and the CUDA that driver and CuPy are of."""
        found, runtime = self._properties, self.xp.cuda.runtime
        version = found["major"], found["minor"], runtime.driverGetVersion(), runtime.runtimeGetVersion()
        return [found["name"].decode(), *version]

    def fetch(self, array: Any) -> Any:
        """A copy in the memory of the processor, of what all runs that were started leave there."""
        with self.running():
            self.flow.stream.synchronize()
            return self.xp.asnumpy(array)

    def wait(self) -> None:
        """For the stream that everything runs on."""
        self.flow.stream.synchronize()

    def settle(self) -> None:
        """Wait for whatever CuPy has begun on other streams: tables of kernels, first values."""
        self.xp.cuda.runtime.deviceSynchronize()

    @contextmanager
    def running(self) -> Iterator[None]:
        """On this GPU, whatever thread comes here, and on the stream of our own."""
        with self._gpu, self.flow.stream:
            yield

    def around(self, *, array_code: bool) -> Callable[[], AbstractContextManager[object]]:
        """Always the same."""
        return self.running

    def guarding(self) -> AbstractContextManager[object]:
        """Kernels of our own look at the flag."""
        return self.flow.stopping()

    def steps(self, bound: Bound) -> Steps:
        """One CUDA graph, if it can be."""
        return GraphSteps(self, bound)

    def notes(self, plan: Plan) -> list[str]:
        """Whether a program is a CUDA graph."""
        return Recording.of(plan).notes()

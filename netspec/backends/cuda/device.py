"""`CudaDevice`: the memory and streams of an NVIDIA GPU, with CuPy's arrays.

CuPy, streams and graph capture are imported when the device is opened: `import netspec` does not load CUDA, and plans
for an absent GPU load none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, ClassVar

from netspec.backends.cuda.capture_limits import SLOTS, CaptureLimits
from netspec.backends.cuda.detect import check_distinct_gpus, usable_gpu
from netspec.backends.cuda.gpus import gpu_named
from netspec.backends.device import ArrayDevice
from netspec.backends.executor import BoundProgram, CallTimer, Executor
from netspec.backends.failures import OutOfMemory
from netspec.graph.cost_model import MachineModel
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

BFLOAT16_CAPABILITY = 80
"""Compute capability times ten that has bfloat16 products."""
MAX_CALLS = 10_000
"""Maximum number of calls for timing a kernel."""


class CudaDevice(ArrayDevice):
    """A GPU. Ops without a CUDA kernel run their reference code on CuPy arrays."""

    name = "cuda"
    backends: ClassVar[tuple[str, ...]] = ("reference", "nccl", "cuda", "cublaslt", "cudnn")
    low_precision_dtypes: tuple[DType, ...] = (DType.BFLOAT16, DType.FLOAT16)
    accepts_uint8 = True
    input_slots = SLOTS
    has_collectives = True
    runs_ahead = True
    verified_on_first_use = True

    def __init__(self, number: int | None = None) -> None:
        """Open the GPU with this number, or the first one; the workers of a host open one each.

        Raises `InputError` if it cannot be used or there are too few: see `usable_gpu` and `check_distinct_gpus`.
        """
        from netspec.backends.cuda.execution_queue import ExecutionQueue

        cupy, number = usable_gpu(number)
        check_distinct_gpus(cupy, number)
        self._gpu = cupy.cuda.Device(number)
        capability = int(self._gpu.compute_capability)
        if capability < BFLOAT16_CAPABILITY:
            self.low_precision_dtypes = tuple(dtype for dtype in self.low_precision_dtypes if dtype != DType.BFLOAT16)
        self._gpu.use()
        self.xp = cupy
        self.flow = ExecutionQueue(cupy)
        """The queue of work for the GPU."""

    def allocate(self, nbytes: int) -> Any:
        """Zeroed memory, which CuPy aligns to 512 bytes. Raises `RunError` if there is not enough."""
        try:
            with self.running():
                return self.xp.zeros(nbytes, self.xp.uint8)
        except self.xp.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemory(
                f"out of memory: {nbytes / 1e9:,.1f} GB of GPU memory are needed at once",
                got=f"{self.free_bytes() / 1e9:,.1f} GB are free",
                hint="`netspec plan` prints the memory that the states and a batch need; "
                "`--device cpu` uses the memory of the machine",
            ) from error

    def free_bytes(self) -> int:
        """Free memory of the GPU, including what CuPy has cached."""
        free: int = self.xp.cuda.runtime.memGetInfo()[0]
        return free + int(self.xp.get_default_memory_pool().free_bytes())

    def upload(self, array: Any, host: Any) -> None:
        """Copy and convert the element type, synchronously. Inputs of programs are not copied by this method."""
        with self.running():
            self.flow.stream.synchronize()
            super().upload(array, host)
            self.settle()

    def copier(self, target: Any, source: Any) -> Thunk:
        """A copy kernel, which checks the stop flag."""
        from netspec.backends.cuda.kernels.elementwise import copy

        return copy(source.reshape(target.shape), target)

    def timed(self, call: Thunk, least: float) -> float:
        """Mean seconds of a call, measured by events in the stream: the CPU starts the calls without waiting."""
        runtime = self.xp.cuda

        def between(calls: int) -> float:
            start, stop = runtime.Event(), runtime.Event()
            start.record()
            for _ in range(calls):
                call()
            stop.record()
            stop.synchronize()
            return float(runtime.get_elapsed_time(start, stop)) / 1e3  # in milliseconds

        once = between(1)
        calls = min(max(1, round(least / max(once, 1e-6))), MAX_CALLS)
        return between(calls) / calls

    @cached_property
    def rates(self) -> MachineModel:  # type: ignore[override]  # nobody sets it
        """Rates of a GPU of this name."""
        return gpu_named(self.product).rates

    @property
    def address(self) -> str:
        """`cuda:0`: the name and the number of the GPU."""
        return f"{self.name}:{self._gpu.id}"

    @property
    def product(self) -> str:
        """Product name of the GPU."""
        return str(self._properties["name"].decode())

    @cached_property
    def _properties(self) -> dict[str, Any]:
        """Properties reported by the driver."""
        properties: dict[str, Any] = self.xp.cuda.runtime.getDeviceProperties(self._gpu.id)
        return properties

    def identity(self) -> list[Any]:
        """Name of the GPU, its compute capability, and the CUDA versions of driver and CuPy."""
        properties, runtime = self._properties, self.xp.cuda.runtime
        version = properties["major"], properties["minor"], runtime.driverGetVersion(), runtime.runtimeGetVersion()
        return [properties["name"].decode(), *version]

    def fetch(self, array: Any) -> Any:
        """A copy in host memory, made after all started runs have ended."""
        with self.running():
            self.flow.stream.synchronize()
            return self.xp.asnumpy(array)

    def wait(self) -> None:
        """Wait for the main stream."""
        self.flow.stream.synchronize()

    def settle(self) -> None:
        """Wait for CuPy's work on other streams: loading kernels, writing initial values."""
        self.xp.cuda.runtime.deviceSynchronize()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this GPU and its main stream current in the calling thread."""
        with self._gpu, self.flow.stream:
            yield

    def run_context(self, *, array_code: bool) -> Callable[[], AbstractContextManager[object]]:
        """The context that all programs share."""
        return self.running

    def guarded_context(self) -> AbstractContextManager[object]:
        """Context in which CUDA kernels are bound to check the stop flag."""
        return self.flow.stop_context()

    def executor(self, bound: BoundProgram) -> Executor:
        """An executor that captures a CUDA graph if it can."""
        from netspec.backends.cuda.graph_capture import GraphExecutor

        return GraphExecutor(self, bound)

    def call_timer(self) -> CallTimer:
        """A timer by events in the main stream."""
        return self.flow.call_timer()

    def notes(self, plan: ExecutionPlan) -> list[str]:
        """Whether a program is a CUDA graph."""
        return CaptureLimits.of(plan).notes()

"""`Device`: the interface to the memory, arrays and kernels that programs run on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from netspec.backends.backend import description, load_kernels, rounds_more, unavailable_reasons
from netspec.backends.executor import BoundProgram, CallTimer, Executor
from netspec.errors import InputError
from netspec.graph.cost_model import DEFAULT_CORE, MachineModel
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.kernel import (
    KernelCandidates,
    KernelOption,
    Thunk,
    kernel_candidates,
    kernels_for,
    registered_kernels,
    reject_reason,
)
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.op import Op, Xp
from netspec.graph.types import DType, Precision, TensorType
from netspec.graph.value import Node

if TYPE_CHECKING:
    from netspec.backends.tuning import Tuner
    from netspec.backends.verification import Verification


def numpy_type(dtype: DType) -> str:
    """NumPy's name of an element type. Registers bfloat16 with NumPy if needed."""
    if dtype == DType.BFLOAT16:
        import ml_dtypes  # noqa: F401, TID251  # it registers the type
    return str(dtype)


def processor() -> str:
    """Name and instruction sets of the CPU, if the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "flags"))]
    return " ".join(dict.fromkeys(names))


class Device:
    """Base class of devices. An arena is opaque; a view of it is an array of the device's namespace."""

    name: ClassVar[str]
    backends: ClassVar[tuple[str, ...]]
    """Backends that have kernels for such a device."""
    runs: ClassVar[bool] = True
    """False for a device that only plans."""
    tuner: Tuner | None = None
    """Measures kernels if several accept a node; without one, kernels estimate their own duration."""
    rates: MachineModel = DEFAULT_CORE
    """Rates of the machine, from which kernels estimate their duration."""
    low_precision_dtypes: tuple[DType, ...] = ()
    """16-bit element types in which values may be stored."""
    has_collectives: bool = False
    """Whether programs of several workers communicate from device to device, without the communicator."""
    runs_ahead: bool = False
    """Whether a run may return before it has ended, so that reading a result would wait for it."""
    accepts_uint8: bool = False
    """Whether images should be passed as uint8 and converted to floats by the program."""
    input_slots: int = 0
    """Number of input buffers on the device, in addition to the one that a run reads."""
    no_fast_rounding: bool = False
    """Whether to exclude backends that round more than direct sums (`ROUNDS_MORE` of their packages)."""
    remark: str | None = None
    """Reason why this device was chosen by `auto`; None if there is nothing to report."""
    deterministic: bool = True
    """Whether to exclude kernels whose results are not bit-identical from call to call."""
    verified_on_first_use: ClassVar[bool] = False
    """Whether to check the device when it is used for the first time."""
    verification: Verification | None = None
    """The check of this device, or of the device that `auto` rejected because it failed; None without a check."""
    warnings: Sequence[str] = ()
    """Faults of the device; it is used nevertheless."""
    disabled_kernels: Mapping[str, str] = MappingProxyType({})
    """Reasons why kernels are not used, by label."""

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Names of the backends in use; the first access imports their kernels."""
        names = tuple(name for name in self.usable_backends() if not (self.no_fast_rounding and rounds_more(name)))
        load_kernels(*names)
        return names

    def usable_backends(self) -> Sequence[str]:
        """The backends that can be used on this machine."""
        missing = unavailable_reasons(self.backends)
        return [name for name in self.backends if name not in missing]

    def allocate(self, nbytes: int) -> Any:
        """Allocate `nbytes` of zeroed memory."""
        raise NotImplementedError  # abstract

    def device_hint(self, dtype: DType) -> str:
        """The option that selects a device which computes in a 16-bit type, for the error of a device that can't."""
        return "`--device cuda`"

    def share(self, nbytes: int) -> Any:
        """Memory shared by all workers of this host. Raises `InputError` if the device has none."""
        raise InputError(
            f"workers can't share the memory of the device `{self.name}`",
            expected="`--device cpu`, or a strategy that shares none",
        )  # fmt: skip

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> Any:
        """An array of the given type at `offset` bytes in the arena; in an opaque layout, a flat array."""
        raise NotImplementedError  # abstract

    def upload(self, array: Any, host: Any) -> None:
        """Write a NumPy array into a device array and convert its type. Raises `ValueError` for another shape."""
        raise NotImplementedError  # abstract

    def copier(self, target: Any, source: Any) -> Thunk:
        """A call that copies one device array into another of the same type and size."""
        raise NotImplementedError  # abstract

    def fetch(self, array: Any) -> Any:
        """A NumPy copy of a device array."""
        raise NotImplementedError  # abstract

    def wait(self) -> None:
        """Wait until all work that was started is done."""

    def free_bytes(self) -> int | None:
        """Bytes that could be allocated now; None if unknown."""
        return None

    def settle(self) -> None:
        """Release memory that compilation or initialization has used."""

    def running(self) -> AbstractContextManager[object]:
        """Context in which kernels that use the array library run."""
        return nullcontext()

    def planning_context(self) -> AbstractContextManager[object]:
        """Context for planning."""
        return nullcontext()

    def run_context(self, *, array_code: bool) -> Callable[[], AbstractContextManager[object]]:
        """Return a factory of the context in which a program runs. Entering the CPU's context takes 10 µs."""
        return self.running if array_code else nullcontext

    def guarded_context(self) -> AbstractContextManager[object]:
        """Context in which calls are bound that must not write after a guard that was not finite."""
        return nullcontext()

    def executor(self, bound: BoundProgram) -> Executor:
        """The executor of a program."""
        return Executor(self, bound)

    def call_timer(self) -> CallTimer:
        """A timer of calls, for profiles."""
        return CallTimer()

    def notes(self, plan: ExecutionPlan) -> list[str]:
        """Notes on how a program runs on this device, in sentences."""
        return []

    def threads(self) -> int:
        """Number of threads that a kernel called from this thread may use."""
        return 1

    def set_threads(self, count: int) -> None:
        """Set the number of threads."""

    def timed(self, call: Thunk, least: float) -> float:
        """Mean seconds of a call, over as many calls as fill `least` seconds."""
        calls, start = 0, perf_counter()
        while True:
            call()
            calls += 1
            passed = perf_counter() - start
            if passed >= least:
                return passed / calls

    def identity(self) -> list[Any]:
        """Plain data on which measured times depend, in addition to the libraries of `descriptions`."""
        from netspec.backends.openmp import thread_count

        return [processor(), os.cpu_count(), thread_count()]

    def descriptions(self) -> dict[str, str]:
        """The libraries that run the kernels of each backend."""
        return {name: description(name) for name in self.kernels}

    @property
    def address(self) -> str:
        """The name that opens this device again."""
        return self.name

    @property
    def product(self) -> str | None:
        """Product name of a GPU; None for a CPU."""
        return None

    def describe(self) -> dict[str, Any]:
        """Data for `netspec devices`."""
        return {
            "name": self.name,
            "kernels": list(self.kernels),
            "libraries": self.descriptions(),
            "unavailable": unavailable_reasons(self.backends),
        }

    def candidates(self, node: Node, precision: Precision = Precision.FLOAT32) -> KernelCandidates:
        """Kernels that accept a node at a precision. Raises `NoKernelError` if there is none."""
        key = node.op, tuple(value.type for value in node.inputs), precision
        if key not in self._candidates:
            self._candidates[key] = kernel_candidates(
                node, self.kernels, precision, deterministic=self.deterministic, disabled=self.disabled_kernels
            )
        return self._candidates[key]

    @property
    def has_tf32(self) -> bool:
        """Whether any kernel multiplies float32 operands faster by rounding them to tf32."""
        return any(
            kernel.tf32 and kernel.label not in self.disabled_kernels for kernel in registered_kernels(self.kernels)
        )

    @cached_property
    def _candidates(self) -> dict[tuple[Op, tuple[TensorType, ...], Precision], KernelCandidates]:
        """Cached candidates by node."""
        return {}

    @property
    def has_tuner(self) -> bool:
        """Whether there is a tuner."""
        return self.tuner is not None

    def measured_seconds(self, node: Node, offers: Sequence[KernelOption]) -> Sequence[float] | None:
        """Measured seconds of each option; None without a tuner or a measurement."""
        return None if self.tuner is None else self.tuner.measured_seconds(node, offers)

    def accepts(self, op: Op, types: Sequence[TensorType], precision: Precision = Precision.FLOAT32) -> bool:
        """Whether a kernel other than the reference accepts the op on operands of these types at a precision."""
        fast = (kernel for kernel in kernels_for(type(op), self.kernels) if kernel.rank > 0)
        return any(
            reject_reason(kernel, op, types, precision, deterministic=self.deterministic) is None
            for kernel in fast
            if kernel.label not in self.disabled_kernels
        )


class ArrayDevice(Device):
    """Base class of devices whose arrays are NumPy's, or those of a library with the same interface."""

    xp: Xp
    """The array namespace."""

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> Any:
        """A view with the given shape and the strides of the layout; flat in an opaque layout."""
        flat = arena[offset : offset + layout.nbytes(kind)].view(numpy_type(layout.stored_dtype(kind)))
        return flat if layout.opaque is not None else layout.view_elements(flat, kind)

    def upload(self, array: Any, host: Any) -> None:
        """Copy, converting the element type."""
        uploaded = self.xp.asarray(host)
        if uploaded.shape != array.shape:  # NumPy would broadcast a smaller array
            raise ValueError(f"an array of shape {uploaded.shape} does not fill one of shape {array.shape}")
        self.xp.copyto(array, uploaded, casting="unsafe")

    def copier(self, target: Any, source: Any) -> Thunk:
        """Copy the elements; views of one state may differ in shape."""
        copyto, alike = self.xp.copyto, source.reshape(target.shape)
        return lambda: copyto(target, alike)

    def fetch(self, array: Any) -> Any:
        """A copy of the array."""
        return array.copy()

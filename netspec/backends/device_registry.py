"""All devices by name: the CPU, the reference device, the null device and GPUs; `open_device` opens one."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, NoReturn

from netspec.backends import openmp
from netspec.backends.backend import is_enabled, is_registered, planning_caveat
from netspec.backends.cuda.capture_limits import CaptureLimits
from netspec.backends.cuda.detect import gpu_reject_reason
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.cuda.gpus import GPUS, Gpu, planned_for
from netspec.backends.device import ArrayDevice, Device
from netspec.backends.failures import OutOfMemory
from netspec.backends.memory import free_memory
from netspec.backends.notices import device_notices
from netspec.backends.process_group import world
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.graph.execution_plan import ALIGNMENT, ExecutionPlan
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.types import DType, TensorType

MAX_DIGITS = 4
"""Maximum length of a GPU's number, plus one."""
CPU_BACKENDS = ("reference", "workers", "numba", "onednn", "winograd")
"""Backends with kernels for the CPU."""


class CpuDevice(ArrayDevice):
    """The CPU and its memory, through NumPy."""

    name = "cpu"
    backends: ClassVar[tuple[str, ...]] = CPU_BACKENDS
    low_precision_dtypes: tuple[DType, ...] = (DType.BFLOAT16,)

    def __init__(self) -> None:
        import numpy as np
        from threadpoolctl import ThreadpoolController

        self.xp = np
        self._blas = ThreadpoolController().select(user_api="blas")

    def allocate(self, nbytes: int) -> Any:
        """Zeroed memory, aligned for vector instructions. Raises `RunError` if there is not enough."""
        try:
            raw = self.xp.zeros(nbytes + ALIGNMENT, self.xp.uint8)
        except (MemoryError, ValueError) as error:  # ValueError: more than any machine can address
            free = self.free_bytes()
            raise OutOfMemory(
                f"out of memory: {nbytes / 1e9:,.1f} GB are needed at once",
                got=None if free is None else f"{free / 1e9:,.1f} GB are free",
                hint="`netspec plan` says what the net's states and a batch need",
            ) from error
        return _from_aligned(raw, nbytes)

    def share(self, nbytes: int) -> Any:
        """Shared memory; it starts at a page boundary in each process, so its alignment is the same in all."""
        return _from_aligned(world().share_memory(nbytes + ALIGNMENT), nbytes)

    def free_bytes(self) -> int | None:
        """Free memory of the machine, or the rest of this process's limit."""
        return free_memory()

    def settle(self) -> None:
        """Have the C library return freed memory, of which it keeps up to 64 MB; only glibc supports this."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        if trim is not None:
            trim(0)

    def threads(self) -> int:
        """Number of OpenMP threads."""
        return openmp.thread_count()

    def set_threads(self, count: int) -> None:
        """Set the number of OpenMP threads."""
        openmp.set_threads(count)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Suppress floating-point warnings: the guard detects values that are not finite and reports their origin.

        NumPy's matrix products use one thread. Two thread pools that spin while they wait for each other make a step
        many times slower on a busy machine. One thread also makes results independent of the settings of the BLAS
        library.
        """
        with self.xp.errstate(all="ignore"), self._blas.limit(limits=1):
            yield


class ReferenceDevice(CpuDevice):
    """The CPU with the reference kernels only: slow, and the standard that all others are compared with."""

    name = "reference"
    backends = ("reference", "workers")
    low_precision_dtypes = (DType.BFLOAT16, DType.FLOAT16)


class NullDevice(Device):
    """A device that plans for the CPU without allocating memory: no program can run on it."""

    name = "null"
    backends: ClassVar[tuple[str, ...]] = CPU_BACKENDS
    runs = False
    low_precision_dtypes = CpuDevice.low_precision_dtypes

    def free_bytes(self) -> int | None:
        """Free memory of the CPU that it plans for."""
        return free_memory()

    def allocate(self, nbytes: int) -> None:
        """Allocate nothing."""

    def share(self, nbytes: int) -> None:
        """Share nothing."""

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> None:
        """Return None: this device has no memory."""

    def upload(self, array: Any, host: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    def copier(self, target: Any, source: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    def fetch(self, array: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    def device_hint(self, dtype: DType) -> str:
        """The options of the GPUs that can be planned for."""
        notes = [f"`--device {name}`" for name, gpu in GPUS.items() if dtype in _narrow(gpu)]
        return listing(notes, len(notes))

    def refusal(self) -> InputError:
        """The error for running something on this device."""
        return InputError(
            f"the device `{self.name}` only plans: it has no memory, and nothing runs on it",
            expected=f"one of {listing([name for name, cls in DEVICES.items() if cls.runs])}",
        )


def _narrow(gpu: Gpu) -> tuple[DType, ...]:
    """16-bit types that the GPU computes in."""
    return tuple(
        dtype for dtype in CudaDevice.low_precision_dtypes if dtype != DType.BFLOAT16 or gpu.capability >= (8, 0)
    )


class PlannedGpu(NullDevice):
    """A device that plans for a GPU which may be absent, as if CuPy and all libraries were installed."""

    backends = CudaDevice.backends
    input_slots = CudaDevice.input_slots
    has_collectives = CudaDevice.has_collectives
    runs_ahead = CudaDevice.runs_ahead

    def __init__(self, name: str) -> None:
        """`name` is one of `GPUS`."""
        self.gpu = GPUS[name]
        self.name = name  # type: ignore[misc]  # there is a class for all of them
        self.rates = self.gpu.rates
        self.low_precision_dtypes = _narrow(self.gpu)

    def usable_backends(self) -> list[str]:
        """All backends except those that are excluded."""
        return [name for name in self.backends if is_enabled(name) and is_registered(name)]

    def planning_context(self) -> AbstractContextManager[object]:
        """Context in which libraries that can plan without a GPU plan for this one."""
        return planned_for(self.name)

    def notes(self, plan: ExecutionPlan) -> list[str]:
        """Whether a program would be a CUDA graph, and which kernels are planned without asking their library."""
        used = dict.fromkeys(choice.kernel.backend for choice in plan.choices.values())
        unasked = [
            f"{name} was not asked: its kernels would take what is planned for them; their workspace is unknown ({why})"
            for name in used
            if (why := planning_caveat(name, self.name)) is not None
        ]
        return [*CaptureLimits.of(plan).notes(), *unasked]

    def identity(self) -> list[str]:
        """The name that such a GPU reports, under which measurements on it are stored."""
        return [self.gpu.title]

    def descriptions(self) -> dict[str, str]:
        """Return nothing, because the libraries may be absent."""
        return {}

    def free_bytes(self) -> int:
        """All memory of the GPU."""
        return self.gpu.memory


DEVICES: dict[str, type[Device]] = {
    "cpu": CpuDevice,
    "cuda": CudaDevice,
    "reference": ReferenceDevice,
    "null": NullDevice,
}


def _from_aligned(raw: Any, nbytes: int) -> Any:
    """The first `nbytes` bytes of an array that start at an aligned address."""
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def open_device(
    name: str = "auto",
    autotune: str = "off",
    rounding: str = "fast",
    *,
    deterministic: bool = True,
    host_only: str | None = None,
    first_use_check: bool = True,
) -> Device:
    """Open a device by name. `auto` is a GPU if one can be used, else the CPU; `remark` says why.

    `cuda:1` is the second GPU; `h200` is a GPU to plan for. `autotune` is `off`, `quick` or `full`, `rounding` is
    `fast` or `direct`; `CompileSpec` documents both and `deterministic`. `host_only` is the caller's reason why `auto`
    must not choose a GPU. With `first_use_check`, a GPU that was never used is checked: kernels that fail are not used,
    and `auto` is the CPU if training fails. `device_notices` report the remark and the warnings. Raises `InputError`
    for an unknown name, or for a device that this machine does not have.
    """
    _check_mask()
    remark, is_auto = None, name == "auto"
    if is_auto:
        remark = gpu_reject_reason(host_only if is_enabled(CudaDevice.name) else "NETSPEC_KERNELS omits `cuda`")
        name = CudaDevice.name if remark is None else CpuDevice.name
    kind, _, number = name.partition(":")
    numbered = kind == CudaDevice.name and number.isascii() and number.isdigit() and len(number) < MAX_DIGITS
    if name not in {**DEVICES, **GPUS} and not numbered:
        raise InputError(
            f"unknown device {name!r}",
            expected=f"one of auto, {listing(list(DEVICES))}; to plan for, {listing(list(GPUS))}",
            hint=did_you_mean(name, ["auto", *DEVICES, *GPUS]),
        )
    device = CudaDevice(int(number)) if numbered else PlannedGpu(name) if name in GPUS else DEVICES[name]()
    if device.verified_on_first_use and first_use_check:
        device, remark = _verified(device, is_auto=is_auto)
    device.no_fast_rounding, device.deterministic, device.remark = rounding == "direct", deterministic, remark or None
    device_notices.report(device.remark, device.warnings)
    if autotune != "off":
        from netspec.backends.tuning import Tuner

        device.tuner = Tuner(device, autotune)
    return device


def _verified(device: Device, *, is_auto: bool) -> tuple[Device, str | None]:
    """The device, without the kernels that failed its check; and why it is replaced by the CPU, if it is.

    `auto` replaces a device whose training steps can't be trusted.
    """
    from netspec.backends.verification import verified_on_first_use

    result, remark = verified_on_first_use(device), None
    if result is not None:
        if result.distrust_reason is not None and is_auto:
            device, remark = CpuDevice(), result.rejection()
        else:
            device.disabled_kernels, device.warnings = result.disabled_kernels, result.warnings()
        device.verification = result
    return device, remark


def _check_mask() -> None:
    """Raise `InputError` if NETSPEC_KERNELS contains an unknown backend: a typo would silently run slow kernels."""
    backends = {backend for device in DEVICES.values() for backend in device.backends}
    names = [name.strip() for name in os.environ.get("NETSPEC_KERNELS", "").split(",") if name.strip()]
    problems = [
        Problem(
            f"NETSPEC_KERNELS: there are no kernels called {name!r}", expected=f"of {listing(list(backends))}",
            hint=did_you_mean(name, backends),
        )
        for name in names
        if name not in backends
    ]  # fmt: skip
    if problems:
        raise InputError(problems)

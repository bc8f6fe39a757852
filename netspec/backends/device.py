"""The devices: the processor with its fast kernels or with the reference alone, the GPU, and the null device."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from netspec.backends import openmp
from netspec.backends.base import ArrayDevice, Device, allowed, assumed, rounds_more
from netspec.backends.cuda.automatic import against_gpu
from netspec.backends.cuda.device import CudaDevice
from netspec.backends.cuda.gpus import GPUS, Gpu
from netspec.backends.cuda.recording import Recording
from netspec.backends.cuda.target import planned_for
from netspec.backends.failures import OutOfMemory
from netspec.backends.memory import free_memory
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.plan import ALIGNMENT, Plan
from netspec.graph.types import DType, TensorType
from netspec.parallel import world

MOST_DIGITS = 4
"""Of the number of a GPU, and one."""
CPU_BACKENDS = ("reference", "workers", "numba", "onednn", "winograd")
"""Backends with kernels for the processor; a package `backends/NAME` whose module `kernels` registers them."""


class CpuDevice(ArrayDevice):
    """The processor and its memory, through NumPy."""

    name = "cpu"
    backends: ClassVar[tuple[str, ...]] = CPU_BACKENDS
    narrow: tuple[DType, ...] = (DType.BFLOAT16,)

    def __init__(self) -> None:
        import numpy as np
        from threadpoolctl import ThreadpoolController

        self.xp = np
        self._blas = ThreadpoolController().select(user_api="blas")

    def allocate(self, nbytes: int) -> Any:
        """Zeroed bytes, aligned for vector instructions. Raises `RunError` where there are not as many."""
        try:
            raw = self.xp.zeros(nbytes + ALIGNMENT, self.xp.uint8)
        except (MemoryError, ValueError) as error:  # the latter: more than any machine can address
            free = self.free_bytes()
            raise OutOfMemory(
                f"out of memory: {nbytes / 1e9:,.1f} GB are needed at once",
                got=None if free is None else f"{free / 1e9:,.1f} GB are free",
                hint="`netspec plan` says what the net's states and a batch need",
            ) from error
        return _from_aligned(raw, nbytes)

    def share(self, nbytes: int) -> Any:
        """Bytes that lie where pages begin in each process, and so are aligned alike."""
        return _from_aligned(world().share_memory(nbytes + ALIGNMENT), nbytes)

    def free_bytes(self) -> int | None:
        """What is left of the machine's memory, or of what this process may have of it."""
        return free_memory()

    def settle(self) -> None:
        """Have the C library return freed memory, of which it keeps up to 64 MB; only glibc's can be told to."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        if trim is not None:
            trim(0)

    def threads(self) -> int:
        """Of OpenMP."""
        return openmp.thread_count()

    def set_threads(self, count: int) -> None:
        """For all kernels that use OpenMP."""
        openmp.set_threads(count)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Overflow and the like pass in silence: the guard looks for what is not finite and says where it began.

        NumPy's matrix products get one thread. Two pools of threads that wait for each other by spinning make a step
        many times slower, the more the machine is busy with other things; and so results do not depend on a setting of
        the BLAS library. Fast products are another backend's.
        """
        with self.xp.errstate(all="ignore"), self._blas.limit(limits=1):
            yield


class ReferenceDevice(CpuDevice):
    """The processor with the reference kernels alone: slow, and what all others are compared with."""

    name = "reference"
    backends = ("reference", "workers")
    narrow = (DType.BFLOAT16, DType.FLOAT16)


class NullDevice(Device):
    """Plans for the processor and allocates nothing: kernels are chosen and memory is planned, no step can run."""

    name = "null"
    backends: ClassVar[tuple[str, ...]] = CPU_BACKENDS
    runs = False
    narrow = CpuDevice.narrow

    def free_bytes(self) -> int | None:
        """Of the processor it plans for."""
        return free_memory()

    def allocate(self, nbytes: int) -> None:
        """Nothing."""

    def share(self, nbytes: int) -> None:
        """Nothing."""

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> None:
        """Nothing."""

    def upload(self, array: Any, host: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    def copier(self, target: Any, source: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    def fetch(self, array: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    def computing(self, dtype: DType) -> str:
        """GPUs that can be planned for."""
        found = [f"`--device {name}`" for name, gpu in GPUS.items() if dtype in _narrow(gpu)]
        return listing(found, len(found))

    def refusal(self) -> InputError:
        """What whoever wants to run something here is told."""
        return InputError(
            f"the device `{self.name}` only plans: it has no memory, and nothing runs on it",
            expected=f"one of {listing([name for name, cls in DEVICES.items() if cls.runs])}",
        )


def _narrow(gpu: Gpu) -> tuple[DType, ...]:
    """Types of fewer bits than float32 that it computes in."""
    return tuple(one for one in CudaDevice.narrow if one != DType.BFLOAT16 or gpu.capability >= (8, 0))


class PlannedGpu(NullDevice):
    """Plans for a GPU that need not be there, as if CuPy and all libraries were."""

    backends = CudaDevice.backends
    slots = CudaDevice.slots
    sums_itself = CudaDevice.sums_itself

    def __init__(self, name: str) -> None:
        """`name` is one of `GPUS`."""
        self.gpu = GPUS[name]
        self.name = name  # type: ignore[misc]  # there is a class for all of them
        self.rates = self.gpu.rates
        self.narrow = _narrow(self.gpu)

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """All backends, but for those that are not wanted."""
        return tuple(name for name in self.backends if allowed(name) and not (self.direct and rounds_more(name)))

    def planning(self) -> AbstractContextManager[object]:
        """Libraries that can be asked without the GPU are asked for it."""
        return planned_for(self.name)

    def notes(self, plan: Plan) -> list[str]:
        """Whether a program would be a CUDA graph; whose kernels are planned though nobody could ask their library."""
        used = dict.fromkeys(choice.kernel.backend for choice in plan.choices.values())
        unasked = [
            f"{name} was not asked: its kernels would take what is planned for them; their workspace is unknown ({why})"
            for name in used
            if (why := assumed(name, self.name)) is not None
        ]
        return [*Recording.of(plan).notes(), *unasked]

    def identity(self) -> list[str]:
        """Its name: what was raced on such a GPU is known under what it says of itself."""
        return [self.gpu.title]

    def about(self) -> dict[str, str]:
        """Nothing: the libraries need not be there."""
        return {}

    def free_bytes(self) -> int:
        """All of its memory."""
        return self.gpu.memory


DEVICES: dict[str, type[Device]] = {
    "cpu": CpuDevice,
    "cuda": CudaDevice,
    "reference": ReferenceDevice,
    "null": NullDevice,
}


def _from_aligned(raw: Any, nbytes: int) -> Any:
    """So many bytes of an array, from the first one that vector instructions like."""
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def open_device(
    name: str = "auto",
    autotune: str = "off",
    rounding: str = "fast",
    *,
    deterministic: bool = True,
    host_only: str | None = None,
) -> Device:
    """The device called `name`; `auto` is a GPU where one can be used, else the processor, and `remark` says why.

    `cuda:1` is the second GPU, `h200` one to plan for. `autotune` is `off`, `quick` or `full`; `rounding` is `fast` or
    `direct`; of both, and of `deterministic`, see `CompileSpec`. `host_only` is why no GPU would do, where that is so
    and the choice is open. Raises `InputError` for an unknown name, or for a device that is not on this machine.
    """
    _check_mask()
    remark = None
    if name == "auto":
        remark = against_gpu(host_only if allowed(CudaDevice.name) else "NETSPEC_KERNELS omits `cuda`")
        name = CudaDevice.name if remark is None else CpuDevice.name
    kind, _, number = name.partition(":")
    numbered = kind == CudaDevice.name and number.isascii() and number.isdigit() and len(number) < MOST_DIGITS
    if name not in {**DEVICES, **GPUS} and not numbered:
        raise InputError(
            f"unknown device {name!r}",
            expected=f"one of auto, {listing(list(DEVICES))}; to plan for, {listing(list(GPUS))}",
            hint=did_you_mean(name, ["auto", *DEVICES, *GPUS]),
        )
    device = CudaDevice(int(number)) if numbered else PlannedGpu(name) if name in GPUS else DEVICES[name]()
    device.direct, device.deterministic, device.remark = rounding == "direct", deterministic, remark or None
    device.load_kernels()
    if autotune != "off":
        from netspec.backends.tuning import Tuner

        device.tuner = Tuner(device, autotune)
    return device


def _check_mask() -> None:
    """Raise `InputError` where NETSPEC_KERNELS names what is no backend: a slip would run slow kernels silently."""
    known = {backend for device in DEVICES.values() for backend in device.backends}
    given = [one.strip() for one in os.environ.get("NETSPEC_KERNELS", "").split(",") if one.strip()]
    problems = [
        Problem(
            f"NETSPEC_KERNELS: there are no kernels called {one!r}", expected=f"of {listing(list(known))}",
            hint=did_you_mean(one, known),
        )
        for one in given
        if one not in known
    ]  # fmt: skip
    if problems:
        raise InputError(problems)

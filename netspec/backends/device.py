"""`Device`: memory and arrays of the machine a program runs on, behind one interface."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, NoReturn

from netspec.errors import InputError, did_you_mean, listing
from netspec.graph.kernel import kernels_for
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.op import Op, Xp
from netspec.graph.plan import ALIGNMENT
from netspec.graph.types import TensorType

CPU_BACKENDS = ("reference", "numba", "onednn")
"""Backends with kernels for the processor; a package `backends/NAME` whose module `kernels` registers them."""


def missing_backends(names: Sequence[str]) -> dict[str, str]:
    """The backends that cannot be used here, with the reason that each gives (`missing() -> str | None`).

    The environment's NETSPEC_KERNELS, names between commas, leaves the others out.
    """
    wanted = os.environ.get("NETSPEC_KERNELS", "")
    allowed = {name.strip() for name in wanted.split(",")} | {"reference"} if wanted else set(names)
    found = {}
    for name in names:
        reason = import_module(f"netspec.backends.{name}").missing() if name in allowed else "NETSPEC_KERNELS omits it"
        if reason is not None:
            found[name] = reason
    return found


class Device:
    """Base of devices. An arena is opaque; a view of it is an array of the device's namespace."""

    name: ClassVar[str]
    backends: ClassVar[tuple[str, ...]]
    """Backends that have kernels for such a device."""
    runs: ClassVar[bool] = True
    """False for a device that only plans."""

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Those of `backends` that can be used here."""
        missing = missing_backends(self.backends)
        return tuple(name for name in self.backends if name not in missing)

    def allocate(self, nbytes: int) -> Any:
        """Memory for so many bytes, all zero."""
        raise NotImplementedError

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> Any:
        """An array of the given type at `offset` bytes in the arena."""
        raise NotImplementedError

    def upload(self, array: Any, host: Any) -> None:
        """Write a NumPy array into a device array; its type is converted. Raises `ValueError` for another shape."""
        raise NotImplementedError

    def copy(self, target: Any, source: Any) -> None:
        """Write one device array into another of the same type."""
        raise NotImplementedError

    def fetch(self, array: Any) -> Any:
        """A NumPy copy of a device array."""
        raise NotImplementedError

    def running(self) -> AbstractContextManager[object]:
        """What kernels run inside of."""
        return nullcontext()

    def describe(self) -> dict[str, Any]:
        """What `netspec devices` says of it."""
        return {
            "name": self.name,
            "kernels": list(self.kernels),
            "about": {name: import_module(f"netspec.backends.{name}").about() for name in self.kernels},
            "missing": missing_backends(self.backends),
        }

    def accepts(self, op: Op, types: Sequence[TensorType]) -> bool:
        """Whether a kernel above the reference takes the op on operands of these types."""
        fast = (one for one in kernels_for(type(op), self.kernels) if one.rank > 0)
        return any(one.why_not(op, *types) is None for one in fast)

    def load_kernels(self) -> None:
        """Import the kernels of this device's backends, so that they are registered."""
        for backend in self.kernels:
            import_module(f"netspec.backends.{backend}.kernels")


class CpuDevice(Device):
    """The processor and its memory, through NumPy."""

    name = "cpu"
    backends: ClassVar[tuple[str, ...]] = CPU_BACKENDS
    xp: Xp

    def __init__(self) -> None:
        import numpy as np
        from threadpoolctl import ThreadpoolController

        self.xp = np
        self._blas = ThreadpoolController().select(user_api="blas")

    def allocate(self, nbytes: int) -> Any:
        """Zeroed bytes, aligned for vector instructions."""
        raw = self.xp.zeros(nbytes + ALIGNMENT, self.xp.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + nbytes]

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> Any:
        """A NumPy array at the offset: of the given shape, with the strides of the layout."""
        flat = arena[offset : offset + kind.nbytes].view(str(kind.dtype))
        if layout.order is None:
            return flat.reshape(kind.shape)
        lying = flat.reshape([kind.shape[axis] for axis in layout.order])
        return lying.transpose(sorted(range(kind.rank), key=layout.order.__getitem__))

    def upload(self, array: Any, host: Any) -> None:
        """Copy, converting the element type."""
        if self.xp.shape(host) != array.shape:  # NumPy would repeat a smaller array without a word
            raise ValueError(f"an array of shape {self.xp.shape(host)} does not fill one of shape {array.shape}")
        self.xp.copyto(array, host, casting="unsafe")

    def copy(self, target: Any, source: Any) -> None:
        """Copy the elements; views of one state may differ in shape."""
        self.xp.copyto(target, source.reshape(target.shape))

    def fetch(self, array: Any) -> Any:
        """A copy."""
        return array.copy()

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
    backends = ("reference",)


class NullDevice(Device):
    """Plans for the processor and allocates nothing: kernels are chosen and memory is planned, no step can run."""

    name = "null"
    backends = CPU_BACKENDS
    runs = False

    def allocate(self, nbytes: int) -> None:
        """Nothing."""

    def view(self, arena: Any, offset: int, kind: TensorType, layout: Layout = PLAIN) -> None:
        """Nothing."""

    def upload(self, array: Any, host: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    def copy(self, target: Any, source: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    def fetch(self, array: Any) -> NoReturn:
        """Raise `InputError`."""
        raise self.refusal()

    @staticmethod
    def refusal() -> InputError:
        """What whoever wants to run something here is told."""
        return InputError(
            "the device `null` only plans: it has no memory, and nothing runs on it",
            expected=f"one of {listing([name for name, cls in DEVICES.items() if cls.runs])}",
        )


DEVICES: dict[str, type[Device]] = {"cpu": CpuDevice, "reference": ReferenceDevice, "null": NullDevice}


def open_device(name: str = "auto") -> Device:
    """The device called `name`; `auto` is the fastest there is. Raises `InputError` for an unknown name."""
    if name == "auto":
        name = "cpu"
    if name not in DEVICES:
        raise InputError(
            f"unknown device {name!r}",
            expected=f"one of auto, {listing(list(DEVICES))}",
            hint=did_you_mean(name, ["auto", *DEVICES]),
        )
    device = DEVICES[name]()
    device.load_kernels()
    return device

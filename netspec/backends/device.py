"""`Device`: memory and arrays of the machine a program runs on, behind one interface."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any, ClassVar

from netspec.errors import InputError, did_you_mean, listing
from netspec.graph.op import Xp
from netspec.graph.types import TensorType


class Device:
    """Base of devices. An arena is opaque; a view of it is an array of the device's namespace."""

    name: ClassVar[str]
    kernels: ClassVar[tuple[str, ...]]
    """Backends whose kernels run here."""
    runs: ClassVar[bool] = True
    """False for a device that only plans."""

    def allocate(self, nbytes: int) -> Any:
        """Memory for so many bytes, all zero."""
        raise NotImplementedError

    def view(self, arena: Any, offset: int, kind: TensorType) -> Any:
        """An array of the given type at `offset` bytes in the arena."""
        raise NotImplementedError

    def upload(self, array: Any, host: Any) -> None:
        """Write a NumPy array (of the same shape; its type is converted) into a device array."""
        raise NotImplementedError

    def fetch(self, array: Any) -> Any:
        """A NumPy copy of a device array."""
        raise NotImplementedError

    def running(self) -> AbstractContextManager[Any]:
        """What a program's run is wrapped in."""
        return nullcontext()

    def describe(self) -> dict[str, Any]:
        """What `netspec devices` says of it."""
        return {"name": self.name, "kernels": list(self.kernels)}

    def load_kernels(self) -> None:
        """Import the kernels of this device's backends, so that they are registered."""
        for backend in self.kernels:
            import_module(f"netspec.backends.{backend}")


class CpuDevice(Device):
    """The processor and its memory, through NumPy."""

    name = "cpu"
    kernels = ("reference",)
    xp: Xp

    def __init__(self) -> None:
        import numpy

        self.xp = numpy

    def allocate(self, nbytes: int) -> Any:
        """Zeroed bytes, aligned for vector instructions."""
        raw = self.xp.zeros(nbytes + 63, self.xp.uint8)
        start = -raw.ctypes.data % 64
        return raw[start : start + nbytes]

    def view(self, arena: Any, offset: int, kind: TensorType) -> Any:
        """A C-ordered NumPy array at the offset."""
        return arena[offset : offset + kind.nbytes].view(str(kind.dtype)).reshape(kind.shape)

    def upload(self, array: Any, host: Any) -> None:
        """Copy, converting the element type."""
        self.xp.copyto(array, host, casting="unsafe")

    def fetch(self, array: Any) -> Any:
        """A copy."""
        return array.copy()

    def running(self) -> AbstractContextManager[Any]:
        """No warnings of NumPy: an infinity is told by the program's guard, with its layer."""
        context: AbstractContextManager[Any] = self.xp.errstate(all="ignore")
        return context


class NullDevice(CpuDevice):
    """Plans for the processor and allocates nothing: kernels are chosen and memory is planned, no step can run."""

    name = "null"
    runs = False

    def __init__(self) -> None:
        """No arrays, hence no NumPy: `netspec check` answers without loading it."""

    def allocate(self, nbytes: int) -> Any:
        """Nothing."""
        return None

    def view(self, arena: Any, offset: int, kind: TensorType) -> Any:
        """Nothing."""
        return None


DEVICES: dict[str, type[Device]] = {"cpu": CpuDevice, "null": NullDevice}


def open_device(name: str = "auto") -> Device:
    """The device called `name`; `auto` is the fastest there is. Raises `InputError` for an unknown name."""
    if name == "auto":
        name = "cpu"
    if name not in DEVICES:
        raise InputError(
            f"unknown device {name!r}", expected=f"auto, {listing(list(DEVICES))}", hint=did_you_mean(name, DEVICES)
        )
    device = DEVICES[name]()
    device.load_kernels()
    return device

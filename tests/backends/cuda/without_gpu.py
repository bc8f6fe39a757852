"""CuPy on a machine without a GPU: arrays over host memory, and calls that fail only because there is no GPU.

CuPy converts and checks arguments before it calls CUDA: if CUDA reports that there is no device, CuPy accepted them.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.detect import NO_DEVICE
from tests.backends.cuda.calls import EmulatedDevice

NO_DRIVER = 35
"""`cudaErrorInsufficientDriver` in CUDA's `driver_types.h`: also the error if there is no driver."""
UNHANDLED = 1
"""`ncclUnhandledCudaError`: a call of CUDA by NCCL failed."""
ASKING = "streamIsCapturing"
"""CuPy's function that checks whether a stream is being captured; CuPy calls it in functions that refuse that."""


def load() -> Any:
    """Import CuPy with no visible GPU. Raises `ImportError` if it is not installed."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.unraisablehook = lambda _: None  # streams that could not be made raise once more when they are collected
    return import_module("cupy")


def is_for_lack_of_a_device(error: BaseException) -> bool:
    """Whether it is an error of CUDA or NCCL that the missing GPU explains, or was raised from one."""
    kinds = {"CUDARuntimeError": (NO_DRIVER, NO_DEVICE), "NcclError": (UNHANDLED,)}
    expected = getattr(error, "status", None) in kinds.get(type(error).__name__, ())
    return expected or (error.__cause__ is not None and is_for_lack_of_a_device(error.__cause__))


def complaint(call: Callable[[], object]) -> str | None:
    """Call it, and return its error; None if it returns, or fails for lack of a device."""
    try:
        call()
    except Exception as error:  # report any error
        return None if is_for_lack_of_a_device(error) else f"{type(error).__name__}: {error}"
    return None


def asks_for_capture(call: Callable[[], object]) -> bool:
    """Whether a call fails in CuPy's check for a capture, which means that it cannot be part of a graph."""
    try:
        call()
    except Exception as error:  # its traceback matters
        return any(frame.name.endswith(ASKING) for frame in traceback.extract_tb(error.__traceback__))
    return False


def wrapped(cupy: Any, host: Any) -> Any:
    """A CuPy array over the memory of a NumPy array, which it keeps alive."""
    memory = cupy.cuda.UnownedMemory(host.ctypes.data, max(host.nbytes, 1), host, 0)  # of GPU 0, as far as CuPy knows
    return cupy.ndarray(host.shape, host.dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


class CupyDevice(EmulatedDevice):
    """Binds kernels of the backend `cuda` to CuPy's arrays; any implicit copy by CuPy fails."""

    name = "cupy"
    cupy: ClassVar[Any]

    def allocate(self, nbytes: int) -> Any:
        return wrapped(self.cupy, np.zeros(nbytes, np.uint8))

    def upload(self, array: Any, host: Any) -> None:
        """Check the shape only: nothing is computed, so values do not matter."""
        assert array.shape == np.asarray(host).shape


class StartingEngine(launch.CupyEngine):
    """Launches kernels by CuPy without a GPU; keeps their sources, and CuPy's errors."""

    def __init__(self, cupy: Any) -> None:
        super().__init__()
        self._cupy = cupy
        self.texts: dict[str, str] = {}
        self.complaints: dict[str, str] = {}

    def starter(self, name: str, text: str) -> launch.Starter:
        """CuPy's launch of a kernel that was not loaded."""
        self.texts[name] = text.removeprefix(launch.prelude())
        kind = self._cupy.cuda.function.Function
        function, stream = kind.__new__(kind), self._cupy.cuda.Stream.ptds

        def start(blocks: int, threads: int, arguments: Sequence[Any]) -> None:
            # Without a stream, CuPy looks up the current one first, which needs a GPU.
            actual = complaint(lambda: function((blocks,), (threads,), tuple(arguments), 0, stream))
            if actual is not None:
                self.complaints[name] = actual

        return start

    def table(self, host: Any) -> Any:
        """A table over a copy in host memory, after checking that CuPy accepts the copy."""
        if (actual := complaint(lambda: self._cupy.asarray(host))) is not None:
            self.complaints["asarray"] = actual
        return wrapped(self._cupy, np.array(host))

    def on_stream(self, call: Callable[[int], None]) -> Any:
        """A call of a stand-in for a library, which ignores the stream."""
        return lambda: call(0)

    def device(self) -> int:
        return 0

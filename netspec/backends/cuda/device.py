"""`CudaDevice`: the memory of an NVIDIA GPU, and CuPy's arrays in it.

CuPy is imported when the device is opened, never before: `import netspec` does not touch CUDA.
"""

from __future__ import annotations

from typing import Any

from netspec.backends.base import ArrayDevice
from netspec.errors import InputError


class CudaDevice(ArrayDevice):
    """The first GPU. Every op runs its reference code on CuPy arrays: right, and not yet fast."""

    name = "cuda"
    backends = ("reference",)

    def __init__(self) -> None:
        """Raise `InputError` where there is no CuPy, no driver, or no GPU."""
        try:
            import cupy

            count = cupy.cuda.runtime.getDeviceCount()
        except ImportError:
            raise InputError(
                "the device `cuda` needs CuPy",
                got="it is not installed",
                hint="pip install cupy-cuda13x (or cupy-cuda12x)",
            ) from None
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise InputError("the device `cuda` needs an NVIDIA GPU and its driver", got=str(error)) from None
        if not count:
            raise InputError("the device `cuda` needs an NVIDIA GPU", got="none is there")
        self.xp = cupy

    def allocate(self, nbytes: int) -> Any:
        """Zeroed bytes; CuPy aligns them to 512."""
        return self.xp.zeros(nbytes, self.xp.uint8)

    def fetch(self, array: Any) -> Any:
        """A copy in the memory of the processor."""
        return self.xp.asnumpy(array)

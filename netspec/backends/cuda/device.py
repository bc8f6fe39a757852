"""`CudaDevice`: the memory of an NVIDIA GPU, and CuPy's arrays in it.

CuPy is imported when the device is opened, never before: `import netspec` does not touch CUDA.
"""

from __future__ import annotations

from typing import Any

from netspec.backends.base import ArrayDevice
from netspec.errors import InputError, RunError
from netspec.graph.types import DType


class CudaDevice(ArrayDevice):
    """A GPU. Ops that have no kernel of the backend `cuda` run their reference code on CuPy arrays."""

    name = "cuda"
    backends = ("reference", "cuda")
    narrow = (DType.BFLOAT16, DType.FLOAT16)

    def __init__(self, number: int = 0) -> None:
        """Raise `InputError` where there is no CuPy, no driver, or no GPU with this number."""
        try:
            import cupy

            count = cupy.cuda.runtime.getDeviceCount()
        except ImportError:
            raise InputError(
                "the device `cuda` needs CuPy",
                got="it is not installed",
                hint="pip install 'netspec[cuda13]', or 'netspec[cuda12]' where the driver is older",
            ) from None
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise InputError("the device `cuda` needs an NVIDIA GPU and its driver", got=str(error)) from None
        if not count:
            raise InputError("the device `cuda` needs an NVIDIA GPU", got="none is there")
        if number >= count:
            last = "cuda:0, the only GPU" if count == 1 else f"cuda:0 to cuda:{count - 1}"
            raise InputError(f"there is no GPU {number}", expected=last, got=f"cuda:{number}")
        cupy.cuda.Device(number).use()
        self.xp = cupy

    def allocate(self, nbytes: int) -> Any:
        """Zeroed bytes; CuPy aligns them to 512. Raises `RunError` where there are not as many."""
        try:
            return self.xp.zeros(nbytes, self.xp.uint8)
        except self.xp.cuda.memory.OutOfMemoryError as error:
            raise RunError(
                f"out of memory: {nbytes / 1e9:,.1f} GB of the GPU's are needed at once",
                got=f"{self.free_bytes() / 1e9:,.1f} GB are free",
                hint="`netspec plan` says what the net's states and a batch need",
            ) from error

    def free_bytes(self) -> int:
        """What is left of the GPU's memory, what CuPy keeps for later included."""
        free: int = self.xp.cuda.runtime.memGetInfo()[0]
        return free + int(self.xp.get_default_memory_pool().free_bytes())

    def fetch(self, array: Any) -> Any:
        """A copy in the memory of the processor."""
        return self.xp.asnumpy(array)

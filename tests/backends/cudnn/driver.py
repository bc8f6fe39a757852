"""A stand-in for the driver's library: cuDNN wants to load one even where it only plans, and calls nothing of it."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

from tests.backends.cuda.emulator import compiler

NAME = "libcuda.so.1"
FUNCTIONS = """
    CtxGetCurrent CtxGetDevice CtxGetLimit CtxPopCurrent CtxPopCurrent_v2 CtxPushCurrent CtxPushCurrent_v2 DeviceGet
    DeviceGetAttribute DeviceGetCount DriverGetVersion FuncGetAttribute FuncSetAttribute FuncSetCacheConfig
    GetErrorName GetErrorString GetProcAddress_v2 Init KernelGetAttribute KernelGetFunction KernelSetAttribute
    LaunchCooperativeKernel LaunchKernel LaunchKernelEx LibraryGetKernel LibraryLoadData LibraryLoadFromFile
    LibraryUnload LinkAddData LinkAddFile LinkComplete LinkCreate LinkDestroy MemsetD32Async MemsetD8Async
    ModuleGetFunction ModuleGetGlobal ModuleGetGlobal_v2 ModuleLoadData ModuleLoadDataEx ModuleUnload
    OccupancyMaxActiveBlocksPerMultiprocessor OccupancyMaxActiveClusters OccupancyMaxPotentialClusterSize
    StreamGetCtx TensorMapEncodeIm2col TensorMapEncodeTiled
"""
"""What cuDNN 9.28 looks for in it."""


def load_driver() -> bool:
    """Load the driver's library, or one whose functions do nothing; whether it is such a one.

    Raises `RuntimeError` where there is neither a driver nor a C++ compiler.
    """
    try:
        ctypes.CDLL(NAME)
    except OSError:
        found = compiler()
        if found is None:
            raise RuntimeError(f"there is no {NAME}, and no C++ compiler to make one with") from None
        code = "\n".join(f'extern "C" int cu{name}() {{ return 0; }}' for name in FUNCTIONS.split())
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, NAME)
            command = [found, "-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-x", "c++", "-", "-o", str(made)]
            subprocess.run(command, input=code, text=True, check=True)
            ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)  # stays loaded, and is found by its name
        return True
    return False

"""A stand-in for the driver's library, which cuDNN loads even for planning.

cuDNN calls its functions when it compiles kernels; they report that the kernels were loaded.
"""

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
"""Functions that cuDNN 9.28 looks up."""
GIVING = "CtxGetCurrent KernelGetFunction LibraryGetKernel LibraryLoadData ModuleGetFunction ModuleLoadData"
"""Functions that write a handle to their first argument."""
NUMBERS = {"DeviceGetCount": 1, "DriverGetVersion": 13000, "OccupancyMaxActiveBlocksPerMultiprocessor": 1}
"""Functions that write a number to their first argument, and the number."""
TABLE = """
extern "C" int cuGetExportTable(const void **table, const void *) {
    static const unsigned long long bytes = sizeof bytes;
    *table = &bytes;
    return 0;
}
"""
"""An empty table of further functions, which begins with its size; cuDNN reads it to load kernels that it compiled."""


def source() -> str:
    """Return the source of the library, in C++."""
    code = [TABLE, "static char handle[4096];"]
    for name in FUNCTIONS.split():
        if name in GIVING.split():
            code.append(f'extern "C" int cu{name}(void **made) {{ *made = handle; return 0; }}')
        elif name in NUMBERS:
            code.append(f'extern "C" int cu{name}(int *found) {{ *found = {NUMBERS[name]}; return 0; }}')
        else:
            code.append(f'extern "C" int cu{name}() {{ return 0; }}')
    return "\n".join(code)


def load_driver() -> bool:
    """Load the driver's library, or a stand-in whose functions do nothing; return whether it is the stand-in.

    Raises `RuntimeError` if there is neither a driver nor a C++ compiler.
    """
    try:
        ctypes.CDLL(NAME)
    except OSError:
        actual = compiler()
        if actual is None:
            raise RuntimeError(f"there is no {NAME}, and no C++ compiler to make one with") from None
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, NAME)
            command = [actual, "-shared", "-fPIC", f"-Wl,-soname,{NAME}", "-x", "c++", "-", "-o", str(result)]
            subprocess.run(command, input=source(), text=True, check=True)
            ctypes.CDLL(str(result), mode=ctypes.RTLD_GLOBAL)  # stays loaded, and is found by its name
        return True
    return False

"""`python -m tests.backends.cuda.cublaslt.descriptions`: the real cuBLASLt accepts every attribute that netspec sets.

Needs no GPU, but the library (444 MB): `NETSPEC_CUBLASLT=path`, or the wheel `nvidia-cublas`. Each attribute is set and
read back. Without a driver, the library does not select algorithms, so these are not tested. The exit status is 1 if an
attribute differs.
"""

from __future__ import annotations

import ctypes
import os
import sys

from netspec.backends.cuda import wheel_libraries
from netspec.backends.cuda.cublaslt.library import SETTING, CublasLtLibrary, load
from netspec.backends.cuda.cublaslt.native import (
    ComputeType,
    CublasLtError,
    CublasLtObject,
    CudaType,
    MatmulDesc,
    MatmulPreference,
    MatrixLayout,
    ObjectAttribute,
)


def differing(described: CublasLtObject, attributes: type[ObjectAttribute]) -> list[str]:
    """Return the attributes that the library does not return as they were set."""
    actual = []
    read = getattr(described.library.functions, f"cublasLt{described.kind}GetAttribute")
    for attribute in attributes:
        described.set(attribute, 1)
        stored, written = attribute.c_value(0), ctypes.c_size_t()
        size = ctypes.c_size_t(ctypes.sizeof(stored))
        code = read(described.pointer, attribute.number, ctypes.byref(stored), size, ctypes.byref(written))
        if code or stored.value != 1 or written.value != ctypes.sizeof(stored):
            actual.append(f"{attribute}: status {code}, {stored.value} in {written.value} bytes")
    return actual


def main() -> int:
    """Check all attributes; return the exit status."""
    setting = os.environ.get(SETTING)
    paths = [setting] if setting else [str(path) for path in wheel_libraries("libcublasLt.so.1[23]")]
    library = load(paths[0]) if paths else f"no wheel nvidia-cublas, and {SETTING} names no library"
    if not isinstance(library, CublasLtLibrary):
        print(library)
        return 1
    wrong = []
    for compute in ComputeType:
        scale = CudaType.FLOAT64 if compute == ComputeType.FLOAT64 else CudaType.FLOAT32
        wrong += differing(
            CublasLtObject(library, "MatmulDesc", ctypes.c_int(compute), ctypes.c_int(scale)), MatmulDesc
        )
    for kind in CudaType:
        sizes = ctypes.c_uint64(3), ctypes.c_uint64(5), ctypes.c_int64(4)
        wrong += differing(CublasLtObject(library, "MatrixLayout", ctypes.c_int(kind), *sizes), MatrixLayout)
    wrong += differing(CublasLtObject(library, "MatmulPreference"), MatmulPreference)
    try:
        CublasLtObject(library, "")
        driver = "a handle can be made here"
    except CublasLtError as error:
        driver = str(error)
    print("\n".join([f"{library.path} {library.version}: {len(wrong)} attributes differ; {driver}", *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

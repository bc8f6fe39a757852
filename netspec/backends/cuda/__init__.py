"""The CUDA backend: kernels in CUDA C++, compiled by NVRTC through CuPy for the GPU of the machine.

`scalar_code` and `kernels.elementwise` generate elementwise kernels; the others are written by hand. `launch` defines
how a kernel is called; `prelude.cuh` precedes each. Importing this package loads neither CuPy nor CUDA.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def unavailable_reason() -> str | None:
    """Return why this backend cannot be used; None if it can."""
    try:
        import cupy  # noqa: F401  # only a device that is opened asks
    except ImportError:
        return "the package cupy is not installed"
    return None


def cuda_version() -> tuple[int, int] | None:
    """CUDA version that CuPy was built for, major and minor; None without CuPy."""
    if unavailable_reason() is not None:
        return None
    import cupy

    version = int(cupy.cuda.runtime.runtimeGetVersion())
    return version // 1000, version % 1000 // 10


def description() -> str:
    """The libraries that compile and run its kernels."""
    import cupy

    return f"CuPy {cupy.__version__}, CUDA {'.'.join(map(str, cuda_version() or ()))}"


def wheel_libraries(pattern: str) -> list[Path]:
    """Files `nvidia/*/lib/PATTERN` of the installed packages, e.g. `libcublasLt.so.13`, sorted."""
    spec = find_spec("nvidia")  # a namespace package of many wheels
    folders = () if spec is None else spec.submodule_search_locations or ()
    return sorted(path for folder in folders for path in Path(folder).glob(f"*/lib/{pattern}"))

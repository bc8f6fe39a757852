"""The cuda backend: kernels of our own in CUDA C++, compiled for the GPU at hand by NVRTC through CuPy.

`scalar` and `elementwise` write elementwise ops and groups of them; the others are written by hand. `launch` says what
a kernel is called with; `prelude.cuh` is what each begins with. Importing this touches neither CuPy nor CUDA.
"""

from __future__ import annotations


def missing() -> str | None:
    """Why this backend cannot be used, or None."""
    try:
        import cupy  # noqa: F401  # only a device that is opened asks
    except ImportError:
        return "the package cupy is not installed"
    return None


def cuda_version() -> tuple[int, int] | None:
    """The CUDA that CuPy was built for, major and minor; None without CuPy."""
    if missing() is not None:
        return None
    import cupy

    version = int(cupy.cuda.runtime.runtimeGetVersion())
    return version // 1000, version % 1000 // 10


def about() -> str:
    """What compiles and runs it."""
    import cupy

    return f"CuPy {cupy.__version__}, CUDA {'.'.join(map(str, cuda_version() or ()))}"

"""The numba backend: kernels of our own, compiled for the machine at hand and kept on disk.

`trace` and `codegen` turn elementwise ops into scalar source; the kernels written by hand (`pooling`, `reduce`, …) are
functions over pointers. `native` compiles either with numba, once, to machine code that later runs load without it;
`threads` runs them on the OpenMP threads that oneDNN uses too.
"""

from __future__ import annotations

from importlib.util import find_spec


def missing() -> str | None:
    """Why this backend cannot be used, or None."""
    for package in ("numba", "llvmlite"):
        if find_spec(package) is None:
            return f"the package {package} is not installed"
    return None


def about() -> str:
    """What compiles and runs it."""
    from importlib.metadata import version

    from netspec.backends.openmp import thread_count

    return f"numba {version('numba')}, llvmlite {version('llvmlite')}, {thread_count()} threads"

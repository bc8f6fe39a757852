"""The numba backend: kernels compiled for the CPU of the machine and cached on disk.

`scalar_code` and `codegen` generate the source of elementwise kernels; the kernels written by hand (`kernels.pooling`,
`kernels.reduction`, …) are functions over pointers. `native` compiles both with numba, once, to machine code that later
runs load without numba; `threads` runs them on the OpenMP threads that oneDNN uses too. `winograd` is a separate
backend.
"""

from __future__ import annotations

from importlib.util import find_spec


def unavailable_reason() -> str | None:
    """Return why this backend cannot be used; None if it can."""
    for package in ("numba", "llvmlite"):
        if find_spec(package) is None:
            return f"the package {package} is not installed"
    return None


def description() -> str:
    """Versions of the compiler, and the number of threads."""
    from importlib.metadata import version

    from netspec.backends.openmp import thread_count

    return f"numba {version('numba')}, llvmlite {version('llvmlite')}, {thread_count()} threads"

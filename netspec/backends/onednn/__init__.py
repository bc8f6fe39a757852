"""Kernels by oneDNN, Intel's library of compiled primitives, called through `ctypes`: no compiler, no extension module.

`library` finds the shared library, `engine` is a processor it runs on, `memory` describes and holds arrays, `primitive`
binds a computation to them, and the other files say how each family of primitives is made.
"""

from __future__ import annotations


def missing() -> str | None:
    """Why its kernels cannot be used here; None if they can."""
    from netspec.backends.onednn.library import why_missing

    return why_missing() or None


def about() -> str:
    """Which library runs it, with which instructions of the processor."""
    from netspec.backends.onednn.library import open_library
    from netspec.backends.openmp import thread_count

    library = open_library()
    if library is None:
        return ""
    version = ".".join(map(str, library.version))
    brain = "bfloat16" if library.multiplies_bfloat16 else "no bfloat16 instructions"
    return f"oneDNN {version}, {library.instruction_set} ({brain}), {thread_count()} threads, {library.path}"

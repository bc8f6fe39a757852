"""Kernels by oneDNN, Intel's library of compiled primitives, called through `ctypes`: no compiler, no extension module.

`library` finds the shared library, `native` calls it, `memory` describes and holds arrays, `primitive` binds a
computation to them, `primitive_descs` describes each family of primitives, and `kernels` contains the kernels.
"""

from __future__ import annotations


def unavailable_reason() -> str | None:
    """Return why this backend cannot be used; None if it can."""
    from netspec.backends.onednn.library import unavailable_reason as reason

    return reason() or None


def description() -> str:
    """Version of the library, and the CPU instructions that it uses."""
    from netspec.backends.onednn.library import open_library
    from netspec.backends.openmp import thread_count

    library = open_library()
    if library is None:
        return ""
    version = ".".join(map(str, library.version))
    brain = "bfloat16" if library.multiplies_bfloat16 else "no bfloat16 instructions"
    return f"oneDNN {version}, {library.instruction_set} ({brain}), {thread_count()} threads, {library.path}"

"""Matrix products by cuBLASLt, NVIDIA's library for them, called through `ctypes`.

`library` finds it, `native` declares its functions, `matmul` makes a call of a product, and `kernels` use
it for dense layers with their bias, 1x1 convolutions and recurrences. Importing this package loads nothing.
"""

from __future__ import annotations


def unavailable_reason() -> str | None:
    """Return why this backend cannot be used; None if it can."""
    from netspec.backends.cuda.cublaslt.library import unavailable_reason as reason

    return reason()


def description() -> str:
    """Version and file of the library."""
    from netspec.backends.cuda.cublaslt.library import open_library

    library = open_library()
    return f"cuBLASLt {'.'.join(map(str, library.version))}, {library.path}"

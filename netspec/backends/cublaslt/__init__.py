"""Matrix products by cuBLASLt, NVIDIA's library for them, called through `ctypes`.

`library` finds it, `native` says how its functions are called, `product` makes a call of a product, and `kernels` says
which nodes are products: dense layers with their bias, convolutions of single points. Importing this loads nothing.
"""

from __future__ import annotations


def missing() -> str | None:
    """Why its kernels cannot be used here; None if they can."""
    from netspec.backends.cublaslt.library import why_missing

    return why_missing()


def about() -> str:
    """Which library runs it."""
    from netspec.backends.cublaslt.library import open_library

    library = open_library()
    return f"cuBLASLt {'.'.join(map(str, library.version))}, {library.path}"

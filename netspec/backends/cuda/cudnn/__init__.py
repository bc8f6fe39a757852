"""Convolutions, batch normalization and attention by cuDNN, through its frontend's Python package `cudnn`.

`library` loads it, `plans` makes it plan operations, the modules `*_graph` describe operations as cuDNN graphs, and
`kernels` contains the kernels. Importing this package loads nothing.
"""

from __future__ import annotations


def unavailable_reason() -> str | None:
    """Return why this backend cannot be used; None if it can."""
    from netspec.backends.cuda.cudnn.library import unavailable_reason as reason

    return reason()


def description() -> str:
    """Version of the library."""
    from netspec.backends.cuda.cudnn.library import frontend, version

    return f"cuDNN {'.'.join(map(str, version(frontend())))}, frontend {frontend().__version__}"


def planning_caveat(gpu: str) -> str | None:
    """Return why its kernels are planned for a GPU, one of `GPUS`, without asking the library; None if it is asked."""
    from netspec.backends.cuda.cudnn.library import planning_caveat

    return planning_caveat(gpu)

"""Convolutions, batch normalization and attention by cuDNN, through its frontend's Python package `cudnn`.

`library` loads it, `plans` has it plan operations, `convolutions`, `normalizations` and `attentions` put these in its
words, and the modules that `kernels` names say which nodes they are. Importing this loads nothing.
"""

from __future__ import annotations


def missing() -> str | None:
    """Why its kernels cannot be used here; None if they can."""
    from netspec.backends.cudnn.library import why_missing

    return why_missing()


def about() -> str:
    """Which library runs it."""
    from netspec.backends.cudnn.library import frontend, version

    return f"cuDNN {'.'.join(map(str, version(frontend())))}, frontend {frontend().__version__}"


def assumed(gpu: str) -> str | None:
    """Why its kernels are planned for a GPU, one of `GPUS`, without the library being asked; None where it is."""
    from netspec.backends.cudnn.library import why_not_asked

    return why_not_asked(gpu)

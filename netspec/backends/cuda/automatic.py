"""Whether the device `auto` is a GPU: where there is one that can be used it is, whatever the net."""

from __future__ import annotations

from netspec.backends.cuda.presence import Unsuited, check_apart, signs_of_gpu, usable_gpu
from netspec.parallel import world

NO_GPU = ""
"""There is none, and so nothing to say of it."""


def against_gpu(why: str | None = None) -> str | None:
    """Why `auto` is the processor, in a sentence or none; None where it is a GPU. `why` is a reason of the caller's.

    All workers come here and find the same: what one of them has against it holds for all. Raises `InputError` where
    there is a GPU and something about it is broken.
    """
    told = [one for one in world().gather(_against_mine(why)) if one is not None]
    if told:
        return str(max(told))  # a sentence rather than none
    try:
        check_apart(*usable_gpu())
    except Unsuited as error:
        return _unsuited(error)
    return None


def _against_mine(why: str | None) -> str | None:
    if not signs_of_gpu():
        return NO_GPU
    if why is not None:
        return _sentence(why)
    try:
        usable_gpu()
    except Unsuited as error:
        return _unsuited(error)
    return None


def _unsuited(error: Unsuited) -> str:
    (problem,) = error.problems
    return _sentence(f"{problem.brief} ({problem.hint})" if problem.hint else problem.brief)


def _sentence(why: str) -> str:
    return f"computed on the processor, not on a GPU: {why}"

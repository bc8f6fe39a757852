"""Arrays that lie side by side in memory, gaps of the alignment between them: what can be sent as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from netspec.graph.plan import ALIGNMENT


def address(array: Any) -> int:
    """Where an array begins."""
    return int(array.ctypes.data)


def side_by_side(arrays: Sequence[Any]) -> list[list[int]]:
    """The numbers of the arrays, those together that lie in a row."""
    runs = [[0]] if arrays else []
    for number, (before, after) in enumerate(pairwise(arrays), 1):
        gap = address(after) - address(before) - before.nbytes
        if 0 <= gap < ALIGNMENT and _owner(after) is _owner(before):
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def span(first: Any, count: int) -> Any:
    """So many numbers from the beginning of an array on, in its memory: a flat array."""
    import numpy as np

    whole = _owner(first).reshape(-1)
    start = address(first) - address(whole)
    return whole.view(np.uint8)[start : start + count * first.itemsize].view(first.dtype)


def spans(arrays: Sequence[Any]) -> list[Any]:
    """Flat arrays that span those which lie side by side, gaps included."""
    found = []
    for run in side_by_side(arrays):
        first, last = arrays[run[0]], arrays[run[-1]]
        found.append(span(first, (address(last) + last.nbytes - address(first)) // first.itemsize))
    return found


def _owner(array: Any) -> Any:
    """The array that the memory of a view belongs to."""
    import numpy as np

    while isinstance(array.base, np.ndarray):
        array = array.base
    return array

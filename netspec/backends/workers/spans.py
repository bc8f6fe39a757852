"""Arrays that lie side by side in memory, gaps of the alignment between them: what can be sent as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from netspec.graph.plan import aligned
from netspec.parallel import Pending


def address(array: Any) -> int:
    """Where an array begins."""
    return int(array.ctypes.data)


class Bundle:
    """Arrays of one type as one piece of memory, of the same form on all workers: each array is at an aligned place.

    Where they lie so already, that is their memory. Else, which may be so on some workers alone, it is memory beside,
    and they are copied.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        import numpy as np

        self.starts = [0]
        """Where each array begins, in numbers; and one more, behind the last."""
        itemsize = arrays[0].itemsize
        for one in arrays:
            self.starts.append(self.starts[-1] + aligned(one.nbytes) // itemsize)
        self.size = self.starts[-2] + arrays[-1].size
        beside = not _side_by_side(arrays)
        self.whole = np.zeros(self.size, arrays[0].dtype) if beside else span(arrays[0], self.size)
        """All of it: flat."""
        places = [self.whole[start : start + one.size] for start, one in zip(self.starts, arrays, strict=False)]
        self._copies = [(place.reshape(one.shape), one) for place, one in zip(places, arrays, strict=True) if beside]

    def fill(self) -> None:
        """Take what the arrays hold."""
        for place, array in self._copies:
            place[...] = array

    def empty(self) -> None:
        """Give the arrays what it holds."""
        for place, array in self._copies:
            array[...] = place


class Emptied:
    """What is under way in a bundle, whose arrays get it in the end."""

    def __init__(self, pending: Pending, bundle: Bundle) -> None:
        self._pending, self._bundle = pending, bundle

    def advance(self) -> bool:
        """Whether it is complete."""
        return self._pending.advance()

    def wait(self) -> None:
        """Wait, and give the arrays what came."""
        self._pending.wait()
        self._bundle.empty()


def span(first: Any, count: int) -> Any:
    """So many numbers from the beginning of an array on, in its memory: a flat array."""
    import numpy as np

    whole = _owner(first).reshape(-1)
    start = address(first) - address(whole)
    return whole.view(np.uint8)[start : start + count * first.itemsize].view(first.dtype)


def _side_by_side(arrays: Sequence[Any]) -> bool:
    """Whether each array begins at the aligned place behind the one before, in the same memory."""
    return all(
        address(after) - address(before) == aligned(before.nbytes) and _owner(after) is _owner(before)
        for before, after in pairwise(arrays)
    )


def _owner(array: Any) -> Any:
    """The array that the memory of a view belongs to."""
    import numpy as np

    while isinstance(array.base, np.ndarray):
        array = array.base
    return array

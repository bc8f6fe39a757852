"""Arrays that are adjacent in memory, except for alignment gaps, and can be sent as one message."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any

from netspec.distributed import Communicator, Pending, world
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Thunk


def address(array: Any) -> int:
    """Return the address of an array."""
    return int(array.ctypes.data)


class Bundle:
    """Arrays of one type in one contiguous buffer with the same layout on all workers; each array is aligned.

    If the arrays are already stored in this layout, the buffer is their memory. Otherwise, possibly only on some
    workers, it is separate memory, and the arrays are copied.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        import numpy as np

        self.starts = [0]
        """Where each array begins, in numbers; and one more, behind the last."""
        itemsize = arrays[0].itemsize
        for one in arrays:
            self.starts.append(self.starts[-1] + align_up(one.nbytes) // itemsize)
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
        """Wait, then copy the received values to the arrays."""
        self._pending.wait()
        self._bundle.empty()


def span(first: Any, count: int) -> Any:
    """Return a flat view of `count` elements of the memory that starts with an array."""
    import numpy as np

    whole = _owner(first).reshape(-1)
    start = address(first) - address(whole)
    return whole.view(np.uint8)[start : start + count * first.itemsize].view(first.dtype)


def _side_by_side(arrays: Sequence[Any]) -> bool:
    """Whether each array begins at the aligned place behind the one before, in the same memory."""
    return all(
        address(after) - address(before) == align_up(before.nbytes) and _owner(after) is _owner(before)
        for before, after in pairwise(arrays)
    )


def _owner(array: Any) -> Any:
    """The array that the memory of a view belongs to."""
    import numpy as np

    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def filling(inputs: Sequence[Any], outputs: Sequence[Any]) -> Thunk:
    """What copies operands to where their results lie; nothing to do where they lie there already."""
    apart = [
        (target, source)
        for source, target in zip(inputs, outputs, strict=True)
        if target is not None and address(target) != address(source)
    ]

    def run() -> None:
        for target, source in apart:
            target[...] = source

    return run


def send(workers: Communicator, key: int, start: Callable[[], list[Pending]]) -> None:
    """Set something going, by the address of its first array, and let MPI go on with what is under way."""
    for others in workers.in_flight.values():
        for one in others:
            one.advance()
    workers.finish(key)  # of a step that was broken off
    workers.in_flight[key] = start()


def joining(key: Hashable, place: Thunk) -> Thunk:
    """What waits for what was set going under a key, and puts what came where it belongs."""
    workers = world()

    def run() -> None:
        workers.finish(key)
        place()

    return run

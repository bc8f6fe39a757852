"""Arrays that are adjacent in memory, except for alignment gaps, and can be sent as one message."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from netspec.distributed import Communicator, Pending, world
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Thunk


def address(array: Any) -> int:
    """Return the address of an array."""
    return int(array.ctypes.data)


class BucketBuffer:
    """Arrays of one type in one contiguous buffer with the same layout on all workers; each array is aligned.

    If the arrays are already stored in this layout, the buffer is their memory. Otherwise, possibly only on some
    workers, it is separate memory, and the arrays are copied.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.starts = [0]
        """Offset of each array, in elements, and the aligned end of the last."""
        itemsize = arrays[0].itemsize
        for array in arrays:
            self.starts.append(self.starts[-1] + align_up(array.nbytes) // itemsize)
        self.size = self.starts[-2] + arrays[-1].size
        separate = not _is_contiguous(arrays)
        self.whole = np.zeros(self.size, arrays[0].dtype) if separate else flat_view(arrays[0], self.size)
        """The whole buffer, flat."""
        slots = [self.whole[start : start + array.size] for start, array in zip(self.starts, arrays, strict=False)]
        self._copies = [
            (slot.reshape(array.shape), array) for slot, array in zip(slots, arrays, strict=True) if separate
        ]

    def pack(self) -> None:
        """Copy the arrays into the buffer, unless they are stored there."""
        for slot, array in self._copies:
            slot[...] = array

    def unpack(self) -> None:
        """Copy the buffer back to the arrays, unless they are stored there."""
        for slot, array in self._copies:
            array[...] = slot


class UnpackOnWait:
    """A pending call on a buffer, which is unpacked when the call is complete."""

    def __init__(self, pending: Pending, bundle: BucketBuffer) -> None:
        self._pending, self._bundle = pending, bundle

    def advance(self) -> bool:
        """Progress the call; return whether it is complete."""
        return self._pending.advance()

    def wait(self) -> None:
        """Wait, then copy the received values to the arrays."""
        self._pending.wait()
        self._bundle.unpack()


def flat_view(first: Any, count: int) -> Any:
    """Return a flat view of `count` elements of the memory that starts with an array."""
    owner = _owner(first).reshape(-1)
    start = address(first) - address(owner)
    return owner.view(np.uint8)[start : start + count * first.itemsize].view(first.dtype)


def _is_contiguous(arrays: Sequence[Any]) -> bool:
    """Return whether each array begins at the aligned end of the previous one, in the same memory."""
    return all(
        address(after) - address(before) == align_up(before.nbytes) and _owner(after) is _owner(before)
        for before, after in pairwise(arrays)
    )


def _owner(array: Any) -> Any:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def copies_to_outputs(inputs: Sequence[Any], outputs: Sequence[Any]) -> Thunk:
    """Return a call that copies operands to the memory of their results, unless they share it."""
    copies = [
        (target, source)
        for source, target in zip(inputs, outputs, strict=True)
        if target is not None and address(target) != address(source)
    ]

    def run() -> None:
        for target, source in copies:
            target[...] = source

    return run


def start_call(workers: Communicator, key: int, start: Callable[[], list[Pending]]) -> None:
    """Start calls under a key, the address of their first array, and progress the pending calls."""
    for others in workers.in_flight.values():
        for calls in others:
            calls.advance()
    workers.finish(key)  # left by a step that was interrupted
    workers.in_flight[key] = start()


def join_call(key: Hashable, slot: Thunk) -> Thunk:
    """Return a call that waits for the calls started under a key, then stores the results."""
    workers = world()

    def run() -> None:
        workers.finish(key)
        slot()

    return run

"""GPU buffers that are sent as one message, and copies between arrays and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.kernels.elementwise import copy
from netspec.backends.cuda.side_stream import side_stream
from netspec.distributed import world
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Thunk


def address(array: Any) -> int:
    """Return the address of an array."""
    return launch.engine.address(array)


def memory(count: int, dtype: Any) -> Any:
    """Allocate `count` zeros that live as long as a program."""
    return launch.engine.table(np.zeros(count * np.dtype(dtype).itemsize, np.uint8)).view(dtype)


def all_of(calls: Sequence[Thunk]) -> Thunk:
    """Return a call that runs all calls in order."""

    def run() -> None:
        for call in calls:
            call()

    return run


def copying(sources: Sequence[Any], targets: Sequence[Any]) -> Thunk:
    """Return a call that copies arrays into others of the same shapes; floats are rounded."""
    copies = zip(sources, targets, strict=True)
    return all_of([copy(source, target) for source, target in copies if target.size])


def copies_to_outputs(inputs: Sequence[Any], outputs: Sequence[Any]) -> Thunk:
    """Return a call that copies operands to the memory of their results, unless they share it."""
    sources_and_targets = [
        (source, target)
        for source, target in zip(inputs, outputs, strict=True)
        if target is not None and address(target) != address(source)
    ]
    return copying([source for source, _ in sources_and_targets], [target for _, target in sources_and_targets])


def join_call(first: Any, store: Thunk) -> Thunk:
    """Return a call that makes the step's stream wait for the call whose key is an array's address, then stores."""
    return store if world().size == 1 else all_of([partial(side_stream().join, address(first)), store])


class BucketBuffer:
    """Arrays of one type in one contiguous buffer, as in the backend `workers`; copied unless they are contiguous."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.starts = [0]
        """Offset of each array, in elements, and the aligned end of the last."""
        for array in arrays:
            self.starts.append(self.starts[-1] + align_up(array.nbytes) // array.itemsize)
        self.size = self.starts[-2] + arrays[-1].size
        self.dtype = str(arrays[0].dtype)
        neighbors = pairwise(arrays)
        if all(address(after) - address(before) == align_up(before.nbytes) for before, after in neighbors):
            self.address = address(arrays[0])
            """Address of the buffer."""
            self.pack = self.unpack = all_of(())
            """Copy the arrays into the buffer, and back; nothing to do if they are stored there."""
            return
        self._memory = memory(self.size, arrays[0].dtype)
        self.address = address(self._memory)
        flat = [array.reshape(-1) for array in arrays]
        slots = [self._memory[start : start + array.size] for start, array in zip(self.starts, arrays, strict=False)]
        self.pack, self.unpack = copying(flat, slots), copying(slots, flat)

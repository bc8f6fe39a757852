"""`Mirror`: memory of the processor that goes with an array of the GPU's, for what the processor carries."""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from netspec.backends.cuda import launch
from netspec.parallel.nccl import has_come
from netspec.parallel.waiting import wait_until


class Mirror:
    """As many bytes, which the GPU reads and writes by itself when their turn in the current stream comes."""

    def __init__(self, cuda: Any, nbytes: int) -> None:
        """`cuda` is CuPy's module of that name."""
        self._cuda = cuda
        self._bytes = np.frombuffer(cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
        self._copied = cuda.Event(disable_timing=True)

    def like(self, array: Any) -> Any:
        """A NumPy array of these bytes, of the shape and type of one that they mirror."""
        return self._bytes.view(array.dtype).reshape(array.shape)

    def take(self, array: Any) -> None:
        """Have it hold what the array does."""
        stream = self._cuda.get_current_stream()
        array.data.copy_to_host_async(self._bytes.ctypes.data, array.nbytes, stream)
        self._copied.record(stream)

    def give(self, array: Any) -> None:
        """Have the array hold what it does."""
        stream = self._cuda.get_current_stream()
        array.data.copy_from_host_async(self._bytes.ctypes.data, array.nbytes, stream)
        self._copied.record(stream)

    def settle(self) -> None:
        """Wait for the last copy, so that the watchdog sees it: what comes before may wait for another worker's GPU."""
        wait_until(partial(has_come, self._copied))


_mirrors: WeakValueDictionary[tuple[int, int], Mirror] = WeakValueDictionary()


def mirror(array: Any) -> Mirror:
    """That of the memory of an array: one for all who ask, so that who waits for a value finds where it arrives."""
    import cupy

    key = launch.engine.address(array), int(array.nbytes)
    found = _mirrors.get(key)
    if found is None:
        found = _mirrors[key] = Mirror(cupy.cuda, array.nbytes)
    return found

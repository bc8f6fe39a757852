"""`PinnedBuffer`: pinned host memory for a GPU array that communication through the host needs."""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.execution_queue import is_complete
from netspec.backends.process_group import world


class PinnedBuffer:
    """Pinned bytes that the GPU reads and writes in the order of the current stream."""

    def __init__(self, cuda: Any, nbytes: int) -> None:
        """`cuda` is CuPy's module of that name."""
        self._cuda = cuda
        self._bytes = np.frombuffer(cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
        self._copied = cuda.Event(disable_timing=True)

    def view_like(self, array: Any) -> Any:
        """A NumPy view of these bytes with the shape and type of a device array."""
        return self._bytes.view(array.dtype).reshape(array.shape)

    def copy_from(self, array: Any) -> None:
        """Copy a device array into the buffer."""
        stream = self._cuda.get_current_stream()
        array.data.copy_to_host_async(self._bytes.ctypes.data, array.nbytes, stream)
        self._copied.record(stream)

    def copy_to(self, array: Any) -> None:
        """Copy the buffer into a device array."""
        stream = self._cuda.get_current_stream()
        array.data.copy_from_host_async(self._bytes.ctypes.data, array.nbytes, stream)
        self._copied.record(stream)

    def settle(self) -> None:
        """Wait for the last copy, visibly to the watchdog: it may wait for another worker's GPU."""
        world().wait_until(partial(is_complete, self._copied))


_mirrors: WeakValueDictionary[tuple[int, int], PinnedBuffer] = WeakValueDictionary()


def pinned_buffer(array: Any) -> PinnedBuffer:
    """The buffer for an array's memory, the same for all callers: one finds the value that another one received."""
    import cupy

    key = launch.engine.address(array), int(array.nbytes)
    buffer = _mirrors.get(key)
    if buffer is None:
        buffer = _mirrors[key] = PinnedBuffer(cupy.cuda, array.nbytes)
    return buffer

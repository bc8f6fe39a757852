"""`ProcessGroup`: the group of workers as devices and programs see it, here a group of one process.

`netspec.distributed` installs its own group when it is imported; without it every process is alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from netspec.errors import InputError

POLL_INTERVAL = 5e-5
"""Seconds between two checks whether a call is complete."""


class PeerFailure(Exception):
    """Another worker has failed, so that this worker would wait forever."""


class ProcessGroup:
    """A group of workers, of which this process is one. The base class is a group of one."""

    rank: int = 0
    """Index of this worker, from 0."""
    size: int = 1
    """Number of workers."""
    host_rank: int = 0
    """Index of this worker among those of its host."""
    sent: float = 0.0
    """Bytes that this worker has sent in collective calls so far."""
    silent: bool = False
    """True while programs must not communicate, so that a worker can run part of a step alone."""

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Prevent programs from communicating inside the block."""
        self.silent = True
        try:
            yield
        finally:
            self.silent = False

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Return the JSON data of every worker, in the order of ranks."""
        return [value]

    def share_memory(self, nbytes: int) -> Any:
        """Return a NumPy array of bytes that all workers of this host share, with undefined contents.

        Raises `RunError` if the host does not have enough memory.
        """
        import numpy as np

        return np.zeros(nbytes, np.uint8)

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until `done()` is true. Raises `PeerFailure` if another worker has failed."""
        while not done():
            time.sleep(POLL_INTERVAL)

    def gpu_link_error(self) -> InputError | None:
        """Return the error if the workers' GPUs can't communicate."""
        return None

    def check_gpu_links(self) -> None:
        """Raise `RunError` if communication between GPUs that was started can never complete."""


class RecordedGraphs(Protocol):
    """An owner of CUDA graphs that contain communication."""

    def forget(self) -> None:
        """Drop the graphs."""


communicating_graphs: WeakSet[RecordedGraphs] = WeakSet()
"""Owners of graphs that must be dropped before NCCL groups are destroyed: since version 2.26, NCCL waits for that."""

_ALONE = ProcessGroup()
_installed: list[Callable[[], ProcessGroup]] = []


def world() -> ProcessGroup:
    """Return the group of all workers of this job."""
    return _installed[-1]() if _installed else _ALONE


def install_world(current: Callable[[], ProcessGroup]) -> None:
    """Make `world` return what `current` returns."""
    _installed[:] = [current]

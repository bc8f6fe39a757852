"""Workers that are threads of this process, for tests of several workers without starting processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from netspec.distributed import Communicator

T = TypeVar("T")


class _Table:
    """A slot for each worker, and a barrier between writing and reading."""

    def __init__(self, size: int) -> None:
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=30)


class Threads(Communicator):
    """A worker that is a thread; supports only blocking calls."""

    def __init__(self, table: _Table, rank: int) -> None:
        super().__init__()
        self._table, self.rank, self.size = table, rank, len(table.slots)

    def _all(self, value: Any) -> list[Any]:
        self._table.barrier.wait()
        self._table.slots[self.rank] = value
        self._table.barrier.wait()
        actual = list(self._table.slots)
        self._table.barrier.wait()  # no thread overwrites a slot that another thread still reads
        return actual

    def all_gather_bytes(self, data: bytes) -> list[bytes]:
        return self._all(data)

    def gather(self, array: Any) -> Any:
        actual = self._all(np.array(array))
        return np.stack(actual) if self.is_first else None

    def scatter(self, arrays: Any, like: Any) -> Any:
        return self._all(arrays)[0][self.rank].copy()

    def gatherv(self, array: Any, counts: Sequence[int]) -> list[Any] | None:
        assert array.size == counts[self.rank]
        actual = self._all(np.array(array))
        return actual if self.is_first else None

    def scatterv(self, arrays: Sequence[Any] | None, counts: Sequence[int], dtype: str) -> Any:
        actual = self._all(arrays)[0][self.rank].copy()
        assert (actual.size, str(actual.dtype)) == (counts[self.rank], dtype)
        return actual

    def broadcast(self, array: Any, root: int = 0) -> None:
        array[...] = self._all(array.copy())[root]


def together(size: int, work: Callable[[Communicator], T]) -> list[T]:
    """Run `work` on `size` workers, and return their results in the order of ranks."""
    table = _Table(size)

    def one(rank: int) -> T:
        try:
            return work(Threads(table, rank))
        except BaseException:
            table.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        running = [pool.submit(one, rank) for rank in range(size)]
        failed = [error for future in running if (error := future.exception()) is not None]
        for error in failed:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [future.result() for future in running]

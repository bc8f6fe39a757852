"""Making batches ahead of their use, in a thread: NumPy and the decoders let other threads run while they work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread
from time import perf_counter
from types import TracebackType
from typing import Generic, Self, TypeVar

from netspec.data.thread_pool import Workers

T = TypeVar("T")


SLOW, IN_A_ROW = 1e-3, 3
"""Seconds that making a batch takes from which on a thread pays, and how many in a row must take as long.

A thread that runs in addition to a step's OpenMP threads takes one of their cores and delays every kernel: with
MNIST's batches (0.2 ms) made in a thread, a step of LeNet took 7.3 ms on two cores, and 6.7 ms where they were not.
"""


class Pace:
    """Whether making things has turned out to be slow."""

    def __init__(self) -> None:
        self._slow = 0

    def is_slow(self, seconds: float) -> bool:
        """Record how long an item took; return whether enough items in a row were slow."""
        self._slow = self._slow + 1 if seconds > SLOW else 0
        return self._slow >= IN_A_ROW


class Prefetcher(Generic[T]):
    """The items of an iterator, up to `depth` of them made ahead in a thread; with depth 0, made when asked for.

    The thread starts once making items turns out to be slow: what is there at once need not be made ahead. What the
    iterator raises is raised to the consumer, after the items made before it. `close` stops the thread and waits for
    the item that it is at. `workers`: the threads, if any, that the items are made with; they are closed too.
    """

    def __init__(self, items: Iterator[T], depth: int, workers: Workers | None = None) -> None:
        self._shared = _Shared[T](depth)
        self._items = items
        self._depth = depth
        self._workers = workers
        self._pace = Pace()
        self._thread: Thread | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._thread is not None:
            return self._shared.take()
        if self._shared.stopped:
            raise StopIteration
        began = perf_counter()
        item = next(self._items)
        if self._pace.is_slow(perf_counter() - began) and self._depth:
            # A daemon: an interpreter that shuts down must not wait for a disk.
            self._thread = Thread(target=_fill, args=(self._shared, self._items), name="netspec-prefetch", daemon=True)
            self._thread.start()
        return item

    def close(self) -> None:
        """Stop; nothing more is made or given out."""
        self._shared.stop()
        if self._workers is not None:
            self._workers.stop()
        if self._thread is not None:
            self._thread.join()
        if self._workers is not None:
            self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Shared(Generic[T]):
    """What the thread and the consumer share: the ready items, and how it ended."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._ready: deque[T] = deque()
        self._changed = Condition()
        self._ended = False
        self._error: BaseException | None = None
        self.stopped = False

    def put(self, item: T) -> bool:
        """Add an item once there is room; False when nobody wants more."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or len(self._ready) < self._depth)
            if not self.stopped:
                self._ready.append(item)
            self._changed.notify_all()
            return not self.stopped

    def end(self, error: BaseException | None) -> None:
        """No more items come, because of `error` or because all have come."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def take(self) -> T:
        """The next item once it is there. Raises what ended the items, or StopIteration."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._ready or self._ended)
            if self._ready and not self.stopped:
                self._changed.notify_all()
                return self._ready.popleft()
            error, self._error = self._error, None
            if error is not None and not self.stopped:
                raise error
            raise StopIteration

    def stop(self) -> None:
        """The consumer wants no more."""
        with self._changed:
            self.stopped = True
            self._ready.clear()
            self._changed.notify_all()


def _fill(shared: _Shared[T], items: Iterator[T]) -> None:
    """The thread: it holds `shared` and not the prefetcher, which can so be closed when its consumer forgets it."""
    try:
        for item in items:
            if not shared.put(item):
                return
    except BaseException as error:  # carried to the consumer, who raises it
        shared.end(error)
    else:
        shared.end(None)

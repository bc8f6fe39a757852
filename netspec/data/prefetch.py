"""Prefetching: batches are built ahead in a thread. NumPy and the decoders release the interpreter while they work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread
from time import perf_counter
from typing import Generic, Self, TypeVar

from netspec.data.thread_pool import ThreadPool

T = TypeVar("T")


SLOW, IN_A_ROW = 1e-3, 3
"""Seconds that a batch takes to build from which on a thread pays off, and how many in a row must take that long.

A thread next to the OpenMP threads of a step takes one of their cores and delays every kernel: with MNIST's batches
(0.2 ms) built in a thread, a step of LeNet took 7.3 ms on two cores, without the thread 6.7 ms.
"""


class SlowStreak:
    """Counts slow items in a row."""

    def __init__(self) -> None:
        self._slow = 0

    def is_slow(self, seconds: float) -> bool:
        """Record how long an item took; return whether enough items in a row were slow."""
        self._slow = self._slow + 1 if seconds > SLOW else 0
        return self._slow >= IN_A_ROW


class Prefetcher(Generic[T]):
    """The items of an iterator, up to `depth` of them built ahead in a thread; with depth 0, built on request.

    The thread starts once items are slow to build. An exception of the iterator is raised to the consumer, after the
    items before it. `close` stops the thread and waits for its current item. `workers`: the threads, if any, that build
    the items; they are closed too.
    """

    def __init__(self, items: Iterator[T], depth: int, workers: ThreadPool | None = None) -> None:
        self._shared = _ItemQueue[T](depth)
        self._items = items
        self._depth = depth
        self._workers = workers
        self._pace = SlowStreak()
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
            self._thread = Thread(target=_run, args=(self._shared, self._items), name="netspec-prefetch", daemon=True)
            self._thread.start()
        return item

    def close(self) -> None:
        """Stop: no further item is built or returned."""
        self._shared.stop()
        if self._workers is not None:
            self._workers.stop()
        if self._thread is not None:
            self._thread.join()
        if self._workers is not None:
            self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _ItemQueue(Generic[T]):
    """State shared by the thread and the consumer: the items that are ready, and the end."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._ready: deque[T] = deque()
        self._changed = Condition()
        self._ended = False
        self._error: BaseException | None = None
        self.stopped = False

    def put(self, item: T) -> bool:
        """Add an item once there is room. Returns False if the consumer has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or len(self._ready) < self._depth)
            if not self.stopped:
                self._ready.append(item)
            self._changed.notify_all()
            return not self.stopped

    def end(self, error: BaseException | None) -> None:
        """Record that no more items come, because of `error` or because the iterator has ended."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def take(self) -> T:
        """Return the next item once it is ready. Raises the error that ended the items, or StopIteration."""
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
        """Record that the consumer wants no more items."""
        with self._changed:
            self.stopped = True
            self._ready.clear()
            self._changed.notify_all()


def _run(shared: _ItemQueue[T], items: Iterator[T]) -> None:
    """Run the thread. It does not reference the prefetcher, which is thus closed when it is garbage-collected."""
    try:
        for item in items:
            if not shared.put(item):
                return
    except BaseException as error:  # passed to the consumer, which raises it
        shared.end(error)
    else:
        shared.end(None)

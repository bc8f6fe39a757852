"""A thread pool that prepares parts of batches. NumPy and Pillow release the interpreter while they work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self, TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_Call: TypeAlias = tuple["Future[Any]", Callable[[Any], Any], Any]
"""The future result of a call, the function and its argument."""


def processors() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ThreadPool:
    """A pool of `count` threads, started when they are first needed. `close` ends them after their current items."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._unfinished: set[Future[Any]] = set()
        self._threads: list[Thread] = []
        self._is_stopped = False

    def map_ordered(self, function: Callable[[Item], Result], items: Iterator[Item], most: int) -> Iterator[Result]:
        """Yield `function` of each item, in the order of the items, with at most `most` results pending.

        An exception of the function or of the items is raised in its turn, after the results before it.
        """
        if not self._threads:
            # Daemons: an interpreter that shuts down must not wait for a disk.
            names = [f"netspec-worker-{number}" for number in range(self.count)]
            self._threads = [Thread(target=_work, args=(self._calls,), name=name, daemon=True) for name in names]
            for thread in self._threads:
                thread.start()
        pending: deque[Future[Result]] = deque()
        failed: Exception | None = None
        while failed is None:
            try:
                item = next(items)
            except StopIteration:
                break
            except Exception as error:  # raised below, in its turn
                failed = error
                break
            pending.append(self._begin(function, item))
            if len(pending) >= most:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if failed is not None:
            raise failed

    def _begin(self, function: Callable[[Item], Result], item: Item) -> Future[Result]:
        future: Future[Result] = Future()
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        self._calls.put((future, function, item))
        if self._is_stopped:
            future.cancel()
        return future

    def stop(self) -> None:
        """Start no further item. Consumers that wait for a result get `CancelledError` at once."""
        self._is_stopped = True
        for future in self._unfinished.copy():
            future.cancel()
        self._calls.put(None)

    def close(self) -> None:
        """Stop, and wait for the current items of the threads."""
        self.stop()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _work(calls: SimpleQueue[_Call | None]) -> None:
    """Run a thread until it gets None in place of a call.

    It does not reference the pool, which can thus be garbage-collected. Futures are not marked as running, because a
    running future cannot be canceled, and its consumer would wait until the item ends.
    """
    while (call := calls.get()) is not None:
        future, function, item = call
        if future.cancelled():
            continue
        try:
            result = function(item)
        except BaseException as error:  # passed to the consumer
            with suppress(InvalidStateError):  # canceled meanwhile
                future.set_exception(error)
        else:
            with suppress(InvalidStateError):
                future.set_result(result)
    calls.put(None)  # for the next thread

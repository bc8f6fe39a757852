"""A thread pool that prepares parts of batches. NumPy and Pillow release the interpreter while they work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def processors() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Stopped(Exception):
    """The result is not wanted any more."""


class ThreadPool:
    """A pool of `count` threads, started when they are first needed. `close` ends them after their current items."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._shared = _CallQueue()
        self._threads: list[Thread] = []

    def map_ordered(self, function: Callable[[Item], Result], items: Iterator[Item], most: int) -> Iterator[Result]:
        """Yield `function` of each item, in the order of the items, with at most `most` results pending.

        An exception of the function or of the items is raised in its turn, after the results before it.
        """
        if not self._threads:
            # Daemons: an interpreter that shuts down must not wait for a disk.
            names = [f"netspec-worker-{number}" for number in range(self.count)]
            self._threads = [Thread(target=_work, args=(self._shared,), name=name, daemon=True) for name in names]
            for thread in self._threads:
                thread.start()
        pending: deque[_Call[Item, Result]] = deque()
        failed: Exception | None = None
        while failed is None:
            try:
                item = next(items)
            except StopIteration:
                break
            except Exception as error:  # raised below, in its turn
                failed = error
                break
            pending.append(self._shared.begin(function, item))
            if len(pending) >= most:
                yield self._shared.result(pending.popleft())
        while pending:
            yield self._shared.result(pending.popleft())
        if failed is not None:
            raise failed

    def stop(self) -> None:
        """Start no further item. Consumers that wait for a result get `Stopped`."""
        self._shared.stop()

    def close(self) -> None:
        """Stop, and wait for the current items of the threads."""
        self.stop()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Call(Generic[Item, Result]):
    """An item and its result."""

    def __init__(self, function: Callable[[Item], Result], item: Item) -> None:
        self._function, self._item = function, item
        self._result: Result | None = None
        self._error: BaseException | None = None
        self.done = False

    def run(self) -> None:
        """Compute the result. Never raises: an error is stored as the result."""
        try:
            self._result = self._function(self._item)
        except BaseException as error:  # passed to the consumer
            self._error = error

    def result(self) -> Result:
        """Return the result of the function, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # `None` only if the function returns it


class _CallQueue:
    """State shared by the threads and the consumers: pending calls and their results."""

    def __init__(self) -> None:
        self._calls: deque[_Call[Any, Any]] = deque()
        self._changed = Condition()
        self._stopped = False

    def begin(self, function: Callable[[Item], Result], item: Item) -> _Call[Item, Result]:
        call = _Call(function, item)
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()
        return call

    def result(self, call: _Call[Item, Result]) -> Result:
        with self._changed:
            self._changed.wait_for(lambda: call.done or self._stopped)
            if not call.done:
                raise Stopped
        return call.result()

    def next_call(self) -> _Call[Any, Any] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._calls or self._stopped)
            return None if self._stopped else self._calls.popleft()

    def finish(self, call: _Call[Any, Any]) -> None:
        with self._changed:
            call.done = True
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._calls.clear()
            self._changed.notify_all()


def _work(shared: _CallQueue) -> None:
    """Run a thread. It references `shared` but not the pool, which is thus closed when it is garbage-collected."""
    while (call := shared.next_call()) is not None:
        call.run()
        shared.finish(call)

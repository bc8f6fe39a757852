"""`Calls`: bound thunks in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

from netspec.backends.failures import kernel_failure
from netspec.graph.kernel import Thunk
from netspec.graph.value import Node
from netspec.parallel.base import Broken


class Calls:
    """Thunks to be called one after another, each with the number of threads set that it must find.

    Outside of its calls the number is `usual`: whoever else uses the pool finds it as it was.
    """

    def __init__(self, set_threads: Callable[[int], None], usual: int, wait: Thunk | None = None) -> None:
        """`wait` returns when what the calls have started is done, where they only start it."""
        self._wait = wait or _done
        self._nodes: list[Node | None] = []
        self._thunks: list[Thunk] = []
        self._calls: list[Thunk] = []  # the thunks, and between them what changes the number of threads
        self._set_threads, self._usual, self._now, self._changes = set_threads, usual, usual, False

    def add(self, thunk: Thunk, node: Node | None = None, threads: int | None = None) -> None:
        """One more, the last; `threads` is None where their number does not matter, `node` where a state is copied."""
        if threads is not None and threads != self._now:
            set_threads = self._set_threads
            self._calls.append(lambda: set_threads(threads))
            self._now, self._changes = threads, True
        self._nodes.append(node)
        self._thunks.append(thunk)
        self._calls.append(thunk)

    def run(self) -> None:
        """Call all. Raises `RunError` naming the layer where one fails."""
        thunk: Thunk | None = None
        try:
            for thunk in self._calls:
                thunk()
        except Broken:  # no failure of this worker's
            raise
        except Exception as error:
            failed = next(node for node, one in zip(self._nodes, self._thunks, strict=True) if one is thunk)
            raise kernel_failure(failed, error) from error
        finally:
            if self._changes:
                self._set_threads(self._usual)

    def only(self, wanted: Callable[[Node], bool]) -> list[Thunk]:
        """The thunks of some nodes."""
        found = zip(self._nodes, self._thunks, strict=True)
        return [thunk for node, thunk in found if node is not None and wanted(node)]

    def each(self, ahead: Callable[[Node | None], None] | None = None) -> Iterator[tuple[Node | None, float]]:
        """Call one at a time: its node, and the seconds that it took. Looking at the clock adds some 50 ns.

        `ahead` is called with each node before.
        """
        thunks, wait = dict(zip(map(id, self._thunks), self._nodes, strict=True)), self._wait
        try:
            for call in self._calls:
                if ahead is not None and id(call) in thunks:
                    ahead(thunks[id(call)])
                start = perf_counter()
                call()
                wait()
                end = perf_counter()
                if id(call) in thunks:
                    yield thunks[id(call)], end - start
        finally:
            self._set_threads(self._usual)


def _done() -> None:
    """Nothing: calls on the processor are done when they return."""

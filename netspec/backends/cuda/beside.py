"""`Beside`: a stream beside the one that everything runs on, for what is started early and waited for late."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from netspec.graph.kernel import Thunk


class Beside:
    """Its stream begins with what it is given once all before that is done, and is waited for by events alone.

    What is recorded meanwhile becomes a branch of the graph.
    """

    def __init__(self, cuda: Any) -> None:
        """`cuda` is CuPy's module of that name."""
        self._cuda = cuda
        self._stream: Any = None
        self._underway: dict[int, Call] = {}
        """What was started and not joined, by its key."""

    @property
    def stream(self) -> Any:
        """Made when it is first asked for: of one worker alone never."""
        if self._stream is None:
            self._stream = self._cuda.Stream(non_blocking=True)
        return self._stream

    def call(self, key: int, what: Callable[[int], None], then: Thunk) -> Call:
        """What can be started: `what` is given the stream; `then` is called when it is joined, for the other stream."""
        return Call(self, self._cuda, key, what, then)

    def here(self, what: Callable[[int], None]) -> Thunk:
        """A call that is given the current stream."""
        return lambda: what(self._cuda.get_current_stream().ptr)

    def join(self, key: int) -> None:
        """Have the current stream wait for what was started under a key, if anything was."""
        if (one := self._underway.pop(key, None)) is not None:
            one.join(self._cuda.get_current_stream())

    def rejoin(self) -> None:
        """Have it wait for all: what is recorded ends in one stream."""
        while self._underway:
            self.join(next(iter(self._underway)))

    def begun(self, key: int, one: Call) -> None:
        """Note what was started."""
        self._underway[key] = one


class Call:
    """Something that goes on beside."""

    def __init__(self, beside: Beside, cuda: Any, key: int, what: Callable[[int], None], then: Thunk) -> None:
        self._beside, self._cuda, self._key, self._what, self._then = beside, cuda, key, what, then
        self._ready, self._done = (cuda.Event(disable_timing=True) for _ in range(2))

    def start(self) -> None:
        """When all is done that the current stream was given so far."""
        stream = self._beside.stream
        self._ready.record(self._cuda.get_current_stream())
        stream.wait_event(self._ready)
        with stream:
            self._what(stream.ptr)
        self._done.record(stream)
        self._beside.begun(self._key, self)

    def join(self, stream: Any) -> None:
        """Have a stream, the current one, go on when this is done."""
        stream.wait_event(self._done)
        self._then()


def beside() -> Beside:
    """That of this process."""
    import cupy

    return _beside(cupy)


@cache
def _beside(cupy: Any) -> Beside:
    return Beside(cupy.cuda)

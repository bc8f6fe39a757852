"""`SideStream`: a second stream for work that is started early and waited for late, such as communication."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from netspec.graph.kernel import Thunk


class SideStream:
    """A stream whose work starts after all earlier work on the main stream. Waits are events: the CPU does not wait.

    In a captured graph, the work is a branch.
    """

    def __init__(self, cuda: Any) -> None:
        """`cuda` is CuPy's module of that name."""
        self._cuda = cuda
        self._stream: Any = None
        self._pending: dict[int, SideStreamCall] = {}
        """Calls that were started and not joined, by key."""

    @property
    def stream(self) -> Any:
        """The stream, created on first use: a single worker never needs it."""
        if self._stream is None:
            self._stream = self._cuda.Stream(non_blocking=True)
        return self._stream

    def call(self, key: int, start: Callable[[int], None], finish: Thunk) -> SideStreamCall:
        """Return a call that runs `start` on the side stream, and `finish` on the stream that joins it."""
        return SideStreamCall(self, self._cuda, key, start, finish)

    def on_current_stream(self, start: Callable[[int], None]) -> Thunk:
        """A call that runs `start` on the current stream."""
        return lambda: start(self._cuda.get_current_stream().ptr)

    def join(self, key: int) -> None:
        """Make the current stream wait for the call with this key, if there is one."""
        if (call := self._pending.pop(key, None)) is not None:
            call.join(self._cuda.get_current_stream())

    def rejoin(self) -> None:
        """Make the current stream wait for all calls: a capture must end in one stream."""
        while self._pending:
            self.join(next(iter(self._pending)))

    def register(self, key: int, call: SideStreamCall) -> None:
        """Register a call that was started."""
        self._pending[key] = call


class SideStreamCall:
    """A call on the side stream."""

    def __init__(self, owner: SideStream, cuda: Any, key: int, start: Callable[[int], None], finish: Thunk) -> None:
        self._owner, self._cuda, self._key, self._start, self._finish = owner, cuda, key, start, finish
        self._ready, self._done = (cuda.Event(disable_timing=True) for _ in range(2))

    def start(self) -> None:
        """Start after everything issued on the current stream so far."""
        stream = self._owner.stream
        self._ready.record(self._cuda.get_current_stream())
        stream.wait_event(self._ready)
        with stream:
            self._start(stream.ptr)
        self._done.record(stream)
        self._owner.register(self._key, self)

    def join(self, stream: Any) -> None:
        """Make a stream, the current one, wait for this call."""
        stream.wait_event(self._done)
        self._finish()


def side_stream() -> SideStream:
    """The side stream of this process."""
    import cupy

    return _side_stream(cupy)


@cache
def _side_stream(cupy: Any) -> SideStream:
    return SideStream(cupy.cuda)

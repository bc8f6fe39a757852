"""A stand-in for CuPy, as far as the device `cuda` uses it: a GPU on the CPU whose streams run work late.

Work in a stream runs when somebody waits for it; in an `eager` stream, it runs as soon as its dependencies are done.
Code that misses a wait therefore reads wrong values. A stream that is being captured records its work for the graph.
Calls that would fail on a GPU fail here, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from ctypes import memmove
from functools import partial
from types import ModuleType, SimpleNamespace, TracebackType
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from netspec.backends.cuda import launch
from netspec.graph.kernel import Thunk
from tests.backends.cuda.emulator import Emulator

TICK = 0.01
"""Milliseconds of the simulated clock for each submitted call."""
KINDS = {"memcpyHostToDevice": 1, "memcpyDeviceToHost": 2}
"""CUDA's constants for the direction of a copy."""


class OutOfMemoryError(Exception):
    """Stands for CuPy's `OutOfMemoryError`."""


class Trouble(Exception):
    """Stands for `CUDARuntimeError`."""

    status = 35


class Mark:
    """One recording of an event."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.done, self.at = stream, False, 0.0

    def wait(self) -> None:
        """Run all work of the stream up to here."""
        if not self.done:
            self.stream.run_until(self)


class Event:
    """Stands for CuPy's `Event`."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.mark = machine, None

    mark: Mark | Recorded | None

    def record(self, stream: Stream) -> None:
        if stream.recorded is not None:
            self.mark = stream.recorded.mark(stream)
            return
        mark = self.mark = Mark(stream)

        def done() -> None:
            mark.done, mark.at = True, self.machine.clock

        stream.submit(done)

    def synchronize(self) -> None:
        self.machine.no_recording("waiting for an event")
        assert not isinstance(self.mark, Recorded), "it is of a graph, and nobody else can wait for it"
        if self.mark is not None:
            self.mark.stream.run_until(self.mark)

    @property
    def ptr(self) -> int:
        """The key of the event in `Machine.events`."""
        self.machine.events[id(self)] = self
        return id(self)


def elapsed(start: Event, stop: Event) -> float:
    """Milliseconds between two events that were waited for."""
    first, last = start.mark, stop.mark
    assert isinstance(first, Mark)
    assert isinstance(last, Mark)
    assert first.done
    assert last.done
    return last.at - first.at


class Recorded:
    """An event that was recorded for a graph."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording


class Recording:
    """Work recorded for a graph: from the recorded stream, and from streams that wait for one of its events."""

    def __init__(self, origin: Stream) -> None:
        self.origin, self.ended = origin, False
        self.items: list[tuple[Stream, Callable[[], None] | tuple[str, Recorded]]] = []
        self.streams = {origin}
        self.apart: set[Stream] = set()
        """Streams with work that the recorded stream has not waited for."""
        self._last: dict[Recorded, Stream] = {}

    def add(self, stream: Stream, work: Callable[[], None]) -> None:
        self.items.append((stream, work))
        if stream is not self.origin:
            self.apart.add(stream)
            self._last = {event: recorded for event, recorded in self._last.items() if recorded is not stream}

    def mark(self, stream: Stream) -> Recorded:
        result = Recorded(self)
        self.items.append((stream, ("record", result)))
        self._last[result] = stream
        return result

    def wait(self, stream: Stream, event: Recorded) -> None:
        assert event.recording is self, "an event of another graph"
        assert not self.ended, "an event of a graph, whose recording has ended"
        self.items.append((stream, ("wait", event)))
        self.streams.add(stream)
        stream.recorded = self
        if stream is self.origin and event in self._last:
            self.apart.discard(self._last[event])


class Graph:
    """Stands for CuPy's `Graph`."""

    def __init__(self, machine: Machine, recording: Recording) -> None:
        self.machine, self.recording = machine, recording

    def launch(self, stream: Stream) -> None:
        """Submit the recorded work; all branches start when the graph starts."""
        self.machine.no_recording("launching a graph")
        self.machine.launched += 1
        others = self.recording.streams - {self.recording.origin}
        began = Event(self.machine)
        began.record(stream)
        for other in others:
            other.wait_event(began)
        marks: dict[Recorded, Event] = {}
        for where, work in self.recording.items:
            on = stream if where is self.recording.origin else where
            if not isinstance(work, tuple):
                on.submit(work)
            elif work[0] == "record":
                marks[work[1]] = Event(self.machine)
                marks[work[1]].record(on)
            else:
                on.wait_event(marks[work[1]])


class Stream:
    """Stands for CuPy's `Stream`."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.recorded = machine, None
        self.waiting: deque[Callable[[], None] | Mark] = deque()
        self.eager = False

    recorded: Recording | None

    @property
    def ptr(self) -> int:
        """Index of the stream among those of the machine, from 1."""
        return self.machine.streams.index(self) + 1

    def submit(self, work: Callable[[], None]) -> None:
        """Queue the work, or record it."""
        self.machine.clock += TICK
        if self.recorded is not None:
            self.recorded.add(self, work)
        else:
            self.waiting.append(work)
            self.machine.advance()

    def advance(self) -> None:
        """Run all work before the next wait for an unfinished event."""
        while self.waiting:
            work = self.waiting[0]
            if isinstance(work, Mark):
                if not work.done:
                    return
                self.waiting.popleft()
            else:
                self.waiting.popleft()
                work()

    def run_until(self, mark: Mark | None) -> None:
        """Run all work up to a mark, and everything that it waits for."""
        while self.waiting and not (mark is not None and mark.done):
            work = self.waiting[0]
            if not isinstance(work, Mark):
                self.waiting.popleft()
                work()
            else:
                work.wait()
                if self.waiting and self.waiting[0] is work:  # it may have run while this waited
                    self.waiting.popleft()

    def record(self, event: Event) -> Event:
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        if isinstance(event.mark, Recorded):
            event.mark.recording.wait(self, event.mark)
            return
        assert self.recorded is None, "an event of another stream becomes part of the graph"
        if event.mark is not None:
            self.waiting.append(event.mark)
            self.machine.advance()

    def synchronize(self) -> None:
        self.machine.no_recording("waiting for a stream")
        self.run_until(None)

    def begin_capture(self) -> None:
        assert self.recorded is None, "it is captured already"
        self.recorded = Recording(self)

    def end_capture(self) -> Graph:
        assert self.recorded is not None
        recording = self.recorded
        assert recording.origin is self, "the capture of another stream"
        recording.ended = True
        for stream in recording.streams:
            stream.recorded = None
        assert not recording.apart, "a branch of the graph that nothing waits for"
        self.machine.recorded += 1
        return Graph(self.machine, recording)

    def __enter__(self) -> Stream:
        self.machine.entered.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.machine.entered.pop()


def _copy(target: int, source: int, nbytes: int) -> None:
    memmove(target, source, nbytes)


class Memory:
    """Stands for CuPy's `MemoryPointer`."""

    def __init__(self, address: int) -> None:
        self.ptr = address

    def copy_from_host_async(self, source: int, nbytes: int, stream: Stream) -> None:
        if stream.recorded is not None:
            raise RuntimeError("the current stream is capturing, so H2D transfers are disallowed")
        stream.submit(partial(_copy, self.ptr, source, nbytes))

    def copy_to_host_async(self, target: int, nbytes: int, stream: Stream) -> None:
        if stream.recorded is not None:
            raise RuntimeError("the current stream is capturing, so D2H transfers are disallowed")
        stream.submit(partial(_copy, target, self.ptr, nbytes))


class Array(np.ndarray[Any, Any]):
    """A NumPy array that stands for an array of the GPU."""

    machine: ClassVar[Machine]

    @property
    def data(self) -> Any:
        """Address of the first byte."""
        return Memory(self.ctypes.data)

    def fill(self, value: Any) -> None:
        self.machine.no_recording("filling an array")
        super().fill(value)


Array.__module__ = "numpy"  # whose functions reference kernels then call


class Machine:
    """A GPU, and CuPy for it."""

    def __init__(self, count: int | Exception = 1, *, eager: Sequence[int] = ()) -> None:
        """`eager` are the indices of streams, in the order of their creation, that run work as soon as possible."""
        self.streams: list[Stream] = []
        self.entered: list[Stream] = []
        self._eager = eager
        self.allocated = self.recorded = self.launched = self.started = 0
        self.count = count
        self.events: WeakValueDictionary[int, Event] = WeakValueDictionary()
        self.failed = 0
        """CUDA error code of the GPU; 0: success."""
        self.clock = 0.0
        """Simulated time in milliseconds."""
        self.array = type("Array", (Array,), {"machine": self, "__module__": Array.__module__})
        """The type of the GPU's arrays."""

    def no_recording(self, action: str) -> None:
        """Refuse a call that is not allowed while a stream is recorded."""
        assert all(stream.recorded is None for stream in self.streams), f"{action} while a graph is recorded"

    def advance(self) -> None:
        """Let eager streams run as far as possible."""
        for stream in self.streams:
            if stream.eager:
                stream.advance()

    def submit(self, work: Callable[[], None]) -> None:
        """Submit a kernel to the current stream."""
        assert self.entered, "on the default stream"
        self.started += 1
        self.give(self.entered[-1], work)

    def give(self, stream: Stream, work: Callable[[], None]) -> None:
        """Submit work to a stream; while a graph is recorded, the stream must be part of it."""
        if stream.recorded is None:
            self.no_recording("giving another stream something to do")
        stream.submit(work)

    def _stream(self, *, non_blocking: bool) -> Stream:
        assert non_blocking
        self.streams.append(Stream(self))
        self.streams[-1].eager = len(self.streams) - 1 in self._eager
        return self.streams[-1]

    def _zeros(self, shape: int, dtype: type) -> Any:
        """Allocate zeros; more than 8 GB, as on a small GPU, raises `OutOfMemoryError`."""
        self.no_recording("allocating")
        assert self.entered, "on the default stream"
        self.allocated += 1
        if shape > 8 * 10**9:
            raise OutOfMemoryError
        # aligned as by CuPy
        size = shape * np.dtype(dtype).itemsize
        raw = np.zeros(size + 512, np.uint8)
        start = -raw.ctypes.data % 512
        return raw[start : start + size].view(dtype).view(self.array)

    def _outside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that copies to or from the GPU, or allocates, which CuPy or CUDA refuse during a capture."""

        def call(*arguments: Any, **named: Any) -> Any:
            self.no_recording(function.__name__)
            return function(*arguments, **named)

        return call

    def _copy(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        """Copy as `memcpyAsync` does: CuPy does not check for a capture, and CUDA captures copies of pinned memory."""
        assert kind in KINDS.values()
        self.give(self.streams[stream - 1], partial(_copy, target, source, nbytes))

    def _pinned(self, nbytes: int) -> Any:
        self.no_recording("allocating")
        self.allocated += 1
        return memoryview(bytearray(nbytes))

    def _query(self, event: int) -> int:
        """Answer as if asked often enough: the event is done."""
        if self.failed == 0:
            self.events[event].synchronize()
        return self.failed

    def _devices(self) -> int:
        if isinstance(self.count, Exception):
            raise self.count
        return self.count

    def synchronize(self) -> None:
        """Wait for all streams."""
        self.no_recording("waiting for the GPU")
        for stream in self.streams:
            stream.run_until(None)

    def cupy(self) -> ModuleType:
        """Return the module `cupy`."""
        result = ModuleType("cupy")
        names = {name: getattr(np, name) for name in ("uint8", "int32")}
        names |= {name: self._outside(getattr(np, name)) for name in ("asarray", "copyto")}
        runtime = SimpleNamespace(
            getDeviceProperties=lambda number: {"name": b"a made-up GPU", "major": 9, "minor": 0},
            getDeviceCount=self._devices, CUDARuntimeError=Trouble, memGetInfo=lambda: (2 * 10**9, 8 * 10**9),
            deviceSynchronize=self.synchronize, eventQuery=self._query, runtimeGetVersion=lambda: 13000,
            deviceGetPCIBusId="0000:{:02x}:00.0".format, getDevice=lambda: 0, driverGetVersion=lambda: 13000,
            memcpyAsync=self._copy, **KINDS,
        )  # fmt: skip
        cuda = SimpleNamespace(
            runtime=runtime, Device=Gpu, Stream=self._stream, alloc_pinned_memory=self._pinned,
            Event=lambda *, disable_timing=False: Event(self), get_elapsed_time=elapsed,
            get_current_stream=lambda: self.entered[-1],
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0), getSupportedArchs=lambda: (75, 80, 90, 120)),
        )  # fmt: skip
        pool = SimpleNamespace(free_bytes=lambda: 0)
        vars(result).update(
            names, zeros=self._zeros, asnumpy=self._outside(np.array), cuda=cuda, get_default_memory_pool=lambda: pool
        )
        return result


class Gpu:
    """Stands for CuPy's `Device`."""

    def __init__(self, number: int) -> None:
        self.id, self.compute_capability = number, self.capability

    capability = "90"

    def use(self) -> None:
        """Stands for the selection of the device."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class StreamEngine(Emulator):
    """An emulator that submits kernels to the current stream."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def starter(self, name: str, text: str) -> launch.Starter:
        """Return a starter that submits the kernel to the current stream."""
        start = super().starter(name, text)
        return lambda blocks, threads, arguments: self.machine.submit(lambda: start(blocks, threads, arguments))

    def table(self, host: Any) -> Any:
        """Return the table unchanged; CuPy copies it, which a graph cannot contain."""
        self.machine.no_recording("copying a table")
        return super().table(host)

    def on_stream(self, call: Callable[[int], None]) -> Thunk:
        """Return a thunk that submits the call to the current stream."""
        return lambda: self.machine.submit(lambda: call(0))

"""`ExecutionQueue`: the GPU's streams, the runs that were started, and the flag that stops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from math import isfinite
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from netspec.backends.cuda.launch import Launch, pointer, stopped_by
from netspec.backends.executor import CallTimer
from netspec.backends.failures import NonFiniteLoss
from netspec.backends.process_group import world
from netspec.errors import RunError
from netspec.graph.kernel import Thunk
from netspec.graph.value import Node

Origin: TypeAlias = Callable[[], tuple[Node | None, str | None]]
"""Finds the origin of the first value of a run that is not finite."""
DONE, NOT_READY = 0, 600
"""CUDA's results of querying an event, `cudaSuccess` and `cudaErrorNotReady`; any other one is an error."""
JUDGE = "if (!(guard[0] - guard[0] == 0)) stopped[0] = 1;"


def is_complete(event: Any) -> bool:
    """Whether the GPU has executed everything before a CuPy event.

    Raises `RunError` if the GPU has failed, or waits for another worker's GPU that is lost.
    """
    import cupy

    runtime = cupy.cuda.runtime
    status = runtime.eventQuery(event.ptr)  # `event.done` is False after a failure, too
    if status == DONE:
        return True
    if status != NOT_READY:
        raise RunError("the GPU has failed", got=str(runtime.CUDARuntimeError(status)))
    world().check_gpu_links()
    return False


class ExecutionQueue:
    """The main stream, the stream for inputs, and the flag that stops kernels that write states.

    The flag is set when a guard is not finite and cleared when the CPU has noticed: runs that were started in
    between leave states unchanged. At most one run is unconfirmed: each run settles the one before the last.
    """

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.stream, self.copies = (xp.cuda.Stream(non_blocking=True) for _ in range(2))
        with self.stream:
            self.flag = xp.zeros(1, xp.int32)
        self.runs = 0
        """Number of runs started that have a guard and write states."""
        self._unsettled: list[PendingRun] = []

    def event(self) -> Any:
        """An event to record in a stream and to wait for."""
        return self.xp.cuda.Event(disable_timing=True)

    def call_timer(self) -> EventTimer:
        """A timer of calls by events in the main stream."""
        return EventTimer(self)

    def pinned(self, nbytes: int) -> Any:
        """Pinned host memory as NumPy bytes."""
        return np.frombuffer(self.xp.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def send(self, staged: Any, memory: Any) -> None:
        """Copy pinned bytes to the GPU, on the stream for inputs."""
        memory.data.copy_from_host_async(staged.ctypes.data, staged.nbytes, self.copies)

    def tell(self, array: Any, report: Any) -> None:
        """Copy an array into pinned memory, on the main stream.

        This is part of graphs: `copy_to_host_async` refuses a stream that is being captured, whatever the memory is.
        """
        runtime = self.xp.cuda.runtime
        runtime.memcpyAsync(
            report.ctypes.data, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost, self.stream.ptr
        )

    def stopping(self) -> AbstractContextManager[None]:
        """Kernels bound inside of this context do nothing while the flag is set."""
        return stopped_by(self.flag)

    def judge(self, guard: Any) -> Thunk:
        """A call that sets the flag if the guard is not finite."""
        parameters = [pointer("guard", guard), pointer("stopped", self.flag, written=True)]
        return Launch(parameters, JUDGE, 1, threads=1).bind()

    def recorded(self, calls: Sequence[Thunk]) -> Thunk:
        """Capture what the calls start as one graph, without running it. Raises the first error of a call."""
        self.stream.begin_capture()
        try:
            for call in calls:
                call()
        except BaseException:
            with suppress(Exception):  # report the first error
                self.stream.end_capture()
            raise
        graph, stream = self.stream.end_capture(), self.stream
        return lambda: graph.launch(stream)

    def register(self, pending: PendingRun) -> None:
        """Register a run and settle those before it. Raises `NonFiniteLoss` for the first whose guard is not finite.

        The GPU works on the new run while the CPU waits for the previous ones.
        """
        before, self._unsettled = self._unsettled, [pending]
        for run in before:
            run()

    def settle(self) -> None:
        """Settle all runs. Raises `NonFiniteLoss` for the first one whose guard is not finite."""
        before, self._unsettled = self._unsettled, []
        for run in before:
            run()

    def forget(self) -> None:
        """Wait for what was started and clear the flag: the runs since it was set had no effect."""
        self.stream.synchronize()
        self._unsettled = []
        with self.stream:
            self.flag.fill(0)
        self.stream.synchronize()


class PendingRun:
    """A run in progress, whose guard the GPU writes into host memory.

    Raises `NonFiniteLoss` when called if the guard is not finite, once states are those before that run.
    """

    def __init__(self, flow: ExecutionQueue, number: int, done: Any, report: Any, origin: Origin) -> None:
        self._flow, self._number, self._done, self._report, self._origin = flow, number, done, report, origin
        self._value: float | None = None

    def __call__(self) -> float:
        if self._value is None:
            self._wait()
            value = float(self._report[0])
            if not isfinite(value):
                self._flow.forget()
                node, state = self._origin()
                raise NonFiniteLoss(node, state, self._flow.runs - self._number)
            self._value = value
        return self._value

    def _wait(self) -> None:
        """Wait; with several workers, in a way that lets the watchdog notice if another worker's GPU never answers."""
        if world().size > 1:
            world().wait_until(partial(is_complete, self._done))
        self._done.synchronize()


class EventTimer(CallTimer):
    """Times calls by CUDA events around what they start in the main stream."""

    track = "GPU"

    def __init__(self, flow: ExecutionQueue) -> None:
        super().__init__()
        self._flow, self._cuda = flow, flow.xp.cuda
        self._events: list[tuple[Node | None, Any, Any]] = []
        self._restart()

    def _restart(self) -> None:
        """Align the clocks of GPU and CPU. Repeated in each `take`: the time since an event has 24 bits."""
        self._origin = self._cuda.Event()
        self._origin.record(self._flow.stream)
        self._flow.stream.synchronize()
        self._zero = perf_counter()

    def wrap(self, node: Node | None, call: Thunk) -> Thunk:
        """Return a call that also records an event before and after it."""
        cuda, events, stream = self._cuda, self._events, self._flow.stream

        def timed() -> None:
            began, ended = cuda.Event(), cuda.Event()
            began.record(stream)
            call()
            ended.record(stream)
            events.append((node, began, ended))

        return timed

    def take(self) -> list[tuple[Node | None, float, float]]:
        """Wait for the GPU, and return node, start and end of each call since the last `take`."""
        self._flow.stream.synchronize()
        passed = self._cuda.get_elapsed_time  # in milliseconds
        calls = [
            (node, self._zero + passed(self._origin, began) / 1e3, self._zero + passed(self._origin, ended) / 1e3)
            for node, began, ended in self._events
        ]
        self._events.clear()
        self._restart()
        return calls

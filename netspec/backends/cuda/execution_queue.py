"""`ExecutionQueue`: the GPU's streams, the started runs, and the flag that stops them."""

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
"""Finds the origin of the first non-finite value of a run."""
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
    between leave states unchanged. The CPU checks the guard of each run when it has started the next one.
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
        """A timer that measures calls by events in the main stream."""
        return EventTimer(self)

    def pinned(self, nbytes: int) -> Any:
        """Pinned host memory as a NumPy array of bytes."""
        return np.frombuffer(self.xp.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def send(self, staged: Any, memory: Any) -> None:
        """Copy pinned bytes to the GPU, on the stream for inputs."""
        memory.data.copy_from_host_async(staged.ctypes.data, staged.nbytes, self.copies)

    def copy_to_pinned(self, array: Any, report: Any) -> None:
        """Copy an array into pinned memory, on the main stream.

        Graphs contain this copy: CuPy's `copy_to_host_async` rejects a stream that is being captured.
        """
        runtime = self.xp.cuda.runtime
        runtime.memcpyAsync(
            report.ctypes.data, array.data.ptr, array.nbytes, runtime.memcpyDeviceToHost, self.stream.ptr
        )

    def stop_context(self) -> AbstractContextManager[None]:
        """Context in which kernels are bound that do nothing while the flag is set."""
        return stopped_by(self.flag)

    def guard_check(self, guard: Any) -> Thunk:
        """A call that sets the flag if the guard is not finite."""
        parameters = [pointer("guard", guard), pointer("stopped", self.flag, written=True)]
        return Launch(parameters, JUDGE, 1, threads=1).bind()

    def capture(self, calls: Sequence[Thunk]) -> Thunk:
        """Capture the work that calls start as one graph, without running it. Raises the first error of a call."""
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
        """Register a run and settle the previous one. Raises `NonFiniteLoss` if its guard is not finite.

        The GPU works on the new run while the CPU waits for the previous one.
        """
        before, self._unsettled = self._unsettled, [pending]
        for run in before:
            run()

    def settle(self) -> None:
        """Settle all runs. Raises `NonFiniteLoss` for the first run whose guard is not finite."""
        before, self._unsettled = self._unsettled, []
        for run in before:
            run()

    def forget(self) -> None:
        """Wait for all started work, and clear the flag: runs had no effect while it was set."""
        self.stream.synchronize()
        self._unsettled = []
        with self.stream:
            self.flag.fill(0)
        self.stream.synchronize()


class PendingRun:
    """A run in progress, whose guard the GPU writes into host memory.

    If the guard is not finite, calling this object raises `NonFiniteLoss`; states are then as before the run.
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
        """Wait for the run; with several workers, visibly to the watchdog, as another worker's GPU may never answer."""
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
        """Align the clocks of GPU and CPU, again in each `take`: times between events are float32, with 24 bits."""
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

"""`Flow`: what a GPU is given to do, in order, and what the processor has still to hear of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from math import isfinite
from typing import Any, TypeAlias

from netspec.backends.cuda.launch import Launch, pointer, stopped_by
from netspec.backends.failures import NonFiniteLoss
from netspec.graph.kernel import Thunk
from netspec.graph.value import Node
from netspec.parallel import world
from netspec.parallel.nccl import has_come
from netspec.parallel.waiting import wait_until

Origin: TypeAlias = Callable[[], tuple[Node | None, str | None]]
"""Finds where the first value of a run that is not finite came from."""
JUDGE = "if (!(guard[0] - guard[0] == 0)) stopped[0] = 1;"


class Flow:
    """A stream on which everything runs, one that brings inputs, and the flag that stops what writes states.

    The flag goes up when a guard is not finite, and stays up until the processor has heard of it: whatever was started
    meanwhile leaves states alone. One run is in the dark at most: the one before the last is settled by each run.
    """

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.stream, self.copies = (xp.cuda.Stream(non_blocking=True) for _ in range(2))
        with self.stream:
            self.flag = xp.zeros(1, xp.int32)
        self.runs = 0
        """How many runs were begun that have a guard and write states."""
        self._unsettled: list[Pending] = []

    def event(self) -> Any:
        """Something to be recorded in a stream, and to wait for."""
        return self.xp.cuda.Event(disable_timing=True)

    def pinned(self, nbytes: int) -> Any:
        """Memory of the processor that the GPU reads and writes by itself, as NumPy's bytes."""
        import numpy as np

        return np.frombuffer(self.xp.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)

    def send(self, staged: Any, memory: Any) -> None:
        """Have pinned bytes copied into as many of the GPU's, on the stream that brings inputs."""
        memory.data.copy_from_host_async(staged.ctypes.data, staged.nbytes, self.copies)

    def tell(self, array: Any, report: Any) -> None:
        """Have an array copied into pinned memory."""
        array.data.copy_to_host_async(report.ctypes.data, array.nbytes, self.stream)

    def stopping(self) -> AbstractContextManager[None]:
        """What is bound inside of this does nothing while the flag is up."""
        return stopped_by(self.flag)

    def judge(self, guard: Any) -> Thunk:
        """A call that raises the flag where the guard is not finite."""
        parameters = [pointer("guard", guard), pointer("stopped", self.flag, written=True)]
        return Launch(parameters, JUDGE, 1, threads=1).bind()

    def recorded(self, calls: Sequence[Thunk]) -> Thunk:
        """What the calls start, as one graph: nothing is started now. Raises what one of them raises."""
        self.stream.begin_capture()
        try:
            for one in calls:
                one()
        except BaseException:
            with suppress(Exception):  # what went wrong first is told
                self.stream.end_capture()
            raise
        graph, stream = self.stream.end_capture(), self.stream
        return lambda: graph.launch(stream)

    def begun(self, pending: Pending) -> None:
        """Note a run, and settle those before it. Raises `NonFiniteLoss` for the first one whose guard is not finite.

        The GPU has the new run to do while the processor waits for the ones before.
        """
        before, self._unsettled = self._unsettled, [pending]
        for one in before:
            one()

    def settle(self) -> None:
        """Hear of all runs. Raises `NonFiniteLoss` for the first one whose guard is not finite."""
        before, self._unsettled = self._unsettled, []
        for one in before:
            one()

    def forget(self) -> None:
        """Wait for what was started, take the flag down: what was begun since it went up came to nothing."""
        self.stream.synchronize()
        self._unsettled = []
        with self.stream:
            self.flag.fill(0)
        self.stream.synchronize()


class Pending:
    """The guard of a run, which the GPU writes into memory of the processor; a run that was begun, until it is asked.

    Raises `NonFiniteLoss` where it is not finite, once states are known to be those before that run.
    """

    def __init__(self, flow: Flow, number: int, done: Any, report: Any, origin: Origin) -> None:
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
        """Of several workers, so that the watchdog sees it: the step may wait for another one's GPU."""
        if world().size > 1:
            wait_until(partial(has_come, self._done))
        self._done.synchronize()

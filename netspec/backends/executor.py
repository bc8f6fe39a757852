"""`Executor` and `CallSequence`: run the bound calls of a program, by default in order on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.backends.failures import NonFiniteLoss, kernel_failure
from netspec.backends.process_group import PeerFailure
from netspec.graph.execution_plan import ExecutionPlan
from netspec.graph.kernel import Thunk
from netspec.graph.value import Node

if TYPE_CHECKING:
    from netspec.backends.device import Device

Outcome: TypeAlias = Callable[[], float]
"""Value of the guard of a run, once it is known. Raises `NonFiniteLoss` if it is not finite; then no state was
written.
"""


@dataclass(frozen=True)
class BoundProgram:
    """A program's calls, and the arrays that they read."""

    plan: ExecutionPlan
    before: CallSequence
    """Calls that the guard depends on; empty without a guard."""
    after: CallSequence
    """All other calls, which write new states."""
    inputs: Mapping[str, Any]
    """Input arrays that the calls read."""
    guard: Any | None
    writing: Thunk
    """Notifies other programs that states are about to be written."""
    origin: Callable[[], tuple[Node | None, str | None]]
    """Runs `before` again and finds the origin of the first value that is not finite: see `NonFiniteLoss`."""


class Executor:
    """Runs calls in order. The guard is checked before the first call that writes a state."""

    def __init__(self, device: Device, bound: BoundProgram) -> None:
        self.device, self.bound = device, bound
        self.targets: Mapping[str, Any] = bound.inputs
        """Arrays of the shapes and types of the inputs, which `write` fills."""

    def write(self, inputs: Mapping[str, Any]) -> None:
        """Set the inputs of the next run."""
        upload = self.device.upload
        for name, array in self.targets.items():
            upload(array, inputs[name])

    def take_inputs(self) -> None:
        """Copy the inputs written last to the arrays that calls read, for callers that run calls one by one."""

    def start_singly(self) -> None:
        """Start each call separately in all later runs, even if the device can combine calls."""

    def run(self) -> Outcome:
        """Run once. Raises `NonFiniteLoss`, for this run or a previous one, before any state is written."""
        bound, value = self.bound, 0.0
        bound.before.run()
        if bound.guard is not None:
            value = float(bound.guard)
            if not isfinite(value):
                raise NonFiniteLoss(*bound.origin())
        bound.writing()
        bound.after.run()
        return lambda: value


class CallSequence:
    """Thunks that are called in order, each with the number of threads that it needs.

    Then the number of threads is set to `usual` again, for other users of the thread pool.
    """

    def __init__(self, set_threads: Callable[[int], None], usual: int, wait: Thunk | None = None) -> None:
        """`wait` waits for work that calls start without waiting for it."""
        self._wait = wait or _done
        self._nodes: list[Node | None] = []
        self._thunks: list[Thunk] = []
        self._calls: list[Thunk] = []  # the thunks, and calls that set the number of threads
        self._set_threads, self._usual, self._now, self._changes = set_threads, usual, usual, False

    def add(self, thunk: Thunk, node: Node | None = None, threads: int | None = None) -> None:
        """Append a call. `threads` is None if their number does not matter, `node` is None for a copy of a state."""
        if threads is not None and threads != self._now:
            set_threads = self._set_threads
            self._calls.append(lambda: set_threads(threads))
            self._now, self._changes = threads, True
        self._nodes.append(node)
        self._thunks.append(thunk)
        self._calls.append(thunk)

    def run(self) -> None:
        """Call all. Raises `RunError` with the layer's name if one fails."""
        thunk: Thunk | None = None
        try:
            for thunk in self._calls:
                thunk()
        except PeerFailure:
            raise
        except Exception as error:
            failed = next(node for node, candidate in zip(self._nodes, self._thunks, strict=True) if candidate is thunk)
            raise kernel_failure(failed, error) from error
        finally:
            if self._changes:
                self._set_threads(self._usual)

    def only(self, is_wanted: Callable[[Node], bool]) -> list[Thunk]:
        """The thunks of the nodes for which `is_wanted` returns True."""
        steps = zip(self._nodes, self._thunks, strict=True)
        return [thunk for node, thunk in steps if node is not None and is_wanted(node)]

    def wrap(self, wrapper: Callable[[Node | None, Thunk], Thunk]) -> None:
        """Replace each thunk by the one that `wrapper` returns for its node and itself."""
        calls, thunks = list[Thunk](), list[Thunk]()
        for call in self._calls:
            number = len(thunks)
            if number < len(self._thunks) and call is self._thunks[number]:
                call = wrapper(self._nodes[number], call)
                thunks.append(call)
            calls.append(call)
        self._calls, self._thunks = calls, thunks

    def timed_calls(self, ahead: Callable[[Node | None], None] | None = None) -> Iterator[tuple[Node | None, float]]:
        """Call one at a time; yield its node and the seconds that it took. Reading the clock adds about 50 ns.

        `ahead` is called with each node before its call.
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


class CallTimer:
    """Times calls by the host's clock: calls on the CPU are done when they return."""

    track: str | None = None
    """Name of the queue in which calls run; None if they run in the calling thread."""

    def __init__(self) -> None:
        self._calls: list[tuple[Node | None, float, float]] = []

    def wrap(self, node: Node | None, call: Thunk) -> Thunk:
        """Return a call that also records when it began and ended."""
        calls = self._calls

        def timed() -> None:
            began = perf_counter()
            call()
            calls.append((node, began, perf_counter()))

        return timed

    def take(self) -> list[tuple[Node | None, float, float]]:
        """Return node, start and end of each call since the last `take`, in seconds of `perf_counter`.

        Waits for the device. The node is None for a copy of a state.
        """
        calls = self._calls.copy()
        self._calls.clear()
        return calls


def _done() -> None:
    """Calls on the CPU are done when they return."""

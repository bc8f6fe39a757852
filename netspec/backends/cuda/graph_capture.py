"""`GraphExecutor`: the calls of a program as one CUDA graph, with inputs copied while the previous run is in progress.

There are two input slots. `write` fills the slot that the last run did not read: inputs go into pinned host memory, and
from there to the GPU on a separate stream. The graph of each slot first copies its inputs to where kernels read them,
and finally reports the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.capture_limits import SLOTS, CaptureLimits
from netspec.backends.cuda.execution_queue import ExecutionQueue, PendingRun
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.side_stream import side_stream
from netspec.backends.executor import BoundProgram, Executor, Outcome
from netspec.backends.process_group import communicating_graphs, world
from netspec.graph.execution_plan import ALIGNMENT, align_up
from netspec.graph.kernel import Thunk
from netspec.graph.ops.source import Input

if TYPE_CHECKING:
    from netspec.backends.cuda.device import CudaDevice

AT_ONCE = 16
"""Bytes that a thread copies with one instruction."""
CHUNK = 1 << 12
"""Instructions of a block per table row."""
TAKE = """
BLOCKS(unit, count) {
    const int64 *row = table + unit * 3;
    const Four<int32> *from = (const Four<int32> *)row[1];
    Four<int32> *to = (Four<int32> *)row[2];
    for (int i = threadIdx.x; i < row[0]; i += blockDim.x) to[i] = from[i];
}
"""


@dataclass(frozen=True)
class CapturedGraph:
    """A CUDA graph of captured calls."""

    launch: Thunk
    sends: float
    """Bytes that this worker sends in each run, as counted by its calls."""


class InputSlot:
    """One of the two input slots, with the graphs that start there."""

    def __init__(self, device: CudaDevice, bound: BoundProgram, nbytes: int, offsets: Mapping[str, int]) -> None:
        flow = device.flow
        self.staged = flow.pinned(nbytes)
        """Pinned host memory for inputs."""
        self.memory = device.allocate(nbytes)
        """Device memory for inputs."""
        kinds = {node.op.label: node.outputs[0] for node in bound.plan.order if isinstance(node.op, Input)}
        self.targets = {
            name: device.view(self.staged, index, kinds[name].type, bound.plan.layouts[kinds[name]])
            for name, index in offsets.items()
        }
        self.report = None if bound.guard is None else flow.pinned(ALIGNMENT).view(str(bound.guard.dtype))
        self.arrived, self.judged, self.done = flow.event(), flow.event(), flow.event()
        self.take = bind_input_copies(self.memory, offsets, bound.inputs)
        self.graphs: dict[tuple[str, bool], CapturedGraph] = {}
        self.used = True
        """Whether a run has read what was written last."""


class GraphExecutor(Executor):
    """Starts runs without waiting: a guard is checked during the next run, or when its outcome is requested."""

    def __init__(self, device: CudaDevice, bound: BoundProgram) -> None:
        super().__init__(device, bound)
        self.flow: ExecutionQueue = device.flow
        self.limits = CaptureLimits.of(bound.plan)
        offsets, nbytes = dict[str, int](), 0
        for name, array in bound.inputs.items():
            offsets[name], nbytes = nbytes, nbytes + align_up(array.nbytes)
        self._slots = [InputSlot(device, bound, max(nbytes, ALIGNMENT), offsets) for _ in range(SLOTS)]
        self.targets = self._slots[0].targets
        self._now = self._slots[0]
        self._guard_check = self.flow.guard_check(bound.guard) if bound.guard is not None else None
        if world().size > 1:
            communicating_graphs.add(self)
        self._captures = self.limits.can_capture
        self._warm = False  # the first run compiles and loads kernels

    def forget(self) -> None:
        """Drop the captured graphs: the next run captures them again."""
        for slot in self._slots:
            slot.graphs.clear()

    def write(self, inputs: Mapping[str, Any]) -> None:
        """Start copying inputs while the previous run is in progress."""
        if self._now.used:
            self._now = next(slot for slot in self._slots if slot is not self._now)
        slot, flow = self._now, self.flow
        slot.arrived.synchronize()  # the previous contents of the slot have been copied
        for name, array in slot.targets.items():
            np.copyto(array, inputs[name], casting="unsafe")
        flow.copies.wait_event(slot.done)  # the run that read the slot has ended
        flow.send(slot.staged, slot.memory)
        slot.arrived.record(flow.copies)
        slot.used = False

    def take_inputs(self) -> None:
        """Copy the inputs from the slot to where kernels read them."""
        self.flow.stream.wait_event(self._now.arrived)
        self._now.take()
        self._now.done.record(self.flow.stream)
        self._now.used = True

    def start_singly(self) -> None:
        """Stop capturing graphs."""
        self._captures = False

    def run(self) -> Outcome:
        """Start a run, then raise `NonFiniteLoss` for the previous run if its guard was not finite.

        If kernels write states that the flag cannot stop, wait for the guard first.
        """
        bound, flow, slot, limits = self.bound, self.flow, self._now, self.limits
        if limits.ignores_stop_flag or not limits.writes:
            flow.settle()
        flow.stream.wait_event(slot.arrived)
        slot.used = True
        if limits.waits_for_guard:
            self._replay("first", [slot.take, bound.before.run, self._report_guard])
            slot.judged.record(flow.stream)
            outcome = self._pending(slot, slot.judged)
            try:
                outcome()
            finally:
                slot.done.record(flow.stream)
            bound.writing()
            self._replay("second", [bound.after.run])
            slot.done.record(flow.stream)
        else:
            bound.writing()
            check = [] if self._guard_check is None or not limits.writes else [self._guard_check]
            self._replay("whole", [slot.take, bound.before.run, *check, bound.after.run, self._report_guard])
            slot.done.record(flow.stream)
            outcome = self._pending(slot, slot.done)
            if limits.writes and limits.guarded:
                flow.register(outcome)
            elif limits.guarded:
                outcome()
        self._warm = True
        return outcome if limits.guarded else float

    def _pending(self, slot: InputSlot, done: Any) -> PendingRun:
        flow = self.flow
        flow.runs += self.limits.writes

        def origin() -> Any:
            self._now = slot
            with self.device.running():
                return self.bound.origin()

        return PendingRun(flow, flow.runs, done, slot.report, origin)

    def _report_guard(self) -> None:
        """Copy the guard to host memory."""
        if self.bound.guard is not None:
            self.flow.copy_to_pinned(self.bound.guard, self._now.report)

    def _replay(self, part: str, calls: Sequence[Callable[[], None]]) -> None:
        """Replay the captured calls; run them one by one the first time, or if they cannot be captured."""
        graphs, workers = self._now.graphs, world()
        calls = [*calls, side_stream().rejoin]
        if not self._captures or not self._warm:
            for call in calls:
                call()
            return
        key = part, workers.silent
        if key not in graphs:
            before = workers.sent
            graphs[key] = CapturedGraph(self.flow.capture(calls), workers.sent - before)
            workers.sent = before
        graphs[key].launch()
        workers.sent += graphs[key].sends


def bind_input_copies(memory: Any, offsets: Mapping[str, int], inputs: Mapping[str, Any]) -> Thunk:
    """A call that copies all inputs from a slot to where kernels read them."""
    rows, start = [], launch.engine.address(memory)
    for name, array in inputs.items():
        units, to = -(-array.nbytes // AT_ONCE), launch.engine.address(array)
        rows += [
            [min(CHUNK, units - unit), start + offsets[name] + unit * AT_ONCE, to + unit * AT_ONCE]
            for unit in range(0, units, CHUNK)
        ]
    if not rows:
        return lambda: None
    table = launch.engine.table(np.array(rows, np.int64))
    parameters = [pointer("table", table), *sizes(len(rows), count=len(rows))]
    return Launch(parameters, TAKE, len(rows), of_blocks=True).bind()

"""`GraphSteps`: the calls of a program as one CUDA graph, and inputs that travel while the run before goes on.

There are two slots. What `write` is given goes to the one that the last run did not read: into memory of the processor
that the GPU can read by itself, and from there, on a stream of its own, to the GPU. The graph of each slot begins with
copying it to where kernels read, and ends with telling the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.beside import beside
from netspec.backends.cuda.flow import Flow, Pending
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.recording import Recording
from netspec.backends.steps import Bound, Outcome, Steps
from netspec.graph.kernel import Thunk
from netspec.graph.ops.source import Input
from netspec.graph.plan import ALIGNMENT, aligned
from netspec.parallel import world
from netspec.parallel.nccl import refers

if TYPE_CHECKING:
    from netspec.backends.cuda.device import CudaDevice

SLOTS = 2
"""Inputs are written to one while a run reads the other."""
AT_ONCE = 16
"""Bytes that a thread copies with one instruction."""
CHUNK = 1 << 12
"""So many times, in all threads of a block together."""
TAKE = """
BLOCKS(unit, count) {
    const int64 *row = table + unit * 3;
    const Four<int32> *from = (const Four<int32> *)row[1];
    Four<int32> *to = (Four<int32> *)row[2];
    for (int i = threadIdx.x; i < row[0]; i += blockDim.x) to[i] = from[i];
}
"""


@dataclass(frozen=True)
class Graph:
    """Calls that were recorded."""

    launch: Thunk
    sends: float
    """Bytes that this worker sends each time, as its calls have counted them."""


class Slot:
    """One of two places for inputs on their way, with the graphs that begin there."""

    def __init__(self, device: CudaDevice, bound: Bound, nbytes: int, places: Mapping[str, int]) -> None:
        flow = device.flow
        self.staged = flow.pinned(nbytes)
        """Where the processor puts inputs."""
        self.memory = device.allocate(nbytes)
        """Where they arrive."""
        kinds = {node.op.label: node.outputs[0] for node in bound.plan.order if isinstance(node.op, Input)}
        self.targets = {
            name: device.view(self.staged, place, kinds[name].type, bound.plan.layouts[kinds[name]])
            for name, place in places.items()
        }
        self.report = None if bound.guard is None else flow.pinned(ALIGNMENT).view(str(bound.guard.dtype))
        self.arrived, self.judged, self.done = flow.event(), flow.event(), flow.event()
        self.take = taking(self.memory, places, bound.inputs)
        self.graphs: dict[tuple[str, bool], Graph] = {}
        self.used = True
        """Whether a run has read what was written last."""


class GraphSteps(Steps):
    """Runs ahead of the processor: a guard is heard of during the run after, unless somebody asks before."""

    def __init__(self, device: CudaDevice, bound: Bound) -> None:
        super().__init__(device, bound)
        self.flow: Flow = device.flow
        self.recording = Recording.of(bound.plan)
        places, nbytes = dict[str, int](), 0
        for name, array in bound.inputs.items():
            places[name], nbytes = nbytes, nbytes + aligned(array.nbytes)
        self._slots = [Slot(device, bound, max(nbytes, ALIGNMENT), places) for _ in range(SLOTS)]
        self.targets = self._slots[0].targets
        self._now = self._slots[0]
        self._judge = self.flow.judge(bound.guard) if bound.guard is not None else None
        if world().size > 1:
            refers(self)
        self._warm = False  # the first run compiles and loads what kernels load when they are first called

    def forget(self) -> None:
        """Drop what was recorded: it is recorded anew by the next run."""
        for slot in self._slots:
            slot.graphs.clear()

    def write(self, inputs: Mapping[str, Any]) -> None:
        """Put inputs on their way, beside the run that goes on."""
        if self._now.used:
            self._now = next(one for one in self._slots if one is not self._now)
        slot, flow = self._now, self.flow
        slot.arrived.synchronize()  # what was staged here before has left
        for name, array in slot.targets.items():
            np.copyto(array, inputs[name], casting="unsafe")
        flow.copies.wait_event(slot.done)  # the run that read it there has ended
        flow.send(slot.staged, slot.memory)
        slot.arrived.record(flow.copies)
        slot.used = False

    def take(self) -> None:
        """Copy what has arrived to where kernels read."""
        self.flow.stream.wait_event(self._now.arrived)
        self._now.take()
        self._now.done.record(self.flow.stream)
        self._now.used = True

    def run(self) -> Outcome:
        """Start a run; then raise `NonFiniteLoss` of the run before, if it is to be, which this one changes nothing of.

        Where kernels write states that nothing stops, wait for the guard between.
        """
        bound, flow, slot, how = self.bound, self.flow, self._now, self.recording
        if how.unstopped or not how.writes:
            flow.settle()
        flow.stream.wait_event(slot.arrived)
        slot.used = True
        if how.looks:
            self._play("first", [slot.take, bound.before.run, self._tell])
            slot.judged.record(flow.stream)
            outcome = self._pending(slot, slot.judged)
            try:
                outcome()
            finally:
                slot.done.record(flow.stream)
            bound.writing()
            self._play("second", [bound.after.run])
            slot.done.record(flow.stream)
        else:
            bound.writing()
            judge = [] if self._judge is None or not how.writes else [self._judge]
            self._play("whole", [slot.take, bound.before.run, *judge, bound.after.run, self._tell])
            slot.done.record(flow.stream)
            outcome = self._pending(slot, slot.done)
            if how.writes and how.guarded:
                flow.begun(outcome)
            elif how.guarded:
                outcome()
        self._warm = True
        return outcome if how.guarded else float

    def _pending(self, slot: Slot, done: Any) -> Pending:
        flow = self.flow
        flow.runs += self.recording.writes

        def origin() -> Any:
            self._now = slot
            with self.device.running():
                return self.bound.origin()

        return Pending(flow, flow.runs, done, slot.report, origin)

    def _tell(self) -> None:
        """Have the guard written where the processor reads it."""
        if self.bound.guard is not None:
            self.flow.tell(self.bound.guard, self._now.report)

    def _play(self, part: str, calls: Sequence[Callable[[], None]]) -> None:
        """Call them: the first time, and where they can't be a graph. Else record them once, and start what was."""
        graphs, workers = self._now.graphs, world()
        calls = [*calls, beside().rejoin]
        if not self.recording.records or not self._warm:
            for one in calls:
                one()
            return
        key = part, workers.silent
        if key not in graphs:
            before = workers.sent
            graphs[key] = Graph(self.flow.recorded(calls), workers.sent - before)
            workers.sent = before
        graphs[key].launch()
        workers.sent += graphs[key].sends


def taking(memory: Any, places: Mapping[str, int], inputs: Mapping[str, Any]) -> Thunk:
    """A call that copies inputs from where they arrive, all at once."""
    rows, start = [], launch.engine.address(memory)
    for name, array in inputs.items():
        units, to = -(-array.nbytes // AT_ONCE), launch.engine.address(array)
        rows += [
            [min(CHUNK, units - unit), start + places[name] + unit * AT_ONCE, to + unit * AT_ONCE]
            for unit in range(0, units, CHUNK)
        ]
    if not rows:
        return lambda: None
    table = launch.engine.table(np.array(rows, np.int64))
    parameters = [pointer("table", table), *sizes(len(rows), count=len(rows))]
    return Launch(parameters, TAKE, len(rows), of_blocks=True).bind()

"""Peak memory reduction: reorders nodes so that less memory is alive at the same time.

The order from `schedule` follows the chain of gradients, which is good for caches. But a large weight gradient may then
be computed while the activations of all earlier layers are still alive, although it could wait for them to be freed.
This pass repeatedly takes the first node, in that order, that is ready and fits a memory limit. Bisection finds the
lowest limit for which this succeeds.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from netspec.graph.execution_plan import align_up
from netspec.graph.graph import Graph
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.ops.source import Input, State
from netspec.graph.value import Node, Value
from netspec.passes.schedule import Schedule

WORTH = 0.98
"""The new order is used only if its peak is below this fraction of the old peak, since it uses caches less well."""
PRECISION = 0.005
"""Relative precision of the bisection."""


def lower_peak(
    graph: Graph,
    schedule: Schedule,
    workspace: Mapping[Node, int] | None = None,
    layouts: Mapping[Value, Layout] | None = None,
    out_of_place: Container[Node] = (),
) -> Schedule:
    """An order with a lower memory peak, or the given one if none saves enough.

    Invariant nodes keep their positions, and the same nodes run before the guard. Readers of a state's old value still
    run before its update. The nodes `out_of_place` do not overwrite operands.
    """
    step = _StepMemory(graph, schedule, workspace or {}, layouts or {}, out_of_place)
    best: Sequence[int] = range(len(schedule.order))
    peak = step.peak_of(best)
    low, high = float(step.lower_bound()), peak * WORTH
    while high - low > PRECISION * peak:
        limit = (low + high) / 2
        better_order = step.order_within(limit)
        if better_order is None:
            low = limit
        else:
            best, high = better_order, limit
    return replace(schedule, order=[schedule.order[index] for index in best])


@dataclass
class _Task:
    """A node's effect on memory. Integers identify blocks of memory, which a value shares with its views."""

    reads: tuple[int, ...]
    results: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    """Each result that needs memory: its block, bytes, and the operand blocks that it may overwrite."""
    scratch: int = 0


class _StepMemory:
    """The memory needs of a step; nodes are identified by their positions in the given order."""

    def __init__(
        self, graph: Graph, schedule: Schedule, workspace: Mapping[Node, int], layouts: Mapping[Value, Layout],
        out_of_place: Container[Node],
    ) -> None:  # fmt: skip
        order = schedule.order
        self.invariant_count, self.before_guard_count = schedule.invariant_count, schedule.before_guard_count
        self.position = {node: index for index, node in enumerate(order)}
        self.memory: dict[Value, int] = {}
        self.sizes: list[int] = []
        self.readers: list[int] = []
        """Number of nodes that read each block; one more for values that must last to the end."""
        self.inputs: list[int] = []
        self.tasks: list[_Task] = []
        read = {value for node in order for value in node.inputs}.union(graph.roots())
        outside_arena = self._outside_arena(graph, order)
        for node in order:
            operands = dict.fromkeys(self.memory[value] for value in node.inputs)
            task = _Task(tuple(operands), scratch=align_up(workspace.get(node, 0)))
            for memory in operands:
                self.readers[memory] += 1
            for value in node.outputs:
                if node.op.traits.view:
                    self.memory[value] = self.memory[node.inputs[0]]
                    continue
                needs_room = value in read and value not in outside_arena
                memory = self._new(value, align_up(layouts.get(value, PLAIN).nbytes(value.type)) if needs_room else 0)
                if isinstance(node.op, Input):
                    self.inputs.append(memory)
                elif needs_room:
                    overwritable = [
                        self.memory[operand]
                        for operand in node.op.inplace_operands(value.index, node.inputs)
                        if node not in out_of_place
                        and operand.type == value.type
                        and layouts.get(operand) == layouts.get(value)
                    ]
                    reusable = tuple(index for index in overwritable if self.sizes[index] and index not in self.inputs)
                    task.results.append((memory, self.sizes[memory], reusable))
            self.tasks.append(task)
        for memory in {self.memory[value] for value in graph.roots()}:
            self.readers[memory] += 1
        self.before = [sorted({self.position[value.node] for value in node.inputs}) for node in order]
        self._keep_readers_before_updates(graph, order)
        self.after: list[list[int]] = [[] for _ in order]
        for index, needed in enumerate(self.before):
            for operand in needed:
                self.after[operand].append(index)

    def _outside_arena(self, graph: Graph, order: Sequence[Node]) -> set[Value]:
        """Values that are not in the arena: states, constants, new values of states, and invariant values."""
        sources = (node for node in order if node.op.traits.source and not isinstance(node.op, Input))
        invariant = set(order[: self.invariant_count])
        read = [value for node in order[self.invariant_count :] for value in node.inputs]
        lasting = {value.base for value in (*read, *graph.roots())}
        return {
            *(value for node in sources for value in node.outputs),
            *graph.updates.values(),
            *(value for value in lasting if value.node in invariant),
        }

    def _new(self, value: Value, size: int) -> int:
        self.memory[value] = len(self.sizes)
        self.sizes.append(size)
        self.readers.append(0)
        return self.memory[value]

    def _keep_readers_before_updates(self, graph: Graph, order: Sequence[Node]) -> None:
        """Make the readers of a state's old value precede its update, so that it can be written in place."""
        states = {self.memory[node.outputs[0]]: node.op.label for node in order if isinstance(node.op, State)}
        updates = {name: self.position[value.node] for name, value in graph.updates.items()}
        for index, task in enumerate(self.tasks):
            for state in task.reads:
                update = updates.get(states.get(state, ""))
                if update is not None and index < update:
                    self.before[update].append(index)

    def _run(self, order: Iterable[int]) -> _LiveMemory:
        run = _LiveMemory(self)
        for index in order:
            run.run(index)
        return run

    def lower_bound(self) -> int:
        """A lower bound of the peak, from the operands of each node and the bytes alive at the guard."""
        guard = self._run(range(self.before_guard_count)).live
        invariant = self.peak_of(range(self.invariant_count))
        return max([guard, invariant, *(sum(map(self.sizes.__getitem__, task.reads)) for task in self.tasks)])

    def peak_of(self, order: Sequence[int]) -> int:
        """The most bytes alive at the same time if the nodes run in this order."""
        run, peak = _LiveMemory(self), 0
        for index in order:
            peak = max(peak, run.live + run.extra_bytes(index))
            run.run(index)
        return peak

    def order_within(self, limit: float) -> list[int] | None:
        """An order with at most `limit` bytes alive at the same time; None if none was found."""
        order = list(range(self.invariant_count))
        run = self._run(order)
        waiting = [sum(index >= self.invariant_count for index in needed) for needed in self.before]
        ready = [index for index in range(self.invariant_count, len(waiting)) if not waiting[index]]
        while ready:
            last = self.before_guard_count if len(order) < self.before_guard_count else len(self.tasks)
            chosen = next((at for at in ready if at < last and run.live + run.extra_bytes(at) <= limit), None)
            if chosen is None:
                return None
            ready.remove(chosen)
            run.run(chosen)
            order.append(chosen)
            for index in self.after[chosen]:
                waiting[index] -= 1
                if not waiting[index]:
                    insort(ready, index)
        return order


class _LiveMemory:
    """The bytes that are alive while nodes run one after another."""

    def __init__(self, step: _StepMemory) -> None:
        self.step, self.done = step, 0
        self.live = sum(map(step.sizes.__getitem__, step.inputs))
        self.unread = list(step.readers)
        if step.before_guard_count:
            for value in step.inputs:  # kept intact for the search for non-finite values
                self.unread[value] += 1

    def extra_bytes(self, index: int) -> int:
        """Bytes that the node needs in addition to those alive."""
        task = self.step.tasks[index]
        return sum(size for _, size, _ in task.results) + task.scratch - self._reused(task)

    def _reused(self, task: _Task) -> int:
        """Bytes of results that overwrite operands which no other node reads."""
        reused: list[int] = []
        total = 0
        for _, size, over in task.results:
            memory = next((index for index in over if self.unread[index] == 1 and index not in reused), None)
            if memory is not None:
                reused.append(memory)
                total += size
        return total

    def run(self, index: int) -> None:
        """Account for the execution of a node."""
        task = self.step.tasks[index]
        self.live += sum(size for _, size, _ in task.results)
        for value in task.reads:
            self._read(value)
        self.done += 1
        if self.done == self.step.before_guard_count:
            for value in self.step.inputs:
                self._read(value)

    def _read(self, value: int) -> None:
        self.unread[value] -= 1
        if not self.unread[value]:
            self.live -= self.step.sizes[value]

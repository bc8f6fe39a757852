"""A lower peak: what does not fit beside the rest waits until it does, what makes room is brought forward.

The order that `schedule` finds follows the chain of gradients, which is good for the caches; but a large gradient of a
weight may then be made while the activations of all earlier layers are still alive, though it could as well wait for
their end. Here nodes are taken in that order as long as they fit in a limit, else the first one that does fit. The
lowest limit that leads to the end is searched for by bisection.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from netspec.graph.graph import Graph
from netspec.graph.layout import PLAIN, Layout
from netspec.graph.ops.source import Input, State
from netspec.graph.plan import aligned
from netspec.graph.value import Node, Value
from netspec.passes.schedule import Schedule

WORTH = 0.98
"""An order that saves less than 2 % is left as it is: near in time is near in the caches."""
PRECISION = 0.005
"""The lowest limit is found to half a per cent."""


def lower_peak(
    graph: Graph,
    schedule: Schedule,
    workspace: Mapping[Node, int] | None = None,
    layouts: Mapping[Value, Layout] | None = None,
    apart: Container[Node] = (),
) -> Schedule:
    """An order in which less memory is alive at once, or the given one if there is none that is worth it.

    The steady nodes stay where they are, and the same nodes run before the guard. Whoever reads a state before its
    update still does. The nodes `apart` write over no operand.
    """
    step = _Step(graph, schedule, workspace or {}, layouts or {}, apart)
    best: Sequence[int] = range(len(schedule.order))
    peak = step.peak_of(best)
    low, high = float(step.least()), peak * WORTH
    while high - low > PRECISION * peak:
        limit = (low + high) / 2
        found = step.within(limit)
        if found is None:
            low = limit
        else:
            best, high = found, limit
    return replace(schedule, order=[schedule.order[index] for index in best])


@dataclass
class _Task:
    """A node, and what it does to memory; values stand for the memory they live in, views of one for the same."""

    reads: tuple[int, ...]
    made: list[tuple[int, int, tuple[int, ...]]] = field(default_factory=list)
    """Each result that needs memory: value, bytes, and the operands that it may be written over."""
    scratch: int = 0


class _Step:
    """One step's nodes by their positions in the order given."""

    def __init__(
        self, graph: Graph, schedule: Schedule, workspace: Mapping[Node, int], layouts: Mapping[Value, Layout],
        apart: Container[Node],
    ) -> None:  # fmt: skip
        order = schedule.order
        self.steady, self.before_guard = schedule.steady, schedule.before_guard
        self.position = {node: index for index, node in enumerate(order)}
        self.memory: dict[Value, int] = {}
        self.sizes: list[int] = []
        self.readers: list[int] = []
        """How many nodes read each value, by whatever view; one more for what must last to the end."""
        self.inputs: list[int] = []
        self.tasks: list[_Task] = []
        read = {value for node in order for value in node.inputs}.union(graph.roots())
        elsewhere = self._kept_elsewhere(graph, order)
        for node in order:
            operands = dict.fromkeys(self.memory[value] for value in node.inputs)
            task = _Task(tuple(operands), scratch=aligned(workspace.get(node, 0)))
            for place in operands:
                self.readers[place] += 1
            for value in node.outputs:
                if node.op.traits.view:
                    self.memory[value] = self.memory[node.inputs[0]]
                    continue
                needs_room = value in read and value not in elsewhere
                made = self._new(value, aligned(layouts.get(value, PLAIN).nbytes(value.type)) if needs_room else 0)
                if isinstance(node.op, Input):
                    self.inputs.append(made)
                elif needs_room:
                    over = [
                        self.memory[one]
                        for one in node.op.overwritable(value.index, node.inputs)
                        if node not in apart and one.type == value.type and layouts.get(one) == layouts.get(value)
                    ]
                    room = tuple(one for one in over if self.sizes[one] and one not in self.inputs)
                    task.made.append((made, self.sizes[made], room))
            self.tasks.append(task)
        for place in {self.memory[value] for value in graph.roots()}:
            self.readers[place] += 1
        self.before = [sorted({self.position[value.node] for value in node.inputs}) for node in order]
        self._keep_readers_before_updates(graph, order)
        self.after: list[list[int]] = [[] for _ in order]
        for index, needed in enumerate(self.before):
            for one in needed:
                self.after[one].append(index)

    def _kept_elsewhere(self, graph: Graph, order: Sequence[Node]) -> set[Value]:
        """Values that are not in the arena: states and constants, new values of states, what is steady."""
        sources = (node for node in order if node.op.traits.source and not isinstance(node.op, Input))
        steady = set(order[: self.steady])
        read = [value for node in order[self.steady :] for value in node.inputs]
        lasting = {value.base for value in (*read, *graph.roots())}
        return {
            *(value for node in sources for value in node.outputs),
            *graph.updates.values(),
            *(value for value in lasting if value.node in steady),
        }

    def _new(self, value: Value, size: int) -> int:
        self.memory[value] = len(self.sizes)
        self.sizes.append(size)
        self.readers.append(0)
        return self.memory[value]

    def _keep_readers_before_updates(self, graph: Graph, order: Sequence[Node]) -> None:
        """An update is written in place if whoever reads the old value has run."""
        states = {self.memory[node.outputs[0]]: node.op.label for node in order if isinstance(node.op, State)}
        updates = {name: self.position[value.node] for name, value in graph.updates.items()}
        for index, task in enumerate(self.tasks):
            for state in task.reads:
                update = updates.get(states.get(state, ""))
                if update is not None and index < update:
                    self.before[update].append(index)

    def _run(self, order: Iterable[int]) -> _Run:
        run = _Run(self)
        for index in order:
            run.do(index)
        return run

    def least(self) -> int:
        """No order needs less: what one node needs, and what is alive when the guard is looked at."""
        guard = self._run(range(self.before_guard)).live
        steady = self.peak_of(range(self.steady))
        return max([guard, steady, *(sum(map(self.sizes.__getitem__, task.reads)) for task in self.tasks)])

    def peak_of(self, order: Sequence[int]) -> int:
        """The most bytes alive at once if the nodes run in this order."""
        run, peak = _Run(self), 0
        for index in order:
            peak = max(peak, run.live + run.more(index))
            run.do(index)
        return peak

    def within(self, limit: float) -> list[int] | None:
        """An order in which at most so many bytes are alive at once; None if none was found."""
        order = list(range(self.steady))
        run = self._run(order)
        waiting = [sum(one >= self.steady for one in needed) for needed in self.before]
        ready = [index for index in range(self.steady, len(waiting)) if not waiting[index]]
        while ready:
            last = self.before_guard if len(order) < self.before_guard else len(self.tasks)
            chosen = next((at for at in ready if at < last and run.live + run.more(at) <= limit), None)
            if chosen is None:
                return None
            ready.remove(chosen)
            run.do(chosen)
            order.append(chosen)
            for index in self.after[chosen]:
                waiting[index] -= 1
                if not waiting[index]:
                    insort(ready, index)
        return order


class _Run:
    """What is alive while nodes run one after another."""

    def __init__(self, step: _Step) -> None:
        self.step, self.done = step, 0
        self.live = sum(map(step.sizes.__getitem__, step.inputs))
        self.left = list(step.readers)
        if step.before_guard:
            for value in step.inputs:  # whole for whoever looks for what is not finite
                self.left[value] += 1

    def more(self, index: int) -> int:
        """Bytes that the node needs beside what is alive."""
        task = self.step.tasks[index]
        return sum(size for _, size, _ in task.made) + task.scratch - self._reused(task)

    def _reused(self, task: _Task) -> int:
        """Bytes of results that are written over operands which nobody else reads."""
        taken: list[int] = []
        total = 0
        for _, size, over in task.made:
            room = next((one for one in over if self.left[one] == 1 and one not in taken), None)
            if room is not None:
                taken.append(room)
                total += size
        return total

    def do(self, index: int) -> None:
        """Run the node."""
        task = self.step.tasks[index]
        self.live += sum(size for _, size, _ in task.made)
        for value in task.reads:
            self._read(value)
        self.done += 1
        if self.done == self.step.before_guard:
            for value in self.step.inputs:
                self._read(value)

    def _read(self, value: int) -> None:
        self.left[value] -= 1
        if not self.left[value]:
            self.live -= self.step.sizes[value]

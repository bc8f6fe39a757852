"""The execution order: invariant nodes, then nodes that the guard needs, then the rest, each close to its readers.

Nodes that start an asynchronous operation, such as a sum over workers, run before the guard, in the order in which
their operands are available: the guard is checked when the rest of the step can only wait.

Nodes are visited depth first from the results of the graph; of several operands, the one with the longest path to a
source comes first, while the others are not alive yet. Updates are visited in the order in which their gradients become
available, the last layer's first, so that each gradient is consumed before the next one is computed. Readers of a state
run before its update if possible, so that the update can be written in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netspec.graph.graph import Graph, users
from netspec.graph.ops.source import State
from netspec.graph.value import Node
from netspec.passes.invariant import invariant_nodes


@dataclass(frozen=True)
class Schedule:
    """An execution order in three parts."""

    order: list[Node]
    invariant_count: int
    """Number of leading nodes that run only when states have changed."""
    before_guard_count: int
    """Number of nodes that run before the guard is checked, including the invariant ones."""


def schedule(graph: Graph) -> Schedule:
    """All nodes in execution order.

    Before the guard run only invariant nodes, nodes that the guard depends on, and those that start an asynchronous
    operation. None of them writes a state, so a step with a non-finite loss leaves all states unchanged.
    """
    nodes = graph.nodes()
    depth = _depths(nodes)
    operands = {
        node: sorted({value.node for value in node.inputs}, key=lambda producer: (depth[producer], -producer.serial))
        for node in nodes
    }
    order: dict[Node, None] = {}
    invariant = invariant_nodes(graph)
    _visit([node for node in nodes if node in invariant and not node.op.traits.source], operands, order)
    invariant_count = len(order)
    early = sorted((node for node in nodes if node.op.traits.async_start), key=lambda node: (depth[node], node.serial))
    guard = [] if graph.guard is None else [graph.guard.node]
    _visit((*early, *guard), operands, order)
    before_guard_count = len(order) if guard else invariant_count
    for update, readers in _readers_to_run_first(graph, nodes, frozenset(order)).items():
        operands[update] = [*readers, *operands[update]]
    ends = {value.node for value in graph.roots()}
    # Operands of a multi-tensor group are visited one by one, as soon as they can be computed: if weight gradients had
    # to wait for the group, the gradients of all layers' results would stay alive until then.
    ends |= {value.node for node in ends if node.op.traits.multi_tensor for value in node.inputs}
    _visit(sorted(ends, key=lambda node: (depth[node], node.serial)), operands, order)
    return Schedule(list(order), invariant_count, before_guard_count)


def _depths(nodes: Sequence[Node]) -> dict[Node, int]:
    """The number of computing nodes on the longest path from a source to each node."""
    depth: dict[Node, int] = {}
    for node in nodes:
        computes = not (node.op.traits.source or node.op.traits.view)
        depth[node] = computes + max((depth[value.node] for value in node.inputs), default=0)
    return depth


def _visit(ends: Iterable[Node], before: Mapping[Node, Sequence[Node]], order: dict[Node, None]) -> None:
    """Append `ends` to `order`, each after its predecessors `before[end]`, which are visited from last to first."""
    for end in ends:
        stack = [end]
        while stack:
            waiting = [node for node in before[stack[-1]] if node not in order]
            if waiting:
                stack.extend(waiting)
            else:
                order.setdefault(stack.pop())


def _readers_to_run_first(graph: Graph, nodes: Sequence[Node], guarded: frozenset[Node]) -> dict[Node, list[Node]]:
    """For the node of each update, the readers of the old value that can run before it.

    A reader that needs the update, directly or in a cycle of updates (a, b ← b, a), is left out: it reads the old value
    from the state, and the update is copied later. Nodes before the guard write no state anyway.
    """
    readers = _readers_of_states(nodes)
    following: dict[Node, list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            following.setdefault(value.node, []).append(node)
    readers_first: dict[Node, list[Node]] = {}
    for name, value in graph.updates.items():
        update = value.node
        if update in guarded or update.op.traits.source:
            continue
        later = _reachable(update, following)
        first = [reader for reader in readers.get(name, ()) if reader not in later]
        for reader in first:
            following.setdefault(reader, []).append(update)
        readers_first.setdefault(update, []).extend(first)
    return readers_first


def _readers_of_states(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """The nodes that read each state, directly or through views."""
    readers: dict[str, list[Node]] = {}
    reading = users(nodes)
    for node in nodes:
        if isinstance(node.op, State):
            values = list(node.outputs)
            for value in values:
                for user in reading.get(value, ()):
                    readers.setdefault(node.op.label, []).append(user)
                    if user.op.traits.view:
                        values.extend(user.outputs)
    return readers


def _reachable(start: Node, following: Mapping[Node, Sequence[Node]]) -> set[Node]:
    """`start` and all nodes that depend on it."""
    reached, stack = {start}, [start]
    while stack:
        new = [node for node in following.get(stack.pop(), ()) if node not in reached]
        reached.update(new)
        stack.extend(new)
    return reached

"""The order of execution: what is steady, what the guard needs, then the rest, each value shortly before it is used.

What sets something going that takes its time (a sum over workers) runs before the guard, in the order in which its
operands come to be: the guard is looked at when the rest of the step has nothing else to do but wait.

Nodes are visited depth first from what the graph ends in; of several operands the one with the longest way behind it
comes first, while nothing else is alive. Updates are taken in the order in which their gradients come to be, the last
layer's first: each gradient is used up before the next one is made. And whoever reads a state comes before its update
where that is possible, so that the update can be written in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netspec.graph.graph import Graph, users
from netspec.graph.ops.source import State
from netspec.graph.value import Node
from netspec.passes.steady import steady_nodes


@dataclass(frozen=True)
class Schedule:
    """An order of execution in three parts."""

    order: list[Node]
    steady: int
    """How many nodes come first and run only when states have changed."""
    before_guard: int
    """How many nodes come before the guard is looked at, the steady ones included."""


def schedule(graph: Graph) -> Schedule:
    """All nodes in the order they run.

    Beside the steady nodes only what the guard is computed from runs before it, and what sets something going. No state
    is written there: a step whose loss is not finite leaves everything as it was.
    """
    nodes = graph.nodes()
    depth = _depths(nodes)
    operands = {
        node: sorted({value.node for value in node.inputs}, key=lambda one: (depth[one], -one.serial)) for node in nodes
    }
    order: dict[Node, None] = {}
    steady = steady_nodes(graph)
    _visit([node for node in nodes if node in steady and not node.op.traits.source], operands, order)
    first = len(order)
    early = sorted((node for node in nodes if node.op.traits.starts), key=lambda node: (depth[node], node.serial))
    guard = [] if graph.guard is None else [graph.guard.node]
    _visit((*early, *guard), operands, order)
    before_guard = len(order) if guard else first
    for update, readers in _readers_before_updates(graph, nodes, frozenset(order)).items():
        operands[update] = [*readers, *operands[update]]
    ends = {value.node for value in graph.roots()}
    # What a group waits for is made when its turn comes, not when the group's does: else each gradient of a weight
    # would keep the gradient of a layer's result alive until the end.
    ends |= {value.node for node in ends if node.op.traits.group for value in node.inputs}
    _visit(sorted(ends, key=lambda node: (depth[node], node.serial)), operands, order)
    return Schedule(list(order), first, before_guard)


def _depths(nodes: Sequence[Node]) -> dict[Node, int]:
    """How many nodes that compute something the longest way from a source to each node has."""
    depth: dict[Node, int] = {}
    for node in nodes:
        computes = not (node.op.traits.source or node.op.traits.view)
        depth[node] = computes + max((depth[value.node] for value in node.inputs), default=0)
    return depth


def _visit(ends: Iterable[Node], before: Mapping[Node, Sequence[Node]], order: dict[Node, None]) -> None:
    """Add the ends to `order`, each after all that must come `before` it; of those, the last one is visited first."""
    for end in ends:
        stack = [end]
        while stack:
            waiting = [node for node in before[stack[-1]] if node not in order]
            if waiting:
                stack.extend(waiting)
            else:
                order.setdefault(stack.pop())


def _readers_before_updates(graph: Graph, nodes: Sequence[Node], guarded: frozenset[Node]) -> dict[Node, list[Node]]:
    """For the node that makes each update, the readers of the old value that can run before it.

    A reader that needs the update, or that another update waits for in a circle (a, b ← b, a), is left out: it finds
    the old value where it was, and the update is copied. What runs before the guard writes no state anyway.
    """
    readers = _readers_of_states(nodes)
    following: dict[Node, list[Node]] = {}
    for node in nodes:
        for value in node.inputs:
            following.setdefault(value.node, []).append(node)
    found: dict[Node, list[Node]] = {}
    for name, value in graph.updates.items():
        update = value.node
        if update in guarded or update.op.traits.source:
            continue
        later = _reachable(update, following)
        first = [reader for reader in readers.get(name, ()) if reader not in later]
        for reader in first:
            following.setdefault(reader, []).append(update)
        found.setdefault(update, []).extend(first)
    return found


def _readers_of_states(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """The nodes that read each state, also through views of it."""
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
    """`start` and every node that comes after it."""
    seen, stack = {start}, [start]
    while stack:
        new = [node for node in following.get(stack.pop(), ()) if node not in seen]
        seen.update(new)
        stack.extend(new)
    return seen

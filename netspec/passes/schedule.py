"""The order of execution."""

from __future__ import annotations

from netspec.graph.graph import Graph, topological
from netspec.graph.value import Node


def schedule(graph: Graph) -> tuple[list[Node], int]:
    """All nodes in the order they run, and the number of those that run before the guard is looked at.

    What the guard is computed from comes first, then the rest, each in the order of construction. No state is written
    before the guard: a step whose loss is not finite leaves everything as it was.
    """
    everything = graph.nodes()
    if graph.guard is None:
        return everything, 0
    first = topological([graph.guard])
    before = set(first)
    return first + [node for node in everything if node not in before], len(first)

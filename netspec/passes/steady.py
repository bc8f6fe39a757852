"""Steady nodes: what depends on constants and on states that the graph leaves alone.

Their results change only when somebody else writes a state, so that they need not be computed at every run: weights
in the form that a kernel wants, the vectors of a batch normalization in an inference graph, what a frozen layer makes
of its weights.
"""

from __future__ import annotations

from netspec.graph.graph import Graph
from netspec.graph.ops.source import State
from netspec.graph.value import Node


class Steadiness:
    """Which nodes are steady in a graph, and in what a pass makes of it."""

    def __init__(self, graph: Graph) -> None:
        self._written = graph.updates.keys()
        self._known: dict[Node, bool] = {}

    def __call__(self, node: Node) -> bool:
        """Whether a node is steady. Nodes are to be asked for in the order of execution."""
        if node not in self._known:
            kept = isinstance(node.op, State) and node.op.label not in self._written
            self._known[node] = kept or (node.op.traits.pure and all(self(value.node) for value in node.inputs))
        return self._known[node]


def steady_nodes(graph: Graph) -> set[Node]:
    """The steady nodes, sources and views among them."""
    steady = Steadiness(graph)
    return {node for node in graph.nodes() if steady(node)}

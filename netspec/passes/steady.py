"""Steady nodes: what depends on constants and on states that the graph leaves alone.

Their results change only when somebody else writes a state, so that they need not be computed at every run: weights
in the form that a kernel wants, the vectors of a batch normalization in an inference graph, what a frozen layer makes
of its weights.
"""

from __future__ import annotations

from netspec.graph.graph import Graph
from netspec.graph.ops.source import State
from netspec.graph.value import Node


def steady_nodes(graph: Graph) -> set[Node]:
    """The steady nodes, sources and views among them."""
    found: set[Node] = set()
    for node in graph.nodes():
        op = node.op
        kept = isinstance(op, State) and op.label not in graph.updates
        if kept or (op.traits.pure and all(value.node in found for value in node.inputs)):
            found.add(node)
    return found

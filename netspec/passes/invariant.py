"""Loop-invariant nodes: those that depend only on constants and on states that the graph does not write.

Their results change only when a state is written from outside, so they need not run in every step. Examples are weights
in a kernel's own layout, the folded vectors of batch normalization at inference, and everything computed from the
weights of a frozen layer.
"""

from __future__ import annotations

from netspec.graph.graph import Graph
from netspec.graph.ops.source import State
from netspec.graph.value import Node


class InvariantAnalysis:
    """Determines which nodes are loop-invariant, in a graph and in graphs that passes derive from it."""

    def __init__(self, graph: Graph) -> None:
        self._written = graph.updates.keys()
        self._is_invariant: dict[Node, bool] = {}

    def __call__(self, node: Node) -> bool:
        """Whether a node is loop-invariant. Nodes must be queried in execution order."""
        if node not in self._is_invariant:
            is_constant_state = isinstance(node.op, State) and node.op.label not in self._written
            self._is_invariant[node] = is_constant_state or (
                node.op.traits.pure and all(self(value.node) for value in node.inputs)
            )
        return self._is_invariant[node]


def invariant_nodes(graph: Graph) -> set[Node]:
    """The loop-invariant nodes, including sources and views."""
    is_invariant = InvariantAnalysis(graph)
    return {node for node in graph.nodes() if is_invariant(node)}

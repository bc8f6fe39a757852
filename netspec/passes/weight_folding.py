"""Weight folding: invariant factors and addends move into the weights and the bias of the preceding contraction.

(w ∗ x) · s becomes (w · s) ∗ x, and w · s is computed only when weights change: batch normalization costs nothing at
inference. Each op implements its own rule (`Op.fold_into_weights`).
"""

from __future__ import annotations

from typing import ClassVar

from netspec.graph.graph import Graph, users
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass
from netspec.passes.invariant import InvariantAnalysis


class FoldIntoWeights(Pass):
    """Move computation from every run into invariant nodes."""

    name: ClassVar[str] = "weight_folding"
    exact: ClassVar[bool] = False  # products and sums round in another order

    def run(self, graph: Graph) -> Graph:
        """The graph with invariant factors and addends folded."""
        facts = _ValueFacts(graph)

        def change(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
            for old, new in zip(node.inputs, inputs, strict=True):
                facts.replace(old, new)
            if len(node.outputs) != 1 or not node.op.traits.pure:
                return None
            with in_scope(node.scope):
                folded = node.op.fold_into_weights(facts, *inputs)
            return None if folded is None else (folded,)

        return graph.rewrite(change)


class _ValueFacts:
    """Facts about values that `Op.fold_into_weights` asks for."""

    def __init__(self, graph: Graph) -> None:
        self._is_invariant = InvariantAnalysis(graph)
        self._shared = {value for value, readers in users(graph.nodes()).items() if len(readers) > 1}
        self._shared.update(graph.roots())

    def replace(self, old: Value, new: Value) -> None:
        """Record that `new` replaces the operand `old`."""
        self._is_invariant(new.node)
        if old in self._shared:
            self._shared.add(new)

    def is_invariant(self, value: Value) -> bool:
        return self._is_invariant(value.node)

    def has_one_reader(self, value: Value) -> bool:
        return value not in self._shared

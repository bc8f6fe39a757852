"""Absorption: factors and addends that are steady move into the weights and the bias of the product before them.

(w ∗ x) · s becomes (w · s) ∗ x, and w · s is computed only when weights change: batch normalization at inference costs
nothing. Each op says what it equals (`Op.absorbed`).
"""

from __future__ import annotations

from typing import ClassVar

from netspec.graph.graph import Graph, users
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass
from netspec.passes.steady import Steadiness


class Absorb(Pass):
    """Leave to steady nodes what can be left to them."""

    name: ClassVar[str] = "absorb"
    exact: ClassVar[bool] = False  # products and sums round in another order

    def run(self, graph: Graph) -> Graph:
        """The graph with less to do at each run."""
        known = _Known(graph)

        def change(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
            for old, new in zip(node.inputs, inputs, strict=True):
                known.replace(old, new)
            if len(node.outputs) != 1 or not node.op.traits.pure:
                return None
            with in_scope(node.scope):
                made = node.op.absorbed(known, *inputs)
            return None if made is None else (made,)

        return graph.rewrite(change)


class _Known:
    """What ops ask about their operands."""

    def __init__(self, graph: Graph) -> None:
        self._steady = Steadiness(graph)
        self._shared = {value for value, readers in users(graph.nodes()).items() if len(readers) > 1}
        self._shared.update(graph.roots())

    def replace(self, old: Value, new: Value) -> None:
        """An operand of a node to come, and what the pass has made of it."""
        self._steady(new.node)
        if old in self._shared:
            self._shared.add(new)

    def steady(self, value: Value) -> bool:
        return self._steady(value.node)

    def alone(self, value: Value) -> bool:
        return value not in self._shared

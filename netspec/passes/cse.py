"""Common subexpressions: equal pure ops on the same operands are computed once."""

from __future__ import annotations

from typing import ClassVar

from netspec.graph.graph import Graph, rebuild
from netspec.graph.op import Op
from netspec.graph.value import Node, Value
from netspec.passes.base import Pass


class CommonSubexpressions(Pass):
    """Merge nodes that compute the same."""

    name: ClassVar[str] = "cse"

    def run(self, graph: Graph) -> Graph:
        """The graph with each value computed once."""
        first: dict[tuple[Op, tuple[Value, ...]], tuple[Value, ...]] = {}

        def merge(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
            if not node.op.traits.pure:
                return None
            key = (node.op, inputs)
            if key in first:
                return first[key]
            first[key] = node.outputs if inputs == node.inputs else rebuild(node, inputs)
            return first[key]

        return graph.rewrite(merge)

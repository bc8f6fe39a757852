"""Algebraic simplification: replaces nodes by cheaper equal values (`Op.simplify`)."""

from __future__ import annotations

from typing import ClassVar

from netspec.graph.graph import Graph
from netspec.graph.op import as_tuple, simplify_value
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass


class Simplify(Pass):
    """Replace nodes by equal values until no rule applies."""

    name: ClassVar[str] = "simplify"
    exact: ClassVar[bool] = False  # a zero may change its sign, and x · scale + shift rounds differently

    def run(self, graph: Graph) -> Graph:
        """The simplified graph."""
        return graph.rewrite(_simplified)


def _simplified(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
    if not node.op.traits.pure:
        return None
    with in_scope(node.scope):
        simpler = node.op.simplify(*inputs)
        return None if simpler is None else tuple(map(simplify_value, as_tuple(simpler)))

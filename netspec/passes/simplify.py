"""Algebraic simplification: each op says what it equals when its operands are special (`Op.simplified`)."""

from __future__ import annotations

from typing import ClassVar

from netspec.graph.fused import several
from netspec.graph.graph import Graph
from netspec.graph.op import simpler
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass


class Simplify(Pass):
    """Replace nodes by what they equal, down to what no rule simplifies."""

    name: ClassVar[str] = "simplify"
    exact: ClassVar[bool] = False  # a zero may change its sign; x · scale + shift rounds otherwise

    def run(self, graph: Graph) -> Graph:
        """The simplified graph."""
        return graph.rewrite(_simplified)


def _simplified(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
    if not node.op.traits.pure:
        return None
    with in_scope(node.scope):
        found = node.op.simplified(*inputs)
        return None if found is None else tuple(map(simpler, several(found)))

"""What workers wait for at once, they all come to in one sequence: that in which it was built.

This is the first of the passes: those that simplify build nodes anew, other ones on a worker with other samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from netspec.graph.graph import Graph
from netspec.graph.ops.communication import Communication
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.base import Pass


class InSequence(Pass):
    """Make each sum or exchange that is waited for at once come after the one that was built before it."""

    name: ClassVar[str] = "in_sequence"
    exact: ClassVar[bool] = True

    def run(self, graph: Graph) -> Graph:
        """The graph in which each has the one before as a further operand."""
        last: list[Value] = []

        def after_the_last(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
            if not isinstance(node.op, Communication) or not node.op.awaited:
                return None
            with in_scope(node.scope):
                made = apply(node.op, (inputs[0], *last))
            last[:] = made
            return made

        return graph.rewrite(after_the_last)

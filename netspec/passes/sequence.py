"""What workers send each other, they all come to in one sequence: that in which it was built.

This is the first of the passes: those that simplify build nodes anew, other ones on a worker with other samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from netspec.graph.graph import Graph
from netspec.graph.ops.communication import Communication, Placed
from netspec.graph.ops.scattering import GatherPieces
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.base import Pass


class InSequence(Pass):
    """Make each sum or exchange that is waited for at once come after the one that was built before it.

    The others get their place in the order in which what they send was built.
    """

    name: ClassVar[str] = "in_sequence"
    exact: ClassVar[bool] = True

    def run(self, graph: Graph) -> Graph:
        """The graph in which each has the one before as a further operand."""
        last: list[Value] = []
        late = [node for node in graph.nodes() if isinstance(node.op, Placed) and not node.op.awaited]
        late.sort(key=_built)
        places = {node: place for place, node in enumerate(late)}

        def after_the_last(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
            if node in places and isinstance(node.op, Placed):
                with in_scope(node.scope):
                    return apply(replace(node.op, place=places[node]), inputs)
            if not isinstance(node.op, Communication) or not node.op.awaited:
                return None
            with in_scope(node.scope):
                made = apply(node.op, (inputs[0], *last))
            last[:] = made
            return made

        return graph.rewrite(after_the_last)


def _built(node: Node) -> tuple[bool, int]:
    """Rises with when what is sent was built; of wholes, of which each worker has other parts, when these were."""
    whole = isinstance(node.op, GatherPieces)
    return whole, node.serial if whole else max(value.node.serial for value in node.inputs)

"""Communication order: all workers run collectives in the order of construction.

It must be the first pass: simplification creates new nodes, which differ between workers whose batch sizes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from netspec.graph.graph import Graph
from netspec.graph.ops.all_reduce import CommunicationOp, OrderedCommunication
from netspec.graph.ops.reduce_scatter import BucketAllGather
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.base import Pass


class OrderCommunication(Pass):
    """Make each blocking collective depend on the preceding one.

    The other collectives get a position, in the order in which their operands were built.
    """

    name: ClassVar[str] = "communication_order"
    exact: ClassVar[bool] = True

    def run(self, graph: Graph) -> Graph:
        """The graph in which each blocking collective has the result of the preceding one as an operand."""
        last: list[Value] = []
        deferred = [
            node for node in graph.nodes() if isinstance(node.op, OrderedCommunication) and not node.op.is_blocking
        ]
        deferred.sort(key=_construction_order)
        position_of = {node: index for index, node in enumerate(deferred)}

        def chain_collectives(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
            if node in position_of and isinstance(node.op, OrderedCommunication):
                with in_scope(node.scope):
                    return apply(replace(node.op, position=position_of[node]), inputs)
            if not isinstance(node.op, CommunicationOp) or not node.op.is_blocking:
                return None
            with in_scope(node.scope):
                results = apply(node.op, (inputs[0], *last))
            last[:] = results
            return results

        return graph.rewrite(chain_collectives)


def _construction_order(node: Node) -> tuple[bool, int]:
    """Sort key: the last operand's serial or, for a `BucketAllGather`, whose operands differ by worker, its own."""
    is_all_gather = isinstance(node.op, BucketAllGather)
    return is_all_gather, node.serial if is_all_gather else max(value.node.serial for value in node.inputs)

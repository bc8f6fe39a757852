"""Clamp sinking: a clamp such as ReLU moves behind a max pooling that is the only reader of its result.

max over relu(x) equals relu of max over x, and there are fewer maxima than elements: forward and backward compute less,
and the clamp's result before pooling need not be kept. The pass runs before gradients are built, so that they benefit
too.
"""

from __future__ import annotations

from typing import ClassVar

from netspec.graph.graph import Graph, rebuild, users
from netspec.graph.value import Node, Value, apply, in_scope
from netspec.passes.base import Pass


class SinkClamps(Pass):
    """Move clamps behind window maxima.

    If no element of a window is within the bound, a different one may be selected; either way its gradient is 0.
    """

    name: ClassVar[str] = "clamp_sinking"

    def run(self, graph: Graph) -> Graph:
        """The graph in which no window maximum reads a clamp that has no other reader."""
        read, roots = users(graph.nodes()), set(graph.roots())

        def has_one_reader(value: Value) -> bool:
            return value not in roots and len(read.get(value, ())) == 1

        def sink(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
            clamps: list[Node] = []
            (x, *others), source = inputs or (None,), node.inputs[:1]
            if (
                x is None
                or others
                or not node.op.is_window_max(x.type)
                or any(value in read for value in node.outputs[1:])
            ):
                return None
            while x.op.traits.clamp and all(map(has_one_reader, source)):
                clamps.append(x.node)
                (x,), source = x.inputs, source[0].inputs
            if not clamps:
                return None
            with in_scope(node.scope):
                y, *other_results = apply(node.op, (x,))
            for clamp in reversed(clamps):
                (y,) = rebuild(clamp, (y,))
            return y, *other_results

        return graph.rewrite(sink)

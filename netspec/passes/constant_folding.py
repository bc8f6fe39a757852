"""Constant folding: nodes that depend only on constants are computed once, at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from netspec.graph.graph import Graph
from netspec.graph.ops.source import Constant, Fill, constant
from netspec.graph.value import Node, Value, in_scope
from netspec.passes.base import Pass

MAX_BYTES = 1 << 20
"""Nodes with more bytes are not folded: a constant takes memory for the life of the program."""


class FoldConstants(Pass):
    """Replace pure nodes by their value if all operands are constants."""

    name: ClassVar[str] = "constant_folding"

    def run(self, graph: Graph) -> Graph:
        """The graph with constants folded."""
        return graph.rewrite(_fold)


def _fold(node: Node, inputs: tuple[Value, ...]) -> Sequence[Value] | None:
    op = node.op
    if op.traits.source or not op.traits.pure or not inputs:
        return None
    if not all(isinstance(value.op, (Fill, Constant)) for value in inputs):
        return None
    if sum(kind.nbytes for kind in (*node.types, *(value.type for value in inputs))) > MAX_BYTES:
        return None
    with np.errstate(all="ignore"):
        results = op.forward(np, *(value.op.forward(np) for value in inputs))
    arrays = results if isinstance(results, tuple) else (results,)
    with in_scope(node.scope):
        return [constant(np.asarray(array, str(kind.dtype))) for array, kind in zip(arrays, node.types, strict=True)]

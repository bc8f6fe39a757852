"""Mixed precision: decides which values are stored in fewer bits than they are computed in.

Contractions round their operands anyway, so values that they read may be rounded when they are written, and their
results may be rounded as in any library. Downstream, results of ops that sum at most a few elements
(`Traits.narrowable_outputs`, elementwise ops, views) are rounded if their operands were. All other values keep full
precision: parameters and everything that becomes part of an update, losses, metrics and what they read, statistics,
values that only exact ops read, and results of the program.

Micikevicius et al. 2018, arXiv:1710.03740 (float32 master weights); Kalamkar et al. 2019, arXiv:1905.12322 (bfloat16
has the range of float32, so the loss is not scaled; for float16 it must be).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netspec.graph.fused import EpilogueFused, inner_traits
from netspec.graph.graph import Graph, users
from netspec.graph.ops.source import Input
from netspec.graph.types import DType
from netspec.graph.value import Node, Value


def narrowable_values(graph: Graph) -> frozenset[Value]:
    """The values that may be rounded when they are written.

    Expects the graph after fusion: values inside a fused op are never written to memory, and so are not rounded.
    """
    nodes = graph.nodes()
    wide, read = _full_precision_values(graph, nodes), users(nodes)
    narrow: set[Value] = set()
    for node in nodes:
        if _is_exact(node):
            continue
        for value in node.outputs:
            if (
                value.dtype != DType.FLOAT32
                or value in wide
                or not any(map(_gains_from_narrowing, read.get(value, ())))
            ):
                continue
            if _can_narrow(node, value, narrow, read):
                narrow.add(value)
    return frozenset(narrow)


def is_contraction(node: Node) -> bool:
    """Whether a node sums products of its operands."""
    return inner_traits(node.op).is_contraction


def contracted_operand_count(node: Node) -> int:
    """Number of leading operands that are multiplied and summed."""
    if not is_contraction(node):
        return 0
    return node.op.anchor_arity if isinstance(node.op, EpilogueFused) else len(node.inputs)


def _gains_from_narrowing(node: Node) -> bool:
    """Whether a reader gains from fewer bits; a softmax or a recurrence, for example, would only widen them again."""
    traits = inner_traits(node.op)
    return traits.is_contraction or bool(traits.narrowable_outputs) or _is_elementwise_or_view(node)


def _is_elementwise_or_view(node: Node) -> bool:
    """Whether each element of the result depends only on the operands' elements at the same index."""
    return node.op.traits.elementwise or node.op.traits.view


def _is_exact(node: Node) -> bool:
    """Whether the results of a node are never rounded: updates, losses and metrics."""
    return node.scope.phase == "update" or node.scope.noun != "layer"


def _full_precision_values(graph: Graph, nodes: Sequence[Node]) -> set[Value]:
    """Results of the program, operands of exact nodes, and values from which elementwise ops compute either."""
    wide = set(graph.roots())
    for node in reversed(nodes):
        if _is_exact(node) or (_is_elementwise_or_view(node) and wide.intersection(node.outputs)):
            wide.update(node.inputs)
    return wide


def _can_narrow(node: Node, value: Value, narrow: set[Value], read: Mapping[Value, Sequence[Node]]) -> bool:
    if isinstance(node.op, Input):
        return _read_only_by_contractions(value, read)
    traits = inner_traits(node.op)
    if traits.is_contraction:
        return True
    narrow_operands = [operand for operand in node.inputs if operand in narrow]
    if traits.elementwise:
        return any(operand.shape == value.shape for operand in narrow_operands)
    return bool(narrow_operands) and (traits.view or value.index in traits.narrowable_outputs)


def _read_only_by_contractions(value: Value, read: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether only contractions read a value, directly or through views."""
    readers = read.get(value, ())
    return bool(readers) and all(
        is_contraction(node) or (node.op.traits.view and _read_only_by_contractions(node.outputs[0], read))
        for node in readers
    )

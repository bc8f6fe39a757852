"""Mixed precision: which values may lie in memory in fewer bits than they are computed in.

Products round their operands anyway, so what they read may be rounded when it is written, and what they give may be
rounded as it is in any library. From there on results are rounded where operands were, by ops that sum up at most a few
numbers (`Traits.rounds`, elementwise ops, views). All else stays as it is: parameters and whatever becomes part of an
update, losses and metrics and what they read, statistics, what none but exact ops read, and what the program gives.

After Micikevicius et al. 2018, arXiv:1710.03740 (master weights in float32), and Kalamkar et al. 2019,
arXiv:1905.12322 (bfloat16, whose range is that of float32: the loss need not be scaled, as that of float16 must be).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netspec.graph.fused import Anchored, inner_traits
from netspec.graph.graph import Graph, users
from netspec.graph.ops.source import Input
from netspec.graph.types import DType
from netspec.graph.value import Node, Value


def narrowable(graph: Graph) -> frozenset[Value]:
    """The values that may be rounded when they are written.

    The graph is that after fusion: what lies inside a fused op never goes to memory, and is not rounded.
    """
    nodes = graph.nodes()
    wide, read = _wide(graph, nodes), users(nodes)
    narrow: set[Value] = set()
    for node in nodes:
        if _exact(node):
            continue
        for value in node.outputs:
            if value.dtype != DType.FLOAT32 or value in wide or not any(map(_takes_rounded, read.get(value, ()))):
                continue
            if _rounded(node, value, narrow, read):
                narrow.add(value)
    return frozenset(narrow)


def contracts(node: Node) -> bool:
    """Whether a node sums up products of its operands."""
    return inner_traits(node.op).contracts


def contracted(node: Node) -> int:
    """How many of a node's operands, the first ones, are multiplied and summed up."""
    if not contracts(node):
        return 0
    return node.op.anchor_arity if isinstance(node.op, Anchored) else len(node.inputs)


def _takes_rounded(node: Node) -> bool:
    """Whether a reader gains by fewer bits: a softmax, say, or a recurrence would only have them widened again."""
    traits = inner_traits(node.op)
    return traits.contracts or bool(traits.rounds) or _follows(node)


def _follows(node: Node) -> bool:
    """Whether each element of the result is one of the operand's, or computed of those at the same place."""
    return node.op.traits.elementwise or node.op.traits.view


def _exact(node: Node) -> bool:
    """Whether a node's results are not rounded, whatever it is: updates, losses, metrics."""
    return node.scope.phase == "update" or node.scope.what != "layer"


def _wide(graph: Graph, nodes: Sequence[Node]) -> set[Value]:
    """What the program gives, what exact nodes read, and what either is made of element by element."""
    wide = set(graph.roots())
    for node in reversed(nodes):
        if _exact(node) or (_follows(node) and wide.intersection(node.outputs)):
            wide.update(node.inputs)
    return wide


def _rounded(node: Node, value: Value, narrow: set[Value], read: Mapping[Value, Sequence[Node]]) -> bool:
    if isinstance(node.op, Input):
        return _contracted_alone(value, read)
    traits = inner_traits(node.op)
    if traits.contracts:
        return True
    given = [operand for operand in node.inputs if operand in narrow]
    if traits.elementwise:
        return any(operand.shape == value.shape for operand in given)
    return bool(given) and (traits.view or value.index in traits.rounds)


def _contracted_alone(value: Value, read: Mapping[Value, Sequence[Node]]) -> bool:
    """Whether nothing but products reads a value, itself or as a view."""
    readers = read.get(value, ())
    return bool(readers) and all(
        contracts(node) or (node.op.traits.view and _contracted_alone(node.outputs[0], read)) for node in readers
    )

"""`PastRelu`: whether what feeds a gradient of batch normalization is the gradient of a ReLU of that one's result."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from netspec.graph.fused import Fed, Fused
from netspec.graph.ops.elementwise import Greater, Where, scalar
from netspec.graph.ops.functions import Relu
from netspec.graph.ops.normalization import BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.ops.source import Fill
from netspec.graph.value import Node, Value


@dataclass(frozen=True)
class PastRelu:
    """Which operands, by number, are the gradient of the ReLU's result, and the beta that was added before it."""

    dy: int
    beta: int

    @classmethod
    def of(cls, node: Node) -> PastRelu | None:
        """Of a node that reads x, gamma, mean, variance, and what its body wants; None where it is another body."""
        if not isinstance(node.op, Fed) or not isinstance(node.op.op, BatchNormalizationGrad):
            return None
        x, gamma, mean, variance, *extras = node.inputs
        large = {x, *(one for one in extras if one.shape == x.shape)}
        told = _made(node.op.prologue(len(extras)), 0, [_told(one, large) for one in extras])
        for dy in (place for place, one in enumerate(extras) if one in large - {x}):
            for beta in (place for place, one in enumerate(extras) if one.base.shape == gamma.shape):
                wanted = _expected(node.op.op, x, gamma, extras[beta].base, mean, variance, extras[dy])
                if told == _told(wanted, large):
                    return cls(4 + dy, 4 + beta)
        return None


def _expected(
    op: BatchNormalizationGrad, x: Value, gamma: Value, beta: Value, mean: Value, variance: Value, dy: Value
) -> Value:
    """What the body would be."""
    y = BatchNormalizationTraining(op.axis, op.epsilon).again((x, gamma, beta), (x, mean, variance))
    zero = scalar(0.0, x.dtype)
    return Where()(Greater()(Relu()(y), zero), dy, zero)


def _told(value: Value, leaves: AbstractSet[Value]) -> Any:
    """How elementwise ops make a value: ops and what they read, but for views; leaves and others are themselves."""
    value = value if value in leaves else value.base
    if value in leaves:
        return value
    read = [_told(one, leaves) for one in value.inputs] if value.op.traits.elementwise else []
    if isinstance(value.op, Fused):
        return _made(value.op, value.index, read)
    return (value.op, *read) if read or isinstance(value.op, Fill) else value


def _made(op: Fused, result: int, operands: Sequence[Any]) -> Any:
    """How a body makes a result of operands."""
    known = list(operands)
    for step in op.body:
        known.append((step.op, *(known[place] for place in step.operands)))
    return known[op.results[result]]

"""Base class and helpers of batch normalization kernels, for all backends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from netspec.graph.fused import EpilogueFused, Fused, PrologueFused
from netspec.graph.kernel import Kernel, LowPrecision, data_layouts
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.batch_normalization import ChannelwiseOp
from netspec.graph.types import TensorType
from netspec.graph.value import Node

Untraceable = Callable[[Op, Sequence[TensorType]], str | None]
"""Reason why a backend cannot generate the scalar code of an op; None if it can."""


class ChannelNormKernel(Kernel):
    """Base class: large operands and results have the same layout, plain or channels-last."""

    low_precision = LowPrecision.DATA

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        rank = len(node.inputs[0].shape)
        last = Layout.channels_last(rank)
        use_last = offered[0] == last and normalization_op(node.op).axis == 1 and rank > 2
        return data_layouts(node, last if use_last else PLAIN)


class OperandExtent(Enum):
    """How an operand broadcasts to the normalized operand. The values name the index variable of generated code."""

    WHOLE = "at"
    CHANNEL = "c"
    SINGLE = "0"


def operand_extent(axis: int, x: TensorType, operand: TensorType) -> OperandExtent | None:
    """Return how an operand broadcasts to `x`; None if in another way than these."""
    padded = (1,) * (x.rank - operand.rank) + operand.shape
    if padded == x.shape:
        return OperandExtent.WHOLE
    if padded == tuple(size if index == axis else 1 for index, size in enumerate(x.shape)):
        return OperandExtent.CHANNEL
    return OperandExtent.SINGLE if operand.size == 1 else None


def normalization_op(op: Op) -> ChannelwiseOp:
    """The normalization op itself, even if it is part of a fused op."""
    anchor = op.anchor if isinstance(op, EpilogueFused) else op.op if isinstance(op, PrologueFused) else op
    assert isinstance(anchor, ChannelwiseOp)
    return anchor


def operand_bytes(node: Node, signature: LayoutSignature) -> int:
    """Bytes of operands, each read once, and of results."""
    operands = dict(zip(node.inputs, signature.inputs, strict=True))
    results = zip(node.outputs, signature.outputs, strict=True)
    return sum(layout.nbytes(value.type) for value, layout in (*operands.items(), *results))


def fusion_reject_reason(
    base: type[ChannelwiseOp], op: Op, types: Sequence[TensorType], untraceable: Untraceable
) -> str | None:
    """Return why elementwise ops cannot be fused with a normalization of class `base`; None if they can."""
    if isinstance(op, EpilogueFused):
        if not isinstance(op.anchor, base):
            return f"the anchor is {op.anchor.name}"
        return _extras_reject_reason(op.anchor, types[0], op.epilogue(len(types) - 3), types[3:], untraceable)
    if isinstance(op, PrologueFused):
        if not isinstance(op.op, base):
            return f"it feeds {op.op.name}"
        return _extras_reject_reason(op.op, types[0], op.prologue(len(types) - 4), types[4:], untraceable)
    return None


def _extras_reject_reason(
    op: ChannelwiseOp, x: TensorType, body: Fused, extras: Sequence[TensorType], untraceable: Untraceable
) -> str | None:
    """Return why elementwise ops on `extras`, and possibly on a value like `x`, cannot be fused."""
    for extra in extras:
        if operand_extent(op.axis, x, extra) is None:
            return f"an operand of shape {list(extra.shape)} does not match {list(x.shape)}"
    return untraceable(body, [x, *extras] if body.arity > len(extras) else extras)


NORMALIZED = "(a0 - a{0}) * a{1} + a{2}"
"""Normalized x (operand 0) with mean, scale and offset: the same arithmetic everywhere."""

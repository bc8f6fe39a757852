"""What kernels of batch normalization have in common, whatever language a backend writes them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from netspec.graph.fused import Anchored, Fed, Fused
from netspec.graph.kernel import Kernel, large_narrowed
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.ops.normalization import OverChannels
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

Untraceable = Callable[[Op, Sequence[TensorType]], str | None]
"""Why a backend cannot write the scalar code of an op; None if it can."""


class Scratch:
    """Arrays cut out of a workspace, one after another."""

    def __init__(self, workspace: Any, dtype: DType) -> None:
        self.workspace, self.dtype, self.used = workspace, dtype, 0

    def take(self, count: int) -> Any:
        """The next `count` elements."""
        size = count * self.dtype.itemsize
        made = self.workspace[self.used : self.used + size].view(str(self.dtype))
        self.used += aligned(size)
        assert made.size == count, "the workspace is smaller than what was asked for"
        return made


class OverChannelsKernel(Kernel):
    """Base of these kernels: large operands and results lie alike, plain or channels-last."""

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        x, op = node.inputs[0], inner(node.op)
        last = Layout.channels_last(len(x.shape))
        chosen = last if given[0] == last and op.axis == 1 and len(x.shape) > 2 else PLAIN
        lying = [chosen if value.shape == x.shape else PLAIN for value in (*node.inputs, *node.outputs)]
        return Signature(tuple(lying[: len(given)]), tuple(lying[len(given) :]))

    def narrowed(self, node: Node, wanted: Signature) -> Signature | None:
        return large_narrowed(node, wanted)


class Lying(Enum):
    """How an operand goes with the one that is normalized."""

    WHOLE = "at"
    CHANNEL = "c"
    SINGLE = "0"
    """The values are where the gradient's sums find its element: by place, by channel, or always the first."""


def lying(axis: int, x: TensorType, one: TensorType) -> Lying | None:
    """How an operand that broadcasts over `x` lies beside it; None for another way than these."""
    padded = (1,) * (x.rank - one.rank) + one.shape
    if padded == x.shape:
        return Lying.WHOLE
    if padded == tuple(size if place == axis else 1 for place, size in enumerate(x.shape)):
        return Lying.CHANNEL
    return Lying.SINGLE if one.size == 1 else None


def inner(op: Op) -> OverChannels:
    """The normalization that an op is, or that it is made around."""
    found = op.anchor if isinstance(op, Anchored) else op.op if isinstance(op, Fed) else op
    assert isinstance(found, OverChannels)
    return found


def moved(node: Node, lying: Signature) -> int:
    """Bytes of operands, each of which is read once, and of results."""
    operands = dict(zip(node.inputs, lying.inputs, strict=True))
    results = zip(node.outputs, lying.outputs, strict=True)
    return sum(layout.nbytes(value.type) for value, layout in (*operands.items(), *results))


def why_not_around(
    base: type[OverChannels], op: Op, types: Sequence[TensorType], untraceable: Untraceable
) -> str | None:
    """Why elementwise ops cannot be done behind or before a normalization of class `base`, if there are any."""
    if isinstance(op, Anchored):
        if not isinstance(op.anchor, base):
            return f"the anchor is {op.anchor.name}"
        return _why_not_beside(op.anchor, types[0], op.epilogue(len(types) - 3), types[3:], untraceable)
    if isinstance(op, Fed):
        if not isinstance(op.op, base):
            return f"it feeds {op.op.name}"
        return _why_not_beside(op.op, types[0], op.prologue(len(types) - 4), types[4:], untraceable)
    return None


def _why_not_beside(
    op: OverChannels, x: TensorType, body: Fused, extras: Sequence[TensorType], untraceable: Untraceable
) -> str | None:
    """Of elementwise ops on `extras`, and perhaps on a value like `x`."""
    for one in extras:
        if lying(op.axis, x, one) is None:
            return f"an operand {list(one.shape)} beside {list(x.shape)}"
    return untraceable(body, [x, *extras] if body.arity > len(extras) else extras)


NORMALIZED = "(a0 - a{0}) * a{1} + a{2}"
"""x, which is operand 0, with mean, scale and offset: the same arithmetic wherever it is done."""

"""Epilogues of convolutions and products as oneDNN's bias and post-ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from netspec.backends.onednn.attributes import Attributes, BinaryPostOp, EltwisePostOp, PostOp, PReluPostOp
from netspec.backends.onednn.constants import AlgKind, Arg, post_op_src, post_op_weights
from netspec.backends.onednn.kernel import Operand, data_type, engine
from netspec.backends.onednn.memory import MemoryDesc
from netspec.graph.fused import EpilogueFused
from netspec.graph.layout import Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops import elementwise, special, unary
from netspec.graph.types import TensorType

GELU, SOFTPLUS = EltwisePostOp(AlgKind.ELTWISE_GELU_ERF), EltwisePostOp(AlgKind.ELTWISE_SOFT_RELU, 1.0)
UNARY: dict[type[Op], Callable[[Any], EltwisePostOp | PReluPostOp]] = {
    unary.Relu: lambda op: PReluPostOp(),  # the library's own ReLU hides NaN from the guard
    unary.Sigmoid: lambda op: EltwisePostOp(AlgKind.ELTWISE_LOGISTIC),
    unary.Tanh: lambda op: EltwisePostOp(AlgKind.ELTWISE_TANH),
    unary.Elu: lambda op: EltwisePostOp(AlgKind.ELTWISE_ELU, op.alpha),
    unary.Softplus: lambda op: SOFTPLUS,
    unary.Abs: lambda op: EltwisePostOp(AlgKind.ELTWISE_ABS),
    special.Gelu: lambda op: GELU,
}
"""Functions that keep NaN. (The library's exp turns it into infinity.)"""

COMMUTATIVE: dict[type[Op], AlgKind] = {
    elementwise.Add: AlgKind.BINARY_ADD,
    elementwise.Mul: AlgKind.BINARY_MUL,
}
ORDERED: dict[type[Op], AlgKind] = {
    elementwise.Sub: AlgKind.BINARY_SUB,
    elementwise.Div: AlgKind.BINARY_DIV,
}
"""Functions that need the carried value on the left."""


@dataclass(frozen=True)
class PostOpEpilogue:
    """An epilogue of an op with two operands: a bias, then post-ops; extras are numbered from 1."""

    bias: int | None
    post_ops: tuple[EltwisePostOp | PReluPostOp | tuple[AlgKind, int], ...]

    def operands(self, extras: Mapping[int, MemoryDesc], bias: MemoryDesc | None) -> dict[int, Operand]:
        """The arguments of the bias and of the post-ops; `bias` is the memory of the bias as a vector."""
        arguments: dict[int, Operand] = {}
        if self.bias is not None and bias is not None:
            arguments[Arg.BIAS] = Operand(1 + self.bias, bias)
        for number, post_op in enumerate(self.post_ops):
            if isinstance(post_op, tuple):
                arguments[post_op_src(number)] = Operand(1 + post_op[1], extras[post_op[1]])
        return arguments

    def slopes(self) -> tuple[int, ...]:
        """Arguments for the slopes of PReLU post-ops, which are zero."""
        return tuple(
            post_op_weights(number) for number, post_op in enumerate(self.post_ops) if isinstance(post_op, PReluPostOp)
        )

    def attributes(self, descs: dict[int, MemoryDesc]) -> Attributes:
        """The post-ops as attributes, with the memory of each extra operand."""
        post_ops: list[PostOp] = [
            BinaryPostOp(step[0], descs[step[1]]) if isinstance(step, tuple) else step for step in self.post_ops
        ]
        return Attributes(engine(), post_ops)


def epilogue_of(op: Op, types: Sequence[TensorType], channel: int) -> PostOpEpilogue | str:
    """The bias and post-ops of an op with two operands, empty if it is not fused; or why oneDNN cannot express them.

    `channel` is the axis of the bias.
    """
    if not isinstance(op, EpilogueFused):
        return PostOpEpilogue(None, ())
    result = op.anchor.infer(*types[:2])
    assert isinstance(result, TensorType)
    return read_epilogue(op, result, types[2:], channel % result.rank)


def extra_descs(
    types: Sequence[TensorType], layouts: LayoutSignature, result: TensorType
) -> dict[int, MemoryDesc]:  # fmt: skip
    """The memory of the operands after the first two, by their indices in an epilogue."""
    extras = zip(types[2:], layouts.inputs[2:], strict=True)
    return {number: extra_desc(kind, layout, result) for number, (kind, layout) in enumerate(extras, 1)}


def read_epilogue(
    op: EpilogueFused, result: TensorType, extras: Sequence[TensorType], channel: int
) -> PostOpEpilogue | str:
    """The epilogue as bias and post-ops, or why oneDNN can't express it. `channel` is the axis of the bias."""
    count = 1 + len(extras)
    bias: int | None = None
    post_ops: list[EltwisePostOp | PReluPostOp | tuple[AlgKind, int]] = []
    for number, step in enumerate(op.body):
        carried = 0 if number == 0 else count + number - 1
        kind = type(step.op)
        if kind in UNARY and step.operands == (carried,):
            post_ops.append(UNARY[kind](step.op))
            continue
        algorithm = COMMUTATIVE.get(kind) or (ORDERED.get(kind) if step.operands[:1] == (carried,) else None)
        if algorithm is None or step.operands.count(carried) != 1 or len(step.operands) != 2:
            return f"oneDNN has no post-op for {step.op.name}"
        (other,) = (index for index in step.operands if index != carried)
        if other >= count:
            return f"{step.op.name} reads an earlier result again"
        shape = padded(extras[other - 1], result.rank)
        along = tuple(size if axis == channel else 1 for axis, size in enumerate(result.shape))
        if number == 0 and kind is elementwise.Add and shape == along:
            bias = other
        elif shape in (along, result.shape, (1,) * result.rank):
            post_ops.append((algorithm, other))
        else:
            return f"oneDNN does not broadcast {list(extras[other - 1].shape)} here"
    return PostOpEpilogue(bias, tuple(post_ops))


def padded(kind: TensorType, rank: int) -> tuple[int, ...]:
    """The shape with leading ones up to the rank."""
    return (1,) * (rank - kind.rank) + kind.shape


def extra_desc(kind: TensorType, layout: Layout, result: TensorType) -> MemoryDesc:
    """The memory of an extra operand, with the result's rank."""
    shape, dtype = padded(kind, result.rank), data_type(kind, layout)
    if shape == result.shape:  # also true for an operand with fewer axes if there is a single sample
        strides = layout.strides(kind)
        return MemoryDesc.strided(engine(), shape, (kind.size,) * (len(shape) - len(strides)) + tuple(strides), dtype)
    return MemoryDesc.strided(engine(), shape, dtype=dtype)

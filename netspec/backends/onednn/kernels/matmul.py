"""Matrix products with bias and post-ops. Transposed operands are described by strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.epilogue import PostOpEpilogue, epilogue_of, extra_descs, padded
from netspec.backends.onednn.kernel import (
    CHOSEN,
    Computation,
    OneDnnKernel,
    Operand,
    data_type,
    engine,
    products_per_second,
)
from netspec.backends.onednn.memory import MemoryDesc, row_major
from netspec.backends.onednn.primitive_descs import matmul
from netspec.graph.cost_model import machine_model
from netspec.graph.fused import EpilogueFused
from netspec.graph.kernel import kernel, transfer_seconds
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import TensorType
from netspec.graph.value import Node

PACKING = 0.5
"""Cost of plain weights per call, relative to the time of reading them: the library packs them at each call.

4096 x 4096 with two threads: 2.5 ms (8 rows 4.1 instead of 2.1, 64 rows 13.1 instead of 10.3), in bfloat16 2.1 ms.
Weights in the cache cost nothing so, 800 x 500 in bfloat16 26 µs of 204.
"""
WORTH = 0.05
"""Minimum share of a call's time for which packing is considered."""
CALL = 1.5e-6
"""Minimum seconds of a call, which matter for a single row."""


def matrix(kind: TensorType, layout: Layout, rank: int, transposed: bool) -> MemoryDesc:
    """A plain operand with leading axes up to `rank`, its last two axes exchanged if `transposed`."""
    shape = padded(kind, rank)
    strides = row_major(shape)
    if transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
        strides = (*strides[:-2], strides[-1], strides[-2])
    return MemoryDesc.strided(engine(), shape, strides, data_type(kind, layout))


def _packing(node: Node, signature: LayoutSignature) -> float:
    """Extra seconds of a call whose weights are not packed."""
    weights = signature.inputs[1]
    if weights.opaque is not None:
        return 0.0
    nbytes = weights.nbytes(node.inputs[1].type)
    return PACKING * (transfer_seconds(nbytes) if weights.dtype is None else nbytes / machine_model().bytes_per_second)


@kernel(MatMul, EpilogueFused, backend="onednn", rank=10)
class MatMulKernel(OneDnnKernel):
    """y = a @ b, + bias, post-ops."""

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        if isinstance(op, EpilogueFused):
            if not isinstance(op.anchor, MatMul):
                return f"the anchor is {op.anchor.name}"
            read = epilogue_of(op, types, channel=-1)
            return read if isinstance(read, str) else None
        return None

    def alternatives(self, node: Node, offered: Sequence[Layout]) -> Sequence[LayoutSignature]:
        """Weights in the library's own layout, if packing them costs much."""
        plain = self.layouts(node, offered)
        if _packing(node, plain) < WORTH * self.estimated_seconds(node, plain):
            return ()
        requested = [CHOSEN if index == 1 else PLAIN for index in range(len(node.inputs))]
        return (self.described_layouts(node, LayoutSignature(tuple(requested), (PLAIN,))),)

    def estimated_seconds(self, node: Node, signature: LayoutSignature) -> float:
        return CALL + super().estimated_seconds(node, signature) + _packing(node, signature)

    def flops_per_second(self, node: Node, signature: LayoutSignature) -> float:
        return products_per_second(signature)

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        a, b = requested.inputs[:2]
        return requested if b == CHOSEN or a.dtype == b.dtype else None

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, types, y = node.op, [value.type for value in node.inputs], node.types[0]
        assert isinstance(op, (MatMul, EpilogueFused))
        product = op if isinstance(op, MatMul) else op.anchor
        assert isinstance(product, MatMul)
        epilogue = epilogue_of(op, types, channel=-1)
        assert isinstance(epilogue, PostOpEpilogue)
        extras = extra_descs(types, layouts, y)
        a, b = (
            matrix(kind, layout, y.rank, turned)
            for kind, layout, turned in zip(
                types[:2], layouts.inputs[:2], (product.transpose_a, product.transpose_b), strict=True
            )
        )
        weights = MemoryDesc.any(engine(), b.shape, a.dtype) if layouts.inputs[1] == CHOSEN else b
        dst = MemoryDesc.strided(engine(), y.shape, dtype=data_type(y, layouts.outputs[0]))
        bias = extras.get(epilogue.bias) if epilogue.bias is not None else None
        primitive_desc = matmul(a, weights, bias, dst, attributes=epilogue.attributes(extras))
        arguments: dict[int, Operand] = {
            Arg.SRC: Operand(0, a),
            Arg.WEIGHTS: Operand(1, b),
            Arg.DST: Operand(0, dst, output=True),
            **epilogue.operands(extras, bias),
        }
        return Computation(primitive_desc, arguments, epilogue.slopes())

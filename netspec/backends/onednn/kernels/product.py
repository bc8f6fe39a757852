"""Matrix products, with bias and post-ops. Transposition is a matter of strides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernels.base import CHOSEN, Computation, OneDnnKernel, Place, data_type, engine
from netspec.backends.onednn.kernels.epilogue import Epilogue, extra_desc, padded, read_epilogue
from netspec.backends.onednn.memory import MemoryDesc, row_major
from netspec.backends.onednn.products import matmul
from netspec.graph.fused import Anchored
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import TensorType
from netspec.graph.value import Node

NOTHING = Epilogue(None, ())

FEW_ROWS = 32
"""With more rows a product takes as long whether its weights lie plain or packed, unless they are transposed; one row
times 9216 x 4096 takes 7.5 ms packed, 17.5 ms plain."""


def matrix(kind: TensorType, layout: Layout, rank: int, transposed: bool) -> MemoryDesc:
    """A plain operand with leading axes up to `rank`, its last two axes exchanged where `transposed`."""
    shape = padded(kind, rank)
    strides = row_major(shape)
    if transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
        strides = (*strides[:-2], strides[-1], strides[-2])
    return MemoryDesc.strided(engine(), shape, strides, data_type(kind, layout))


@kernel(MatMul, Anchored, backend="onednn", rank=10)
class Product(OneDnnKernel):
    """y = a @ b, + bias, post-ops."""

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        if isinstance(op, Anchored):
            if not isinstance(op.anchor, MatMul):
                return f"the anchor is {op.anchor.name}"
            read = self._epilogue(op, types)
            return read if isinstance(read, str) else None
        return None

    def _epilogue(self, op: MatMul | Anchored, types: Sequence[TensorType]) -> Epilogue | str:
        if isinstance(op, MatMul):
            return NOTHING
        made = op.anchor.infer(*types[:2])
        assert isinstance(made, TensorType)
        return read_epilogue(op, made, types[2:], channel=made.rank - 1)

    def steady_layouts(self, node: Node, given: Sequence[Layout], steady: Collection[int]) -> Signature:
        product = node.op.anchor if isinstance(node.op, Anchored) else node.op
        assert isinstance(product, MatMul)
        y = node.types[0]
        gains = y.size // y.shape[-1] <= FEW_ROWS or product.transpose_b
        wished = [CHOSEN if index == 1 and gains and index in steady else PLAIN for index in range(len(node.inputs))]
        return self.found(node, Signature(tuple(wished), (PLAIN,)))

    def stored(self, wanted: Signature) -> Signature | None:
        a, b = wanted.inputs[:2]
        return wanted if b == CHOSEN or a.dtype == b.dtype else None

    def describe(self, node: Node, layouts: Signature) -> Computation:
        op, types, y = node.op, [value.type for value in node.inputs], node.types[0]
        assert isinstance(op, (MatMul, Anchored))
        product = op if isinstance(op, MatMul) else op.anchor
        assert isinstance(product, MatMul)
        epilogue = self._epilogue(op, types)
        assert isinstance(epilogue, Epilogue)
        extras = {
            index: extra_desc(kind, layout, y)
            for index, (kind, layout) in enumerate(zip(types[2:], layouts.inputs[2:], strict=True), 1)
        }
        a, b = (
            matrix(kind, layout, y.rank, turned)
            for kind, layout, turned in zip(
                types[:2], layouts.inputs[:2], (product.transpose_a, product.transpose_b), strict=True
            )
        )
        weights = MemoryDesc.any(engine(), b.shape, a.dtype) if layouts.inputs[1] == CHOSEN else b
        dst = MemoryDesc.strided(engine(), y.shape, dtype=data_type(y, layouts.outputs[0]))
        bias = extras.get(epilogue.bias) if epilogue.bias is not None else None
        made = matmul(a, weights, bias, dst, attributes=epilogue.attributes(extras))
        arguments: dict[int, Place] = {
            Arg.SRC: Place(0, a),
            Arg.WEIGHTS: Place(1, b),
            Arg.DST: Place(0, dst, output=True),
        }
        if epilogue.bias is not None and bias is not None:
            arguments[Arg.BIAS] = Place(1 + epilogue.bias, bias)
        arguments |= epilogue.places(extras, 2)
        return Computation(made, arguments, epilogue.slopes())

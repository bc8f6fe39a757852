"""Matrix products, with bias and post-ops. Transposition is a matter of strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernels.base import (
    CHOSEN,
    Computation,
    OneDnnKernel,
    Place,
    data_type,
    engine,
    products_per_second,
)
from netspec.backends.onednn.kernels.epilogue import Epilogue, extra_desc, padded, read_epilogue
from netspec.backends.onednn.memory import MemoryDesc, row_major
from netspec.backends.onednn.products import matmul
from netspec.graph.fused import Anchored
from netspec.graph.kernel import kernel, moving
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.linear import MatMul
from netspec.graph.rates import rates
from netspec.graph.types import TensorType
from netspec.graph.value import Node

NOTHING = Epilogue(None, ())

PACKING = 0.5
"""What plain weights cost at every call, as a share of the time it takes to read them: the library packs them itself.

4096 x 4096 with two threads: 2.5 ms (8 rows 4.1 instead of 2.1, 64 rows 13.1 instead of 10.3), in bfloat16 2.1 ms.
Weights in the cache cost nothing so, 800 x 500 in bfloat16 26 µs of 204.
"""
WORTH = 0.05
"""The share of a call from which on that is looked at."""
CALL = 1.5e-6
"""Seconds that a call takes at least: of a single row that counts."""


def matrix(kind: TensorType, layout: Layout, rank: int, transposed: bool) -> MemoryDesc:
    """A plain operand with leading axes up to `rank`, its last two axes exchanged where `transposed`."""
    shape = padded(kind, rank)
    strides = row_major(shape)
    if transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
        strides = (*strides[:-2], strides[-1], strides[-2])
    return MemoryDesc.strided(engine(), shape, strides, data_type(kind, layout))


def _packing(node: Node, lying: Signature) -> float:
    """Seconds of a call that its weights cost by not being packed."""
    weights = lying.inputs[1]
    if weights.form is not None:
        return 0.0
    nbytes = weights.nbytes(node.inputs[1].type)
    return PACKING * (moving(nbytes) if weights.dtype is None else nbytes / rates().bytes)


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

    def alternatives(self, node: Node, given: Sequence[Layout]) -> Sequence[Signature]:
        """Weights in the library's own form, where that makes a difference."""
        plain = self.layouts(node, given)
        if _packing(node, plain) < WORTH * self.seconds(node, plain):
            return ()
        wished = [CHOSEN if index == 1 else PLAIN for index in range(len(node.inputs))]
        return (self.found(node, Signature(tuple(wished), (PLAIN,))),)

    def seconds(self, node: Node, lying: Signature) -> float:
        return CALL + super().seconds(node, lying) + _packing(node, lying)

    def flops_per_second(self, node: Node, lying: Signature) -> float:
        return products_per_second(lying)

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

"""Matrix-vector products: a dense layer with a single sample, at the speed of the caches."""

from __future__ import annotations

from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.numba import native
from netspec.backends.numba.kernels.elementwise import bound
from netspec.backends.numba.native import ConstArg, Pointer, Size
from netspec.backends.numba.scalar_code import scalar_code, why_untraceable
from netspec.graph.fused import EpilogueFused
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

WIDEST = 1024
"""Maximum columns at a time: their sums stay in the L1 cache."""
LARGEST = 1 << 20
"""Bytes of weights that fit in a core's own cache; larger ones are read faster by a kernel that packs them."""


def row_product(
    first: int, last: int, x: Any, w: Any, y: Any, zero: float, rows: int, columns: int, width: int
) -> None:
    """y[j] = Σ x[i] · w[i, j], some columns j at a time; four rows are read for each pass over y."""
    for unit in range(first, last):
        begin, end = unit * width, min(unit * width + width, columns)
        for j in range(begin, end):
            y[j] = zero
        unrolled = rows - rows % 4
        for i in range(0, unrolled, 4):
            a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
            r0, r1, r2, r3 = i * columns, (i + 1) * columns, (i + 2) * columns, (i + 3) * columns
            for j in range(begin, end):
                y[j] += a * w[r0 + j] + b * w[r1 + j] + c * w[r2 + j] + d * w[r3 + j]
        for i in range(unrolled, rows):
            a = x[i]
            for j in range(begin, end):
                y[j] += a * w[i * columns + j]


@kernel(MatMul, EpilogueFused, backend="numba", rank=12)
class GemvKernel(Kernel):
    """y = x @ w for one row x, with an elementwise epilogue."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        product = op.anchor if isinstance(op, EpilogueFused) else op
        if not isinstance(product, MatMul):
            return f"the anchor is {product.name}"
        a, b = types[:2]
        if b.rank != 2 or a.size != b.shape[0] or product.transpose_a or product.transpose_b:
            return "the left operand is not a single row"
        if b.dtype not in (DType.FLOAT32, DType.FLOAT64):
            return f"no matrices of {b.dtype}"
        if b.nbytes > LARGEST:
            return f"the matrix is larger than {LARGEST} bytes"
        return why_untraceable(op.epilogue(len(types) - 2), (a, *types[2:])) if isinstance(op, EpilogueFused) else None

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, w, *extras), (y,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        assert y is not None
        rows, columns = w.shape
        body = native.of_function(row_product, (*(Pointer(dtype),) * 3, ConstArg(0.0, dtype), *(Size(),) * 3))
        # One thread reads the caches faster than a second thread wakes up: report little work, so that one is used.
        calls = [body.bind(-(-columns // WIDEST), y.size, x, w, y, rows, columns, WIDEST)]
        if isinstance(node.op, EpilogueFused):
            after = node.op.epilogue(len(extras))
            code = scalar_code(after, dtype, *(value.dtype for value in node.inputs[2:]))
            calls.append(bound(code, [y, *extras], [y]))
        return chain(calls)

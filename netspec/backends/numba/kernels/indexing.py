"""Gather and scatter elements along an axis at computed positions; positions out of range are skipped."""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.native import ConstArg, Literal, Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.indexing import GatherElements, ScatterElements
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


def gather(
    first: int, last: int, x: Any, index: Any, y: Any, zero: float, along: int, size: int, inner: int
) -> None:  # fmt: skip
    """y[o, a, i] = x[o, index[o, a, i], i], for `along` rows of `inner` elements in each o; 0 if out of range."""
    for row in range(first, last):
        start = row // along * size * inner
        for k in range(inner):
            position = index[row * inner + k]
            position = position + size if position < 0 else position
            if 0 <= position < size:
                y[row * inner + k] = x[start + position * inner + k]
            else:
                y[row * inner + k] = zero


def scatter(
    first: int, last: int, x: Any, index: Any, updates: Any, y: Any, adding: int, along: int, size: int, inner: int
) -> None:  # fmt: skip
    """y = x with the updates set, or added, at index[o, a, i]; one thread per o keeps the updates in order."""
    for outer in range(first, last):
        start = outer * size * inner
        for k in range(size * inner):
            y[start + k] = x[start + k]
        for row in range(outer * along, (outer + 1) * along):
            for k in range(inner):
                position = index[row * inner + k]
                position = position + size if position < 0 else position
                if 0 <= position < size:
                    if adding:
                        y[start + position * inner + k] += updates[row * inner + k]
                    else:
                        y[start + position * inner + k] = updates[row * inner + k]


@kernel(GatherElements, backend="numba", rank=5)
class GatherElementsKernel(Kernel):
    """Gather one row at a time: the elements of the axes after `axis`."""

    def reject_reason(self, op: GatherElements, *types: TensorType) -> str | None:
        return f"no elements of {types[0].dtype}" if types[0].dtype == DType.BOOL else None

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x, index), (y,), dtype = node.op, buffers.inputs, buffers.outputs, node.inputs[0].dtype
        assert isinstance(op, GatherElements)
        assert y is not None
        inner = prod(x.shape[op.axis + 1 :])
        kinds = (
            Pointer(dtype),
            Pointer(node.inputs[1].dtype),
            Pointer(dtype),
            ConstArg(0.0, dtype),
            *(Size(),) * 3,
        )
        body = native.of_function(gather, kinds)
        return body.bind(y.size // inner, y.size, x, index, y, index.shape[op.axis], x.shape[op.axis], inner)


@kernel(ScatterElements, backend="numba", rank=5)
class ScatterElementsKernel(Kernel):
    """Scatter in order: one thread handles all updates of the axes from `axis` on."""

    def reject_reason(self, op: ScatterElements, *types: TensorType) -> str | None:
        if op.reduction not in ("none", "add"):
            return f"it sets or adds elements, but does not support `{op.reduction}`"
        return f"no elements of {types[0].dtype}" if types[0].dtype == DType.BOOL else None

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x, index, updates), (y,), dtype = node.op, buffers.inputs, buffers.outputs, node.inputs[0].dtype
        assert isinstance(op, ScatterElements)
        assert y is not None
        inner, size, along = prod(x.shape[op.axis + 1 :]), x.shape[op.axis], index.shape[op.axis]
        kinds = (
            Pointer(dtype), Pointer(node.inputs[1].dtype), Pointer(dtype), Pointer(dtype),
            Literal(int(op.reduction == "add")), *(Size(),) * 3,
        )  # fmt: skip
        body = native.of_function(scatter, kinds)
        return body.bind(
            y.size // (size * inner), y.size + updates.size, x, index, updates, y, along, size, inner
        )  # fmt: skip

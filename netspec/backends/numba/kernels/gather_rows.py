"""Gather rows of a table by index, and add up rows by index."""

from __future__ import annotations

from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.native import ConstArg, Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.linear import Gather, ScatterRows
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


def gather(first: int, last: int, table: Any, index: Any, y: Any, zero: float, rows: int, width: int) -> None:
    """y[i] = table[index[i]]. An index out of range, which the loader rejects, gives zeros."""
    for i in range(first, last):
        row = index[i] + rows if index[i] < 0 else index[i]
        if 0 <= row < rows:
            for k in range(width):
                y[i * width + k] = table[row * width + k]
        else:
            for k in range(width):
                y[i * width + k] = zero


def scatter(
    first: int, last: int, values: Any, index: Any, y: Any, zero: float, rows: int, width: int, count: int
) -> None:
    """y[r] = Σ of the values whose index is r, for rows from `first` to before `last`: one thread per row."""
    for element in range(first * width, last * width):
        y[element] = zero
    for i in range(count):
        row = index[i] + rows if index[i] < 0 else index[i]
        if first <= row < last:
            for k in range(width):
                y[row * width + k] += values[i * width + k]


class RowKernel(Kernel):
    """Base class: any element type but bool, any integer indices."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        return f"no rows of {types[0].dtype}" if types[0].dtype == DType.BOOL else None


@kernel(Gather, backend="numba", rank=5)
class GatherKernel(RowKernel):
    """Gather rows of a table."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (table, index), (y,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        assert y is not None
        kinds = (
            Pointer(dtype),
            Pointer(node.inputs[1].dtype),
            Pointer(dtype),
            ConstArg(0.0, dtype),
            Size(),
            Size(),
        )
        width = table.size // len(table)
        return native.of_function(gather, kinds).bind(index.size, y.size, table, index, y, len(table), width)


@kernel(ScatterRows, backend="numba", rank=5)
class ScatterRowsKernel(RowKernel):
    """Add up rows in the order of the operands, for any number of threads."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (values, index), (y,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        assert y is not None
        arrays = Pointer(dtype), Pointer(node.inputs[1].dtype), Pointer(dtype)
        body = native.of_function(scatter, (*arrays, ConstArg(0.0, dtype), *(Size(),) * 3))
        width = y.size // len(y)
        return body.bind(len(y), y.size + values.size, values, index, y, len(y), width, index.size)

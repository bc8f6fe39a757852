"""Rows by number: looking them up, and adding them up."""

from __future__ import annotations

from typing import Any

from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.linear import Gather, ScatterRows
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

GATHER = """
UNITS(unit, count) {
    const Index i = unit / width;
    const int64 row = index[i] < 0 ? index[i] + rows : index[i];
    y[unit] = row >= 0 && row < rows ? table[row * width + unit % width] : 0;
}
"""
# A thread has a place of the result to itself and reads all indices: the order of a sum is that of the operands,
# whatever the GPU does first.
SCATTER = """
UNITS(unit, count) {
    const Index row = unit / width;
    NUMBER total = 0;
    for (Index i = 0; i < given; ++i) {
        if ((index[i] < 0 ? index[i] + rows : index[i]) == row) total += values[i * width + unit % width];
    }
    y[unit] = total;
}
"""


class Rows(Kernel):
    """Base of both: any numbers, any whole indices."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        return f"no rows of {types[0].dtype}" if types[0].dtype == DType.BOOL else None


@kernel(Gather, backend="cuda", rank=5)
class GatherKernel(Rows):
    """Rows of a table. A number out of range, which the loader refuses, gives zeros, never foreign memory."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (table, index), (y,) = buffers.inputs, buffers.outputs
        assert y is not None
        parameters = [
            pointer("table", table), pointer("index", index), pointer("y", y, written=True),
            *sizes(max(y.size, table.size), count=y.size, rows=len(table), width=table.size // len(table)),
        ]  # fmt: skip
        return Launch(parameters, GATHER, y.size).bind()


@kernel(ScatterRows, backend="cuda", rank=5)
class ScatterRowsKernel(Rows):
    """Rows added up in the order of their operands."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (values, index), (y,) = buffers.inputs, buffers.outputs
        assert y is not None
        parameters = [
            pointer("values", values), pointer("index", index), pointer("y", y, written=True),
            *sizes(max(y.size, values.size), count=y.size, rows=len(y), width=y.size // len(y), given=index.size),
        ]  # fmt: skip
        return Launch(parameters, SCATTER.replace("NUMBER", str(node.inputs[0].dtype)), y.size).bind()

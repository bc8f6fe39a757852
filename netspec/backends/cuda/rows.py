"""Rows by number: looking them up, and adding them up."""

from __future__ import annotations

from typing import Any

from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.lists import Lists
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import Signature
from netspec.graph.ops.linear import Gather, RowsOfBatch, ScatterRows
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

GATHER = """
UNITS(unit, count) {
    const Index i = unit / width;
    const int64 row = index[i] < 0 ? index[i] + rows : index[i];
    y[unit] = row >= 0 && row < rows ? table[row * width + unit % width] : 0;
}
"""
GOES_TO = """
const int64 row = index[i] < 0 ? index[i] + places : index[i];
return row >= 0 && row < places ? row : places;
"""
OF_BATCH = """
UNITS(unit, count) y[unit] = index[unit] + unit / each * rows;
"""


class Rows(Kernel):
    """Base of all: any numbers, any whole indices."""

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

    def workspace(self, node: Node, layouts: Signature) -> int:
        return _lists(node).nbytes

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (values, index), (y,), lists = buffers.inputs, buffers.outputs, _lists(node)
        return lists.joined([pointer("index", index)], GOES_TO, None, values, y, "add", buffers.workspace)


def _lists(node: Node) -> Lists:
    return Lists(node.inputs[1].type.size, node.types[0].shape[0])


@kernel(RowsOfBatch, backend="cuda", rank=5)
class RowsOfBatchKernel(Rows):
    """One number a thread."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (index,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, RowsOfBatch)
        assert y is not None
        parameters = [
            pointer("index", index), pointer("y", y, written=True),
            *sizes(y.size, count=y.size, each=y.size // len(y)), *sizes(2**31, rows=op.rows),
        ]  # fmt: skip
        return Launch(parameters, OF_BATCH, y.size).bind()

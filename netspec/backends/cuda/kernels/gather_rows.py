"""Gather rows of a table by index, and add up rows by index."""

from __future__ import annotations

from typing import Any

from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.scatter_lists import ScatterLists
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.linear import BatchRowIndices, Gather, ScatterRows
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
const int64 row = index[i] < 0 ? index[i] + targets : index[i];
return row >= 0 && row < targets ? row : targets;
"""
OF_BATCH = """
UNITS(unit, count) y[unit] = index[unit] + unit / each * rows;
"""


class RowKernel(Kernel):
    """Base class: any element type but bool, any integer indices."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        return f"no rows of {types[0].dtype}" if types[0].dtype == DType.BOOL else None


@kernel(Gather, backend="cuda", rank=5)
class GatherKernel(RowKernel):
    """Gather rows. An index out of range, which the loader rejects, gives zeros."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (table, index), (y,) = buffers.inputs, buffers.outputs
        assert y is not None
        parameters = [
            pointer("table", table), pointer("index", index), pointer("y", y, written=True),
            *sizes(max(y.size, table.size), count=y.size, rows=len(table), width=table.size // len(table)),
        ]  # fmt: skip
        return Launch(parameters, GATHER, y.size).bind()


@kernel(ScatterRows, backend="cuda", rank=5)
class ScatterRowsKernel(RowKernel):
    """Add up rows in the order of the operands."""

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        return _lists(node).nbytes

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (values, index), (y,), lists = buffers.inputs, buffers.outputs, _lists(node)
        return lists.joined([pointer("index", index)], GOES_TO, None, values, y, "add", buffers.workspace)


def _lists(node: Node) -> ScatterLists:
    return ScatterLists(node.inputs[1].type.size, node.types[0].shape[0])


@kernel(BatchRowIndices, backend="cuda", rank=5)
class RowsOfBatchKernel(RowKernel):
    """Each thread computes one index."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (index,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, BatchRowIndices)
        assert y is not None
        parameters = [
            pointer("index", index), pointer("y", y, written=True),
            *sizes(y.size, count=y.size, each=y.size // len(y)), *sizes(2**31, rows=op.rows),
        ]  # fmt: skip
        return Launch(parameters, OF_BATCH, y.size).bind()

"""Gather and scatter elements at computed positions; positions out of range are skipped."""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.backends.cuda.launch import KernelParameter, Launch, pointer, sizes
from netspec.backends.cuda.scatter_lists import ScatterLists
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.indexing import GatherElements, ScatterBase, ScatterElements, ScatterND
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

MAX_ELEMENTS = 2**31 - 2
"""Maximum number of elements of the target of a scatter, and of its updates."""
GATHER = """
UNITS(unit, count) {
    const int64 at = index[unit] < 0 ? index[unit] + size : index[unit];
    y[unit] = at >= 0 && at < size ? x[(unit / inner / along * size + at) * inner + unit % inner] : 0;
}
"""
ELEMENT = """
const int64 at = index[i] < 0 ? index[i] + size : index[i];
return at >= 0 && at < size ? (i / inner / along * size + at) * inner + i % inner : targets;
"""
PART = """
int64 to = i / each;
ALONG
return to;
"""
OF_PART = """
const int64 at{k} = index[i * {count} + {k}] < 0 ? index[i * {count} + {k}] + size{k} : index[i * {count} + {k}];
if (at{k} < 0 || at{k} >= size{k}) return targets;
to = to * size{k} + at{k};
"""


def _along(axis: int, x: Any, index: Any) -> list[KernelParameter]:
    """Sizes of x and of the index along the axis, and the product of the sizes after it."""
    inner = prod(x.shape[axis + 1 :])
    return sizes(max(x.size, index.size), size=x.shape[axis], along=index.shape[axis], inner=inner)


@kernel(GatherElements, backend="cuda", rank=5)
class GatherElementsKernel(Kernel):
    """Each thread gathers an element."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x, index), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, GatherElements)
        assert y is not None
        large = max(x.size, y.size)
        parameters = [
            pointer("x", x), pointer("index", index), pointer("y", y, written=True), *sizes(large, count=y.size),
            *_along(op.axis, x, index),
        ]  # fmt: skip
        return Launch(parameters, GATHER, y.size).bind()


class ScatterKernel(Kernel):
    """Base class: updates of the same target are combined in order."""

    def reject_reason(self, op: ScatterBase, *types: TensorType) -> str | None:
        x = types[0]
        if x.dtype == DType.BOOL and op.reduction != "none":
            return "sums and extrema of bool are not supported"
        return "there are too many elements" if max(x.size, types[2].size) > MAX_ELEMENTS else None

    def lists(self, node: Node) -> ScatterLists:
        """The scatter lists of the node."""
        raise NotImplementedError  # abstract

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        return self.lists(node).nbytes

    def goes_to(self, node: Node, x: Any, index: Any) -> tuple[list[KernelParameter], str]:
        """Parameters, and the code that computes the target of an update."""
        raise NotImplementedError  # abstract

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x, index, updates), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, ScatterBase)
        operands, code = self.goes_to(node, x, index)
        named = [pointer("index", index), *operands]
        return self.lists(node).joined(named, code, x, updates, y, op.reduction, buffers.workspace)


@kernel(ScatterElements, backend="cuda", rank=5)
class ScatterElementsKernel(ScatterKernel):
    """Scatter single elements."""

    def lists(self, node: Node) -> ScatterLists:
        return ScatterLists(node.inputs[1].type.size, node.types[0].size)

    def goes_to(self, node: Node, x: Any, index: Any) -> tuple[list[KernelParameter], str]:
        assert isinstance(node.op, ScatterElements)
        return _along(node.op.axis, x, index), ELEMENT


@kernel(ScatterND, backend="cuda", rank=5)
class ScatterNDKernel(ScatterKernel):
    """Scatter slices, which extend over the axes after the indexed ones."""

    def lists(self, node: Node) -> ScatterLists:
        x, index = node.inputs[:2]
        count = index.shape[-1]
        return ScatterLists(prod(index.shape[:-1]), prod(x.shape[: 1 + count]))

    def goes_to(self, node: Node, x: Any, index: Any) -> tuple[list[KernelParameter], str]:
        count = index.shape[-1]
        along = "".join(OF_PART.format(k=k, count=count) for k in range(count))
        numbers = {f"size{k}": x.shape[1 + k] for k in range(count)}
        parameters = sizes(max(x.size, index.size), each=prod(index.shape[1:-1]), **numbers)
        return parameters, PART.replace("ALONG", along)

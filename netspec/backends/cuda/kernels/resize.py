"""Resizing, one axis after another: each result element is a weighted sum of elements, from precomputed tables."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from netspec.backends.common.copy_kernels import chain
from netspec.backends.common.scratch import ScratchMemory
from netspec.backends.cuda import launch
from netspec.backends.cuda.kernels.elementwise import copy
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.resize import Resize, ResizeGrad, axis_taps
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

BODY = """
UNITS(unit, count) {
    const Index i = unit / inner % size;
    const TYPE *line = x + unit / inner / size * length * inner + unit % inner;
    TYPE total = added[i];
    for (int t = start[i]; t < start[i + 1]; ++t) total += line[from[t] * inner] * weight[t];
    y[unit] = total;
}
"""


@dataclass(frozen=True)
class ResizePass:
    """One axis: the elements and weights of each result element."""

    axis: int
    size: int
    """Size of the result along the axis."""
    start: Any
    """(size + 1) offsets of each element's list."""
    origin: Any
    weight: Any
    added: Any
    """(size) initial value of each sum."""

    @classmethod
    def of(cls, axis: int, size: int, to: Any, origin: Any, weight: Any, added: Any | None = None) -> ResizePass:
        """Build the pass from its terms, in the order of addition: result and operand indices, and weights."""
        order = np.argsort(to, kind="stable")
        start = np.searchsorted(to[order], np.arange(size + 1)).astype(np.int32)
        begins = np.zeros(size) if added is None else added
        return cls(axis, size, start, origin[order].astype(np.int32), weight[order], begins)

    def bind(self, x: Any, y: Any) -> Thunk:
        """A call that runs this pass."""
        table, dtype = launch.engine.table, x.dtype
        parameters = [
            pointer("x", x), pointer("y", y, written=True), pointer("start", table(self.start)),
            pointer("from", table(self.origin)), pointer("weight", table(self.weight.astype(dtype))),
            pointer("added", table(self.added.astype(dtype))),
            *sizes(
                max(x.size, y.size), count=y.size, size=self.size, length=x.shape[self.axis],
                inner=prod(x.shape[self.axis + 1 :]),
            ),
        ]  # fmt: skip
        return Launch(parameters, BODY.replace("TYPE", str(dtype)), y.size).bind()


def forward(op: Resize, x: TensorType) -> list[ResizePass]:
    """The axes of a `Resize` in order."""
    return [_stage(op, number, x.shape[axis.axis], transposed=False) for number, axis in enumerate(op.axes)]


def backward(op: ResizeGrad) -> list[ResizePass]:
    """The axes of its gradient."""
    sizes_before = list(enumerate(op.x.shape[axis.axis] for axis in op.resize.axes))
    return [_stage(op.resize, number, size, transposed=True) for number, size in reversed(sizes_before)]


def _stage(op: Resize, number: int, size: int, *, transposed: bool) -> ResizePass:
    """The pass along axis `number`, whose operand has `size` elements; `transposed` for the gradient."""
    along = op.axes[number]
    taps = axis_taps(op.sampling, along, size)
    inside = np.broadcast_to(~taps.outside, taps.index.shape).reshape(-1)
    indices, weights = taps.index.reshape(-1)[inside], taps.weights.reshape(-1)[inside]
    results = np.broadcast_to(np.arange(along.size), taps.index.shape).reshape(-1)[inside]
    if transposed:
        return ResizePass.of(along.axis, size, indices, results, weights)
    return ResizePass.of(
        along.axis, along.size, results, indices, weights, taps.outside * op.sampling.extrapolation_value
    )


class ResizePasses(Kernel):
    """Base class: one axis after another, with intermediate arrays in scratch memory."""

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        return "no sums of bool" if types[0].dtype == DType.BOOL else None

    def stages(self, node: Node) -> list[ResizePass]:
        """The passes of an op."""
        raise NotImplementedError  # abstract

    def shapes(self, node: Node) -> list[tuple[int, ...]]:
        """Types of the intermediate arrays."""
        shape, calls = list(node.inputs[0].shape), []
        for stage in self.stages(node)[:-1]:
            shape[stage.axis] = stage.size
            calls.append(tuple(shape))
        return calls

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        scratch = ScratchMemory(None, node.inputs[0].dtype)
        for shape in self.shapes(node):
            scratch.take(*shape)
        return scratch.used

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,), stages = buffers.inputs, buffers.outputs, self.stages(node)
        if not stages:
            return copy(x, y)
        scratch = ScratchMemory(buffers.workspace, node.inputs[0].dtype)
        between = [scratch.take(*shape) for shape in self.shapes(node)]
        arrays = zip(stages, [x, *between], [*between, y], strict=True)
        return chain([stage.bind(*operands) for stage, *operands in arrays])


@kernel(Resize, backend="cuda", rank=5)
class ResizeKernel(ResizePasses):
    """Each result is a weighted sum of the elements around its position."""

    def stages(self, node: Node) -> list[ResizePass]:
        assert isinstance(node.op, Resize)
        return forward(node.op, node.inputs[0].type)


@kernel(ResizeGrad, backend="cuda", rank=5)
class ResizeGradKernel(ResizePasses):
    """Each gradient is a weighted sum over the results that were computed from the element."""

    def stages(self, node: Node) -> list[ResizePass]:
        assert isinstance(node.op, ResizeGrad)
        return backward(node.op)

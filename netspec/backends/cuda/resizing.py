"""Axes in other sizes: each by itself, as a sum of weighted elements for each element of the result, from tables."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from netspec.backends.cuda import launch
from netspec.backends.cuda.elementwise import copy
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.moves import in_turn
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import Signature
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.layers.interpolation import Resize, ResizeGrad, taps

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
class Stage:
    """One axis: which elements each element of the result is made of."""

    axis: int
    size: int
    """Of the result."""
    start: Any
    """(size + 1) where the list of each element begins, and the last one's ends."""
    origin: Any
    weight: Any
    added: Any
    """(size) what the sum begins with."""

    @classmethod
    def of(cls, axis: int, size: int, to: Any, origin: Any, weight: Any, added: Any | None = None) -> Stage:
        """From places in the result and in the operand, and weights, in the order in which they are added."""
        order = np.argsort(to, kind="stable")
        start = np.searchsorted(to[order], np.arange(size + 1)).astype(np.int32)
        begins = np.zeros(size) if added is None else added
        return cls(axis, size, start, origin[order].astype(np.int32), weight[order], begins)

    def bind(self, x: Any, y: Any) -> Thunk:
        """A call of it."""
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


def forward(op: Resize, x: TensorType) -> list[Stage]:
    """The axes of a `Resize` in their order."""
    return [_stage(op, number, x.shape[one.axis], turned=False) for number, one in enumerate(op.axes)]


def backward(op: ResizeGrad) -> list[Stage]:
    """The axes of its gradient."""
    sizes_before = list(enumerate(op.x.shape[one.axis] for one in op.resize.axes))
    return [_stage(op.resize, number, size, turned=True) for number, size in reversed(sizes_before)]


def _stage(op: Resize, number: int, size: int, *, turned: bool) -> Stage:
    """Of axis `number` of the op, whose operand has `size`: from there, or `turned` from its gradient."""
    along = op.axes[number]
    found = taps(op.sampling, along, size)
    inside = np.broadcast_to(~found.outside, found.places.shape).reshape(-1)
    places, weights = found.places.reshape(-1)[inside], found.weights.reshape(-1)[inside]
    results = np.broadcast_to(np.arange(along.size), found.places.shape).reshape(-1)[inside]
    if turned:
        return Stage.of(along.axis, size, places, results, weights)
    return Stage.of(along.axis, along.size, results, places, weights, found.outside * op.sampling.extrapolation_value)


class Stages(Kernel):
    """Base of both: one axis after another, what is between them in scratch memory."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        return "no sums of bool" if types[0].dtype == DType.BOOL else None

    def stages(self, node: Node) -> list[Stage]:
        """Those of an op."""
        raise NotImplementedError  # abstract: subclasses say

    def shapes(self, node: Node) -> list[tuple[int, ...]]:
        """What lies between the stages."""
        shape, found = list(node.inputs[0].shape), []
        for stage in self.stages(node)[:-1]:
            shape[stage.axis] = stage.size
            found.append(tuple(shape))
        return found

    def workspace(self, node: Node, layouts: Signature) -> int:
        return sum(aligned(node.inputs[0].type.with_shape(*shape).nbytes) for shape in self.shapes(node))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,), space = buffers.inputs, buffers.outputs, buffers.workspace
        arrays = [x]
        for shape in self.shapes(node):
            assert space is not None
            nbytes = node.inputs[0].type.with_shape(*shape).nbytes
            arrays.append(space[:nbytes].view(str(x.dtype)).reshape(shape))
            space = space[aligned(nbytes) :]
        stages = self.stages(node)
        if not stages:
            return copy(x, y)
        results = [*arrays[1:], y]
        return in_turn([stage.bind(*pair) for stage, *pair in zip(stages, arrays, results, strict=True)])


@kernel(Resize, backend="cuda", rank=5)
class ResizeKernel(Stages):
    """The elements around each place."""

    def stages(self, node: Node) -> list[Stage]:
        assert isinstance(node.op, Resize)
        return forward(node.op, node.inputs[0].type)


@kernel(ResizeGrad, backend="cuda", rank=5)
class ResizeGradKernel(Stages):
    """For each element those that were made of it."""

    def stages(self, node: Node) -> list[Stage]:
        assert isinstance(node.op, ResizeGrad)
        return backward(node.op)

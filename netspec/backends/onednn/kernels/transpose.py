"""Transposition, reordering, and concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.backends.onednn.constants import Arg, multiple_src
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, Operand, data_type, engine
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive_descs import concat, reorder
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.shape import Concat, Reorder, Transpose
from netspec.graph.types import TensorType
from netspec.graph.value import Node

FEWEST = 64
"""Minimum channels: for fewer, other kernels concatenate planes faster."""


@kernel(Transpose, backend="onednn", rank=6)
class TransposeKernel(OneDnnKernel):
    """Axes in another order; the operand may have its axes in any memory order."""

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature((PLAIN if offered[0].opaque is not None else offered[0],), (PLAIN,))

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature:
        return requested

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, y = node.op, node.types[0]
        assert isinstance(op, Transpose)
        (layout,), (to,) = layouts.inputs, layouts.outputs
        steps = layout.strides(node.inputs[0].type)
        permuted = tuple(steps[axis] for axis in op.permutation)
        source = MemoryDesc.strided(engine(), y.shape, permuted, data_type(y, layout))
        target = MemoryDesc.strided(engine(), y.shape, dtype=data_type(y, to))
        return Computation.of_one(reorder(source, target), source, target)


@kernel(Reorder, backend="onednn", rank=6)
class ReorderAxesKernel(OneDnnKernel):
    """Copy to another memory order or element type."""

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if op.source.opaque is not None or op.target.opaque is not None:
            return "the layout is specific to a library"
        if op.target.is_plain(x) and x.rank > 2 and x.shape[1] < FEWEST:
            return f"oneDNN is slower for {x.shape[1]} channels"
        return None

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        assert isinstance(node.op, Reorder)
        return LayoutSignature((node.op.source,), (node.op.target,))

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        x = node.inputs[0].type
        source, target = (
            MemoryDesc.strided(engine(), x.shape, layout.strides(x), data_type(x, layout))
            for layout in (layouts.inputs[0], layouts.outputs[0])
        )
        return Computation.of_one(reorder(source, target), source, target)


@kernel(Concat, backend="onednn", rank=4)
class ConcatKernel(OneDnnKernel):
    """Concatenation of plain or channels-last operands: rows of matrices to the library."""

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(len(node.types[0].shape))
        chosen = last if offered[0] == last else PLAIN
        return LayoutSignature((chosen,) * len(offered), (chosen,))

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature:
        """All operands with the result's element type: the library has no fast code that rounds them."""
        dtype = preferred.outputs[0].dtype
        return LayoutSignature(tuple(operand.with_dtype(dtype) for operand in preferred.inputs), preferred.outputs)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, (y,), (to,) = node.op, node.types, layouts.outputs
        assert isinstance(op, Concat)
        order = to.order or tuple(range(y.rank))
        position = order.index(op.axis % y.rank)

        def rows(kind: TensorType) -> MemoryDesc:
            sizes = [kind.shape[axis] for axis in order]
            return MemoryDesc.strided(
                engine(), (prod(sizes[:position]), prod(sizes[position:])), dtype=data_type(kind, to)
            )

        sources, target = [rows(value.type) for value in node.inputs], rows(y)
        arguments = {multiple_src(index): Operand(index, source) for index, source in enumerate(sources)}
        return Computation(concat(sources, target, 1), {**arguments, Arg.DST: Operand(0, target, output=True)})

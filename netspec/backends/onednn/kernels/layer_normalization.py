"""Layer normalization and its gradient: rows as the last axis of a matrix.

The compiled kernels are as fast or faster (docs/performance.md), and rank above: these are for machines without numba,
and for autotuning.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, Operand, data_type, engine, slow_reason
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.primitive_descs import layer_normalization_backward, layer_normalization_forward
from netspec.graph.kernel import kernel, narrow_data_only
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.layer_normalization import LayerNormalization, LayerNormalizationGrad
from netspec.graph.types import TensorType
from netspec.graph.value import Node


class OverRowsKernel(OneDnnKernel):
    """Base class: all data have the same element type; factors and statistics are float32."""

    inputs: tuple[Arg, ...]
    outputs: tuple[Arg, ...]

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        return slow_reason(lambda: self.primitive(op, types[0], PLAIN))

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        return requested

    def low_precision_signature(self, node: Node, preferred: LayoutSignature) -> LayoutSignature | None:
        large = narrow_data_only(node, preferred)
        shape, values = node.inputs[0].shape, (*node.inputs, *node.outputs)
        signature = (*large.inputs, *large.outputs)
        types = {layout.dtype for value, layout in zip(values, signature, strict=True) if value.shape == shape}
        return super().low_precision_signature(node, large) if len(types) == 1 else None

    def primitive(self, op: Any, x: TensorType, layout: Layout) -> PrimitiveDesc:
        """The computation on rows of `x` with these layouts."""
        data, statistics = _rows(op, x, layout)
        return self.described(op, data, statistics)

    def described(self, op: Any, data: MemoryDesc, statistics: MemoryDesc) -> PrimitiveDesc:
        """The computation on rows and statistics with this memory."""
        return layer_normalization_forward(data, data, statistics, op.epsilon)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        op, x, layout = node.op, node.inputs[0].type, layouts.inputs[0]
        assert isinstance(op, (LayerNormalization, LayerNormalizationGrad))
        data, statistics = _rows(op, x, layout)
        vector = MemoryDesc.strided(engine(), (op.row_length(x.shape),))
        by_argument = {Arg.MEAN: statistics, Arg.VARIANCE: statistics}
        by_argument |= dict.fromkeys((Arg.SCALE, Arg.SHIFT, Arg.DIFF_SCALE, Arg.DIFF_SHIFT), vector)
        operands: dict[int, Operand] = {
            argument: Operand(index, by_argument.get(argument, data), output=output)
            for output, arguments in ((False, self.inputs), (True, self.outputs))
            for index, argument in enumerate(arguments)
        }
        primitive_desc = self.described(op, data, statistics)
        if Arg.SHIFT in primitive_desc.arguments and Arg.SHIFT not in operands:
            operands[Arg.SHIFT] = operands[Arg.SCALE]  # some versions require it for the gradient, but don't read it
        return Computation(primitive_desc, operands)


def _rows(op: Any, x: TensorType, layout: Layout) -> tuple[MemoryDesc, MemoryDesc]:
    """The memory of the rows, and of one value per row."""
    length = op.row_length(x.shape)
    count = prod(x.shape) // length
    rows = MemoryDesc.strided(engine(), (count, length), dtype=data_type(x, layout))
    return rows, MemoryDesc.strided(engine(), (count,))


@kernel(LayerNormalization, backend="onednn", rank=4)
class LayerNormalizationKernel(OverRowsKernel):
    """Mean and variance of each row, and the normalized rows."""

    inputs = (Arg.SRC, Arg.SCALE, Arg.SHIFT)
    outputs = (Arg.DST, Arg.MEAN, Arg.VARIANCE)


@kernel(LayerNormalizationGrad, backend="onednn", rank=4)
class LayerNormalizationGradientKernel(OverRowsKernel):
    """All three gradients."""

    inputs = (Arg.SRC, Arg.SCALE, Arg.MEAN, Arg.VARIANCE, Arg.DIFF_DST)
    outputs = (Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT)

    def described(self, op: Any, data: MemoryDesc, statistics: MemoryDesc) -> PrimitiveDesc:
        hint = super().described(op, data, statistics)
        return layer_normalization_backward(data, data, data, statistics, op.epsilon, hint)

"""Batch normalization in training and its gradient, channels-last.

The library fuses no sum, and its fused ReLU turns NaN into 0: prologues and epilogues are left to kernels that fuse
them. For plain images its code is ten times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Arg
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, Operand, desc, engine, slow_reason
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.primitive_descs import batch_normalization_backward, batch_normalization_forward
from netspec.graph.kernel import data_layouts, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.batch_normalization import BatchNormalizationGrad, BatchNormalizationTraining
from netspec.graph.types import TensorType
from netspec.graph.value import Node

MAX_ELEMENTS = 2_500_000
"""Elements above which the library reads memory in an order that takes two to seven times as long."""


def _forward(op: Any, data: MemoryDesc) -> PrimitiveDesc:
    """The forward computation; also the hint of the gradient."""
    return batch_normalization_forward(data, data, op.epsilon)


def _backward(op: Any, data: MemoryDesc) -> PrimitiveDesc:
    return batch_normalization_backward(data, data, data, op.epsilon, _forward(op, data))


class NormalizationKernel(OneDnnKernel):
    """Base class: images are channels-last."""

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        x = types[0]
        if op.axis != 1 or x.rank < 3:
            return f"oneDNN's channels are axis 1 of images, not axis {op.axis} of {x.rank}"
        if x.size > MAX_ELEMENTS:
            return f"oneDNN is slower for {x.size} elements"
        return slow_reason(lambda: self.primitive(op, desc(x, Layout.channels_last(x.rank))))

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        dtypes = {layout.dtype for layout in (*requested.inputs, *requested.outputs) if layout.order is not None}
        if len(dtypes) > 1:
            return None
        layouts = [layout if layout.order is not None else PLAIN for layout in (*requested.inputs, *requested.outputs)]
        return LayoutSignature(tuple(layouts[: len(requested.inputs)]), tuple(layouts[len(requested.inputs) :]))

    def primitive(self, op: Any, data: MemoryDesc) -> PrimitiveDesc:
        """The computation on images with these layouts."""
        raise NotImplementedError  # abstract

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return data_layouts(node, Layout.channels_last(node.inputs[0].type.rank))

    def operands(
        self, node: Node, layouts: LayoutSignature, inputs: Sequence[Arg], outputs: Sequence[Arg]
    ) -> dict[int, Operand]:
        """Operands and results by argument."""
        operands_by_argument: dict[int, Operand] = {}
        for output, arguments, values, signature in (
            (False, inputs, node.inputs, layouts.inputs),
            (True, outputs, node.outputs, layouts.outputs),
        ):
            for index, (argument, value, layout) in enumerate(zip(arguments, values, signature, strict=True)):
                vector = len(value.shape) == 1
                data = MemoryDesc.strided(engine(), value.shape) if vector else desc(value.type, layout)
                operands_by_argument[argument] = Operand(index, data, output=output)
        return operands_by_argument


@kernel(BatchNormalizationTraining, backend="onednn", rank=4)
class BatchNormalizationKernel(NormalizationKernel):
    """Normalize with the mean and variance of the batch."""

    def primitive(self, op: Any, data: MemoryDesc) -> PrimitiveDesc:
        return _forward(op, data)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        inputs, outputs = (Arg.SRC, Arg.SCALE, Arg.SHIFT), (Arg.DST, Arg.MEAN, Arg.VARIANCE)
        primitive_desc = _forward(node.op, desc(node.inputs[0].type, layouts.inputs[0]))
        return Computation(primitive_desc, self.operands(node, layouts, inputs, outputs))


@kernel(BatchNormalizationGrad, backend="onednn", rank=6)
class BatchNormalizationGradientKernel(NormalizationKernel):
    """Gradients in training."""

    def primitive(self, op: Any, data: MemoryDesc) -> PrimitiveDesc:
        return _backward(op, data)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        inputs = (Arg.SRC, Arg.SCALE, Arg.MEAN, Arg.VARIANCE, Arg.DIFF_DST)
        outputs = (Arg.DIFF_SRC, Arg.DIFF_SCALE, Arg.DIFF_SHIFT)
        primitive_desc = _backward(node.op, desc(node.inputs[0].type, layouts.inputs[0]))
        return Computation(primitive_desc, self.operands(node, layouts, inputs, outputs))

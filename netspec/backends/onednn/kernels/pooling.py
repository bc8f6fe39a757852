"""Average pooling and its gradient, for any number of spatial axes.

Max pooling is left to other backends: the library's ignores NaN, which must reach the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from netspec.backends.onednn.constants import AlgKind, Arg
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, desc, slow_reason
from netspec.backends.onednn.memory import MemoryDesc
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.primitive_descs import pooling_backward, pooling_forward
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad
from netspec.graph.types import TensorType
from netspec.graph.value import Node


def _algorithm(op: Any) -> AlgKind:
    return AlgKind.POOLING_AVG_INCLUDE_PADDING if op.counted_pads else AlgKind.POOLING_AVG_EXCLUDE_PADDING


class AverageKernel(OneDnnKernel):
    """Base class: operand and result have the same layout, plain or channels-last."""

    arguments: ClassVar[tuple[Arg, Arg]]
    """Operand and result."""

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(node.types[0].rank)
        chosen = last if offered[0] == last else PLAIN
        return LayoutSignature((chosen,), (chosen,))

    def decline_reason(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (operand,) = types
        if op.counted_pads not in ((), op.window.pads):
            return "oneDNN counts all padding or none"
        last = Layout.channels_last(operand.rank)
        return slow_reason(lambda: self.primitive(op, desc(operand, last), desc(op.infer(operand), last)))

    def primitive(self, op: Any, operand: MemoryDesc, result: MemoryDesc) -> PrimitiveDesc:
        """The computation; the forward one is also the gradient's hint."""
        return pooling_forward(operand, result, op.window, _algorithm(op))

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        operand, result = (desc(kind, layouts.inputs[0]) for kind in (node.inputs[0].type, node.types[0]))
        return Computation.of_one(self.primitive(node.op, operand, result), operand, result, self.arguments)


@kernel(AveragePool, backend="onednn", rank=10)
class AveragePoolingKernel(AverageKernel):
    """Means of windows."""

    arguments = (Arg.SRC, Arg.DST)

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        return requested if requested.inputs[0].dtype == requested.outputs[0].dtype else None


@kernel(AveragePoolGrad, backend="onednn", rank=10)
class AveragePoolingGradientKernel(AverageKernel):
    """Gradients divided among the positions of windows, in float32: bfloat16 would round every partial sum."""

    arguments = (Arg.DIFF_DST, Arg.DIFF_SRC)

    def primitive(self, op: Any, operand: MemoryDesc, result: MemoryDesc) -> PrimitiveDesc:
        hint = super().primitive(op, result, operand)
        return pooling_backward(result, operand, op.window, _algorithm(op), hint)

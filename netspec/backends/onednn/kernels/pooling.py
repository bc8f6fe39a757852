"""Average pooling and its gradient, for any number of spatial axes.

Max pooling is left to other backends: the library's ignores NaN, which must reach the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import AlgKind, Arg
from netspec.backends.onednn.kernel import Computation, OneDnnKernel, Operand, desc, slow_reason
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.primitive_descs import pooling_backward, pooling_forward
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.pooling import AveragePool, AveragePoolGrad
from netspec.graph.types import TensorType
from netspec.graph.value import Node


def _algorithm(op: Any) -> AlgKind:
    return AlgKind.POOLING_AVG_INCLUDE_PADDING if op.counted_pads else AlgKind.POOLING_AVG_EXCLUDE_PADDING


def _forward(op: Any, x: TensorType, y: TensorType, layout: Layout) -> PrimitiveDesc:
    """The forward computation; also the hint of the gradient."""
    return pooling_forward(desc(x, layout), desc(y, layout), op.window, _algorithm(op))


class AverageKernel(OneDnnKernel):
    """Base class: operand and result have the same layout, plain or channels-last."""

    def requested_layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(node.types[0].rank)
        chosen = last if offered[0] == last else PLAIN
        return LayoutSignature((chosen,), (chosen,))


@kernel(AveragePool, backend="onednn", rank=10)
class AveragePoolingKernel(AverageKernel):
    """Means of windows."""

    def storage_layouts(self, requested: LayoutSignature) -> LayoutSignature | None:
        return requested if requested.inputs[0].dtype == requested.outputs[0].dtype else None

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if op.counted_pads not in ((), op.window.pads):
            return "oneDNN counts all padding or none"
        return slow_reason(lambda: _forward(op, x, op.infer(x), Layout.channels_last(x.rank)))

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        x, y, layout = node.inputs[0].type, node.types[0], layouts.inputs[0]
        primitive_desc = _forward(node.op, x, y, layout)
        arguments: dict[int, Operand] = {
            Arg.SRC: Operand(0, desc(x, layout)),
            Arg.DST: Operand(0, desc(y, layout), output=True),
        }
        return Computation(primitive_desc, arguments)


@kernel(AveragePoolGrad, backend="onednn", rank=10)
class AveragePoolingGradientKernel(AverageKernel):
    """Gradients divided among the positions of windows, in float32: bfloat16 would round every partial sum."""

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (dy,) = types
        if op.counted_pads not in ((), op.window.pads):
            return "oneDNN counts all padding or none"
        return slow_reason(lambda: self._backward(op, op.infer(dy), dy, Layout.channels_last(dy.rank)))

    def _backward(self, op: Any, dx: TensorType, dy: TensorType, layout: Layout) -> PrimitiveDesc:
        hint = _forward(op, dx, dy, layout)
        return pooling_backward(desc(dx, layout), desc(dy, layout), op.window, _algorithm(op), hint)

    def describe(self, node: Node, layouts: LayoutSignature) -> Computation:
        dy, dx, layout = node.inputs[0].type, node.types[0], layouts.inputs[0]
        primitive_desc = self._backward(node.op, dx, dy, layout)
        arguments: dict[int, Operand] = {
            Arg.DIFF_DST: Operand(0, desc(dy, layout)),
            Arg.DIFF_SRC: Operand(0, desc(dx, layout), output=True),
        }
        return Computation(primitive_desc, arguments)

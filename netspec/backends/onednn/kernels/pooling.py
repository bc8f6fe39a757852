"""Averages over windows, and their gradients, any number of spatial axes.

Maxima are left to others: the library's max pooling passes over NaN, which must reach the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.onednn.constants import Algorithm, Arg
from netspec.backends.onednn.kernels.base import Computation, OneDnnKernel, Place, desc, why_slow
from netspec.backends.onednn.primitive import PrimitiveDesc
from netspec.backends.onednn.sliding import pooling_backward, pooling_forward
from netspec.graph.kernel import kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.types import TensorType
from netspec.graph.value import Node
from netspec.layers.pooling import AveragePool, AveragePoolGrad


def _algorithm(op: Any) -> Algorithm:
    return Algorithm.POOLING_AVG_INCLUDE_PADDING if op.counted else Algorithm.POOLING_AVG_EXCLUDE_PADDING


def _forward(op: Any, x: TensorType, y: TensorType, layout: Layout) -> PrimitiveDesc:
    """The forward computation; also the hint of the gradient."""
    return pooling_forward(desc(x, layout), desc(y, layout), op.window, _algorithm(op))


class AverageKernel(OneDnnKernel):
    """Base of both: operand and result lie alike, plain or channels-last."""

    def wished(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(node.types[0].rank)
        chosen = last if given[0] == last else PLAIN
        return Signature((chosen,), (chosen,))


@kernel(AveragePool, backend="onednn", rank=10)
class AveragePooling(AverageKernel):
    """Means of windows."""

    def stored(self, wanted: Signature) -> Signature | None:
        return wanted if wanted.inputs[0].dtype == wanted.outputs[0].dtype else None

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (x,) = types
        if op.counted not in ((), op.window.pads):
            return "the library counts all padding or none"
        return why_slow(lambda: _forward(op, x, op.infer(x), Layout.channels_last(x.rank)))

    def describe(self, node: Node, layouts: Signature) -> Computation:
        x, y, layout = node.inputs[0].type, node.types[0], layouts.inputs[0]
        made = _forward(node.op, x, y, layout)
        places: dict[int, Place] = {Arg.SRC: Place(0, desc(x, layout)), Arg.DST: Place(0, desc(y, layout), output=True)}
        return Computation(made, places)


@kernel(AveragePoolGrad, backend="onednn", rank=10)
class AveragePoolingGradient(AverageKernel):
    """Gradients shared out over windows. (In bfloat16 the library rounds every sum on the way: float32 alone.)"""

    def declines(self, op: Any, types: Sequence[TensorType]) -> str | None:
        (dy,) = types
        if op.counted not in ((), op.window.pads):
            return "the library counts all padding or none"
        return why_slow(lambda: self._backward(op, op.infer(dy), dy, Layout.channels_last(dy.rank)))

    def _backward(self, op: Any, dx: TensorType, dy: TensorType, layout: Layout) -> PrimitiveDesc:
        hint = _forward(op, dx, dy, layout)
        return pooling_backward(desc(dx, layout), desc(dy, layout), op.window, _algorithm(op), hint)

    def describe(self, node: Node, layouts: Signature) -> Computation:
        dy, dx, layout = node.inputs[0].type, node.types[0], layouts.inputs[0]
        made = self._backward(node.op, dx, dy, layout)
        places: dict[int, Place] = {
            Arg.DIFF_DST: Place(0, desc(dy, layout)),
            Arg.DIFF_SRC: Place(0, desc(dx, layout), output=True),
        }
        return Computation(made, places)

"""Matrix products and 1x1 convolutions, which are products of (positions x channels) matrices.

The library's GELU is the tanh approximation, and its bias in float64 is undocumented: our own kernels run these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.cuda.contraction import ContractionKernel, anchor_of
from netspec.backends.cuda.cublaslt.matmul import WORKSPACE, bind_matmul
from netspec.graph.fused import EpilogueFused, FusedStep
from netspec.graph.kernel import Example, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.op import Op
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.linear import MatMul
from netspec.graph.ops.unary import Relu
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node


class LtKernel(ContractionKernel):
    """Base class: one product, possibly batched."""

    library = "cuBLASLt"
    channel = -1

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        """Views of operands and result as matrices, y = a @ b."""
        raise NotImplementedError  # abstract

    def adds_bias(self, op: Op, dtype: DType) -> bool:
        return dtype == DType.FLOAT32

    def own_workspace(self, node: Node, layouts: LayoutSignature) -> int:
        return WORKSPACE

    def contraction(
        self, node: Node, layouts: LayoutSignature, operands: Sequence[Any], y: Any, space: Any | None
    ) -> Thunk:
        a, b, *bias = operands
        return bind_matmul(*self.matrices(anchor_of(node.op), a, b, y), space, *bias, fast=self.tf32)


@kernel(MatMul, EpilogueFused, backend="cublaslt", rank=10, tf32=True)
class MatMulKernel(LtKernel):
    """y = a @ b, + bias."""

    def decline_reason(self, op: Op, types: Sequence[TensorType]) -> str | None:
        return None if isinstance(op, MatMul) else f"the anchor is {op.name}"

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        assert isinstance(op, MatMul)
        return a.swapaxes(-1, -2) if op.transpose_a else a, b.swapaxes(-1, -2) if op.transpose_b else b, y


POINTS = Conv(Window((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)))
IMAGE, SQUARE = TensorType((2, 3, 5, 2), DType.FLOAT32), TensorType((4, 3, 1, 1), DType.FLOAT32)
RESULT = POINTS.infer(IMAGE, SQUARE)
"""Examples."""


def point_reject_reason(conv: Conv) -> str | None:
    """Return why a convolution is not a product of two matrices; None if it is."""
    window = conv.window
    if {*window.size, *window.strides} != {1} or any(map(any, window.pads)) or conv.groups != 1:
        return "it is not a 1x1 convolution without groups"
    return None


def points(x: Any) -> Any:
    """A channels-last array (N, C, …) as (positions, C)."""
    return x.transpose(0, *range(2, x.ndim), 1).reshape(-1, x.shape[1])


def square(w: Any) -> Any:
    """A kernel (M, C, 1, …) as (M, C)."""
    return w.reshape(w.shape[:2])


@kernel(Conv, ConvInputGrad, EpilogueFused, backend="cublaslt", rank=12, tf32=True)
class PointConvolutionKernel(LtKernel):
    """y from x, or dx from dy, channels-last: each position's channels times the kernel, + bias."""

    channel = 1

    def samples(self) -> Sequence[Example]:
        bias, added = TensorType((4, 1, 1), DType.FLOAT32), FusedStep(Add(), (0, 1))
        after = EpilogueFused(POINTS, 2, (added, FusedStep(Relu(), (3,)), FusedStep(Add(), (4, 2))))
        return (
            (POINTS, (IMAGE, SQUARE)),
            (EpilogueFused(POINTS, 2, (added,)), (IMAGE, SQUARE, bias)),
            (after, (IMAGE, SQUARE, bias, RESULT)),
            (ConvInputGrad(POINTS, IMAGE), (RESULT, SQUARE)),
        )

    def decline_reason(self, op: Op, types: Sequence[TensorType]) -> str | None:
        if not isinstance(op, (Conv, ConvInputGrad)):
            return f"the anchor is {op.name}"
        return point_reject_reason(op if isinstance(op, Conv) else op.conv)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        y = node.types[0]
        last = Layout.channels_last(y.rank)
        extras = (last if value.shape == y.shape else PLAIN for value in node.inputs[2:])
        return LayoutSignature((last, PLAIN, *extras), (last,))

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        return points(a), square(b).T if isinstance(op, Conv) else square(b), points(y)


@kernel(ConvWeightGrad, backend="cublaslt", rank=12, tf32=True)
class PointWeightGradientKernel(LtKernel):
    """dw from dy and x, channels-last."""

    def samples(self) -> Sequence[Example]:
        return ((ConvWeightGrad(POINTS, SQUARE), (RESULT, IMAGE)),)

    def decline_reason(self, op: Op, types: Sequence[TensorType]) -> str | None:
        assert isinstance(op, ConvWeightGrad)
        return point_reject_reason(op.conv)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(node.types[0].rank)
        return LayoutSignature((last, last), (PLAIN,))

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        return points(a).T, points(b), square(y)

"""Products of matrices, and convolutions of single points, which are products of (points x channels) matrices.

Its GELU is the approximation by tanh, and of a bias in float64 the library says nothing: own kernels follow there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.cublaslt import recurrence  # noqa: F401  # it registers its kernels
from netspec.backends.cublaslt.product import WORKSPACE, bound
from netspec.backends.cuda.contraction import ContractionKernel, anchor_of
from netspec.graph.fused import Anchored, Step
from netspec.graph.kernel import Example, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.functions import Relu
from netspec.graph.ops.linear import MatMul
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.layers.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.layers.window import Window


class ProductKernel(ContractionKernel):
    """Base of all: one product, in batches or not."""

    library = "cuBLASLt"
    channel = -1

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        """Operands and result as matrices, y = a @ b: views of the arrays."""
        raise NotImplementedError  # abstract: subclasses say

    def adds_bias(self, op: Op, dtype: DType) -> bool:
        return dtype == DType.FLOAT32

    def own_workspace(self, node: Node, layouts: Signature) -> int:
        return WORKSPACE

    def contraction(self, node: Node, layouts: Signature, operands: Sequence[Any], y: Any, space: Any | None) -> Thunk:
        a, b, *bias = operands
        return bound(*self.matrices(anchor_of(node.op), a, b, y), space, *bias, fast=self.tf32)


@kernel(MatMul, Anchored, backend="cublaslt", rank=10)
class Product(ProductKernel):
    """y = a @ b, + bias."""

    def declines(self, op: Op, types: Sequence[TensorType]) -> str | None:
        return None if isinstance(op, MatMul) else f"the anchor is {op.name}"

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        assert isinstance(op, MatMul)
        return a.swapaxes(-1, -2) if op.transpose_a else a, b.swapaxes(-1, -2) if op.transpose_b else b, y


POINTS = Conv(Window((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)))
IMAGE, SQUARE = TensorType((2, 3, 5, 2), DType.FLOAT32), TensorType((4, 3, 1, 1), DType.FLOAT32)
RESULT = POINTS.infer(IMAGE, SQUARE)
"""Samples."""


def why_not_points(conv: Conv) -> str | None:
    """Why a convolution is not a product of two matrices; None if it is."""
    window = conv.window
    if {*window.size, *window.strides} != {1} or any(map(any, window.pads)) or conv.groups != 1:
        return "not of single points, with all channels"
    return None


def points(x: Any) -> Any:
    """(N, C, …) that lies channels-last as (places, C)."""
    return x.transpose(0, *range(2, x.ndim), 1).reshape(-1, x.shape[1])


def square(w: Any) -> Any:
    """A kernel (M, C, 1, …) as (M, C)."""
    return w.reshape(w.shape[:2])


@kernel(Conv, ConvInputGrad, Anchored, backend="cublaslt", rank=12)
class PointConvolution(ProductKernel):
    """y from x, or dx from dy, channels-last: the kernel by each place's channels, + bias."""

    channel = 1

    def samples(self) -> Sequence[Example]:
        bias, added = TensorType((4, 1, 1), DType.FLOAT32), Step(Add(), (0, 1))
        after = Anchored(POINTS, 2, (added, Step(Relu(), (3,)), Step(Add(), (4, 2))))
        return (
            (POINTS, (IMAGE, SQUARE)),
            (Anchored(POINTS, 2, (added,)), (IMAGE, SQUARE, bias)),
            (after, (IMAGE, SQUARE, bias, RESULT)),
            (ConvInputGrad(POINTS, IMAGE), (RESULT, SQUARE)),
        )

    def declines(self, op: Op, types: Sequence[TensorType]) -> str | None:
        if not isinstance(op, (Conv, ConvInputGrad)):
            return f"the anchor is {op.name}"
        return why_not_points(op if isinstance(op, Conv) else op.conv)

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        y = node.types[0]
        last = Layout.channels_last(y.rank)
        extras = (last if value.shape == y.shape else PLAIN for value in node.inputs[2:])
        return Signature((last, PLAIN, *extras), (last,))

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        return points(a), square(b).T if isinstance(op, Conv) else square(b), points(y)


@kernel(ConvWeightGrad, backend="cublaslt", rank=12)
class PointWeightGradient(ProductKernel):
    """dw from dy and x, channels-last."""

    def samples(self) -> Sequence[Example]:
        return ((ConvWeightGrad(POINTS, SQUARE), (RESULT, IMAGE)),)

    def declines(self, op: Op, types: Sequence[TensorType]) -> str | None:
        assert isinstance(op, ConvWeightGrad)
        return why_not_points(op.conv)

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(node.types[0].rank)
        return Signature((last, last), (PLAIN,))

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        return points(a).T, points(b), square(y)


@kernel(MatMul, Anchored, backend="cublaslt", rank=14)
class RoundedProduct(Product):
    """y = a @ b, + bias, of a and b as tf32."""

    tf32 = True


@kernel(Conv, ConvInputGrad, Anchored, backend="cublaslt", rank=16)
class RoundedPointConvolution(PointConvolution):
    """As `PointConvolution`, of operands as tf32."""

    tf32 = True


@kernel(ConvWeightGrad, backend="cublaslt", rank=16)
class RoundedPointWeightGradient(PointWeightGradient):
    """As `PointWeightGradient`, of operands as tf32."""

    tf32 = True

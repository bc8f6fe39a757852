"""Functions along one axis: softmax with its gradient and logarithm, hardmax, sparsemax."""

from __future__ import annotations

from dataclasses import dataclass

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion, OnnxMap, integer
from netspec.graph.op import Array, Grads, NoGradient, Op, Xp
from netspec.graph.ops.elementwise import Greater, cast, scalar
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.unary import Exp
from netspec.graph.types import TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class SoftmaxFamily(Op):
    """Base of functions that map the vectors along `axis` to vectors of the same length."""

    axis: int = -1

    def infer(self, x: TensorType) -> TensorType:
        self.check(-x.rank <= self.axis < x.rank, f"there is no axis {self.axis} to normalize over", got=x)
        return x

    def flops(self, x: TensorType) -> int:
        return 5 * x.size


class Softmax(SoftmaxFamily):
    """eˣ / Σ eˣ along `axis`, shifted by the maximum to prevent overflow"""

    onnx = OnnxMap("Softmax", axis=integer("axis"))

    def forward(self, xp: Xp, x: Array) -> Array:
        e = xp.exp(x - x.max(axis=self.axis, keepdims=True))
        return e / e.sum(axis=self.axis, keepdims=True)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (SoftmaxGrad(self.axis)(y, dy),)


@dataclass(frozen=True)
class SoftmaxGrad(Op):
    """The gradient of `Softmax` from its result y and dy: y · (dy - Σ y · dy), the sum along `axis`."""

    axis: int = -1
    onnx = GRADIENT

    def infer(self, y: TensorType, dy: TensorType) -> TensorType:
        self.check(dy == y, "the gradient must have the result's type", expected=str(y), got=dy)
        return y

    def forward(self, xp: Xp, y: Array, dy: Array) -> Array:
        return y * (dy - (y * dy).sum(axis=self.axis, keepdims=True))

    def decompose(self, y: Value, dy: Value) -> Value:
        return y * (dy - ReduceSum((self.axis,), keepdims=True)(y * dy))

    def flops(self, y: TensorType, dy: TensorType) -> int:
        return 4 * y.size


class LogSoftmax(SoftmaxFamily):
    """x - ln Σ eˣ along `axis`, shifted by the maximum to prevent overflow"""

    onnx = OnnxMap("LogSoftmax", axis=integer("axis"))

    def forward(self, xp: Xp, x: Array) -> Array:
        shifted = x - x.max(axis=self.axis, keepdims=True)
        return shifted - xp.log(xp.exp(shifted).sum(axis=self.axis, keepdims=True))

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy - Exp()(y) * ReduceSum((self.axis,), keepdims=True)(dy),)


class Hardmax(SoftmaxFamily, NoGradient):
    """1 at the first maximum along `axis`, 0 elsewhere"""

    onnx = OnnxMap("Hardmax", axis=integer("axis"))

    def forward(self, xp: Xp, x: Array) -> Array:
        first_maximum = xp.expand_dims(x.argmax(axis=self.axis), self.axis)
        shape = [1] * x.ndim
        shape[self.axis] = -1
        return (xp.arange(x.shape[self.axis]).reshape(shape) == first_maximum).astype(x.dtype)


def _sparsemax_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op, dtype = y.op, str(y.dtype)
    assert isinstance(op, Sparsemax)
    axis = op.axis % len(y.shape)
    axes = g.constant([axis], "int64")
    shifted = g.node("Sub", x, g.node("ReduceMax", x, axes, keepdims=1))
    descending = g.node("TopK", shifted, g.constant([y.shape[axis]], "int64"), outputs=2, axis=axis)
    sums = g.node("CumSum", descending, g.constant(axis, "int64"))
    shape = [-1 if index == axis else 1 for index in range(len(y.shape))]
    ranks = g.node(
        "Reshape", g.constant([float(k + 1) for k in range(y.shape[axis])], dtype), g.constant(shape, "int64")
    )
    one = g.constant(1.0, dtype)
    in_support = g.node("Greater", g.node("Add", g.node("Mul", descending, ranks), one), sums)
    in_support = g.node("Cast", in_support, to=y.dtype)
    count = g.node("ReduceSum", in_support, axes, keepdims=1)
    total = g.node("ReduceSum", g.node("Mul", descending, in_support), axes, keepdims=1)
    threshold = g.node("Div", g.node("Sub", total, one), count)
    return g.node("Relu", g.node("Sub", shifted, threshold))


class Sparsemax(SoftmaxFamily):
    """The point of the probability simplex nearest to x along `axis`: max(x - τ, 0), summing to 1.

    Martins and Astudillo 2016, arXiv:1602.02068, algorithm 1. Small elements become exactly 0.
    """

    onnx = OnnxExpansion(_sparsemax_to_onnx)

    def forward(self, xp: Xp, x: Array) -> Array:
        # Any shift gives the same result; subtracting the maximum loses no precision.
        shifted = x - x.max(axis=self.axis, keepdims=True)
        descending = -xp.sort(-shifted, axis=self.axis)
        shape = [1] * x.ndim
        shape[self.axis] = -1
        ranks = xp.arange(1, x.shape[self.axis] + 1, dtype=x.dtype).reshape(shape)
        in_support = 1 + ranks * descending > descending.cumsum(axis=self.axis)
        count = in_support.sum(axis=self.axis, keepdims=True, dtype=x.dtype)
        threshold = ((descending * in_support).sum(axis=self.axis, keepdims=True) - 1) / xp.maximum(count, 1)
        return xp.maximum(shifted - threshold, 0)

    def vjp(self, y: Value, dy: Value) -> Grads:
        """dy minus its mean over the elements that are not 0; 0 for the other elements."""
        total = ReduceSum((self.axis,), keepdims=True)
        in_support = cast(Greater()(y, scalar(0.0, y.dtype)), dy.dtype)
        return (in_support * (dy - total(dy * in_support) / total(in_support)),)

    def flops(self, x: TensorType) -> int:
        return x.size * (6 + max(x.shape[self.axis], 2).bit_length())

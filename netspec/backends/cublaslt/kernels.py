"""Products of matrices, and convolutions of single points, which are products of (points x channels) matrices.

A bias is added where the product is written. Other ops that follow are a kernel of the backend `cuda` on the result:
the library's ReLU makes 0 of NaN, which would hide it from the guard, and its GELU is the approximation by tanh. So
are all of them in float64, of which the library says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.cublaslt.product import WORKSPACE, bound
from netspec.backends.cuda import elementwise
from netspec.backends.cuda.scalar import scalar_code, why_untraceable
from netspec.backends.moves import in_turn
from netspec.graph.fused import Anchored, Fused, Step
from netspec.graph.kernel import Buffers, Example, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.op import Op
from netspec.graph.ops.elementwise import Add
from netspec.graph.ops.functions import Relu
from netspec.graph.ops.linear import MatMul
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.layers.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.layers.window import Window

FLOATS = (DType.FLOAT32, DType.FLOAT64)


def anchor_of(op: Op) -> Op:
    """The product, without what follows it."""
    return op.anchor if isinstance(op, Anchored) else op


def bias_of(op: Op, y: TensorType, extras: Sequence[TensorType], axis: int) -> int | None:
    """Which of the extras is a bias along `axis` of the result that the first op of the body adds; None if none is."""
    if not isinstance(op, Anchored) or not isinstance(op.body[0].op, Add) or y.dtype == DType.FLOAT64:
        return None
    along = tuple(size if place == axis % y.rank else 1 for place, size in enumerate(y.shape))
    if any(0 in step.operands for step in op.body[1:]) or op.body[0].operands.count(0) != 1:
        return None  # the product is read without the bias too
    for operand in op.body[0].operands:
        kind = extras[operand - 1] if 0 < operand <= len(extras) else None
        if kind is not None and (1,) * (y.rank - kind.rank) + kind.shape == along:
            return operand - 1
    return None


class ProductKernel(Kernel):
    """Base of all: a product, and what follows it, element by element."""

    channel = -1
    """The axis of the result that a bias goes along."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        if types[0].dtype not in FLOATS:
            return f"cuBLASLt multiplies floats, not {types[0].dtype}"
        if self.tf32 and types[0].dtype != DType.FLOAT32:
            return f"{types[0].dtype} is not rounded to tf32"
        reason = self.declines(anchor_of(op), types)
        if reason is not None or not isinstance(op, Anchored):
            return reason
        first = op.anchor.infer(*types[: op.anchor_arity])
        assert isinstance(first, TensorType)
        if op.infer(*types) != first:
            return "what follows the product makes another type of it"
        return why_untraceable(op.epilogue(len(types) - op.anchor_arity), (first, *types[op.anchor_arity :]))

    def declines(self, op: Op, types: Sequence[TensorType]) -> str | None:
        """Why it cannot take the product itself."""
        raise NotImplementedError

    def matrices(self, op: Op, a: Any, b: Any, y: Any) -> tuple[Any, Any, Any]:
        """Operands and result as matrices, y = a @ b: views of the arrays."""
        raise NotImplementedError

    def narrowed(self, node: Node, wanted: Signature) -> Signature | None:
        a, b = wanted.inputs[:2]
        return wanted if a.dtype == b.dtype and a.dtype is not None else None

    def workspace(self, node: Node, layouts: Signature) -> int:
        return sum(self._spaces(node, layouts))

    def _spaces(self, node: Node, layouts: Signature) -> tuple[int, int, int]:
        """Bytes of scratch memory: the library's, for the bias as it is rounded, for the result as it is not yet."""
        y, (bias, after) = node.types[0], self._body(node)
        unrounded = after is not None and layouts.outputs[0].dtype is not None
        of_bias = 0 if bias is None else aligned(y.shape[self.channel] * y.dtype.itemsize)
        return WORKSPACE, of_bias, aligned(y.nbytes) if unrounded else 0

    def _body(self, node: Node) -> tuple[int | None, Fused | None]:
        """Which of the extras is the bias that the library adds, and what follows then, on result and extras."""
        op, y = node.op, node.types[0]
        if not isinstance(op, Anchored):
            return None, None
        extras = [value.type for value in node.inputs[op.anchor_arity :]]
        bias, whole = bias_of(op, y, extras, self.channel), op.epilogue(len(extras))
        return bias, whole if bias is None else without_first(whole)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        """The bias rounded, the product, what follows: each where there is one."""
        op, calls, kind = node.op, list[Thunk](), node.types[0]
        (a, b, *extras), (y,), space = buffers.inputs, buffers.outputs, buffers.workspace
        assert y is not None
        assert space is not None
        place, after = self._body(node)
        own, of_bias, of_result = self._spaces(node, buffers.layouts)
        made, bias = y, None if place is None else extras[place].reshape(-1)
        if of_result:
            flat = space[own + of_bias :][: kind.nbytes].view(str(kind.dtype))
            made = buffers.layouts.outputs[0].arranged(flat, kind)
        if bias is not None and bias.dtype != made.dtype:
            rounded = space[own:][: bias.size * made.itemsize].view(made.dtype)
            calls.append(elementwise.copy(bias, rounded))
            bias = rounded
        calls.append(bound(*self.matrices(anchor_of(op), a, b, made), space, bias, fast=self.tf32))
        if after is not None:
            types = (value.dtype for value in node.inputs[len(buffers.inputs) - len(extras) :])
            calls.append(elementwise.bound(scalar_code(after, kind.dtype, *types), [made, *extras], [y]))
        return in_turn(calls)


def without_first(body: Fused) -> Fused | None:
    """A body without its first step, whose result takes the place of operand 0; None where nothing is left."""

    def moved(index: int) -> int:
        return 0 if index == body.arity else index - (index > body.arity)

    if len(body.body) == 1:
        return None
    steps = tuple(Step(step.op, tuple(map(moved, step.operands))) for step in body.body[1:])
    return Fused(body.arity, steps, tuple(map(moved, body.results)))


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


@kernel(Conv, ConvInputGrad, Anchored, backend="cublaslt", rank=11)
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


@kernel(ConvWeightGrad, backend="cublaslt", rank=11)
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


@kernel(Conv, ConvInputGrad, Anchored, backend="cublaslt", rank=15)
class RoundedPointConvolution(PointConvolution):
    """As `PointConvolution`, of operands as tf32."""

    tf32 = True


@kernel(ConvWeightGrad, backend="cublaslt", rank=15)
class RoundedPointWeightGradient(PointWeightGradient):
    """As `PointWeightGradient`, of operands as tf32."""

    tf32 = True

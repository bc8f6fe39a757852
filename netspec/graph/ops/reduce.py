"""Reductions over axes, and broadcasting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

from netspec.graph.onnx_map import Emitter, OnnxExpansion
from netspec.graph.op import Array, Grads, NoGradient, Op, Xp
from netspec.graph.types import DType, TensorType, broadcast_shapes
from netspec.graph.value import Value


def factor_along_axis(factor: Value, rank: int, axis: int, operand_axis: int, operand_rank: int) -> Value | None:
    """Reshape a factor that varies along `axis` of a result, to vary along `operand_axis` of an operand.

    None if the factor varies along other axes too.
    """
    shape = (1,) * (rank - len(factor.shape)) + factor.shape
    axis %= rank
    if len(shape) != rank or any(size != 1 for index, size in enumerate(shape) if index != axis):
        return None
    return reshape_to(
        factor, tuple(shape[axis] if index == operand_axis % operand_rank else 1 for index in range(operand_rank))
    )


def normalize_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted."""
    return tuple(sorted(axis % rank for axis in axes))


@dataclass(frozen=True)
class Reduction(Op):
    """Base of reductions over `axes` (None: all); with `keepdims` reduced axes stay with size 1."""

    axes: tuple[int, ...] | None = None
    keepdims: bool = False

    def infer(self, x: TensorType) -> TensorType:
        axes = self.reduced_axes(x)
        if self.keepdims:
            return x.with_shape(*(1 if axis in axes else size for axis, size in enumerate(x.shape)))
        return x.with_shape(*(size for axis, size in enumerate(x.shape) if axis not in axes))

    def reduced_axes(self, x: TensorType) -> tuple[int, ...]:
        """The axes reduced in an operand of type `x`."""
        if self.axes is None:
            return tuple(range(x.rank))
        self.check(
            all(-x.rank <= axis < x.rank for axis in self.axes),
            f"{self.name} over an axis that the operand does not have",
            got=x,
        )
        return normalize_axes(self.axes, x.rank)

    def broadcast_back(self, dy: Value, x: Value) -> Value:
        """A gradient of the result, broadcast to the operand's shape."""
        axes = self.reduced_axes(x.type)
        return Broadcast(x.shape)(
            reshape_to(dy, tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)))
        )

    def flops(self, x: TensorType) -> int:
        return x.size


def onnx_reduction(op_type: str) -> OnnxExpansion:
    """The ONNX node of a reduction, with the axes as an operand."""

    def write(g: Emitter, y: Value, x: str) -> str:
        op = y.op
        assert isinstance(op, Reduction)
        axes = g.constant(list(op.reduced_axes(y.inputs[0].type)), "int64")
        return g.node(op_type, x, axes, keepdims=int(op.keepdims))

    return OnnxExpansion(write)


class ReduceSum(Reduction):
    """Σ x"""

    onnx = onnx_reduction("ReduceSum")

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.sum(axis=self.axes, keepdims=self.keepdims, dtype=x.dtype)

    def simplify(self, x: Value) -> Value | None:
        return (
            reshape_to(x, self.infer(x.type).shape)
            if all(x.shape[axis] == 1 for axis in self.reduced_axes(x.type))
            else None
        )

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (self.broadcast_back(dy, y.inputs[0]),)


class ReduceMean(Reduction):
    """Mean of x"""

    onnx = onnx_reduction("ReduceMean")

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.mean(axis=self.axes, keepdims=self.keepdims, dtype=x.dtype)

    def vjp(self, y: Value, dy: Value) -> Grads:
        (x,) = y.inputs
        count = prod(x.shape[axis] for axis in self.reduced_axes(x.type))
        return (self.broadcast_back(dy * (1.0 / count), x),)


class ReduceExtremum(Reduction):
    """Base of maximum and minimum; equal extrema share the gradient."""

    def vjp(self, y: Value, dy: Value) -> Grads:
        from netspec.graph.ops.elementwise import Cast, Equal

        (x,) = y.inputs
        is_extremum = Cast(x.dtype)(Equal()(x, self.broadcast_back(y, x)))
        count = ReduceSum(self.axes, keepdims=True)(is_extremum)
        return (self.broadcast_back(dy, x) * is_extremum / count,)


class ReduceMax(ReduceExtremum):
    """max x"""

    onnx = onnx_reduction("ReduceMax")

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.max(axis=self.axes, keepdims=self.keepdims)


class ReduceMin(ReduceExtremum):
    """min x"""

    onnx = onnx_reduction("ReduceMin")

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.min(axis=self.axes, keepdims=self.keepdims)


class ReduceProd(Reduction):
    """Π x, computed as products of halves, whose gradient is correct if elements are 0"""

    onnx = onnx_reduction("ReduceProd")

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.prod(axis=self.axes, keepdims=self.keepdims, dtype=x.dtype)

    def decompose(self, x: Value) -> Value:
        y = x
        for axis in self.reduced_axes(x.type):
            y = _pairwise_product(y, axis)
        return reshape_to(y, self.infer(x.type).shape)

    def simplify(self, x: Value) -> Value | None:
        return self.decompose(x)  # a few products of halves, which fuse with adjacent ones


def _pairwise_product(x: Value, axis: int) -> Value:
    """The product along an axis, which stays with size 1, by halving the axis repeatedly."""
    from netspec.graph.ops.shape import Concat, Slice

    while (size := x.shape[axis]) > 1:
        half = size // 2
        product = Slice(axis, 0, half)(x) * Slice(axis, half, 2 * half)(x)
        x = Concat(axis)(product, Slice(axis, size - 1, size)(x)) if size % 2 else product
    return x


@dataclass(frozen=True)
class ArgExtremum(NoGradient, ABC):
    """Base of arg-max and arg-min: index along `axis` of the first or last extremum, as int64."""

    axis: int = -1
    last: bool = False

    def infer(self, x: TensorType) -> TensorType:
        self.check(-x.rank <= self.axis < x.rank, f"{self.name} over an axis that the operand does not have", got=x)
        axis = self.axis % x.rank
        return TensorType(x.shape[:axis] + x.shape[axis + 1 :], DType.INT64)

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.shape[self.axis] - 1 - self.first_index(xp.flip(x, self.axis)) if self.last else self.first_index(x)

    @abstractmethod
    def first_index(self, x: Array) -> Array:
        """Index of the first extremum."""


def _extreme_to_onnx(op_type: str) -> OnnxExpansion:
    def write(g: Emitter, y: Value, x: str) -> str:
        assert isinstance(y.op, ArgExtremum)
        last = {"select_last_index": 1} if y.op.last else {}
        return g.node(op_type, x, axis=y.op.axis, keepdims=0, **last)

    return OnnxExpansion(write)


class ArgMax(ArgExtremum):
    """Index of the maximum"""

    onnx = _extreme_to_onnx("ArgMax")

    def first_index(self, x: Array) -> Array:
        return x.argmax(axis=self.axis)


class ArgMin(ArgExtremum):
    """Index of the minimum"""

    onnx = _extreme_to_onnx("ArgMin")

    def first_index(self, x: Array) -> Array:
        return x.argmin(axis=self.axis)

    def simplify(self, x: Value) -> Value | None:
        return ArgMax(self.axis, self.last)(-x) if x.dtype.is_float else None  # ArgMax has fast kernels


def _broadcast_to_onnx(g: Emitter, y: Value, x: str) -> str:
    # Expand leaves an axis unchanged if its target size is 1; so the size of a symbolic batch is not needed.
    old_shape = (1,) * (len(y.shape) - len(y.inputs[0].shape)) + y.inputs[0].shape
    return g.node(
        "Expand", x, g.constant([1 if a == b else b for a, b in zip(old_shape, y.shape, strict=True)], "int64")
    )


@dataclass(frozen=True)
class Broadcast(Op):
    """x broadcast to a larger shape by NumPy's rules."""

    shape: tuple[int, ...]
    onnx = OnnxExpansion(_broadcast_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        fits = broadcast_shapes(x.shape, self.shape) == self.shape
        self.check(fits, f"cannot broadcast to {list(self.shape)}", got=x)
        return x.with_shape(*self.shape)

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.broadcast_to(x, self.shape)

    def simplify(self, x: Value) -> Value | None:
        return x if x.shape == self.shape else None

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (sum_to(dy, y.inputs[0].shape),)


class BroadcastLike(Op):
    """x broadcast to the shape of a second operand, whose batch may be symbolic in ONNX."""

    onnx = OnnxExpansion(lambda g, y, x, like: g.node("Expand", x, g.node("Shape", like)))

    def infer(self, x: TensorType, like: TensorType) -> TensorType:
        return x.with_shape(*Broadcast(like.shape).infer(x).shape)

    def forward(self, xp: Xp, x: Array, like: Array) -> Array:
        return xp.broadcast_to(x, like.shape)

    def simplify(self, x: Value, like: Value) -> Value:
        return Broadcast(like.shape)(x)  # the batch size is known now, so that the second operand is not needed

    def vjp(self, y: Value, dy: Value) -> Grads:
        return sum_to(dy, y.inputs[0].shape), None


def _rows_to_onnx(g: Emitter, y: Value, x: str, like: str) -> str:
    rows = g.node("Gather", g.node("Shape", like), g.constant([0], "int64"))
    sample_shape = g.constant(list(y.shape[1:]), "int64")
    return g.node("Expand", x, g.node("Concat", rows, sample_shape, axis=0) if y.shape[1:] else rows)


class BroadcastRows(Op):
    """x, a single row, repeated for each row of a second operand, whose batch may be symbolic in ONNX."""

    onnx = OnnxExpansion(_rows_to_onnx)

    def infer(self, x: TensorType, like: TensorType) -> TensorType:
        """x: (1, …), like: (N, …) → (N, …)."""
        self.check(
            x.shape[:1] == (1,) and bool(like.shape), "only a single row can be repeated", expected="(1, …)", got=x
        )
        return x.with_shape(like.shape[0], *x.shape[1:])

    def forward(self, xp: Xp, x: Array, like: Array) -> Array:
        return xp.broadcast_to(x, (like.shape[0], *x.shape[1:]))

    def simplify(self, x: Value, like: Value) -> Value:
        return Broadcast((like.shape[0], *x.shape[1:]))(x)  # as in `BroadcastLike`

    def vjp(self, y: Value, dy: Value) -> Grads:
        return sum_to(dy, y.inputs[0].shape), None


def sum_to(x: Value, shape: tuple[int, ...]) -> Value:
    """`x` summed over the axes that were added or repeated when broadcasting from `shape`."""
    if x.shape == shape:
        return x
    lead = len(x.shape) - len(shape)
    axes = (*range(lead), *(lead + axis for axis, size in enumerate(shape) if size == 1 and x.shape[lead + axis] != 1))
    return reshape_to(ReduceSum(axes)(x), shape)


def reshape_to(x: Value, shape: tuple[int, ...]) -> Value:
    """Reshape `x` to a shape with the same number of elements; returns `x` itself if it has that shape."""
    from netspec.graph.ops.shape import Reshape

    return x if x.shape == shape else Reshape(shape)(x)

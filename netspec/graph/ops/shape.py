"""Ops that move elements without computing: reshape, transpose, concatenate, slice, pad, one-hot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import ClassVar

from netspec.graph.layout import PLAIN, Layout
from netspec.graph.onnx_map import GRADIENT, Emitter, NoOnnxForm, OnnxExpansion, OnnxForm, OnnxMap, integer, ints
from netspec.graph.op import Array, Grads, Op, Traits, Xp
from netspec.graph.ops.source import Fill
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class Reshape(Op):
    """Reshape x: the same elements in the same order."""

    shape: tuple[int, ...]
    traits = Traits(view=True)
    onnx = OnnxExpansion(lambda g, y, x: g.node("Reshape", x, g.constant(onnx_shape(y), "int64")))

    def infer(self, x: TensorType) -> TensorType:
        fits = prod(self.shape) == x.size
        self.check(
            fits,
            f"cannot reshape {x.size} elements to {list(self.shape)}",
            expected=f"{x.size} elements",
            got=prod(self.shape),
        )
        return x.with_shape(*self.shape)

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.reshape(self.shape)

    def simplify(self, x: Value) -> Value | None:
        if x.shape == self.shape:
            return x
        return Reshape(self.shape)(x.inputs[0]) if isinstance(x.op, Reshape) else None

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (Reshape(y.inputs[0].shape)(dy),)

    def flops(self, x: TensorType) -> int:
        return 0


def onnx_shape(y: Value) -> list[int]:
    """The shape operand of ONNX's Reshape, such that the batch may be symbolic.

    0 ("as in the operand") for a batch axis that is kept, -1 ("inferred") for one that is split or merged.
    """
    old, new = y.inputs[0].shape, y.shape
    return [0 if old[0] == new[0] else -1, *new[1:]] if old and new else list(new)


class Identity(Op):
    """A copy of x."""

    traits = Traits(elementwise=True)
    onnx: ClassVar[OnnxForm | None] = OnnxMap("Identity")

    def infer(self, x: TensorType) -> TensorType:
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return x

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (dy,)

    def flops(self, x: TensorType) -> int:
        return 0


@dataclass(frozen=True)
class Reorder(Identity):
    """A copy of x in another memory layout, inserted by the layout pass.

    If one layout is opaque, the other is plain.
    """

    source: Layout = PLAIN
    target: Layout = PLAIN
    traits = Traits()  # operand and result have different layouts, so kernels must not treat it as elementwise
    onnx = NoOnnxForm("only optimization passes create it; export uses the graph before them")

    @property
    def opaque(self) -> bool:
        """Whether one of the layouts is opaque, so that only its backend can convert."""
        return self.source.opaque is not None or self.target.opaque is not None


@dataclass(frozen=True)
class Transpose(Op):
    """Permute the axes."""

    permutation: tuple[int, ...]
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxMap("Transpose", perm=ints("permutation"))

    def infer(self, x: TensorType) -> TensorType:
        fits = sorted(self.permutation) == list(range(x.rank))
        self.check(fits, f"{list(self.permutation)} does not permute {x.rank} axes", got=x)
        return x.with_shape(*(x.shape[axis] for axis in self.permutation))

    def forward(self, xp: Xp, x: Array) -> Array:
        return x.transpose(self.permutation)

    def simplify(self, x: Value) -> Value | None:
        return x if self.permutation == tuple(range(len(self.permutation))) else None

    def vjp(self, y: Value, dy: Value) -> Grads:
        inverse = sorted(range(len(self.permutation)), key=self.permutation.__getitem__)
        return (Transpose(tuple(inverse))(dy),)

    def flops(self, x: TensorType) -> int:
        return 0


@dataclass(frozen=True)
class Concat(Op):
    """Concatenate along `axis`; the other axes must agree."""

    axis: int = 1
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxMap("Concat", axis=integer("axis"))

    def infer(self, *xs: TensorType) -> TensorType:
        first = xs[0]
        self.check(
            -first.rank <= self.axis < first.rank, f"there is no axis {self.axis} to concatenate along", got=first
        )
        axis = self.axis % first.rank

        def other_sizes(x: TensorType) -> tuple[int, ...]:
            return x.shape[:axis] + x.shape[axis + 1 :]

        for x in xs:
            fits = x.rank == first.rank and other_sizes(x) == other_sizes(first) and x.dtype == first.dtype
            self.check(fits, f"operands differ outside axis {self.axis}", expected=f"like the first, {first}", got=x)
        return first.with_shape(*first.shape[:axis], sum(x.shape[axis] for x in xs), *first.shape[axis + 1 :])

    def forward(self, xp: Xp, *xs: Array) -> Array:
        return xp.concatenate(xs, axis=self.axis)

    def vjp(self, y: Value, dy: Value) -> Grads:
        axis, start, parts = self.axis % len(y.shape), 0, []
        for x in y.inputs:
            parts.append(Slice(axis, start, start + x.shape[axis])(dy))
            start += x.shape[axis]
        return parts

    def flops(self, *xs: TensorType) -> int:
        return 0


@dataclass(frozen=True)
class Slice(Op):
    """The part of x from `start` up to, but not including, `stop` along `axis`."""

    axis: int
    start: int
    stop: int
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxExpansion(
        lambda g, y, x: g.node("Slice", x, *(g.constant([n], "int64") for n in (y.op.start, y.op.stop, y.op.axis)))
    )

    def infer(self, x: TensorType) -> TensorType:
        fits = 0 <= self.axis < x.rank and 0 <= self.start < self.stop <= x.shape[self.axis]
        self.check(fits, f"there is no slice {self.start}:{self.stop} of axis {self.axis}", got=x)
        return x.with_shape(*x.shape[: self.axis], self.stop - self.start, *x.shape[self.axis + 1 :])

    def forward(self, xp: Xp, x: Array) -> Array:
        return x[(slice(None),) * self.axis + (slice(self.start, self.stop),)]

    def vjp(self, y: Value, dy: Value) -> Grads:
        size = y.inputs[0].shape[self.axis]
        return (PadAxis(self.axis, self.start, size - self.stop)(dy),)

    def flops(self, x: TensorType) -> int:
        return 0


@dataclass(frozen=True)
class Take(Op):
    """The elements of x at the indices `index` along `axis`, in that order; indices may repeat."""

    axis: int
    index: tuple[int, ...]
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxExpansion(lambda g, y, x: g.node("Gather", x, g.constant(y.op.index, "int64"), axis=y.op.axis))

    def infer(self, x: TensorType) -> TensorType:
        fits = 0 <= self.axis < x.rank and bool(self.index)
        self.check(
            fits and min(self.index) >= 0 and max(self.index) < x.shape[self.axis],
            f"indices {list(self.index)} are out of range along axis {self.axis}",
            got=x,
        )
        return x.with_shape(*x.shape[: self.axis], len(self.index), *x.shape[self.axis + 1 :])

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.take(x, xp.asarray(self.index), axis=self.axis)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (TakeGrad(self.axis, self.index, y.inputs[0].shape[self.axis])(dy),)

    def flops(self, x: TensorType) -> int:
        return 0


@dataclass(frozen=True)
class TakeGrad(Op):
    """Zeros of size `size` along `axis`, with each element of dy added at its index: the gradient of `Take`."""

    axis: int
    index: tuple[int, ...]
    size: int
    traits = Traits(narrowable_outputs=(0,))
    onnx = GRADIENT

    def infer(self, dy: TensorType) -> TensorType:
        return dy.with_shape(*dy.shape[: self.axis], self.size, *dy.shape[self.axis + 1 :])

    def forward(self, xp: Xp, dy: Array) -> Array:
        dx = xp.zeros((*dy.shape[: self.axis], self.size, *dy.shape[self.axis + 1 :]), dy.dtype)
        xp.add.at(dx, (slice(None),) * self.axis + (xp.asarray(self.index),), dy)
        return dx

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (Take(self.axis, self.index)(dy),)

    def flops(self, dy: TensorType) -> int:
        return dy.size


def _split_to_onnx(g: Emitter, y: Value, x: str) -> tuple[str, ...]:
    op = y.op
    assert isinstance(op, Split)
    count = len(op.sizes)
    first = g.node("Split", x, g.constant(op.sizes, "int64"), outputs=count, axis=op.axis)
    return (first, *(f"{first}:{index}" for index in range(1, count)))


@dataclass(frozen=True)
class Split(Op):
    """Split x along `axis` into parts of these sizes: the inverse of `Concat`."""

    axis: int
    sizes: tuple[int, ...]
    onnx = OnnxExpansion(_split_to_onnx)

    @property
    def traits(self) -> Traits:  # type: ignore[override]  # each op of this class has as many results as sizes
        return Traits(narrowable_outputs=tuple(range(len(self.sizes))))

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        fits = 0 <= self.axis < x.rank and sum(self.sizes) == x.shape[self.axis] and min(self.sizes) > 0
        self.check(fits, f"axis {self.axis} cannot be split into parts of the sizes {list(self.sizes)}", got=x)
        return tuple(x.with_shape(*x.shape[: self.axis], size, *x.shape[self.axis + 1 :]) for size in self.sizes)

    def forward(self, xp: Xp, x: Array) -> tuple[Array, ...]:
        return tuple(xp.split(x, list(accumulate(self.sizes))[:-1], axis=self.axis))

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        parts = [Fill(0.0, y.type)() if dy is None else dy for y, dy in zip(ys, dys, strict=True)]
        return (Concat(self.axis)(*parts),)

    def flops(self, x: TensorType) -> int:
        return 0


def _pad_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op, rank = y.op, len(y.shape)
    assert isinstance(op, PadAxis)
    widths = [0] * (2 * rank)  # ONNX's order: before each axis, then after each
    widths[op.axis], widths[rank + op.axis] = op.before, op.after
    value = () if op.value == 0 else (g.constant(op.value, str(y.dtype)),)
    return g.node("Pad", x, g.constant(widths, "int64"), *value)


@dataclass(frozen=True)
class PadAxis(Op):
    """Pad x with a constant, by default 0, before and after it along `axis`: also the gradient of `Slice`."""

    axis: int
    before: int
    after: int
    value: float = 0.0
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxExpansion(_pad_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        size = self.before + x.shape[self.axis] + self.after
        return x.with_shape(*x.shape[: self.axis], size, *x.shape[self.axis + 1 :])

    def forward(self, xp: Xp, x: Array) -> Array:
        widths = [(0, 0)] * x.ndim
        widths[self.axis] = (self.before, self.after)
        return xp.pad(x, widths, constant_values=self.value)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (Slice(self.axis, self.before, self.before + y.inputs[0].shape[self.axis])(dy),)

    def flops(self, x: TensorType) -> int:
        return 0


def _flip_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, Flip)
    # Start at the last element, step -1, and end before the first: ONNX clamps the end.
    return g.node("Slice", x, *(g.constant([n], "int64") for n in (-1, -(2**31), op.axis, -1)))


@dataclass(frozen=True)
class Flip(Op):
    """Reverse the elements along `axis`."""

    axis: int
    onnx = OnnxExpansion(_flip_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        self.check(0 <= self.axis < x.rank, f"there is no axis {self.axis} to flip", got=x)
        return x

    def forward(self, xp: Xp, x: Array) -> Array:
        return xp.flip(x, self.axis)

    def simplify(self, x: Value) -> Value | None:
        return x if x.shape[self.axis] == 1 else x.inputs[0] if x.op == self else None

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (self(dy),)

    def flops(self, x: TensorType) -> int:
        return 0


def _one_hot_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, OneHot)
    # ONNX Runtime supports few index types for this op; int64 is always supported.
    index = x if y.inputs[0].dtype == DType.INT64 else g.node("Cast", x, to=DType.INT64)
    return g.node("OneHot", index, g.constant(op.depth, "int64"), g.constant([0, 1], str(y.dtype)), axis=op.axis)


@dataclass(frozen=True)
class OneHot(Op):
    """Integers → vectors of `depth` elements along a new `axis`: 1 at the index, else 0."""

    depth: int
    dtype: DType
    axis: int = -1
    onnx = OnnxExpansion(_one_hot_to_onnx)

    def infer(self, index: TensorType) -> TensorType:
        self.check(not index.dtype.is_float, "OneHot needs integers", expected="integers", got=index)
        axis = self.axis % (index.rank + 1)
        return TensorType((*index.shape[:axis], self.depth, *index.shape[axis:]), self.dtype)

    def forward(self, xp: Xp, index: Array) -> Array:
        axis = self.axis % (index.ndim + 1)
        classes = xp.arange(self.depth).reshape((self.depth,) + (1,) * (index.ndim - axis))
        return (xp.expand_dims(index, axis) == classes).astype(str(self.dtype))

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (None,)

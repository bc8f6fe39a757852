"""Maximum and average pooling over a sliding window, for any number of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from netspec.graph.onnx_map import GRADIENT, Emitter, OnnxExpansion, OnnxMap, ints, pads
from netspec.graph.op import Array, Grads, NoGradient, Op, Traits, Xp
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value


@dataclass(frozen=True)
class MaxPool(Op):
    """y[n, c, i…] = max_k x[n, c, i·stride + k - pad, …], and which k it was.

    Results: the maxima, and the place of each within its window (int32, counted in reading order; of equal maxima the
    first). The gradient needs the places alone, neither x nor y. Padding never wins. A NaN makes its maxima NaN.
    """

    window: Window
    traits = Traits(narrowable_outputs=(0,))
    # ONNX's second result, `Indices`, counts places in the whole tensor: it is not the one here.
    onnx = OnnxMap(
        "MaxPool",
        kernel_shape=ints("window.size"),
        strides=ints("window.strides"),
        pads=pads("window.pads"),
        dilations=ints("window.dilation"),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x: (N, C, …) → twice (N, C, out…)."""
        y = _pooled(self, self.window, x)
        return y, y.with_dtype(DType.INT32)

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        out = self.window.out(x.shape[2:])
        padded = self.window.padded(xp, x, -inf)
        best: Array = None
        index = xp.zeros((*x.shape[:2], *out), "int32")
        for k, (_, visited) in enumerate(self.window.offsets(out)):
            candidate = padded[visited]
            if best is None:
                best = candidate.copy()
                continue
            index[candidate > best] = k
            xp.maximum(best, candidate, out=best)
        return best, index

    def vjp_outputs(self, ys: Sequence[Value], dys: Sequence[Value | None]) -> Grads:
        y, index = ys
        (x,) = y.inputs
        return (None if dys[0] is None else MaxPoolGrad(self.window, x.shape)(dys[0], index),)

    def is_window_max(self, x: TensorType) -> bool:
        return self.window.always_inside()

    def flops(self, x: TensorType) -> int:
        return self.infer(x)[0].size * prod(self.window.size)


@dataclass(frozen=True)
class MaxPoolGrad(Op):
    """Gradient of `MaxPool` by its input of the given shape: each dy goes to the place that won."""

    window: Window
    shape: tuple[int, ...]
    traits = Traits(narrowable_outputs=(0,))
    onnx = GRADIENT

    def infer(self, dy: TensorType, index: TensorType) -> TensorType:
        self.check(dy.shape == index.shape, "one place for each gradient is needed", expected=str(index), got=dy)
        return dy.with_shape(*self.shape)

    def forward(self, xp: Xp, dy: Array, index: Array) -> Array:
        dx = xp.zeros(self.window.padded_shape(self.shape), dy.dtype)
        for k, (_, visited) in enumerate(self.window.offsets(dy.shape[2:])):
            dx[visited] += xp.where(index == k, dy, dy.dtype.type(0))
        return self.window.unpadded(dx)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return MaxPoolGather(self.window)(dy, y.inputs[1]), None

    def flops(self, dy: TensorType, index: TensorType) -> int:
        return dy.size


@dataclass(frozen=True)
class MaxPoolGather(Op):
    """The elements of x at the places that won: the gradient of `MaxPoolGrad`."""

    window: Window
    traits = Traits(narrowable_outputs=(0,))
    onnx = GRADIENT

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        y = _pooled(self, self.window, x)
        self.check(y.shape == index.shape, "one place for each window is needed", expected=str(y), got=index)
        return y

    def forward(self, xp: Xp, x: Array, index: Array) -> Array:
        padded = self.window.padded(xp, x)
        y = xp.zeros(index.shape, x.dtype)
        for k, (_, visited) in enumerate(self.window.offsets(index.shape[2:])):
            y = xp.where(index == k, padded[visited], y)
        return y

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, index = y.inputs
        return MaxPoolGrad(self.window, x.shape)(dy, index), None

    def flops(self, x: TensorType, index: TensorType) -> int:
        return 0


def _average_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, AveragePool)
    around = op.window.pads
    if op.counted and op.counted != around:  # ONNX counts all padding or none
        sides = [0, 0, *(begin for begin, _ in op.counted), 0, 0, *(end for _, end in op.counted)]
        x = g.node("Pad", x, g.constant(sides, "int64"))
        rest = zip(around, op.counted, strict=True)
        around = tuple((begin - first, end - last) for (begin, end), (first, last) in rest)
    flat = [begin for begin, _ in around] + [end for _, end in around]
    all_counted = int(bool(op.counted) and op.counted == around)
    size, strides, gaps = list(op.window.size), list(op.window.strides), list(op.window.dilation)
    more: dict[str, Any] = {} if set(gaps) == {1} else {"dilations": gaps}  # since opset 19
    return g.node(
        "AveragePool", x, count_include_pad=all_counted, kernel_shape=size, strides=strides, pads=flat, **more
    )


@dataclass(frozen=True)
class AveragePool(Op):
    """y[n, c, i…] = mean over the k that lie inside the input of x[n, c, i·stride + k - pad, …].

    Of the padding, the zeros that `counted` says, for both sides of each axis, are counted too.
    """

    window: Window
    counted: tuple[tuple[int, int], ...] = ()
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxExpansion(_average_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        """x: (N, C, …) → (N, C, out…)."""
        return _pooled(self, self.window, x)

    def forward(self, xp: Xp, x: Array) -> Array:
        out = self.window.out(x.shape[2:])
        padded = self.window.padded(xp, x)
        total = xp.zeros((*x.shape[:2], *out), x.dtype)
        for _, visited in self.window.offsets(out):
            total += padded[visited]
        return total / _counts(xp, self.window, self.counted, x)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (AveragePoolGrad(self.window, y.inputs[0].shape, self.counted)(dy),)

    def flops(self, x: TensorType) -> int:
        return self.infer(x).size * prod(self.window.size)


@dataclass(frozen=True)
class AveragePoolGrad(Op):
    """Gradient of `AveragePool` by its input of the given shape: each dy is shared by its window."""

    window: Window
    shape: tuple[int, ...]
    counted: tuple[tuple[int, int], ...] = ()
    traits = Traits(narrowable_outputs=(0,))
    onnx = GRADIENT

    def infer(self, dy: TensorType) -> TensorType:
        return dy.with_shape(*self.shape)

    def forward(self, xp: Xp, dy: Array) -> Array:
        dx = xp.zeros(self.window.padded_shape(self.shape), dy.dtype)
        share = dy / _counts(xp, self.window, self.counted, xp.empty(self.shape, dy.dtype))
        for _, visited in self.window.offsets(dy.shape[2:]):
            dx[visited] += share
        return self.window.unpadded(dx)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (AveragePool(self.window, self.counted)(dy),)

    def flops(self, dy: TensorType) -> int:
        return dy.size * prod(self.window.size)


def _pooled(op: Op, window: Window, x: TensorType) -> TensorType:
    rank = len(window.size) + 2
    op.check(x.rank == rank, f"the input must have {rank} axes", expected="(batch, channels, sizes…)", got=x)
    return x.with_shape(*x.shape[:2], *window.out(x.shape[2:]))


def _counts(xp: Xp, window: Window, counted: tuple[tuple[int, int], ...], x: Array) -> Array:
    """How many places of each window lie inside `x` and the counted padding, broadcasting over the result."""
    out = window.out(x.shape[2:])
    counted = counted or ((0, 0),) * len(window.pads)
    sizes = (size + begin + end for size, (begin, end) in zip(x.shape[2:], counted, strict=True))
    rest = [(before - begin, after - end) for (before, after), (begin, end) in zip(window.pads, counted, strict=True)]
    inside = xp.pad(xp.ones((1, 1, *sizes), x.dtype), ((0, 0), (0, 0), *rest))
    counts = xp.zeros((1, 1, *out), x.dtype)
    for _, visited in window.offsets(out):
        counts += inside[visited]
    return counts


def _places_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, MaxPoolIndices)
    one = op.window
    pads = [side[k] for k in (0, 1) for side in one.pads]
    size, strides, gaps = list(one.size), list(one.strides), list(one.dilation)
    made = g.node("MaxPool", x, outputs=2, kernel_shape=size, strides=strides, pads=pads, dilations=gaps)
    # ONNX counts in the whole tensor: channels and samples before are whole planes.
    return g.node("Mod", f"{made}:1", g.constant(prod(y.inputs[0].shape[2:]), "int64"))


@dataclass(frozen=True)
class MaxPoolIndices(NoGradient):
    """Where in its channel each maximum of `MaxPool` is, counted in reading order as int64; of equal ones the first."""

    window: Window
    onnx = OnnxExpansion(_places_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        """x: (N, C, …) → (N, C, out…)."""
        return MaxPool(self.window).infer(x)[1].with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array) -> Array:
        place = MaxPool(self.window).forward(xp, x)[1].astype("int64")
        number = xp.zeros_like(place)
        count, one = 1, self.window
        for axis in reversed(range(len(one.size))):
            within = place % one.size[axis]
            place = place // one.size[axis]
            shape = [1] * x.ndim
            shape[2 + axis] = -1
            start = xp.arange(number.shape[2 + axis]).reshape(shape) * one.strides[axis] - one.pads[axis][0]
            number += (start + within * one.dilation[axis]) * count
            count *= x.shape[2 + axis]
        return number

    def flops(self, x: TensorType) -> int:
        return MaxPool(self.window).flops(x)

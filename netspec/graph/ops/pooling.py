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
    """y[n, c, i…] = max_k x[n, c, i·stride + k - pad, …], and the k of the maximum.

    Results: the maxima, and the index of each within its window (int32, in C order; of equal maxima the first). The
    gradient reads only the indices, neither x nor y. Padding is never a maximum. NaN makes the maximum NaN.
    """

    window: Window
    traits = Traits(narrowable_outputs=(0,))
    # ONNX's second result, `Indices`, holds indices into the full tensor instead.
    onnx = OnnxMap(
        "MaxPool",
        kernel_shape=ints("window.size"),
        strides=ints("window.strides"),
        pads=pads("window.pads"),
        dilations=ints("window.dilation"),
    )

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        """x: (N, C, …) → twice (N, C, out…)."""
        y = _pooled_type(self, self.window, x)
        return y, y.with_dtype(DType.INT32)

    def forward(self, xp: Xp, x: Array) -> tuple[Array, Array]:
        out = self.window.out(x.shape[2:])
        padded = self.window.padded(xp, x, -inf)
        maximum: Array = None
        index = xp.zeros((*x.shape[:2], *out), "int32")
        for k, (_, region) in enumerate(self.window.offsets(out)):
            candidate = padded[region]
            if maximum is None:
                maximum = candidate.copy()
                continue
            index[candidate > maximum] = k
            xp.maximum(maximum, candidate, out=maximum)
        return maximum, index

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
    """Gradient of `MaxPool` with respect to its input, of `shape`: each dy is added at the index of its maximum."""

    window: Window
    shape: tuple[int, ...]
    traits = Traits(narrowable_outputs=(0,))
    onnx = GRADIENT

    def infer(self, dy: TensorType, index: TensorType) -> TensorType:
        self.check(dy.shape == index.shape, "each gradient needs one index", expected=str(index), got=dy)
        return dy.with_shape(*self.shape)

    def forward(self, xp: Xp, dy: Array, index: Array) -> Array:
        dx = xp.zeros(self.window.padded_shape(self.shape), dy.dtype)
        for k, (_, region) in enumerate(self.window.offsets(dy.shape[2:])):
            dx[region] += xp.where(index == k, dy, dy.dtype.type(0))
        return self.window.unpadded(dx)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return MaxPoolGather(self.window)(dy, y.inputs[1]), None

    def flops(self, dy: TensorType, index: TensorType) -> int:
        return dy.size


@dataclass(frozen=True)
class MaxPoolGather(Op):
    """The elements of x at the indices of the maxima: the gradient of `MaxPoolGrad`."""

    window: Window
    traits = Traits(narrowable_outputs=(0,))
    onnx = GRADIENT

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        y = _pooled_type(self, self.window, x)
        self.check(y.shape == index.shape, "each window needs one index", expected=str(y), got=index)
        return y

    def forward(self, xp: Xp, x: Array, index: Array) -> Array:
        padded = self.window.padded(xp, x)
        y = xp.zeros(index.shape, x.dtype)
        for k, (_, region) in enumerate(self.window.offsets(index.shape[2:])):
            y = xp.where(index == k, padded[region], y)
        return y

    def vjp(self, y: Value, dy: Value) -> Grads:
        x, index = y.inputs
        return MaxPoolGrad(self.window, x.shape)(dy, index), None

    def flops(self, x: TensorType, index: TensorType) -> int:
        return 0


def _average_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, AveragePool)
    pads = op.window.pads
    if op.counted_pads and op.counted_pads != pads:  # ONNX counts all padding or none
        explicit_pads = [0, 0, *(begin for begin, _ in op.counted_pads), 0, 0, *(end for _, end in op.counted_pads)]
        x = g.node("Pad", x, g.constant(explicit_pads, "int64"))
        both_pads = zip(pads, op.counted_pads, strict=True)
        pads = tuple((begin - first, end - last) for (begin, end), (first, last) in both_pads)
    flat = [begin for begin, _ in pads] + [end for _, end in pads]
    all_counted = int(bool(op.counted_pads) and op.counted_pads == pads)
    size, strides, dilations = list(op.window.size), list(op.window.strides), list(op.window.dilation)
    optional: dict[str, Any] = {} if set(dilations) == {1} else {"dilations": dilations}  # since opset 19
    return g.node(
        "AveragePool", x, count_include_pad=all_counted, kernel_shape=size, strides=strides, pads=flat, **optional
    )


@dataclass(frozen=True)
class AveragePool(Op):
    """y[n, c, i…] = mean of x[n, c, i·stride + k - pad, …] over the k inside the input.

    The mean also includes padding: up to `counted_pads` zeros at the beginning and end of each axis.
    """

    window: Window
    counted_pads: tuple[tuple[int, int], ...] = ()
    traits = Traits(narrowable_outputs=(0,))
    onnx = OnnxExpansion(_average_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        """x: (N, C, …) → (N, C, out…)."""
        return _pooled_type(self, self.window, x)

    def forward(self, xp: Xp, x: Array) -> Array:
        out = self.window.out(x.shape[2:])
        padded = self.window.padded(xp, x)
        total = xp.zeros((*x.shape[:2], *out), x.dtype)
        for _, region in self.window.offsets(out):
            total += padded[region]
        return total / _counts(xp, self.window, self.counted_pads, x)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (AveragePoolGrad(self.window, y.inputs[0].shape, self.counted_pads)(dy),)

    def flops(self, x: TensorType) -> int:
        return self.infer(x).size * prod(self.window.size)


@dataclass(frozen=True)
class AveragePoolGrad(Op):
    """Gradient of `AveragePool` with respect to its input, of `shape`: each dy is spread over its window."""

    window: Window
    shape: tuple[int, ...]
    counted_pads: tuple[tuple[int, int], ...] = ()
    traits = Traits(narrowable_outputs=(0,))
    onnx = GRADIENT

    def infer(self, dy: TensorType) -> TensorType:
        return dy.with_shape(*self.shape)

    def forward(self, xp: Xp, dy: Array) -> Array:
        dx = xp.zeros(self.window.padded_shape(self.shape), dy.dtype)
        share = dy / _counts(xp, self.window, self.counted_pads, xp.empty(self.shape, dy.dtype))
        for _, region in self.window.offsets(dy.shape[2:]):
            dx[region] += share
        return self.window.unpadded(dx)

    def vjp(self, y: Value, dy: Value) -> Grads:
        return (AveragePool(self.window, self.counted_pads)(dy),)

    def flops(self, dy: TensorType) -> int:
        return dy.size * prod(self.window.size)


def _pooled_type(op: Op, window: Window, x: TensorType) -> TensorType:
    rank = len(window.size) + 2
    op.check(x.rank == rank, f"the input must have {rank} axes", expected="(batch, channels, sizes…)", got=x)
    return x.with_shape(*x.shape[:2], *window.out(x.shape[2:]))


def _counts(xp: Xp, window: Window, counted_pads: tuple[tuple[int, int], ...], x: Array) -> Array:
    """Number of elements of each window inside `x` and the counted padding; broadcasts over the result."""
    out = window.out(x.shape[2:])
    counted_pads = counted_pads or ((0, 0),) * len(window.pads)
    sizes = (size + begin + end for size, (begin, end) in zip(x.shape[2:], counted_pads, strict=True))
    outer_pads = [
        (before - begin, after - end) for (before, after), (begin, end) in zip(window.pads, counted_pads, strict=True)
    ]
    is_counted = xp.pad(xp.ones((1, 1, *sizes), x.dtype), ((0, 0), (0, 0), *outer_pads))
    counts = xp.zeros((1, 1, *out), x.dtype)
    for _, region in window.offsets(out):
        counts += is_counted[region]
    return counts


def _indices_to_onnx(g: Emitter, y: Value, x: str) -> str:
    op = y.op
    assert isinstance(op, MaxPoolIndices)
    window = op.window
    pads = [side[k] for k in (0, 1) for side in window.pads]
    size, strides, dilations = list(window.size), list(window.strides), list(window.dilation)
    maxima = g.node("MaxPool", x, outputs=2, kernel_shape=size, strides=strides, pads=pads, dilations=dilations)
    # ONNX's indices count from the start of the tensor; modulo the size of a channel, they count from its start.
    return g.node("Mod", f"{maxima}:1", g.constant(prod(y.inputs[0].shape[2:]), "int64"))


@dataclass(frozen=True)
class MaxPoolIndices(NoGradient):
    """Index of each maximum of `MaxPool` in its channel, in C order, as int64; of equal maxima the first."""

    window: Window
    onnx = OnnxExpansion(_indices_to_onnx)

    def infer(self, x: TensorType) -> TensorType:
        """x: (N, C, …) → (N, C, out…)."""
        return MaxPool(self.window).infer(x)[1].with_dtype(DType.INT64)

    def forward(self, xp: Xp, x: Array) -> Array:
        in_window = MaxPool(self.window).forward(xp, x)[1].astype("int64")
        index = xp.zeros_like(in_window)
        stride, window = 1, self.window
        for axis in reversed(range(len(window.size))):
            along_axis = in_window % window.size[axis]
            in_window = in_window // window.size[axis]
            shape = [1] * x.ndim
            shape[2 + axis] = -1
            start = xp.arange(index.shape[2 + axis]).reshape(shape) * window.strides[axis] - window.pads[axis][0]
            index += (start + along_axis * window.dilation[axis]) * stride
            stride *= x.shape[2 + axis]
        return index

    def flops(self, x: TensorType) -> int:
        return MaxPool(self.window).flops(x)

"""Convolutions with the batch innermost, for filter counts that do not fill vectors.

oneDNN fills vectors of 16 with channels: for LeNet's 20 and 50 filters it computes 32 and 64. Here samples fill the
vectors, and nothing is computed in vain. On an AVX-512 CPU, LeNet's second convolution and its gradients reach 115
GFLOP/s per core; oneDNN reaches 65 to 84, and 113 in large matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from netspec.backends.common.loops import element_strides
from netspec.backends.numba import native
from netspec.backends.numba.native import Pointer, Size
from netspec.graph.fused import EpilogueFused, FusedStep
from netspec.graph.kernel import Buffers, Example, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops import elementwise, unary
from netspec.graph.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from netspec.graph.ops.window import Window
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

SAMPLES = 64
"""Samples of a tile: `tiles.LANES · tiles.SIDE_BY_SIDE`."""
ROWS = (6, 5, 4)
"""Filters (or channels) of a tile: with 64 samples each they fill most of 32 registers."""
MAX_SUMS = 25
"""Maximum sums of a tile of the weight gradient, each a register."""
BATCH_LAST = Layout((1, 2, 3, 0))

TILES = "netspec.backends.numba.tiles"
"""The module that the generated code calls."""

FORWARD = """
from netspec.backends.numba.tiles import taps

tile = taps({rows}, {relu})


def body(first, last, x, w, bias, y, blocks, out_h, out_w, channels, xc, xh, xw, yc, yh, yw, wm, wc, bias_step):
    for unit in range(first, last):
        j, rest = unit % out_w, unit // out_w
        i, rest = rest % out_h, rest // out_h
        n, m = rest % blocks * {samples}, rest // blocks * {rows}
        tile(
            x, i * xh + j * xw + n, xc, xh, xw, w, m * wm, wm, wc, {width}, 1, bias, m * bias_step, bias_step,
            y, m * yc + i * yh + j * yw + n, yc, channels, {height}, {width},
        )
"""
INPUT_GRADIENT = """
from netspec.backends.numba.tiles import taps

tile = taps({rows}, False)


def body(first, last, dy, w, zero, dx, blocks, height, width, out_h, out_w, filters, yc, yh, yw, xc, xh, xw, wm, wc):
    for unit in range(first, last):
        j, rest = unit % width, unit // width
        i, rest = rest % height, rest // height
        n, c = rest % blocks * {samples}, rest // blocks * {rows}
        k, l = max(0, i - out_h + 1), max(0, j - out_w + 1)
        tile(
            dy, (i - k) * yh + (j - l) * yw + n, yc, -yh, -yw, w, c * wc + k * {width} + l, wc, wm, {width}, 1,
            zero, 0, 0, dx, c * xc + i * xh + j * xw + n, xc, filters,
            min({height} - 1, i) - k + 1, min({width} - 1, j) - l + 1,
        )
"""
WEIGHT_GRADIENT = """
from netspec.backends.numba.tiles import products

tile = products({rows}, {width})


def body(first, last, dy, x, dw, out_h, row, channels, yc, yh, xc, xh, xw, wm, wc):
    for unit in range(first, last):
        k, rest = unit % {height}, unit // {height}
        c, m = rest % channels, rest // channels * {rows}
        tile(
            dy, m * yc, yc, yh, x, c * xc + k * xh, xw, xh, dw, m * wm + c * wc + k * {width}, wm, out_h, row
        )
"""


def rows_of(count: int) -> int | None:
    """Number of rows of a tile that divides `count`; None if there is none."""
    return next((rows for rows in ROWS if count % rows == 0), None)


def rows_of_products(count: int, columns: int) -> int | None:
    """Number of rows of a weight gradient's tile with `columns` columns; None if none divides `count`."""
    return next((rows for rows in (6, 5, 4, 3, 2) if count % rows == 0 and rows * columns <= MAX_SUMS), None)


@cache
def has_wide_vectors() -> bool:
    """Whether the CPU has 32 registers of 16 float32 values."""
    import llvmlite.binding as llvm

    return bool(llvm.get_host_cpu_features().get("avx512f"))


def narrow_vectors_reason() -> str | None:
    """Return why kernels that need wide vectors cannot run on this CPU; None if they can."""
    return None if has_wide_vectors() else "the CPU has no AVX-512"


class BatchLast(Kernel):
    """Base class."""

    def unavailable_reason(self) -> str | None:
        return narrow_vectors_reason()


_SAMPLE = Conv(Window((3, 3), (1, 1), ((0, 0), (0, 0)), (1, 1)))
_X, _W, _Y = (TensorType(shape, DType.FLOAT32) for shape in ((SAMPLES, 4, 5, 4), (5, 4, 3, 3), (SAMPLES, 5, 3, 2)))
"""A small call that the kernels accept."""


def reject_reason(conv: Conv, x: TensorType, w: TensorType) -> str | None:
    """Return why these kernels cannot run a convolution and its gradients, which share a layout."""
    window = conv.window
    if len(window.size) != 2 or conv.groups != 1:
        return "only for images, without groups"
    if {x.dtype, w.dtype} != {DType.FLOAT32}:
        return f"computes in float32, not {x.dtype}"
    if {*window.strides, *window.dilation} != {1} or any(map(any, window.pads)):
        return "only without strides, dilation and padding"
    if x.shape[0] % SAMPLES:
        return f"the batch size is not a multiple of {SAMPLES}"
    filters, channels = w.shape[:2]
    if filters % 16 == 0:
        return f"{filters} filters fill vectors of 16"
    fits = rows_of(filters) and rows_of_products(filters, window.size[1]) and (channels == 1 or rows_of(channels))
    return narrow_vectors_reason() if fits else f"no tile divides {filters} filters and {channels} channels"


def _compiled(source: str, pointers: int, sizes: int, **numbers: int | bool) -> native.CompiledKernel:
    arguments = (*(Pointer(DType.FLOAT32),) * pointers, *(Size(),) * sizes)
    return native.of_source(source.format(samples=SAMPLES, **numbers), arguments, modules=(TILES,))


def _zero() -> Any:
    return np.zeros(1, np.float32)


@kernel(Conv, EpilogueFused, backend="numba", rank=20)
class ConvolutionBatchLastKernel(BatchLast):
    """y = x ∗ w, + bias, ReLU."""

    def samples(self) -> Sequence[Example]:
        bias = FusedStep(elementwise.Add(), (0, 1))
        with_bias = EpilogueFused(_SAMPLE, 2, (bias, FusedStep(unary.Relu(), (2,))))
        return (_SAMPLE, (_X, _W)), (with_bias, (_X, _W, TensorType((5, 1, 1), DType.FLOAT32)))

    def reject_reason(self, op: Any, *types: TensorType) -> str | None:
        if isinstance(op, Conv):
            return reject_reason(op, *types)
        if not isinstance(op.anchor, Conv):
            return f"the anchor is {op.anchor.name}"
        if not _is_bias(op, types):
            return "only a bias and ReLU can be fused"
        return reject_reason(op.anchor, *types[:2])

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature((BATCH_LAST, PLAIN, *(PLAIN,) * (len(offered) - 2)), (BATCH_LAST,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        x, w, *extra = buffers.inputs
        (y,) = buffers.outputs
        assert y is not None
        (batch, channels, _, _), (filters, _, height, width), (_, _, out_h, out_w) = x.shape, w.shape, y.shape
        bias, rows = (extra[0] if extra else _zero()), rows_of(filters)
        assert rows
        relu = isinstance(node.op, EpilogueFused) and len(node.op.body) == 2
        code = _compiled(FORWARD, 4, 13, rows=rows, relu=relu, height=height, width=width)
        blocks = batch // SAMPLES
        (_, *x_steps), (_, *y_steps), (*w_steps, _, _) = map(element_strides, (x, y, w))
        sizes = blocks, out_h, out_w, channels, *x_steps, *y_steps, *w_steps, int(bool(extra))
        units = filters // rows * blocks * out_h * out_w
        return code.bind(units, y.size * w.size // filters, x, w, bias, y, *sizes)


def _is_bias(op: EpilogueFused, types: Sequence[TensorType]) -> bool:
    """Whether the epilogue is one value per filter, possibly followed by a ReLU."""
    kinds = [type(step.op) for step in op.body]
    if kinds not in ([elementwise.Add], [elementwise.Add, unary.Relu]) or len(types) != 3:
        return False
    filters, shape = types[1].shape[0], types[2].shape
    along = (1,) * (4 - len(shape)) + shape == (1, filters, 1, 1)
    return along and sorted(op.body[0].operands) == [0, 1] and op.body[-1].operands in ((0, 1), (1, 0), (2,))


@kernel(ConvInputGrad, backend="numba", rank=20)
class ConvolutionInputGradientBatchLastKernel(BatchLast):
    """dx from dy and w."""

    def samples(self) -> Sequence[Example]:
        return ((ConvInputGrad(_SAMPLE, _X), (_Y, _W)),)

    def reject_reason(self, op: ConvInputGrad, *types: TensorType) -> str | None:
        _, w = types
        return "one channel" if w.shape[1] == 1 else reject_reason(op.conv, op.x.with_dtype(types[0].dtype), w)

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature((BATCH_LAST, PLAIN), (BATCH_LAST,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (dy, w), (dx,) = buffers.inputs, buffers.outputs
        assert dx is not None
        (batch, channels, in_h, in_w), (filters, _, height, width), (_, _, out_h, out_w) = dx.shape, w.shape, dy.shape
        rows, blocks = rows_of(channels), batch // SAMPLES
        assert rows
        code = _compiled(INPUT_GRADIENT, 4, 14, rows=rows, height=height, width=width)
        (_, *y_steps), (_, *x_steps), (*w_steps, _, _) = map(element_strides, (dy, dx, w))
        sizes = blocks, in_h, in_w, out_h, out_w, filters, *y_steps, *x_steps, *w_steps
        units = channels // rows * blocks * in_h * in_w
        return code.bind(units, dy.size * w.size // filters, dy, w, _zero(), dx, *sizes)


@kernel(ConvWeightGrad, backend="numba", rank=20)
class ConvolutionWeightGradientBatchLastKernel(BatchLast):
    """dw from dy and x."""

    def samples(self) -> Sequence[Example]:
        return ((ConvWeightGrad(_SAMPLE, _W), (_Y, _X)),)

    def reject_reason(self, op: ConvWeightGrad, *types: TensorType) -> str | None:
        dy, x = types
        return reject_reason(op.conv, x, TensorType((dy.shape[1], x.shape[1], *op.conv.window.size), dy.dtype))

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        return LayoutSignature((BATCH_LAST, BATCH_LAST), (PLAIN,))

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (dy, x), (dw,) = buffers.inputs, buffers.outputs
        assert dw is not None
        (batch, channels, _, _), (filters, _, height, width), (_, _, out_h, out_w) = x.shape, dw.shape, dy.shape
        rows = rows_of_products(filters, width)
        assert rows
        code = _compiled(WEIGHT_GRADIENT, 3, 10, rows=rows, height=height, width=width)
        (_, *y_steps, _), (_, *x_steps), (*w_steps, _, _) = map(element_strides, (dy, x, dw))
        sizes = out_h, out_w * batch, channels, *y_steps, *x_steps, *w_steps
        units = filters // rows * channels * height
        return code.bind(units, dy.size * dw.size // filters, dy, x, dw, *sizes)

"""Pooling in one or two spatial axes.

The innermost loop runs over the channels: it is vectorized where they lie next to each other. Each thread has rows of
the output, or for gradients whole images, to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.loops import like
from netspec.backends.numba.native import Argument, Constant, Literal, Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node
from netspec.layers.pooling import AveragePool, AveragePoolGrad, MaxPool, MaxPoolGather, MaxPoolGrad
from netspec.layers.window import Window

Pixels = Any
"""A pointer to the first element of images."""

MOST_LANES = 16
"""float32 numbers in the widest vector registers."""
UNROLLED = 16
"""Windows up to so many places are compared in registers."""


def max_pool(
    first: int, last: int, x: Pixels, y: Pixels, index: Pixels, lowest: float, keep: int, unrolled: int,
    lanes: int,
    xc: int, yc: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int,
    pad_h: int, pad_w: int, channels: int, height: int, width: int, out_h: int, out_w: int,
    xn: int, xh: int, xw: int, yn: int, yh: int, yw: int,
) -> None:  # fmt: skip
    """Rows of output; `index` gets the places of the maxima if `keep`. Ties go to the first place."""
    for row in range(first, last):
        n, i = row // out_h, row % out_h
        top = i * stride_h - pad_h
        for j in range(out_w):
            left = j * stride_w - pad_w
            a = n * xn + top * xh + left * xw
            b = n * yn + i * yh + j * yw
            bottom, right = top + (kernel_h - 1) * dilation_h, left + (kernel_w - 1) * dilation_w
            if unrolled and top >= 0 and left >= 0 and bottom < height and right < width:
                for block in range(0, channels, lanes):
                    start = min(block, channels - lanes)  # the last block overlaps: no rest is left to do one by one
                    for lane in range(lanes):
                        c = start + lane
                        best, place = x[a + c * xc], 0
                        for k in range(kernel_h):
                            for l in range(kernel_w):
                                v = x[a + k * dilation_h * xh + l * dilation_w * xw + c * xc]
                                place = k * kernel_w + l if v > best else place
                                best = v if v > best or v != v else best  # noqa: PLR0124  a NaN wins
                        y[b + c * yc] = best
                        if keep:
                            index[b + c * yc] = place
                continue
            for c in range(channels):
                y[b + c * yc] = lowest
                if keep:
                    index[b + c * yc] = 0
            for k in range(kernel_h):
                for l in range(kernel_w):
                    h, w = top + k * dilation_h, left + l * dilation_w
                    if h < 0 or w < 0 or h >= height or w >= width:
                        continue
                    place = k * kernel_w + l
                    for c in range(channels):
                        v, best = x[n * xn + h * xh + w * xw + c * xc], y[b + c * yc]
                        if keep:
                            index[b + c * yc] = place if v > best else index[b + c * yc]
                        y[b + c * yc] = v if v > best or v != v else best  # noqa: PLR0124  NaN alone is not itself


def max_pool_grad(
    first: int, last: int, dy: Pixels, index: Pixels, dx: Pixels, zero: float, lanes: int,
    dxc: int, dyc: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int,
    pad_h: int, pad_w: int, channels: int, height: int, width: int, out_h: int, out_w: int,
    dxn: int, dxh: int, dxw: int, dyn: int, dyh: int, dyw: int,
) -> None:  # fmt: skip
    """Whole images."""
    for n in range(first, last):
        for h in range(height):
            for w in range(width):
                for c in range(channels):
                    dx[n * dxn + h * dxh + w * dxw + c * dxc] = zero
        for i in range(out_h):
            for j in range(out_w):
                b = n * dyn + i * dyh + j * dyw
                for k in range(kernel_h):
                    for l in range(kernel_w):
                        h, w = i * stride_h - pad_h + k * dilation_h, j * stride_w - pad_w + l * dilation_w
                        if h < 0 or w < 0 or h >= height or w >= width:
                            continue
                        a, place = n * dxn + h * dxh + w * dxw, k * kernel_w + l
                        for c in range(channels):
                            dx[a + c * dxc] += dy[b + c * dyc] if index[b + c * dyc] == place else zero


def max_pool_grad_apart(
    first: int, last: int, dy: Pixels, index: Pixels, dx: Pixels, zero: float, lanes: int,
    dxc: int, dyc: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int,
    pad_h: int, pad_w: int, channels: int, height: int, width: int, out_h: int, out_w: int,
    dxn: int, dxh: int, dxw: int, dyn: int, dyh: int, dyw: int,
) -> None:  # fmt: skip
    """As `max_pool_grad` where each place of the input is in exactly one window: nothing adds up."""
    for n in range(first, last):
        for i in range(out_h):
            for j in range(out_w):
                a, b = n * dxn + i * kernel_h * dxh + j * kernel_w * dxw, n * dyn + i * dyh + j * dyw
                for block in range(0, channels, lanes):
                    start = min(block, channels - lanes)
                    for lane in range(lanes):
                        c = start + lane
                        flow, place = dy[b + c * dyc], index[b + c * dyc]
                        for k in range(kernel_h):
                            for l in range(kernel_w):
                                to = a + k * dxh + l * dxw + c * dxc
                                dx[to] = flow if place == k * kernel_w + l else zero


def max_pool_gather(
    first: int, last: int, x: Pixels, index: Pixels, y: Pixels, zero: float,
    xc: int, yc: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int,
    pad_h: int, pad_w: int, channels: int, height: int, width: int, out_h: int, out_w: int,
    xn: int, xh: int, xw: int, yn: int, yh: int, yw: int,
) -> None:  # fmt: skip
    """Rows of output."""
    for row in range(first, last):
        n, i = row // out_h, row % out_h
        for j in range(out_w):
            b = n * yn + i * yh + j * yw
            for c in range(channels):
                place = index[b + c * yc]
                h = i * stride_h - pad_h + place // kernel_w * dilation_h
                w = j * stride_w - pad_w + place % kernel_w * dilation_w
                inside = h >= 0 and w >= 0 and h < height and w < width
                y[b + c * yc] = x[n * xn + h * xh + w * xw + c * xc] if inside else zero


def average_pool(
    first: int, last: int, x: Pixels, y: Pixels, zero: float, one: float,
    xc: int, yc: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int,
    pad_h: int, pad_w: int, channels: int, height: int, width: int, out_h: int, out_w: int,
    xn: int, xh: int, xw: int, yn: int, yh: int, yw: int,
) -> None:  # fmt: skip
    """Rows of output. Padding is not counted."""
    for row in range(first, last):
        n, i = row // out_h, row % out_h
        for j in range(out_w):
            b = n * yn + i * yh + j * yw
            for c in range(channels):
                y[b + c * yc] = zero
            count = zero
            for k in range(kernel_h):
                for l in range(kernel_w):
                    h, w = i * stride_h - pad_h + k * dilation_h, j * stride_w - pad_w + l * dilation_w
                    if h < 0 or w < 0 or h >= height or w >= width:
                        continue
                    count += one
                    a = n * xn + h * xh + w * xw
                    for c in range(channels):
                        y[b + c * yc] += x[a + c * xc]
            for c in range(channels):
                y[b + c * yc] /= count


def average_pool_grad(
    first: int, last: int, dy: Pixels, dx: Pixels, zero: float, one: float,
    dxc: int, dyc: int, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, dilation_h: int, dilation_w: int,
    pad_h: int, pad_w: int, channels: int, height: int, width: int, out_h: int, out_w: int,
    dxn: int, dxh: int, dxw: int, dyn: int, dyh: int, dyw: int,
) -> None:  # fmt: skip
    """Whole images."""
    for n in range(first, last):
        for h in range(height):
            for w in range(width):
                for c in range(channels):
                    dx[n * dxn + h * dxh + w * dxw + c * dxc] = zero
        for i in range(out_h):
            for j in range(out_w):
                top, left = i * stride_h - pad_h, j * stride_w - pad_w
                count = zero
                for k in range(kernel_h):
                    for l in range(kernel_w):
                        h, w = top + k * dilation_h, left + l * dilation_w
                        if h >= 0 and w >= 0 and h < height and w < width:
                            count += one
                b = n * dyn + i * dyh + j * dyw
                for k in range(kernel_h):
                    for l in range(kernel_w):
                        h, w = top + k * dilation_h, left + l * dilation_w
                        if h < 0 or w < 0 or h >= height or w >= width:
                            continue
                        a = n * dxn + h * dxh + w * dxw
                        for c in range(channels):
                            dx[a + c * dxc] += dy[b + c * dyc] / count


class Pooling(Kernel):
    """Base of the kernels: operands and results lie as the first operand does, plain or channels-last."""

    def why_not(self, op: Any, *types: TensorType) -> str | None:
        return None if len(op.window.size) in (1, 2) else f"{len(op.window.size)} spatial axes"

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(len(node.inputs[0].shape))
        chosen = last if given[0] == last else PLAIN
        return Signature((chosen,) * len(given), (chosen,) * len(node.outputs))


def bound(
    body: Callable[..., None], arrays: Sequence[tuple[Any, DType]], fixed: Sequence[Argument], large: Any, small: Any,
    window: Window, per_image: bool,
) -> Thunk:  # fmt: skip
    """A call of a pooling body; `large` is an array over the input's places, `small` one over the windows."""
    (n, channels, height, width), large_steps = _image(large)
    (_, _, out_h, out_w), small_steps = _image(small)
    row, begin = ((1,), (0,)) if len(window.size) == 1 else ((), ())
    geometry = [*row, *window.size], [*row, *window.strides], [*row, *window.dilation]
    literals = [Literal(number) for pair in geometry for number in pair]
    pads = [*begin, *(first for first, _ in window.pads)]
    steps = [large_steps[1], small_steps[1]]  # of the channels: the innermost loop
    arguments = (
        *(Pointer(dtype) for _, dtype in arrays), *fixed,
        *(Literal(1) if step == 1 else Size() for step in steps), *literals, *(Size(),) * 13,
    )  # fmt: skip
    sizes = [*pads, channels, height, width, out_h, out_w]
    others = [*large_steps[:1], *large_steps[2:], *small_steps[:1], *small_steps[2:]]
    values = [*(array for array, _ in arrays), *(step for step in steps if step != 1), *sizes, *others]
    work = max(n * channels * out_h * out_w * prod(window.size), large.size)
    return native.of_function(body, arguments).bind(n if per_image else n * out_h, work, *values)


def _image(array: Any) -> tuple[list[int], list[int]]:
    """Sizes and steps along (N, C, H, W); H is 1 where there is one spatial axis."""
    sizes, steps = list(array.shape), [step // array.itemsize for step in array.strides]
    if len(sizes) == 3:
        sizes.insert(2, 1)
        steps.insert(2, 0)
    return sizes, steps


def _window(node: Node) -> Window:
    window: Window = node.op.window  # type: ignore[attr-defined]  # all of these ops have one
    return window


def _lanes(array: Any) -> int:
    """How many channels are done at a time: a vector register full, or as many as there are."""
    channels = int(array.shape[1])
    return min(MOST_LANES, 1 << (channels.bit_length() - 1))


def _is_apart(window: Window, spatial: Sequence[int], out: Sequence[int]) -> bool:
    """Whether the windows, of few places each, cover the input and nothing else, without overlap."""
    tiles = all(size == stride * count for size, stride, count in zip(spatial, window.strides, out, strict=True))
    few = prod(window.size) <= UNROLLED
    return (
        few
        and tiles
        and window.size == window.strides
        and not any(map(any, window.pads))
        and set(window.dilation) <= {1}
    )


@kernel(MaxPool, backend="numba", rank=5)
class MaxPoolKernel(Pooling):
    """Maxima and their places."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y, index), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        window = _window(node)
        if y is None:  # the places alone are wanted: nobody does, so it is not in the memory plan
            y = like(index, dtype)
        fixed = (
            Constant(-inf, dtype),
            Literal(int(index is not None)),
            Literal(int(prod(window.size) <= UNROLLED)),
            Literal(_lanes(x)),
        )
        return bound(max_pool, [(x, dtype), (y, dtype), (index, DType.INT32)], fixed, x, y, window, False)


@kernel(MaxPoolGrad, backend="numba", rank=5)
class MaxPoolGradKernel(Pooling):
    """Gradients sent to the places that won."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (dy, index), (dx,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        window = _window(node)
        assert dx is not None
        body = max_pool_grad_apart if _is_apart(window, dx.shape[2:], dy.shape[2:]) else max_pool_grad
        fixed = Constant(0.0, dtype), Literal(_lanes(dx))
        arrays = [(dy, dtype), (index, DType.INT32), (dx, dtype)]
        return bound(body, arrays, fixed, dx, dy, window, True)


@kernel(MaxPoolGather, backend="numba", rank=5)
class MaxPoolGatherKernel(Pooling):
    """Elements at the places that won."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, index), (y,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        arrays = [(x, dtype), (index, DType.INT32), (y, dtype)]
        return bound(max_pool_gather, arrays, [Constant(0.0, dtype)], x, y, _window(node), False)


@kernel(AveragePool, backend="numba", rank=5)
class AveragePoolKernel(Pooling):
    """Means of windows."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        fixed = Constant(0.0, dtype), Constant(1.0, dtype)
        return bound(average_pool, [(x, dtype), (y, dtype)], fixed, x, y, _window(node), False)


@kernel(AveragePoolGrad, backend="numba", rank=5)
class AveragePoolGradKernel(Pooling):
    """Gradients shared out over windows."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (dy,), (dx,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        fixed = Constant(0.0, dtype), Constant(1.0, dtype)
        return bound(average_pool_grad, [(dy, dtype), (dx, dtype)], fixed, dx, dy, _window(node), True)

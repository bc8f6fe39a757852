"""Local response normalization: the window slides over a pixel's channels in the L1 cache.

The gradient recomputes the scales: this is faster than storing and reloading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.native import (
    Argument,
    CompiledFunction,
    ConstArg,
    Literal,
    Number,
    Size,
    pointer_to,
)
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, LayoutSignature
from netspec.graph.ops.lrn import LRN, LRNBase, LRNGrad
from netspec.graph.value import Node

PIECES = 64
"""Pieces of the pixels; each has scratch memory for one pixel."""
FORWARD_WORK, BACKWARD_WORK = 4, 8
"""Loads and stores that take as long as the work on an element."""


def normalize(
    first: int, last: int, x: Any, y: Any, squares: Any, exp: Any, log: Any, sqrt: Any, zero: float, one: float,
    before: int, after: int, rooted: int, xc: int, channels: int, piece: int, pixels: int, inner: int, x0: int, x1: int,
    share: float, bias: float, exponent: float,
) -> None:  # fmt: skip
    """Pieces of the pixels; `rooted` if the exponent is -¾, which takes two square roots."""
    span = channels + before + after
    for unit in range(first, last):
        q = unit * span
        for c in range(span):
            squares[q + c] = zero
        for pixel in range(unit * piece, min((unit + 1) * piece, pixels)):
            a = pixel // inner * x0 + pixel % inner * x1
            for c in range(channels):
                squares[q + before + c] = x[a + c * xc] * x[a + c * xc]
            for c in range(channels):
                total = squares[q + c]
                for k in range(1, before + after + 1):
                    total += squares[q + c + k]
                scale = bias + share * total
                if rooted:
                    root = one / sqrt(scale)
                    y[a + c * xc] = x[a + c * xc] * (root * sqrt(root))
                else:
                    y[a + c * xc] = x[a + c * xc] * exp(exponent * log(scale))


def gradient(
    first: int, last: int, x: Any, dy: Any, dx: Any, squares: Any, flows: Any, exp: Any, log: Any, sqrt: Any,
    zero: float, one: float, before: int, after: int, rooted: int, xc: int, channels: int, piece: int, pixels: int,
    inner: int, x0: int, x1: int, share: float, bias: float, exponent: float, factor: float,
) -> None:  # fmt: skip
    """Pieces of the pixels; `flows` holds dy · x · s^(-β-1) of one pixel, between zeros."""
    span = channels + before + after
    for unit in range(first, last):
        q = unit * span
        for c in range(span):
            squares[q + c] = zero
            flows[q + c] = zero
        for pixel in range(unit * piece, min((unit + 1) * piece, pixels)):
            a = pixel // inner * x0 + pixel % inner * x1
            for c in range(channels):
                squares[q + before + c] = x[a + c * xc] * x[a + c * xc]
            for c in range(channels):
                total = squares[q + c]
                for k in range(1, before + after + 1):
                    total += squares[q + c + k]
                scale = bias + share * total
                if rooted:
                    root = one / sqrt(scale)
                    direct = dy[a + c * xc] * (root * sqrt(root))
                    flows[q + after + c] = direct * x[a + c * xc] * (root * root)
                else:
                    direct = dy[a + c * xc] * exp(exponent * log(scale))
                    flows[q + after + c] = direct * x[a + c * xc] / scale
                dx[a + c * xc] = direct
            for c in range(channels):
                total = flows[q + c]
                for k in range(1, before + after + 1):
                    total += flows[q + c + k]
                dx[a + c * xc] -= factor * x[a + c * xc] * total


class CrossChannelKernel(Kernel):
    """Base class: operands and result have the same layout, plain or channels-last."""

    low_precision = LowPrecision.ALL
    scratch: int
    """Number of arrays of a pixel's channels in scratch memory."""

    def layouts(self, node: Node, offered: Sequence[Layout]) -> LayoutSignature:
        last = Layout.channels_last(len(node.inputs[0].shape))
        chosen = last if last in offered else PLAIN
        return LayoutSignature((chosen,) * len(offered), (chosen,))

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        assert isinstance(node.op, LRNBase)
        kind = node.inputs[0].type
        pieces, _ = _cut(kind.size // kind.shape[1])
        return self.scratch * align_up(pieces * (kind.shape[1] + node.op.size - 1) * kind.dtype.itemsize)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, kind, x = node.op, node.inputs[0].type, buffers.inputs[0]
        assert isinstance(op, LRNBase)
        assert buffers.workspace is not None
        size = len(buffers.workspace) // self.scratch
        scratch = [buffers.workspace[k * size : (k + 1) * size].view(str(kind.dtype)) for k in range(self.scratch)]
        pixels, channels, step = kind.size // kind.shape[1], kind.shape[1], x.strides[1] // x.itemsize
        pieces, piece = _cut(pixels)
        # the pixels of one plain image are contiguous; in channels-last order, the pixels of all images are
        inner = prod(kind.shape[2:])
        image, pixel = x.strides[0] // x.itemsize, 1 if step != 1 else channels
        arrays = [*buffers.inputs, *buffers.outputs, *scratch]
        factors = [2 * op.share * op.beta] if isinstance(op, LRNGrad) else []
        dtype = kind.dtype
        kinds: tuple[Argument, ...] = (
            *(pointer_to(array, dtype) for array in arrays),
            *(CompiledFunction(name, dtype) for name in ("exp", "log", "sqrt")),
            ConstArg(0.0, dtype), ConstArg(1.0, dtype), Literal(op.before), Literal(op.after),
            Literal(int(op.beta == 0.75)), Literal(1) if step == 1 else Size(), *(Size(),) * 6,
            *(Number(dtype),) * (3 + len(factors)),
        )  # fmt: skip
        body, work = (gradient, BACKWARD_WORK) if factors else (normalize, FORWARD_WORK)
        return native.of_function(body, kinds).bind(
            pieces, work * kind.size, *arrays, *([] if step == 1 else [step]), channels, piece, pixels, inner, image,
            pixel, op.share, op.bias, -op.beta, *factors,
        )  # fmt: skip


def _cut(pixels: int) -> tuple[int, int]:
    """Number of pieces, and pixels of a piece."""
    piece = -(-pixels // PIECES)
    return -(-pixels // piece), piece


@kernel(LRN, backend="numba", rank=5)
class LRNKernel(CrossChannelKernel):
    """Forward."""

    scratch = 1


@kernel(LRNGrad, backend="numba", rank=5)
class LRNGradKernel(CrossChannelKernel):
    """Gradient. Intermediate results are read again, and so must not be rounded."""

    low_precision = LowPrecision.OPERANDS
    scratch = 2

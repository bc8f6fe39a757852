"""Local response normalization across channels: the window slides over a pixel's channels in the fastest cache.

The gradient computes the forward op's scales anew: that takes less time than to write them down and read them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.native import Argument, Constant, Function, Literal, Number, Size, pointer_to
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.plan import aligned
from netspec.graph.value import Node
from netspec.layers.local_response import LRN, AcrossChannels, LRNGrad

PIECES = 64
"""Pieces that the pixels are cut into; each has scratch memory for one pixel."""
FORWARD_WORK, BACKWARD_WORK = 4, 8
"""An element takes about as long as so many loads and stores."""


def normalize(
    first: int, last: int, x: Any, y: Any, squares: Any, exp: Any, log: Any, sqrt: Any, zero: float, one: float,
    reach: int, rooted: int, xc: int, channels: int, piece: int, pixels: int, inner: int, x0: int, x1: int,
    share: float, bias: float, exponent: float,
) -> None:  # fmt: skip
    """Pieces of the pixels; `rooted` where the exponent is -¾, which takes two roots."""
    span = channels + 2 * reach
    for unit in range(first, last):
        q = unit * span
        for c in range(span):
            squares[q + c] = zero
        for pixel in range(unit * piece, min((unit + 1) * piece, pixels)):
            a = pixel // inner * x0 + pixel % inner * x1
            for c in range(channels):
                squares[q + reach + c] = x[a + c * xc] * x[a + c * xc]
            for c in range(channels):
                total = squares[q + c]
                for k in range(1, 2 * reach + 1):
                    total += squares[q + c + k]
                scale = bias + share * total
                if rooted:
                    root = one / sqrt(scale)
                    y[a + c * xc] = x[a + c * xc] * (root * sqrt(root))
                else:
                    y[a + c * xc] = x[a + c * xc] * exp(exponent * log(scale))


def gradient(
    first: int, last: int, x: Any, dy: Any, dx: Any, squares: Any, flows: Any, exp: Any, log: Any, sqrt: Any,
    zero: float, one: float, reach: int, rooted: int, xc: int, channels: int, piece: int, pixels: int, inner: int,
    x0: int, x1: int, share: float, bias: float, exponent: float, factor: float,
) -> None:  # fmt: skip
    """Pieces of the pixels; `flows` takes dy · x · s^(-β-1) of one pixel, between zeros."""
    span = channels + 2 * reach
    for unit in range(first, last):
        q = unit * span
        for c in range(span):
            squares[q + c] = zero
            flows[q + c] = zero
        for pixel in range(unit * piece, min((unit + 1) * piece, pixels)):
            a = pixel // inner * x0 + pixel % inner * x1
            for c in range(channels):
                squares[q + reach + c] = x[a + c * xc] * x[a + c * xc]
            for c in range(channels):
                total = squares[q + c]
                for k in range(1, 2 * reach + 1):
                    total += squares[q + c + k]
                scale = bias + share * total
                if rooted:
                    root = one / sqrt(scale)
                    direct = dy[a + c * xc] * (root * sqrt(root))
                    flows[q + reach + c] = direct * x[a + c * xc] * (root * root)
                else:
                    direct = dy[a + c * xc] * exp(exponent * log(scale))
                    flows[q + reach + c] = direct * x[a + c * xc] / scale
                dx[a + c * xc] = direct
            for c in range(channels):
                total = flows[q + c]
                for k in range(1, 2 * reach + 1):
                    total += flows[q + c + k]
                dx[a + c * xc] -= factor * x[a + c * xc] * total


class Neighbours(Kernel):
    """Base of both: operands and result lie alike, plain or channels-last."""

    scratch: int
    """How many arrays of a pixel's channels a piece needs."""

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        last = Layout.channels_last(len(node.inputs[0].shape))
        chosen = last if last in given else PLAIN
        return Signature((chosen,) * len(given), (chosen,))

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return wanted

    def workspace(self, node: Node, layouts: Signature) -> int:
        assert isinstance(node.op, AcrossChannels)
        kind = node.inputs[0].type
        pieces, _ = _cut(kind.size // kind.shape[1])
        return self.scratch * aligned(pieces * (kind.shape[1] + 2 * node.op.reach) * kind.dtype.itemsize)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, kind, x = node.op, node.inputs[0].type, buffers.inputs[0]
        assert isinstance(op, AcrossChannels)
        assert buffers.workspace is not None
        size = len(buffers.workspace) // self.scratch
        scratch = [buffers.workspace[k * size : (k + 1) * size].view(str(kind.dtype)) for k in range(self.scratch)]
        pixels, channels, step = kind.size // kind.shape[1], kind.shape[1], x.strides[1] // x.itemsize
        pieces, piece = _cut(pixels)
        # A plain image's pixels lie side by side; in channels-last order those of all images do.
        inner = prod(kind.shape[2:])
        image, pixel = x.strides[0] // x.itemsize, 1 if step != 1 else channels
        arrays = [*buffers.inputs, *buffers.outputs, *scratch]
        factors = [2 * op.share * op.beta] if isinstance(op, LRNGrad) else []
        dtype = kind.dtype
        kinds: tuple[Argument, ...] = (
            *(pointer_to(one, dtype) for one in arrays), *(Function(name, dtype) for name in ("exp", "log", "sqrt")),
            Constant(0.0, dtype), Constant(1.0, dtype), Literal(op.reach), Literal(int(op.beta == 0.75)),
            Literal(1) if step == 1 else Size(), *(Size(),) * 6, *(Number(dtype),) * (3 + len(factors)),
        )  # fmt: skip
        body, work = (gradient, BACKWARD_WORK) if factors else (normalize, FORWARD_WORK)
        return native.of_function(body, kinds).bind(
            pieces, work * kind.size, *arrays, *([] if step == 1 else [step]), channels, piece, pixels, inner, image,
            pixel, op.share, op.bias, -op.beta, *factors,
        )  # fmt: skip


def _cut(pixels: int) -> tuple[int, int]:
    """Into how many pieces the pixels are cut, and how many a piece has."""
    piece = -(-pixels // PIECES)
    return -(-pixels // piece), piece


@kernel(LRN, backend="numba", rank=5)
class LRNKernel(Neighbours):
    """Pixels one after another."""

    scratch = 1


@kernel(LRNGrad, backend="numba", rank=5)
class LRNGradKernel(Neighbours):
    """Pixels one after another; what is written first is read again, and must not be rounded."""

    scratch = 2

    def narrowed(self, node: Node, wanted: Signature) -> Signature:
        return Signature(wanted.inputs, tuple(one.as_stored(None) for one in wanted.outputs))

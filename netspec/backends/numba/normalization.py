"""Batch normalization: training, gradient, inference.

Statistics are taken of pieces that do not depend on the number of threads and put together in their order: each piece
has its own mean first, then the squares around it, while the piece is still in the cache. T. F. Chan, G. H. Golub,
R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.numba import native
from netspec.backends.numba.elementwise import bound
from netspec.backends.numba.moves import in_turn
from netspec.backends.numba.native import Constant, Function, Number, Pointer, Size
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.layout import PLAIN, Layout, Signature
from netspec.graph.ops.normalization import (
    BatchNormalization,
    BatchNormalizationGrad,
    BatchNormalizationTraining,
    OverChannels,
)
from netspec.graph.plan import aligned
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

PIECE = 32768
"""Elements of a piece, about: they stay in the cache between two readings."""
PIECES = 64
VECTORS = 8
"""Room for so many per-channel vectors beside the pieces' results."""


def moments_of_planes(
    first: int, last: int, x: Any, means: Any, squares: Any, zero: float, rows: int, channels: int, inner: int,
    piece: int, part: float,
) -> None:  # fmt: skip
    """Of each (row, channel), whose `inner` elements lie side by side: the mean, and Σ (x - mean)²."""
    for unit in range(first, last):
        total = zero
        for i in range(inner):
            total += x[unit * inner + i]
        mean, spread = total / part, zero
        for i in range(inner):
            centered = x[unit * inner + i] - mean
            spread += centered * centered
        means[unit] = mean
        squares[unit] = spread


def moments_of_rows(
    first: int, last: int, x: Any, means: Any, squares: Any, zero: float, rows: int, channels: int, inner: int,
    piece: int, part: float,
) -> None:  # fmt: skip
    """Of each piece of rows, whose channels lie side by side: the means, and Σ (x - mean)²."""
    for unit in range(first, last):
        start, stop, to = unit * piece, min((unit + 1) * piece, rows), unit * channels
        count = part if stop - start == piece else part * (stop - start) / piece
        for c in range(channels):
            means[to + c] = zero
            squares[to + c] = zero
        even = stop - (stop - start) % 4  # four rows at a time: sums go to memory a quarter as often
        for r in range(start, even, 4):
            a = r * channels
            b = a + 2 * channels
            for c in range(channels):
                means[to + c] += (x[a + c] + x[a + channels + c]) + (x[b + c] + x[b + channels + c])
        for r in range(even, stop):
            for c in range(channels):
                means[to + c] += x[r * channels + c]
        for c in range(channels):
            means[to + c] /= count
        for r in range(start, even, 4):
            a = r * channels
            b = a + 2 * channels
            for c in range(channels):
                mean = means[to + c]
                c0, c1, c2, c3 = (
                    x[a + c] - mean,
                    x[a + channels + c] - mean,
                    x[b + c] - mean,
                    x[b + channels + c] - mean,
                )
                squares[to + c] += (c0 * c0 + c1 * c1) + (c2 * c2 + c3 * c3)
        for r in range(even, stop):
            for c in range(channels):
                centered = x[r * channels + c] - means[to + c]
                squares[to + c] += centered * centered


def moments(
    first: int, last: int, means: Any, squares: Any, gamma: Any, mean: Any, variance: Any, scale: Any, sqrt: Any,
    number: Any, zero: float, epsilon: float, parts: int, channels: int, length: int, piece: int,
) -> None:  # fmt: skip
    """Of each channel: mean and variance of all pieces together, and gamma / √(variance + ε)."""
    for c in range(first, last):
        total, middle, spread = zero, zero, zero
        for p in range(parts):
            count = number(min(piece, length - p * piece))
            delta = means[p * channels + c] - middle
            share = count / (total + count)
            middle += delta * share
            spread += squares[p * channels + c] + delta * delta * total * share
            total += count
        mean[c] = middle
        variance[c] = spread / total
        scale[c] = gamma[c] / sqrt(spread / total + epsilon)


def flows_of_planes(
    first: int, last: int, x: Any, dy: Any, mean: Any, offsets: Any, slopes: Any, zero: float, rows: int,
    channels: int, inner: int, piece: int,
) -> None:  # fmt: skip
    """Of each (row, channel): Σ dy and Σ dy · (x - mean)."""
    for unit in range(first, last):
        offset, slope, middle = zero, zero, mean[unit % channels]
        for i in range(unit * inner, (unit + 1) * inner):
            offset += dy[i]
            slope += dy[i] * (x[i] - middle)
        offsets[unit] = offset
        slopes[unit] = slope


def flows_of_rows(
    first: int, last: int, x: Any, dy: Any, mean: Any, offsets: Any, slopes: Any, zero: float, rows: int,
    channels: int, inner: int, piece: int,
) -> None:  # fmt: skip
    """Of each piece of rows: Σ dy and Σ dy · (x - mean)."""
    for unit in range(first, last):
        to = unit * channels
        for c in range(channels):
            offsets[to + c] = zero
            slopes[to + c] = zero
        start, stop = unit * piece, min((unit + 1) * piece, rows)
        even = stop - (stop - start) % 2
        for r in range(start, even, 2):
            a = r * channels
            b = a + channels
            for c in range(channels):
                flow, other, middle = dy[a + c], dy[b + c], mean[c]
                offsets[to + c] += flow + other
                slopes[to + c] += flow * (x[a + c] - middle) + other * (x[b + c] - middle)
        for r in range(even, stop):
            for c in range(channels):
                flow = dy[r * channels + c]
                offsets[to + c] += flow
                slopes[to + c] += flow * (x[r * channels + c] - mean[c])


def flows(
    first: int, last: int, offsets: Any, slopes: Any, gamma: Any, variance: Any, dgamma: Any, dbeta: Any, direct: Any,
    level: Any, tilt: Any, sqrt: Any, zero: float, one: float, epsilon: float, share: float, parts: int, channels: int,
) -> None:  # fmt: skip
    """Of each channel: dgamma, dbeta, and the three factors of dx = direct · dy - level - tilt · (x - mean)."""
    for c in range(first, last):
        offset, slope = zero, zero
        for p in range(parts):
            offset += offsets[p * channels + c]
            slope += slopes[p * channels + c]
        r = one / sqrt(variance[c] + epsilon)
        dgamma[c] = slope * r
        dbeta[c] = offset
        direct[c] = gamma[c] * r
        level[c] = gamma[c] * r * offset * share
        tilt[c] = gamma[c] * r * r * r * slope * share


@dataclass(frozen=True)
class Grid:
    """An operand as rows · channels · inner elements, and how its rows are cut into pieces."""

    rows: int
    channels: int
    inner: int

    @classmethod
    def of(cls, x: TensorType, axis: int, layout: Layout) -> Grid:
        """Of an operand in plain or channels-last order."""
        channels = x.shape[axis]
        inner = prod(x.shape[axis + 1 :]) if layout.is_plain(x) else 1
        return cls(x.size // channels // inner, channels, inner)

    @property
    def piece(self) -> int:
        """Rows in a piece."""
        return 1 if self.inner > 1 else max(-(-PIECE // self.channels), -(-self.rows // PIECES))

    @property
    def pieces(self) -> int:
        """How many pieces each channel has."""
        return -(-self.rows // self.piece)

    @property
    def units(self) -> int:
        """How many pieces there are for the threads."""
        return self.pieces * self.channels if self.inner > 1 else self.pieces

    def sizes(self) -> tuple[int, int, int, int]:
        """What bodies are told of it."""
        return self.rows, self.channels, self.inner, self.piece


class Scratch:
    """Arrays cut out of a workspace, one after another."""

    def __init__(self, workspace: Any, dtype: DType) -> None:
        self.workspace, self.dtype, self.used = workspace, dtype, 0

    def take(self, count: int) -> Any:
        """The next `count` elements."""
        size = count * self.dtype.itemsize
        made = self.workspace[self.used : self.used + size].view(str(self.dtype))
        self.used += aligned(size)
        assert made.size == count, "the workspace is smaller than what was asked for"
        return made


class OverChannelsKernel(Kernel):
    """Base of these kernels: large operands and results lie alike, plain or channels-last."""

    def layouts(self, node: Node, given: Sequence[Layout]) -> Signature:
        x, op = node.inputs[0], node.op
        assert isinstance(op, OverChannels)
        last = Layout.channels_last(len(x.shape))
        chosen = last if given[0] == last and op.axis == 1 and len(x.shape) > 2 else PLAIN
        lying = [chosen if value.shape == x.shape else PLAIN for value in (*node.inputs, *node.outputs)]
        return Signature(tuple(lying[: len(given)]), tuple(lying[len(given) :]))

    def workspace(self, node: Node, layouts: Signature) -> int:
        x = node.inputs[0].type
        assert isinstance(node.op, OverChannels)
        grid = Grid.of(x, node.op.axis, layouts.inputs[0])
        vector = aligned(grid.channels * x.dtype.itemsize)
        return VECTORS * vector + 2 * aligned(grid.pieces * grid.channels * x.dtype.itemsize)

    def prepared(self, node: Node, buffers: Buffers) -> tuple[Grid, Scratch, Any]:
        """The grid of the first operand, memory to work in, and what makes a vector broadcast over the operand."""
        op, x, dtype = node.op, buffers.inputs[0], node.inputs[0].dtype
        assert isinstance(op, OverChannels)
        grid = Grid.of(node.inputs[0].type, op.axis, buffers.layouts.inputs[0])
        return grid, Scratch(buffers.workspace, dtype), lambda vector: op.beside(x, vector)


def scaled(x: Any, y: Any, mean: Any, scale: Any, beta: Any) -> Thunk:
    """y = (x - mean) · scale + beta"""
    return bound((("t = (a0 - a1) * a2 + a3",), ("t",)), [x, mean, scale, beta], [y])


@kernel(BatchNormalization, backend="numba", rank=5)
class InferenceKernel(OverChannelsKernel):
    """Mean and variance are given."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, beta, mean, variance), (y,), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        grid, scratch, beside = self.prepared(node, buffers)
        scale = scratch.take(grid.channels)
        epsilon = f"{dtype}({node.op.epsilon!r})"  # type: ignore[attr-defined]  # all of these ops have it
        lines = (f"t = a0 / sqrt_{dtype}(a1 + {epsilon})",)
        return in_turn([
            bound((lines, ("t",)), [gamma, variance], [scale]),
            scaled(x, y, *map(beside, (mean, scale, beta))),
        ])  # fmt: skip


@kernel(BatchNormalizationTraining, backend="numba", rank=5)
class TrainingKernel(OverChannelsKernel):
    """Mean and variance are those of the batch."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, beta), dtype = buffers.inputs, node.inputs[0].dtype
        grid, scratch, beside = self.prepared(node, buffers)
        y, *found = buffers.outputs
        means, squares = (scratch.take(grid.pieces * grid.channels) for _ in range(2))
        mean, variance = (scratch.take(grid.channels) if one is None else one for one in found)
        scale = scratch.take(grid.channels)
        element, zero = Pointer(dtype), Constant(0.0, dtype)
        body = moments_of_planes if grid.inner > 1 else moments_of_rows
        pieces = native.of_function(body, (*(element,) * 3, zero, *(Size(),) * 4, Number(dtype)), native.REASSOCIATE)
        part = grid.piece * grid.inner
        kinds = (
            *(element,) * 6, Function("sqrt", dtype), native.Type(str(dtype)), zero, Number(dtype), *(Size(),) * 4,
        )  # fmt: skip
        together = native.of_function(moments, kinds)
        length, epsilon = grid.rows * grid.inner, node.op.epsilon  # type: ignore[attr-defined]  # as above
        calls = [
            pieces.bind(grid.units, 2 * x.size, x, means, squares, *grid.sizes(), float(part)),
            together.bind(
                grid.channels, 4 * grid.pieces * grid.channels, means, squares, gamma, mean, variance, scale, epsilon,
                grid.pieces, grid.channels, length, part,
            ),
        ]  # fmt: skip
        if y is not None:
            calls.append(scaled(x, y, *map(beside, (mean, scale, beta))))
        return in_turn(calls)


@kernel(BatchNormalizationGrad, backend="numba", rank=5)
class GradientKernel(OverChannelsKernel):
    """Gradients of the form for training."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, mean, variance, dy), dtype = buffers.inputs, node.inputs[0].dtype
        grid, scratch, beside = self.prepared(node, buffers)
        dx, *found = buffers.outputs
        offsets, slopes = (scratch.take(grid.pieces * grid.channels) for _ in range(2))
        dgamma, dbeta = (scratch.take(grid.channels) if one is None else one for one in found)
        direct, level, tilt = (scratch.take(grid.channels) for _ in range(3))
        element, zero, one = Pointer(dtype), Constant(0.0, dtype), Constant(1.0, dtype)
        body = flows_of_planes if grid.inner > 1 else flows_of_rows
        pieces = native.of_function(body, (*(element,) * 5, zero, *(Size(),) * 4), native.REASSOCIATE)
        kinds = (*(element,) * 9, Function("sqrt", dtype), zero, one, *(Number(dtype),) * 2, *(Size(),) * 2)
        epsilon = node.op.epsilon  # type: ignore[attr-defined]  # as above
        calls = [
            pieces.bind(grid.units, 2 * x.size, x, dy, mean, offsets, slopes, *grid.sizes()),
            native.of_function(flows, kinds).bind(
                grid.channels, 4 * grid.pieces * grid.channels, offsets, slopes, gamma, variance, dgamma, dbeta,
                direct, level, tilt, epsilon, 1 / (grid.rows * grid.inner), grid.pieces, grid.channels,
            ),
        ]  # fmt: skip
        if dx is not None:
            code = ("t = a0 * a2 - a3 - (a1 - a4) * a5",), ("t",)
            calls.append(bound(code, [dy, x, *map(beside, (direct, level, mean, tilt))], [dx]))
        return in_turn(calls)

"""Layer and RMS normalization and gradients: each row is read once, and stays in the L1 cache.

Sums over rows are computed for pieces, which do not depend on the number of threads, then added in order.
"""

from __future__ import annotations

from typing import Any

from netspec.backends.common.copy_kernels import chain
from netspec.backends.numba import native
from netspec.backends.numba.native import (
    Argument,
    CompiledFunction,
    ConstArg,
    Literal,
    Number,
    Pointer,
    Size,
    pointer_to,
)
from netspec.graph.execution_plan import align_up
from netspec.graph.kernel import Buffers, Kernel, LowPrecision, Thunk, kernel
from netspec.graph.layout import LayoutSignature
from netspec.graph.ops.layer_normalization import (
    LayerNormalization,
    LayerNormalizationGrad,
    RMSNormalization,
    RMSNormalizationGrad,
    RowwiseOp,
)
from netspec.graph.value import Node

PIECES = 64
"""Maximum number of pieces."""
FORWARD_WORK, BACKWARD_WORK = 2, 4
"""Loads and stores that take as long as the work on an element."""


def normalize(
    first: int, last: int, x: Any, gamma: Any, beta: Any, y: Any, mean: Any, variance: Any, sqrt: Any, zero: float,
    one: float, center: int, write: int, keep_mean: int, keep_variance: int, share: float, epsilon: float, length: int,
) -> None:  # fmt: skip
    """Rows of y, and means and variances if they are read; without `center`, around 0 and without beta."""
    for row in range(first, last):
        a = row * length
        middle, spread = zero, zero
        if center:
            for c in range(length):
                middle += x[a + c]
            middle = middle * share
        for c in range(length):
            centered = x[a + c] - middle
            spread += centered * centered
        if keep_mean:
            mean[row] = middle
        if keep_variance:
            variance[row] = spread * share
        if write:
            r = one / sqrt(spread * share + epsilon)
            for c in range(length):
                y[a + c] = (x[a + c] - middle) * r * gamma[c] + (beta[c] if center else zero)


def gradients(
    first: int, last: int, x: Any, gamma: Any, mean: Any, variance: Any, dy: Any, dx: Any, slopes: Any, offsets: Any,
    sqrt: Any, zero: float, one: float, center: int, write: int, add: int, share: float, epsilon: float, length: int,
    rows: int, piece: int,
) -> None:  # fmt: skip
    """Rows of dx if `write`; if `add`, Σ dy · x̂ of each piece, and Σ dy if rows were centered."""
    for unit in range(first, last):
        to = unit * length
        if add:
            for c in range(length):
                slopes[to + c] = zero
                if center:
                    offsets[to + c] = zero
        for row in range(unit * piece, min((unit + 1) * piece, rows)):
            a, middle = row * length, mean[row] if center else zero
            r = one / sqrt(variance[row] + epsilon)
            if write:
                level, tilt = zero, zero
                for c in range(length):
                    g = dy[a + c] * gamma[c]
                    level += g
                    tilt += g * (x[a + c] - middle)
                level, tilt = (level * share if center else zero), tilt * share * r
                for c in range(length):
                    dx[a + c] = r * (dy[a + c] * gamma[c] - level - (x[a + c] - middle) * r * tilt)
            if add:
                for c in range(length):
                    slopes[to + c] += dy[a + c] * ((x[a + c] - middle) * r)
                    if center:
                        offsets[to + c] += dy[a + c]


def together(
    first: int, last: int, slopes: Any, offsets: Any, dgamma: Any, dbeta: Any, keep_slopes: int, keep_offsets: int,
    pieces: int, length: int,
) -> None:  # fmt: skip
    """Sum dgamma and dbeta over all pieces, in order."""
    if keep_slopes:
        for c in range(first, last):
            dgamma[c] = slopes[c]
        for p in range(1, pieces):
            for c in range(first, last):
                dgamma[c] += slopes[p * length + c]
    if keep_offsets:
        for c in range(first, last):
            dbeta[c] = offsets[c]
        for p in range(1, pieces):
            for c in range(first, last):
                dbeta[c] += offsets[p * length + c]


def _rows(node: Node) -> tuple[int, int]:
    """Number and length of the first operand's rows."""
    op, x = node.op, node.inputs[0].type
    assert isinstance(op, RowwiseOp)
    length = op.row_length(x.shape)
    return x.size // length, length


def _cut(rows: int) -> tuple[int, int]:
    """Number of pieces, and rows of a piece."""
    piece = -(-rows // PIECES)
    return -(-rows // piece), piece


class OverRowsKernel(Kernel):
    """Base class: data may be stored in 16 bits, but not factors and statistics."""

    low_precision = LowPrecision.DATA


@kernel(LayerNormalization, RMSNormalization, backend="numba", rank=5)
class RowNormalizationKernel(OverRowsKernel):
    """One row after another: around the mean of each row, or around 0."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, *beta), (y, *mean, variance), dtype = buffers.inputs, buffers.outputs, node.inputs[0].dtype
        arrays = x, gamma, *(beta or [None]), y, *(mean or [None]), variance
        (rows, length), centered = _rows(node), isinstance(node.op, LayerNormalization)
        kinds: tuple[Argument, ...] = (
            *(pointer_to(array, dtype) for array in arrays), CompiledFunction("sqrt", dtype), ConstArg(0.0, dtype),
            ConstArg(1.0, dtype), Literal(int(centered)), *(Literal(int(array is not None)) for array in arrays[3:]),
            *(Number(dtype),) * 2, Size(),
        )  # fmt: skip
        epsilon = node.op.epsilon  # type: ignore[attr-defined]  # all ops over rows have it
        return native.of_function(normalize, kinds, native.REASSOCIATE).bind(
            rows, FORWARD_WORK * x.size, *arrays, 1 / length, epsilon, length
        )


@kernel(LayerNormalizationGrad, RMSNormalizationGrad, backend="numba", rank=5)
class RowNormalizationGradKernel(OverRowsKernel):
    """Pieces of rows, then the sums of all pieces."""

    def workspace(self, node: Node, signature: LayoutSignature) -> int:
        rows, length = _rows(node)
        return _sums(node) * align_up(_cut(rows)[0] * length * node.inputs[0].dtype.itemsize)

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x, gamma, *mean, variance, dy), (dx, dgamma, *beta) = buffers.inputs, buffers.outputs
        (rows, length), dtype, dbeta = _rows(node), node.inputs[0].dtype, beta[0] if beta else None
        operands = x, gamma, *(mean or [None]), variance, dy
        element = Pointer(dtype)
        pieces, piece = _cut(rows)
        slopes = offsets = None
        added = dgamma is not None or dbeta is not None
        if added:
            assert buffers.workspace is not None
            size = len(buffers.workspace) // _sums(node)
            slopes = buffers.workspace[:size].view(str(dtype))
            offsets = buffers.workspace[size:].view(str(dtype)) if mean else None
        kinds: tuple[Argument, ...] = (
            *(pointer_to(array, dtype) for array in (*operands, dx)), *(element,) * 2,
            CompiledFunction("sqrt", dtype), ConstArg(0.0, dtype), ConstArg(1.0, dtype), Literal(int(bool(mean))),
            Literal(int(dx is not None)), Literal(int(added)), *(Number(dtype),) * 2, *(Size(),) * 3,
        )  # fmt: skip
        epsilon = node.op.epsilon  # type: ignore[attr-defined]  # all ops over rows have it
        calls = [
            native.of_function(gradients, kinds, native.REASSOCIATE).bind(
                pieces, BACKWARD_WORK * x.size, *operands, dx, slopes, offsets, 1 / length, epsilon, length, rows,
                piece,
            )
        ]  # fmt: skip
        if added:
            written_flags = [Literal(int(array is not None)) for array in (dgamma, dbeta)]
            calls.append(
                native.of_function(together, (*(element,) * 4, *written_flags, *(Size(),) * 2)).bind(
                    length, 2 * pieces * length, slopes, offsets, dgamma, dbeta, pieces, length
                )
            )
        return chain(calls)


def _sums(node: Node) -> int:
    """Number of sums over rows that a gradient computes."""
    return 2 if isinstance(node.op, LayerNormalizationGrad) else 1

"""Sums, means and extrema over any axes.

An operand is read by four nested loops, kept · reduced · kept · reduced, each possibly of size 1. Long reductions are
cut into pieces by size alone, never by the number of threads; each piece is reduced separately, and their results are
combined in order: the result is the same on any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.backends.common.reduction_loops import BaseReductionKernel, ReductionLoops, array_loops
from netspec.backends.numba import native
from netspec.backends.numba.native import Literal, Number, Size, pointer_to
from netspec.graph.kernel import Buffers, Thunk, kernel
from netspec.graph.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum, Reduction
from netspec.graph.types import DType
from netspec.graph.value import Node

PIECE = 8192
"""Elements of a piece: long enough to be worth a call, short enough for float32 sums to keep their precision."""
PIECES = 64
"""Maximum number of pieces of rows: each needs a separate row of results."""
BLOCK = 1024
"""Columns that one thread reduces at a time: they stay in the L1 cache."""


def sum_rows(
    first: int, last: int, x: Any, y: Any, factor: float, xr1: int, kept1: int, outer: int, length: int, pieces: int,
    piece: int, xk0: int, xr0: int, xk1: int, yk0: int, yp: int, yk1: int,
) -> None:  # fmt: skip
    """y[k0, r0 · pieces + p, k1] = factor · Σ of piece p of x[k0, r0, k1, :]."""
    for unit in range(first, last):
        p, remaining = unit % pieces, unit // pieces
        k1, remaining = remaining % kept1, remaining // kept1
        r0, k0 = remaining % outer, remaining // outer
        start, stop = p * piece, min((p + 1) * piece, length)
        at = k0 * xk0 + r0 * xr0 + k1 * xk1
        total = x[at + start * xr1]
        for r in range(start + 1, stop):
            total += x[at + r * xr1]
        y[k0 * yk0 + (r0 * pieces + p) * yp + k1 * yk1] = factor * total


def max_rows(
    first: int, last: int, x: Any, y: Any, factor: float, xr1: int, kept1: int, outer: int, length: int, pieces: int,
    piece: int, xk0: int, xr0: int, xk1: int, yk0: int, yp: int, yk1: int,
) -> None:  # fmt: skip
    """Like `sum_rows`, for the elements that are largest when multiplied by `factor`; NaN is greater than all."""
    for unit in range(first, last):
        p, remaining = unit % pieces, unit // pieces
        k1, remaining = remaining % kept1, remaining // kept1
        r0, k0 = remaining % outer, remaining // outer
        start, stop = p * piece, min((p + 1) * piece, length)
        at = k0 * xk0 + r0 * xr0 + k1 * xk1
        best = x[at + start * xr1]
        for r in range(start + 1, stop):
            v = x[at + r * xr1]
            best = v if factor * v > factor * best or v != v else best  # noqa: PLR0124  NaN alone is not itself
        y[k0 * yk0 + (r0 * pieces + p) * yp + k1 * yk1] = best


def sum_columns(
    first: int, last: int, x: Any, y: Any, factor: float, xk1: int, yk1: int, kept1: int, block: int, length: int,
    pieces: int, piece: int, xk0: int, xr0: int, yk0: int, yp: int,
) -> None:  # fmt: skip
    """y[k0, p, k1] = factor · Σ of x[k0, r0, k1] over the r0 in piece p, a block of k1 at a time."""
    blocks = (kept1 + block - 1) // block
    for unit in range(first, last):
        left, remaining = unit % blocks * block, unit // blocks
        p, k0 = remaining % pieces, remaining // pieces
        right = min(left + block, kept1)
        to = k0 * yk0 + p * yp
        start, stop = p * piece, min((p + 1) * piece, length)
        for k in range(left, right):
            y[to + k * yk1] = x[k0 * xk0 + start * xr0 + k * xk1]
        even = stop - (stop - start - 1) % 4  # four rows at a time, to write sums to memory a quarter as often
        for r in range(start + 1, even, 4):
            a = k0 * xk0 + r * xr0
            b = a + 2 * xr0
            for k in range(left, right):
                first_sum, other = x[a + k * xk1] + x[a + xr0 + k * xk1], x[b + k * xk1] + x[b + xr0 + k * xk1]
                y[to + k * yk1] += first_sum + other
        for r in range(even, stop):
            a = k0 * xk0 + r * xr0
            for k in range(left, right):
                y[to + k * yk1] += x[a + k * xk1]
        for k in range(left, right):
            y[to + k * yk1] *= factor


def max_columns(
    first: int, last: int, x: Any, y: Any, factor: float, xk1: int, yk1: int, kept1: int, block: int, length: int,
    pieces: int, piece: int, xk0: int, xr0: int, yk0: int, yp: int,
) -> None:  # fmt: skip
    """Like `sum_columns`, for the elements that are largest when multiplied by `factor`; NaN is greater than all."""
    blocks = (kept1 + block - 1) // block
    for unit in range(first, last):
        left, remaining = unit % blocks * block, unit // blocks
        p, k0 = remaining % pieces, remaining // pieces
        right = min(left + block, kept1)
        to = k0 * yk0 + p * yp
        for r in range(p * piece, min((p + 1) * piece, length)):
            at = k0 * xk0 + r * xr0
            for k in range(left, right):
                v, best = x[at + k * xk1], y[to + k * yk1]
                greater = factor * v > factor * best or v != v  # noqa: PLR0124  NaN alone is not itself
                y[to + k * yk1] = v if r == p * piece or greater else best


def pieces_of(nest: ReductionLoops) -> tuple[int, int, int]:
    """Number of pieces, length of a piece, and number of partial results."""
    k0, r0, k1, r1 = nest.sizes
    if r1 > 1:
        units = k0 * r0 * k1
        piece = r1 if units > 1 else PIECE
        count = -(-r1 // piece)
        return count, piece, r0 * count
    piece = max(-(-PIECE // k1), -(-r0 // PIECES))
    count = -(-r0 // piece)
    return count, piece, count


BODIES = {
    ReduceSum: (sum_rows, sum_columns),
    ReduceMean: (sum_rows, sum_columns),
    ReduceMax: (max_rows, max_columns),
    ReduceMin: (max_rows, max_columns),
}


@kernel(ReduceSum, ReduceMean, ReduceMax, ReduceMin, backend="numba", rank=5)
class ReduceKernel(BaseReductionKernel):
    """Sums, means and extrema over axes that need at most four loops."""

    def partial_results(self, loops: ReductionLoops) -> int:
        return pieces_of(loops)[2]

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, Reduction)
        assert y is not None
        kind = node.inputs[0].type
        loops, count = array_loops(op, kind, x)
        rows, columns = BODIES[type(op)]
        sign = -1.0 if isinstance(op, ReduceMin) else 1.0
        factor = 1.0 / count if isinstance(op, ReduceMean) else sign
        k0, _, k1, _ = loops.sizes
        _, _, parts = pieces_of(loops)
        if parts == 1:
            return _stage(loops, (rows, columns), kind.dtype, x, y, factor, (loops.y[0], 0, loops.y[2]))
        assert buffers.workspace is not None
        partial = buffers.workspace[: parts * y.nbytes].view(str(kind.dtype))
        steps = (parts * k1, k1, 1)
        first = _stage(loops, (rows, columns), kind.dtype, x, partial, sign, steps)
        together = ReductionLoops((k0, parts, k1, 1), (steps[0], steps[1], 1, 0), (loops.y[0], 0, loops.y[2], 0))
        second = _columns(together, columns, kind.dtype, partial, y, factor, (loops.y[0], 0, loops.y[2]), 1, parts)

        def run() -> None:
            first()
            second()

        return run


def _stage(
    loops: ReductionLoops, bodies: Any, dtype: DType, x: Any, y: Any, factor: float, steps: tuple[int, int, int]
) -> Thunk:
    """Reduce each piece; `steps` are the strides of y along k0, pieces, and k1."""
    pieces, piece, _ = pieces_of(loops)
    rows, columns = bodies
    if loops.sizes[3] == 1:
        return _columns(loops, columns, dtype, x, y, factor, steps, pieces, piece)
    k0, r0, k1, r1 = loops.sizes
    unit = loops.x[3] == 1
    arguments = (*_arguments(dtype, (x, y), [loops.x[3]]), *(Size(),) * 11)
    inner = [] if unit else [loops.x[3]]
    numbers = (k1, r0, r1, pieces, piece, *loops.x[:3], *steps)
    work = k0 * r0 * k1 * r1
    return native.of_function(rows, arguments, native.REASSOCIATE).bind(
        k0 * r0 * k1 * pieces, work, x, y, factor, *inner, *numbers
    )


def _columns(
    loops: ReductionLoops, body: Any, dtype: DType, x: Any, y: Any, factor: float, steps: tuple[int, int, int],
    pieces: int, piece: int,
) -> Thunk:  # fmt: skip
    k0, r0, k1, _ = loops.sizes
    inner = [loops.x[2], steps[2]]
    arguments = (*_arguments(dtype, (x, y), inner), *(Size(),) * 9)
    numbers = (k1, BLOCK, r0, pieces, piece, loops.x[0], loops.x[1], *steps[:2])
    units = k0 * pieces * -(-k1 // BLOCK)
    return native.of_function(body, arguments, native.REASSOCIATE).bind(
        units, k0 * r0 * k1, x, y, factor, *(step for step in inner if step != 1), *numbers
    )


def _arguments(dtype: DType, arrays: Sequence[Any], inner: Sequence[int]) -> list[native.Argument]:
    """Operand and result, factor, and the strides of the innermost loop."""
    pointers = (pointer_to(array, dtype) for array in arrays)
    return [*pointers, Number(dtype), *(Literal(1) if step == 1 else Size() for step in inner)]

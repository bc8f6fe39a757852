"""Sums, means and extrema over any axes.

If the innermost axis is kept, each thread reduces a column, so that adjacent threads read adjacent elements; otherwise
a block reduces a row. If there are too few columns or rows to fill a GPU, they are split, by size alone, and reduced in
two stages: the order of a sum is always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netspec.backends.common.reduction_loops import BaseReductionKernel, ReductionLoops, array_loops
from netspec.backends.cuda.kernels.elementwise import stored_type
from netspec.backends.cuda.launch import THREADS, WARP, Launch, number, pointer, sizes
from netspec.backends.cuda.scalar_code import c_number
from netspec.graph.kernel import Buffers, Example, Thunk, kernel
from netspec.graph.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum, Reduction
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

ENOUGH_BLOCKS = 512
"""Number of blocks that fill the largest GPU: some for each of its 132 multiprocessors."""
MIN_PIECE, MAX_PIECES = 64, 256
"""Minimum elements per thread for a split, and the maximum number of parts."""

COLUMNS = """
UNITS(unit, count) {
    const Index piece = unit / outputs, output = unit % outputs;
    const Index stop = (piece + 1) * length < reduced ? (piece + 1) * length : reduced;
    const TYPE *row = x + output / kept * xk0 + output % kept * xk1;
    TYPEOF total = FIRST;
    for (Index e = piece * length; e < stop; ++e) total = combine(total, load(row[e / inner * xr0 + e % inner * xr1]));
    y[output / kept * yk0 + output % kept * yk1 + piece * yp] = SCALED;
}
"""
ROWS = """
__shared__ TYPEOF scratch[WARPS];
BLOCKS(unit, count) {
    const Index piece = unit / outputs, output = unit % outputs;
    const Index stop = (piece + 1) * length < reduced ? (piece + 1) * length : reduced;
    const TYPE *row = x + output / kept * xk0 + output % kept * xk1;
    TYPEOF total = FIRST;
    for (Index e = piece * length + threadIdx.x; e < stop; e += blockDim.x)
        total = combine(total, load(row[e / inner * xr0 + e % inner * xr1]));
    total = of_block(total, scratch, combine);
    if (threadIdx.x == 0) y[output / kept * yk0 + output % kept * yk1 + piece * yp] = SCALED;
}
"""
COMBINES = {ReduceSum: "Add", ReduceMean: "Add", ReduceMax: "Greater", ReduceMin: "Less"}
SMALLEST = {DType.INT32: -(2**31), DType.INT64: -(2**63)}


@dataclass(frozen=True)
class ReductionSplit:
    """The split of a reduction over blocks."""

    by_rows: bool
    """Whether a block reduces each result."""
    pieces: int
    length: int
    """Elements of a part."""

    @classmethod
    def of(cls, loops: ReductionLoops) -> ReductionSplit:
        """Decide from sizes alone."""
        k0, r0, k1, r1 = loops.sizes
        reduced, outputs = r0 * r1, k0 * k1
        by_rows = r1 > 1 or k1 < THREADS // 8
        blocks = outputs if by_rows else -(-outputs // THREADS)
        longest = MIN_PIECE * (THREADS if by_rows else 1)
        pieces = max(1, min(-(-ENOUGH_BLOCKS // blocks), reduced // longest, MAX_PIECES))
        length = -(-reduced // pieces)
        return cls(by_rows, -(-reduced // length), length)


@kernel(ReduceSum, ReduceMean, ReduceMax, ReduceMin, backend="cuda", rank=5)
class ReduceKernel(BaseReductionKernel):
    """Sums, means and extrema over axes that need at most four loops."""

    def samples(self) -> Sequence[Example]:
        # Columns and rows, in one part and in two: each kernel runs as first and as second stage.
        columns, rows = (130, 40), (2, 2 * MIN_PIECE * THREADS + 3)
        return (
            (ReduceSum((0,)), (TensorType((20, 40), DType.FLOAT32),)),
            *((op((0,)), (TensorType(columns, DType.FLOAT32),)) for op in COMBINES),
            *((op((1,)), (TensorType(rows, DType.FLOAT32),)) for op in COMBINES),
            (ReduceSum((1,)), (TensorType((2, 130, 40), DType.INT64),)),
            (ReduceMin((0, 2)), (TensorType((110, 3, 300), DType.INT32),)),
        )

    def partial_results(self, loops: ReductionLoops) -> int:
        return ReductionSplit.of(loops).pieces

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, Reduction)
        assert y is not None
        kind = node.inputs[0].type
        loops, count = array_loops(op, kind, x)
        factor = 1.0 / count if isinstance(op, ReduceMean) else None
        cut = ReductionSplit.of(loops)
        steps = loops.y[0], loops.y[2]
        if cut.pieces == 1:
            return _stage(op, loops, cut, x, y, (*steps, 0), factor)
        assert buffers.workspace is not None
        k0, _, k1, _ = loops.sizes
        partial = buffers.workspace[: cut.pieces * y.nbytes].view(str(kind.dtype))
        first = _stage(op, loops, cut, x, partial, (k1, 1, k0 * k1), None)
        together = ReductionLoops((k0, cut.pieces, k1, 1), (k1, k0 * k1, 1, 0), (steps[0], 0, steps[1], 0))
        second = _stage(op, together, ReductionSplit(k1 < THREADS // 8, 1, cut.pieces), partial, y, (*steps, 0), factor)

        def run() -> None:
            first()
            second()

        return run


def _stage(
    op: Reduction,
    loops: ReductionLoops,
    cut: ReductionSplit,
    x: Any,
    y: Any,
    steps: tuple[int, int, int],
    factor: float | None,
) -> Thunk:
    """Reduce each part; `steps` are the strides of y along the kept loops and between parts."""
    dtype = DType(str(x.dtype)).compute_dtype
    k0, r0, k1, r1 = loops.sizes
    combine = COMBINES[type(op)]
    first = {
        "Add": 0.0,
        "Greater": SMALLEST.get(dtype, float("-inf")),
        "Less": -SMALLEST.get(dtype, float("-inf")) - 1,
    }[combine]
    if combine == "Less" and dtype.is_float:
        first = float("inf")
    units = k0 * k1 * cut.pieces
    reach = sum((size - 1) * abs(step) for size, step in zip(loops.sizes, loops.x, strict=True))
    parameters = [
        pointer("x", x), pointer("y", y, written=True),
        *sizes(
            max(reach, units, r0 * r1 + cut.length), count=units, outputs=k0 * k1, kept=k1, reduced=r0 * r1, inner=r1,
            length=cut.length, xk0=loops.x[0], xr0=loops.x[1], xk1=loops.x[2], xr1=loops.x[3], yk0=steps[0],
            yk1=steps[1], yp=steps[2],
        ),
        *([number("factor", factor, dtype)] if factor is not None else []),
    ]  # fmt: skip
    replacements = {
        "TYPEOF": dtype, "TYPE": stored_type(x), "WARPS": THREADS // WARP, "FIRST": c_number(first, dtype),
        "SCALED": "total" if factor is None else "total * factor",
    }  # fmt: skip
    body = f"const {combine}<{dtype}> combine;\n{ROWS if cut.by_rows else COLUMNS}"
    return Launch(parameters, body, units, of_blocks=cut.by_rows, replacements=replacements).bind()

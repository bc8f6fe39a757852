"""One-bit quantization of gradients, with a block for a few columns: see `graph.ops.gradient_compression`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from netspec.backends.cuda.kernels.elementwise import stored_type
from netspec.backends.cuda.launch import THREADS, WARP, KernelParameter, Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.gradient_compression import OneBitQuantize, is_output_axis_last
from netspec.graph.value import Node

# Adjacent threads read adjacent elements, for both memory orders.
OVER_COLUMNS = """
__shared__ TYPE firsts[THREADS], seconds[THREADS];
__shared__ Index counts[THREADS];
const int me = threadIdx.x, lane = me / WIDE;
BLOCKS(unit, blocks) {
    const Index c = unit * WIDE + me % WIDE;
    TYPE first = FIRST, second = SECOND;
    Index found = 0;
    for (Index r = lane; c < columns && r < rows; r += THREADS / WIDE) {
        const TYPE one = x[c * across + r * along];
        EACH
    }
    firsts[me] = first, seconds[me] = second, counts[me] = found;
    __syncthreads();
    for (int half = THREADS / WIDE / 2; half > 0; half /= 2) {
        if (lane < half) {
            const TYPE other = firsts[me + half * WIDE], another = seconds[me + half * WIDE];
            first = firsts[me], second = seconds[me];
            JOIN
            firsts[me] = first, seconds[me] = second, counts[me] += counts[me + half * WIDE];
        }
        __syncthreads();
    }
    first = firsts[me % WIDE], second = seconds[me % WIDE], found = counts[me % WIDE];
    __syncthreads();
    if (c < columns) {
        THEN
    }
}
"""
SUMS = {
    "FIRST": "0", "SECOND": "0", "JOIN": "first += other, second += another;",
    "EACH": "if (one >= 0) first += one, found += 1; else second += one;",
}  # fmt: skip
"""Means of the nonnegative and of the negative elements."""
SPLIT = """
const TYPE high = (float32)(first / (found > 1 ? found : 1));
const TYPE low = (float32)(second / (rows - found > 1 ? rows - found : 1));
for (Index r = lane; r < rows; r += THREADS / WIDE) {
    const TYPE one = x[c * across + r * along], kept = one >= 0 ? high : low;
    WRITE
}
"""


@dataclass(frozen=True)
class OneBitColumns:
    """The columns of an array: number, length, strides."""

    columns: int
    rows: int
    across: int
    along: int

    @classmethod
    def of(cls, shape: Sequence[int]) -> OneBitColumns:
        """The columns of a plain array of this shape."""
        if is_output_axis_last(tuple(shape)):
            return cls(shape[1], shape[0], 1, shape[1])
        columns = shape[0] if shape else 1
        rows = prod(shape) // columns
        return cls(columns, rows, rows, 1)

    def reduction(self, x: Any, others: Sequence[KernelParameter], replacements: dict[str, str], finish: str) -> Thunk:
        """A call that computes two means for each column, as defined by `replacements`, and runs the code `finish`."""
        wide = WARP if self.across == 1 else 1
        blocks = -(-self.columns // wide)
        parameters = [
            pointer("x", x), *others,
            *sizes(
                x.size + THREADS * WARP, blocks=blocks, columns=self.columns, rows=self.rows, across=self.across,
                along=self.along,
            ),
        ]  # fmt: skip
        return Launch(
            parameters, OVER_COLUMNS, blocks, of_blocks=True,
            replacements={**replacements, "THEN": finish, "TYPE": stored_type(x), "WIDE": wide, "THREADS": THREADS},
        ).bind()  # fmt: skip


@kernel(OneBitQuantize, backend="cuda", rank=5)
class OneBitKernel(Kernel):
    """Compute the means of each column, then read its elements again to quantize them."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (q, residual) = buffers.inputs, buffers.outputs
        written = {"q": (q, "kept"), "rest": (residual, "one - kept")}
        read = {name: array for name, array in written.items() if array[0] is not None}
        others = [pointer(name, array, written=True) for name, (array, _) in read.items()]
        write = " ".join(f"{name}[c * across + r * along] = {code};" for name, (_, code) in read.items())
        return OneBitColumns.of(x.shape).reduction(x, others, SUMS, SPLIT.replace("WRITE", write))

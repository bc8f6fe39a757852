"""Cumulative sums: a thread handles each row, or a block if rows are few and long."""

from __future__ import annotations

from math import prod

from netspec.backends.cuda.kernels.elementwise import stored_type
from netspec.backends.cuda.launch import THREADS, Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Example, Kernel, Thunk, kernel
from netspec.graph.ops.cumsum import CumSum
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

MANY, LONG = 4096, 2 * THREADS
"""Number of rows that keep a GPU busy with a thread each, and minimum elements for a block."""
ROW = """
for (Index e = begin; e < end; ++e) {
    const TYPE one = x[at + e * step];
    y[at + e * step] = WRITTEN;
    total += one;
}
"""
BY_THREADS = f"""
const Index begin = 0, end = length;
UNITS(unit, count) {{
    const Index at = unit / inner * length * inner + unit % inner + first;
    TYPE total = 0;
    {ROW}
}}
"""
# Each thread sums its part of the row, then adds the totals of the threads before it.
BY_BLOCKS = f"""
__shared__ TYPE scratch[THREADS];
const int me = threadIdx.x;
const Index share = (length + THREADS - 1) / THREADS;
const Index begin = me * share < length ? me * share : length, end = begin + share < length ? begin + share : length;
BLOCKS(unit, count) {{
    const Index at = unit / inner * length * inner + unit % inner + first;
    TYPE total = 0;
    for (Index e = begin; e < end; ++e) total += x[at + e * step];
    scratch[me] = total;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {{
        const TYPE before = me >= distance ? scratch[me - distance] : 0;
        __syncthreads();
        scratch[me] += before;
        __syncthreads();
    }}
    total = me > 0 ? scratch[me - 1] : 0;
    __syncthreads();
    {ROW}
}}
"""


@kernel(CumSum, backend="cuda", rank=5)
class CumSumKernel(Kernel):
    """Each row is summed in an order that depends on its size only."""

    def samples(self) -> tuple[Example, ...]:
        long = TensorType((2, 2 * LONG + 3), DType.FLOAT32)
        return (CumSum(1), (long,)), (CumSum(1, exclusive=True, reverse=True), (long,))

    def reject_reason(self, op: CumSum, *types: TensorType) -> str | None:
        return "no sums of bool" if types[0].dtype == DType.BOOL else None

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, CumSum)
        length, inner = x.shape[op.axis], prod(x.shape[op.axis + 1 :])
        rows, last = x.size // length, (length - 1) * inner
        by_blocks = rows < MANY and length >= LONG
        parameters = [
            pointer("x", x), pointer("y", y, written=True),
            *sizes(
                2 * x.size, count=rows, length=length, inner=inner, first=last if op.reverse else 0,
                step=-inner if op.reverse else inner,
            ),
        ]  # fmt: skip
        replacements = {
            "TYPE": stored_type(x), "THREADS": THREADS, "WRITTEN": "total" if op.exclusive else "total + one",
        }  # fmt: skip
        body = BY_BLOCKS if by_blocks else BY_THREADS
        return Launch(parameters, body, rows, of_blocks=by_blocks, replacements=replacements).bind()

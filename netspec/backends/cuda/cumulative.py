"""Sums of all elements up to each: by a thread for each row, or by a block where rows are few and long."""

from __future__ import annotations

from math import prod

from netspec.backends.cuda.elementwise import stored_type
from netspec.backends.cuda.launch import THREADS, Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Example, Kernel, Thunk, kernel
from netspec.graph.ops.cumulative import CumSum
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Node

MANY, LONG = 4096, 2 * THREADS
"""Rows that keep a GPU busy with a thread each, and elements with which a block has something to do."""
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
# A thread adds up its part of the row, those of the threads before it come first.
BY_BLOCKS = f"""
__shared__ TYPE place[THREADS];
const int me = threadIdx.x;
const Index share = (length + THREADS - 1) / THREADS;
const Index begin = me * share < length ? me * share : length, end = begin + share < length ? begin + share : length;
BLOCKS(unit, count) {{
    const Index at = unit / inner * length * inner + unit % inner + first;
    TYPE total = 0;
    for (Index e = begin; e < end; ++e) total += x[at + e * step];
    place[me] = total;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {{
        const TYPE before = me >= distance ? place[me - distance] : 0;
        __syncthreads();
        place[me] += before;
        __syncthreads();
    }}
    total = me > 0 ? place[me - 1] : 0;
    __syncthreads();
    {ROW}
}}
"""


@kernel(CumSum, backend="cuda", rank=5)
class CumSumKernel(Kernel):
    """Each row in an order that its size alone decides."""

    def samples(self) -> tuple[Example, ...]:
        long = TensorType((2, 2 * LONG + 3), DType.FLOAT32)
        return (CumSum(1), (long,)), (CumSum(1, exclusive=True, reverse=True), (long,))

    def why_not(self, op: CumSum, *types: TensorType) -> str | None:
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
        words = {
            "TYPE": stored_type(x), "THREADS": str(THREADS), "WRITTEN": "total" if op.exclusive else "total + one",
        }  # fmt: skip
        body = BY_BLOCKS if by_blocks else BY_THREADS
        for word, meaning in words.items():
            body = body.replace(word, meaning)
        return Launch(parameters, body, rows, of_blocks=by_blocks).bind()

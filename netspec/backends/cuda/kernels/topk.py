"""Top-k by rank: a thread for each element counts the elements that come before it along the axis.

It stops when k are found; nothing is sorted, and the result is that of a stable sort.
"""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.backends.cuda.kernels.elementwise import stored_type
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.topk import InTopK, TopK
from netspec.graph.value import Node

RANKED = """
const auto before = [](TYPE a, TYPE b) { return a SIGN b || (a == a && b != b); };
UNITS(unit, count) {
    const Index me = unit / inner % length, outer = unit / inner / length, in = unit % inner;
    const TYPE *row = x + outer * length * inner + in, mine = row[me * inner];
    Index rank = 0;
    for (Index c = 0; c < length && rank < k; ++c) {
        const TYPE other = row[c * inner];
        rank += before(other, mine) || (c < me && !before(mine, other));
    }
    WRITE
}
"""


def ranked(x: Any, axis: int, k: int, results: dict[str, Any], write: str, *, greatest: bool) -> Thunk:
    """A call that runs the code `write` for each element of x whose rank along the axis, `rank`, is less than k.

    Equal elements keep their order; NaN comes last.
    """
    replacements = {"TYPE": stored_type(x), "SIGN": ">" if greatest else "<", "WRITE": write}
    inner = prod(x.shape[axis + 1 :])
    parameters = [
        pointer("x", x), *(pointer(name, array, written=True) for name, array in results.items()),
        *sizes(x.size, count=x.size, length=x.shape[axis], inner=inner, k=k),
    ]  # fmt: skip
    return Launch(parameters, RANKED, x.size, replacements=replacements).bind()


@kernel(TopK, backend="cuda", rank=5)
class TopKKernel(Kernel):
    """Each of the first k elements is written to its rank, with its index."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,) = node.op, buffers.inputs
        assert isinstance(op, TopK)
        results = {
            name: array for name, array in zip(("y", "indices"), buffers.outputs, strict=True) if array is not None
        }
        values = {"y": "mine", "indices": "me"}
        writes = (f"if (rank < k) {name}[(outer * k + rank) * inner + in] = {values[name]};" for name in results)
        return ranked(x, op.axis, op.k, results, " ".join(writes), greatest=op.largest)


@kernel(InTopK, backend="cuda", rank=5)
class InTopKKernel(Kernel):
    """Whether fewer than k elements come before the element."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, InTopK)
        return ranked(x, x.ndim - 1, op.k, {"y": y}, "y[unit] = rank < k;", greatest=True)

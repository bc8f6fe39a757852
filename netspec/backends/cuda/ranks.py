"""Elements by their rank along an axis: those that come before it are counted, by a thread for each element.

It takes as many steps as an axis has elements, or until there are enough before it; nothing is sorted, and the result
is that of a stable sort.
"""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.backends.cuda.elementwise import stored_type
from netspec.backends.cuda.launch import Launch, pointer, sizes
from netspec.backends.cuda.vectors import EACH, bound
from netspec.backends.vectors import AlongAxis
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.ops.reduce import ArgExtreme, ArgMax, ArgMin
from netspec.graph.ops.softmax import Hardmax, Sparsemax
from netspec.graph.value import Node
from netspec.layers.extremes import Extremes
from netspec.layers.metrics.confusion import AmongGreatest

RANKED = """
const auto before = [](TYPE a, TYPE b) { return a SIGN b || (a NAN_A a && b NAN_B b); };
UNITS(unit, count) {
    const Index me = unit / inner % length, outer = unit / inner / length, in = unit % inner;
    const TYPE *row = x + outer * length * inner + in, mine = row[me * inner];
    Index rank = 0;
    for (Index c = 0; c < length && rank < k; ++c) {
        const TYPE other = row[c * inner];
        rank += before(other, mine) || (c EARLIER me && !before(mine, other));
    }
    WRITE
}
"""
SPARSEMAX = f"""
NUMBER most = -INFINITY;
{EACH} most = Greater<NUMBER>()(most, x[c * xc]);
most = of_block(most, place, Greater<NUMBER>());
NUMBER inside = 0, total = 0;
{EACH} {{
    const NUMBER mine = x[c * xc] - most;
    NUMBER rank = 0, sum = 0;
    for (Index o = 0; o < length; ++o) {{
        const NUMBER other = x[o * xc] - most;
        if (other > mine || (other == mine && o <= c)) {{
            rank += 1;
            sum += other;
        }}
    }}
    if (1 + rank * mine > sum) {{
        inside += 1;
        total += mine;
    }}
}}
inside = of_block(inside, place, Add<NUMBER>());
total = of_block(total, place, Add<NUMBER>());
const NUMBER threshold = (total - 1) / (inside > 1 ? inside : 1);
{EACH} y[c * yc] = Greater<NUMBER>()(x[c * xc] - most - threshold, 0);
"""


def ranked(
    x: Any, axis: int, k: int, results: dict[str, Any], write: str, *, greatest: bool, last: bool = False,
    nan_first: bool,
) -> Thunk:  # fmt: skip
    """A call of the code `write` for each element of x, which knows its `rank` along the axis if that is less than k.

    `last`: of equal ones the last comes first. `nan_first`: NaN comes before all numbers, else behind them.
    """
    a, b = ("!=", "==") if nan_first else ("==", "!=")
    words = {
        "TYPE": stored_type(x), "SIGN": ">" if greatest else "<", "NAN_A": a, "NAN_B": b,
        "EARLIER": ">" if last else "<", "WRITE": write,
    }  # fmt: skip
    body = RANKED
    for word, meaning in words.items():
        body = body.replace(word, meaning)
    inner = prod(x.shape[axis + 1 :])
    parameters = [
        pointer("x", x), *(pointer(name, one, written=True) for name, one in results.items()),
        *sizes(x.size, count=x.size, length=x.shape[axis], inner=inner, k=k),
    ]  # fmt: skip
    return Launch(parameters, body, x.size).bind()


@kernel(Extremes, backend="cuda", rank=5)
class ExtremesKernel(Kernel):
    """Each of the first k goes to its rank, with its place."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,) = node.op, buffers.inputs
        assert isinstance(op, Extremes)
        results = {name: one for name, one in zip(("y", "places"), buffers.outputs, strict=True) if one is not None}
        values = {"y": "mine", "places": "me"}
        writes = (f"if (rank < k) {name}[(outer * k + rank) * inner + in] = {values[name]};" for name in results)
        return ranked(x, op.axis, op.k, results, " ".join(writes), greatest=op.largest, nan_first=False)


@kernel(AmongGreatest, backend="cuda", rank=5)
class AmongGreatestKernel(Kernel):
    """Whether there are fewer than k before it."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, AmongGreatest)
        return ranked(x, x.ndim - 1, op.k, {"y": y}, "y[unit] = rank < k;", greatest=True, nan_first=False)


@kernel(Hardmax, backend="cuda", rank=5)
class HardmaxKernel(Kernel):
    """Whether there is none before it."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, Hardmax)
        return ranked(x, op.axis % x.ndim, 1, {"y": y}, "y[unit] = rank < k;", greatest=True, nan_first=True)


@kernel(ArgMax, ArgMin, backend="cuda", rank=4)
class ArgExtremeKernel(Kernel):
    """The place of that which has none before it, of any numbers."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        op, (x,), (y,) = node.op, buffers.inputs, buffers.outputs
        assert isinstance(op, ArgExtreme)
        return ranked(
            x, op.axis % x.ndim, 1, {"y": y}, "if (rank < k) y[outer * inner + in] = me;",
            greatest=isinstance(op, ArgMax), last=op.last, nan_first=True,
        )  # fmt: skip


@kernel(Sparsemax, backend="cuda", rank=5)
class SparsemaxKernel(AlongAxis):
    """Each element finds by itself whether it is inside: its rank, and the sum of those up to it."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        arrays = {"x": buffers.inputs[0], "y": buffers.outputs[0]}
        return bound(SPARSEMAX, self.axis(node), arrays, node.inputs[0].dtype, ["y"])

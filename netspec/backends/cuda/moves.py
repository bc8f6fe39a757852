"""Ops that move elements: copies of whole arrays or parts of them, in any order of axes."""

from __future__ import annotations

from typing import Any

from netspec.backends import moves
from netspec.backends.cuda.elementwise import bound, copy, fill, stored_type, value_type
from netspec.backends.cuda.launch import THREADS, Launch, pointer, sizes
from netspec.backends.loops import Turn
from netspec.graph.kernel import Buffers, Kernel, Thunk, kernel
from netspec.graph.value import Node
from netspec.layers.casting import BitCastBits

TILE = 32
"""Rows and columns that a block turns at a time: it reads rows and writes columns, 32 neighbours at once both times."""
LEAST = 8
"""With fewer rows or columns most threads of a block would have nothing to do."""
# Of the tile's rows in shared memory each begins in another bank: reading a column asks all banks, once each.
TURN = """
__shared__ VALUE tile[TILE][TILE + 1];
const int side = threadIdx.x % TILE, first = threadIdx.x / TILE;
BLOCKS(unit, count) {
    const Index left = unit % wide * TILE, top = unit / wide % high * TILE, place = unit / wide / high;
    const TYPE *from = x + place / inner * x0 + place % inner * x1;
    TO *to = y + place / inner * y0 + place % inner * y1;
    for (int k = first; k < TILE; k += THREADS / TILE) {
        if (top + side < rows && left + k < columns) tile[k][side] = load(from[top + side + (left + k) * xc]);
    }
    __syncthreads();
    for (int k = first; k < TILE; k += THREADS / TILE) {
        if (top + k < rows && left + side < columns) store(to[(top + k) * yr + left + side], tile[side][k]);
    }
    __syncthreads();
}
"""


def reordered(source: Any, target: Any) -> Thunk:
    """A call that copies an array into one of the same shape that lies in another order."""
    found = Turn.of(source, target)
    if found is None or min(found.rows, found.columns) < LEAST:
        return copy(source, target)
    wide, high = -(-found.columns // TILE), -(-found.rows // TILE)
    (x0, x1, xc), (y0, y1, yr) = found.x, found.y
    parameters = [
        pointer("x", source), pointer("y", target, written=True),
        *sizes(
            max(target.size, found.places * wide * high), count=found.places * wide * high, wide=wide, high=high,
            rows=found.rows, columns=found.columns, inner=found.inner, x0=x0, x1=x1, xc=xc, y0=y0, y1=y1, yr=yr,
        ),
    ]  # fmt: skip
    words = {
        "TILE": str(TILE), "THREADS": str(THREADS), "VALUE": value_type(source), "TYPE": stored_type(source),
        "TO": stored_type(target),
    }  # fmt: skip
    body = TURN
    for word, meaning in words.items():
        body = body.replace(word, meaning)
    return Launch(parameters, body, found.places * wide * high, of_blocks=True).bind()


@kernel(BitCastBits, backend="cuda", rank=5)
class BitCastBitsKernel(Kernel):
    """A copy, as whole numbers."""

    def bind(self, node: Node, buffers: Buffers) -> Thunk:
        (x,), (y,) = buffers.inputs, buffers.outputs
        assert y is not None
        bits = f"uint{8 * x.itemsize}"
        return copy(x.view(bits), y.view(bits))


class Copier:
    """Copies as elementwise kernels, and as turned tiles."""

    copy, fill, reordered = staticmethod(copy), staticmethod(fill), staticmethod(reordered)

    def added(self, source: Any, target: Any) -> Thunk:
        """As an elementwise sum."""
        return bound(((), ("a0 + a1",)), [target, source], [target])


moves.register(Copier(), "cuda", rank=5)

"""Ops that move elements: copies of whole arrays or parts of them, with axes in any order."""

from __future__ import annotations

from typing import Any

from netspec.backends.common import copy_kernels
from netspec.backends.common.loops import TransposedCopy
from netspec.backends.cuda.kernels.elementwise import add, copy, fill, stored_type, value_type
from netspec.backends.cuda.launch import THREADS, Launch, pointer, sizes
from netspec.graph.kernel import Thunk

TILE = 32
"""Rows and columns of a tile that a block transposes: it reads rows and writes columns, both coalesced."""
LEAST = 8
"""Smallest number of rows and columns; with fewer, most threads of a block would be idle."""
# Rows of the tile in shared memory are padded, so that reading a column has no bank conflicts.
TURN = """
__shared__ VALUE tile[TILE][TILE + 1];
const int side = threadIdx.x % TILE, first = threadIdx.x / TILE;
BLOCKS(unit, count) {
    const Index left = unit % wide * TILE, top = unit / wide % high * TILE, plane = unit / wide / high;
    const TYPE *from = x + plane / inner * x0 + plane % inner * x1;
    TO *to = y + plane / inner * y0 + plane % inner * y1;
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
    """A call that copies an array into one of the same shape with another memory order."""
    tiled = TransposedCopy.of(source, target)
    if tiled is None or min(tiled.rows, tiled.columns) < LEAST:
        return copy(source, target)
    wide, high = -(-tiled.columns // TILE), -(-tiled.rows // TILE)
    (x0, x1, xc), (y0, y1, yr) = tiled.x, tiled.y
    parameters = [
        pointer("x", source), pointer("y", target, written=True),
        *sizes(
            max(target.size, tiled.matrices * wide * high), count=tiled.matrices * wide * high, wide=wide, high=high,
            rows=tiled.rows, columns=tiled.columns, inner=tiled.inner, x0=x0, x1=x1, xc=xc, y0=y0, y1=y1, yr=yr,
        ),
    ]  # fmt: skip
    replacements = {
        "TILE": TILE, "THREADS": THREADS, "VALUE": value_type(source), "TYPE": stored_type(source),
        "TO": stored_type(target),
    }  # fmt: skip
    return Launch(parameters, TURN, tiled.matrices * wide * high, of_blocks=True, replacements=replacements).bind()


class Copier:
    """Copies as elementwise kernels and as transposed tiles."""

    copy, fill, sum, reordered = staticmethod(copy), staticmethod(fill), staticmethod(add), staticmethod(reordered)


copy_kernels.register(Copier(), backend="cuda", rank=5)

"""Ops that move elements: copies of whole arrays or parts of them, in any order of axes."""

from __future__ import annotations

from typing import Any

from netspec.backends import moves
from netspec.backends.loops import Turn
from netspec.backends.numba import native
from netspec.backends.numba.elementwise import bound, copy, fill
from netspec.backends.numba.native import Pointer, Size
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

TILE = 32
"""Rows and columns turned at a time: two cache lines of float32."""


def turn(
    first: int, last: int, x: Any, y: Any, tile: int, rows: int, columns: int, inner: int,
    x0: int, x1: int, xc: int, y0: int, y1: int, yr: int,
) -> None:  # fmt: skip
    """y[i, j, r, c] = x[i, j, c, r], a band of rows r at a time; in x the rows lie side by side, in y the columns."""
    bands = (rows + tile - 1) // tile
    for unit in range(first, last):
        place = unit // bands
        a = place // inner * x0 + place % inner * x1
        b = place // inner * y0 + place % inner * y1
        top = unit % bands * tile
        bottom = min(top + tile, rows)
        for left in range(0, columns, tile):
            right = min(left + tile, columns)
            for r in range(top, bottom):
                for c in range(left, right):
                    y[b + r * yr + c] = x[a + r + c * xc]


def reordered(source: Any, target: Any) -> Thunk:
    """A call that copies an array into one of the same shape that lies in another order."""
    found = Turn.of(source, target)
    if found is None:
        return copy(source, target)
    pointers = (Pointer(DType(str(array.dtype))) for array in (source, target))
    arguments: tuple[native.Argument, ...] = (*pointers, native.Literal(TILE), *(Size(),) * 9)
    units = found.places * -(-found.rows // TILE)
    sizes = found.rows, found.columns, found.inner, *found.x, *found.y
    return native.of_function(turn, arguments).bind(units, target.size, source, target, *sizes)


class Copier:
    """Copies as compiled loops."""

    copy, fill, reordered = staticmethod(copy), staticmethod(fill), staticmethod(reordered)

    def added(self, source: Any, target: Any) -> Thunk:
        """As an elementwise sum."""
        return bound((("t = a0 + a1",), ("t",)), [target, source], [target])


moves.register(Copier(), "numba", rank=5)

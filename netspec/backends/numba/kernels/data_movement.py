"""Ops that move elements: copies of whole arrays or parts of them, with axes in any order."""

from __future__ import annotations

from typing import Any

from netspec.backends.common import copy_kernels
from netspec.backends.common.loops import TransposedCopy
from netspec.backends.numba import native
from netspec.backends.numba.kernels.elementwise import add, copy, fill
from netspec.backends.numba.native import Pointer, Size
from netspec.graph.kernel import Thunk
from netspec.graph.types import DType

TILE = 32
"""Rows and columns of a tile that is transposed: two cache lines of float32."""


def turn(
    first: int, last: int, x: Any, y: Any, tile: int, rows: int, columns: int, inner: int,
    x0: int, x1: int, xc: int, y0: int, y1: int, yr: int,
) -> None:  # fmt: skip
    """y[i, j, r, c] = x[i, j, c, r], a band of rows r at a time; x is contiguous along r, y along c."""
    bands = (rows + tile - 1) // tile
    for unit in range(first, last):
        band = unit // bands
        a = band // inner * x0 + band % inner * x1
        b = band // inner * y0 + band % inner * y1
        top = unit % bands * tile
        bottom = min(top + tile, rows)
        for left in range(0, columns, tile):
            right = min(left + tile, columns)
            for r in range(top, bottom):
                for c in range(left, right):
                    y[b + r * yr + c] = x[a + r + c * xc]


def reordered(source: Any, target: Any) -> Thunk:
    """A call that copies an array into one of the same shape with another memory order."""
    transposition = TransposedCopy.of(source, target)
    if transposition is None:
        return copy(source, target)
    pointers = (Pointer(DType(str(array.dtype))) for array in (source, target))
    arguments: tuple[native.Argument, ...] = (*pointers, native.Literal(TILE), *(Size(),) * 9)
    units = transposition.matrices * -(-transposition.rows // TILE)
    sizes = transposition.rows, transposition.columns, transposition.inner, *transposition.x, *transposition.y
    return native.of_function(turn, arguments).bind(units, target.size, source, target, *sizes)


class Copier:
    """Copies as compiled loops."""

    copy, fill, sum, reordered = staticmethod(copy), staticmethod(fill), staticmethod(add), staticmethod(reordered)


copy_kernels.register(Copier(), backend="numba", rank=5)

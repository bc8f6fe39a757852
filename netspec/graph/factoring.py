"""Which two axes of an array its sums along rows and columns are of."""

from __future__ import annotations


def factored(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The two largest axes of a parameter, rows before columns; the later ones of equal ones. None for a vector."""
    if len(shape) < 2:
        return None
    column, row = sorted(range(len(shape)), key=lambda axis: (shape[axis], axis))[:-3:-1]
    return min(row, column), max(row, column)

"""Averages of rows and columns, as Adafactor keeps them, taken along other axes: one way for reading and writing.

Keras's factor the last two axes of a parameter as it lies there, those here the two largest. Where these are the same
ones, the averages are; elsewhere they are taken anew of the second moments that they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


def second_moment(rows: NDArray[Any], columns: NDArray[Any], row: int) -> NDArray[Any]:
    """What rows and columns stand for, rows · columns / mean(rows along `row`): of the shape of both together."""
    import numpy as np

    mean = rows.mean(axis=row, keepdims=True)
    return np.asarray(rows * columns / np.where(mean == 0, 1, mean), np.float32)


def refactored(
    factors: Sequence[NDArray[Any]], second: NDArray[Any], places: Sequence[NDArray[Any]], axes: tuple[int, int]
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """The averages of rows and columns of these axes, kept with 1 place, and whether they are those that are given.

    All that is given has the parameter's shape: `factors` repeat along the axis that they are averages of, as do
    `places`, which have another number for each of the averages. Of a vector both factors are its second moments.
    """
    row, column = axes
    for one, other in ((0, 1), (1, 0)):
        if _repeats(places[one], column) and _repeats(places[other], row):
            return factors[one].take([0], column), factors[other].take([0], row), True
    whole = 1 in (second.shape[row], second.shape[column]) and bool((places[0] == places[1]).all())
    return second.mean(axis=column, keepdims=True), second.mean(axis=row, keepdims=True), whole


def numbered(array: NDArray[Any]) -> NDArray[Any]:
    """An array of this shape, each of whose numbers is another."""
    import numpy as np

    return np.arange(array.size, dtype=np.float64).reshape(array.shape)


def _repeats(array: NDArray[Any], axis: int) -> bool:
    return bool((array == array.take([0], axis)).all())

"""The cells of one column in a block of rows, whatever the file holds them as."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

if TYPE_CHECKING:
    from netspec.data.base import Array

MISSING = ("", "?", "NA", "N/A", "NaN", "null")
"""How tables write that a value is not known, where the source says nothing else; case does not count."""

Made = TypeVar("Made")


class Cells(Protocol):
    """What a column's reader asks of its cells."""

    def __len__(self) -> int: ...

    def text(self, row: int) -> str:
        """The cell in a row, without the blanks around it; empty where there is no value."""
        ...

    def numbers(self) -> Array:
        """Parse the cells as numbers, (N,) of float64; nan for a cell that is not a number."""
        ...

    def moments(self) -> Array | None:
        """Dates as (N,) of datetime64[us], NaT where there is none; None where the file holds them as text."""
        ...

    def distinct(self) -> tuple[list[str], Array]:
        """The different cells, and which of them each row has, (N,)."""
        ...


class TextCells:
    """Cells of a text."""

    def __init__(self, cells: Sequence[str]) -> None:
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    def text(self, row: int) -> str:
        return self._cells[row].strip()

    def numbers(self) -> Array:
        """Convert in C; if a cell is not a number, or is like `1_000`, each distinct cell by itself."""
        if "_" not in "".join(self._cells):
            try:
                return np.fromiter(map(float, self._cells), np.float64, len(self._cells))
            except ValueError:
                pass
        texts, which = self.distinct()
        return np.array([_number(text) for text in texts], np.float64)[which]

    def moments(self) -> Array | None:
        return None

    def distinct(self) -> tuple[list[str], Array]:
        written = dict.fromkeys(self._cells)
        texts, places = merged(written)
        index = dict(zip(written, places.tolist(), strict=True))
        return texts, np.fromiter(map(index.__getitem__, self._cells), np.intp, len(self._cells))


def _number(text: str) -> float:
    """The value of a cell; Python takes `1_000` for a number, and tables do not mean that."""
    try:
        return float("nan") if "_" in text else float(text)
    except ValueError:
        return float("nan")


def merged(cells: Iterable[str]) -> tuple[list[str], Array]:
    """The different texts that cells are without the blanks around them, and which of these each cell is."""
    places: dict[str, int] = {}
    found = [places.setdefault(cell.strip(), len(places)) for cell in cells]
    return list(places), np.array(found, np.intp)


def each_distinct(cells: Cells, make: Callable[[str], Made]) -> tuple[list[Made], Array]:
    """`make` of each different cell, and which of the results each row has."""
    texts, which = cells.distinct()
    return [make(text) for text in texts], which

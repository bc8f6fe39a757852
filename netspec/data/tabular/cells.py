"""The cells of one column in a block of rows, for any file format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.number_format import PLAIN, NumberFormat

Made = TypeVar("Made")


class Cells(Protocol):
    """The cells of a column, as its reader accesses them."""

    boolean: bool
    """Whether the file stores the cells as booleans."""
    is_number: bool
    """Whether the file stores the cells as numbers or booleans, not as text."""

    def __len__(self) -> int: ...

    def text(self, row: int) -> str:
        """Return the cell in a row without surrounding blanks; empty if there is no value."""
        ...

    def numbers(self, format: NumberFormat = PLAIN) -> Array:
        """Parse the cells as numbers, (N,) of float64; nan for a cell that is not a number."""
        ...

    def moments(self) -> Array | None:
        """Return dates, (N,) of datetime64[us], NaT for missing ones; None if the file stores them as text."""
        ...

    def distinct(self) -> tuple[list[str], Array]:
        """Return the distinct cells, and the index of each row's cell among them, (N,)."""
        ...

    def values(self) -> list[Any]:
        """Return the cells as values of the types that the file stores; None for a missing one."""
        ...


class TextCells:
    """Cells of a text file."""

    boolean = is_number = False

    def __init__(self, cells: Sequence[str]) -> None:
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    def text(self, row: int) -> str:
        return self._cells[row].strip()

    def numbers(self, format: NumberFormat = PLAIN) -> Array:
        """Parse in C; if a cell is not a plain number, or is like `1_000`, parse each distinct cell separately."""
        if format.is_plain and "_" not in "".join(self._cells):
            try:
                return np.fromiter(map(float, self._cells), np.float64, len(self._cells))
            except ValueError:
                pass
        texts, text_indices = self.distinct()
        return np.array([_number(format.plain(text)) for text in texts], np.float64)[text_indices]

    def moments(self) -> Array | None:
        return None

    def values(self) -> list[Any]:
        return [cell.strip() for cell in self._cells]

    def distinct(self) -> tuple[list[str], Array]:
        written = dict.fromkeys(self._cells)
        texts, positions = merged(written)
        index = dict(zip(written, positions.tolist(), strict=True))
        return texts, np.fromiter(map(index.__getitem__, self._cells), np.intp, len(self._cells))


def _number(text: str) -> float:
    """Return the value of a cell. Python accepts `1_000` as a number, which tables do not mean."""
    try:
        return float("nan") if "_" in text else float(text)
    except ValueError:
        return float("nan")


def merged(cells: Iterable[str]) -> tuple[list[str], Array]:
    """Return the distinct texts of cells without surrounding blanks, and the index of each cell among them."""
    positions: dict[str, int] = {}
    indices = [positions.setdefault(cell.strip(), len(positions)) for cell in cells]
    return list(positions), np.array(indices, np.intp)


def each_distinct(cells: Cells, make: Callable[[str], Made]) -> tuple[list[Made], Array]:
    """Apply `make` to each distinct cell; return the results and the index of each row's result."""
    texts, text_indices = cells.distinct()
    return [make(text) for text in texts], text_indices

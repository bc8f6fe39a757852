"""The first rows of a table: what `netspec check` reads of a large file."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.table_file import RowBlock

if TYPE_CHECKING:
    from netspec.data.tabular.row_errors import LocateCell
    from netspec.data.tabular.table_file import TableFile
    from netspec.errors import Location


class TableHead:
    """The rows of `TableFile.head`, with the interface of a `TableFile`."""

    digest = ""

    def __init__(self, file: TableFile) -> None:
        self._file = file
        self.path, self.title, self.names, self.named = file.path, file.title, file.names, file.named
        self._locate: LocateCell = lambda row, _: f"{self.path.name}, row {row + 1}"
        self.rows = 0
        """Number of rows, once they have been read."""
        self.is_whole = False
        """Whether these are all rows of the file."""

    def head(self, columns: Sequence[int]) -> tuple[RowBlock, bool]:
        """Return the rows."""
        block, self.is_whole = self._file.head(columns)
        self.rows, self._locate = len(block), block.locate
        return block, self.is_whole

    def blocks(self, columns: Sequence[int]) -> Generator[RowBlock]:
        """Yield the rows as one block."""
        block, _ = self.head(columns)
        if block.rows:
            yield block

    def pages(self) -> Array:
        """Return the bounds of the only page."""
        return np.array([0, self.rows])

    def read(self, start: int, stop: int, columns: Sequence[int]) -> RowBlock:
        """Return all rows, the only page."""
        return self.head(columns)[0]

    def describe(self, row: int) -> str:
        """Return the location of a row."""
        where = self._locate(row, None)
        return where if isinstance(where, str) else f"{self.path.name}, line {where.line}"

    def heading(self, column: int) -> Location | None:
        """Return the location of a column's name."""
        return self._file.heading(column)

    def other_delimiter(self, text: str) -> str | None:
        """Return a hint if the text is a line that was meant to be several cells."""
        return self._file.other_delimiter(text)

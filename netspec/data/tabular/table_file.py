"""`TableFile`: the interface of a file of rows, for any format."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from netspec.data.base import Array
from netspec.data.tabular.cells import TextCells
from netspec.errors import Location

if TYPE_CHECKING:
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.row_errors import LocateCell


@dataclass(frozen=True)
class Fault:
    """A problem of a complete row."""

    row: int
    """Index of the row in the block."""
    message: str
    expected: str
    got: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows."""

    rows: int
    cells: Sequence[Cells]
    """The cells of the requested columns, in their order."""
    locate: LocateCell
    faults: Sequence[Fault] = ()

    def __len__(self) -> int:
        return self.rows


class TableFile(Protocol):
    """A file whose rows are counted from 0, without the header, comments and blank lines."""

    path: Path
    title: str
    """Name of the table in messages: its path, or `the table` for rows in memory."""
    names: Sequence[str]
    """The columns, by the names in the file or by their numbers from 1."""
    named: bool
    """Whether these are names."""

    @property
    def digest(self) -> str:
        """Fingerprint of the complete content, once the iterator of `blocks` has ended or was closed."""
        ...

    def blocks(self, columns: Sequence[int]) -> Generator[RowBlock]:
        """Yield all rows, once, before any row is read again. Raises `InputError` if reading ends early."""
        ...

    def head(self, columns: Sequence[int]) -> tuple[RowBlock, bool]:
        """Return the first rows, a few thousand at most, and whether these are all. Raises `InputError`."""
        ...

    def pages(self) -> Array:
        """Return the first row of each page, and at the end the number of rows."""
        ...

    def read(self, start: int, stop: int, columns: Sequence[int]) -> RowBlock:
        """Yield rows from `start` to before `stop`, bounds of pages. Raises `InputError` if the file changed."""
        ...

    def describe(self, row: int) -> str:
        """Return the location of a row: `train.csv, line 13`."""
        ...

    def heading(self, column: int) -> Location | None:
        """Return the location of a column's name; None if it is not in a text."""
        ...

    def other_delimiter(self, text: str) -> str | None:
        """Return a hint if the text is a line that was meant to be several cells."""
        ...


class WithEmptyColumns:
    """A file with further columns, `added`, whose cells are empty; with the interface of a `TableFile`."""

    def __init__(self, file: TableFile, added: Sequence[str]) -> None:
        self._file = file
        self.path, self.title, self.named = file.path, file.title, file.named
        self.names: Sequence[str] = (*file.names, *added)

    @property
    def digest(self) -> str:
        """Return the fingerprint of the content."""
        return self._file.digest

    def blocks(self, columns: Sequence[int]) -> Generator[RowBlock]:
        """Yield all rows."""
        start = 0
        for block in self._file.blocks(self._of_file(columns)):
            yield self._completed(block, start, columns)
            start += len(block)

    def head(self, columns: Sequence[int]) -> tuple[RowBlock, bool]:
        """Return the first rows."""
        block, is_whole = self._file.head(self._of_file(columns))
        return self._completed(block, 0, columns), is_whole

    def pages(self) -> Array:
        """Return the bounds of the pages."""
        return self._file.pages()

    def read(self, start: int, stop: int, columns: Sequence[int]) -> RowBlock:
        """Return the rows of a page."""
        return self._completed(self._file.read(start, stop, self._of_file(columns)), start, columns)

    def describe(self, row: int) -> str:
        """Return the location of a row."""
        return self._file.describe(row)

    def heading(self, column: int) -> Location | None:
        """Return the location of a column's name; None for an added one."""
        return self._file.heading(column) if column < len(self._file.names) else None

    def other_delimiter(self, text: str) -> str | None:
        """Return the hint of the file."""
        return self._file.other_delimiter(text)

    def _of_file(self, columns: Sequence[int]) -> list[int]:
        return [column for column in columns if column < len(self._file.names)]

    def _completed(self, block: RowBlock, start: int, columns: Sequence[int]) -> RowBlock:
        """Return a block, which begins at the row `start`, with the cells of added columns."""
        of_file, empty = iter(block.cells), TextCells([""] * len(block))
        cells = [next(of_file) if column < len(self._file.names) else empty for column in columns]
        return replace(block, cells=cells)


class RowsInMemory(WithEmptyColumns):
    """A temporary file of rows in memory: messages have the number of a row, and no name of a file."""

    def __init__(self, file: TableFile, added: Sequence[str], *, has_keys: bool) -> None:
        super().__init__(file, added)
        self.title, self._has_keys = "the table", has_keys

    def describe(self, row: int) -> str:
        """Return the number of a row."""
        return f"row {row + 1}"

    def heading(self, column: int) -> Location | None:
        """Return None: the names of the columns have no location."""
        return None

    def other_delimiter(self, text: str) -> str | None:
        """Return the hint of the file; None for rows with keys, whose cells were never a text."""
        return None if self._has_keys else super().other_delimiter(text)

    def _completed(self, block: RowBlock, start: int, columns: Sequence[int]) -> RowBlock:
        completed = super()._completed(block, start, columns)
        return replace(completed, locate=lambda row, _: self.describe(start + row))

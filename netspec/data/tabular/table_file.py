"""`TableFile`: what the dataset asks of a file of rows, whatever its format."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from netspec.errors import Location

if TYPE_CHECKING:
    from netspec.data.base import Array
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.row_errors import Place


@dataclass(frozen=True)
class Fault:
    """A problem of a complete row."""

    row: int
    """Which of the block."""
    message: str
    expected: str
    got: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class Block:
    """Some rows that follow each other."""

    rows: int
    cells: Sequence[Cells]
    """Of the columns asked for, in that order."""
    place: Place
    faults: Sequence[Fault] = ()

    def __len__(self) -> int:
        return self.rows


class TableFile(Protocol):
    """A file whose rows are counted from 0, without the header, comments and blank lines."""

    path: Path
    names: Sequence[str]
    """The columns, by the names in the file or by their numbers from 1."""
    named: bool
    """Whether these are names."""
    digest: str
    """Fingerprint of the complete content, once the iterator of `blocks` has ended or was closed."""

    def blocks(self, columns: Sequence[int]) -> Generator[Block]:
        """All rows, to be gone through once before anything is read again. Raises InputError where that ends early."""
        ...

    def pages(self) -> Array:
        """The first row of each part that is read at a time, and behind the last how many rows there are."""
        ...

    def read(self, start: int, stop: int, columns: Sequence[int]) -> Block:
        """Rows from `start` to before `stop`, which are bounds of pages. Raises InputError if the file changed."""
        ...

    def describe(self, row: int) -> str:
        """Where a row is: `train.csv, line 13`."""
        ...

    def heading(self, column: int) -> Location | None:
        """Where the name of a column stands; None where no text has it."""
        ...

    def other_delimiter(self, text: str) -> str | None:
        """A hint, if the text is a line that was to be several cells."""
        ...

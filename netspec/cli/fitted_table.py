"""Tables that leave out the columns that do not fit a terminal."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from netspec.cli.output import table
from netspec.errors import listing

EDGES, GAP = 2, 3
"""Characters of a terminal's line around the table, and between two columns."""


@dataclass(frozen=True)
class FittedColumn:
    """A column of a table: its name and the text of each row."""

    name: str
    cells: list[str]
    rank: int = 0
    """Columns of rank 0 are always shown; of the others, those of low rank first."""
    is_number: bool = True

    @property
    def header(self) -> str:
        """The name in lines that are as short as the cells, if it has several parts."""
        width, lines = max(map(len, self.cells)), [""]
        for part in re.split(r"(?<=[./_ ])(?=[^./_ ])", self.name):
            if lines[-1] and len(lines[-1]) + len(part) > width:
                lines.append("")
            lines[-1] += part
        return "\n".join(line.rstrip() for line in lines)

    @property
    def width(self) -> int:
        """Number of characters of the longest line."""
        return max(map(len, [*self.header.splitlines(), *self.cells]))


def print_fitted(columns: Sequence[FittedColumn], *, complete_in: str) -> None:
    """Print a table of the columns that fit, and the names of the others. Files and pipes get all columns.

    `complete_in` names the options whose output has all columns.
    """
    terminal = sys.stdout.isatty()
    shown = _fitting(columns, shutil.get_terminal_size().columns) if terminal else list(columns)
    table(
        [column.header if terminal else column.name for column in shown],
        list(zip(*(column.cells for column in shown), strict=True)),
        right=[at for at, column in enumerate(shown) if column.is_number],
    )
    if left_out := [column.name for column in columns if column not in shown]:
        print(f"columns not shown: {listing(left_out, 8)}; use {complete_in} for all")


def _fitting(columns: Sequence[FittedColumn], width: int) -> list[FittedColumn]:
    """Return the columns of lowest rank that fit a terminal together, in their order."""
    chosen, used = [], EDGES - GAP
    for column in sorted(columns, key=lambda column: column.rank):
        if column.rank == 0 or used + GAP + column.width <= width:
            chosen.append(column)
            used += GAP + column.width
    return [column for column in columns if column in chosen]

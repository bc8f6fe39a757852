"""What is wrong with the rows of a table: collected up to a bound, told with file, line and column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from netspec.errors import InputError, Location, Problem, by_place, counted

if TYPE_CHECKING:
    from netspec.data.base import Array

MOST_PROBLEMS = 100
"""Reading stops after this many different ones."""
MOST_ALIKE = 5
"""Rows shown per message; the others are counted: a wrong delimiter makes every row wrong."""

Place = Callable[[int, int | None], Location | str]
"""Where a row of a block is, or its cell in a column: a place in a text, or words such as `t.parquet, row 3`."""


@dataclass
class Faults:
    """The problems found in the rows of a file so far; with `skip`, of rows that are left out, the first few."""

    path: Path
    skip: bool = False
    problems: list[Problem] = field(default_factory=list)
    alike: Counter[str] = field(default_factory=Counter)
    """How often each message was reported."""

    @property
    def full(self) -> bool:
        """Whether enough was found to stop reading."""
        return not self.skip and len(self.problems) >= MOST_PROBLEMS

    def raise_found(self) -> None:
        """Raise InputError with all that was noted, in the order of the file, and how many more of each kind."""
        if self.skip or not self.problems:
            return
        more = {message: number - MOST_ALIKE for message, number in self.alike.items() if number > MOST_ALIKE}
        counts = [Problem(f"{self.path}: {counted(number, 'more row')}: {one}") for one, number in more.items()]
        raise InputError([*sorted(self.problems, key=by_place), *counts])


class BlockFaults:
    """The faults of one block of rows, and which rows have any."""

    def __init__(self, faults: Faults, rows: int, place: Place) -> None:
        self._faults = faults
        self._place = place
        self.bad = np.zeros(rows, bool)
        self._whole = np.zeros(rows, bool)
        """Rows that are wrong as a whole: nothing is said of their cells."""

    def add(
        self,
        rows: Iterable[int] | Array,
        column: int | None,
        message: str,
        *,
        expected: str | None = None,
        got: Callable[[int], str] | str | None = None,
        hint: str | None = None,
    ) -> None:
        """Note the same about some rows of the block, in a column or as a whole; `got` may ask for the row."""
        found = np.asarray(rows, np.intp)
        if column is None:
            self._whole[found] = True
        else:
            found = found[~self._whole[found]]
        self.bad[found] = True
        before = len(self._faults.problems) if self._faults.skip else self._faults.alike[message]
        self._faults.alike[message] += len(found)
        for row in found[: max(0, MOST_ALIKE - before)].tolist():
            if self._faults.full:
                return
            text = got(row) if callable(got) else got
            self._faults.problems.append(self.problem(row, column, message, expected=expected, got=text, hint=hint))

    def problem(
        self, row: int, column: int | None, message: str, *, expected: str | None, got: str | None, hint: str | None
    ) -> Problem:
        """What is said of a row, with its place; it is not noted."""
        where = self._place(row, column)
        if isinstance(where, str):
            return Problem(f"{where}: {message}", expected=expected, got=got, hint=hint)
        return Problem(message, where, expected=expected, got=got, hint=hint)

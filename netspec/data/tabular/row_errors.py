"""Problems in the rows of a table: collected up to a limit, with file, line and column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from netspec.data.base import Array
from netspec.errors import InputError, Location, Problem, and_more, by_location, counted

MAX_PROBLEMS = 100
"""Reading stops after this many different problems."""
MAX_ALIKE = 5
"""Rows listed per message; the others are counted, since a wrong delimiter makes every row wrong."""

LocateCell = Callable[[int, int | None], Location | str]
"""Location of a row or of its cell in a column: a location in a text, or words such as `t.parquet, row 3`."""


def describe_missing(rows: Mapping[str, Sequence[int]]) -> str:
    """Return which columns have no value in which rows, counted from 0: "`age` is missing in rows 3, 8"."""
    return "; ".join(
        f"`{name}` is missing in row{'s' * (len(of_column) > 1)} "
        f"{', '.join(f'{row + 1:,}' for row in of_column[:MAX_ALIKE])}{and_more(len(of_column) - MAX_ALIKE)}"
        for name, of_column in rows.items()
    )


def describe_unknown(values: Mapping[str, Mapping[str, int]]) -> str:
    """Return which columns have which values that the training data does not have, and in how many rows."""
    return "; ".join(
        f"{counted(count := sum(rows.values()), 'row')} of `{name}` {'has' if count == 1 else 'have'} values that the "
        f"training data does not have, such as {max(rows, key=lambda value: rows[value])!r}"
        for name, rows in values.items()
    )


@dataclass
class Faults:
    """The problems found in the rows of a file so far; with `skip`, the first few of the rows that are left out."""

    title: str
    """Name of the table in messages."""
    skip: bool = False
    problems: list[Problem] = field(default_factory=list)
    alike: Counter[str] = field(default_factory=Counter)
    """Number of times that each message was reported."""
    values: dict[tuple[str, int], int] = field(default_factory=dict)
    """Index in `problems` of each value that is reported once, by message and column."""
    value_rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Number of rows with each of these values."""

    @property
    def full(self) -> bool:
        """Whether enough problems were found to stop reading."""
        return not self.skip and len(self.problems) >= MAX_PROBLEMS

    def raise_found(self) -> None:
        """Raise `InputError` with all problems, in the order of the file, and the number of further ones by kind."""
        if self.skip or not self.problems:
            return
        problems = list(self.problems)
        for value, index in self.values.items():
            if self.value_rows[value] > 1:
                got = f"{counted(self.value_rows[value], 'row')} with it; this is the first"
                problems[index] = replace(problems[index], got=got)
        more = {message: number - MAX_ALIKE for message, number in self.alike.items() if number > MAX_ALIKE}
        counts = [
            Problem(f"{self.title}: {counted(number, 'more row')}: {message}") for message, number in more.items()
        ]
        raise InputError([*sorted(problems, key=by_location), *counts])


class BlockFaults:
    """The faults of one block of rows, and the rows that have any."""

    def __init__(self, faults: Faults, rows: int, locate: LocateCell) -> None:
        self._faults = faults
        self._locate = locate
        self.bad = np.zeros(rows, bool)
        self._failed_rows = np.zeros(rows, bool)
        """Rows that are wrong as a whole: their cells are not reported."""

    def add(
        self,
        rows: Iterable[int] | Array,
        column: int | None,
        message: str,
        *,
        expected: str | None = None,
        got: Callable[[int], str] | str | None = None,
        hint: Callable[[int], str | None] | str | None = None,
    ) -> None:
        """Record a problem of rows of the block, in a column or as a whole; `got` and `hint` may depend on the row."""
        rows_at_fault = self._marked(rows, column)
        before = len(self._faults.problems) if self._faults.skip else self._faults.alike[message]
        self._faults.alike[message] += len(rows_at_fault)
        for row in rows_at_fault[: max(0, MAX_ALIKE - before)].tolist():
            if self._faults.full:
                return
            text, advice = (fact(row) if callable(fact) else fact for fact in (got, hint))
            self._faults.problems.append(self.problem(row, column, message, expected=expected, got=text, hint=advice))

    def add_value(
        self, rows: Iterable[int] | Array, column: int, message: str, *, expected: str | None, hint: str | None
    ) -> None:
        """Record a value that is wrong in all these rows, to report it once: at the first, with their number."""
        if self._faults.skip:
            self.add(rows, column, message, expected=expected, hint=hint)
            return
        rows_at_fault = self._marked(rows, column)
        value = (message, column)
        if len(rows_at_fault) and value not in self._faults.values and not self._faults.full:
            self._faults.values[value] = len(self._faults.problems)
            first = self.problem(int(rows_at_fault[0]), column, message, expected=expected, got=None, hint=hint)
            self._faults.problems.append(first)
        self._faults.value_rows[value] += len(rows_at_fault)

    def _marked(self, rows: Iterable[int] | Array, column: int | None) -> Array:
        """Mark rows as wrong, or as wrong as a whole without a column; return those whose cells are reported."""
        marked = np.asarray(rows, np.intp)
        if column is None:
            self._failed_rows[marked] = True
        else:
            marked = marked[~self._failed_rows[marked]]
        self.bad[marked] = True
        return marked

    def problem(
        self, row: int, column: int | None, message: str, *, expected: str | None, got: str | None, hint: str | None
    ) -> Problem:
        """Return the problem of a row with its location, without recording it."""
        where = self._locate(row, column)
        if isinstance(where, str):
            return Problem(f"{where}: {message}", expected=expected, got=got, hint=hint)
        return Problem(message, where, expected=expected, got=got, hint=hint)

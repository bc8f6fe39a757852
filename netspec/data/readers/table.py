"""Text tables (CSV) as a vector of numbers and a label per row; every bad cell is reported with its place."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.files import fingerprint, read_bytes
from netspec.data.readers.arrays import ArrayDataset
from netspec.errors import InputError, Location, Problem, counted, did_you_mean, listing

if TYPE_CHECKING:
    from netspec.data.base import Array

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""How tables write that a value is not known; case does not count."""

MOST_PROBLEMS = 100
"""Reading stops after so many different ones."""
MOST_ALIKE = 5
"""So many with the same message are shown; the others are counted: a wrong delimiter makes every row wrong."""

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True)
class TableOptions:
    """How a table is read; see the source `csv` for the meaning."""

    header: bool
    columns: Sequence[int | str] | None = None
    label: int | str | None = None
    classes: Sequence[str] | None = None
    delimiter: str = ","
    missing: float | None = None


@dataclass
class _Row:
    line: int
    cells: list[str]


@dataclass
class _Table:
    """The text of a file, and the problems found in it so far."""

    path: Path
    text: str
    delimiter: str
    problems: list[Problem] = field(default_factory=list)
    text_columns: set[int] = field(default_factory=set)
    """Columns that begin with text: that is one mistake, not one a row."""
    alike: Counter[str] = field(default_factory=Counter)
    """How often each message was reported."""

    def rows(self) -> Iterator[_Row]:
        """All rows that are not blank, cells stripped, up to a row that cannot be split."""
        reader = csv.reader(
            io.StringIO(self.text, newline=""),
            delimiter=self.delimiter,
            skipinitialspace=self.delimiter != " ",
            strict=True,
        )
        line = 1
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells) or len(cells) > 1:
                    yield _Row(line, [cell.strip() for cell in cells])
                line = reader.line_num + 1
        except csv.Error as error:
            self.report(line, None, "this row cannot be read", expected="cells in matching quotes", got=str(error))

    def report(self, line: int, cell: int | None, message: str, **facts: Any) -> None:
        """Note a `Problem` at a cell (counted from 0) of the row that starts in `line`, or at the row as a whole."""
        self.alike[message] += 1
        if self.alike[message] > MOST_ALIKE:
            return
        lines = list(io.StringIO(self.text, newline=""))
        text = lines[line - 1].rstrip("\r\n") if line <= len(lines) else ""
        column = 1
        if cell and '"' not in text:
            before = text.split(self.delimiter)[:cell]
            rest = text[sum(map(len, before)) + cell :]
            column = len(text) - len(rest.lstrip()) + 1
        self.problems.append(Problem(message, Location(str(self.path), line, column, text), **facts))

    def found(self) -> list[Problem]:
        """All that was noted, and how many more of each kind there were."""
        more = {message: number - MOST_ALIKE for message, number in self.alike.items() if number > MOST_ALIKE}
        counts = [Problem(f"{self.path}: {counted(number, 'more row')}: {one}") for one, number in more.items()]
        return self.problems + counts


def open_table(path: Path, options: TableOptions) -> ArrayDataset:
    """The rows as fields `features` (columns,) of float32 and `label` () if asked for; InputError tells all faults."""
    raw = read_bytes(path)
    table = _Table(path, _decoded(path, raw), options.delimiter)
    rows = table.rows()
    first = next(rows, None)
    names = _names(table, first, options)
    wanted, label = _columns(table, names, options)
    body = rows if options.header or first is None else _chain(first, rows)
    lines, features, labels = _cells(table, body, names, wanted, label, options)
    arrays: dict[str, Array] = {}
    classes: dict[str, tuple[str, ...]] = {}
    if wanted:
        arrays["features"] = np.array(features, np.float32).reshape(len(lines), len(wanted))
    if label is not None and not table.problems:
        arrays["label"], found = _labels(table, names[label], labels, lines, label, options.classes)
        if found is not None:
            classes["label"] = found
    if not lines and not table.problems:
        table.problems.append(
            Problem(f"{path} has no rows", expected="one row or more below the header" if options.header else "rows")
        )
    if table.problems:
        raise InputError(table.found())
    return ArrayDataset(
        arrays,
        digest=fingerprint(raw),
        describe=lambda index: f"{path.name}, line {lines[index]}",
        classes=classes,
    )


def _decoded(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path} is not UTF-8 text",
            expected="text in UTF-8",
            got=f"the byte {raw[error.start]:#04x} in line {line}",
        ) from None


def _chain(first: _Row, rest: Iterator[_Row]) -> Iterator[_Row]:
    yield first
    yield from rest


def _names(table: _Table, first: _Row | None, options: TableOptions) -> list[str]:
    """What the columns are called in messages, and in the spec if there is a header."""
    if first is None:
        if not table.problems:
            table.problems.append(Problem(f"{table.path} is empty", expected="a table"))
        raise InputError(table.problems)
    return first.cells if options.header else [str(number + 1) for number in range(len(first.cells))]


def _columns(table: _Table, names: list[str], options: TableOptions) -> tuple[list[int], int | None]:
    """The columns of the features and of the label, counted from 0. Raises InputError for those that are not there."""
    problems: list[Problem] = []
    single = _other_delimiter(table, names[0]) if len(names) == 1 else None
    if options.header and not _by_number(options):
        _refuse_twins(table, names)

    def find(column: int | str, place: str) -> int:
        if isinstance(column, int):
            if column <= len(names):
                return column - 1
            problems.append(
                Problem(f"{table.path} has no column {column}", path=place, expected=f"a number from 1 to {len(names)}")
            )
        elif not options.header:
            problems.append(
                Problem(
                    f"column {column!r} is named, but the table has no header",
                    path=place,
                    expected=f"a number from 1 to {len(names)}",
                    hint="if the first line does hold names, set `header: true`",
                )
            )
        elif column not in names:
            problems.append(
                Problem(
                    f"{table.path} has no column {column!r}",
                    path=place,
                    expected=f"one of {listing(names)}",
                    hint=did_you_mean(column, names) or single,
                )
            )
        else:
            return names.index(column)
        return 0

    label = None if options.label is None else find(options.label, "label")
    if options.columns is None:
        wanted = [number for number in range(len(names)) if number != label]
    else:
        wanted = [find(column, f"columns.{number}") for number, column in enumerate(options.columns)]
    if problems:
        raise InputError(problems)
    return wanted, label


def _by_number(options: TableOptions) -> bool:
    """Whether the spec says by number which columns it means, so that their names make no difference."""
    asked = [*(options.columns or ["all"]), *([] if options.label is None else [options.label])]
    return all(isinstance(column, int) for column in asked)


def _refuse_twins(table: _Table, names: list[str]) -> None:
    """Raise InputError where two columns have one name; blank ones, as of a table's index, are no names."""
    twins = [name for name, number in Counter(names).items() if number > 1 and name]
    for name in twins:
        table.report(
            1,
            len(names) - 1 - names[::-1].index(name),
            f"two columns are called {name!r}",
            expected="a name of its own for each column",
            hint="with `columns` and `label` by number their names make no difference",
        )
    if twins:
        raise InputError(table.problems)


def _cells(
    table: _Table, rows: Iterator[_Row], names: list[str], wanted: list[int], label: int | None, options: TableOptions
) -> tuple[list[int], list[list[float]], list[str]]:
    """Line number, features and label text of each row."""
    lines: list[int] = []
    features: list[list[float]] = []
    labels: list[str] = []
    for row in rows:
        if len(table.problems) >= MOST_PROBLEMS:
            break
        if len(row.cells) != len(names):
            single = names if len(names) == 1 else row.cells[: len(row.cells) == 1]
            where = "in the header" if options.header else "in the first row"
            table.report(
                row.line,
                None,
                f"this row has {len(row.cells)} cell{'s' * (len(row.cells) != 1)}",
                expected=f"{len(names)}, as {where}",
                hint=_other_delimiter(table, "".join(single)),
            )
            continue
        lines.append(row.line)
        if len(lines) == 1:
            table.text_columns.update(_text_columns(table, row, wanted, names))
        features.append([_feature(table, row, column, names[column], options.missing) for column in wanted])
        if label is not None:
            labels.append(row.cells[label])
    return lines, features, labels


def _other_delimiter(table: _Table, cell: str) -> str | None:
    """A hint for a line that is a single cell: which delimiter stands in it."""
    for other, written in ((";", '";"'), ("\t", '"\\t"'), ("|", '"|"'), (",", '","'), (" ", '" "')):
        if other != table.delimiter and other in cell:
            return f"the line is a single cell: for this file set `delimiter: {written}`"
    return None


def _number(text: str) -> float | None:
    """The value of a cell, or None if it is not a number; the underscores that Python allows are not numbers here."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _text_columns(table: _Table, row: _Row, wanted: list[int], names: list[str]) -> list[int]:
    """The wanted columns that hold text in the first row, reported."""
    found = [
        column for column in wanted if row.cells[column].lower() not in MISSING and _number(row.cells[column]) is None
    ]
    for column in found:
        hint = _other_delimiter(table, row.cells[column]) if len(names) == 1 else None
        hint = hint or "leave columns of text out of `columns`"
        got = repr(row.cells[column])
        table.report(row.line, column, f"column `{names[column]}` holds text", expected="numbers", got=got, hint=hint)
    return found


def _feature(table: _Table, row: _Row, column: int, name: str, missing: float | None) -> float:
    text = row.cells[column]
    if text.lower() in MISSING:
        if missing is None:
            table.report(
                row.line,
                column,
                f"column `{name}` has no value here",
                expected="a number",
                got=repr(text) if text else "an empty cell",
                hint="`missing: 0` puts 0, or any number you choose, in place of missing values",
            )
        return 0.0 if missing is None else missing
    value = _number(text)
    if value is None:
        if column not in table.text_columns:
            table.report(row.line, column, f"column `{name}` has text here", expected="a number", got=repr(text))
        return 0.0
    if not abs(value) <= _FLOAT32_MAX:  # nan is no less than anything
        table.report(row.line, column, f"column `{name}` has a number that float32 cannot hold", got=text)
        return 0.0
    return value


def _labels(
    table: _Table, name: str, texts: list[str], lines: list[int], column: int, declared: Sequence[str] | None
) -> tuple[Array, tuple[str, ...] | None]:
    """The labels as an array, and the class names if they are names. Faults are noted in the table."""
    cells = list(zip(texts, lines, strict=True))
    if declared is None and any(_finite(text) is not None for text in texts):
        return _numbers(table, name, cells, column), None
    missing = MISSING if declared is None else MISSING.difference(map(str.lower, declared))
    classes = tuple(declared or sorted({text for text in texts if text.lower() not in missing}))
    index = {text: number for number, text in enumerate(classes)}
    for text, line in cells:
        if text in index or len(table.problems) >= MOST_PROBLEMS:
            continue
        if text.lower() in missing:
            _report_missing_label(table, name, text, line, column)
        else:
            expected, hint = f"one of {listing(classes)}", did_you_mean(text, classes)
            table.report(line, column, f"{text!r} is not a declared class", expected=expected, hint=hint)
    return np.array([index.get(text, 0) for text in texts], np.int32), classes


def _numbers(table: _Table, name: str, cells: list[tuple[str, int]], column: int) -> Array:
    """Labels that are numbers: int32 if all are whole, else float32."""
    values = [_finite(text) for text, _ in cells]
    for value, (text, line) in zip(values, cells, strict=True):
        if value is not None or len(table.problems) >= MOST_PROBLEMS:
            continue
        if text.lower() in MISSING:
            _report_missing_label(table, name, text, line, column)
        else:
            table.report(
                line,
                column,
                f"the label `{name}` is not a number here, as it is in other rows",
                expected="a finite number",
                got=repr(text),
                hint="if the labels are names of classes, declare them in `classes`",
            )
    known = [value or 0.0 for value in values]
    whole = all(value.is_integer() and int(value) in _INT32 for value in known)
    return np.array(known, np.int32 if whole else np.float32)


def _finite(text: str) -> float | None:
    """The value of a cell if it is a number that float32 can hold."""
    value = _number(text)
    return value if value is not None and abs(value) <= _FLOAT32_MAX else None


def _report_missing_label(table: _Table, name: str, text: str, line: int, column: int) -> None:
    got = repr(text) if text else "an empty cell"
    table.report(line, column, f"there is no label `{name}` here", expected="a label in every row", got=got)

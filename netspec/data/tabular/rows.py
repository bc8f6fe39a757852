"""Rows of a table that belong to each part of a divided source, and their times and series."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Array, located_at
from netspec.data.hold_out import check_division, indices_of, moments_of
from netspec.data.tabular.columns.base import LABEL, texts_for_missing
from netspec.data.tabular.columns.date import Date
from netspec.data.tabular.row_times import RowTimes
from netspec.errors import InputError, did_you_mean, listing

if TYPE_CHECKING:
    from netspec.data.tabular.head import TableHead
    from netspec.data.tabular.source import TableSource
    from netspec.data.tabular.table_file import TableFile
    from netspec.schema.specs.hold_out import HoldOut


def rows_of_part(source: TableSource, file: TableFile, times: RowTimes | None = None) -> Array | None:
    """Return which rows of a file belong to the split, (N,) of bool; None if all do. Reads the columns to divide by.

    `times`: result of `times_of_windows`, so that the column is read once.

    Rows are divided as they are in the file, before damaged rows and rows with missing values are left out.
    """
    if source.hold_out is None:
        return None
    with located_at(source, "split"):
        table = _Rows(source, file, source.hold_out, None if times is None else times.values)
        rows = np.zeros(len(table), bool)
        rows[indices_of(with_time_format(source.hold_out, source), source.split_name, table)] = True
    return rows


def check_rows(source: TableSource, file: TableHead) -> None:
    """Raise `InputError` if the first rows of a file show that they cannot be divided, or are not in their order."""
    times = times_of_windows(source, file, groups_of_windows(source, file), file.title)
    if source.hold_out is None:
        return
    with located_at(source, "split"):
        table = _Rows(source, file, source.hold_out, None if times is None else times.values)
        check_division(with_time_format(source.hold_out, source), table, are_all=file.is_whole)


def with_time_format(hold_out: HoldOut, source: TableSource) -> HoldOut:
    """Return `hold_out` with the declared format of the time column, unless `hold_out` itself has a format."""
    declared = source.columns.get(hold_out.time or "") if isinstance(source.columns, Mapping) else None
    if hold_out.time_format is not None or not isinstance(declared, Date):
        return hold_out
    return hold_out.model_copy(update={"time_format": declared.format})


def times_of_windows(source: TableSource, file: TableFile, groups: Array | None, title: str) -> RowTimes | None:
    """Return the times of the rows of a time series; None if no column is known to have them. Reads one column.

    `groups` is the series of each row, `title` the name of the table in messages. Raises `InputError` if times cannot
    be read, or rows are not in chronological order.
    """
    division = source.division
    if source.windows is None or division is None or division.time is None:
        return None
    column = division.time
    division, of_other_files = with_time_format(division, source), source.hold_out is None
    if of_other_files and column not in file.names:
        return None  # predictions need no times
    with located_at(source, "split", "time"):
        table = _Rows(source, file, division)
        values = table.values_of(column)
        try:
            moments, format_ = _moments_and_format(table, values, division.time_format, other_formats=of_other_files)
        except InputError as error:
            if not of_other_files:
                raise
            advice = "if the rows are in chronological order, the column may be left out"
            raise InputError([
                replace(problem, message=f"`{column}` in {title}: {problem.message}", hint=advice, path="")
                for problem in error.problems
            ]) from None  # fmt: skip
        times = RowTimes(column, moments, values, format_, groups)
        may_need_group = groups is None and not of_other_files
        several = "; if there are several series, name their column in `windows.group`" if may_need_group else ""
        times.check_order(title, several)
    return times


def _moments_and_format(
    table: _Rows, values: Array, format_: str | None, *, other_formats: bool
) -> tuple[Array, str | None]:
    """Return times as numbers or dates, and the format of texts. `other_formats` also accepts ISO 8601."""
    is_text = values.dtype.kind in "US"
    try:
        return moments_of(values, format_, table.describe), format_ if is_text else None
    except InputError:
        if format_ is not None and other_formats:
            with suppress(InputError):
                return moments_of(values, None, table.describe), None
        raise


def groups_of_windows(source: TableSource, file: TableFile) -> Array | None:
    """Return the series of each row of a file, (N,); None if the table has only one. Reads one column."""
    if source.windows is None or source.windows.group is None:
        return None
    check_group(source, file.names)
    return _column(file, list(file.names).index(source.windows.group))


def check_group(source: TableSource, names: Sequence[str]) -> None:
    """Raise `InputError` if the column that names the series of windows is not among `names`."""
    group = source.windows.group if source.windows is not None else None
    if group is not None and group not in names:
        title = f"no row has the key `{group}`" if source.origin.has_keys else f"the table has no column `{group}`"
        with located_at(source, "windows", "group"):
            raise InputError(
                title, expected=f"one of {listing(list(names))}",
                hint=did_you_mean(group, names),
            )  # fmt: skip


class _Rows:
    """The rows of a table, with the columns by which they are divided. `times` are those of `split.time`, if known."""

    def __init__(self, source: TableSource, file: TableFile, hold_out: HoldOut, times: Array | None = None) -> None:
        self.describe = file.describe
        self.names = (*file.names, *([] if source.label is None else [LABEL]))
        hold_out.check_columns(self.names)
        self._values = {} if hold_out.time is None or times is None else {hold_out.time: times}
        format_ = source.number_format
        for name in hold_out.columns.values():
            if name in self._values:
                continue
            spec = source.columns.get(name) if isinstance(source.columns, dict) else None
            absent = texts_for_missing(source.missing_values, spec) if hold_out.time is not None else ()
            values = _column(file, self._column_index(source, name, list(file.names)), absent)
            if not format_.is_plain and values.dtype.kind == "U":  # numbers as Python reads them
                values = np.array([format_.plain(text) or text for text in values.tolist()], str)
            self._values[name] = values
        self._count = len(next(iter(self._values.values()))) if self._values else len(_column(file, 0))

    def _column_index(self, source: TableSource, name: str, columns: list[str]) -> int:
        column = name if name in columns or source.label is None else source.label  # else it is the field `label`
        return column - 1 if isinstance(column, int) else columns.index(column)

    def __len__(self) -> int:
        return self._count

    def values_of(self, name: str) -> Array:
        return self._values[name]


def _column(file: TableFile, index: int, absent: Collection[str] = ()) -> Array:
    """Return the cells of a column: dates if the file stores dates, else texts.

    Cells that are `absent` texts, in lower case, become empty.
    """
    parts: list[Array] = []
    for block in file.blocks([index]):
        cells = block.cells[0]
        moments = cells.moments()
        if moments is None:
            texts, text_indices = cells.distinct()
            moments = np.array(["" if text.lower() in absent else text for text in texts], str)[text_indices]
        parts.append(moments)
    return np.concatenate(parts) if parts else np.zeros(0, str)

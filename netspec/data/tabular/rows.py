"""Rows of a table that belong to each part of a divided source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Array, located_at
from netspec.data.hold_out import indices_of, unknown_field
from netspec.data.tabular.columns.base import LABEL
from netspec.data.tabular.columns.date import Date
from netspec.errors import InputError, did_you_mean, listing
from netspec.schema.specs.paths import resolve_path

if TYPE_CHECKING:
    from netspec.data.tabular.source import TableSource
    from netspec.data.tabular.table_file import TableFile
    from netspec.schema.specs.hold_out import HoldOut


def rows_of_part(source: TableSource) -> Array | None:
    """Return which rows belong to the split, (N,) of bool; None if all do. Reads one column of the table.

    Rows are divided as they are in the file, before damaged rows and rows with missing values are left out.
    """
    if source.hold_out is None:
        return None
    with located_at(source, "split"):
        table = _Rows(source)
        rows = np.zeros(len(table), bool)
        rows[indices_of(_with_format(source.hold_out, source), source.split_name, table)] = True
    return rows


def _with_format(hold_out: HoldOut, source: TableSource) -> HoldOut:
    """Return `hold_out` with the declared format of the time column, unless it has a format of its own."""
    declared = source.columns.get(hold_out.time or "") if isinstance(source.columns, Mapping) else None
    if hold_out.time_format is not None or not isinstance(declared, Date):
        return hold_out
    return hold_out.model_copy(update={"time_format": declared.format})


def groups_of_windows(source: TableSource) -> Array | None:
    """Return the series of each row of the file, (N,); None if the table has only one. Reads one column."""
    if source.windows is None or source.windows.group is None:
        return None
    file = source.file(resolve_path(source, "path"))
    check_group(source, file.names)
    return _column(file, list(file.names).index(source.windows.group))


def check_group(source: TableSource, names: Sequence[str]) -> None:
    """Raise `InputError` if the column that names the series of windows is not among `names`."""
    group = source.windows.group if source.windows is not None else None
    if group is not None and group not in names:
        with located_at(source, "windows", "group"):
            raise InputError(
                f"the table has no column `{group}`", expected=f"one of {listing(list(names))}",
                hint=did_you_mean(group, names),
            )  # fmt: skip


class _Rows:
    """The rows of a table, with the column by which they are divided."""

    def __init__(self, source: TableSource) -> None:
        file = source.file(resolve_path(source, "path"))
        self._names = list(file.names)
        hold_out = source.hold_out
        assert hold_out is not None
        name = hold_out.stratify or hold_out.group or hold_out.time
        values = _column(file, 0 if name is None else self._column_index(source, name))
        format_ = source.number_format
        if not format_.is_plain and values.dtype.kind == "U":  # numbers as Python reads them
            values = np.array([format_.plain(text) or text for text in values.tolist()], str)
        self._values = values

    def _column_index(self, source: TableSource, name: str) -> int:
        if name in self._names:
            return self._names.index(name)
        label = source.label
        if name == LABEL and label is not None:
            return label - 1 if isinstance(label, int) else self._names.index(label)
        raise unknown_field(name, self._names)

    def __len__(self) -> int:
        return len(self._values)

    def values_of(self, name: str) -> Array:
        return self._values


def _column(file: TableFile, index: int) -> Array:
    """Return the cells of a column: dates if the file stores dates, else texts."""
    parts: list[Array] = []
    for block in file.blocks([index]):
        cells = block.cells[0]
        moments = cells.moments()
        if moments is None:
            texts, text_indices = cells.distinct()
            moments = np.array(texts, str)[text_indices]
        parts.append(moments)
    return np.concatenate(parts) if parts else np.zeros(0, str)

"""Windows of consecutive rows of a table as samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import DamagedSamples, Dataset
from netspec.data.files import fingerprint
from netspec.data.tabular.columns.base import LABEL
from netspec.data.tabular.row_windows import PAST, RowWindows, windowed_fields
from netspec.errors import InputError, Problem, counted

if TYPE_CHECKING:
    from netspec.data.base import Array, Samples


class WindowedTable(Dataset):
    """Windows of consecutive rows of a table.

    `rows_of` converts indices of samples to indices of rows in the file. For each row of the file, `groups` contains
    its series, and `part` whether it belongs to this split; only targets must belong to it. Without `targets`, the rows
    after a window are not needed, and there is no field `label`. Raises `InputError` if no window fits.
    """

    def __init__(
        self,
        table: Dataset,
        windows: RowWindows,
        rows_of: Callable[[Array], Array],
        *,
        groups: Array | None,
        targets: bool,
        part: Array | None,
        limit: int | None,
    ) -> None:
        self._table, self._windows = table, windows
        self._has_targets = targets and LABEL in table.fields
        self._span = windows.length + (windows.horizon if self._has_targets else 0)
        rows = rows_of(np.arange(len(table)))
        starts = _starts(rows, None if groups is None else groups[rows], self._span, windows.stride if targets else 1)
        if part is not None:  # the rows that hold targets
            first = min(windows.length, self._span - 1)
            starts = starts[part[rows][starts[:, None] + np.arange(first, self._span)].all(axis=1)]
        self._starts = starts[:limit]
        if not len(self._starts):
            needed = f"{counted(windows.length, 'row')} and the {counted(windows.horizon, 'row')} after it"
            needed = needed if self._has_targets else counted(windows.length, "row")
            series = " of one series" if windows.group is not None else ""
            raise InputError(
                "no window fits into the table" if targets else "the table has too few rows for a prediction",
                expected=f"{needed}{series} without a gap", got=counted(len(rows), "row"),
            )  # fmt: skip
        self.fields = windowed_fields(table.fields, windows, targets=targets)
        self.classes = {name: names for name, names in table.classes.items() if name in self.fields}
        self.column_ranges = {column: self._range_of(*values) for column, values in table.column_ranges.items()}
        self.column_encodings = {
            PAST if name == LABEL else name: encodings for name, encodings in table.column_encodings.items()
        }
        if table.source_rows is not None:
            self.source_rows = replace(
                table.source_rows,
                rows_of=lambda samples: rows_of(self._starts[samples][:, None] + np.arange(windows.length)),
            )
        self.learned, self.skipped, self.damaged = table.learned, table.skipped, table.damaged
        self.non_integer_labels = table.non_integer_labels
        self.unknown_values, self.rows_without_key = table.unknown_values, table.rows_without_key
        self.block = max(1, table.block // windows.stride)
        self.digest = fingerprint(table.digest, self._starts.tobytes(), str(windows.model_dump()).encode())

    def _range_of(self, field: str, start: int, stop: int) -> tuple[str, int, int]:
        """Return the field that contains a column, and the column's range of elements on the last axis."""
        name = PAST if field == LABEL else field
        return (name, start, stop) if self._table.fields[field].shape else (name, 0, self._windows.length)

    def __len__(self) -> int:
        return len(self._starts)

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""
        return f"{self._table.describe(self._last(index))}, with the {self._windows.length - 1} rows before it"

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return the number of the window's last row in the file, counted from 1."""
        return self._table.identify(self._last(index))

    def _last(self, index: int) -> int:
        return int(self._starts[index]) + self._windows.length - 1

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the windows at `indices`; rows that several of them share are read once for each."""
        length, horizon = self._windows.length, self._windows.horizon
        row_numbers = self._starts[indices][:, None] + np.arange(self._span)
        try:
            columns = self._table.read(row_numbers.reshape(-1))
        except DamagedSamples as error:
            damaged: dict[int, list[Problem]] = {}
            for row, problems in error.rows.items():
                damaged.setdefault(row // self._span, []).extend(problems)
            raise DamagedSamples(damaged) from None
        fields: dict[str, Samples] = {}
        for name, values in columns.items():
            rows = np.asarray(values).reshape(len(indices), self._span, *np.shape(values)[1:])
            if name != LABEL:
                fields[name] = rows[:, :length]
                continue
            fields[PAST] = rows[:, :length]
            if self._has_targets:
                fields[LABEL] = rows[:, length:] if horizon > 1 else rows[:, -1]
        return fields

    def values_of(self, name: str) -> Array:
        """Return the labels of all windows (N,), by which classes are counted; or another field without axes."""
        if name != LABEL or self._windows.horizon > 1:
            return super().values_of(name)
        labels: Array = self._table.values_of(LABEL)[self._starts + self._span - 1]
        return labels


def _starts(rows: Array, groups: Array | None, span: int, stride: int) -> Array:
    """Return the first sample of each window of `span` samples whose rows follow each other in one group."""
    breaks = np.diff(rows) != 1
    if groups is not None:
        breaks |= groups[1:] != groups[:-1]
    firsts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    ends = np.append(firsts[1:], len(rows))
    return np.concatenate(
        [np.arange(first, end - span + 1, stride) for first, end in zip(firsts, ends, strict=True)], dtype=np.int64
    )

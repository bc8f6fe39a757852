"""Reader of columns of type `date`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.cells import each_distinct
from netspec.data.tabular.column import Column
from netspec.data.tabular.encodings import DateEncoding
from netspec.data.tabular.statistics import NOT_NORMALIZED, ColumnStatistics, normalized
from netspec.errors import InputError

if TYPE_CHECKING:
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.columns.base import ColumnSetting
    from netspec.data.tabular.columns.date import Date
    from netspec.data.tabular.row_errors import BlockFaults

_NONE = np.datetime64("NaT", "us")


class DateColumn(Column):
    """Reads dates as datetime64[us] in UTC; NaT for missing ones."""

    vector = True

    def __init__(self, spec: Date, setting: ColumnSetting) -> None:
        super().__init__(setting)
        self._spec = spec
        self._figures = ColumnStatistics()
        self._normalization: dict[str, list[float]] = {}

    def parse(self, cells: Cells, faults: BlockFaults) -> Array:
        values = cells.moments()
        if values is None:
            moments, text_indices = each_distinct(cells, self._moment)
            values = np.array(moments, "datetime64[us]")[text_indices]
        lost = np.flatnonzero(np.isnat(values))
        if len(lost):
            absent, bad = self.absent(cells, lost)
            if self._spec.missing == "error":
                hint = None if self.setting.is_label else "`missing: drop` leaves such rows out"
                self.add_absent(faults, absent, cells, expected="a date", hint=hint)
            if len(bad):
                written = f"`{self._spec.format}`" if self._spec.format else "ISO 8601, such as 2026-11-20"
                message = f"{self.what} has no date here that can be read"
                faults.add(
                    bad, self.index, message, expected=written, got=lambda row: repr(cells.text(row)), hint=self._hint
                )
        return values

    def _moment(self, text: str) -> np.datetime64:
        try:
            moment = datetime.strptime(text, self._spec.format) if self._spec.format else datetime.fromisoformat(text)
        except ValueError:
            return _NONE
        return np.datetime64(moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None), "us")

    @property
    def _hint(self) -> str | None:
        return None if self._spec.format else "`format` says how dates are written: `%d.%m.%Y`, `%m/%d/%y %H:%M`"

    def drops(self, values: Array) -> Array | None:
        return np.isnat(values) if self._spec.missing == "drop" else None

    def tally(self, values: Array) -> None:
        if self.setting.learned is None and self._spec.normalization != "none":
            self._figures.add(self._numbers(values))

    def finish_learning(self, reread: Callable[[], Iterator[Array]]) -> None:
        if self._spec.normalization == "none":
            return
        learned = self.known("offset", "scale")
        if learned is not None:
            self._normalization = {name: list(learned[name]) for name in ("offset", "scale")}
        else:
            self._normalization = self._figures.normalization(self._spec.normalization)
            if not self._normalization:
                raise InputError(f"{self.what} has no value at all to learn `normalization` from")

    @property
    def learned(self) -> dict[str, Any]:
        return dict(self._normalization)

    @property
    def width(self) -> int:
        return len(self._spec.parts)

    def encode(self, values: Array) -> Array:
        return normalized(self._numbers(values), self._normalization)

    def encoding(self) -> DateEncoding:
        parts = self._spec.parts
        offsets, scales = (
            tuple(self._normalization.get(name, [default] * len(parts))) for name, default in NOT_NORMALIZED
        )
        return DateEncoding(self.name, tuple(parts), offsets, scales, self._spec.format)

    def _numbers(self, values: Array) -> Array:
        """Return the parts of times, (N, parts) of float64; undefined for NaT."""
        days, months, years = (values.astype(f"datetime64[{unit}]") for unit in "DMY")
        seconds = (values - days).astype(np.int64) // 1_000_000
        parts: dict[str, Array] = {
            "year": years.astype(np.int64) + 1970,
            "month": (months - years).astype(np.int64) + 1,
            "day": (days - months).astype(np.int64) + 1,
            "weekday": (days.astype(np.int64) + 3) % 7,  # 1970 began on a Thursday
            "day_of_year": (days - years).astype(np.int64) + 1,
            "hour": seconds // 3600,
            "minute": seconds // 60 % 60,
            "second": seconds % 60,
            "timestamp": values.astype(np.int64) / 1e6,
        }
        return np.stack([parts[name].astype(np.float64) for name in self._spec.parts], axis=1)

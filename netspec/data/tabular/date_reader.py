"""Reader of columns of type `date`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.cells import each_distinct
from netspec.data.tabular.column import Column
from netspec.data.tabular.encodings import DateEncoding
from netspec.data.tabular.statistics import NOT_NORMALIZED, ColumnStatistics, normalized
from netspec.data.timestamps import UNREADABLE, date_formats, moment_of
from netspec.errors import InputError, SettingHint

if TYPE_CHECKING:
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.columns.base import ColumnSetting
    from netspec.data.tabular.columns.date import Date
    from netspec.data.tabular.row_errors import BlockFaults


NOT_IN_PATHS = frozenset(".[]=")
"""Characters of names of columns that the path of an override cannot have."""
EXAMPLE = datetime(2026, 11, 20, 16, 25)


class DateColumn(Column):
    """Reads dates as datetime64[us] in UTC; NaT for missing ones."""

    vector = True

    def __init__(self, spec: Date, setting: ColumnSetting) -> None:
        super().__init__(setting)
        self._spec = spec
        self._has_dates_for_missing = any(not np.isnat(moment_of(text, spec.format)) for text in setting.absent)
        """Whether a text that stands for a missing value is a date, such as `1900-01-01`."""
        self._figures = ColumnStatistics()
        self._learned: dict[str, list[float]] = {}

    def parse(self, cells: Cells, faults: BlockFaults) -> Array:
        values = cells.moments()
        if values is None:
            moments, text_indices = each_distinct(cells, lambda text: moment_of(text, self._spec.format))
            values = np.array(moments, "datetime64[us]")[text_indices]
        if self._has_dates_for_missing:
            values[self.declared_missing(cells)] = UNREADABLE
        lost = np.flatnonzero(np.isnat(values))
        if len(lost):
            absent, bad = self.absent(cells, lost)
            if self._spec.missing == "error":
                mean = "" if self.setting.is_label else "`missing: mean` to use the mean of each part of the date, or "
                fields = f"{mean}`missing: drop` to leave such rows out"
                self.add_absent(faults, absent, cells, expected="a date", training=fields)
            if len(bad):
                written = f"`{self._spec.format}`" if self._spec.format else "ISO 8601, such as 2026-11-20"
                message = f"{self.title} has no date here that can be read"
                likely = self._hint(cells.text(int(bad[0])))
                faults.add(
                    bad, self.index, message, expected=written, got=lambda row: self.shown(cells.text(row)), hint=likely
                )
        return values

    def _hint(self, text: str) -> str | None:
        """Return a hint at the format in which the first text that cannot be read is a date."""
        formats = date_formats([text])
        likely = [f"`{format}`" for format in formats]
        hint = f"`format` says how dates are written: {' or '.join(likely) or '`%d.%m.%Y`, `%m/%d/%y %H:%M`'}"
        if self._spec.format is not None:
            if not likely:
                return None
            hint = f"{' and '.join(likely)} would read this date"
        can_override = likely and not set(self.name) & NOT_IN_PATHS
        settings = {f"columns.{self.name}.format": tuple(formats)} if can_override else {}
        example = EXAMPLE.strftime(self._spec.format or "%Y-%m-%d")
        return SettingHint(hint, settings=settings, purpose="to read such dates", data=f"write dates such as {example}")

    def drops(self, values: Array) -> Array | None:
        return np.isnat(values) if self._spec.missing == "drop" else None

    @property
    def _learns(self) -> list[str]:
        """The names of the values to learn."""
        return ["fill"] * (self._spec.missing == "mean") + ["offset", "scale"] * (self._spec.normalization != "none")

    def tally(self, values: Array) -> None:
        if self.setting.learned is None and self._learns:
            self._figures.add_values(self._numbers(values).T)

    def finish_learning(self, reread: Callable[[], Iterator[Array]]) -> None:
        if not self._learns:
            return
        learned = self.learned_values(*self._learns)
        if learned is None:
            if not np.all(self._figures.count):
                why = "has no mean" if self._spec.missing == "mean" else "cannot be normalized"
                raise InputError(
                    f"all values of {self.title} are missing, so it {why}",
                    expected="a column with values, or the column left out of `columns`",
                )
            learned = {"fill": self._figures.mean.tolist(), **self._figures.normalization(self._spec.normalization)}
        self._learned = {name: list(learned[name]) for name in self._learns}

    @property
    def learned(self) -> dict[str, Any]:
        return dict(self._learned)

    @property
    def width(self) -> int:
        return len(self._spec.parts) + self._spec.missing_indicator

    def encode(self, values: Array) -> Array:
        numbers, lost = self._numbers(values), np.isnat(values)[:, None]
        if "fill" in self._learned:
            numbers = np.where(lost, np.array(self._learned["fill"]), numbers)
        parts = normalized(numbers, self._learned if "scale" in self._learned else {})
        return np.concatenate([parts, lost], axis=1, dtype=np.float32) if self._spec.missing_indicator else parts

    def encoding(self) -> DateEncoding:
        parts = self._spec.parts
        offsets, scales = (tuple(self._learned.get(name, [default] * len(parts))) for name, default in NOT_NORMALIZED)
        fills = tuple(self._learned["fill"]) if "fill" in self._learned else None
        return DateEncoding(
            self.name, tuple(parts), offsets, scales, self._spec.format, fills, self._spec.missing_indicator,
            self._spec.missing, self.missing_texts,
        )  # fmt: skip

    def _numbers(self, values: Array) -> Array:
        """Return the parts of times, (N, parts) of float64; nan for NaT."""
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
        numbers = np.stack([parts[name].astype(np.float64) for name in self._spec.parts], axis=1)
        numbers[np.isnat(values)] = np.nan
        return numbers

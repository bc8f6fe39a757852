"""Times of the rows of a time series: their order, the steps between them, and the times of forecasts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import numpy as np

from netspec.data.base import Array
from netspec.errors import InputError, counted

TIME_STEPS = " time steps"
"""Key of the learned `UsualSteps`. No column has this name, since names have no surrounding blanks."""
MAX_STEP_RATIO = 1.5
"""Ratio to the usual steps from which a step is reported."""
DAY = 86_400
UNITS = ((DAY, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
EVERY_DAY = "1111111"
WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
MIN_WEEKS, MIN_COVERAGE = 4, 0.9
"""Days of the week without rows are regular in this number of weeks, if this share of the other days has rows."""
ISO_LENGTHS = {7: "M", 10: "D", 13: "h", 16: "m", 19: "s"}
"""Units of dates in ISO 8601 by the number of characters."""


@dataclass(frozen=True)
class UsualSteps:
    """The range of steps between consecutive rows in the training, without the lowest and the highest percent."""

    shortest: float
    """In seconds if times are dates. 0 if more than one percent of the rows have the time of the row before."""
    longest: float
    weekmask: str = EVERY_DAY
    """For each day of the week, from Monday on: 1 if it has rows. Steps do not count the time of other days."""

    def as_learned(self) -> list[float | str]:
        """Return the steps as plain JSON data."""
        return [self.shortest, self.longest, *([self.weekmask] if self.weekmask != EVERY_DAY else [])]

    @property
    def days_off(self) -> str:
        """The days of the week without rows, as a phrase for messages; empty if there are none."""
        days_off = [day for day, has_rows in zip(WEEKDAYS, self.weekmask, strict=True) if has_rows == "0"]
        return f", not counting {' and '.join(days_off)}" if days_off else ""


@dataclass(frozen=True)
class RowTimes:
    """The times of all rows of a table."""

    column: str
    values: Array
    """Numbers or dates, (N,)."""
    cells: Array
    """The times as they are in the file, (N,): texts, or dates of a file that stores dates."""
    format: str | None = None
    """Format of the dates, in the notation of `strptime`; None for numbers and ISO 8601."""
    groups: Array | None = None
    """The series of each row, (N,); None if there is only one."""

    @cached_property
    def _unit(self) -> Literal["D", "s"]:
        """Unit of dates that are not texts: days if none has a time of day."""
        return "D" if (self.cells == self.cells.astype("datetime64[D]")).all() else "s"

    def text(self, row: int) -> str:
        """Return the time of a row as a text."""
        cell = self.cells[row]
        return str(np.datetime_as_string(cell, unit=self._unit)) if self.cells.dtype.kind == "M" else str(cell)

    def check_order(self, title: str, advice: str = "") -> None:
        """Raise `InputError` with the first row of the table `title` that is earlier than the one before it."""
        earlier = np.flatnonzero(self.steps() < 0)
        if not len(earlier):
            return
        row = int(earlier[0]) + 1
        raise InputError(
            f"the rows of {title} are not in chronological order", expected="no row earlier than the row before it",
            got=f"row {row + 1}: {self.text(row)} after {self.text(row - 1)}",
            hint=f"sort the rows by `{self.column}`{advice}",
        )  # fmt: skip

    def steps(self, weekmask: str = EVERY_DAY) -> Array:
        """Return the time from each row to the next, in seconds if times are dates, (N - 1,); nan between series.

        The time of days that are 0 in `weekmask` does not count.
        """
        steps = np.diff(self.values)
        steps = steps / np.timedelta64(1, "s") if steps.dtype.kind == "m" else steps.astype(np.float64)
        if weekmask != EVERY_DAY and self.values.dtype.kind == "M":
            days = self.values.astype("datetime64[D]")
            counted_days = np.busday_count(days[:-1], days[1:], weekmask=weekmask)
            steps = steps - DAY * (np.diff(days).astype(np.int64) - counted_days)
        if self.groups is not None:
            steps[self.groups[1:] != self.groups[:-1]] = np.nan
        return steps

    @cached_property
    def weekmask(self) -> str:
        """The days of the week that have rows, as in `UsualSteps`; all days if there is no regular pattern."""
        if self.values.dtype.kind != "M" or not len(self.values):
            return EVERY_DAY
        days, rows_of_days = np.unique(self.values.astype("datetime64[D]"), return_counts=True)
        rows_of_weekdays = np.bincount((days.astype(np.int64) + 3) % 7, rows_of_days, 7)  # 1970 began on a Thursday
        weekmask = "".join("1" if rows > 0.01 * len(self.values) else "0" for rows in rows_of_weekdays)
        expected = np.busday_count(days[0], days[-1] + 1, weekmask=weekmask)
        is_regular = days[-1] - days[0] >= 7 * MIN_WEEKS and len(days) >= MIN_COVERAGE * expected
        return weekmask if is_regular and weekmask.count("1") > 1 else EVERY_DAY

    @property
    def median_step(self) -> float:
        """The median step, without the time of days of the week that have no rows; 0 without steps."""
        steps = self.steps(self.weekmask)
        return float(np.nanmedian(steps)) if not np.isnan(steps).all() else 0.0

    @cached_property
    def usual_steps(self) -> UsualSteps | None:
        """The usual steps between rows; None without steps."""
        weekmask = self.weekmask
        steps = self.steps(weekmask)
        steps = steps[steps >= 0]
        positive = steps[steps > 0]
        if not len(positive):
            return None
        shortest, longest = np.quantile(positive, [0.01, 0.99], method="nearest").tolist()
        return UsualSteps(0.0 if len(positive) < 0.99 * len(steps) else shortest, longest, weekmask)

    def describe_unusual(self, usual: UsualSteps | None) -> str:
        """Return a sentence about steps unlike the usual ones of the training; empty if there are none."""
        if usual is None:
            return ""
        steps = self.steps(usual.weekmask)
        unusual = np.flatnonzero((steps > MAX_STEP_RATIO * usual.longest) | (steps < usual.shortest / MAX_STEP_RATIO))
        if not len(unusual):
            return ""
        row = int(unusual[0]) + 1
        number = "1 step" if len(unusual) == 1 else f"{len(unusual):,} steps"
        trained = " to ".join(dict.fromkeys(map(self._step_text, (usual.shortest, usual.longest))))
        return (
            f"{number} in `{self.column}` {'differs' if len(unusual) == 1 else 'differ'} from the training data "
            f"({trained}{usual.days_off}), the first before row {row + 1} ({self.text(row - 1)} to {self.text(row)}): "
            "predictions treat these rows as neighbors"
        )

    def _step_text(self, step: float) -> str:
        """Format a step in the largest unit that divides it."""
        if self.values.dtype.kind != "M":
            return f"{step:g}"
        return next((counted(int(step) // unit, name) for unit, name in UNITS if step % unit == 0), f"{step:g} seconds")

    def describe_forecast(self, row: int, horizon: int, usual: UsualSteps | None) -> str:
        """Return a sentence with the times of the `horizon` rows after a row; empty if these are not known."""
        if not horizon:
            return ""
        times = [self._time_after(row, number, usual) for number in sorted({1, horizon})]
        if not all(times):
            return ""
        predictions = "the prediction" if horizon == 1 else f"the {horizon} predictions"
        return f"{predictions} after row {row + 1} ({self.text(row)}) {_is(horizon)} for {' to '.join(times)}"

    def _time_after(self, row: int, number: int, usual: UsualSteps | None) -> str:
        """Return the time `number` rows after a row, in the notation of the file; empty if it is not known."""
        last = self.values[row]
        if usual is None:
            return ""
        is_regular = usual.shortest == usual.longest
        if self.values.dtype.kind != "M":
            return f"{last + number * usual.shortest:.15g}" if is_regular else ""
        if usual.weekmask != EVERY_DAY:
            days, rest = divmod(number * usual.shortest, DAY)
            if rest or not is_regular:
                return ""
            day = last.astype("datetime64[D]")
            next_day = np.busday_offset(day, int(days), roll="backward", weekmask=usual.weekmask)
            return self._written(next_day.astype("datetime64[us]") + (last - day.astype("datetime64[us]")), row)
        if is_regular:
            return self._written(last + np.timedelta64(round(number * usual.shortest * 1e6), "us"), row)
        months = round(usual.longest / DAY / 31)
        month = last.astype("datetime64[M]")
        since = last - month.astype("datetime64[us]")
        is_monthly = months and 28 * months * DAY <= usual.shortest and usual.longest <= 31 * months * DAY
        if not is_monthly or since >= np.timedelta64(28, "D"):
            return ""
        return self._written((month + number * months).astype("datetime64[us]") + since, row)

    def _written(self, moment: Any, row: int) -> str:
        """Format a date like the date in a row."""
        if self.format is not None:
            date: datetime = moment.astype(datetime)
            return date.strftime(self.format)
        cell = self.text(row)
        unit = ISO_LENGTHS.get(len(cell))
        return "" if unit is None else str(moment.astype(f"datetime64[{unit}]")).replace("T", cell[10:11])


def _is(number: int) -> str:
    return "is" if number == 1 else "are"

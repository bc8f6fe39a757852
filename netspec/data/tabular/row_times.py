"""Times of the rows of a time series: their order, the steps between them, and the times of forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import numpy as np

from netspec.data.base import Array
from netspec.errors import InputError, counted

TIME_STEPS = " time steps"
"""Key of the learned shortest and longest usual step between rows. No column has this name, since names have no
surrounding blanks."""
MAX_STEP_RATIO = 1.5
"""Ratio to the usual steps from which a step is reported."""
DAY = 86_400
UNITS = ((DAY, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
ISO_LENGTHS = {7: "M", 10: "D", 13: "h", 16: "m", 19: "s"}
"""Units of dates in ISO 8601 by the number of characters."""


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
        earlier = np.flatnonzero(self._steps() < 0)
        if not len(earlier):
            return
        row = int(earlier[0]) + 1
        raise InputError(
            f"the rows of {title} are not in chronological order", expected="no row earlier than the row before it",
            got=f"row {row + 1}: {self.text(row)} after {self.text(row - 1)}",
            hint=f"sort the rows by `{self.column}`{advice}",
        )  # fmt: skip

    def _steps(self) -> Array:
        """Return the time from each row to the next, in seconds if times are dates, (N - 1,); nan between series."""
        steps = np.diff(self.values)
        steps = steps / np.timedelta64(1, "s") if steps.dtype.kind == "m" else steps.astype(np.float64)
        if self.groups is not None:
            steps[self.groups[1:] != self.groups[:-1]] = np.nan
        return steps

    def usual_steps(self) -> list[float]:
        """Return the shortest and the longest step between rows, except for one percent of all; empty without steps.

        The shortest is 0 if more than one percent of the rows have the time of the row before.
        """
        steps = self._steps()
        steps = steps[steps >= 0]
        positive = steps[steps > 0]
        if not len(positive):
            return []
        shortest, longest = np.quantile(positive, [0.01, 0.99], method="nearest").tolist()
        return [0.0 if len(positive) < 0.99 * len(steps) else shortest, longest]

    def describe_unusual(self, usual: Sequence[float]) -> str:
        """Return a sentence about steps unlike the usual ones of the training; empty if there are none."""
        if not usual:
            return ""
        steps = self._steps()
        unusual = np.flatnonzero((steps > MAX_STEP_RATIO * usual[1]) | (steps < usual[0] / MAX_STEP_RATIO))
        if not len(unusual):
            return ""
        row = int(unusual[0]) + 1
        number = "1 step" if len(unusual) == 1 else f"{len(unusual):,} steps"
        trained = " to ".join(dict.fromkeys(self._step_text(step) for step in usual))
        return (
            f"{number} in `{self.column}` {'is' if len(unusual) == 1 else 'are'} unlike those of the training "
            f"({trained}), the first before row {row + 1} ({self.text(row - 1)} to {self.text(row)}): predictions "
            "treat these rows as neighbors"
        )

    def _step_text(self, step: float) -> str:
        """Return a step in the largest unit of which it is a multiple."""
        if self.values.dtype.kind != "M":
            return f"{step:g}"
        return next((counted(int(step) // unit, name) for unit, name in UNITS if step % unit == 0), f"{step:g} seconds")

    def describe_forecast(self, row: int, horizon: int, usual: Sequence[float]) -> str:
        """Return a sentence with the times of the `horizon` rows after a row; empty if these are not known."""
        if not horizon:
            return ""
        times = [self._time_after(row, number, usual) for number in sorted({1, horizon})]
        if not all(times):
            return ""
        predictions = "the prediction" if horizon == 1 else f"the {horizon} predictions"
        return f"{predictions} after row {row + 1} ({self.text(row)}) {_is(horizon)} for {' to '.join(times)}"

    def _time_after(self, row: int, number: int, usual: Sequence[float]) -> str:
        """Return the time that is a number of rows after a row, as it would be written; empty if it is not known."""
        last = self.values[row]
        if not usual:
            return ""
        if self.values.dtype.kind != "M":
            return f"{last + number * usual[0]:.15g}" if usual[0] == usual[1] else ""
        if usual[0] == usual[1]:
            return self._written(last + np.timedelta64(round(number * usual[0] * 1e6), "us"), row)
        months = round(usual[1] / DAY / 31)
        month = last.astype("datetime64[M]")
        since = last - month.astype("datetime64[us]")
        is_monthly = months and 28 * months * DAY <= usual[0] and usual[1] <= 31 * months * DAY
        if not is_monthly or since >= np.timedelta64(28, "D"):
            return ""
        return self._written((month + number * months).astype("datetime64[us]") + since, row)

    def _written(self, moment: Any, row: int) -> str:
        """Return a date in the notation of that in a row."""
        if self.format is not None:
            date: datetime = moment.astype(datetime)
            return date.strftime(self.format)
        cell = self.text(row)
        unit = ISO_LENGTHS.get(len(cell))
        return "" if unit is None else str(moment.astype(f"datetime64[{unit}]")).replace("T", cell[10:11])


def _is(number: int) -> str:
    return "is" if number == 1 else "are"

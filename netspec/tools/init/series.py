"""Time series in tables: the order of the rows, the season, and a linear net with a correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from netspec.data.tabular.row_times import RowTimes
from netspec.errors import InputError, counted
from netspec.tools.init.column_survey import ColumnSurvey
from netspec.tools.init.files import (
    Files,
    comment,
    document,
    entries,
    entry,
    items,
    training,
)
from netspec.tools.init.project import Project
from netspec.tools.init.search_space import DROPOUT, SearchSpace
from netspec.tools.init.tables import MAX_ROWS, TableColumns, TableSurvey, column_key, rows_of

SEASONS = (
    (5_400, 24, "hours of a day"), (129_600, 7, "days of a week"), (1_000_000, 52, "weeks of a year"),
    (3_000_000, 12, "months of a year"), (9_000_000, 4, "quarters of a year"),
)  # fmt: skip
"""Longest time between two rows in seconds, number of rows in a season, and description of the season."""
NO_SEASON = 8
"""Number of rows to forecast if the time between rows is unknown, or a year or more."""
SMALL = 3_000
"""With fewer rows than this, the net is linear."""
WINDOWS_PER_VALUE = 20
"""Windows for each value of other columns in a window from which a linear net reads them. If these columns do not help,
the errors of ridge regression are about 2 % larger than without them; with 5 windows, 15 % (synthetic series)."""
LINEAR_STEPS = 4_000
"""Number of steps in which a linear net is trained."""
MAX_DUPLICATES = 0.1
"""Maximum share of rows that repeat the time of another row."""
DAY, YEAR = 86_400, 365 * 86_400


@dataclass(frozen=True)
class RowOrder:
    """Chronological order of the rows of a table."""

    time: str
    """Time column: dates, or numbers that increase."""
    group: str | None
    """Column that names the series of each row; None if there is only one series."""
    longest: int
    """Number of rows of the longest series in the sample."""
    season: int
    """Number of rows in a season."""
    season_name: str
    step: float
    """Seconds between two rows; 0 if the times are numbers."""
    time_format: str
    """The format of the times in the notation of `strptime`; empty for numbers and ISO 8601."""
    warnings: Sequence[str]
    """Findings about repeated and missing times."""

    @property
    def date_parts(self) -> list[str]:
        """Parts of a date that recur within the series, so that they can help to forecast."""
        repeats = {"month": self.step * self.longest >= 2 * YEAR and self.step < 28 * DAY}
        repeats |= {"weekday": 0 < self.step <= DAY, "hour": 0 < self.step < DAY}
        return [part for part, recurs in repeats.items() if recurs]


@dataclass(frozen=True)
class Forecast:
    """The windows of a forecast, and the columns that the net reads in them."""

    length: int
    """Number of rows that the net reads."""
    horizon: int
    """Number of rows that it forecasts."""
    windows: int
    """Number of windows in the training data, about."""
    columns: TableColumns
    is_linear: bool
    """Whether the net is linear, for lack of rows or of other columns."""
    left_out: Sequence[tuple[str, str]]
    """The columns that are not read, each with the reason."""


def series_files(project: Project, survey: TableSurvey, label: ColumnSurvey) -> Files:
    """Return the files to forecast a column. Raises `InputError` if rows are not in chronological order."""
    if not label.is_numeric:
        raise InputError(f"column {label.name!r} cannot be forecast", expected="numbers", got="texts")
    order = _order(project.data, survey, label)
    forecast = _forecast(survey, label, order)
    files = Files("forecast", "", "")
    files.findings = [
        f"{survey.rows:,} rows, ordered by `{order.time}`",
        *([f"several series, named by `{order.group}`"] if order.group else []),
        f"a season of {order.season} rows: {order.season_name}",
        f"forecast of `{label.name}`: {counted(forecast.horizon, 'row')} from the last {forecast.length}",
        *(f"left out: `{name}`: {reason}" for name, reason in forecast.left_out),
    ]
    files.warnings = [*survey.warnings, *forecast.columns.warnings, *order.warnings]
    if label.missing:
        files.warnings.append(f"{counted(label.missing, 'row')} without `{label.name}`: no window spans them")
    files.net = _net(project, label, forecast)
    files.train = _train(project, survey, label, order, forecast)
    return files


def _forecast(survey: TableSurvey, label: ColumnSurvey, order: RowOrder) -> Forecast:
    """Choose the windows by the season, and the columns by the number of windows."""
    horizon = max(1, min(order.season, order.longest // 10))
    length = max(1, min(2 * order.season, order.longest // 3 - horizon))
    if order.longest < 10:
        raise InputError("the series is too short to be forecast", expected="10 rows or more", got=f"{order.longest}")
    windows = max(1, round(0.85 * survey.rows * max(0.1, 1 - (length + horizon) / order.longest)))
    is_small = survey.rows < SMALL
    if is_small:  # months and hours have no linear effect, and each series would need weights of its own
        others = [column for column in survey.columns if column.name not in (order.time, order.group)]
        survey = replace(survey, columns=others)
    date_parts = [] if is_small else order.date_parts
    columns = TableColumns(survey, label, regression=True, text=False, date_parts=date_parts)
    needed = WINDOWS_PER_VALUE * length * columns.width
    if is_small and windows < needed:
        columns.leave_out_inputs(
            f"{windows:,} windows are too few to also read this column without overfitting, which takes {needed:,}"
        )
    left_out = [(name, reason) for name, reason in columns.left_out if name not in (order.time, order.group)]
    return Forecast(length, horizon, windows, columns, is_small or not columns.width, left_out)


def _order(path: Path, survey: TableSurvey, label: ColumnSurvey) -> RowOrder:
    """Find the time column, and the column that names the series if there are several.

    Raises `InputError` with the first row that is not later than the one before it.
    """
    columns = [column for column in survey.columns if column is not label and not column.is_text]
    times = [column for column in columns if column.is_date and not column.missing]
    times += [column for column in columns if column.is_numeric and not column.is_date and not column.missing]
    rows = list(islice(rows_of(path), MAX_ROWS))
    names = [column.name for column in survey.columns]
    groups = {column.name: [row[names.index(column.name)] for row in rows] for column in columns}
    for time in times:
        read = time.moment if time.is_date else time.number
        moments = [read(cell) for cell in groups[time.name]]
        for group in (None, *(name for name in groups if name != time.name)):
            keys = [""] * len(rows) if group is None else groups[group]
            series = _series(keys, moments)
            if series is None and group is None and time.is_date and _duplicates(moments) < MAX_DUPLICATES:
                series = _series(keys, moments, repeated=True)
            if series is not None:
                row_times = _row_times(time, groups[time.name], moments, keys)
                step = row_times.median_step if time.is_date else 0.0
                season = _season(step, row_times.weekmask.count("1"))
                notes = _irregular(row_times)
                return RowOrder(time.name, group, max(map(len, series)), *season, step, time.date_format, notes)
    problem = f"the rows of {path} are not in chronological order"
    if not times:
        raise InputError(problem, expected="a time column: dates, or numbers that increase from row to row")
    time = times[0]
    read = time.moment if time.is_date else time.number
    moments = [read(cell) for cell in groups[time.name]]
    row = next(row for row in range(1, len(moments)) if moments[row] <= moments[row - 1])
    raise InputError(
        problem, expected=f"a later `{time.name}` in each row; if there are several series, one after the other",
        got=f"row {row + 1}: {groups[time.name][row]} after {groups[time.name][row - 1]}",
        hint=_sorting(path, time.name, moments, {name: keys for name, keys in groups.items() if name != time.name}),
    )  # fmt: skip


def _sorting(path: Path, time: str, moments: Sequence[float], groups: Mapping[str, Sequence[str]]) -> str:
    """Return a hint that names the columns to sort the rows by."""
    by = [time]
    for name, keys in groups.items():
        pairs = set(zip(keys, moments, strict=True))
        if len(set(moments)) < len(moments) == len(pairs) and len(set(keys)) < len(keys) / 3:
            by = [name, time]  # each series has a time once
            break
    else:
        if len(set(moments)) < len(moments):
            return f"rows have the same `{time}`: if the table has several series, it needs a column that names them"
    sorting = f"`{by[0]}` names the series: sort" if len(by) > 1 else "sort"
    columns = " and ".join(f"`{name}`" for name in by)
    return f"{sorting} the rows by {columns}, for example with `DataFrame.sort_values({by})`"


def _duplicates(moments: Sequence[float]) -> float:
    return 1 - len(set(moments)) / max(1, len(moments))


def _series(keys: Sequence[str], moments: Sequence[float], *, repeated: bool = False) -> list[list[float]] | None:
    """Return the times of each run of equal keys; None if a key occurs in two runs, or a time does not increase.

    With `repeated`, a time may occur several times.
    """
    runs: list[list[float]] = []
    seen: set[str] = set()
    previous = None
    for key, moment in zip(keys, moments, strict=True):
        if key != previous:
            if key in seen:
                return None
            seen.add(key)
            runs.append([])
        elif moment < runs[-1][-1] or (moment == runs[-1][-1] and not repeated):
            return None
        runs[-1].append(moment)
        previous = key
    return runs if max(map(len, runs), default=0) > 1 else None


def _row_times(time: ColumnSurvey, cells: Sequence[str], moments: Sequence[float], keys: Sequence[str]) -> RowTimes:
    """Return the times of rows in chronological order within each series, which `keys` name."""
    values = np.array(moments)
    values = (values * 1e6).round().astype("datetime64[us]") if time.is_date else values
    return RowTimes(time.name, values, np.array(cells), groups=np.array(keys))


def _irregular(times: RowTimes) -> list[str]:
    """Return warnings about times that are repeated or missing, with the first such row."""
    steps = times.steps(times.weekmask)
    repeated, gaps = np.flatnonzero(times.steps() == 0) + 1, np.flatnonzero(steps > 1.5 * times.median_step) + 1
    warnings = []
    if len(repeated):
        warnings.append(
            f"{counted(len(repeated), 'row')} with the same `{times.column}` as the row before, first row "
            f"{repeated[0] + 1} ({times.text(repeated[0])}): remove duplicates; if these are several "
            "series, add a column that names them"
        )
    if len(gaps):
        row = int(gaps[0])
        first = f"first before row {row + 1} ({times.text(row - 1)} to {times.text(row)})"
        warnings.append(
            f"{counted(len(gaps), 'gap')} in `{times.column}`, {first}: "
            "windows treat the rows around a gap as neighbors"
        )
    return warnings


def _season(step: float, weekdays: int) -> tuple[int, str]:
    """Return the number of rows in a season, and its name, if rows are on this number of days of a week."""
    for longest, rows, name in SEASONS:
        if 0 < step <= longest:
            return weekdays if rows == 7 else rows, f"the {name}"
    return NO_SEASON, "the time between rows is a year or more, or unknown"


def _net(project: Project, label: ColumnSurvey, forecast: Forecast) -> str:
    space = project.space
    length, horizon, width, windows = forecast.length, forecast.horizon, forecast.columns.width, forecast.windows
    outputs: dict[str, Any] = {"type": "Dense", "units": horizon}
    layers: list[tuple[dict[str, Any], str]] = []
    if not forecast.is_linear:
        layers = [
            ({"name": "linear", **outputs, "from": "past"}, "most of a forecast is a weighted sum of the past"),
            ({"name": "flat", "type": "Flatten", "from": "features"}, ""),
            ({"name": "joined", "type": "Concatenate", "from": ["past", "flat"]}, ""),
            *_correction(space),
            ({"name": "correction", **outputs}, ""),
            ({"name": "forecast", "type": "Add", "from": ["linear", "correction"]}, ""),
        ]
    else:
        ridge = float(f"{1 / (windows * horizon):.2g}")
        values = {"low": float(f"{ridge / 100:.2g}"), "high": min(1.0, 100 * ridge), "log": True}
        penalty = {"type": "L2", "l2": space.net_variable("penalty", ridge, values, "of squared weights")}
        start = {"kernel_initializer": "Zeros", "kernel_regularizer": penalty}
        why = f"a weighted sum of past values for each row to forecast: ridge regression on {windows:,} windows"
        if width:
            enough = f"{windows:,} windows are enough to also read the other columns without overfitting"
            layers = [
                ({"name": "flat", "type": "Flatten", "from": "features"}, enough),
                ({"name": "joined", "type": "Concatenate", "from": ["past", "flat"]}, ""),
            ]
        layers.append(({"name": "forecast", **outputs, **start, "from": "joined" if width else "past"}, why))
    last = "forecast"
    if horizon == 1:
        last = "next"
        layers.append(({"name": last, "type": "Reshape", "target_shape": []}, ""))
    pair = {"from": [last, "label"]}
    lines = project.net_head(f"A net for a time series: it forecasts `{label.name}`.")
    lines += entry("past", {"shape": [length]}, f"`{label.name}` in the last {length} rows", 2)
    if width:
        lines += entry("features", {"shape": [length, width]}, "the other columns of these rows", 2)
    lines += entry("label", {"shape": [horizon] if horizon > 1 else []}, "the rows after them", 2)
    lines += ["layers:", *items(layers, 2), *entry("outputs", [last])]
    lines += entry("losses", [{"type": "MeanSquaredError", **pair}])
    lines += entry("metrics", [{"type": "MeanAbsoluteError", "name": "mae", **pair}])
    return document(lines)


def _correction(space: SearchSpace) -> list[tuple[dict[str, Any], str]]:
    """Return the hidden layer of the correction, or with variables, several."""
    units = space.net_variable("width", 64, {"low": 16, "high": 256, "log": True}, "units of a hidden layer")
    rate = space.net_variable("dropout", 0.2, DROPOUT, "share of values set to 0")
    hidden = [
        ({"type": "Dense", "units": units, "activation": "relu"}, "a correction that depends on the other columns"),
        ({"type": "Dropout", "rate": rate}, "against overfitting"),
    ]
    if not space.searched:
        return hidden
    depth = space.net_variable("depth", 1, {"low": 1, "high": 3}, "hidden layers")
    layers = [layer for layer, _ in hidden]
    return [({"name": "hidden", "repeat": depth, "layers": layers}, hidden[0][1])]


def _train(project: Project, survey: TableSurvey, label: ColumnSurvey, order: RowOrder, forecast: Forecast) -> str:
    length, horizon, used, space = forecast.length, forecast.horizon, forecast.columns.used, project.space
    path = project.path_of(project.data)
    lines = project.train_head(f"to forecast `{label.name}` of {path}")
    source = {"source": survey.source["source"], "path": path, **survey.source, "label": label.name}
    lines += entries(source, 4, survey.reasons)
    lines.append("    columns:")
    for name, declared, why in used:
        lines += entry(column_key(name), declared, why, 6)
    if forecast.left_out:
        lines += comment("Left out: " + "; ".join(f"{name}: {reason}" for name, reason in forecast.left_out), 4)
    windows: dict[str, Any] = {"length": length, "horizon": horizon}
    windows |= {"group": order.group} if order.group else {}
    for warning in order.warnings:
        lines += comment(f"Check the rows: {warning}", 4)
    lines += entry(
        "windows", windows, f"reads {counted(length, 'row')}, and forecasts the next {counted(horizon, 'row')}", 4
    )
    needs_validation = space.searched or not forecast.is_linear
    split = {**({"validation": 0.15} if needs_validation else {}), "test": 0.15, "time": order.time}
    if order.time_format and order.time not in [name for name, _, _ in used]:
        split["time_format"] = order.time_format
    lines += entry("split", split, "the last rows in time are held out to test the forecast", 4)
    lines += [*entry("batch_size", 16 if forecast.is_linear else 64, "", 4), *entry("shuffle", True, "", 4)]
    if forecast.is_linear:
        return document([*lines, *_fixed_training(space)])
    return document([*lines, *training(monitor="loss", epochs=50, patience=6, space=space)])


def _fixed_training(space: SearchSpace) -> list[str]:
    """Return `solver` and `train` of a linear net, with enough steps to reach the minimum, and no early stopping."""
    space.field("solver.learning_rate.initial", {"low": 0.003, "high": 0.1, "log": True})
    why_steps = "enough for a linear net" + ", which needs no validation data" * (not space.searched)
    why_last = "the last weights: the best ones would be chosen by the test data"
    return [
        "",
        "solver:",
        *entry("type", "Adam", "works without tuning on most data", 2),
        *entry("learning_rate", {"type": "CosineDecay", "initial": 0.02}, "falls to 0, so that the weights settle", 2),
        "",
        "train:",
        *entry("max_steps", LINEAR_STEPS, why_steps, 2),
        *entry("test_every", 500, "", 2),
        *entry("checkpoint_every", 1000, "", 2),
        *entry("restore_best", False, "" if space.searched else why_last, 2),
        *space.search_lines(),
    ]

"""Time series in tables: the order of the rows, the season, and a linear net with a correction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from netspec.errors import InputError, counted
from netspec.tools.init.column_survey import ColumnSurvey
from netspec.tools.init.files import Files, comment, document, entry, items, name_of, relative, training
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
TINY = 1_000
"""With fewer rows than this, none are held out for validation: early stopping would depend on too few."""
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

    @property
    def date_parts(self) -> list[str]:
        """Parts of a date that recur within the series, so that they can help to forecast."""
        repeats = {"month": self.step * self.longest >= 2 * YEAR and self.step < 28 * DAY}
        repeats |= {"weekday": 0 < self.step <= DAY, "hour": 0 < self.step < DAY}
        return [part for part, recurs in repeats.items() if recurs]


def series_files(path: Path, folder: Path, net: str, survey: TableSurvey, label: ColumnSurvey) -> Files:
    """Return the files to forecast a column. Raises `InputError` if rows are not in chronological order."""
    if not label.is_numeric:
        raise InputError(f"column {label.name!r} cannot be forecast", expected="numbers", got="texts")
    order = _order(path, survey, label)
    horizon = max(1, min(order.season, order.longest // 10))
    length = max(1, min(2 * order.season, order.longest // 3 - horizon))
    if order.longest < 10:
        raise InputError("the series is too short to be forecast", expected="10 rows or more", got=f"{order.longest}")
    columns = TableColumns(survey, label, regression=True, text=False, date_parts=order.date_parts)
    small = survey.rows < SMALL or not columns.width
    if small:
        columns.used = [used for used in columns.used if used[0] == label.name]
    files = Files("forecast", "", "")
    files.findings = [
        f"{survey.rows:,} rows, ordered by `{order.time}`",
        *([f"several series, named by `{order.group}`"] if order.group else []),
        f"a season of {order.season} rows: {order.season_name}",
        f"forecast of `{label.name}`: {counted(horizon, 'row')} from the last {length}",
    ]
    if label.missing:
        files.warnings.append(f"{label.missing:,} rows without `{label.name}`: no window spans them")
    files.net = _net(name_of(path), label, length, horizon, 0 if small else columns.width)
    files.train = _train(path, folder, net, survey, label, columns, order, length, horizon)
    return files


def _order(path: Path, survey: TableSurvey, label: ColumnSurvey) -> RowOrder:
    """Find the time column, and the column that names the series if there are several."""
    columns = [column for column in survey.columns if column is not label and not column.is_text]
    times = [column for column in columns if column.is_date and not column.missing]
    times += [column for column in columns if column.is_numeric and not column.missing]
    rows = list(islice(rows_of(path), MAX_ROWS))
    names = [column.name for column in survey.columns]
    for time in times:
        cells = [row[names.index(time.name)] for row in rows]
        moments = [_moment(cell) if time.is_date else float(cell) for cell in cells]
        for group in (None, *(column.name for column in columns if column is not time)):
            keys = [""] * len(rows) if group is None else [row[names.index(group)] for row in rows]
            series = _series(keys, moments)
            if series is not None:
                steps = [later - earlier for values in series for earlier, later in pairwise(values)]
                step = median(steps) if time.is_date else 0.0
                return RowOrder(time.name, group, max(map(len, series)), *_season(step), step)
    raise InputError(
        f"the rows of {path} are not in chronological order",
        expected="a time column (dates or numbers that increase from row to row); if there are several "
        "series, one after the other, also a column that names them",
    )


def _series(keys: Sequence[str], moments: Sequence[float]) -> list[list[float]] | None:
    """Return the times of each run of equal keys; None if a key occurs in two runs, or a time does not increase."""
    runs: list[list[float]] = []
    seen: set[str] = set()
    previous = None
    for key, moment in zip(keys, moments, strict=True):
        if key != previous:
            if key in seen:
                return None
            seen.add(key)
            runs.append([])
        elif moment <= runs[-1][-1]:
            return None
        runs[-1].append(moment)
        previous = key
    return runs if max(map(len, runs), default=0) > 1 else None


def _moment(cell: str) -> float:
    return (datetime.fromisoformat(cell).replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()


def _season(step: float) -> tuple[int, str]:
    for longest, rows, name in SEASONS:
        if 0 < step <= longest:
            return rows, f"the {name}"
    return NO_SEASON, "the time between rows is a year or more, or unknown"


def _net(name: str, label: ColumnSurvey, length: int, horizon: int, width: int) -> str:
    outputs = {"type": "Dense", "units": horizon}
    lines = [
        *comment(f"A net for a time series: it forecasts `{label.name}`."),
        "netspec: 1",
        f"name: {name}",
        "inputs:",
    ]
    lines += entry("past", {"shape": [length]}, f"`{label.name}` in the last {length} rows", 2)
    if width:
        lines += entry("features", {"shape": [length, width]}, "the other columns of these rows", 2)
    lines += entry("label", {"shape": [horizon] if horizon > 1 else []}, "the rows after them", 2)
    layers: list[tuple[dict[str, Any], str]] = []
    if width:
        layers = [
            ({"name": "linear", **outputs, "from": "past"}, "most of a forecast is a weighted sum of the past"),
            ({"name": "flat", "type": "Flatten", "from": "features"}, ""),
            ({"name": "joined", "type": "Concatenate", "from": ["past", "flat"]}, ""),
            ({"type": "Dense", "units": 64, "activation": "relu"}, "a correction that depends on the other columns"),
            ({"type": "Dropout", "rate": 0.2}, "against overfitting"),
            ({"name": "correction", **outputs}, ""),
            ({"name": "forecast", "type": "Add", "from": ["linear", "correction"]}, ""),
        ]
    else:
        layers = [
            ({"name": "forecast", **outputs, "from": "past"}, "a weighted sum of the past for each row to forecast")
        ]
    last = "forecast"
    if horizon == 1:
        last = "next"
        layers.append(({"name": last, "type": "Reshape", "target_shape": []}, ""))
    pair = {"from": [last, "label"]}
    lines += ["layers:", *items(layers, 2), *entry("outputs", [last])]
    lines += entry("losses", [{"type": "MeanSquaredError", **pair}])
    lines += entry("metrics", [{"type": "MeanAbsoluteError", "name": "mae", **pair}])
    return document(lines)


def _train(
    path: Path, folder: Path, net: str, survey: TableSurvey, label: ColumnSurvey, columns: TableColumns,
    order: RowOrder, length: int, horizon: int,
) -> str:  # fmt: skip
    lines = [
        *comment(f"Trains the net in {net} to forecast `{label.name}` of {relative(path, folder)}."),
        "netspec: 1", f"net: {net}", "data:", "  train:",
    ]  # fmt: skip
    source = {"source": survey.source["source"], "path": relative(path, folder), **survey.source, "label": label.name}
    lines += [line for key, value in source.items() for line in entry(key, value, "", 4)]
    lines.append("    columns:")
    for name, declared, why in columns.used:
        lines += entry(column_key(name), declared, why, 6)
    windows: dict[str, Any] = {"length": length, "horizon": horizon}
    windows |= {"group": order.group} if order.group else {}
    lines += entry(
        "windows", windows, f"reads {counted(length, 'row')}, and forecasts the next {counted(horizon, 'row')}", 4
    )
    tiny = survey.rows < TINY
    split = {**({} if tiny else {"validation": 0.15}), "test": 0.15, "time": order.time}
    lines += entry("split", split, "the last rows in time are held out to test the forecast", 4)
    lines += [*entry("batch_size", 16 if survey.rows < SMALL else 64, "", 4), *entry("shuffle", True, "", 4)]
    return document([*lines, *(_fixed_training() if tiny else training(monitor="loss", epochs=50, patience=6))])


def _fixed_training() -> list[str]:
    """Return `solver` and `train` for a number of epochs that does not depend on held-out rows."""
    return [
        "",
        "solver:",
        *entry("type", "AdamW", "works without tuning on most data", 2),
        *entry("weight_decay", 0.01, "", 2),
        *entry("learning_rate", 0.01, "", 2),
        "",
        "train:",
        *entry("max_epochs", 200, "", 2),
        *entry("restore_best", False, "the last weights: the best ones would be chosen by the test data", 2),
    ]

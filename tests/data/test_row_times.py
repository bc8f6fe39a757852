"""Times of a time series: rows out of order are refused, unusual steps and the times of forecasts are reported."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import netspec
from netspec.data.tabular.row_times import RowTimes, UsualSteps
from netspec.data.timestamps import moment_of
from netspec.errors import InputError

SPEC = """
netspec: 1
net:
  netspec: 1
  inputs: {past: {shape: [4]}, label: {shape: [2]}}
  layers: [{name: forecast, type: Dense, units: 2, from: past}]
  losses: [{type: MeanSquaredError, from: [forecast, label]}]
data:
  train:
    source: csv
    path: sales.csv
    header: true
    columns: {sales: numeric}
    label: sales
    windows: {length: 4, horizon: 2}
    split: {test: 0.2, time: day, time_format: "%d.%m.%Y"}
    batch_size: 8
solver: {type: SGD, learning_rate: 0.00001}
train: {max_steps: 2}
"""


def lines(days: list[int], format_: str = "%d.%m.%Y") -> str:
    """Return a table with sales on days, counted from January 1, 2026."""
    rows = [f"{(date(2026, 1, 1) + timedelta(day)).strftime(format_)},{100 + day % 7}" for day in days]
    return "\n".join(["day,sales", *rows]) + "\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("sales.csv").write_text(lines([*range(60)]))
    Path("train.yaml").write_text(SPEC)
    netspec.train("train.yaml", run_dir="run", device="reference")
    return "run"


def predicted(run: str, days: list[int], **arguments: Any) -> Any:
    Path("new.csv").write_text(lines(days))
    return netspec.predict(run, "new.csv", device="reference", **arguments)


def test_answers_name_the_last_time_that_they_read_and_the_times_of_the_last_forecast(run: str) -> None:
    prediction = predicted(run, [10, 11, 12, 13, 14])
    assert prediction.answers["day"] == ["14.01.2026", "15.01.2026"]
    assert prediction.time_notes == (
        "the 2 predictions after row 5 (15.01.2026) are for 16.01.2026 to 17.01.2026",
    )  # fmt: skip
    kept = predicted(run, [10, 11, 12, 13], keep=True)
    assert list(kept.answers) == ["day", "sales", "row", "prediction_0", "prediction_1"]


def test_rows_in_the_wrong_order_are_refused(run: str) -> None:
    with pytest.raises(InputError) as caught:
        predicted(run, [14, 13, 12, 11, 10])
    assert str(caught.value).splitlines() == [
        f"error: the rows of {Path('new.csv').absolute()} are not in chronological order",
        "  expected: no row earlier than the row before it",
        "  got: row 2: 14.01.2026 after 15.01.2026",
        "  hint: sort the rows by `day`",
    ]
    Path("sales.csv").write_text(lines([*range(60)][::-1]))
    with pytest.raises(InputError, match="not in chronological order"):
        netspec.train("train.yaml", run_dir="other", device="reference")


def test_steps_unlike_those_of_the_training_are_reported(run: str) -> None:
    gap, _ = predicted(run, [10, 11, 12, 13, 20, 21]).time_notes
    assert gap == (
        "1 step in `day` differs from the training data (1 day), the first before row 5 (14.01.2026 to 21.01.2026): "
        "predictions treat these rows as neighbors"
    )
    assert predicted(run, [10, 12, 14, 16]).time_notes[0].startswith("3 steps in `day` differ from the")
    assert predicted(run, [10, 10, 11, 12, 13]).time_notes[0].startswith("1 step in `day` differs from the")


MONDAY = 4
"""The first Monday of 2026, counted from its first day."""
WORKDAYS = [MONDAY + 7 * week + day for week in range(12) for day in range(5)]


def test_days_of_the_week_without_rows_are_no_unusual_steps(run: str) -> None:
    Path("sales.csv").write_text(lines(WORKDAYS))
    netspec.train("train.yaml", run_dir="workdays", device="reference")
    (forecast,) = predicted("workdays", WORKDAYS[:10]).time_notes
    assert forecast == "the 2 predictions after row 10 (16.01.2026) are for 19.01.2026 to 20.01.2026"
    wednesday = WORKDAYS[7]
    gap, _ = predicted("workdays", [day for day in WORKDAYS[:10] if day != wednesday]).time_notes
    assert gap == (
        "1 step in `day` differs from the training data (1 day, not counting Saturdays and Sundays), the first before "
        "row 8 (13.01.2026 to 15.01.2026): predictions treat these rows as neighbors"
    )
    saturday, _ = predicted("workdays", sorted([*WORKDAYS[:10], MONDAY + 5])).time_notes
    assert "before row 7 (10.01.2026 to 12.01.2026)" in saturday


@pytest.mark.parametrize(
    ("hours", "weekdays", "usual"),
    [
        ([24 * day for day in WORKDAYS], "1111100", (24, 24)),
        ([24 * day for day in [*WORKDAYS[:31], *WORKDAYS[32:41], *WORKDAYS[42:]]], "1111100", (24, 48)),
        ([24 * day + hour for day in WORKDAYS for hour in range(9, 18)], "1111100", (1, 16)),
        ([24 * (MONDAY + 7 * week + day) for week in range(8) for day in (0, 2, 4)], "1010100", (24, 24)),
        ([24 * (MONDAY + 7 * week) for week in range(20)], "1111111", (168, 168)),
        ([24 * day for day in WORKDAYS[:15]], "1111111", (24, 72)),  # too few weeks
        ([24 * (MONDAY + 7 * week + day) for week in range(8) for day in (0, 1, 4 + week % 2)], "1111111", (24, 96)),
        ([24 * day for day in range(60)], "1111111", (24, 24)),
    ],
)
def test_days_of_the_week_that_regularly_have_no_rows(hours: list[int], weekdays: str, usual: tuple[int, int]) -> None:
    values = np.datetime64("2026-01-01T00", "us") + np.array(hours) * np.timedelta64(1, "h")
    times = RowTimes("time", values, values)
    assert times.usual_steps == UsualSteps(3600.0 * usual[0], 3600.0 * usual[1], weekdays)
    assert times.describe_unusual(times.usual_steps) == ""


def test_files_need_no_times_and_data_frames_have_their_own_dates(run: str) -> None:
    Path("bare.csv").write_text("sales\n1\n2\n3\n4\n")
    bare = netspec.predict(run, "bare.csv", device="reference")
    assert (list(bare.answers), bare.time_notes) == (["row", "prediction_0", "prediction_1"], ())
    frame = pa.table({"day": [datetime(2026, 2, day) for day in range(1, 5)], "sales": [1.0, 2, 3, 4]})
    (forecast,) = netspec.predict(run, frame, device="reference").time_notes
    assert forecast.endswith("are for 2026-02-05 00:00:00 to 2026-02-06 00:00:00")
    with pytest.raises(InputError, match="the rows of the table are not in chronological order"):
        netspec.predict(run, frame.take([3, 2, 1, 0]), device="reference")
    Path("new.csv").write_text("day,sales\nMonday,1\nTuesday,2\nWednesday,3\nThursday,4\n")
    with pytest.raises(InputError, match="the column may be left out"):
        netspec.predict(run, "new.csv", device="reference")


@pytest.mark.parametrize(("metric", "repeated"), [("MeanAbsoluteError", 1.5), ("RootMeanSquaredError", 2.5**0.5)])
def test_forecasts_are_compared_with_the_last_value(run: str, metric: str, repeated: float) -> None:
    Path("sales.csv").write_text("day,sales\n" + "".join(f"{day},{day}\n" for day in range(60)))
    spec = yaml.safe_load(SPEC.replace(', time_format: "%d.%m.%Y"', ""))
    spec["net"]["metrics"] = [{"type": metric, "name": "error", "from": ["forecast", "label"]}]
    finished = netspec.train(spec, run_dir="bad", device="reference")
    assert finished.test is not None
    value = finished.test.metrics["error"]
    assert finished.test.notes == (f"error {value:.4f} is not better than repeating the last value: {repeated:.4f}",)


@pytest.mark.parametrize(
    ("cells", "next_times"),
    [
        (["2026-01-01", "2026-02-01", "2026-03-01", "2026-04-01"], "2026-05-01 to 2026-06-01"),
        (["2026-01", "2026-02", "2026-03"], "2026-04 to 2026-05"),
        (["2025-01-01", "2025-04-01", "2025-07-01", "2025-10-01"], "2026-01-01 to 2026-04-01"),
        (["2026-01-01T22:00", "2026-01-01T23:00", "2026-01-02T00:00"], "2026-01-02T01:00 to 2026-01-02T02:00"),
        (["2026-01-01 22:30:00", "2026-01-01 23:00:00"], "2026-01-01 23:30:00 to 2026-01-02 00:00:00"),
        (["1990", "1991", "1992"], "1993 to 1994"),
        (["2026-01-01", "2026-01-02", "2026-01-05"], ""),  # no regular step
        (["2026-01-01T22:00+01:00", "2026-01-01T23:00+01:00"], ""),  # the UTC offset of future times is unknown
    ],
)
def test_times_of_a_forecast(cells: list[str], next_times: str) -> None:
    is_year = len(cells[0]) == 4
    values = np.array([float(cell) if is_year else moment_of(cell) for cell in cells])
    times = RowTimes("time", values, np.array(cells))
    sentence = times.describe_forecast(len(cells) - 1, 2, times.usual_steps)
    assert sentence.partition(" are for ")[2] == next_times


def test_the_rarest_steps_of_the_training_are_not_usual() -> None:
    days = np.delete(np.arange(200), [50, 51, 52])
    times = RowTimes("day", days.astype(float), days.astype(str))
    assert times.usual_steps == UsualSteps(1.0, 1.0)
    assert "before row 51 (49 to 53)" in times.describe_unusual(UsualSteps(1.0, 1.0))
    series = RowTimes("day", np.array([1.0, 2, 1, 2]), np.array(["1", "2", "1", "2"]), groups=np.array([0, 0, 1, 1]))
    series.check_order("a.csv")
    assert series.usual_steps == UsualSteps(1.0, 1.0)


def test_rows_with_equal_times_are_usual_if_the_training_has_them() -> None:
    days = np.repeat(np.arange(20.0), 3)
    times = RowTimes("day", days, days.astype(str))
    assert times.usual_steps == UsualSteps(0.0, 1.0)
    assert times.describe_unusual(times.usual_steps) == ""
    assert times.describe_forecast(59, 2, times.usual_steps) == ""


@pytest.mark.parametrize(("hour", "text"), [(0, "2026-02-01"), (6, "2026-02-01T06:00:00")])
def test_dates_of_files_that_store_dates_are_written_in_iso_8601(hour: int, text: str) -> None:
    values = np.datetime64(datetime(2026, 2, 1, hour)) + np.arange(3) * np.timedelta64(1, "D")
    assert RowTimes("day", values, values).text(0) == text

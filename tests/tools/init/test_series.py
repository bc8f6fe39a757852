"""`netspec init --task forecast`: the order of the rows, several series, and files that train."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import netspec
from netspec.errors import InputError
from netspec.tools.init import InitResult, init
from netspec.tools.specs import load_train


def hourly(folder: Path, stations: int = 1, hours: int = 1600) -> Path:
    """Write hourly demand that follows the hour, the weekday and the temperature."""
    noise = np.random.default_rng(0)
    lines = ["station,time,temperature,demand"]
    for station in range(stations):
        for hour in range(hours):
            time = datetime(2024, 1, 1) + timedelta(hours=hour)
            temperature = 10 + 5 * np.sin(hour / 24 * 2 * np.pi) + noise.normal()
            demand = 100 + 20 * np.sin(hour / 24 * 2 * np.pi) + 10 * (time.weekday() < 5) + temperature
            lines.append(f"s{station},{time:%Y-%m-%d %H:%M},{temperature:.2f},{demand:.2f}")
    path = folder / "energy.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def trains(result: InitResult, folder: Path) -> netspec.Run:
    """Check the files, and train for an epoch."""
    checked = netspec.check(result.train)
    assert (checked.kind, checked.warnings) == ("training", ())
    return netspec.train(str(result.train), run_dir=folder / "run", device="reference", **{"train.max_epochs": 1})


def test_two_series_one_after_another(tmp_path: Path) -> None:
    result = init(hourly(tmp_path, stations=2), target="demand", task="forecast")
    assert result.findings == (
        "3,200 rows, ordered by `time`",
        "several series, named by `station`",
        "a season of 24 rows: the hours of a day",
        "forecast of `demand`: 24 rows from the last 48",
    )
    train = result.train.read_text()
    assert "windows: {length: 48, horizon: 24, group: station}" in train
    assert "time: {type: date, parts: [weekday, hour], normalization: standard}" in train
    split = load_train(result.train).data.train
    assert split.hold_out is not None
    assert (split.hold_out.time, split.hold_out.parts) == ("time", ("validation", "test"))
    run = trains(result, tmp_path)
    assert run.test is not None
    assert run.test.samples == 2 * (240 - 23)  # windows whose 24 targets are in the last 240 hours of a series


def test_few_rows_of_numbers(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("year,sales\n" + "".join(f"{1900 + row},{row % 4}\n" for row in range(60)))
    result = init(path, target="sales", task="forecast")
    train = result.train.read_text()
    assert "windows: {length: 14, horizon: 6}" in train
    assert "split: {test: 0.15, time: year}" in train
    assert "restore_best: false" in train
    assert "kernel_regularizer: {type: L2, l2: 0.0049}" in result.net.read_text()  # 1 / (34 windows · 6 rows)
    run = trains(result, tmp_path)
    assert run.test is not None
    assert run.test.samples == 4


@pytest.mark.parametrize(("days", "reads"), [(300, False), (500, True)])
def test_few_rows_read_other_columns_if_they_suffice(tmp_path: Path, days: int, reads: bool) -> None:
    noise = np.random.default_rng(0)
    price = noise.normal(size=days)
    sales = np.roll(price, 1) + 0.5 * np.sin(np.arange(days) * 2 * np.pi / 7)  # the price of the day before
    lines = [f"{datetime(2024, 1, 1) + timedelta(days=day):%Y-%m-%d},{price[day]},{sales[day]}" for day in range(days)]
    path = tmp_path / "sales.csv"
    path.write_text("day,price,sales\n" + "\n".join(lines) + "\n")
    result = init(path, target="sales", task="forecast")
    left_out = [finding for finding in result.findings if finding.startswith("left out")]
    if not reads:
        reason = "237 windows are too few to also read this column without overfitting, which takes 280"
        assert left_out == [f"left out: `price`: {reason}"]
        assert "features" not in result.net.read_text()
        return
    assert left_out == []
    assert "features: {shape: [14, 1]}" in result.net.read_text()
    run = netspec.train(str(result.train), run_dir=tmp_path / "run", device="reference")
    assert run.test is not None
    assert 0.6 < run.test.metrics["mae"] < 0.72  # only the first of 7 rows can be forecast exactly
    importance = {each.column: each.increase for each in netspec.explain_columns(run.run_dir)}
    assert importance["price"] > 0.2


def test_one_row_ahead(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("year,sales\n" + "".join(f"{1900 + row},{row % 4}\n" for row in range(19)))
    result = init(path, target="sales", task="forecast")
    assert "horizon: 1}" in result.train.read_text()
    trains(result, tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([5, 3, 4, 9] * 6, r"row 2: 3 after 5"),
        ([1, 2, 3], "the series is too short to be forecast"),
    ],
)
def test_rows_that_cannot_be_forecast(tmp_path: Path, rows: list[int], message: str) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("year,sales\n" + "".join(f"{year},{index}\n" for index, year in enumerate(rows)))
    with pytest.raises(InputError, match=message):
        init(path, target="sales", task="forecast")
    assert not (tmp_path / "train.yaml").exists()


def test_texts_cannot_be_forecast(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("year,name\n" + "".join(f"{1900 + row},n{row}\n" for row in range(30)))
    with pytest.raises(InputError, match="column 'name' cannot be forecast"):
        init(path, target="name", task="forecast")


def daily(folder: Path, rows: list[tuple[str, int]], *, head: str = "day,sales", format: str = "%Y-%m-%d") -> Path:
    """Write rows of a series and a day."""
    lines = [f"{series}{datetime(2024, 1, 1) + timedelta(days=day):{format}},{day % 7}" for series, day in rows]
    (folder / "t.csv").write_text("\n".join([head, *lines]) + "\n")
    return folder / "t.csv"


def test_times_in_a_format_of_their_own(tmp_path: Path) -> None:
    result = init(daily(tmp_path, [("", day) for day in range(60)], format="%d.%m.%Y"), target="sales", task="forecast")
    assert 'time: day, time_format: "%d.%m.%Y"}' in result.train.read_text()
    assert trains(result, tmp_path).test is not None


def test_days_of_the_week_without_rows_are_no_gaps(tmp_path: Path) -> None:
    workdays = [day for day in range(100) if day % 7 < 5]  # the first day is a Monday
    result = init(daily(tmp_path, [("", day) for day in workdays]), target="sales", task="forecast")
    assert not result.warnings
    assert "a season of 5 rows: the days of a week" in result.findings
    without = [("", day) for day in workdays if day != 37]
    (gap,) = init(daily(tmp_path, without), target="sales", task="forecast", force=True).warnings
    assert gap.startswith("1 gap in `day`, first before row 28 (2024-02-06 to 2024-02-08)")


def test_gaps_and_repeated_times_are_reported(tmp_path: Path) -> None:
    days = [*range(30), 29, *range(35, 60)]
    result = init(daily(tmp_path, [("", day) for day in days]), target="sales", task="forecast")
    copy, gap = result.warnings
    assert copy.startswith("1 row with the same `day` as the row before, first row 31 (2024-01-30): remove duplicates")
    assert gap.startswith("1 gap in `day`, first before row 32 (2024-01-30 to 2024-02-05)")
    text = result.train.read_text().replace("\n    # ", " ")
    assert all(f"Check the rows: {warning}" in text for warning in result.warnings)
    trains(result, tmp_path)


def interleaved(name: bool) -> list[tuple[str, int]]:
    return [(f"{station}," if name else "", day) for day in range(40) for station in "ab"]


@pytest.mark.parametrize(
    ("rows", "head", "got", "hint"),
    [
        (
            [("", day) for day in reversed(range(40))], "day,sales", "row 2: 2024-02-08 after 2024-02-09",
            "sort the rows by `day`, for example with `DataFrame.sort_values(['day'])`",
        ),
        (
            interleaved(name=True), "station,day,sales", "row 2: 2024-01-01 after 2024-01-01",
            "`station` names the series: sort the rows by `station` and `day`",
        ),
        (
            interleaved(name=False), "day,sales", "row 2: 2024-01-01 after 2024-01-01",
            "rows have the same `day`: if the table has several series, it needs a column that names them",
        ),
    ],
    ids=["reversed", "interleaved", "unnamed series"],
)  # fmt: skip
def test_rows_in_another_order(tmp_path: Path, rows: list[tuple[str, int]], head: str, got: str, hint: str) -> None:
    with pytest.raises(InputError, match="are not in chronological order") as error:
        init(daily(tmp_path, rows, head=head), target="sales", task="forecast")
    (problem,) = error.value.problems
    assert problem.got == got
    assert str(problem.hint).startswith(hint)


def test_columns_that_small_tables_leave_out_are_named(tmp_path: Path) -> None:
    result = init(hourly(tmp_path, hours=400), target="demand", task="forecast")
    reason = "279 windows are too few to also read this column without overfitting, which takes 960"
    assert f"left out: `temperature`: {reason}" in result.findings
    assert f"temperature: {reason}" in result.train.read_text().replace("\n    # ", " ")


@pytest.mark.slow
def test_a_short_series_is_forecast_as_by_ridge_regression(tmp_path: Path) -> None:
    noise = np.random.default_rng(3)
    values = [100 + month + 20 * np.sin(month / 6 * np.pi) + noise.normal(0, 4) for month in range(144)]
    path = tmp_path / "t.csv"
    months = [f"{1990 + month // 12}-{1 + month % 12:02}" for month in range(144)]
    path.write_text("month,sales\n" + "".join(f"{at},{value:.1f}\n" for at, value in zip(months, values, strict=True)))
    result = init(path, target="sales", task="forecast")
    run = netspec.train(str(result.train), run_dir=tmp_path / "run", device="reference")
    parts: dict[str, Any] = dict(load_train(result.train).data.splits())
    train = parts["train"].open()
    test = parts["test"].open(learned=train.learned)
    (x, y), (tx, ty) = ([np.asarray(fields[name]) for name in ("past", "label")]
                        for fields in (part.read(np.arange(len(part))) for part in (train, test)))  # fmt: skip
    ridge = Ridge(1.0).fit(x, y)
    assert run.test is not None
    assert run.test.metrics["mae"] == pytest.approx(np.abs(ridge.predict(tx) - ty).mean(), rel=0.03)

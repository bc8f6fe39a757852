"""`netspec init --task forecast`: the order of the rows, several series, and files that train."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

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
    run = trains(result, tmp_path)
    assert run.test is not None
    assert run.test.samples == 4


def test_one_row_ahead(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("year,sales\n" + "".join(f"{1900 + row},{row % 4}\n" for row in range(19)))
    result = init(path, target="sales", task="forecast")
    assert "horizon: 1}" in result.train.read_text()
    trains(result, tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([5, 3, 4, 9] * 6, "are not in chronological order"),
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

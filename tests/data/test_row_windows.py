"""`windows` of a table: samples of consecutive rows, for time series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import netspec
from netspec.data.base import FieldType, Source
from netspec.errors import InputError
from netspec.schema.specs.data import DataSpec
from tests.data.conftest import split_of

COUNT = 10


def table(folder: Path, rows: list[str] | None = None, **fields: Any) -> Source:
    """Return a source of ten rows: `time` 0 to 9, `temperature` 100 to 109, `demand` 0, 10, …, 90."""
    rows = rows or [f"{index},{100 + index},{10 * index}" for index in range(COUNT)]
    (folder / "a.csv").write_text("time,temperature,demand\n" + "\n".join(rows) + "\n")
    split = {
        "source": "csv",
        "path": str(folder / "a.csv"),
        "header": True,
        "columns": {"temperature": "numeric"},
        "label": "demand",
    }
    return split_of(**{**split, **fields})


def read(source: Source, **arguments: Any) -> dict[str, Any]:
    """Return all samples of a source."""
    dataset = source.open(**arguments)
    return dict(dataset.read(np.arange(len(dataset))))


def test_windows_and_the_labels_that_follow(tmp_path: Path) -> None:
    source = table(tmp_path, windows={"length": 3, "horizon": 2, "stride": 2})
    dataset = source.open()
    assert dataset.fields == {
        "features": FieldType((3, 1), "float32"),
        "label": FieldType((2,), "int32"),
        "past": FieldType((3,), "int32"),
    }
    samples = read(source)
    assert samples["features"][:, :, 0].tolist() == [[100, 101, 102], [102, 103, 104], [104, 105, 106]]
    assert samples["past"].tolist() == [[0, 10, 20], [20, 30, 40], [40, 50, 60]]
    assert samples["label"].tolist() == [[30, 40], [50, 60], [70, 80]]
    assert dataset.column_ranges == {"temperature": ("features", 0, 1), "demand": ("past", 0, 3)}
    assert dataset.identify(1) == ("row", 5)
    assert dataset.describe(1).endswith("a.csv, line 6, with the 2 rows before it")


@pytest.mark.parametrize(("horizon", "labels"), [(0, [20, 30, 40]), (1, [30, 40, 50])])
def test_one_label(tmp_path: Path, horizon: int, labels: list[int]) -> None:
    source = table(tmp_path, windows={"length": 3, "horizon": horizon})
    assert read(source)["label"][:3].tolist() == labels
    assert source.open().values_of("label")[:3].tolist() == labels


def test_no_window_spans_rows_that_are_left_out(tmp_path: Path) -> None:
    rows = [f"{index},{'' if index == 4 else 100 + index},{10 * index}" for index in range(COUNT)]
    samples = read(table(tmp_path, rows, windows={"length": 3, "horizon": 1}, missing="drop"))
    assert samples["past"].tolist() == [[0, 10, 20], [50, 60, 70], [60, 70, 80]]
    assert samples["label"].tolist() == [30, 80, 90]


def test_no_window_spans_two_groups(tmp_path: Path) -> None:
    rows = [f"{'ab'[index >= 6]},{100 + index},{10 * index}" for index in range(COUNT)]
    samples = read(table(tmp_path, rows, windows={"length": 3, "group": "time"}))
    assert samples["label"].tolist() == [30, 40, 50, 90]


def test_targets_of_held_out_rows_follow_rows_of_training(tmp_path: Path) -> None:
    source = table(tmp_path, windows={"length": 2}, split={"test": 0.3, "time": "time"})
    parts = DataSpec(train=source).splits()
    train, test = parts["train"], parts["test"]
    assert isinstance(train, Source)
    assert isinstance(test, Source)
    learned = train.open().learned
    assert read(train)["label"].tolist() == [20, 30, 40, 50, 60]
    samples = read(test, learned=learned)
    assert samples["label"].tolist() == [70, 80, 90]
    assert samples["past"].tolist() == [[50, 60], [60, 70], [70, 80]]


def test_statistics_come_from_the_training_part(tmp_path: Path) -> None:
    columns = {"temperature": {"type": "numeric", "normalization": "standard"}}
    source = table(tmp_path, columns=columns, windows={"length": 2}, split={"test": 0.3, "time": "time"})
    parts = DataSpec(train=source).splits()
    train, test = parts["train"], parts["test"]
    assert isinstance(train, Source)
    assert isinstance(test, Source)
    mean, deviation = np.arange(100, 107).mean(), np.arange(100, 107).std()
    samples = read(test, learned=train.open().learned)
    np.testing.assert_allclose(samples["features"][0, :, 0], (np.array([105, 106]) - mean) / deviation, rtol=1e-6)


def test_parquet_in_parts_equals_csv(tmp_path: Path) -> None:
    columns = {
        name: np.arange(COUNT) * step + start for name, step, start in (("temperature", 1, 100), ("demand", 10, 0))
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=3)
    windows = {"length": 3, "horizon": 2}
    fields: dict[str, Any] = {"columns": {"temperature": "numeric"}, "label": "demand", "windows": windows, "cache": 0}
    paged = read(split_of(source="parquet", path=str(tmp_path / "a.parquet"), **fields))
    for name, values in read(table(tmp_path, windows=windows)).items():
        np.testing.assert_array_equal(paged[name], values)


def test_limit_counts_windows(tmp_path: Path) -> None:
    assert len(table(tmp_path, windows={"length": 3}, limit=2).open()) == 2


def test_digest_depends_on_the_windows(tmp_path: Path) -> None:
    digests = {table(tmp_path, windows={"length": 3, "horizon": horizon}).open().digest for horizon in (0, 1, 2)}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"windows": {"length": 10}}, "expected: 10 rows and the 1 row after it without a gap\n  got: 10 rows"),
        ({"windows": {"length": 3, "group": "town"}}, "the table has no column `town`"),
    ],
)
def test_windows_that_do_not_fit(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        table(tmp_path, **fields).open()
    assert message in str(caught.value)


SPEC = """
netspec: 1
net:
  netspec: 1
  inputs: {past: {shape: [4]}, label: {shape: [2]}}
  layers: [{name: forecast, type: Dense, units: 2, from: past}]
  losses: [{type: MeanSquaredError, from: [forecast, label]}]
  metrics: [{type: MeanAbsoluteError, name: mae, from: [forecast, label]}]
data:
  train:
    source: csv
    path: series.csv
    header: true
    columns: {value: {type: numeric, normalization: standard}}
    label: value
    windows: {length: 4, horizon: 2, stride: 2}
    split: {test: 0.25, time: day}
    batch_size: 8
    shuffle: true
solver: {type: Adam, learning_rate: 0.05}
train: {max_epochs: 60, seed: 1}
"""


def test_forecasts_are_in_the_units_of_the_data(tmp_path: Path) -> None:
    values = [100 + 20 * np.sin(2 * np.pi * day / 6) for day in range(80)]
    (tmp_path / "series.csv").write_text("day,value\n" + "".join(f"{day},{v}\n" for day, v in enumerate(values)))
    (tmp_path / "train.yaml").write_text(SPEC)
    run = netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference")
    assert run.test is not None
    assert run.test.notes == ()  # no note that repeating the last value would be better
    deviation = np.std(values[:60])
    np.testing.assert_allclose(run.test.in_units["mae"], run.test.metrics["mae"] * deviation, rtol=1e-4)
    (importance,) = netspec.explain_columns(run.run_dir, device="reference")
    assert importance.column == "value"
    assert importance.increase > 0.5  # in standard deviations: the forecast depends on the label's own past
    recent = tmp_path / "recent.csv"
    recent.write_text("day,value\n" + "".join(f"{day},{values[day]}\n" for day in range(70, 75)))
    prediction = netspec.predict(run.run_dir, recent, device="reference")
    assert prediction.answers["row"] == [4, 5]  # each row with three rows before it
    forecast = [[prediction.answers[f"prediction_{step}"][row] for step in range(2)] for row in range(2)]
    np.testing.assert_allclose(forecast, [values[74:76], values[75:77]], atol=2)  # the amplitude is 20
    rows = [{"day": day, "value": values[day]} for day in range(71, 75)]
    np.testing.assert_allclose(
        netspec.load(run.run_dir, device="reference").predict(rows)["forecast"][0], prediction.outputs["forecast"][1],
        atol=1e-5,
    )  # fmt: skip

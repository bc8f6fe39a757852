"""Parquet files: the same columns as of text tables, read by row groups."""

from __future__ import annotations

import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from netspec.data.base import Dataset, FieldType
from netspec.data.sources.parquet import Parquet
from netspec.data.tabular import parquet
from netspec.data.tabular.dataset import PagedDataset
from netspec.errors import InputError, install_command
from tests.data.conftest import problems_of, split_of

ROWS = {
    "age": pa.array([30, None, 50, 40], pa.int16()),
    "pay": pa.array([Decimal("100.5"), Decimal("2.25"), Decimal("99.5"), Decimal(300)]),
    "known": pa.array([True, False, True, None]),
    "town": pa.array(["Bern", "Genf", "Bern ", "Chur"]).dictionary_encode(),
    "room": pa.array([3, 12, 3, 3]),
    "born": pa.array([date(1990, 2, 28), date(1985, 12, 31), date(2000, 1, 1), date(1969, 7, 20)]),
    "seen": pa.array([datetime(2020, 1, 1, 12)] * 4, pa.timestamp("ms", "Europe/Zurich")),
    "note": pa.array(["1.5", "?", None, "2"]),
    "tags": pa.array([[1], [2], [], [3]]),
}


def table(folder: Path, columns: Any = None, rows: Any = None, *, size: int = 3, **fields: Any) -> Dataset:
    pq.write_table(pa.table(rows or ROWS), folder / "some.parquet", row_group_size=size)
    split = split_of(str(folder / "train.yaml"), source="parquet", path="some.parquet", columns=columns, **fields)
    return split.open()


def test_columns_of_all_kinds(tmp_path):
    columns = {
        "age": {"type": "numeric", "missing": "mean"},
        "pay": "numeric",
        "known": {"type": "categorical", "unknown": "index", "missing": "unknown", "output_mode": "int"},
        "town": {"type": "categorical", "vocabulary": ["Genf", "Bern", "Chur"]},
        "room": {"type": "categorical", "vocabulary": [12, 3], "output_mode": "int"},
        "born": {"type": "date", "parts": ["month"]},
        "seen": {"type": "date", "parts": ["hour"]},
        "note": {"type": "numeric", "missing": 0},
    }
    for cache in (512, 0):
        data = table(tmp_path, columns, cache=cache)
        assert isinstance(data, PagedDataset) == (cache == 0)
        assert data.fields["features"] == FieldType((8,), "float32")
        columns_read = data.read(np.array([3, 0, 1, 2]))
        assert np.asarray(columns_read["features"]).tolist() == [
            [40, 300, 0, 0, 1, 7, 12, 2],
            [30, 100.5, 0, 1, 0, 2, 12, 1.5],
            [40, 2.25, 1, 0, 0, 12, 12, 0],
            [50, 99.5, 0, 1, 0, 1, 12, 0],
        ]
        assert (np.asarray(columns_read["known"]).tolist(), np.asarray(columns_read["room"]).tolist()) == (
            [0, 2, 1, 2],
            [1, 1, 0, 1],
        )
        assert data.describe(3) == "some.parquet, row 4"
        assert data.learned == {"age": {"fill": 40.0}, "known": {"vocabulary": ["false", "true"]}}


def test_numeric_columns_and_a_label(tmp_path):
    data = table(tmp_path, ["pay", 5], label="town")
    assert np.asarray(data.read(np.array([1]))["features"]).tolist() == [[2.25, 12]]
    assert data.classes == {"label": ("Bern", "Chur", "Genf")}


def test_problems_of_rows_and_columns_are_reported(tmp_path):
    rows = {"x": pa.array([1.0, None, float("inf"), 2.0]), "town": pa.array(["a", "b", "c", None])}
    columns = {"x": "numeric", "town": {"type": "categorical", "vocabulary": ["a", "b"]}}
    with pytest.raises(InputError) as error:
        table(tmp_path, columns, rows)
    assert problems_of(error, tmp_path) == WRONG
    remaining = table(tmp_path, columns, rows | {"town": pa.array(["a", "b", "c", "b"])}, on_error="skip", cache=0)
    assert (len(remaining), remaining.skipped) == (2, 2)
    assert np.asarray(remaining.read(np.array([0, 1]))["features"]).tolist() == [[1, 1, 0], [2, 0, 1]]
    with pytest.raises(InputError, match=r"`tags` of .* is of the type list"):
        table(tmp_path, ["tags"])
    with pytest.raises(InputError, match="has no column 'ages'") as error:
        table(tmp_path, ["ages"])
    assert error.value.problems[0].hint == "did you mean `age`?"


def test_damaged_parquet_files_are_reported(tmp_path):
    table(tmp_path, ["pay"])
    path = tmp_path / "some.parquet"
    content = path.read_bytes()
    rows = len(content) - 12 - int.from_bytes(content[-8:-4], "little")  # between the magic bytes and the metadata
    split = split_of(str(tmp_path / "train.yaml"), source="parquet", path="some.parquet", columns=["pay"])
    for damaged, message in (
        (b"", "is not a Parquet file"),
        (b"a,b\n1,2\n", "is not a Parquet file"),
        (content[: len(content) // 2], "is damaged"),
        (content[:4] + bytes(rows) + content[4 + rows :], "is damaged"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=message):
            split.open()
    with pytest.raises(InputError, match="has no rows"):
        table(tmp_path, ["x"], {"x": pa.array([], pa.float32())})
    path.unlink()
    with pytest.raises(InputError, match="does not exist"):
        split.open()


def test_a_file_that_changes_while_it_is_read(tmp_path):
    data = table(tmp_path, ["pay"], cache=0)
    data.read(np.array([0]))
    pq.write_table(pa.table(ROWS).slice(1), tmp_path / "some.parquet")
    with pytest.raises(InputError, match="changed while it was read"):
        data.read(np.array([3]))


def test_a_missing_pyarrow_is_named(tmp_path, monkeypatch):
    split = split_of(str(tmp_path / "train.yaml"), source="parquet", path="some.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError) as error:
        split.open()
    assert error.value.problems[0].hint == install_command("parquet")


WRONG = """\
./train.yaml:3:7: error: ./some.parquet, row 2: column `x` has no value here
  at: path
  expected: a number
  got: an empty cell
  hint: fill the cell, or train with `missing: 0` (any number) or `missing: median` to replace it
./train.yaml:3:7: error: ./some.parquet, row 3: column `x` has a number that float32 cannot hold
  at: path
  got: inf
./train.yaml:3:7: error: ./some.parquet, row 3: 'c' is not a declared category
  at: path
  expected: one of a, b
  hint: `unknown: index` gives unknown categories an index of their own
./train.yaml:3:7: error: ./some.parquet, row 4: column `town` has no value here
  at: path
  expected: a category
  got: an empty cell
  hint: fill the cell, or train with `missing: most_frequent`, `missing: drop`, or `missing: unknown`
4 errors"""


def test_text_tables_to_predict_are_known_in_any_encoding(tmp_path):
    split = split_of(str(tmp_path / "train.yaml"), source="parquet", path="some.parquet", columns=["größe"])
    assert isinstance(split, Parquet)
    path, text = tmp_path / "new.csv", "größe,town\n1,Zürich\n"
    path.write_bytes(text.encode())
    assert list(split.other_file(path).names) == ["größe", "town"]
    path.write_bytes(text.encode("cp1252"))
    with pytest.raises(InputError, match="this row is not UTF-8 text"):
        split.other_file(path)


def test_a_label_stored_as_numbers_stays_numeric_if_its_first_values_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "HEAD", 2)
    rows = {"a": [1.0, 2.0, 3.0, 4.0], "b": pa.array([None, None, 7, 5])}
    data = table(tmp_path, rows=rows, size=4, label="b", on_error="skip")
    assert data.classes == {}
    assert np.asarray(data.read(np.arange(2))["label"]).tolist() == [7, 5]

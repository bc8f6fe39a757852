"""`predict` for images, rows, data frames and texts in memory equals `predict` for the same samples in files."""

from __future__ import annotations

import errno
from datetime import date
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image

import netspec
from netspec.errors import InputError

ROWS: list[dict[str, Any]] = [
    {"size": 1.5, "color": "green"},
    {"size": None, "color": "red"},
    {"size": 9, "color": "blue"},
]
CSV = "size,color\n1.5,green\n,red\n9,blue\n"


class PandasFrame:
    """A stand-in for a pandas data frame: missing cells are NaN in `to_dict`, unless replaced."""

    columns = ("size", "color")

    def astype(self, kind: type) -> PandasFrame:
        """Return the frame with cells of any type."""
        assert kind is object
        return self

    def notna(self) -> None:
        """Return which cells are not missing."""

    def where(self, present: None, value: None) -> PandasFrame:
        """Return the frame with missing cells replaced."""
        return self

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        """Return the rows."""
        assert orient == "records"
        return [{**row, "size": float("nan") if row["size"] is None else row["size"]} for row in ROWS]


@pytest.mark.parametrize("rows", [ROWS, pa.Table.from_pylist(ROWS), PandasFrame()], ids=["rows", "arrow", "pandas"])
def test_rows_equal_the_rows_of_a_file(table_run: Path, tmp_path: Path, rows: Any) -> None:
    (tmp_path / "rows.csv").write_text(CSV)
    model = netspec.load(table_run, device="reference")
    expected = netspec.predict(table_run, tmp_path / "rows.csv", device="reference")
    np.testing.assert_array_equal(model.predict(rows)["logits"], expected.outputs["logits"])
    answers = netspec.predict(table_run, rows, device="reference").answers
    assert answers == expected.answers
    assert answers["row"] == [1, 2, 3]


REGRESSION = """
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [FEATURES]}, label: {shape: []}}
  layers: [{type: Dense, units: 1, from: features}, {type: Reshape, target_shape: [], name: price}]
  losses: [{type: MeanSquaredError, from: [price, label]}]
data: {train: {source: csv, path: homes.csv, batch_size: 2, SOURCE}}
train: {max_steps: 1}
solver: {type: SGD, learning_rate: 0.0000001}
"""


def trained_on(folder: Path, table: str, source: str, features: int) -> Path:
    """Return a run that was trained on the table `homes.csv` with the fields `source`."""
    (folder / "homes.csv").write_text(table)
    (folder / "train.yaml").write_text(REGRESSION.replace("SOURCE", source).replace("FEATURES", str(features)))
    netspec.train(folder / "train.yaml", run_dir=folder / "run", device="reference")
    return folder / "run"


def test_numbers_are_numbers_in_any_notation_of_the_table(tmp_path: Path) -> None:
    grade = "{type: categorical, missing: most_frequent}"
    columns = f'{{size: numeric, rain: {{type: numeric, unit: "%", missing: 0}}, grade: {grade}, price: numeric}}'
    source = f'header: true, delimiter: ";", decimal: ",", thousands: ".", label: price, columns: {columns}'
    table = "size;rain;grade;price\n1.234,5;10,5 %;1,5;3,5\n2,5;;;4\n0,00025;7 %;1,5;3\n"
    run = trained_on(tmp_path, table, source, 3)
    expected = netspec.predict(run, tmp_path / "homes.csv", device="reference").outputs["price"]
    texts = [
        {"size": "1.234,5", "rain": "10,5 %", "grade": "1,5"}, {"size": "2,5", "rain": None, "grade": None},
        {"size": "0,00025", "rain": "7 %", "grade": "1,5"},
    ]  # fmt: skip
    numbers = [
        {"size": 1234.5, "rain": 10.5, "grade": 1.5}, {"size": 2.5, "rain": np.float32("nan"), "grade": None},
        {"size": np.float64(2.5e-4), "rain": np.int64(7), "grade": 1.5},
    ]  # fmt: skip
    decimals = [
        {"size": Decimal("1234.5"), "rain": Decimal("10.5"), "grade": Decimal("1.5")},
        {"size": Decimal("2.5"), "rain": Decimal("nan"), "grade": None},
        {"size": Decimal("2.5E-4"), "rain": 7, "grade": Decimal("1.5")},
    ]
    for rows in (texts, numbers, decimals, pa.Table.from_pylist(numbers)):
        np.testing.assert_array_equal(netspec.predict(run, rows, device="reference").outputs["price"], expected)


def test_rows_of_a_table_without_header_are_by_number(tmp_path: Path) -> None:
    source = "header: false, columns: [1, 2], label: 3, missing: mean"
    run = trained_on(tmp_path, "1,2,3\n4,5,6\n,5,6\n", source, 2)
    expected = netspec.predict(run, tmp_path / "homes.csv", device="reference").outputs["price"]
    rows = [{"1": 1, "2": 2}, {"2": 5, "1": 4}, {"2": 5}]
    actual = netspec.predict(run, rows, device="reference")
    np.testing.assert_array_equal(actual.outputs["price"], expected)
    assert actual.missing_key_notes == ("keys that rows do not have count as null: `1` is missing in row 3",)


def test_texts_for_a_table_of_texts(text_table_run: Path) -> None:
    answers = netspec.predict(text_table_run, [{"text": "awful poor"}, {"review": "nice great"}]).answers
    assert answers["class"] == ["bad", "good"]


def test_texts_without_known_words_are_noted(text_run: Path, text_table_run: Path, tmp_path: Path) -> None:
    texts = [{"text": "nice"}, {"text": "fine day"}, {"text": ""}]
    for run in (text_run, text_table_run):
        assert netspec.predict(run, texts, batch_size=2).unknown == (
            "2 texts have no token of the vocabulary: row 2, row 3",
        )
        assert netspec.predict(run, texts[:1]).unknown == ()
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    assert netspec.predict(text_run, tmp_path).unknown == (
        f"2 texts have no token of the vocabulary: {tmp_path / 'a.txt'}, {tmp_path / 'b.txt'}",
    )


def test_one_row(table_run: Path) -> None:
    row = {"size": 9.1, "color": "red"}
    answers = netspec.predict(table_run, [row], device="reference").answers
    assert answers["class"] == ["apple"]
    assert netspec.predict(table_run, row, device="reference").answers == answers
    model = netspec.load(table_run, device="reference")
    np.testing.assert_array_equal(model.predict(row)["logits"], model.predict([row])["logits"])


@pytest.mark.parametrize("value", [np.int64(3), np.array(3), Decimal(3)], ids=["NumPy", "array", "decimal"])
def test_one_row_of_any_numbers(table_run: Path, value: Any) -> None:
    row = {"size": value, "color": "red"}
    expected = netspec.predict(table_run, [{"size": 3, "color": "red"}], device="reference").answers
    assert netspec.predict(table_run, row, device="reference").answers == expected


def test_decimals_and_arrays_for_a_table_in_parquet(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"size": [1.5, 2.5], "price": [3.0, 4.0]}), tmp_path / "homes.parquet")
    source = "columns: {size: {type: numeric, missing: mean}, price: numeric}, label: price"
    spec = REGRESSION.replace("source: csv, path: homes.csv", "source: parquet, path: homes.parquet")
    (tmp_path / "train.yaml").write_text(spec.replace("SOURCE", source).replace("FEATURES", "1"))
    run = netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference").run_dir
    rows = [{"size": Decimal("1.5")}, {"size": 2.5}, {"size": np.array(3)}, {"size": Decimal("nan")}]
    actual = netspec.predict(run, rows, device="reference").answers
    rows = [{"size": 1.5}, {"size": 2.5}, {"size": 3}, {"size": None}]
    assert actual == netspec.predict(run, rows, device="reference").answers


def test_one_row_with_a_date(tmp_path: Path) -> None:
    source = "header: true, label: price, columns: {day: {type: date, parts: [month]}, price: numeric}"
    run = trained_on(tmp_path, "day,price\n2026-01-02,3\n2026-05-06,4\n", source, 1)
    row = {"day": date(2026, 5, 6)}
    answers = netspec.predict(run, [row], device="reference").answers
    assert netspec.predict(run, row, device="reference").answers == answers


TOWNS = """
netspec: 1
net:
  netspec: 1
  inputs: {town: {shape: [], dtype: int32}, label: {shape: []}}
  layers:
    - {type: Embedding, input_dim: 2, output_dim: 1, from: town}
    - {type: Reshape, target_shape: [], name: price}
  losses: [{type: MeanSquaredError, from: [price, label]}]
data:
  train:
    source: csv
    path: homes.csv
    header: true
    columns: {town: {type: categorical, output_mode: int, field: town}, price: numeric}
    label: price
    batch_size: 2
train: {max_steps: 1}
solver: {type: SGD, learning_rate: 0.01}
"""


def test_one_row_whose_keys_are_inputs_of_the_net(tmp_path: Path) -> None:
    (tmp_path / "homes.csv").write_text("town,price\nLund,1\nKiel,2\n")
    (tmp_path / "train.yaml").write_text(TOWNS)
    model = netspec.load(netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run", device="reference").run_dir)
    row = {"town": "Lund"}
    np.testing.assert_array_equal(model.predict(row)["price"], model.predict([row])["price"])


def test_images_equal_their_files(image_run: Path, tmp_path: Path) -> None:
    images = [Image.new("RGB", (9, 7), (shade, 40, 90)) for shade in (20, 230)]
    files = [tmp_path / f"{index}.png" for index in range(2)]
    for image, file in zip(images, files, strict=True):
        image.save(file)
    model = netspec.load(image_run, device="reference")
    expected = netspec.predict(image_run, files, device="reference")
    for samples in (images, files, [str(file) for file in files]):
        np.testing.assert_array_equal(model.predict(samples)["logits"], expected.outputs["logits"])
    single = model.predict(images[0])["logits"]
    np.testing.assert_allclose(
        single, expected.outputs["logits"][:1], rtol=1e-6
    )  # another batch size rounds differently
    answers = netspec.predict(image_run, images, device="reference").answers
    assert answers == {"row": [1, 2], **{name: expected.answers[name] for name in ("class", "probability")}}


def test_a_full_disk_for_temporary_files(image_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    image = Image.new("RGB", (6, 6))
    monkeypatch.setattr(Image.Image, "save", save)
    with pytest.raises(netspec.RunError, match=r"cannot write temporary files to .*\n  got: No space left") as error:
        netspec.predict(image_run, image, device="reference")
    assert "TMPDIR" in str(error.value)


def test_an_image_in_a_mode_that_png_does_not_have(image_run: Path) -> None:
    with pytest.raises(InputError, match="image 1 cannot be written as PNG: cannot write mode CMYK"):
        netspec.predict(image_run, Image.new("CMYK", (6, 6)), device="reference")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_of_texts_equals_texts_in_files(text_run: Path, tmp_path: Path, suffix: str) -> None:
    table, texts = tmp_path / f"new{suffix}", ["good good", "bad, bad"]
    if suffix == ".csv":
        table.write_text('id,text\n7,good good\n8,"bad, bad"\n')
    else:
        pyarrow.parquet.write_table(pa.table({"id": [7, 8], "text": texts}), table)
    expected = netspec.predict(text_run, [{"text": text} for text in texts], device="reference")
    predicted = netspec.predict(text_run, table, keep=True, device="reference")
    np.testing.assert_array_equal(predicted.outputs["logits"], expected.outputs["logits"])
    ids = ["7", "8"] if suffix == ".csv" else [7, 8]
    assert predicted.answers == {"id": ids, "text": texts, **expected.answers}
    with table.open("rb") as content:
        streamed = netspec.predict(text_run, content, keep=True, device="reference")
    assert streamed.answers == predicted.answers


def test_a_table_without_texts_is_refused(text_run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id,body\n1,good\n")
    with pytest.raises(InputError, match=r"has no column `text`"):
        netspec.predict(text_run, tmp_path / "new.csv", device="reference")
    (tmp_path / "new.csv").write_bytes(b"id,text\n1,good\n2,b\xe4d\n")
    with pytest.raises(InputError, match=r"new.csv:3:4: error: this row is not UTF-8 text"):
        netspec.predict(text_run, tmp_path / "new.csv", device="reference")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (["Come on, Kate"], 'no such file or folder: "Come on, Kate"'),
        ([{"text": "good"}, {"text": None}], "sample 2 has no text"),
        ([{"text": None}], "sample 1 has no text"),
        ([{"text": 3}], "sample 1 has no text"),
        ([{"txt": "good"}], "sample 1 has no text"),
    ],
)
def test_samples_without_texts_are_refused(text_run: Path, samples: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        netspec.load(text_run, device="reference").predict(samples)
    assert '[{"text": "…"}]' in str(caught.value.render())


def test_texts_equal_their_files(text_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("nice poor great")
    model = netspec.load(text_run, device="reference")
    expected = netspec.predict(text_run, tmp_path / "text.txt", device="reference").outputs["logits"]
    np.testing.assert_array_equal(model.predict([{"text": "nice poor great"}])["logits"], expected)


def test_rows_by_the_names_of_inputs_are_arrays(table_run: Path) -> None:
    model = netspec.load(table_run, device="reference")
    features = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(
        model.predict([{"features": features}])["logits"], model.predict({"features": features[None]})["logits"]
    )


def test_a_file_may_lack_columns_whose_cells_may_be_empty(table_run: Path, tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("size,color\n,red\n,green\n")
    expected = netspec.predict(table_run, tmp_path / "all.csv", device="reference").answers
    (tmp_path / "rows.csv").write_text("color,shop\nred,A\ngreen,B\n")
    pa.parquet.write_table(pa.table({"color": ["red", "green"], "shop": ["A", "B"]}), tmp_path / "rows.parquet")
    note = "the column `size` is missing, so all cells count as empty; columns that are not read: `shop`"
    frame = pa.table({"color": ["red", "green"]})
    for rows in (tmp_path / "rows.csv", tmp_path / "rows.parquet", frame):
        actual = netspec.predict(table_run, rows, device="reference")
        assert actual.answers == expected
        assert actual.missing_key_notes == (note.partition(";")[0] if rows is frame else note,)
    with pytest.warns(UserWarning, match="the column `size` is missing"):
        netspec.load(table_run, device="reference").predict(tmp_path / "rows.csv")


def test_a_misspelled_column_of_a_file_is_an_error(table_run: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("sice,color\n3,red\n")
    with pytest.raises(InputError, match=r"no column 'size'(.|\n)*did you mean `sice` as `size`\?"):
        netspec.predict(table_run, tmp_path / "rows.csv", device="reference")


def test_files_of_texts_are_predicted_by_a_net_that_learned_the_texts_of_a_table(
    text_table_run: Path, tmp_path: Path
) -> None:
    texts = ["nice day\nnice", "awful"]
    expected = netspec.predict(text_table_run, [{"text": text} for text in texts], device="reference")
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    actual = netspec.predict(text_table_run, paths, device="reference")
    assert actual.answers == {
        "file": list(map(str, paths)),
        **{name: values for name, values in expected.answers.items() if name != "row"},
    }
    with pytest.raises(InputError, match="only the rows of a table have columns to keep"):
        netspec.predict(text_table_run, paths, keep=True, device="reference")
    answers = netspec.predict(text_table_run, BytesIO(b"awful\n"), device="reference").answers
    assert (answers["file"], answers["class"]) == (["-"], actual.answers["class"][1:])
    with pytest.raises(InputError, match="no column 'review'"):
        netspec.predict(text_table_run, BytesIO(b"nice day\nawful\n"), device="reference")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            [Image.new("RGB", (4, 4))],
            "kind that the net was trained on\n  expected: paths, rows by column, or a data frame",
        ),
        (
            [{"size": 1, "color": "red"}, {"size": [1], "color": {}}],
            """error: row 2: `size` is not a single value
  expected: a number, a text, true, false or null
  got: a list
error: row 2: `color` is not a single value
  expected: a number, a text, true, false or null
  got: an object
2 errors""",
        ),
        (
            [{"size": 1, "color": "red\n"}, {"size": "big", "color": "red"}],
            "error: row 2: `size` is not a number\n  got: 'big'",
        ),
        (
            [{"color": "red", "Size": 1}],
            """error: no row has the key 'size'
  expected: rows with the keys 'color', 'size'
  got: the keys 'Size', 'color'
  hint: did you mean `Size` as `size`?""",
        ),
        (
            [{"Size": 1, "n": 2}],
            """error: no row has the keys 'color', 'size'
  expected: rows with the keys 'color', 'size'
  got: the keys 'Size', 'n'
  hint: did you mean `Size` as `size`?""",
        ),
    ],
)
def test_wrong_samples(table_run: Path, samples: Any, message: str) -> None:
    model = netspec.load(table_run, device="reference")
    with pytest.raises(InputError) as caught:
        model.predict(samples)
    assert message in str(caught.value)
    assert "/netspec-" not in str(caught.value)


def test_net_without_its_training_takes_arrays_only(table_run: Path) -> None:
    model = netspec.load(netspec.load(table_run, device="reference").spec, device="reference")
    with pytest.raises(InputError, match="a net without its training takes arrays only"):
        model.predict(ROWS)

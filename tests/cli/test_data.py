"""`netspec data`: statistics of a training's data, images before and after transforms, and reports of damaged data."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from netspec.tools.data_report import inspect_data

NET = """\
netspec: 1
inputs:
  image: {shape: [3, 12, 12]}
  label: {shape: [], dtype: int32}
layers: [{type: Flatten}, {name: logits, type: Dense, units: 2}]
losses: [{type: SparseCategoricalCrossentropy, from_logits: true}]
"""
TRAIN = """\
netspec: 1
net: photos.yaml
data:
  train:
    source: image_folder
    path: photos
    size: [16, 14]
    batch_size: 4
    shuffle: true
    transforms:
      - {type: RandomCrop, height: 12, width: 12}
      - {type: Normalization, adapt: true}
  test:
    source: image_folder
    path: photos
    size: [12, 12]
    batch_size: 3
    transforms: [{type: Normalization, adapt: true}]
solver: SGD
train: {max_epochs: 1, seed: 1}
"""
QUICK = ("--seconds", "0")


@pytest.fixture
def photos(work):
    rng = np.random.default_rng(0)
    for name, many in (("cat", 4), ("dog", 6)):
        (work / "photos" / name).mkdir(parents=True)
        for number in range(many):
            pixels = rng.integers(0, 256, (16, 14, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(work / "photos" / name / f"{number}.png")
    (work / "photos.yaml").write_text(NET)
    (work / "photos_train.yaml").write_text(TRAIN)
    return work / "photos"


def pixels_of(photos) -> np.ndarray:
    return np.stack([np.asarray(Image.open(file)) for file in sorted(photos.rglob("*.png"))]).astype(np.float64)


def test_summary_and_contact_sheet_of_images(netspec, work, photos):
    result = netspec("data", "show", "photos_train.yaml", *QUICK)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("train: 10 samples of `image_folder`\n")
    lines = [line.split() for line in result.out.splitlines()]
    assert ["image", "raw", "uint8", "of", "shape", "[3,", "16,", "14]"] in [line[:8] for line in lines]
    assert ["image", "prepared", "float32", "of", "shape", "[3,", "12,", "12]"] in [line[:8] for line in lines]
    assert ["cat", "4", "40.0", "%", "#" * 20] in lines
    assert ["dog", "6", "60.0", "%", "#" * 30] in lines
    assert "learned from the training data:\n" in result.out
    assert result.out.endswith("images: data_train.png\n")
    with Image.open(work / "data_train.png") as sheet:
        assert sheet.format == "PNG"
        # Images of 14 × 16 pixels are enlarged 6 times, and each of their three crops of 12 × 12 pixels 8 times.
        assert sheet.width > 4 * 84
        colors = np.asarray(sheet.convert("RGB")).reshape(-1, 3)
        assert (colors == (0, 110, 200)).all(axis=1).sum() > 10 * 300  # frames of ten samples


def test_figures_equal_the_files(netspec, photos):
    result = netspec("data", "show", "photos_train.yaml", "--json", "--samples", "0", *QUICK).json
    pixels = pixels_of(photos)
    image = result["fields"]["image"]
    assert image["low"] == pixels.min((0, 1, 2)).tolist()
    assert image["high"] == pixels.max((0, 1, 2)).tolist()
    np.testing.assert_allclose(image["mean"], pixels.mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(image["deviation"], pixels.std((0, 1, 2)), rtol=1e-12)
    prepared = result["prepared"]["image"]
    assert (prepared["shape"], prepared["dtype"]) == ([3, 12, 12], "float32")
    # The mean was learned from the same crops, but rounded to 24 bits.
    np.testing.assert_allclose(prepared["mean"], 0, atol=1e-6)
    np.testing.assert_allclose(prepared["deviation"], 1, atol=1e-6)
    assert result["fields"]["label"]["classes"] == {"cat": 4, "dog": 6}
    assert (result["samples"], result["read"], result["damaged"]) == (10, 10, [])
    assert result["samples_per_second"] is None
    assert result["contact_sheet"] is None


def test_test_data_uses_values_learned_from_training_data(netspec, work, photos):
    train = netspec("data", "show", "photos_train.yaml", "--json", "--samples", "0", *QUICK).json
    test = netspec("data", "show", "photos_train.yaml", "--split", "test", "--json", "--output", "t.png", *QUICK).json
    assert test["learned"] == train["learned"]
    assert test["split"] == "test"
    assert test["contact_sheet"] == "t.png"
    assert (work / "t.png").is_file()
    assert not (work / "data_test.png").exists()
    # The mean of the training data was subtracted, not that of the test data.
    assert abs(test["prepared"]["image"]["mean"][0]) > 1e-4


def test_fewer_samples_are_spread_over_the_set(netspec, photos):
    result = netspec("data", "show", "photos_train.yaml", "--read", "5", "--samples", "0", "--json", *QUICK).json
    assert (result["samples"], result["read"]) == (10, 5)
    assert result["fields"]["label"]["classes"] == {"cat": 2, "dog": 3}
    output = netspec("data", "show", "photos_train.yaml", "--read", "5", "--samples", "0", *QUICK).out
    assert output.startswith("train: 10 samples of `image_folder`; statistics of 5 of them\n")


def test_the_rate_of_the_loader_is_measured(netspec, photos):
    result = netspec("data", "show", "photos_train.yaml", "--samples", "0", "--seconds", "0.05", "--json").json
    assert result["samples_per_second"] > 0


def test_a_damaged_image_is_reported_or_left_out(netspec, photos):
    file = photos / "dog" / "3.png"
    file.write_bytes(file.read_bytes()[:100])
    words = ("data", "show", "photos_train.yaml", "--samples", "3", *QUICK)
    result = netspec(*words)
    assert (result.status, result.out) == (2, "")
    assert "dog/3.png cannot be read" in result.err
    assert "requested at" in result.err or "photos_train.yaml:" in result.err
    skipping = netspec.ok(*words, "data.train.on_error=skip")
    assert "1 damaged sample left out:\n" in skipping.out
    assert "dog/3.png cannot be read" in skipping.out
    counted = netspec(*words, "data.train.on_error=skip", "--json").json
    assert counted["fields"]["label"]["classes"] == {"cat": 4, "dog": 5}
    (reason,) = counted["damaged"]
    assert reason.endswith("dog/3.png cannot be read: image file is truncated")


@pytest.mark.filterwarnings("error")
def test_warnings_of_pillow_are_not_printed(netspec, photos):
    pixels = Image.open(photos / "dog" / "3.png")
    pixels.save(photos / "dog" / "3.png", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    result = netspec("data", "show", "photos_train.yaml", "--samples", "0", *QUICK)
    assert (result.status, result.err) == (0, "")


def test_samples_that_are_no_images_are_printed_as_rows(netspec, work):
    result = netspec("data", "show", "train.yaml", "--samples", "2", *QUICK)
    assert (result.status, result.err) == (0, "")
    assert "images" not in result.out
    assert not list(work.glob("*.png"))
    rows = netspec("data", "show", "train.yaml", "--samples", "2", "--json", *QUICK).json["rows"]
    with np.load(work / "blobs.npz") as stored:
        assert rows[0]["label"] == stored["label"][0]
        assert rows[0]["features"].startswith(f"[{stored['features'][0, 0]:,.5g}, ")
    assert len(rows) == 2


def test_values_that_are_missing_are_counted(netspec, work):
    with np.load(work / "blobs.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays["features"] = arrays["features"].astype(np.float32)
    arrays["features"][3, 1] = np.nan
    np.savez(work / "blobs.npz", **arrays)
    result = netspec("data", "show", "train.yaml", "--json", *QUICK)
    features = result.json["fields"]["features"]
    assert features["missing"] == 1
    np.testing.assert_allclose(features["mean"], np.nanmean(arrays["features"].astype(np.float64), axis=0), rtol=1e-6)


FLATS = """\
area,rooms,city,sold,heated,note,price
61.5,2,Bonn,2021-03-01,yes,quiet and bright,250000
,3,Köln,2021-05-11,yes,close to the park,310000
80,3,Köln,2022-01-20,no,near a station with a new roof,290000
122,5,Ulm,2020-07-09,?,large,480000
40,1,Köln,,no,old,150000
"""
FLATS_TRAIN = """\
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [10]}, note: {shape: [4], dtype: int32}, label: {shape: []}}
  layers: [{name: y, type: Dense, units: 1, from: features}]
  losses: [{type: MeanSquaredError, from: [y, label]}]
data:
  train:
    source: csv
    path: flats.csv
    header: true
    label: price
    columns:
      area: {type: numeric, missing: median, missing_indicator: true, normalization: standard}
      rooms: numeric
      city: categorical
      sold: {type: date, parts: [year], missing: drop}
      heated: {type: categorical, missing: unknown, unknown: index}
      note: {type: text, field: note, length: 4, tokenizer: {type: words, unknown: true, padding: true}}
    batch_size: 2
solver: SGD
train: {max_epochs: 1}
"""


@pytest.fixture
def flats(work):
    (work / "flats.csv").write_text(FLATS, encoding="utf-8")
    (work / "flats.yaml").write_text(FLATS_TRAIN)


def test_columns_of_a_table_are_summarized_as_in_the_file(netspec, flats):
    result = netspec("data", "show", "flats.yaml", "--json", *QUICK).json
    columns = {column.pop("name"): column for column in result["columns"]}
    numbers = {"type": "numeric", "label": False, "field": "features"}
    dates = {"low": "2020-07-09", "mean": "2021-04-10", "high": "2022-01-20"}
    assert columns == {
        "area": numbers | {"missing": 1, "low": 61.5, "mean": (61.5 + 80 + 122) / 3, "high": 122, "elements": [0, 2]},
        "rooms": numbers | {"missing": 0, "low": 1 + 1, "mean": 3.25, "high": 5, "elements": [2, 3]},
        "city": numbers | {
            "type": "categorical", "missing": 0, "categories": 3, "elements": [3, 6],
            "most_frequent": {"Köln": 2, "Bonn": 1, "Ulm": 1},
        },
        "sold": numbers | {"type": "date", "missing": 0, **dates, "elements": [6, 7]},
        "heated": numbers | {
            "type": "categorical", "missing": 1, "categories": 2, "elements": [7, 10],
            "most_frequent": {"yes": 2, "no": 1},
        },
        "note": {
            "type": "text", "label": False, "missing": 0, "words": {"low": 1, "mean": 3.75, "high": 7}, "field": "note",
            "elements": [0, 4],
        },
        "price": numbers | {
            "label": True, "missing": 0, "low": 250000, "mean": 332500, "high": 480000, "field": "label",
            "elements": [0, 1],
        },
    }  # fmt: skip
    assert [row["sample"] for row in result["rows"]] == [f"flats.csv, line {line}" for line in (2, 3, 4, 5)]
    assert result["rows"][1]["cells"] == {
        "area": "", "rooms": "3", "city": "Köln", "sold": "2021-05-11", "heated": "yes", "note": "close to the park",
        "price": "310000",
    }  # fmt: skip


def test_columns_of_a_table_are_printed_by_name(netspec, flats):
    output = netspec("data", "show", "flats.yaml", *QUICK).out
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "1 row left out: `sold` is missing in row 5" in lines
    assert "area numeric 25.0 % 61.5 87.833 122 features[0:2]" in lines
    assert "city categorical Köln 50 %, Bonn 25 %, Ulm 25 % features[3:6]" in lines
    assert "sold date 2020-07-09 2021-04-10 2022-01-20 features[6]" in lines
    assert "note text 1 words 3.75 words 7 words note" in lines
    assert "price numeric, label 250,000 332,500 480,000 label" in lines
    assert any(line.startswith("source area (x − 87.833) / ") and line.endswith("; missing: 80") for line in lines)
    assert "flats.csv, line 3 3 Köln 2021-05-11 yes close to the… 310000" in lines
    assert "{" not in output


def test_rows_of_a_wide_table_are_cut(netspec, work):
    names = [f"p{number}" for number in range(30)]
    (work / "wide.csv").write_text("\n".join([",".join([*names, "y"]), *[",".join(["1"] * 30 + ["2"])] * 4]))
    (work / "wide.yaml").write_text(
        "netspec: 1\nnet: net.yaml\ndata: {train: {source: csv, path: wide.csv, header: true, label: y, "
        "batch_size: 2}}\nsolver: SGD\ntrain: {max_epochs: 1}\n"
    )
    lines = netspec("data", "show", "wide.yaml", *QUICK).out.splitlines()
    assert "10 more columns" in lines
    assert [line.split()[0] for line in lines[3:25]] == [*names[:20], "y", "10"]
    assert "sample            p0  p1  p2  p3  p4  p5  p6  p7  y" in lines
    assert lines[-1] == "and 22 more columns"


def test_windows_of_a_table_have_the_columns_of_all_their_rows(netspec, work):
    rows = [f"{hour},{number}" for hour, number in enumerate((4, 1, 2, 3, 9, 100))]
    (work / "load.csv").write_text("\n".join(["hour,load", *rows]))
    (work / "load.yaml").write_text(
        "netspec: 1\nnet: net.yaml\ndata: {train: {source: csv, path: load.csv, header: true, label: load, "
        "columns: {load: numeric}, windows: {length: 2, horizon: 1}, batch_size: 2}}\nsolver: SGD\n"
        "train: {max_epochs: 1}\n"
    )
    result = netspec("data", "show", "load.yaml", "--json", *QUICK).json
    (load,) = result["columns"]
    assert (load["low"], load["high"], load["mean"], load["field"]) == (1, 9, 3.8, "past")
    assert [row["cells"] for row in result["rows"]] == [{"load": text} for text in ("1", "2", "3", "9")]


def test_rows_of_texts_are_readable(netspec, work):
    for name, text in (("ham", "meet me at noon"), ("spam", "win a prize")):
        (work / "mails" / name).mkdir(parents=True)
        (work / "mails" / name / "a.txt").write_text(text)
    (work / "mails.yaml").write_text(
        "netspec: 1\nnet: net.yaml\ndata: {train: {source: documents, path: mails, batch_size: 2, tokenizer: "
        "{type: words, padding: true}, transforms: [{type: Padding, length: 5}]}}\nsolver: SGD\n"
        "train: {max_epochs: 1}\n"
    )
    result = netspec("data", "show", "mails.yaml", "--json", *QUICK).json
    assert [row["text"] for row in result["rows"]] == ["meet me at noon", "win a prize"]
    output = netspec("data", "show", "mails.yaml", *QUICK).out
    assert "vocabulary of 7: a, at, me, meet, noon, prize and 1 more" in output
    rare = {"unknown": "true", "size": 5}
    changes = [f"data.train.tokenizer.{name}={value}" for name, value in rare.items()]
    result = netspec("data", "show", "mails.yaml", *changes, "--json", *QUICK).json
    assert "<unknown>" in result["rows"][1]["text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("net.yaml",), "this is a net file, which has no data"),
        (("train.yaml", "--split", "tests"), "did you mean `test`?"),
        (("train.yaml", "--split", "test", "~data.test"), "there is no test data"),
        (("train.yaml", "--samples", "-1"), "--samples must be 0 or more"),
        (("train.yaml", "--output", "sheet.jpg"), "--output: the file is written as PNG"),
        (("train.yaml", "--output", "nowhere/sheet.png"), "--output: folder nowhere does not exist"),
        (("train.yaml", "data.train.path=nosuch.npz"), "does not exist"),
    ],
)
def test_data_that_cannot_be_shown_is_reported(netspec, work, words, message):
    result = netspec("data", "show", *words, *QUICK)
    assert (result.status, result.out) == (2, "")
    assert message in result.err


def test_list_shows_all_sources(netspec):
    sources = netspec("data", "list", "--json").json["sources"]
    assert {source["source"] for source in sources} >= {"mnist", "image_folder", "csv", "npz"}
    assert all(source["reads"] for source in sources)
    assert "image_folder" in netspec("data", "list").out


def test_mixed_samples_are_shown_with_the_shares_of_their_classes(work, photos):
    text = TRAIN.replace(
        "      - {type: Normalization, adapt: true}\n  test", "      - {type: MixUp, num_classes: 2}\n  test"
    )
    (work / "photos_train.yaml").write_text(text)
    report = inspect_data("photos_train.yaml", max_samples=0)
    indices, (raw, prepared) = report.prepared(10, 1)
    assert report.label(raw, 0) == "cat"
    for row in range(len(indices)):
        share = prepared["label"][row][0]
        shares = ((share, "cat"), (1 - share, "dog"))
        shares_text = [f"{100 * part:.0f} % {name}" for part, name in shares if part >= 0.005]
        assert sorted(report.label(prepared, row).split(" + ")) == sorted(shares_text)
    assert any("+" in report.label(prepared, row) for row in range(len(indices)))

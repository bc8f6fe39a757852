"""`netspec data`: figures of what a training reads, images of what transforms make of it, damaged data told."""

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
    assert ["image", "raw", "[3,", "16,", "14]", "of", "uint8"] in [line[:7] for line in lines]
    assert ["image", "prepared", "[3,", "12,", "12]", "of", "float32"] in [line[:7] for line in lines]
    assert ["cat", "4", "40.0", "%", "#" * 20] in lines
    assert ["dog", "6", "60.0", "%", "#" * 30] in lines
    assert "learned from the training data:\n" in result.out
    assert result.out.endswith("images: data_train.png\n")
    with Image.open(work / "data_train.png") as sheet:
        assert sheet.format == "PNG"
        # Images of 14 × 16 pixels are shown 6 times as large: one framed, three prepared ones of 12 × 12, 8 times.
        assert sheet.width > 4 * 84
        colours = np.asarray(sheet.convert("RGB")).reshape(-1, 3)
        assert (colours == (0, 110, 200)).all(axis=1).sum() > 10 * 300  # frames of ten samples


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
    np.testing.assert_allclose(prepared["mean"], 0, atol=1e-6)  # that of the same crops, rounded to 24 bits
    np.testing.assert_allclose(prepared["deviation"], 1, atol=1e-6)
    assert result["fields"]["label"]["classes"] == {"cat": 4, "dog": 6}
    assert (result["samples"], result["read"], result["damaged"]) == (10, 10, [])
    assert result["samples_per_second"] is None
    assert result["contact_sheet"] is None


def test_test_data_uses_values_learned_from_training_data(netspec, work, photos):
    train = netspec("data", "show", "photos_train.yaml", "--json", "--samples", "0", *QUICK).json
    test = netspec("data", "show", "photos_train.yaml", "--split", "test", "--json", "--out", "t.png", *QUICK).json
    assert test["learned"] == train["learned"]
    assert test["split"] == "test"
    assert test["contact_sheet"] == "t.png"
    assert (work / "t.png").is_file()
    assert not (work / "data_test.png").exists()
    assert abs(test["prepared"]["image"]["mean"][0]) > 1e-4  # not its own mean


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
    skipping = netspec(*words, "data.train.on_error=skip")
    assert skipping.status == 0, skipping.err
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("net.yaml",), "this is a net file, which has no data"),
        (("train.yaml", "--split", "tests"), "did you mean `test`?"),
        (("train.yaml", "--split", "test", "~data.test"), "there is no test data"),
        (("train.yaml", "--samples", "-1"), "--samples must be 0 or more"),
        (("train.yaml", "--out", "sheet.jpg"), "--out: images are written as PNG"),
        (("train.yaml", "--out", "nowhere/sheet.png"), "--out: there is no folder nowhere"),
        (("train.yaml", "data.train.path=nosuch.npz"), "there is no file"),
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

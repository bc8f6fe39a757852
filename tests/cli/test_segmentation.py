"""Segmentation on the command line: inspect, train, evaluate and predict images with masks."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from netspec import explain_image, load
from tests.cli.conftest import Netspec
from tests.cli.exported_scripts import run_script

NET = """\
netspec: 1
name: fields
inputs: {image: {shape: [3, 8, 8]}, mask: {shape: [8, 8], dtype: int32}}
layers: [{name: logits, type: Conv2D, filters: 3, kernel_size: 1, from: image}]
losses:
  - type: SparseCategoricalCrossentropy
    from: [logits, mask]
    from_logits: true
    axis: 1
    ignore_class: 255
    class_weight: balanced
metrics: [{type: MeanIoU, num_classes: 3, sparse_y_pred: false, axis: 1, ignore_class: 255, from: [logits, mask]}]
"""
TRAIN = """\
netspec: 1
net: net.yaml
data:
  train:
    source: segmentation_folder
    path: fields
    split: {validation: 0.25}
    batch_size: 4
    shuffle: true
    transforms: [{type: Resizing, height: 8, width: 8}, {type: RandomFlip}, {type: Rescaling, scale: 0.00390625}]
solver: {type: SGD, learning_rate: 0.5, momentum: 0.9}
train: {max_steps: 60, seed: 1}
"""
COLORS = np.array([[10, 10, 10], [200, 30, 30], [30, 200, 30]], np.uint8)


@pytest.fixture
def fields(current_folder: Path) -> Path:
    """Twelve images of 16 × 24 pixels, in whose left and right halves are two of three classes."""
    for name in ("images", "masks"):
        (current_folder / "fields" / name).mkdir(parents=True)
    for index in range(12):
        mask = np.zeros((16, 24), np.uint8)
        mask[:, :12], mask[:, 12:] = index % 3, (index + 1) % 3
        Image.fromarray(COLORS[mask]).save(f"fields/images/{index}.png")
        Image.fromarray(mask).save(f"fields/masks/{index}.png")
    Path("fields/classes.txt").write_text("soil\nred\ngreen\n")
    Path("net.yaml").write_text(NET)
    Path("train.yaml").write_text(TRAIN)
    return current_folder


@pytest.mark.slow
def test_train_evaluate_and_predict(netspec: Netspec, fields: Path) -> None:
    netspec.ok("check", "train.yaml", "--strict")
    trained = netspec.ok("train", "train.yaml", "--run-dir", "run", "--device", "reference")
    assert trained.out.count("class_weight: balanced") == 1
    assert "soil " in trained.out
    report = netspec("test", "run", "--split", "validation", "--report", "--output", "report").out
    assert "iou" in report
    rows = list(csv.DictReader(Path("report/classification_report.csv").read_text().splitlines()))
    assert [row[""] for row in rows[:3]] == ["soil", "red", "green"]
    metrics = json.loads(Path("report/metrics.json").read_text())["metrics"]
    assert float(rows[4]["iou"]) == pytest.approx(metrics["mean_io_u"], rel=1e-6)
    assert metrics["mean_io_u"] > 0.99

    why = netspec("explain", "run", "--input", "fields/images/0.png", "--class", "red", "--output", "why.png").out
    assert why.startswith("class red: 9")
    heat = explain_image("run", "fields/images/0.png", label="red").heat_map
    assert heat[:, 5:].mean() > 0.01  # the right half is red
    np.testing.assert_allclose(heat[:, :3], 0, atol=1e-6)  # 1 × 1 convolutions see single pixels

    printed = netspec("predict", "run", "--input", "fields/images/0.png").out
    assert "array [16, 24]" in printed  # the size of the image, not of the net's output
    assert "soil 50.0%, red 50.0%" in printed or "red 50.0%, soil 50.0%" in printed
    netspec.ok("predict", "run", "--input", "fields/images", "--output", "masks")
    assert Path("masks/classes.txt").read_text() == "soil\nred\ngreen\n"
    for index in range(12):
        with Image.open(f"masks/{index}.png") as mask, Image.open(f"fields/masks/{index}.png") as expected:
            assert mask.mode == "P"
            np.testing.assert_array_equal(np.asarray(mask), np.asarray(expected))


def test_a_net_for_images_of_another_size_names_the_override(netspec: Netspec, fields: Path) -> None:
    Path("train.yaml").write_text(TRAIN.replace("{type: Resizing, height: 8, width: 8}, ", ""))
    load("net.yaml").save_weights("net.h5")
    options = ("--weights", "net.h5", "--device", "reference", "--input", "fields/images/0.png")
    command = ("predict", "train.yaml", *options)
    result = netspec(*command)
    assert result.status == 2
    assert result.err.endswith(
        "  hint: add `'data.train.size=[8,8]'` to resize the images\n"
    )  # a shell reads [ ] as a pattern
    assert "array [16, 24]" in netspec(*command, "data.train.size=[8,8]").out  # the size of the image


@pytest.mark.slow
def test_the_script_of_an_exported_model_writes_masks(netspec: Netspec, fields: Path) -> None:
    netspec.ok("train", "train.yaml", "--run-dir", "run", "--device", "reference")
    netspec.ok("export", "run", "--output", "model")
    assert "finds the class of each pixel, one of 3" in Path("model/README.md").read_text()
    image = "fields/images/1.png"
    done = run_script(image, path="model/run.py")
    assert done.status == 0, done.err
    netspec.ok("predict", "run", "--input", image, "--output", "masks")
    with Image.open("1_mask.png") as mask, Image.open("masks/1.png") as expected:
        np.testing.assert_array_equal(np.asarray(mask), np.asarray(expected))
    shares = sorted(done.out.split(": ")[1].strip().split(", "))
    assert shares == ["green 50.0%", "red 50.0%"]
    (answer,) = run_script(image, "--json", path="model/run.py").lines
    assert answer["file"] == image
    assert answer["shares"] == {"soil": 0, "green": 0.5, "red": 0.5}


def test_masks_of_the_same_name_are_not_overwritten(netspec: Netspec, fields: Path) -> None:
    netspec.ok("train", "train.yaml", "train.max_steps=1", "--run-dir", "run", "--device", "reference")
    Path("other").mkdir()
    Path("fields/images/0.png").rename("other/1.png")
    result = netspec("predict", "run", "--input", "other", "fields/images", "--output", "masks")
    assert result.status == 2
    assert "two images would be written to masks/1.png" in result.err
    assert "other/1.png and fields/images/1.png" in result.err


def test_data_show_counts_pixels_and_draws_masks(netspec: Netspec, fields: Path) -> None:
    printed = netspec("data", "show", "train.yaml", "--seconds", "0").out
    counts = [line.split()[1] for line in printed.splitlines() if line.startswith(("soil", "red", "green"))]
    assert sum(int(count.replace(",", "")) for count in counts) == 9 * 16 * 24
    assert "pixels" in printed
    with Image.open("data_train.png") as sheet:
        drawn = {color for _, color in sheet.convert("RGB").getcolors(2**20) or []}
    assert tuple(COLORS[1].tolist()) not in drawn  # the pixels of class 1 are blended with its color


def test_a_mask_without_an_image_stops_before_training(netspec: Netspec, fields: Path) -> None:
    Path("fields/masks/3.png").unlink()
    result = netspec("train", "train.yaml", "--run-dir", "run")
    assert result.status == 2
    assert "1 of 12 images have no mask" in result.err
    assert "train.yaml:6" in result.err
    assert not Path("run").exists()

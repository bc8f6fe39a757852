"""Detection on the command line: inspect, train, evaluate and predict images with boxes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from netspec import explain_image, predict
from netspec.data.imaging.palette import class_colors
from netspec.tools.serving.service import PredictionService
from tests.cli.conftest import Netspec
from tests.cli.exported_scripts import run_script

NET = """\
netspec: 1
name: cells
inputs: {image: {shape: [3, 16, 16]}, boxes: {shape: [4, 4]}, labels: {shape: [4], dtype: int32}}
layers:
  - {type: AveragePooling2D, pool_size: 8, from: image}
  - {name: head, type: Conv2D, filters: 6, kernel_size: 1, kernel_initializer: zeros}
  - {name: detections, type: AnchorFreeBoxes}
losses: [{type: AnchorFreeDetection, from: [head, boxes, labels], radius: 0.5}]
metrics: [{type: MeanAveragePrecision, name: mAP, from: [detections, boxes, labels]}]
"""
TRAIN = """\
netspec: 1
net: net.yaml
data:
  train:
    source: detection_folder
    path: photos
    annotations: boxes.json
    split: {validation: 0.25}
    max_boxes: 4
    batch_size: 6
    shuffle: true
    transforms: [STEPS, {type: RandomFlip}, {type: Rescaling, scale: 0.00390625}]
solver: {type: Adam, learning_rate: 0.5}
train: {max_steps: 150, seed: 1}
"""
REFERENCE = ("--device", "reference")
LETTERBOX = "{type: Resizing, height: 16, width: 16, pad_to_aspect_ratio: true}"
COLORS = {"red": (220, 20, 20), "green": (20, 220, 20)}
COLUMNS = ["file", "class", "score", "x1", "y1", "x2", "y2"]
HEIGHT, WIDTH = 32, 64
"""Size of the images, which have 2 × 2 fields."""


@pytest.fixture
def photos(current_folder: Path) -> Path:
    """Twelve images of four fields, some of them red or green; the ids of their classes are 7 and 3."""
    (current_folder / "photos").mkdir()
    random, annotations, images = np.random.default_rng(3), list[dict[str, Any]](), list[dict[str, Any]]()
    for number in range(12):
        image = Image.new("RGB", (WIDTH, HEIGHT), (20, 20, 20))
        for field, kind in enumerate(random.choice(["", "red", "green"], 4)):
            if kind:
                corner = field % 2 * WIDTH // 2, field // 2 * HEIGHT // 2
                image.paste(COLORS[kind], (*corner, corner[0] + WIDTH // 2, corner[1] + HEIGHT // 2))
                entry = {"id": len(annotations), "image_id": number, "category_id": {"red": 7, "green": 3}[kind]}
                annotations.append({**entry, "bbox": [*corner, WIDTH // 2, HEIGHT // 2]})
        image.save(f"photos/{number:03d}.png")
        images.append({"id": number, "file_name": f"{number:03d}.png"})
    categories = [{"id": 7, "name": "red"}, {"id": 3, "name": "green"}]
    document = {"images": images, "annotations": annotations, "categories": categories}
    Path("boxes.json").write_text(json.dumps(document))
    Path("net.yaml").write_text(NET)
    Path("train.yaml").write_text(TRAIN.replace("STEPS", "{type: Resizing, height: 16, width: 16}"))
    return current_folder


def boxes_of(number: int) -> list[tuple[str, float, float, float, float]]:
    """Class and edges of the boxes of an image."""
    document = json.loads(Path("boxes.json").read_text())
    names = {category["id"]: category["name"] for category in document["categories"]}
    boxes = [
        (names[entry["category_id"]], *entry["bbox"])
        for entry in document["annotations"]
        if entry["image_id"] == number
    ]
    return sorted((name, x, y, x + width, y + height) for name, x, y, width, height in boxes)


def found_boxes(rows: list[dict[str, Any]]) -> list[tuple[str, float, float, float, float]]:
    """Class and edges of predicted boxes, in whole pixels."""
    return sorted((row["class"], *(round(float(row[edge])) for edge in ("x1", "y1", "x2", "y2"))) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["{type: Resizing, height: 16, width: 16}", LETTERBOX], ids=["stretched", "padded"])
def test_an_exported_model_selects_boxes(netspec: Netspec, photos: Path, steps: str) -> None:
    Path("train.yaml").write_text(TRAIN.replace("STEPS", steps))
    few = "train.max_steps=60"  # enough to find most boxes
    netspec.ok("train", "train.yaml", few, "--run-dir", "run", "--device", "reference")
    result = netspec.ok("export", "run", "--output", "deployed")
    assert "in the model: Resizing, Rescaling, non-maximum suppression" in result.out
    assert "image [N, 3, height, width] → boxes [N, 8, 4], scores [N, 8], classes [N, 8]" in result.out
    net = onnxruntime.InferenceSession("deployed/model.onnx", providers=["CPUExecutionProvider"])
    names = json.loads(net.get_modelmeta().custom_metadata_map["netspec_classes"])["classes"]
    paths = sorted(map(str, Path("photos").glob("*.png")))
    lines = []
    for path, boxes in zip(paths, predict("run", paths).answers["boxes"], strict=True):
        pixels = np.asarray(Image.open(path)).transpose(2, 0, 1)[None]
        edges, scores, classes = (array[0] for array in net.run(["boxes", "scores", "classes"], {"image": pixels}))
        assert [names[index] for index in classes if index >= 0] == [box["class"] for box in boxes]
        np.testing.assert_allclose(scores[: len(boxes)], [box["score"] for box in boxes], atol=1e-3)
        expected = np.array([[box[edge] for edge in ("x1", "y1", "x2", "y2")] for box in boxes]).reshape(-1, 4)
        size = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT]) if steps != LETTERBOX else np.full(4, WIDTH)
        shift = [0, 0, 0, 0] if steps != LETTERBOX else [0, (WIDTH - HEIGHT) / 2] * 2
        np.testing.assert_allclose(edges[: len(boxes)] * size - shift, expected, atol=0.5)
        lines += [f"{path}: {box['class']} {box['score']:.1%}" for box in boxes]
    assert len(lines) > 6
    done = run_script(*paths)
    assert done.status == 0, done.err
    assert [line.split(" [")[0] for line in done.out.splitlines()] == lines
    answers = run_script("--json", *paths).lines
    assert [answer["file"] for answer in answers] == paths
    found = [f"{answer['file']}: {box['class']} {box['score']:.1%}" for answer in answers for box in answer["boxes"]]
    assert found == lines
    assert {*answers[0]["boxes"][0]} == {"class", "score", "x1", "y1", "x2", "y2"}
    assert "finds objects of 2 classes" in Path("deployed/README.md").read_text()
    netspec.ok("import", "deployed/model.onnx", "--output", "imported")
    assert "name: detections" in Path("imported/net.yaml").read_text()


@pytest.mark.slow
def test_train_evaluate_and_predict(netspec: Netspec, photos: Path) -> None:
    netspec.ok("check", "train.yaml")
    netspec.ok("train", "train.yaml", "--run-dir", "run", *REFERENCE)
    report = netspec("test", "run", "--split", "validation", "--report", "--output", "report", *REFERENCE).out
    assert "AP50" in report
    rows = list(csv.DictReader(Path("report/detection_report.csv").read_text().splitlines()))
    assert [row[""] for row in rows] == ["green", "red", "mean"]
    assert float(rows[2]["AP"]) > 0.9

    header, *lines = netspec("predict", "run", "--input", "photos", *REFERENCE).out.splitlines()
    assert header.split() == COLUMNS
    assert len(lines) == sum(len(boxes_of(number)) for number in range(12))
    netspec.ok("predict", "run", "--input", "photos", "--output", "boxes.csv", *REFERENCE)
    written = list(csv.DictReader(Path("boxes.csv").read_text().splitlines()))
    for number in range(12):
        rows = [row for row in written if row["file"] == f"photos/{number:03d}.png"]
        assert found_boxes(rows) == boxes_of(number)

    printed = netspec("predict", "run", "--input", "photos", "--json", *REFERENCE).out
    answers = [json.loads(line) for line in printed.splitlines()]
    assert [found_boxes(answer["boxes"]) for answer in answers] == [boxes_of(number) for number in range(12)]
    netspec.ok("predict", "run", "--input", "photos", "--output", "results.json", *REFERENCE)
    results = json.loads(Path("results.json").read_text())
    assert {result["category_id"] for result in results} == {3, 7}
    expected = json.loads(Path("boxes.json").read_text())["annotations"]
    assert {(result["image_id"], result["category_id"], *map(round, result["bbox"])) for result in results} == {
        (entry["image_id"], entry["category_id"], *entry["bbox"]) for entry in expected
    }

    explanation = explain_image("run", "photos/003.png", device="reference")
    box = answers[3]["boxes"][0]
    assert (explanation.label, explanation.quantity) == (box["class"], "score")
    assert explanation.value == pytest.approx(box["score"], abs=1e-5)
    row, column = np.unravel_index(int(explanation.heat_map.argmax()), explanation.heat_map.shape)
    assert box["x1"] <= (column + 0.5) * WIDTH / 16 < box["x2"]
    assert box["y1"] <= (row + 0.5) * HEIGHT / 16 < box["y2"]

    with Image.open("photos/003.png") as image:
        answered = predict("run", [image.copy()], device="reference").answers
    assert found_boxes(answered["boxes"][0]) == boxes_of(3)
    service = PredictionService("run", device="reference", max_batch=1)
    try:
        samples = service.read(Path("photos/003.png").read_bytes(), "image/png")
        (answer,) = service.answers(samples, service.submit(samples.inputs).result(), top=1)
    finally:
        service.close()
    assert found_boxes(answer["boxes"]) == boxes_of(3)


def test_boxes_are_drawn_on_images(netspec: Netspec, photos: Path) -> None:
    settings = ("train.max_steps=1", "net.layers.detections.score_threshold=0")
    netspec.ok("train", "train.yaml", *settings, "--run-dir", "run", "--device", "reference")
    netspec.ok("predict", "run", "--input", "photos", "--output", "drawn")
    for number in range(12):
        with Image.open(f"drawn/{number:03d}.png") as drawn, Image.open(f"photos/{number:03d}.png") as image:
            assert drawn.size == (WIDTH * 6, HEIGHT * 6)  # small images are enlarged
            assert np.asarray(drawn.resize(image.size, Image.Resampling.NEAREST)).shape == np.asarray(image).shape
            assert len(drawn.getcolors(2**20) or []) > len(image.getcolors(2**20) or [])
    Path("more").mkdir()
    Path("photos/000.png").rename("more/001.png")
    result = netspec("predict", "run", "--input", "photos", "more", "--output", "again")
    assert result.status == 2
    assert "two images would be written to again/001.png" in result.err


@pytest.mark.parametrize(
    ("steps", "shift"),
    [
        ("{type: Resizing, height: 16, width: 16, pad_to_aspect_ratio: true}", 0),
        ("{type: CenterCrop, height: 32, width: 32}, {type: Resizing, height: 16, width: 16}", 16),
    ],
)
def test_boxes_are_placed_in_images_that_are_padded_or_cropped(netspec, photos, steps: str, shift: int) -> None:
    """Every cell of the grid predicts its own area, of a padded or a cropped image."""
    Path("train.yaml").write_text(TRAIN.replace("STEPS", steps))
    settings = ("train.max_steps=1", "net.layers.detections.score_threshold=0", "solver.learning_rate=1e-9")
    netspec.ok("train", "train.yaml", *settings, "--run-dir", "run", "--device", "reference")
    line = netspec("predict", "run", "--input", "photos/000.png", "--json").out
    edges = {(box["x1"], box["y1"], box["x2"], box["y2"]) for box in json.loads(line)["boxes"]}
    if shift:  # each cell covers a quarter of the 32 × 32 pixels in the middle
        assert edges == {(x, y, x + 16, y + 16) for x in (16, 32) for y in (0, 16)}
    else:  # the grid covers 64 × 64 pixels, and the image is rows 16 to 48 of them
        assert edges == {(x, y, x + 32, y + 32) for x in (0, 32) for y in (-16, 16)}


def test_arrays_give_fractions(netspec: Netspec, photos: Path) -> None:
    settings = ("train.max_steps=1", "net.layers.detections.score_threshold=0", "solver.learning_rate=1e-9")
    netspec.ok("train", "train.yaml", *settings, "--run-dir", "run", "--device", "reference")
    np.savez("images.npz", image=np.zeros((1, 3, 16, 16), np.float32))
    line = netspec("predict", "run", "--input", "images.npz", "--json").out
    edges = {(box["x1"], box["y1"], box["x2"], box["y2"]) for box in json.loads(line)["boxes"]}
    assert edges == {(x, y, x + 0.5, y + 0.5) for x in (0, 0.5) for y in (0, 0.5)}


def test_nothing_found_is_an_empty_table(netspec: Netspec, photos: Path) -> None:
    settings = ("train.max_steps=1", "net.layers.detections.score_threshold=1")
    netspec.ok("train", "train.yaml", *settings, "--run-dir", "run", "--device", "reference")
    assert netspec("predict", "run", "--input", "photos").out.split() == COLUMNS
    netspec.ok("predict", "run", "--input", "photos", "--output", "boxes.csv")
    assert Path("boxes.csv").read_text() == "file,class,score,x1,y1,x2,y2\n"
    netspec.ok("predict", "run", "--input", "photos", "--output", "boxes.json")
    assert json.loads(Path("boxes.json").read_text()) == []


def test_only_boxes_are_written_as_coco_results(netspec: Netspec, photos: Path) -> None:
    Path("net.yaml").write_text(f"{NET}outputs: [head]\n")
    netspec.ok("train", "train.yaml", "train.max_steps=1", "--run-dir", "run", "--device", "reference")
    result = netspec("predict", "run", "--input", "photos", "--output", "boxes.json")
    assert result.status == 2
    assert "COCO results contain boxes only" in result.err


def test_data_show_counts_and_draws_boxes(netspec: Netspec, photos: Path) -> None:
    printed = netspec("data", "show", "train.yaml", "--seconds", "0").out
    rows = [line.split() for line in printed.splitlines()]
    assert ["labels", "boxes", "share"] in rows
    counts = {row[0]: int(row[1]) for row in rows if row[:1] in (["red"], ["green"])}
    held_out = sum(len(boxes_of(number)) for number in range(12)) - sum(counts.values())
    assert set(counts) == set(COLORS)
    assert 0 < held_out < sum(counts.values())
    with Image.open("data_train.png") as sheet:
        drawn = {color for _, color in sheet.convert("RGB").getcolors(2**20) or []}
    assert tuple(class_colors()[1].tolist()) in drawn  # the outline of a box of the first class

"""`netspec.init` of images with boxes: formats of annotations, the size of the cells, and a detector that trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.errors import InputError
from netspec.tools.init import InitResult, init
from netspec.tools.specs import load_train

CLASSES = ("cat", "dog")
Boxes = list[tuple[int, int, int, int, int]]


def boxed_images(folder: Path, count: int, side: int, box: int) -> dict[str, Boxes]:
    """Write gray noise with a bright or dark square in each image; return class, left, top, right, bottom of each."""
    noise = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    boxes: dict[str, Boxes] = {}
    for index in range(count):
        pixels = noise.integers(90, 160, (side, side, 3)).astype(np.uint8)
        left, top = noise.integers(0, side - box, 2).tolist()
        label = index % 2
        pixels[top : top + box, left : left + box] = (250, 5)[label]
        Image.fromarray(pixels).save(folder / f"{index:03}.png")
        boxes[f"{index:03}.png"] = [(label, left, top, left + box, top + box)]
    return boxes


def coco(folder: Path, boxes: dict[str, Boxes], side: int, name: str = "boxes.json", **crowd: int) -> None:
    images = [{"id": index, "file_name": name, "width": side, "height": side} for index, name in enumerate(boxes)]
    annotations = [
        {"id": index, "image_id": index, "category_id": label + 1, "bbox": [x, y, right - x, bottom - y], **crowd}
        for index, ((label, x, y, right, bottom),) in enumerate(boxes.values())
    ]
    categories = [{"id": index + 1, "name": name} for index, name in enumerate(CLASSES)]
    (folder / name).write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))


def voc(folder: Path, boxes: dict[str, Boxes], side: int) -> None:
    (folder / "Annotations").mkdir()
    for name, ((label, *corners),) in boxes.items():
        edges = "".join(f"<{edge}>{value}</{edge}>" for edge, value in
                        zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True))  # fmt: skip
        (folder / "Annotations" / f"{name[:-4]}.xml").write_text(
            f"<annotation><filename>{name}</filename><size><width>{side}</width><height>{side}</height></size>"
            f"<object><name>{CLASSES[label]}</name><bndbox>{edges}</bndbox></object></annotation>"
        )


def yolo(folder: Path, boxes: dict[str, Boxes], side: int) -> None:
    (folder / "labels").mkdir()
    for name, ((label, left, top, right, bottom),) in boxes.items():
        values = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        text = " ".join(f"{value / side:.6f}" for value in values)
        (folder / "labels" / f"{name[:-4]}.txt").write_text(f"{label} {text}\n")
    (folder / "data.yaml").write_text("path: .\ntrain: images\nval: images\nnames: [cat, dog]\n")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["coco", "voc", "yolo"])
def test_each_format_becomes_a_detector(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "pets"
    inside = {"coco": folder, "voc": folder / "JPEGImages", "yolo": folder / "images"}[form]
    boxes = boxed_images(inside, 40, 64, 16)
    {"coco": coco, "voc": voc, "yolo": yolo}[form](folder, boxes, 64)
    result = init(folder)
    assert result.task == "object detection"
    assert result.findings[0] == "40 images, boxes of 2 classes: cat (20), dog (20)"
    assert result.findings[2] == "a grid of 8 × 8 cells, for images of 64 × 64 pixels"
    assert "boxes: {shape: [1, 4]}" in result.net.read_text()
    data = load_train(result.train).data
    assert data.train.classes == ["cat", "dog"]  # type: ignore[attr-defined]  # of detection_folder
    assert data.train.hold_out is not None
    assert data.train.hold_out.parts == ("validation", "test")  # `val` of YOLO's file is the training folder again
    assert netspec.check(result.train).kind == "training"
    run = netspec.train(str(result.train), run_dir=tmp_path / "run", device="reference", **{"train.max_epochs": 1})
    assert run.test is not None
    assert run.test.samples == 8


def test_stored_parts_are_used(tmp_path: Path) -> None:
    boxes = boxed_images(tmp_path, 40, 64, 16)
    names = list(boxes)
    (tmp_path / "annotations").mkdir()
    coco(tmp_path, {name: boxes[name] for name in names[:30]}, 64, "annotations/instances_train.json")
    coco(tmp_path, {name: boxes[name] for name in names[30:]}, 64, "annotations/instances_val.json")
    data = load_train(init(tmp_path).train).data
    assert data.validation is not None
    assert str(data.validation.annotations).endswith("instances_val.json")  # type: ignore[attr-defined]
    assert data.train.hold_out is not None
    assert data.train.hold_out.parts == ("test",)


@pytest.mark.parametrize(
    ("side", "box", "size", "cell"),
    [(96, 48, 96, 16), (96, 8, 96, 4), (200, 100, 96, 16), (400, 10, 320, 4), (100, 20, 96, 8)],
)
def test_the_grid_fits_the_boxes(tmp_path: Path, side: int, box: int, size: int, cell: int) -> None:
    coco(tmp_path, boxed_images(tmp_path, 12, side, box), side)
    result = init(tmp_path)
    cells = size // cell
    assert result.findings[2] == f"a grid of {cells} × {cells} cells, for images of {size} × {size} pixels"
    assert ("Resizing" in result.train.read_text()) == (side != size)
    assert f"for each of {cells} × {cells} cells of {cell} pixels" in result.net.read_text()
    assert netspec.check(result.train).kind == "training"


def test_crowds_are_an_input(tmp_path: Path) -> None:
    coco(tmp_path, boxed_images(tmp_path, 12, 64, 16), 64, iscrowd=1)
    result = init(tmp_path)
    assert "from: [head, boxes, labels, crowd]" in result.net.read_text()
    assert netspec.check(result.train).kind == "training"


def test_duplicates_are_reported(tmp_path: Path) -> None:
    coco(tmp_path, boxed_images(tmp_path, 24, 64, 16), 64)
    (tmp_path / "003.png").write_bytes((tmp_path / "004.png").read_bytes())
    (warning,) = (text for text in init(tmp_path).warnings if "duplicate" in text)
    assert warning.startswith("1 of 24 images is a duplicate (")


def test_damaged_annotations_are_left_out(tmp_path: Path) -> None:
    boxes: dict[str, Any] = boxed_images(tmp_path, 24, 64, 16)
    boxes["003.png"] = [(0, 10, 10, 90, 20)]  # beyond the image
    coco(tmp_path, boxes, 64)
    result = init(tmp_path)
    assert any(warning.startswith("1 image with damaged annotations") for warning in result.warnings)
    assert "on_error: skip" in result.train.read_text()


def test_annotations_without_boxes_or_of_several_trainings(tmp_path: Path) -> None:
    boxes = boxed_images(tmp_path, 12, 64, 16)
    coco(tmp_path, boxes, 64, "a.json")
    coco(tmp_path, boxes, 64, "b.json")
    with pytest.raises(InputError, match="has several files of annotations"):
        init(tmp_path)
    (tmp_path / "b.json").unlink()
    document = json.loads((tmp_path / "a.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps({**document, "annotations": []}))
    with pytest.raises(InputError, match="has no boxes"):
        init(tmp_path)


@pytest.mark.exhaustive
def test_the_detector_learns_shapes(tmp_path: Path) -> None:
    coco(tmp_path, boxed_images(tmp_path, 120, 32, 10), 32)
    result: InitResult = init(tmp_path)
    run = netspec.train(str(result.train), run_dir=tmp_path / "run", train={"max_epochs": 60})
    assert run.test is not None
    assert run.test.metrics["mAP50"] > 0.9


@pytest.mark.parametrize("folder", ["images", "train2017"])
def test_images_of_coco_may_be_in_a_folder_of_their_own(tmp_path: Path, folder: str) -> None:
    boxes = boxed_images(tmp_path / folder, 20, 64, 16)
    coco(tmp_path, boxes, 64)
    result = init(tmp_path)
    assert result.findings[0] == "20 images, boxes of 2 classes: cat (10), dog (10)"
    assert f"path: {folder}" in result.train.read_text()
    assert netspec.check(result.train).warnings == ()


def test_each_part_of_coco_may_be_a_folder(tmp_path: Path) -> None:
    for part in ("train", "valid"):
        boxes = boxed_images(tmp_path / part, 12, 64, 16)
        coco(tmp_path / part, boxes, 64, "_annotations.coco.json")
    data = load_train(init(tmp_path).train).data
    assert data.validation is not None
    assert str(data.validation.path).endswith("valid")  # type: ignore[attr-defined]  # of detection_folder
    assert data.train.hold_out is not None
    assert data.train.hold_out.parts == ("test",)


@pytest.mark.parametrize("name", ["latest/a.json", "interval.json", "instances_val.json", "test data/boxes.json"])
def test_a_single_file_of_coco_is_the_training_data(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    coco(tmp_path, boxed_images(tmp_path, 12, 64, 16), 64, name)
    data = load_train(init(tmp_path).train).data
    assert str(data.train.annotations).endswith(name)  # type: ignore[attr-defined]  # of detection_folder
    assert data.validation is None


def test_the_name_of_a_file_of_coco_matters_more_than_its_folder(tmp_path: Path) -> None:
    (tmp_path / "test data").mkdir()
    boxes = boxed_images(tmp_path, 12, 64, 16)
    for name in ("test data/trainval2017.json", "test data/instancesVal.json"):
        coco(tmp_path, boxes, 64, name)
    data = load_train(init(tmp_path).train).data
    assert str(data.train.annotations).endswith("trainval2017.json")  # type: ignore[attr-defined]
    assert str(data.validation.annotations).endswith("instancesVal.json")  # type: ignore[union-attr]
    assert data.test is None


@pytest.mark.parametrize("layout", ["labels", "next to the images", "parts"])
def test_yolo_needs_no_data_file(tmp_path: Path, layout: str) -> None:
    images = {"labels": "images", "next to the images": ".", "parts": "images/train"}[layout]
    boxes = boxed_images(tmp_path / images, 20, 64, 16)
    yolo(tmp_path, boxes, 64)
    (tmp_path / "data.yaml").unlink()
    (tmp_path / "labels").rename(tmp_path / "texts")
    target = tmp_path / images.replace("images", "labels")
    target.mkdir(parents=True, exist_ok=True)
    for file in (tmp_path / "texts").iterdir():
        file.rename(target / file.name)
    (tmp_path / "texts").rmdir()
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    result = init(tmp_path)
    assert result.findings[0] == "20 images, boxes of 2 classes: cat (10), dog (10)"
    assert netspec.check(result.train).warnings == ()


def test_yolo_may_write_small_numbers_with_an_exponent(tmp_path: Path) -> None:
    boxed_images(tmp_path, 12, 64, 16)
    for index in range(12):
        (tmp_path / f"{index:03}.txt").write_text(f"{index % 2} 0.5 5e-1 1e-05 .25\n")
    assert init(tmp_path).task == "object detection"

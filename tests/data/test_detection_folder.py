"""`detection_folder`: the same images and boxes in COCO's, Pascal VOC's and YOLO's format; located problems."""

from __future__ import annotations

import json
import runpy
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from netspec.data.base import Dataset, FieldType
from netspec.data.loader import open_loader
from netspec.errors import InputError
from netspec.schema.bundled import zoo_root
from tests.data.conftest import arrays_of, split_of

WIDTH, HEIGHT = 40, 20
CAT, DOG = (10, 5, 20, 15), (0, 0, 40, 10)
XML = """<annotation><filename>{file}</filename>{objects}</annotation>"""
OBJECT = """
<object><name>{name}</name><difficult>{difficult}</difficult>
<bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax></bndbox></object>"""


def write_image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (WIDTH, HEIGHT), (9, 8, 7)).save(path)


def coco_document() -> dict[str, Any]:
    return {
        "images": [{"id": 7, "file_name": "b.png"}, {"id": 3, "file_name": "a.png"}],
        "categories": [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 3, "category_id": 17, "bbox": [10, 5, 10, 10]},
            {"id": 2, "image_id": 3, "category_id": 18, "bbox": [0, 0, 40, 10], "iscrowd": 1},
        ],
    }


def write_coco(folder: Path, document: Any = None) -> dict[str, Any]:
    for name in ("a.png", "b.png"):
        write_image(folder / "photos" / name)
    (folder / "boxes.json").write_text(json.dumps(coco_document() if document is None else document))
    return {"path": "photos", "annotations": "boxes.json"}


def write_voc(folder: Path, objects: str | None = None) -> dict[str, Any]:
    root = folder / "voc"
    for stem in ("a", "b"):
        write_image(root / "JPEGImages" / f"{stem}.png")
    (root / "Annotations").mkdir()
    if objects is None:  # pixels are counted from 1, and the last one is part of the box
        objects = OBJECT.format(11, 6, 20, 15, name="cat", difficult=0)
        objects += OBJECT.format(1, 1, 40, 10, name="dog", difficult=1)
    (root / "Annotations" / "a.xml").write_text(XML.format(file="a.png", objects=objects))
    (root / "Annotations" / "b.xml").write_text(XML.format(file="missing.jpg", objects=""))
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "ImageSets" / "Main" / "test.txt").write_text("b\n")
    return {"path": "voc"}


def write_yolo(folder: Path, lines: str = "0 0.375 0.5 0.25 0.5\n1 0.5 0.25 1 0.5\n") -> dict[str, Any]:
    root = folder / "yolo"
    for stem in ("a", "b"):
        write_image(root / "images" / "train" / f"{stem}.png")
    (root / "labels" / "train").mkdir(parents=True)
    (root / "labels" / "train" / "a.txt").write_text(lines)
    (root / "data.yaml").write_text("path: ../elsewhere\ntrain: images/train\nnames:\n  0: cat\n  1: dog\n")
    return {"path": "yolo"}


def opened(folder: Path, **fields: Any) -> Dataset:
    return split_of(str(folder / "train.yaml"), source="detection_folder", **{"max_boxes": 3, **fields}).open()


def problem_of(folder: Path, **fields: Any) -> Any:
    with pytest.raises(InputError) as error:
        opened(folder, **fields)
    (problem,) = error.value.problems
    return problem


@pytest.mark.parametrize(
    ("write", "first", "crowd"), [(write_coco, 1, [0, 1, 0]), (write_voc, 0, [0, 1, 0]), (write_yolo, 0, [0, 0, 0])]
)
def test_the_formats_give_the_same_boxes(tmp_path, write, first, crowd):
    data = opened(tmp_path, **write(tmp_path))
    assert data.fields == {
        "image": FieldType((3, HEIGHT, WIDTH), "uint8"),
        "boxes": FieldType((3, 4), "float32"),
        "labels": FieldType((3,), "int32"),
        "crowd": FieldType((3,), "int32"),
    }
    assert data.classes == {"labels": ("cat", "dog")}
    samples = arrays_of(data, np.arange(2))
    assert samples["image"].shape == (2, 3, HEIGHT, WIDTH)
    expected = [[0.25, 0.25, 0.5, 0.75], [0, 0, 1, 0.5], [0, 0, 0, 0]]
    assert samples["boxes"][first].tolist() == expected
    assert samples["labels"][first].tolist() == [0, 1, -1]
    assert samples["crowd"][first].tolist() == crowd
    # The other image has no boxes.
    assert samples["labels"][1 - first].tolist() == [-1, -1, -1]
    assert not samples["boxes"][1 - first].any()


def write_nuclei(wheel: Path) -> Path:
    """Write a stand-in for stardist's wheel: a mask of squares, and an image in which they are bright."""
    mask = np.zeros((200, 160), np.uint16)
    for number in range(80):
        top, left = 20 * (number // 8), 20 * (number % 8)
        mask[top : top + 12, left : left + 12] = number + 1
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, pixels in (("img", np.where(mask > 0, 900, 100).astype(np.uint16)), ("mask", mask)):
            file = BytesIO()
            Image.fromarray(pixels).save(file, "TIFF")
            archive.writestr(f"stardist/data/images/{name}2d.tif", file.getvalue())
    return wheel


@pytest.mark.parametrize("kind", ["shapes", "digits", "nuclei"])
def test_the_bundled_generator_writes_equal_boxes_in_three_formats(tmp_path, kind):
    generator = runpy.run_path(str(zoo_root() / "shapes_detector" / "make_images.py"))
    options = {"nuclei": write_nuclei(tmp_path / "nuclei.whl")} if kind == "nuclei" else {"digits": kind == "digits"}
    # Each digit occurs in one of these images.
    generator["write_images"](tmp_path / "set", {"train": 30, "test": 2}, **options)
    splits = ({"annotations": "set/train.json"}, {"split": "train"}, {"annotations": "set/data.yaml"})
    coco, voc, yolo = (arrays_of(opened(tmp_path, path="set", max_boxes=36, **part), np.arange(30)) for part in splits)
    for name in ("image", "labels", "crowd"):
        assert np.array_equal(coco[name], voc[name])
        assert np.array_equal(coco[name], yolo[name])
    assert np.array_equal(coco["boxes"], voc["boxes"])
    # the file has six decimals of center and size
    np.testing.assert_allclose(yolo["boxes"], coco["boxes"], atol=1e-6)
    assert (coco["labels"] >= 0).sum() >= 30


def test_parts_of_pascal_voc_and_yolo(tmp_path):
    assert len(opened(tmp_path, **write_voc(tmp_path), split="test", classes=["cat", "dog"])) == 1
    fields = write_yolo(tmp_path)
    assert len(opened(tmp_path, **fields, split="train")) == 2
    problem = problem_of(tmp_path, **fields, split="val")
    assert "data.yaml does not name a folder for `val`" in problem.message
    assert problem.expected == "one of train"


def test_images_are_divided_and_the_parts_have_the_classes_of_all(tmp_path):
    fields = {**write_coco(tmp_path), "split": {"validation": 0.5}}
    split = split_of(str(tmp_path / "train.yaml"), source="detection_folder", max_boxes=2, **fields)
    train, validation = split.open(), split.held_out("validation").open()
    assert (len(train), len(validation)) == (1, 1)
    assert train.classes == validation.classes == {"labels": ("cat", "dog")}
    assert train.describe(0) != validation.describe(0)


def test_training_classes_number_the_classes_of_other_splits(tmp_path):
    fields = write_voc(tmp_path)
    split = split_of(str(tmp_path / "train.yaml"), source="detection_folder", **fields)
    data = split.open(learned={"classes": ["bird", "dog", "cat"]})
    assert arrays_of(data, np.arange(1))["labels"][0, :3].tolist() == [2, 1, -1]


def test_a_batch_has_images_and_boxes_for_a_net(tmp_path):
    split = split_of(
        str(tmp_path / "train.yaml"), source="detection_folder", max_boxes=2, batch_size=2, **write_coco(tmp_path),
        transforms=[{"type": "Resizing", "height": 10, "width": 10}, {"type": "Rescaling", "scale": 0.5}],
    )  # fmt: skip
    with open_loader(split, seed=1) as loader:
        (batch,) = loader.one_pass()
    assert batch.inputs["image"].shape == (2, 3, 10, 10)
    np.testing.assert_allclose(batch.inputs["boxes"][1, 0], [0.25, 0.25, 0.5, 0.75], rtol=1e-6)


def changed_annotation(**values: Any) -> dict[str, Any]:
    document = coco_document()
    document["annotations"][0] |= values
    return document


@pytest.mark.parametrize(
    ("document", "message", "got"),
    [
        (changed_annotation(bbox=[30, 5, 20, 10]), "a box extends beyond its image",
         "[30, 5, 50, 15] in an image of 40 × 20 pixels at boxes.json: annotations[0] (id 1)"),
        (changed_annotation(bbox=[30, 5, 0, 10]), "a box has no area",
         "[30, 5, 30, 15] at boxes.json: annotations[0] (id 1)"),
        (changed_annotation(bbox=[30, 5, float("nan"), 10]), "a box has no area",
         "[30, 5, nan, 15] at boxes.json: annotations[0] (id 1)"),
        (changed_annotation(bbox=[1, 2, 3]), "an annotation has no valid `bbox`",
         "[1, 2, 3] at boxes.json: annotations[0] (id 1)"),
        (changed_annotation(category_id=4), "an annotation has an unknown category",
         "4 at boxes.json: annotations[0] (id 1)"),
        (changed_annotation(image_id=99), "an annotation belongs to no image",
         "99 at boxes.json: annotations[0] (id 1)"),
    ],
)  # fmt: skip
def test_problems_of_coco_annotations_are_located(tmp_path, document, message, got):
    problem = problem_of(tmp_path, **write_coco(tmp_path, document))
    assert (problem.message, problem.got) == (message, got)


def test_missing_images_and_unknown_classes_are_located(tmp_path):
    fields = write_coco(tmp_path)
    problem = problem_of(tmp_path, **fields, classes=["cat", "dig"])
    assert problem.message == "a box has an unknown class"
    assert problem.got == "`dog` at boxes.json: annotations[1] (id 2)"
    assert problem.hint == "did you mean `dig`?"
    (tmp_path / "photos" / "b.png").unlink()
    problem = problem_of(tmp_path, **fields)
    assert problem.message == "an image is missing"
    assert problem.got == f"{tmp_path / 'photos' / 'b.png'}, of boxes.json: images[0] (id 7)"


def test_at_most_ten_problems_of_a_kind_are_named(tmp_path):
    document = coco_document()
    wrong = {"image_id": 3, "category_id": 17, "bbox": [0, 0, 90, 9]}
    document["annotations"] = [{"id": number, **wrong} for number in range(3)] * 8
    problem = problem_of(tmp_path, max_boxes=30, **write_coco(tmp_path, document))
    assert problem.message == "a box extends beyond its image (24 times)"
    assert len(problem.notes) == 10
    assert problem.notes[-1] == "… and 14 more"


def test_too_many_boxes(tmp_path):
    problem = problem_of(tmp_path, **{**write_coco(tmp_path), "max_boxes": 1})
    assert problem.message == "an image has more than `max_boxes` boxes"
    assert (problem.expected, problem.hint) == ("at most 1", "raise `max_boxes`")


@pytest.mark.parametrize(
    ("write", "changes", "field"),
    [
        (write_coco, {"annotations": "test.json"}, "annotations"),
        (write_voc, {"annotations": "voc/Tests"}, "annotations"),
        (write_coco, {"annotations": "boxes.json", "format": "yolo"}, "annotations"),
        (write_voc, {"split": "val"}, "split"),
        (write_yolo, {"split": "test"}, "split"),
        (write_yolo, {"annotations": "yolo/labels", "split": "test"}, "split"),
        (write_coco, {"max_boxes": 1}, "max_boxes"),
        (write_coco, {"path": "."}, "path"),
    ],
)
def test_problems_are_located_at_the_field_that_is_wrong(tmp_path, write, changes, field):
    fields = {"max_boxes": 3, **write(tmp_path), **changes}
    problem = problem_of(tmp_path, **fields)
    assert problem.path == field
    line = ["batch_size", "source", *fields].index(field) + 1
    assert (problem.location.file, problem.location.line) == (str(tmp_path / "train.yaml"), line)


def test_damaged_images_are_skipped_on_request(tmp_path):
    data = opened(tmp_path, **write_coco(tmp_path, changed_annotation(bbox=[0, 0, 99, 9])), on_error="skip")
    assert (len(data), data.skipped) == (1, 1)
    got = "[0, 0, 99, 9] in an image of 40 × 20 pixels at boxes.json: annotations[0] (id 1)"
    assert data.damaged == [f"a box extends beyond its image: {got}"]
    assert arrays_of(data, np.arange(1))["labels"][0, 0] == -1


@pytest.mark.parametrize(
    ("line", "message", "got"),
    [
        ("0 0.5 0.5 1.2 0.5", "a box extends beyond its image", "[-0.1, 0.25, 1.1, 0.75] at a.txt:2"),
        ("0 0.5 0.5 0.2 0", "a box has no area", "[0.4, 0.5, 0.6, 0.5] at a.txt:2"),
        ("2 0.5 0.5 0.2 0.2", "a class number is out of range", "2 at a.txt:2"),
        ("0 0.1 0.1 0.2 0.1 0.2 0.2", "a line is not a box", "`0 0.1 0.1 0.2 0.1 0.2 0.2` at a.txt:2"),
    ],
)
def test_problems_of_yolo_annotations_are_located(tmp_path, line, message, got):
    problem = problem_of(tmp_path, **write_yolo(tmp_path, f"0 0.5 0.5 0.2 0.2\n{line}\n"))
    assert (problem.message, problem.got) == (message, got)


def test_a_class_number_of_yolo_without_names_is_limited(tmp_path):
    write_image(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("0 0.5 0.5 0.2 0.2\n99999999999 0.5 0.5 0.2 0.2\n")
    problem = problem_of(tmp_path, path=".", annotations=".", format="yolo")
    assert (problem.message, problem.expected) == ("a class number is out of range", "0 to 99,999")


@pytest.mark.parametrize(
    ("objects", "message", "got"),
    [
        (OBJECT.format(1, 1, 50, 10, name="cat", difficult=0), "a box extends beyond its image",
         "[0, 0, 50, 10] in an image of 40 × 20 pixels at a.xml:2"),
        (OBJECT.format(9, 1, 5, 10, name="cat", difficult=0), "a box has no area", "[8, 0, 5, 10] at a.xml:2"),
        (OBJECT.format("x", 1, 5, 10, name="cat", difficult=0), "an object has no valid box",
         "['x', '1', '5', '10'] at a.xml:2"),
        ("\n<object><name>cat</name></object>", "an object has no valid box", "no `bndbox` at a.xml:2"),
    ],
)  # fmt: skip
def test_problems_of_pascal_voc_annotations_are_located(tmp_path, objects, message, got):
    problem = problem_of(tmp_path, **write_voc(tmp_path, objects))
    assert (problem.message, problem.got) == (message, got)


def test_document_types_in_xml_are_refused(tmp_path):
    fields = write_voc(tmp_path)
    laughs = '<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c SYSTEM "file:///etc/passwd">]>'
    (tmp_path / "voc" / "Annotations" / "a.xml").write_text(f"{laughs}<annotation>&c;</annotation>")
    problem = problem_of(tmp_path, **fields)
    assert problem.message.endswith("a.xml:1: a document type is declared")


def test_damaged_annotation_files_are_located(tmp_path):
    fields = write_voc(tmp_path)
    (tmp_path / "voc" / "Annotations" / "b.xml").write_text("<annotation>\n<object></annotation>")
    problem = problem_of(tmp_path, **fields)
    assert problem.message.endswith("b.xml:2: not valid XML")
    (tmp_path / "voc" / "Annotations" / "b.xml").write_text("<a>" * 100)
    assert problem_of(tmp_path, **fields).message.endswith("b.xml:1: elements are nested too deeply")
    fields = write_coco(tmp_path)
    (tmp_path / "boxes.json").write_text('{"images": [\n,]}')
    assert problem_of(tmp_path, **fields).message.endswith("boxes.json:2:1: not valid JSON")
    (tmp_path / "boxes.json").write_text('{"images": []}')
    problem = problem_of(tmp_path, **fields)
    assert problem.message.endswith("boxes.json is not a file of COCO annotations")
    assert problem.got == "no list `categories`, `annotations`"
    (tmp_path / "boxes.json").write_text("[" * 100_000)
    assert "nested too deeply" in problem_of(tmp_path, **fields).message


def test_boxes_move_with_their_images(tmp_path):
    split = split_of(
        str(tmp_path / "train.yaml"), source="detection_folder", max_boxes=3, batch_size=2, **write_coco(tmp_path),
        transforms=[{"type": "CenterCrop", "height": 20, "width": 20}],
    )  # fmt: skip
    with open_loader(split, seed=1) as loader:
        (batch,) = loader.one_pass()
    # Columns 10 to 30 remain: the cat was in columns 10 to 20, the dog's box covered all of them.
    assert batch.inputs["boxes"][1].tolist() == [[0, 0.25, 0.5, 0.75], [0, 0, 1, 0.5], [0, 0, 0, 0]]
    assert batch.inputs["labels"][1].tolist() == [0, 1, -1]
    assert batch.inputs["crowd"][1].tolist() == [0, 1, 0]

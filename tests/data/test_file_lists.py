"""Lists of image files: Caffe's form and CSV, labels as numbers and names, splits of a folder, images of many sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from netspec.data.base import Dataset, FieldType
from netspec.data.loader import open_loader
from netspec.errors import InputError
from tests.data.conftest import arrays_of, problems_of, split_of

FILES = ["a b.png", "deep/er/c.png", "d.png"]


@pytest.fixture
def photos(tmp_path):
    """Three images, which differ in their gray values."""
    for number, name in enumerate(FILES):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 2), 10 * number, np.uint8)).save(path)
    return tmp_path


def listed(folder: Path, text: str, name: str = "list.csv", **fields: Any) -> Dataset:
    (folder / name).write_text(text, encoding="utf-8")
    fields = {"list": name, "channels": 1, **fields}
    return split_of(str(folder / "train.yaml"), source="image_folder", path="photos", **fields).open()


def samples_of(data: Dataset) -> list[tuple[int, int]]:
    """Return the image of each sample, and its label."""
    arrays = arrays_of(data, np.arange(len(data)))
    return list(zip((arrays["image"][:, 0, 0, 0] // 10).tolist(), arrays["label"].tolist(), strict=True))


@pytest.mark.parametrize("kind", ["image_folder", "audio"])
def test_a_survey_reads_4096_lines(tmp_path, kind):
    file = "a.png" if kind == "image_folder" else "a.wav"
    Image.new("L", (2, 2)).save(tmp_path / "a.png")
    (tmp_path / "a.wav").write_bytes(b"RIFF")  # a survey does not open sounds
    fields = {"source": kind, "path": ".", "list": "list.csv"}
    rate = {"sampling_rate": 8000} if kind == "audio" else {}
    rows = [f"{file},{number % 2},2025-01-01" for number in range(5000)]

    def survey(**options: Any) -> None:
        (tmp_path / "list.csv").write_text("\n".join(["path,label,day", *rows]))
        source = split_of(str(tmp_path / "train.yaml"), **fields, **rate, **options)
        source.survey()
        source.check_division()

    survey(split={"test": 0.2, "time": "day"})
    rows[4500] = "none"  # beyond the lines that a survey reads
    rows[4000] = f"{file},1"
    with pytest.raises(InputError, match="line 4002 is ragged"):
        survey()
    rows[4000] = f"{file},1,someday"
    with pytest.raises(InputError, match="4002"):
        survey(split={"test": 0.2, "time": "day"})


def test_lists_in_the_format_of_caffe(photos):
    data = listed(photos, "d.png 7\na b.png 0\n\ndeep/er/c.png  12\nd.png 1\n", "list.txt")
    assert samples_of(data) == [(2, 7), (0, 0), (1, 12), (2, 1)]
    assert data.describe(3) == f"{photos / 'photos' / 'd.png'} (list.txt, line 5)"
    assert data.classes == {}


@pytest.mark.parametrize(
    ("text", "labels", "classes"),
    [
        ("path,label\nd.png,2\na b.png,0\n", [2, 0], None),
        ("\ufefflabel,size,file\ncat,1,d.png\nant,2,a b.png\n", [1, 0], ("ant", "cat")),
        ("path,label,class\nd.png,1,ant\na b.png,0,cat\n", [1, 0], ("cat", "ant")),
        ("path,label,class\nd.png,2,ant\na b.png,0,cat\n", [2, 0], None),
        ('path,label\r\n"d.png","a, b"\r\n"a b.png",c\r\n', [0, 1], ("a, b", "c")),
    ],
)
def test_lists_as_csv(photos, text, labels, classes):
    data = listed(photos, text)
    assert samples_of(data) == [(2, labels[0]), (0, labels[1])]
    assert data.classes == ({} if classes is None else {"label": classes})


def test_declared_classes_and_no_labels(photos):
    assert samples_of(listed(photos, "path,label\nd.png,cat\n", classes=["dog", "cat"])) == [(2, 1)]
    data = listed(photos, "path\nd.png\n")
    assert data.fields == {"image": FieldType((1, 2, 2), "uint8")}
    assert list(data.read(np.array([0]))) == ["image"]


def test_a_split_is_a_list_or_a_folder(photos):
    (photos / "photos" / "train.csv").write_text("path,label\nd.png,1\n")
    (photos / "photos" / "val.txt").write_text("a b.png 3\n")
    file = str(photos / "train.yaml")
    fields = {"source": "image_folder", "path": "photos", "channels": 1}
    assert samples_of(split_of(file, split="train", **fields).open()) == [(2, 1)]
    assert samples_of(split_of(file, split="val", **fields).open()) == [(0, 3)]
    deep = split_of(file, split="deep", **fields).open()
    assert samples_of(deep) == [(1, 0)]
    assert deep.classes == {"label": ("er",)}
    with pytest.raises(InputError, match=r"folder .* does not exist"):
        split_of(file, split="test", **fields).open()
    with pytest.raises(InputError, match="`list` and `split` cannot be combined"):
        listed(photos, "path\nd.png\n", split="train")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("list.txt", "d.png 1\nnone.png 2\nd.png\n", "LINES"),
        ("list.csv", "path,label\nd.png,cat\nnone.png,bird\nd.png,ct\n", "CSV"),
        ("list.txt", "d.png 2\nd.png 1O\nd.png 10\nd.png -1\n", "ODD"),
        ("list.csv", "path,label\nd.png,1.0\n", "FLOATS"),
        ("list.csv", "path,label\nd.png,cat\nd.png,\nd.png,dog\nd.png,7\n", "GAP"),
        ("list.csv", "path,label\nd.png,1,\n", "RAGGED"),
        ("list.csv", "d.png,1\n", "HEADER"),
        ("list.csv", "path,label\nd.png,1\nd.png,2\n", "RANGE"),
        ("list.csv", "path,label,class\nd.png,1,cat\nd.png,1,dog\n", "NAMES"),
        ("list.csv", "path,label\n", "EMPTY"),
        ("list.txt", "", "NONE"),
    ],
)
def test_problems_of_lists_are_reported(photos, name, text, expected):
    fields = {"classes": ["cat", "dog"]} if expected in {"CSV", "RANGE"} else {}
    with pytest.raises(InputError) as error:
        listed(photos, text, name, **fields)
    assert problems_of(error, photos) == ERRORS[expected]


def test_a_list_that_is_not_text_is_refused(photos):
    (photos / "list.txt").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(InputError, match=r"list\.txt is not a list of images"):
        split_of(str(photos / "train.yaml"), source="image_folder", path="photos", list="list.txt").open()


def test_missing_files_can_be_skipped(photos):
    data = listed(photos, "path,label\nd.png,cat\nnone.png,ant\na b.png,bee\n", on_error="skip")
    assert data.skipped == 1
    assert list(data.damaged) == [f"file {photos / 'photos' / 'none.png'} does not exist (list.csv, line 3)"]
    assert data.classes == {"label": ("ant", "bee", "cat")}
    assert samples_of(data) == [(2, 2), (0, 1)]


def test_lines_with_wrong_labels_can_be_skipped(photos):
    data = listed(photos, "d.png 2\nd.png -1\na b.png 10\nd.png\n", "list.txt", on_error="skip")
    assert (data.skipped, samples_of(data), data.classes) == (2, [(2, 2), (0, 10)], {})
    assert list(data.damaged) == [
        "list.txt, line 2: the label `-1` is not an integer ≥ 0",
        "list.txt, line 4 has no label",
    ]


def test_labels_have_the_same_meaning_as_in_training(photos):
    def learned(text: str, **fields: Any) -> Any:
        return listed(photos, text, **fields).learned

    def other(text: str, learned: Any) -> Dataset:
        (photos / "other.csv").write_text(text)
        fields = {"path": "photos", "list": "other.csv", "channels": 1}
        return split_of(str(photos / "train.yaml"), source="image_folder", **fields).open(learned=learned)

    names = learned("path,label\nd.png,cat\nd.png,ant\nd.png,dog\n")
    few = other("path,label\nd.png,dog\n", names)
    assert (samples_of(few), few.classes) == ([(2, 2)], {"label": ("ant", "cat", "dog")})
    with pytest.raises(InputError, match="there is no class `owl`"):
        other("path,label\nd.png,cat\nd.png,owl\n", names)
    numbers = learned("path,label\nd.png,0\nd.png,3\n")
    with pytest.raises(InputError, match="the label `cat` is not an integer"):
        other("path,label\nd.png,cat\n", numbers)
    other_split = learned("path,label,class\nd.png,0,cat\nd.png,1,ant\n")
    assert other("path,label,class\nd.png,1,ant\n", other_split).classes == {"label": ("cat", "ant")}
    with pytest.raises(InputError, match="label 1 has two names"):
        other("path,label,class\nd.png,1,cat\n", other_split)


def test_images_of_different_sizes_keep_their_size(photos):
    Image.fromarray(np.full((3, 5), 20, np.uint8)).save(photos / "photos" / "d.png")
    text = "path,label\nd.png,0\na b.png,1\n"
    data = listed(photos, text)
    assert data.fields["image"] == FieldType((1, None, None), "uint8")
    images = data.read(np.array([1, 0]))["image"]
    assert isinstance(images, list)
    assert [image.shape for image in images] == [(1, 2, 2), (1, 3, 5)]
    assert listed(photos, text, size=4).fields["image"].shape == (1, 4, 4)


def test_images_with_damaged_headers_can_be_skipped(photos):
    (photos / "photos" / "d.png").write_bytes(b"\x89PNG no more")
    text = "path,label\nd.png,0\na b.png,1\n"
    with pytest.raises(InputError, match=r"d\.png \(list\.csv, line 2\) cannot be read"):
        listed(photos, text)
    split = split_of(
        str(photos / "train.yaml"), source="image_folder", path="photos", list="list.csv", channels=1, on_error="skip"
    )
    with open_loader(split, seed=1) as loader:
        assert [batch.inputs["label"].tolist() for batch in loader.one_pass()] == [[1]]


def test_an_image_that_changes_while_it_is_read(photos):
    data = listed(photos, "path,label\nd.png,0\na b.png,1\n")
    Image.fromarray(np.full((2, 2), 99, np.uint8)).save(photos / "photos" / "d.png", compress_level=0)
    with pytest.raises(InputError, match="changed while it was read") as error:
        data.read(np.arange(2))
    assert len(error.value.problems) == 1


ERRORS = {
    "LINES": """\
./train.yaml:4:7: error: file ./photos/none.png does not exist
  at: list
  expected: the image named in list.txt, line 2
./train.yaml:4:7: error: list.txt, line 3 has no label
  at: list
  expected: a label in each line
2 errors""",
    "ODD": """\
./train.yaml:4:7: error: list.txt, line 2: the label `1O` is not an integer ≥ 0
  at: list
  expected: a number, as in other lines
  hint: if the labels are names, declare them in `classes`
./train.yaml:4:7: error: list.txt, line 4: the label `-1` is not an integer ≥ 0
  at: list
  expected: a number, as in other lines
  hint: if the labels are names, declare them in `classes`
2 errors""",
    "FLOATS": """\
./train.yaml:4:7: error: list.csv, line 2: the label `1.0` is not an integer ≥ 0
  at: list
  expected: a number, as in other lines
  hint: if the labels are names, declare them in `classes`""",
    "GAP": """\
./train.yaml:4:7: error: list.csv, line 3 has no label
  at: list
  expected: a label in each line
./train.yaml:4:7: error: list.csv, line 5: the label `7` is a number
  at: list
  expected: a name, as in other lines
  hint: if `7` is the name of a class, declare all of them in `classes`
2 errors""",
    "CSV": """\
./train.yaml:4:7: error: file ./photos/none.png does not exist
  at: list
  expected: the image named in list.csv, line 3
./train.yaml:4:7: error: list.csv, line 3: there is no class `bird`
  at: list
  expected: one of cat, dog
./train.yaml:4:7: error: list.csv, line 4: there is no class `ct`
  at: list
  expected: one of cat, dog
  hint: did you mean `cat`?
3 errors""",
    "RAGGED": """\
./train.yaml:4:7: error: list.csv, line 2 is ragged
  at: list
  expected: 2 cells
  got: 3 cells: d.png,1,""",
    "HEADER": """\
./train.yaml:4:7: error: ./list.csv has no column of paths
  at: list
  expected: a header with file, filename, image, path, and for labels class, label
  got: d.png, 1
  hint: a list without a header ends in .txt, and has a path, a space and a label in each line""",
    "RANGE": """\
./train.yaml:4:7: error: list.csv, line 3: label 2 is out of range
  at: list
  expected: 0 to 1, since there are 2 `classes`""",
    "NAMES": """\
./train.yaml:4:7: error: list.csv, line 3: label 1 has two names
  at: list
  expected: `cat`, as in the lines before
  got: `dog`""",
    "EMPTY": """\
./train.yaml:4:7: error: ./list.csv names no image
  at: list
  expected: a path and a label in each line""",
    "NONE": """\
./train.yaml:4:7: error: ./list.txt names no image
  at: list
  expected: a path and a label in each line""",
}


def test_if_all_files_are_missing_the_list_is_refused(photos):
    with pytest.raises(InputError, match="none of the images that ") as error:
        listed(photos, "path,label\nx.png,cat\ny.png,cat\n", on_error="skip")
    assert "2 lines, the first: file " in str(error.value.problems[0].got)

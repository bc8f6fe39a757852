"""`netspec init` for lists of labeled images and sounds."""

from __future__ import annotations

from pathlib import Path

import pytest

import netspec
from netspec.errors import InputError
from netspec.schema.load import load_train
from netspec.tools.init import init


@pytest.fixture
def listed(photos: Path) -> Path:
    """The images in one folder, and a list of their classes."""
    (photos / "images").mkdir()
    lines = ["path,label"]
    for name in ("cat", "dog"):
        for file in sorted((photos / name).iterdir()):
            file.rename(photos / "images" / file.name)
            lines.append(f"images/{file.name},{name}")
        (photos / name).rmdir()
    (photos / "labels.csv").write_text("\n".join(lines) + "\n")
    return photos


@pytest.mark.parametrize("data", [".", "labels.csv"])
def test_a_list_names_the_classes(listed: Path, tmp_path: Path, data: str) -> None:
    result = init(listed / data, output=tmp_path / "files")
    assert result.task == "image classification"
    assert result.findings[0] == "40 images of 2 classes: cat (20), dog (20)"
    train = load_train(result.train).data.train
    assert train.classes == ["cat", "dog"]  # type: ignore[attr-defined]  # of image_folder
    assert Path(train.list).name == "labels.csv"  # type: ignore[attr-defined]
    assert netspec.check(result.train).warnings == ()


def test_a_column_of_patients_is_named_as_a_group(listed: Path) -> None:
    header, *lines = (listed / "labels.csv").read_text().splitlines()
    rows = [f"{line},P{number // 4},{number},{number // 2},{number % 2}" for number, line in enumerate(lines)]
    (listed / "labels.csv").write_text("\n".join([f"{header}, Patient,session,age,site", *rows]) + "\n\n")
    result = init(listed)
    text = " ".join(result.train.read_text().replace("#", "").split())
    reason = "the test is more realistic if no Patient is also in the training data."
    assert f"In place of `stratify`, consider `group: Patient`: {reason}" in text
    assert text.count("consider") == 1  # each session has one image, and two sites are too few to divide
    split = "group: Patient}"
    result.train.write_text(result.train.read_text().replace("stratify: label}", split))
    assert netspec.check(result.train).warnings == ()
    train = load_train(result.train).data.train
    assert train.hold_out is not None
    assert train.hold_out.group == "Patient"


def test_lists_of_parts_are_used(listed: Path) -> None:
    header, *lines = (listed / "labels.csv").read_text().splitlines()
    (listed / "labels.csv").unlink()
    for part, chosen in (("train", lines[::2]), ("val", lines[1::2])):
        (listed / f"{part}.csv").write_text("\n".join([header, *chosen]) + "\n")
    data = load_train(init(listed).train).data
    assert data.train.hold_out is not None
    assert data.train.hold_out.parts == ("test",)
    assert Path(data.validation.list).name == "val.csv"  # type: ignore[union-attr]


def test_numbers_need_no_names_and_missing_files_are_left_out(listed: Path) -> None:
    names = [line.split(",") for line in (listed / "labels.csv").read_text().splitlines()[1:]]
    (listed / "labels.csv").unlink()
    lines = [f"{path} {int(name == 'dog')}" for path, name in [*names, ("images/none.png", "dog")]]
    (listed / "list.txt").write_text("\n".join(lines) + "\n")
    result = init(listed)
    assert result.findings[0] == "40 images of 2 classes: 0 (20), 1 (20)"
    assert [warning for warning in result.warnings if "none.png" in warning]
    train = load_train(result.train).data.train
    assert train.classes is None  # type: ignore[attr-defined]  # of image_folder
    assert train.on_error == "skip"
    assert "some lines of the list are unusable: they are left out" in " ".join(result.train.read_text().split())
    assert netspec.check(result.train).kind == "training"


def test_the_same_number_in_all_lines_is_one_class(listed: Path) -> None:
    paths = [line.split(",")[0] for line in (listed / "labels.csv").read_text().splitlines()[1:]]
    (listed / "list.txt").write_text("".join(f"{path} 1\n" for path in paths))
    with pytest.raises(InputError, match="has labels of one class") as caught:
        init(listed / "list.txt")
    assert caught.value.problems[0].got == "1"


def test_several_lists_need_a_choice(listed: Path) -> None:
    (listed / "more.csv").write_text((listed / "labels.csv").read_text())
    with pytest.raises(InputError, match="has several lists of images"):
        init(listed)


def test_a_list_of_sounds(sounds: Path) -> None:
    lines = [f"{file.relative_to(sounds.parent)},{file.parent.name}" for file in sorted(sounds.glob("*/0*.wav"))]
    (sounds.parent / "labels.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    result = init(sounds.parent / "labels.csv")
    assert result.task == "audio classification"
    assert result.findings[0] == "20 sounds of 2 classes: high (10), low (10)"
    assert netspec.check(result.train).warnings == ()

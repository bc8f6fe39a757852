"""`netspec.init` of a path without usable data: what was searched for, and where the data may be instead."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from netspec.errors import InputError, Problem
from netspec.tools.init import init


def write_images(folder: Path, *classes: str) -> None:
    """Write 12 small images into each class folder."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        for index in range(12):
            Image.fromarray(np.full((8, 8, 3), index, np.uint8)).save(folder / name / f"{index}.png")


def problem_of(data: Path, **options: object) -> Problem:
    """Return the only problem that `init` reports, after checking that nothing was written."""
    before = sorted(data.parent.rglob("*"))
    with pytest.raises(InputError) as caught:
        init(data, **options)  # type: ignore[arg-type]  # any option
    assert sorted(data.parent.rglob("*")) == before
    (problem,) = caught.value.problems
    return problem


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", "cat", "dog")
    missing = problem_of(tmp_path / "nowhere")
    assert missing.message == f"no such file or folder: {tmp_path / 'nowhere'}"
    assert missing.expected == "a folder or list of images or sounds, texts (.txt), or a table (CSV, Parquet)"
    assert missing.hint == f"{tmp_path} contains photos/"
    assert problem_of(tmp_path / "photo").hint == f"did you mean `{tmp_path / 'photos'}`?"
    assert problem_of(tmp_path / "none" / "t.csv").hint == f"the folder {tmp_path / 'none'} does not exist"


def test_a_data_frame_must_be_a_file() -> None:
    with pytest.raises(InputError) as error:
        init(pa.table({"a": [1], "label": ["x"]}))
    (problem,) = error.value.problems
    assert problem.got == "Table"
    assert "write a data frame to a file first" in (problem.hint or "")


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert problem_of(tmp_path / "empty").message == f"the folder {tmp_path / 'empty'} is empty"


def test_a_folder_that_holds_a_table(tmp_path: Path) -> None:
    (tmp_path / "tables" / "2024").mkdir(parents=True)
    (tmp_path / "tables" / "2024" / "t.csv").write_text("a,b\n1,2\n")
    hint = problem_of(tmp_path / "tables").hint
    assert hint == f"for a table in this folder, name the file: `netspec init {tmp_path / 'tables' / '2024' / 't.csv'}`"


def test_images_without_class_folders(tmp_path: Path) -> None:
    write_images(tmp_path, "photos")
    problem = problem_of(tmp_path / "photos")
    assert problem.got == "0.png, 1.png, 10.png, 11.png, 2.png and 7 more"
    assert problem.hint == "move the files of each class into a folder of their own, with the name of the class"


def test_formats_that_are_not_read(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", "cat", "dog")
    (tmp_path / "photos" / "fox").mkdir()
    for name in ("a.heic", "b.avif"):
        (tmp_path / "photos" / "fox" / name).write_bytes(b"image")
    fox = tmp_path / "photos" / "fox"
    unread = "2 images are in a format that netspec does not read (1 .avif, 1 .heic)"
    why = f"{unread}, such as {fox / 'a.heic'}: convert them to JPEG or PNG"
    assert f"the folder {fox} is not used as a class: {why}" in init(tmp_path / "photos").warnings
    (tmp_path / "photos" / "cat").rename(tmp_path / "cat")
    (tmp_path / "photos" / "train.yaml").unlink()
    (tmp_path / "photos" / "net.yaml").unlink()
    assert problem_of(tmp_path / "photos").hint == f"in the folder fox, {why}"
    (tmp_path / "photos" / "dog").rename(tmp_path / "dog")
    assert problem_of(tmp_path / "photos").hint == why


def test_classes_deeper_in_the_folder(tmp_path: Path) -> None:
    write_images(tmp_path / "photos" / "a" / "b", "cat", "dog")
    inner = tmp_path / "photos" / "a" / "b"
    hint = problem_of(tmp_path / "photos").hint
    assert hint == f"if the classes are the folders cat, dog in {inner}: `netspec init {inner}`"


def test_class_folders_in_each_folder(tmp_path: Path) -> None:
    for part in ("x", "y"):
        write_images(tmp_path / "photos" / part, "cat", "dog")
    (warning,) = (text for text in init(tmp_path / "photos").warnings if "class folders" in text)
    assert warning.startswith("each of the class folders x, y contains the folders cat, dog")
    write_images(tmp_path / "others" / "cat", "2023", "2024")
    write_images(tmp_path / "others" / "dog", "2024")
    assert not any("class folders" in text for text in init(tmp_path / "others").warnings)


@pytest.mark.parametrize(
    ("name", "content", "got"),
    [
        ("t.json", b'[{"a": 1}]', "JSON"),
        ("t.jsonl", b'{"a": 1}\n{"a": 2}\n', "JSON"),
        ("t.xlsx", b"PK\x03\x04\0\0", "a spreadsheet"),
        ("t.csv", "a,b\n1,2\n".encode("utf-16"), "text in UTF-16"),
        ("t.csv", b"a,b\r1,2\r", "text whose lines end with carriage returns alone"),
        ("t.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a file that begins with the bytes 89 50 4e 47 0d 0a 1a 0a"),
    ],
)
def test_files_that_are_not_tables(tmp_path: Path, name: str, content: bytes, got: str) -> None:
    (tmp_path / name).write_bytes(content)
    problem = problem_of(tmp_path / name, target="a")
    assert problem.message == f"{tmp_path / name} is not a table"
    assert problem.got == got


def test_a_folder_that_must_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "photos", "cat", "dog")
    scandir = os.scandir

    def guarded(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("dog"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)  # the superuser may read everything
    with pytest.raises(InputError, match=r"cannot read .*dog") as caught:
        init(tmp_path / "photos")
    assert caught.value.problems[0].got == "Permission denied"


def test_an_output_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n3,1\n" * 20)
    problem = problem_of(tmp_path / "t.csv", target="b", output=tmp_path / "t.csv")
    assert problem.message == f"--output: {tmp_path / 't.csv'} is not a folder"


def test_a_device_is_not_data() -> None:
    with pytest.raises(InputError, match="/dev/null is not a file or folder"):
        init("/dev/null", target="a", output="/nowhere")

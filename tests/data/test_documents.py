"""Documents: files in class folders and lines of files, as tokens; their lengths differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.input_binding import ValueRange
from netspec.data.loader import open_loader
from netspec.errors import InputError
from tests.data.conftest import problems_of, split_of

WORDS = {"type": "words", "lowercase": True, "padding": True, "punctuation": "drop"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"pos/1.txt": "Good, good film", "pos/0.txt": "a film", "neg/5.txt": "bad\nfilm"}.items():
        path = tmp_path / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "neg.txt").write_text("bad film\r\n\r\n  \nso bad\n", encoding="utf-8")
    (tmp_path / "pos.txt").write_text("good film", encoding="utf-8")
    return tmp_path


def opened(folder: Path, learned: Any = None, **fields: Any) -> Dataset:
    settings = {"path": "train", "tokenizer": WORDS, **fields}
    return split_of(str(folder / "train.yaml"), source="documents", **settings).open(learned=learned)


def texts(data: Dataset) -> list[list[str]]:
    vocabulary = data.learned["tokenizer"]["vocabulary"]
    rows: Any = data.read(np.arange(len(data)))["text"]
    return [[vocabulary[number - 1] for number in row] for row in rows]


def test_files_are_documents_by_class_and_path(folder):
    data = opened(folder)
    assert data.fields == {"text": FieldType((None,), "int32"), "label": FieldType((), "int32")}
    assert data.classes == {"label": ("neg", "pos")}
    assert texts(data) == [["bad", "film"], ["a", "film"], ["good", "good", "film"]]
    assert np.asarray(data.read(np.array([2, 0]))["label"]).tolist() == [1, 0]
    assert data.describe(0) == str(folder / "train" / "neg" / "5.txt")


def test_lines_are_documents_and_files_may_be_classes(folder):
    data = opened(folder, documents="lines", path=["neg.txt", "pos.txt"], classes=["neg", "pos"])
    assert texts(data) == [["bad", "film"], ["so", "bad"], ["good", "film"]]
    assert np.asarray(data.read(np.array([2, 0, 1]))["label"]).tolist() == [1, 0, 0]
    assert data.describe(1) == f"{folder / 'neg.txt'}, line 4"
    single_file = opened(folder, documents="lines", path="neg.txt")
    assert set(single_file.fields) == {"text"}
    assert single_file.digest != data.digest


def test_documents_become_batches_of_one_length(folder):
    split = split_of(
        str(folder / "train.yaml"), source="documents", path="train", tokenizer=WORDS,
        transforms=[{"type": "Padding", "length": 3}],
    )  # fmt: skip
    with open_loader(split, seed=1) as loader:
        (batch,) = loader.one_pass()
        assert loader.learned.source["tokenizer"]["vocabulary"] == ["film", "good", "a", "bad"]
    assert batch.inputs["text"].tolist() == [[4, 1, 0], [3, 1, 0], [2, 2, 1]]


@pytest.mark.parametrize("kind", ["files", "lines"])
def test_unknown_tokens_are_reported_with_their_location_or_skipped(folder, kind):
    learned = opened(folder).learned
    path = folder / "train" / "neg" / "5.txt" if kind == "files" else folder / "neg.txt"
    path.write_text("bad film\nso bad\n" if kind == "lines" else "bad\nso film", encoding="utf-8")
    fields: dict[str, Any] = {"documents": kind, "path": "train" if kind == "files" else "neg.txt"}
    with pytest.raises(DamagedSamples) as error:
        texts(opened(folder, learned, **fields))
    name = str(path.relative_to(folder))
    assert problems_of(error, folder).startswith(f"./{name}:2:1: error: the word 'so' is not in the vocabulary\n")
    path.write_bytes(b"bad film\nb\xe4d film\n" if kind == "lines" else b"b\xe4d")
    for damaged in (None, learned):
        with pytest.raises(InputError, match=f"{path.name} is not text in UTF-8"):
            texts(opened(folder, damaged, **fields))
    padding = [{"type": "Padding", "length": 3}]
    split = split_of(
        str(folder / "train.yaml"), source="documents", tokenizer=WORDS, on_error="skip", transforms=padding, **fields
    )
    with open_loader(split, seed=1) as loader:
        (batch,) = loader.one_pass()
    assert len(batch) == (2 if kind == "files" else 1)


@pytest.mark.parametrize("kind", ["files", "lines"])
@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_tokens_that_the_net_does_not_have_are_an_error_before_the_first_batch(folder, kind, on_error):
    fields = {"documents": kind, "path": "train" if kind == "files" else ["neg.txt", "pos.txt"], "on_error": on_error}
    split = split_of(
        str(folder / "train.yaml"), source="documents", tokenizer=WORDS, transforms=[{"type": "Padding", "length": 2}],
        **fields,
    )  # fmt: skip
    ranges = {"text": ValueRange(0, 3, "`input_dim` is 4")}
    with pytest.raises(InputError) as error:
        open_loader(split, seed=1, ranges=ranges)
    (problem,) = error.value.problems
    assert problem.message == "`text` is out of range in 1 of 3 samples"
    assert problem.hint == "the tokenizer has 5 tokens"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"path": ["train"]}, "`documents: files` reads one folder"),
        ({"path": "nowhere"}, "does not exist"),
        ({"documents": "lines", "path": "pos.txt", "classes": ["a", "b"]}, "`classes` must have a name for each file"),
        ({"documents": "lines", "path": "blank.txt"}, "holds nothing but blanks"),
        ({"documents": "lines", "path": "empty.txt"}, "is empty"),
    ],
)
def test_missing_documents_are_reported(folder, fields, message):
    (folder / "blank.txt").write_text(" \n\n", encoding="utf-8")
    (folder / "empty.txt").touch()
    with pytest.raises(InputError, match=message):
        opened(folder, **fields)


def test_lines_and_files_have_a_maximum_size(folder, monkeypatch):
    monkeypatch.setattr("netspec.data.text.documents.MAX_BYTES", 5)
    with pytest.raises(InputError, match="is too long"):
        opened(folder)
    with pytest.raises(InputError, match="this line is too long"):
        opened(folder, documents="lines", path="neg.txt")


def test_a_file_of_lines_that_changes_is_reported(folder):
    data = opened(folder, documents="lines", path="neg.txt")
    (folder / "neg.txt").write_text("bad", encoding="utf-8")
    with pytest.raises(InputError, match="changed while it was read"):
        texts(data)

"""CIFAR's binary files: labels, several files, folders, and what is wrong with a file."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from netspec.data.base import DamagedSamples, FieldType
from netspec.data.known_datasets import CIFAR10, CIFAR100, Download, PublishedFile
from netspec.data.loader import open_loader
from netspec.data.readers import cifar
from netspec.errors import InputError
from tests.data.conftest import arrays_of, problems_of, split_of

RECORDS = 7


def write_cifar(path: Path, labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return records with these labels, (N,) or (N, 2), and the images (N, 3, 32, 32)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32)).astype(np.uint8)
    heads = np.asarray(labels, np.uint8).reshape(len(labels), -1)
    path.write_bytes(np.concatenate([heads, images.reshape(len(labels), -1)], axis=1).tobytes())
    return images


def test_several_files_are_concatenated(tmp_path):
    first = write_cifar(tmp_path / "a.bin", np.arange(4), 1)
    second = write_cifar(tmp_path / "b.bin", np.arange(9, 2, -1), 2)
    data = split_of(str(tmp_path / "train.yaml"), source="cifar_binary", path=["a.bin", "b.bin"]).open()
    assert len(data) == 11
    assert data.fields == {"image": FieldType((3, 32, 32), "uint8"), "label": FieldType((), "int32")}
    assert data.classes == CIFAR10.classes
    rows = np.array([10, 0, 4, 3, 5, 6, 0])
    arrays = arrays_of(data, rows)
    assert np.array_equal(arrays["image"], np.concatenate([first, second])[rows])
    assert arrays["label"].tolist() == np.concatenate([np.arange(4), np.arange(9, 2, -1)])[rows].tolist()
    assert data.describe(5) == "b.bin, record 1"


def test_cifar100_has_coarse_and_fine_labels(tmp_path):
    labels = np.array([[19, 99], [0, 4]])
    images = write_cifar(tmp_path / "train.bin", labels)
    data = split_of(str(tmp_path / "x.yaml"), source="cifar_binary", kind="cifar100", path=".", split="train").open()
    arrays = arrays_of(data, np.array([1, 0]))
    assert arrays["coarse_label"].tolist() == [0, 19]
    assert arrays["label"].tolist() == [4, 99]
    assert np.array_equal(arrays["image"], images[[1, 0]])
    assert {name: len(classes) for name, classes in data.classes.items()} == {"coarse_label": 20, "label": 100}
    assert data.classes["label"][4] == "beaver"
    assert data.classes["coarse_label"][0] == "aquatic_mammals"
    assert data.classes == CIFAR100.classes


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-bin"])
@pytest.mark.parametrize("source", ["cifar_binary", "cifar10"])
def test_a_folder_contains_files_with_the_published_names(tmp_path, monkeypatch, inside, source):
    for number in range(1, 6):
        write_cifar(tmp_path / inside / f"data_batch_{number}.bin", np.full(2, number), number)
    write_cifar(tmp_path / inside / "test_batch.bin", np.array([0, 6, 8]))
    # The published files have 10,000 records each, and other digests.
    parts = {}
    for name in CIFAR10.parts:
        content = (tmp_path / inside / name).read_bytes()
        parts[f"cifar-10-batches-bin/{name}"] = PublishedFile(name, len(content), hashlib.sha256(content).hexdigest())
    one_download = replace(CIFAR10, downloads=(Download("cifar-10-binary.tar.gz", 1, "", (), parts),))
    monkeypatch.setattr("netspec.data.sources.cifar.Cifar10.known_set", one_download)
    monkeypatch.setenv("NETSPEC_DATA", str(tmp_path / "home"))
    file = str(tmp_path / "train.yaml")
    train = split_of(file, source=source, path=".", split="train").open()
    assert arrays_of(train, np.arange(10))["label"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    test = split_of(file, source=source, path=".", split="test").open()
    assert arrays_of(test, np.arange(3))["label"].tolist() == [0, 6, 8]


def test_the_fingerprint_depends_on_the_content(tmp_path):
    file = str(tmp_path / "train.yaml")
    write_cifar(tmp_path / "a.bin", np.arange(4))
    before = split_of(file, source="cifar_binary", path="a.bin").open().digest
    assert split_of(file, source="cifar_binary", path="a.bin").open().digest == before
    content = bytearray((tmp_path / "a.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "a.bin").write_bytes(content)
    assert split_of(file, source="cifar_binary", path="a.bin").open().digest != before


def test_labels_out_of_range_are_damaged_samples(tmp_path):
    write_cifar(tmp_path / "a.bin", np.array([3, 1]))
    write_cifar(tmp_path / "b.bin", np.array([3, 10, 9, 255, 0]))
    split = split_of(str(tmp_path / "train.yaml"), source="cifar_binary", path=["a.bin", "b.bin"])
    data = split.open()
    with pytest.raises(DamagedSamples) as error:
        data.read(np.array([0, 5, 2, 3]))
    assert sorted(error.value.rows) == [1, 3]
    assert problems_of(error, tmp_path) == (
        "error: `label` is 255, out of range\n"
        "  expected: 0 to 9\n"
        "  got: 255 in b.bin, record 3\n"
        "  hint: is it a file of CIFAR-10 read as CIFAR-100, or vice versa?\n"
        "error: `label` is 10, out of range\n"
        "  expected: 0 to 9\n"
        "  got: 10 in b.bin, record 1\n"
        "  hint: is it a file of CIFAR-10 read as CIFAR-100, or vice versa?\n"
        "2 errors"
    )


def test_damaged_records_can_be_skipped(tmp_path):
    write_cifar(tmp_path / "a.bin", np.array([3, 10, 9, 255, 0]))
    split = split_of(str(tmp_path / "train.yaml"), source="cifar_binary", path="a.bin", on_error="skip")
    with open_loader(split, seed=1) as loader:
        labels = np.concatenate([batch.inputs["label"] for batch in loader.one_pass()])
    assert labels.tolist() == [3, 9, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"\x01" * 3072, "0 records and 3,072 bytes left over"),
        (b"\x01" * (2 * 3073 - 1), "1 records and 3,072 bytes left over"),
        (b"\x1f\x8b\x08" + bytes(99), "gzipped data"),
        (b"\x80\x02}q\x01(U\x0b" + bytes(99), "a Python pickle"),
    ],
)
def test_files_of_other_cifar_versions_are_refused(tmp_path, content, message):
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.bin is not a file of CIFAR's binary version") as error:
        split_of(str(tmp_path / "train.yaml"), source="cifar_binary", path="a.bin").open()
    (problem,) = error.value.problems
    assert (problem.expected, problem.got) == ("whole records of 3,073 bytes", message)


def test_missing_cifar_files_are_reported(tmp_path):
    file = str(tmp_path / "train.yaml")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is a folder") as error:
        split_of(file, source="cifar_binary", path="folder").open()
    assert error.value.problems[0].expected == "files, or also `split: train` or `split: test`"
    with pytest.raises(InputError) as error:
        split_of(file, source="cifar_binary", path="folder", split="train").open()
    names = ", ".join(f"./folder/data_batch_{number}.bin" for number in range(1, 6))
    (problem,) = error.value.problems
    assert problem.message.replace(str(tmp_path), ".") == f"there are no files {names}"
    (tmp_path / "folder" / "data_batch_2.bin").write_bytes(b"")
    with pytest.raises(InputError) as error:
        split_of(file, source="cifar_binary", path="folder", split="train").open()
    absent, empty = (problem.message.replace(str(tmp_path), ".") for problem in error.value.problems)
    assert absent == f"there are no files {names.replace('./folder/data_batch_2.bin, ', '')}"
    assert empty.startswith("./folder/data_batch_2.bin is not a file of CIFAR")
    with pytest.raises(InputError, match="folder is not a file"):
        split_of(file, source="cifar_binary", path=["folder"]).open()
    with pytest.raises(InputError, match="names no file"):
        split_of(file, source="cifar_binary", path=[]).open()


def test_a_file_that_changes_while_it_is_read(tmp_path):
    write_cifar(tmp_path / "a.bin", np.arange(RECORDS))
    data = split_of(str(tmp_path / "train.yaml"), source="cifar_binary", path="a.bin").open()
    data.read(np.arange(RECORDS))
    with (tmp_path / "a.bin").open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(InputError, match="changed while it was read"):
        data.read(np.array([6]))
    (tmp_path / "a.bin").unlink()
    with pytest.raises(InputError, match=r"cannot read .*a\.bin"):
        data.read(np.array([0]))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="this user may read every file")
def test_an_unreadable_file_is_reported(tmp_path):
    write_cifar(tmp_path / "a.bin", np.arange(RECORDS))
    (tmp_path / "a.bin").chmod(0)
    with pytest.raises(InputError, match="cannot read"):
        split_of(str(tmp_path / "train.yaml"), source="cifar_binary", path="a.bin").open()


def test_a_file_whose_status_cannot_be_read_is_reported(tmp_path, monkeypatch):
    def no_status(path: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cifar, "existing", no_status)
    with pytest.raises(InputError, match=r"cannot read .*a\.bin"):
        split_of(str(tmp_path / "train.yaml"), source="cifar_binary", path="a.bin").open()

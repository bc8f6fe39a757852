"""`netspec data`: datasets, get and unpack, with a small dataset in place of the known ones."""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from netspec.data.known_datasets import CIFAR10, KNOWN_SETS, Download, KnownSet, PublishedFile
from netspec.data.loader import open_loader
from netspec.schema.specs.data import SOURCES

RECORDS = {name: bytes([number]) + bytes([10 * number]) * 3072 for number, name in enumerate(CIFAR10.parts)}
"""The files of a CIFAR-10 with a record each."""


def replace_cifar10(
    monkeypatch: pytest.MonkeyPatch, sets: Path, archive: bytes = b" ", folders: tuple[str, ...] = ()
) -> None:
    """Replace CIFAR-10 by `RECORDS`, stored below `sets` and published as an archive in these folders."""
    parts = {
        name: PublishedFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in RECORDS.items()
    }
    digest = hashlib.sha256(archive).hexdigest()
    download = Download("cifar-10-binary.tar.gz", len(archive), digest, folders, parts)
    known_set = KnownSet("cifar10", CIFAR10.about, CIFAR10.page, (download,), CIFAR10.splits, CIFAR10.classes)
    monkeypatch.setenv("NETSPEC_DATA", str(sets))
    monkeypatch.setitem(KNOWN_SETS, "cifar10", known_set)
    monkeypatch.setattr("netspec.data.sources.cifar.Cifar10.known_set", known_set)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """CIFAR-10 with six records in all, in the folder of known datasets."""
    folder = tmp_path / "sets" / "cifar10"
    folder.mkdir(parents=True)
    for name, content in RECORDS.items():
        (folder / name).write_bytes(content)
    replace_cifar10(monkeypatch, tmp_path / "sets")
    return folder


def test_the_list_has_the_folders_of_datasets(netspec, tiny):
    result = netspec("data", "list", "--json").json["datasets"]
    assert [(dataset["name"], dataset["complete"]) for dataset in result] == [
        ("cifar10", True),
        ("cifar100", False),
        ("fashion_mnist", False),
        ("tinyshakespeare", False),
    ]
    assert result[0]["folder"] == str(tiny)
    line = next(line for line in netspec("data", "list").out.splitlines() if "60,000 color images" in line)
    assert line.split()[0] == "cifar10"
    assert line.endswith(str(tiny))


def test_present_files_are_verified_and_not_fetched(netspec, tiny):
    result = netspec.ok("data", "get", "cifar10")
    assert result.out.splitlines()[:2] == [f"cifar10 is in {tiny}", "  data_batch_1.bin  3.07 kB"]
    assert netspec("data", "get", "cifar10", "--path", tiny, "--json").json["complete"] is True
    (tiny / "test_batch.bin").write_bytes(bytes(3073))
    wrong = netspec("data", "get", "cifar10")
    assert wrong.status == 2
    assert f"1 of the files in {tiny} do not belong to cifar10" in wrong.err
    assert "got: test_batch.bin" in wrong.err


@pytest.mark.parametrize(("name", "message"), [("cifar", "did you mean `cifar10`?"), ("mnist", "mnist is included")])
def test_unknown_datasets_are_rejected(netspec, name, message):
    result = netspec("data", "get", name)
    assert result.status == 2
    assert message in result.err


def test_a_set_as_image_files_in_its_order(netspec, tiny, tmp_path):
    result = netspec.ok("data", "unpack", "cifar10", tmp_path / "png")
    assert result.out.splitlines()[:2] == ["train: 5 images", "test: 1 images"]
    assert (tmp_path / "png" / "train.csv").read_text() == (
        "path,label,class\n"
        "train/airplane/0.png,0,airplane\n"
        "train/automobile/1.png,1,automobile\n"
        "train/bird/2.png,2,bird\n"
        "train/cat/3.png,3,cat\n"
        "train/deer/4.png,4,deer\n"
    )
    with Image.open(tmp_path / "png" / "train" / "cat" / "3.png") as image:
        assert np.array_equal(np.asarray(image), np.full((32, 32, 3), 30))
    assert netspec("data", "unpack", "cifar10", tmp_path / "png").status == 2


def test_image_files_give_the_batches_of_the_set_itself(netspec, tiny, tmp_path):
    """Only `source` and `path` differ, so the training is bit-identical."""
    netspec.ok("data", "unpack", "cifar10", tmp_path / "png")
    batches = []
    for source, path in (("cifar10", tiny), ("image_folder", tmp_path / "png")):
        fields = {"source": source, "path": str(path), "split": "train", "batch_size": 2, "shuffle": True}
        with open_loader(SOURCES.parse(fields), seed=3) as loader:
            batches.append([batch.inputs for batch in islice(loader, 9)])
    for from_files, other in zip(*batches, strict=True):
        assert np.array_equal(from_files["label"], other["label"])
        assert np.array_equal(from_files["image"], other["image"])


def test_a_dataset_without_images_is_rejected(netspec, tmp_path):
    result = netspec("data", "unpack", "adult", tmp_path / "png")
    assert result.status == 2
    assert "there is no image dataset `adult`" in result.err
    assert not Path(tmp_path / "png").exists()

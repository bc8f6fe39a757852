"""The published datasets, in the folder NETSPEC_DATASETS: counts, the order of a seed, content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.data.base import Source
from netspec.data.dataset_files import damaged_files
from netspec.data.known_datasets import CIFAR10, CIFAR100, FASHION_MNIST
from netspec.data.loader import open_loader
from netspec.data.random import epoch_order
from tests.data.conftest import arrays_of, split_of

ROOT = os.environ.get("NETSPEC_DATASETS")
FIRST = {
    ("cifar10", "train"): [6, 9, 9, 4, 1],
    ("cifar10", "test"): [3, 8, 8, 0, 6],
    ("fashion_mnist", "train"): [9, 0, 0, 3, 0],
    ("fashion_mnist", "test"): [9, 2, 1, 1, 6],
    ("cifar100", "train"): [19, 29, 0, 11, 1],
    ("cifar100", "test"): [],  # verified by its content instead
}
"""The first labels, as published with other copies of the sets."""

ORDER = {
    "cifar10": "105a662b204a565e",
    "fashion_mnist": "2a027e4e5f90d44e",
    "mnist": "e3c3929d2ce73439",
}
"""Beginning of the SHA-256 digest of the labels in the order of the second epoch with seed 7."""


def folder_of(name: str) -> Path:
    """Return the folder of a dataset. Skips the test if it does not exist."""
    if ROOT is None:
        pytest.skip("the environment variable NETSPEC_DATASETS names no folder with the sets")
    folder = Path(ROOT) / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return folder


def opened(name: str, split: str, **fields: Any) -> Source:
    return split_of(source=name, split=split, path=str(folder_of(name)), download=False, **fields)


@pytest.mark.parametrize(("name", "split"), FIRST)
def test_published_sets_have_their_counts_labels_and_content(name, split):
    data = opened(name, split).open()
    known_set = {dataset.name: dataset for dataset in (CIFAR10, CIFAR100, FASHION_MNIST)}[name]
    expected = 10_000 if split == "test" else 60_000 if name == "fashion_mnist" else 50_000
    assert len(data) == expected
    arrays = arrays_of(data, np.arange(len(data)))
    first = FIRST[name, split]
    assert arrays["label"][: len(first)].tolist() == first
    classes = len(data.classes["label"])
    assert np.bincount(arrays["label"]).tolist() == [expected // classes] * classes
    parts = [known_set.parts[part] for part in known_set.splits[split]]
    assert [sha for _, sha in written(name, arrays)] == [part.sha256 for part in parts]
    assert [size for size, _ in written(name, arrays)] == [part.size for part in parts]


def written(name: str, arrays: dict[str, np.ndarray]) -> list[tuple[int, str]]:
    """Return size and SHA-256 of the dataset's files, written again from the arrays."""
    count = len(arrays["label"])
    if name == "fashion_mnist":
        images = bytes.fromhex("00000803") + np.array([count, 28, 28], ">u4").tobytes() + arrays["image"].tobytes()
        labels = bytes.fromhex("00000801") + np.array([count], ">u4").tobytes() + arrays["label"].astype("u1").tobytes()
        files = [images, labels]
    else:
        heads = [arrays[field].astype("u1") for field in ("coarse_label", "label") if field in arrays]
        records = np.concatenate([np.stack(heads, axis=1), arrays["image"].reshape(count, -1)], axis=1)
        pieces = np.split(records, 5) if count == 50_000 and name == "cifar10" else [records]
        files = [piece.tobytes() for piece in pieces]
    return [(len(file), hashlib.sha256(file).hexdigest()) for file in files]


@pytest.mark.parametrize("name", ["cifar10", "fashion_mnist", "mnist"])
def test_the_order_of_a_seed_does_not_change(name):
    split = (
        split_of(source="mnist", split="test", batch_size=1000, shuffle=True)
        if name == "mnist"
        else opened(name, "test", batch_size=1000, shuffle=True)
    )
    labels: list[int] = []
    with open_loader(split, seed=7) as loader:
        for batch in loader:
            if batch.epoch == 2:
                break
            labels += batch.inputs["label"].tolist() if batch.epoch == 1 else []
    assert labels == arrays_of(split.open(), epoch_order(10_000, 7, 1))["label"].tolist()
    assert hashlib.sha256(bytes(labels)).hexdigest()[:16] == ORDER[name]


@pytest.mark.parametrize("known_set", [CIFAR10, CIFAR100], ids=lambda known_set: known_set.name)
def test_published_files_have_their_checksums(known_set):
    assert damaged_files(known_set, folder_of(known_set.name)) == []

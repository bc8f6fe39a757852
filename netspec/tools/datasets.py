"""Datasets that are known by name: list them, fetch and verify their files, write them as image files."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from netspec.data.base import Dataset, Source
from netspec.data.dataset_files import damaged_files, has_file
from netspec.data.downloads import ensure
from netspec.data.known_datasets import KNOWN_SETS, KnownSet
from netspec.errors import InputError, did_you_mean, listing
from netspec.exchange.files import new_folder
from netspec.files.cache_folder import data_folder

CHUNK = 1000
"""Images read at a time."""


@dataclass(frozen=True)
class DatasetInfo:
    """A dataset that is known by name."""

    name: str
    description: str
    page: str
    """Web page of its authors."""
    download_bytes: int
    """Size of the archives to fetch."""
    folder: Path
    """Folder in which its files are, or would be stored."""
    complete: bool
    """Whether all files are in `folder`."""
    files: dict[str, int]
    """Names and sizes of the files, in bytes."""

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "name": self.name, "description": self.description, "page": self.page, "bytes": self.download_bytes,
            "folder": str(self.folder), "complete": self.complete,
        }  # fmt: skip


@dataclass(frozen=True)
class DataSource:
    """A kind of data that a split of a training file can read."""

    name: str
    """The value of `source`."""
    description: str


def datasets() -> list[DatasetInfo]:
    """List the datasets that are known by name, and where their files are.

    >>> [dataset.name for dataset in netspec.datasets() if dataset.complete]
    """
    return [_info(dataset, data_folder() / dataset.name) for dataset in KNOWN_SETS.values()]


def data_sources() -> list[DataSource]:
    """List the kinds of data that can be read, those of installed packages included.

    >>> [source.name for source in netspec.data_sources()]
    """
    import netspec.data  # noqa: F401  # registers the sources
    from netspec.schema.specs.data import SOURCES

    return [DataSource(name, (SOURCES[name].__doc__ or "").strip().splitlines()[0]) for name in SOURCES.names()]


def get_dataset(name: str, path: str | Path | None = None) -> DatasetInfo:
    """Fetch a dataset and verify its files; complete files are not fetched again, interrupted downloads are resumed.

    `path` is the folder for its files, by default one below `NETSPEC_DATA` or the user's cache folder. An archive that
    was downloaded by hand into the folder is unpacked. Raises `InputError` for an unknown name or wrong files.

        >>> netspec.get_dataset("cifar10").folder
    """
    if name not in KNOWN_SETS:
        raise InputError(
            f"there is no dataset `{name}`"
            if name != "mnist"
            else "mnist is included and does not have to be downloaded",
            expected=f"one of {listing(list(KNOWN_SETS))}",
            hint=did_you_mean(name, KNOWN_SETS),
        )
    dataset = KNOWN_SETS[name]
    folder = ensure(dataset, None if path is None else Path(path).expanduser().absolute())
    wrong = damaged_files(dataset, folder)
    if wrong:
        raise InputError(
            f"{len(wrong)} of the files in {folder} do not belong to {name}",
            expected="the published SHA-256",
            got=", ".join(part.name for part in wrong),
            hint="remove them to download them again",
        )
    return _info(dataset, folder)


def unpack_dataset(name: str, folder: str | Path, path: str | Path | None = None) -> dict[str, int]:
    """Write an image dataset as PNG files, in class folders, with a list for each split; the images of each split.

    `name` is `mnist` or one of `datasets()`, fetched if it is not in `path` yet; `folder` must be new or empty. The
    lists keep the order of the dataset: training on them gives the same samples in the same order.

        >>> netspec.unpack_dataset("cifar10", "cifar10_png")
        {'train': 50000, 'test': 10000}
    """
    with new_folder(Path(folder)) as staged:
        return {split: _unpack_split(_open_split(name, split, path), split, staged) for split in ("train", "test")}


def _info(dataset: KnownSet, folder: Path) -> DatasetInfo:
    complete = all(has_file(dataset, folder, part) for part in dataset.parts.values())
    size = sum(download.size for download in dataset.downloads)
    files = {part.name: part.size for part in dataset.parts.values()}
    return DatasetInfo(dataset.name, dataset.about, dataset.page, size, folder, complete, files)


def _open_split(name: str, split: str, path: str | Path | None) -> Dataset:
    """Open a split of an image dataset, fetched if it is not there. Raises `InputError`."""
    import netspec.data  # noqa: F401  # registers the sources
    from netspec.schema.specs.data import SOURCES

    of_images = ["mnist", *(known for known, dataset in KNOWN_SETS.items() if dataset.splits)]
    if name not in of_images:
        raise InputError(f"there is no image dataset `{name}`", expected=f"one of {listing(of_images)}")
    fields = {"source": name, "split": split, "batch_size": 1, **({} if path is None else {"path": str(path)})}
    source = SOURCES.parse(fields)
    assert isinstance(source, Source)
    return source.open()


def _unpack_split(dataset: Dataset, split: str, folder: Path) -> int:
    """Write the images as `folder/split/CLASS/00017.png`, and a list `folder/split.csv`; the number of images.

    The list names them in the order of the dataset, with the label and, if classes have names, the class.
    """
    from PIL import Image

    names = dataset.classes.get("label", ())
    digits = len(str(len(dataset) - 1))
    with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["path", "label", "class"] if names else ["path", "label"])
        for start in range(0, len(dataset), CHUNK):
            batch = dataset.read(np.arange(start, min(start + CHUNK, len(dataset))))
            labels = np.asarray(batch["label"]).tolist()
            for index, (image, label) in enumerate(zip(batch["image"], labels, strict=True), start):
                text = names[label] if names else str(label)
                path = f"{split}/{_as_folder(text)}/{index:0{digits}d}.png"
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                pixels = image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0))
                Image.fromarray(pixels).save(folder / path, compress_level=1)
                rows.writerow([path, label, text] if names else [path, label])
    return len(dataset)


def _as_folder(name: str) -> str:
    """Replace characters of a class name that a folder name cannot have."""
    return re.sub(r"[^\w.+-]", "_", name)

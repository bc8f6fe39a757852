"""A set of images as image files: class folders, and a list for each split that keeps the order of the set."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from netspec.data.base import Dataset, Source
from netspec.errors import InputError, listing

CHUNK = 1000
"""Images read at a time."""


def open_split(name: str, split: str, path: str | None) -> Dataset:
    """A split of a set of images that a spec can name; it is fetched where it is not there. Raises InputError."""
    import netspec.data  # noqa: F401  # makes the sources known
    from netspec.data.known_datasets import KNOWN_SETS
    from netspec.schema.specs.data import SOURCES

    if name not in {"mnist", *KNOWN_SETS}:
        raise InputError(
            f"there is no set of images called `{name}`", expected=f"one of {listing(['mnist', *KNOWN_SETS])}"
        )
    fields = {"source": name, "split": split, "batch_size": 1, **({} if path is None else {"path": path})}
    source = SOURCES.parse(fields)
    assert isinstance(source, Source)
    return source.open()


def unpack_split(dataset: Dataset, split: str, folder: Path) -> int:
    """Write the images as PNG, `folder/split/CLASS/00017.png`, and a list `folder/split.csv`; how many there are.

    The list names them in the order of the set, with label and, where classes have names, class.
    """
    import numpy as np
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
    """The name of a class as that of a folder."""
    return re.sub(r"[^\w.+-]", "_", name)

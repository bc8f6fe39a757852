"""Small data sets, and sources read from YAML-like mappings."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec.data  # noqa: F401  # the sources and transforms are found through it
from netspec.data.base import Dataset, FieldType, Source
from netspec.data.readers.arrays import ArrayDataset
from netspec.errors import InputError, Location
from netspec.schema.specs.data import SOURCES
from netspec.schema.yaml.tree import Map, Seq

CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def located(value: Any, file: str) -> Any:
    """Return plain data with a location for every value, as the YAML reader returns it (one line per key)."""
    if isinstance(value, dict):
        mapping = Map(Location(file, 1, 1))
        for line, (key, item) in enumerate(value.items(), 1):
            mapping.put(key, located(item, file), Location(file, line, 1), Location(file, line, len(key) + 3))
        return mapping
    if isinstance(value, list):
        items = Seq(Location(file, 1, 1))
        for item in value:
            items.add(located(item, file), Location(file, 1, 1))
        return items
    return value


def split_of(_file: str = "train.yaml", **fields: Any) -> Source:
    """Return the split that these fields of a training file describe."""
    split = SOURCES.parse(located({"batch_size": 4, **fields}, _file))
    assert isinstance(split, Source)
    return split


def plain_dataset(samples: int) -> ArrayDataset:
    """A dataset of `x` (2,) and `label` (), both of which contain the index of their sample."""
    index = np.arange(samples)
    arrays: dict[str, np.ndarray] = {
        "x": np.stack([index, -index], axis=1).astype(np.float32),
        "label": index.astype(np.int64),
    }
    return ArrayDataset(arrays, digest=f"plain {samples}", describe=lambda index: f"plain, sample {index}")


def arrays_of(data: Dataset, indices: np.ndarray) -> dict[str, np.ndarray]:
    """Return the samples at `indices` as arrays; all samples have the same shapes."""
    return {name: np.asarray(values) for name, values in data.read(indices).items()}


PLAIN = {"x": FieldType((2,), "float32"), "label": FieldType((), "int32")}


def write_idx(path: Path, array: np.ndarray) -> Path:
    """Write an idx file, gzipped if its name ends in `.gz`."""
    header = struct.pack(">HBB", 0, CODES[array.dtype.name], array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def problems_of(error: pytest.ExceptionInfo[InputError], folder: Path) -> str:
    """Return the full text of an error, with `.` in place of the temporary folder."""
    return error.value.render().replace(str(folder), ".")


def complaint(read: Callable[[Path], object], path: Path) -> str:
    """Return the message of an InputError, or the path if the file can be read; any other exception is a failure."""
    try:
        read(path)
    except InputError as error:
        return str(error)
    return str(path)

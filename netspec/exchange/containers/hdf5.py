"""Read HDF5 files of other programs safely: only data stored in the file itself is read.

Soft and external links, external and virtual datasets, datasets and attributes that declare far more than they store,
and trees without an end are refused. Nothing is allocated before its size is known to be sensible.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError
from netspec.exchange.files import reading
from netspec.files.hdf5 import Entry, Hdf5File, StoredArray

MAX_ITEMS = 200_000
"""Largest number of groups and datasets in one file."""
DEEPEST = 64
"""Largest depth of nested groups."""
PACKED = 1100
"""Largest compression ratio of deflate (zlib: 1032)."""
WIDEST = 64
"""Largest ratio of everything read to the size of the file, plus `SPARE` bytes."""
SPARE = 2**26


class Hdf5Reader:
    """An open file: its datasets by path, and attributes of groups. Raises `InputError` for anything not plain."""

    def __init__(self, file: Hdf5File) -> None:
        self.name, self._file = file.name, file
        self._nbytes = 0
        self._datasets: dict[str, Entry] | None = None
        self._groups = {""}

    def refuse(self, why: str) -> NoReturn:
        """Raise an `InputError` that names the file."""
        raise InputError(f"{self.name} is refused: {why}", expected="arrays and texts that are stored in it")

    def paths(self) -> list[str]:
        """Paths of all datasets, in the order in which they are stored."""
        return list(self._walked())

    def __contains__(self, path: str) -> bool:
        """Whether there is a group or a dataset."""
        return path in self._walked() or path in self._groups

    def holds(self, path: str) -> bool:
        """Whether there is a dataset at the path."""
        return path in self._walked()

    def below(self, path: str) -> list[str]:
        """Names of the groups and datasets in a group."""
        return [entry.path.rpartition("/")[2] for entry in self._file.walk(path)] if self._is_group(path) else []

    def _is_group(self, path: str) -> bool:
        """Whether there is a group. The root needs no walk through the file, which raises an error at a link."""
        if path not in self._groups:
            self._walked()
        return path in self._groups

    def _walked(self) -> dict[str, Entry]:
        if self._datasets is not None:
            return self._datasets
        entries = self._file.walk(deepest=DEEPEST + 1, most=MAX_ITEMS + 1)
        if len(entries) > MAX_ITEMS:
            self.refuse(f"it holds more than {MAX_ITEMS} groups and arrays")
        for entry in entries:
            if entry.kind == "link":
                self.refuse(f"{entry.path!r} is a link, not stored here")
            if entry.kind == "loop":
                self.refuse(f"the group {entry.path!r} contains itself")
            if entry.path.count("/") >= DEEPEST:
                self.refuse(f"groups are nested more than {DEEPEST} deep at {entry.path[:100]!r}")
        self._groups |= {entry.path for entry in entries if entry.kind == "group"}
        self._datasets = {entry.path: entry for entry in entries if entry.kind == "dataset"}
        return self._datasets

    def stored(self, path: str) -> StoredArray:
        """Storage of a dataset: shape, type, chunks and filters."""
        entry = self._walked().get(path)
        if entry is None:
            self.refuse(f"{path!r} is not an array")
        if entry.array is None:
            self.refuse(f"{path!r} is damaged: {entry.fault}")
        return entry.array

    def shape(self, path: str) -> tuple[int, ...]:
        """Sizes of a dataset."""
        return self.stored(path).shape or ()

    def array(self, path: str) -> NDArray[Any]:
        """The array of a dataset. bfloat16, stored in two bytes with a mark, becomes float32."""
        stored = self.stored(path)
        if stored.external or stored.layout == "virtual":
            self.refuse(f"the numbers of {path!r} are in other files")
        kind = np.dtype(stored.dtype).kind
        if stored.shape is None or not (kind in "fiub" or stored.bfloat16):
            self.refuse(f"{path!r} is not numeric, but {stored.type[:60]}")
        limit = stored.stored if stored.layout in ("contiguous", "compact") else stored.stored * PACKED
        self._nbytes += stored.nbytes
        if stored.nbytes > limit or self._nbytes > self._file.size * WIDEST + SPARE:
            self.refuse(f"{path!r} declares {stored.nbytes} bytes, but {stored.stored} are stored")
        array = self._file.values(stored)
        if stored.bfloat16 and array.dtype.itemsize == 2:
            return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return array

    def text(self, path: str) -> str:
        """The string in a dataset that contains a single one."""
        stored = self.stored(path)
        if stored.external or stored.layout not in ("contiguous", "compact") or stored.nbytes > stored.stored:
            self.refuse(f"{path!r} is not a string that is stored in the file")
        return self._file.text(path)

    def floats(self, path: str) -> NDArray[Any]:
        """The values of a dataset as Caffe stores arrays: float32 or float64, not compressed."""
        stored = self.stored(path)
        if stored.layout not in ("contiguous", "compact") or stored.dtype[1:] not in ("f4", "f8"):
            self.refuse(f"{path!r} is not stored as Caffe stores arrays: {stored.layout} {stored.type}")
        return self.array(path)

    def attribute(self, path: str, name: str) -> Any:
        """An attribute of a group or of the file: a text, a list of texts, a number, or None if it is missing.

        A list that is too long for one attribute may be given in parts called `name0`, `name1`, …
        """
        names = self._file.attributes(path) if self._is_group(path) else []
        if name in names:
            return self._file.attribute(path, name)
        parts: list[Any] = []
        while f"{name}{len(parts)}" in names:
            parts.append(self._file.attribute(path, f"{name}{len(parts)}"))
        if any(not isinstance(part, list) for part in parts):
            self.refuse(f"the parts of the attribute {name!r} must be lists")
        return [item for part in parts for item in part] if parts else None


def open_hdf5(path: str | Path, kind: str) -> Hdf5Reader:
    """Open an HDF5 file for reading; `kind` describes the expected file. Raises `InputError` if it is damaged."""
    with reading(path, kind):
        return Hdf5Reader(Hdf5File(str(path), Path(path), kind))


def opened_hdf5(name: str, data: bytes, kind: str) -> Hdf5Reader:
    """Like `open_hdf5`, for the bytes of a file; error messages call it `name`."""
    return Hdf5Reader(Hdf5File(name, memoryview(data), kind))

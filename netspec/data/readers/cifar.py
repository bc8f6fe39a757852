"""CIFAR's binary files: records of one or two label bytes and 3 × 32 × 32 bytes of red, green and blue.

The format is described at https://www.cs.toronto.edu/~kriz/cifar.html ("Binary version").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, FieldType, Samples
from netspec.data.files import existing, head_of
from netspec.data.readers.concatenation import open_each
from netspec.data.readers.records import Records, file_fingerprint
from netspec.errors import InputError, Problem, counted, kind_of_file

IMAGE = (3, 32, 32)
PIXELS = 3 * 32 * 32
_HEADS = (b"\x1f\x8b", b"\x80\x02", b"\x80\x04", b"PK")
"""First bytes of the same datasets as an archive or as Python's pickle, which are often mistaken for these files."""


def open_cifar(paths: Sequence[Path], classes: Mapping[str, tuple[str, ...]]) -> Dataset:
    """Open the samples of the files, one file after the other: `image` (3, 32, 32), and a label for each of `classes`.

    Raises `InputError` with all problems of the files.
    """
    return open_each(paths, lambda path: CifarFile(path, classes))


class CifarFile(Dataset):
    """One file of records. `classes` are the class names for each label byte, in the order of the bytes."""

    def __init__(self, path: Path, classes: Mapping[str, tuple[str, ...]]) -> None:
        size = existing(path).stat().st_size
        record = len(classes) + PIXELS
        if not size or size % record:
            raise InputError(_wrong_file(path, size, record))
        self._path = path
        self._records = Records(path, offset=0, dtype=np.dtype("u1"), shape=(record,), count=size // record)
        self.classes = dict(classes)
        self.fields = {"image": FieldType(IMAGE, "uint8"), **{name: FieldType((), "int32") for name in classes}}
        self.digest = file_fingerprint(path)

    def __len__(self) -> int:
        return len(self._records)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the samples at `indices`. Raises `DamagedSamples` with those whose label is out of range."""
        records = self._records.read(indices)
        samples: dict[str, Samples] = {"image": records[:, len(self.classes) :].reshape(-1, *IMAGE)}
        damaged: dict[int, list[Problem]] = {}
        for column, (name, classes) in enumerate(self.classes.items()):
            labels = records[:, column].astype(np.int32)
            samples[name] = labels
            for row in np.flatnonzero(labels >= len(classes)).tolist():
                damaged.setdefault(row, []).append(
                    Problem(
                        f"`{name}` is {labels[row]}, out of range",
                        expected=f"0 to {len(classes) - 1}",
                        got=f"{labels[row]} in {self.describe(int(indices[row]))}",
                        hint="is it a file of CIFAR-10 read as CIFAR-100, or vice versa?",
                    )
                )
        if damaged:
            raise DamagedSamples(damaged)
        return samples

    def describe(self, index: int) -> str:
        """Return the file's name and the index of the record."""
        return f"{self._path.name}, record {index}"


def _wrong_file(path: Path, size: int, record: int) -> Problem:
    head = head_of(path)
    remainder = counted(size % record, "byte") + " left over"
    is_other_format = not head or head.startswith(_HEADS)
    return Problem(
        f"{path} is not a file of CIFAR's binary version, or it is cut short",
        expected=f"whole records of {record:,} bytes",
        got=kind_of_file(head) if is_other_format else f"{size // record:,} records and {remainder}",
        hint="take the archive of the “binary version”, unpacked" if is_other_format and head else None,
    )

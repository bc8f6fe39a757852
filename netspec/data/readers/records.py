"""Files of records of one size, read by offset, so that they need not fit in memory.

Files are not mapped into memory: if a file is truncated while it is used, accessing a mapped page ends the whole
process, while a short read is an error with a name and a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Array
from netspec.data.files import Watched, existing, explain_read_errors, fingerprint
from netspec.errors import InputError

if TYPE_CHECKING:
    from typing import BinaryIO


WHOLE = 2**28
"""Maximum size of a file whose fingerprint covers its whole content: about 0.2 s."""

BLOCK, BLOCKS = 2**16, 1024
"""For larger files, the number and size of evenly spread pieces, including the first and the last, that it covers."""


class Records:
    """`count` arrays of one type and shape, one after the other in a file from byte `offset` on.

    `dtype` is the type in the file; arrays are returned in native byte order.
    """

    def __init__(self, path: Path, *, offset: int, dtype: np.dtype[np.generic], shape: tuple[int, ...], count: int):
        self.path = path
        self.shape = shape
        self.dtype = dtype.newbyteorder("=")
        self._stored = dtype
        self._offset = offset
        self._count = count
        self._size = prod(shape) * dtype.itemsize
        self._watched = Watched([path])

    def __len__(self) -> int:
        return self._count

    def read(self, rows: Array) -> Array:
        """Return the records at `rows` (N,), (N, *shape). Raises `InputError` if the file has changed."""
        records = np.empty((len(rows), *self.shape), self._stored)
        if records.nbytes:
            into = records.reshape(-1).view(np.uint8).data
            with explain_read_errors(self.path), self.path.open("rb", buffering=0) as file:
                for first, last in _runs(rows):
                    self._fill(file, into[first * self._size : last * self._size], int(rows[first]))
            self._watched.check()
        return records.astype(self.dtype, copy=False)

    def _fill(self, file: BinaryIO, into: memoryview, row: int) -> None:
        file.seek(self._offset + row * self._size)
        while len(into):
            count = file.readinto(into)  # type: ignore[attr-defined]  # of a raw file, as without a buffer
            if not count:
                self._watched.check()
                raise InputError(
                    f"{self.path} is cut short", expected=f"{self._count:,} records", got=f"fewer at {row:,}"
                )
            into = into[count:]


def _runs(rows: Array) -> Iterator[tuple[int, int]]:
    """Return start and end of runs of consecutive rows, each of which is read at once."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    edges = [0, *breaks.tolist(), len(rows)]
    yield from pairwise(edges)


def file_fingerprint(path: Path) -> str:
    """Return a fingerprint of a file's content; for a file of more than `WHOLE` bytes, of its size and samples."""
    existing(path)
    with explain_read_errors(path), path.open("rb", buffering=0) as file:
        size = path.stat().st_size
        if size <= WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()
        pieces = []
        for number in range(BLOCKS):
            file.seek((size - BLOCK) * number // (BLOCKS - 1))
            pieces.append(file.read(BLOCK) or b"")
        return fingerprint(str(size), *pieces)

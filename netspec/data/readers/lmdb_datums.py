"""LMDB environments of Caffe's Datums: one image and its label for each key, in the order of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, FieldType, Samples
from netspec.data.files import fingerprint, head_of
from netspec.data.readers.datum import Datum, parse_datum
from netspec.data.readers.decode import ImageDecoder, upright_size
from netspec.data.readers.lmdb_values import LmdbValues
from netspec.data.readers.protobuf_wire import NoMessage
from netspec.data.readers.records import file_fingerprint
from netspec.errors import InputError, Problem, kind_of_file, near_path

LOOKED_AT, MAX_PROBLEMS = 1000, 5
"""Number of Datums to search for an intact one if damaged ones are left out, and number to report if none is."""
_LEVELDB = ("CURRENT", "LOG")


class DatumDataset(Dataset):
    """`image` and `label` of each Datum.

    Raw images are (channels, H, W) of uint8 or float32. Encoded images (JPEG, PNG) are decoded to `channels`, in the
    channel `order` "rgb" or "bgr", and resized if `size` is (height, width). Without `size`, all images must have the
    size of the first; with `varied`, sizes may differ.
    """

    def __init__(
        self, path: Path, *, size: tuple[int, int] | Literal["varied"] | None, channels: int, interpolation: str,
        order: str = "rgb", skip: bool = False,
    ) -> None:  # fmt: skip
        self._values = _opened(path)
        self._path = path
        self._reversed = order == "bgr"
        first, shape = self._first(size, channels, skip=skip)
        resized = size if isinstance(size, tuple) else None
        if resized is not None and not first.encoded:
            raise InputError(
                f"the images of {path} are not encoded, and cannot be resized by `size`",
                expected="no `size`; a transform resizes them",
                got=f"numbers, {first.channels} × {first.height} × {first.width}",
            )
        self._decoder = ImageDecoder(channels, resized, interpolation)
        self._dtype = "uint8" if first.floats is None else "float32"
        self._shape = shape
        self.fields = {"image": FieldType(self._shape, self._dtype), "label": FieldType((), "int32")}
        self.digest = fingerprint(file_fingerprint(self._values.data))

    def _first(
        self, size: tuple[int, int] | Literal["varied"] | None, channels: int, *, skip: bool
    ) -> tuple[Datum, tuple[int | None, ...]]:
        """Return the Datum that defines type and shape of all: the first, or with `skip` the first intact one."""
        problems: list[Problem] = []
        for index in range(min(len(self), LOOKED_AT if skip else 1)):
            try:
                datum = self._datum(index, *self._values.values([index]))
                return datum, self._shape_of(datum, index, size, channels)
            except InputError as error:
                problems += error.problems
        raise InputError(problems[:MAX_PROBLEMS])

    def _shape_of(
        self, first: Datum, index: int, size: tuple[int, int] | Literal["varied"] | None, channels: int
    ) -> tuple[int | None, ...]:
        count = channels if first.encoded else first.channels
        if size == "varied":
            return count, None, None
        if size is not None:
            return count, *size
        if first.encoded:
            return count, *upright_size(BytesIO(first.data), self.describe(index))
        return self._raw(first, index).shape

    def __len__(self) -> int:
        return len(self._values)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the Datums at `indices`. Raises `DamagedSamples` with those that are damaged or unlike the first."""
        images: list[Array] = []
        labels = np.zeros(len(indices), np.int32)
        damaged: dict[int, Sequence[Problem]] = {}
        requested = indices.tolist()
        for row, (index, value) in enumerate(zip(requested, self._values.values(requested), strict=True)):
            try:
                datum = self._datum(index, value)
                images.append(self._pixels(datum, index))
                labels[row] = datum.label
            except InputError as error:
                damaged[row] = error.problems
        if damaged:
            raise DamagedSamples(damaged)
        return {"image": images if None in self._shape else np.stack(images), "label": labels}

    def _datum(self, index: int, value: bytearray | None) -> Datum:
        if value is None:
            raise InputError(f"{self._values.data} is damaged", got=f"no value for the key {self._values.key(index)!r}")
        try:
            return parse_datum(value)
        except NoMessage as error:
            raise InputError(
                f"{self.describe(index)} is not a Datum of Caffe",
                expected="channels, height, width, data, label",
                got=str(error),
            ) from None

    def _pixels(self, datum: Datum, index: int) -> Array:
        name = self.describe(index)
        if datum.encoded:
            pixels = self._decoder.read(BytesIO(datum.data), name).transpose(2, 0, 1)
            pixels = pixels[::-1] if self._reversed else pixels
        else:
            pixels = self._raw(datum, index)
        fits = all(expected_size in {None, size} for expected_size, size in zip(self._shape, pixels.shape, strict=True))
        if not fits or pixels.dtype.name != self._dtype:
            hint = "`size: varied` takes images of any sizes" if pixels.dtype.name == self._dtype else None
            raise InputError(
                f"{name} is of a different kind than the first",
                expected=str(self.fields["image"]),
                got=str(FieldType(pixels.shape, pixels.dtype.name)),
                hint=hint,
            )
        return pixels

    def _raw(self, datum: Datum, index: int) -> Array:
        try:
            return datum.pixels()
        except NoMessage as error:
            raise InputError(
                f"{self.describe(index)} is damaged", expected="as many numbers as it says", got=str(error)
            ) from None

    def describe(self, index: int) -> str:
        """Return the name of the LMDB, and the key."""
        return f"{self._path.name}, key {self._values.key(index).decode('utf-8', 'backslashreplace')}"


def _opened(path: Path) -> LmdbValues:
    if not path.exists():
        raise InputError(f"there is no LMDB {path}", hint=near_path(path))
    if path.is_dir():
        names = {entry.name for entry in path.iterdir()}
        if "data.mdb" not in names:
            level = all(name in names for name in _LEVELDB)
            raise InputError(
                f"{path} is a LevelDB, which is not read" if level else f"{path} is not an LMDB",
                expected="an LMDB: a folder with the file data.mdb",
                got=None if level else "a folder without it",
                hint="write it again with Caffe: `convert_imageset -backend lmdb …`" if level else None,
            )
    data = path / "data.mdb" if path.is_dir() else path
    if not (head := head_of(data)):
        raise InputError(f"{data} is not an LMDB", expected="an LMDB of Caffe's Datums", got=kind_of_file(head))
    return LmdbValues(path)

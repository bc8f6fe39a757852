"""Read a mean image from an .npy or .npz file, without unpickling, or from Caffe's .binaryproto."""

from __future__ import annotations

from math import prod
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import numpy as np

from netspec.data.base import Array
from netspec.data.files import existing, read_bytes
from netspec.data.readers.protobuf_wire import NoMessage, fields_of, varint_at
from netspec.errors import InputError
from netspec.files.arrays import read_array
from netspec.files.damage import refuse_damage
from netspec.files.zip_directory import check_number_of_members

_NPY, _ZIP = b"\x93NUMPY", b"PK"
"""First bytes of .npy and .npz files."""


def read_mean(path: Path) -> Array:
    """Return the only array of a file as float32, without a batch axis of 1. Raises `InputError` for other files."""
    with refuse_damage(path, "a mean image: .binaryproto, .npy, or .npz with one array"):
        return _checked(path, _read_blob(path) if path.suffix == ".binaryproto" else _read_numpy(path))


def _read_numpy(path: Path) -> Array:
    with existing(path).open("rb") as file:
        if not file.read(len(_NPY)).startswith((_NPY, _ZIP)):
            raise InputError(
                f"{path} is not a mean image", expected="a .binaryproto or .npy file, or an .npz file with one array",
                got="a file of another kind",
            )  # fmt: skip
        file.seek(0)
        if not is_zipfile(file):
            file.seek(0)
            return read_array(file, path.stat().st_size)
        with ZipFile(file) as archive:
            check_number_of_members(archive)
            members = archive.infolist()
            if len(members) != 1:
                raise InputError(f"{path} is not a mean image", expected="one array", got=f"{len(members)} arrays")
            if not members[0].filename.endswith(".npy"):
                raise InputError(f"{path} is not a mean image", expected="an array in a member that ends in .npy")
            with archive.open(members[0]) as member:
                return read_array(member, members[0].file_size)


def _checked(path: Path, mean_image: Array) -> Array:
    if mean_image.dtype.kind not in "iuf" or not np.isfinite(mean_image).all():
        got = str(mean_image.dtype) if mean_image.dtype.kind not in "iuf" else "values that are not finite"
        raise InputError(f"{path} is not a mean image", expected="finite numbers", got=got)
    mean: Array = mean_image.astype(np.float32)
    return mean[0] if mean.ndim > 1 and mean.shape[0] == 1 and mean.ndim != 3 else mean


def _read_blob(path: Path) -> Array:
    """Return the values of a BlobProto of Caffe, (1, channels, height, width)."""
    try:
        return _parse_blob(memoryview(read_bytes(path)))
    except NoMessage as error:
        raise InputError(
            f"{path} cannot be read as a mean image",
            expected="an intact .binaryproto file, as Caffe's compute_image_mean writes it",
            got=str(error),
        ) from None


def _parse_blob(message: memoryview) -> Array:
    """Parse a BlobProto. Fields: num 1, channels 2, height 3, width 4, data 5, shape 7 (dim 1), double_data 8."""
    old = {1: 0, 2: 0, 3: 0, 4: 0}
    shape: list[int] | None = None
    data: dict[int, list[memoryview]] = {5: [], 8: []}
    for number, value in fields_of(message):
        if isinstance(value, int):
            if number in old:
                old[number] = value
        elif number in data:
            data[number].append(value)
        elif number == 7:
            shape = [size for number, dims in fields_of(value) if number == 1 for size in _sizes(dims)]
    values = np.frombuffer(b"".join(data[8] or data[5]), "<f8" if data[8] else "<f4")
    shape = list(old.values()) if shape is None else shape
    if prod(shape) != values.size or not values.size:
        raise NoMessage(f"{values.size:,} values for {' × '.join(map(str, shape)) or 'no shape'}")
    return values.reshape(shape)


def _sizes(dims: int | memoryview) -> list[int]:
    """Return one size, or the sizes in a packed field."""
    if isinstance(dims, int):
        return [dims]
    sizes, offset = [], 0
    while offset < len(dims):
        size, offset = varint_at(dims, offset)
        sizes.append(size)
    return sizes

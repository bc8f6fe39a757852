"""idx files, the format of MNIST: a magic number, the sizes of the axes, the elements; all big-endian.

The format is described at the end of http://yann.lecun.com/exdb/mnist/. Gzipped files are recognized by their content
and read in full; from other files, images are read by offset.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from math import prod
from pathlib import Path

import numpy as np

from netspec.data.base import Array, Dataset
from netspec.data.files import existing, explain_read_errors, fingerprint, read_bytes
from netspec.data.readers.records import Records, file_fingerprint
from netspec.data.readers.row_arrays import ColumnDataset, InMemory, Recast, RowArray
from netspec.errors import InputError, Problem, kind_of_file

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_AXES = 8
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_MOST = 1100
"""More than the largest compression ratio of deflate (1032): a header that claims more is wrong."""


def read_idx(path: Path) -> tuple[Array, str]:
    """Read an idx file: the array, in native byte order, and a fingerprint. Raises `InputError` if it is damaged."""
    raw = read_bytes(path)
    content = _unpacked(path, raw) if raw[:2] == _GZIP_MAGIC else raw
    return _parse(path, content), fingerprint(raw)


def _unpacked(path: Path, raw: bytes) -> bytes:
    """Return the content of a gzipped idx file, at most one byte more than its header announces."""
    try:
        with gzip.GzipFile(fileobj=BytesIO(raw)) as file:
            head = file.read(4 + 4 * _MAX_AXES)
            announced = min(_size(path, head), len(raw) * _GZIP_MOST)
            return head + file.read(max(0, announced - len(head)) + 1)
    except (EOFError, zlib.error, OSError) as error:
        raise InputError(
            f"{path} is damaged", expected="a complete gzip file", got=str(error), hint="download the file again"
        ) from None


def _header(path: Path, content: bytes) -> tuple[str, tuple[int, ...]]:
    """Return the element type and the sizes of the axes."""
    axes = content[3] if len(content) >= 4 else 0
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _DTYPES or not 1 <= axes <= _MAX_AXES:
        raise InputError(
            f"{path} is not an idx file",
            expected=f"two zero bytes, a type code (8, 9, 11 to 14) and a number of axes (1 to {_MAX_AXES})",
            got=kind_of_file(content[:64]),
        )
    if len(content) < 4 + 4 * axes:
        raise InputError(
            f"{path} is cut short", expected=f"a header of {4 + 4 * axes} bytes", got=f"{len(content)} bytes"
        )
    return _DTYPES[content[2]], tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))


def _size(path: Path, content: bytes) -> int:
    """Return the size of the file in bytes, according to its header."""
    dtype, shape = _header(path, content)
    return 4 + 4 * len(shape) + prod(shape) * np.dtype(dtype).itemsize


def _parse(path: Path, content: bytes) -> Array:
    dtype, shape = _header(path, content)
    _check_size(path, shape, _size(path, content), len(content))
    array = np.frombuffer(content, dtype, offset=4 + 4 * len(shape)).reshape(shape)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_size(path: Path, shape: Sequence[int], size: int, actual: int) -> None:
    if actual != size:
        short = actual < size
        raise InputError(
            f"{path} is cut short" if short else f"{path} is longer than its header says",
            expected=f"{size:,} bytes for {' × '.join(map(str, shape))} elements",
            got=f"{actual:,} bytes{'' if short else ' or more'}",
            hint="download the file again",
        )


def open_idx(path: Path) -> tuple[RowArray, str]:
    """Open an idx file as rows along its first axis, with a fingerprint. Raises `InputError` for a damaged file."""
    with explain_read_errors(path), existing(path).open("rb") as file:
        head = file.read(4 + 4 * _MAX_AXES)
        size = os.fstat(file.fileno()).st_size
    if head[:2] == _GZIP_MAGIC:
        array, digest = read_idx(path)
        return InMemory(array), digest
    dtype, shape = _header(path, head)
    _check_size(path, shape, _size(path, head), size)
    offset = 4 + 4 * len(shape)
    return Records(path, offset=offset, dtype=np.dtype(dtype), shape=shape[1:], count=shape[0]), file_fingerprint(path)


def labeled_images(
    images_path: Path,
    labels_path: Path,
    classes: Mapping[str, tuple[str, ...]] | None = None,
    *,
    fields: tuple[str, str] = ("", ""),
) -> Dataset:
    """Open images and their labels as fields `image` (C, H, W) and `label` () of int32.

    Images with two axes get one channel. All problems of the two files are reported at once; `fields` are the fields of
    the spec that name the files.
    """
    problems: list[Problem] = []
    opened: list[tuple[RowArray, str]] = []
    for path, field in zip((images_path, labels_path), fields, strict=True):
        try:
            opened.append(open_idx(path))
        except InputError as error:
            problems += [problem.at(None, field) for problem in error.problems]
    if problems:
        raise InputError(problems)
    (images, images_digest), (labels, labels_digest) = opened
    if labels.shape or labels.dtype.kind not in "ui":
        axes = (len(labels), *labels.shape)
        raise InputError(
            f"{labels_path} holds no labels",
            expected="integers on one axis",
            got=f"{labels.dtype.name} on axes of {' × '.join(map(str, axes))}",
            hint="are `images` and `labels` swapped?" if labels.shape and not images.shape else None,
        )
    if len(images) != len(labels):
        raise InputError(
            f"{images_path.name} and {labels_path.name} do not belong together",
            expected="as many images as labels",
            got=f"{len(images):,} images and {len(labels):,} labels",
        )
    numbers = InMemory(labels.read(np.arange(len(labels))).astype(np.int32))
    return Recast(
        ColumnDataset(
            {"image": images, "label": numbers},
            digest=fingerprint(images_digest, labels_digest),
            describe=lambda index: f"{images_path.name}, image {index} (its label: {labels_path.name})",
            classes=classes,
        ),
        {},
        {"image": (1, *images.shape)} if len(images.shape) == 2 else {},
    )

"""`.npy` files: one array each, whose rows are read by offset (NEP 1 describes the format)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Dataset
from netspec.data.files import existing, fingerprint, read_bytes
from netspec.data.readers.concatenation import concatenate
from netspec.data.readers.records import Records, file_fingerprint
from netspec.data.readers.row_arrays import ColumnDataset, InMemory, RowArray, array_problem, length_problems
from netspec.errors import InputError, Problem, kind_of_file
from netspec.files.arrays import read_header
from netspec.files.damage import refuse_damage

if TYPE_CHECKING:
    from typing import BinaryIO

_MAGIC = b"\x93NUMPY"


def open_npy(files: Mapping[str, Sequence[Path]]) -> Dataset:
    """Open the arrays of the files as fields; the files of one field are read one after the other.

    The first axis is the sample axis. The files of all fields must match: the same number of files, with the same
    numbers of samples. Raises `InputError` with all problems.
    """
    problems: list[Problem] = []
    columns: dict[Path, RowArray] = {}
    for name, paths in files.items():
        for number, path in enumerate(paths):
            try:
                with refuse_damage(path):
                    columns[path] = _column(name, path)
            except InputError as error:
                field = f"files.{name}" if len(paths) == 1 else f"files.{name}.{number}"
                problems += [problem.at(None, field) for problem in error.problems]
    counts = {name: len(paths) for name, paths in files.items()}
    if len(set(counts.values())) > 1:
        got = ", ".join(f"`{name}` has {count}" for name, count in counts.items())
        problems.append(
            Problem("the fields differ in their number of files", expected="the same number for each", got=got)
        )
    if problems:
        raise InputError(problems)
    parts: list[Dataset] = []
    names: list[str] = []
    for together in zip(*files.values(), strict=True):
        fields = {name: columns[path] for name, path in zip(files, together, strict=True)}
        file_names = " and ".join(dict.fromkeys(path.name for path in together))
        problems += length_problems(file_names, {name: len(column) for name, column in fields.items()})
        digest = fingerprint(*(file_fingerprint(path) for path in together))
        parts.append(ColumnDataset(fields, digest=digest, describe=_Place(file_names)))
        names.append(file_names)
    if problems:
        raise InputError(problems)
    return concatenate(parts, names)


class _Place:
    """Return the origin of a sample for messages."""

    def __init__(self, files: str) -> None:
        self._files = files

    def __call__(self, index: int) -> str:
        return f"{self._files}, sample {index}"


def _column(name: str, path: Path) -> RowArray:
    with existing(path).open("rb") as file:
        shape, fortran, dtype, offset = _header(path, file)
    problem = array_problem(name, str(path), dtype, shape)
    if problem is not None:
        raise InputError(problem)
    expected, size = offset + prod(shape) * dtype.itemsize, path.stat().st_size
    if size != expected:
        raise InputError(
            f"{path} is {'cut short' if size < expected else 'longer than its header says'}",
            expected=f"{expected:,} bytes for {dtype} of shape {list(shape)}",
            got=f"{size:,} bytes",
        )
    if fortran and len(shape) > 1:  # the elements of a sample are scattered over the file
        raw = read_bytes(path)
        return InMemory(np.frombuffer(raw, dtype, offset=offset).reshape(shape, order="F"))
    return Records(path, offset=offset, dtype=dtype, shape=shape[1:], count=shape[0])


def _header(path: Path, file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[np.generic], int]:
    """Return the shape, whether it is in Fortran order, the element type, and the offset of the elements."""
    head = file.read(64)
    if not head.startswith(_MAGIC):
        raise InputError(
            f"{path} is not an .npy file",
            expected="an array as `numpy.save` writes it",
            got="a zip archive, which is what .npz files are" if head.startswith(b"PK") else kind_of_file(head),
            hint="`source: npz` reads it" if head.startswith(b"PK") else None,
        )
    file.seek(0)
    with refuse_damage(path, "an intact header"):  # NumPy parses it as Python, which may raise anything
        shape, fortran, dtype = read_header(file)
    if any(size < 0 for size in shape):
        raise InputError(f"{path} is damaged", expected="an intact header", got=f"the shape {list(shape)}")
    return shape, fortran, dtype, file.tell()

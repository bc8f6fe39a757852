"""`.npz` files: a zip of NumPy arrays, read without ever unpickling."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from netspec.data.base import Array, Dataset, FieldType
from netspec.data.files import existing, fingerprint, head_of, read_bytes
from netspec.data.readers.arrays import ArrayDataset
from netspec.data.readers.concatenation import open_each
from netspec.data.readers.row_arrays import array_names, array_problem, length_problems
from netspec.errors import InputError, Problem, kind_of_file
from netspec.files.arrays import read_array, read_header
from netspec.files.damage import MAX_DEFLATE_RATIO, refuse_damage
from netspec.files.zip_directory import check_number_of_members

WRITE = "write the file with `numpy.savez(path, image=…, label=…)`"
_REMEDIES = {"a zip": "copy the complete file again", "an HDF5 file": "read an HDF5 file by `source: hdf5`"}
"""Hints by the kind of file that was found instead."""
_PICKLED = ("/data.pkl", "/constants.pkl")


def open_npz_files(paths: Sequence[Path], names: Sequence[str] | None) -> Dataset:
    """Open the arrays of all files, one file after the other. Raises `InputError` with the problems of all files."""
    return open_each(paths, lambda path: open_npz(path, names))


def open_npz(path: Path, names: Sequence[str] | None = None) -> ArrayDataset:
    """Open the arrays of the file, or those named; their first axis is the sample axis.

    Raises `InputError` with all problems.
    """
    _check_zip(path)
    arrays, problems = _arrays(path, names)
    if not arrays and not problems:
        problems.append(Problem(f"{path} holds no arrays", hint=WRITE))
    problems += length_problems(str(path), {name: len(array) for name, array in arrays.items()})
    if problems:
        raise InputError(problems)
    return ArrayDataset(
        arrays, digest=fingerprint(read_bytes(path)), describe=lambda index: f"{path.name}, sample {index}"
    )


def _check_zip(path: Path) -> None:
    """Raise `InputError` if a file does not exist, or is not a zip."""
    if zipfile.is_zipfile(existing(path)):
        return
    head = head_of(path)
    kind = "a single array (.npy)" if head.startswith(b"\x93NUMPY") else kind_of_file(head)
    raise InputError(
        f"{path} is not an .npz file",
        expected="a zip of NumPy arrays",
        got=f"{kind} whose end is missing" if kind == "a zip" else kind,
        hint=_REMEDIES.get(kind, WRITE),
    )


def npz_fields(path: Path, names: Sequence[str] | None) -> dict[str, FieldType]:
    """Return the fields of a file, from the headers of all its arrays or of the named ones.

    Raises `InputError` if the file is not a zip, or has no array of a name.
    """
    _check_zip(path)
    with refuse_damage(path, "a zip of NumPy arrays"), zipfile.ZipFile(path) as archive:
        check_number_of_members(archive)
        stored = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        fields = {}
        for name in array_names(str(path), stored, names):
            with archive.open(f"{name}.npy") as member:
                shape, _, dtype = read_header(member)
                fields[name] = FieldType(shape[1:], dtype.newbyteorder("=").name)
    return fields


def _arrays(path: Path, names: Sequence[str] | None) -> tuple[dict[str, Array], list[Problem]]:
    arrays: dict[str, Array] = {}
    problems: list[Problem] = []
    with (
        refuse_damage(path, "a zip of NumPy arrays"),
        path.open("rb") as file,  # given a path, `np.load` leaves a file open that it cannot parse
        np.load(file, allow_pickle=False) as archive,
    ):
        check_number_of_members(archive.zip)
        if any(f"/{name}".endswith(_PICKLED) for name in archive.files):
            raise InputError(
                f"{path} is a PyTorch file (.pt, .pth): a pickle, which runs code when it is read",
                expected="a zip of NumPy arrays",
                hint="write the tensors with `numpy.savez(path, image=images.numpy(), label=labels.numpy())`",
            )
        for name in array_names(str(path), archive.files, names):
            try:
                arrays[name] = _array(path, name, archive)
            except InputError as error:
                problems += error.problems
    return arrays, problems


def _array(path: Path, name: str, archive: Any) -> Array:
    """Return an array of an open file, in native byte order. Raises `InputError`."""
    with refuse_damage(f"array `{name}` of {path}", "an intact NumPy array"):
        problem = _unreadable(path, name, archive.zip)
        if problem is None:
            array = _read(name, archive)
            problem = _unusable(path, name, array)
        if problem is not None:
            raise InputError(problem)
        native: Array = array.astype(array.dtype.newbyteorder("="), copy=False)
        return native


def _member(name: str, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = archive.NameToInfo
    return members.get(f"{name}.npy") or members[name]


def _read(name: str, archive: Any) -> Any:
    """Return the array of a member, or the bytes of one that is not an array."""
    info = _member(name, archive.zip)
    if not info.filename.endswith(".npy"):
        return archive[name]
    with archive.zip.open(info) as member:
        return read_array(member, info.file_size)


def _unreadable(path: Path, name: str, archive: zipfile.ZipFile) -> Problem | None:
    """Return a problem if an array holds Python objects, or claims more bytes than the stored ones can expand to."""
    info = _member(name, archive)
    stored = min(info.compress_size * MAX_DEFLATE_RATIO + 1024, info.file_size)
    if not info.filename.endswith(".npy"):
        return None
    with archive.open(info) as member:
        shape, _, dtype = read_header(member)
        claimed = member.tell() + prod(shape) * dtype.itemsize
    if dtype.hasobject:
        return array_problem(name, str(path), dtype, shape)
    if claimed <= stored and info.file_size <= stored:
        return None
    return Problem(
        f"array `{name}` of {path} claims more bytes than are stored",
        expected=f"at most {stored:,} bytes",
        got=f"{dtype} of shape {list(shape)}: {max(claimed, info.file_size):,} bytes",
        hint="the file is damaged, or was crafted to exhaust the memory",
    )


def _unusable(path: Path, name: str, array: object) -> Problem | None:
    if not isinstance(array, np.ndarray):
        return Problem(
            f"`{name}` of {path} is not an array", expected="a member whose name ends in .npy", got="other bytes"
        )
    return array_problem(name, str(path), array.dtype, array.shape)

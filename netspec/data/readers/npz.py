"""`.npz` files: a zip of NumPy arrays, read without ever unpickling."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Dataset
from netspec.data.files import existing, fingerprint, read_bytes
from netspec.data.readers.arrays import ArrayDataset
from netspec.data.readers.columns import chosen, unequal, unusable
from netspec.data.readers.joined import joined
from netspec.errors import InputError, Problem, kind_of_file

if TYPE_CHECKING:
    from netspec.data.base import Array

_DAMAGED = (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile, MemoryError, OverflowError)
_UNREADABLE = (*_DAMAGED, NotImplementedError, RuntimeError, KeyError, TypeError, SyntaxError)
"""What `numpy` and `zipfile` raise on files that are damaged, encrypted, or packed in a way that they do not know."""

MOST_DEFLATED = 1100
"""More than deflate can ever shrink data by (1032)."""

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def open_npz_files(paths: Sequence[Path], wanted: Sequence[str] | None = None) -> Dataset:
    """The arrays of all files, one file behind the other. Raises InputError with all that is wrong with any."""
    parts: list[Dataset] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            parts.append(open_npz(path, wanted))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return joined(parts, [str(path) for path in paths])


def open_npz(path: Path, wanted: Sequence[str] | None = None) -> ArrayDataset:
    """The arrays of the file, or those `wanted`; their first axis counts the samples.

    Raises InputError with all that is wrong.
    """
    existing(path)
    if not zipfile.is_zipfile(path):
        head = read_bytes(path)[:64]
        kind = "a single array (.npy)" if head.startswith(b"\x93NUMPY") else kind_of_file(head)
        raise InputError(
            f"{path} is not an .npz file",
            expected="a zip of NumPy arrays",
            got=f"{kind} whose end is missing" if kind == "a zip" else kind,
            hint="copy the file again, whole"
            if kind == "a zip"
            else "write the file with `numpy.savez(path, image=…, label=…)`",
        )
    arrays, problems = _arrays(path, wanted)
    if not arrays and not problems:
        problems.append(
            Problem(f"{path} holds no arrays", hint="write the file with `numpy.savez(path, image=…, label=…)`")
        )
    problems += unequal(str(path), {name: len(array) for name, array in arrays.items()})
    if problems:
        raise InputError(problems)
    return ArrayDataset(
        arrays, digest=fingerprint(read_bytes(path)), describe=lambda index: f"{path.name}, sample {index}"
    )


def _arrays(path: Path, wanted: Sequence[str] | None) -> tuple[dict[str, Array], list[Problem]]:
    arrays: dict[str, Array] = {}
    problems = []
    try:
        # Opened here, since `np.load` leaves a file open that it cannot make sense of.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for name in chosen(str(path), archive.files, wanted):
                try:
                    inflated = _inflated(path, name, archive.zip)
                    if inflated is not None:
                        problems.append(inflated)
                        continue
                    array = archive[name]
                except _UNREADABLE as error:
                    problems.append(_unread(path, name, error))
                    continue
                problem = _unusable(path, name, array)
                if problem:
                    problems.append(problem)
                else:
                    arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    except _UNREADABLE as error:
        problems.append(Problem(f"{path} is damaged", expected="a zip of NumPy arrays", got=str(error)))
    return arrays, problems


def _inflated(path: Path, name: str, archive: zipfile.ZipFile) -> Problem | None:
    """A problem if an array claims to be larger than what is stored of it can be: nothing is allocated for it."""
    known = archive.NameToInfo
    info = known.get(f"{name}.npy") or known[name]
    stored = min(info.compress_size * MOST_DEFLATED + 1024, info.file_size)
    if not info.filename.endswith(".npy"):
        return None
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in _HEADERS:  # of no array of numbers: `numpy.load` says what it is
            return None
        shape, _, dtype = _HEADERS[version](member)
        claimed = member.tell() + prod(shape) * dtype.itemsize
    if dtype.hasobject or (claimed <= stored and info.file_size <= stored):
        return None
    return Problem(
        f"array `{name}` of {path} claims to be larger than what is stored of it",
        expected=f"at most {stored:,} bytes",
        got=f"{dtype} of shape {list(shape)}: {max(claimed, info.file_size):,} bytes",
        hint="the file is damaged, or was made to fill the memory",
    )


def _unread(path: Path, name: str, error: Exception) -> Problem:
    if "allow_pickle" in str(error):
        return Problem(
            f"array `{name}` of {path} holds Python objects, which are never loaded",
            expected="numbers",
            got="pickled objects",
            hint="write the array with a numeric dtype",
        )
    return Problem(f"array `{name}` of {path} cannot be read", expected="an intact NumPy array", got=str(error))


def _unusable(path: Path, name: str, array: object) -> Problem | None:
    if not isinstance(array, np.ndarray):
        return Problem(
            f"`{name}` of {path} is not an array", expected="a member whose name ends in .npy", got="other bytes"
        )
    return unusable(name, str(path), array.dtype, array.shape)

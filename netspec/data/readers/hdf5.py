"""HDF5 files of arrays, such as those for Caffe's `HDF5Data`.

Contiguous arrays are read by offset; chunked ones, which may be compressed, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset
from netspec.data.files import Watched, existing, fingerprint, head_of
from netspec.data.readers.concatenation import open_each
from netspec.data.readers.records import Records, file_fingerprint
from netspec.data.readers.row_arrays import ColumnDataset, RowArray, array_names, array_problem, length_problems
from netspec.errors import InputError, Problem, kind_of_file, listing
from netspec.files.damage import MAX_DEFLATE_RATIO, reason
from netspec.files.hdf5 import Entry, Hdf5File, StoredArray, has_signature

MAX_UNSTORED = 2**20
"""Largest size in bytes of a sample whose chunks are not stored in the file: such chunks stand for zeros."""


def open_hdf5(paths: Sequence[Path], arrays: Sequence[str] | None) -> Dataset:
    """Open the arrays of the files as fields, one file after the other; by default all that are not in groups.

    The first axis is the sample axis. Raises `InputError` with all problems.
    """
    return open_each(paths, lambda path: _open(path, arrays))


def _open(path: Path, arrays: Sequence[str] | None) -> Dataset:
    if not has_signature(existing(path)):
        got = kind_of_file(head_of(path))
        hint = "read an .npz file by `source: npz`" if got == "a zip" else None
        raise InputError(f"{path} is not an HDF5 file", expected="arrays in HDF5", got=got, hint=hint)
    columns, others = _columns(Hdf5File(str(path), path, "an intact HDF5 file"), path, arrays)
    problems = length_problems(str(path), {name: len(column) for name, column in columns.items()})
    if problems:
        raise InputError(problems)
    digest = fingerprint(file_fingerprint(path), *map(file_fingerprint, others), *columns)
    dataset = ColumnDataset(columns, digest=digest, describe=lambda index: f"{path.name}, sample {index}")
    dataset.block = max((column.rows for column in columns.values() if isinstance(column, _Chunked)), default=1)
    return dataset


def _columns(file: Hdf5File, path: Path, fields: Sequence[str] | None) -> tuple[dict[str, RowArray], list[Path]]:
    """Return the arrays by name, and the other files that virtual datasets refer to."""
    watched = Watched([path])
    entries = {entry.path: entry for entry in file.walk()}
    for name in [*(name for name, entry in entries.items() if entry.kind == "link"), *(fields or ())]:
        target = file.find(name)  # in a group, or the target of a link within the file
        entries |= {} if target is None else {name: target}
    arrays = {name: entry for name, entry in entries.items() if entry.kind == "dataset"}
    top = [name for name in arrays if "/" not in name]
    if fields is None and not top:
        groups = [name for name, entry in entries.items() if entry.kind == "group"]
        hint = f"list those to read, such as `arrays: [{groups[0]}/…]`" if groups else None
        raise InputError(f"{path} holds no arrays at its top", hint=hint)
    columns: dict[str, RowArray] = {}
    problems: list[Problem] = []
    sources: set[Path] = set()
    for name in array_names(str(path), [*top, *(name for name in arrays if name not in top)], fields):
        try:
            array = _checked_array(name, path, arrays[name])
        except InputError as error:
            hint = "list those to read in `arrays`" if fields is None else None
            problems += [replace(problem, hint=hint or problem.hint) for problem in error.problems]
            continue
        others = [_resolve_sibling(path, other) for other in array.sources if other != "." and "%b" not in other]
        sources.update(others)
        if lost := [other for other in others if not has_signature(other)]:
            message = f"array `{name}` of {path} is stored in other files, some of which are missing"
            problems.append(
                Problem(message, expected="HDF5 files", got=f"no {listing([str(path_lost) for path_lost in lost], 3)}")
            )
        elif array.offset is not None:
            shape = array.shape or ()
            columns[name] = Records(
                path, offset=array.offset, dtype=np.dtype(array.dtype), shape=shape[1:], count=shape[0]
            )
        else:
            columns[name] = _Chunked(file, array, path, Watched([path, *others]) if others else watched)
    if problems:
        raise InputError(problems)
    return columns, sorted(sources)


def _checked_array(name: str, path: Path, entry: Entry) -> StoredArray:
    """Return how an array is stored. Raises InputError if it is damaged, not numeric, or uses an unknown filter."""
    array = entry.array
    if array is None:
        raise InputError(f"array `{name}` of {path} is damaged", expected="numbers", got=entry.fault)
    problem = array_problem(name, str(path), np.dtype(array.dtype), array.shape or ())
    if problem is None:
        problem = _size_problem(name, path, array)
    if problem is None and array.unknown_filters:
        code, called = array.unknown_filters[0]
        problem = Problem(
            f"array `{name}` of {path} is compressed by a filter that this HDF5 library does not have",
            expected="gzip, lzf, or no compression",
            got=f"filter {code} ({called or 'without a name'})",
            hint="rewrite the array: `h5repack -f GZIP=4 IN OUT`",
        )
    if problem is not None:
        raise InputError(problem)
    return array


def _size_problem(name: str, path: Path, array: StoredArray) -> Problem | None:
    """Report an array, or a sample of a compressed array, that claims more bytes than the stored ones can expand to."""
    contiguous = array.layout == "contiguous"
    size = array.nbytes if contiguous else array.nbytes // max(1, (array.shape or (1,))[0])
    most = array.stored if contiguous else array.stored * MAX_DEFLATE_RATIO + MAX_UNSTORED
    if array.layout == "virtual" or array.external or (contiguous and not array.stored) or size <= most:
        return None
    return Problem(
        f"array `{name}` of {path} claims more bytes than are stored",
        expected=f"at most {most:,} bytes{'' if contiguous else ' in a sample'}",
        got=f"{array.type} of shape {list(array.shape or ())}: {size:,} bytes",
        hint="the file is damaged, or was crafted to exhaust the memory",
    )


class _Chunked:
    """A column that is stored in chunks, which may be compressed."""

    def __init__(self, file: Hdf5File, array: StoredArray, path: Path, watched: Watched) -> None:
        self._file, self._array = file, array
        self._path = path
        self._watched = watched
        shape = array.shape or ()
        self._count = shape[0]
        self.rows = max(1, min(array.rows, shape[0]))
        self.shape: tuple[int, ...] = shape[1:]
        self.dtype = np.dtype(array.dtype).newbyteorder("=")

    def __len__(self) -> int:
        return self._count

    def read(self, rows: Array) -> Array:
        """Return the arrays at `rows`. Each chunk is read once, from the first to the last requested row."""
        out = np.empty((len(rows), *self.shape), self.dtype)
        chunks = rows // self.rows
        damaged: dict[int, Sequence[Problem]] = {}
        self._watched.check()
        for chunk in np.unique(chunks):
            positions = np.flatnonzero(chunks == chunk)
            try:
                out[positions] = self._file.values(self._array, rows[positions].tolist())
            except InputError as error:
                self._watched.check()
                for row in positions.tolist():
                    where = f"sample {rows[row]} of array `{self._array.path}` of {self._path}"
                    got = error.problems[0].got
                    damaged[row] = [Problem(f"{where} cannot be read", expected="intact chunks", got=got)]
        if damaged:
            raise DamagedSamples(damaged)
        return out


def listed_files(path: Path) -> list[Path]:
    """Return the files in a list with one path per line, as for Caffe's `HDF5Data`.

    A relative path is searched for in the folder of the list, then, as in Caffe, in the current folder.
    """
    try:
        lines = existing(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}", expected="a text file with a name a line", got=reason(error)) from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise InputError(f"{path} names no file", expected="the name of an HDF5 file in each line")
    return [_resolve_sibling(path, name) for name in names]


def _resolve_sibling(path: Path, name: str) -> Path:
    """Return the file `name` in the folder of `path`; if there is none, the one in the current folder."""
    sibling = path.parent / name
    return sibling if sibling.is_file() or not Path(name).is_file() else Path(name).absolute()

"""HDF5 files of arrays, Caffe's `HDF5Data` among them.

An array that lies in one piece is read by place, one in chunks (which may be compressed) by the chunk.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from netspec.data.base import DamagedSamples, Dataset
from netspec.data.files import Watched, existing, fingerprint
from netspec.data.readers.columns import Column, ColumnDataset, chosen, unequal, unusable
from netspec.data.readers.joined import joined
from netspec.data.readers.records import Records, file_fingerprint
from netspec.errors import InputError, Problem, kind_of_file, listing

if TYPE_CHECKING:
    from netspec.data.base import Array

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
CACHE = 2**26
"""Bytes of unpacked chunks that are kept for each array of a file, so that neighbours are not unpacked anew."""


def open_hdf5(paths: Sequence[Path], arrays: Sequence[str] | None) -> Dataset:
    """The arrays of the files as fields, one file behind the other; by default all at the top of the first file.

    The first axis counts the samples. Raises InputError with all that is wrong.
    """
    parts: list[Dataset] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            parts.append(_open(path, arrays))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return joined(parts, [str(path) for path in paths])


def _open(path: Path, wanted: Sequence[str] | None) -> Dataset:
    _check_kind(path)
    try:
        file: Any = h5py.File(path, "r", rdcc_nbytes=CACHE, locking="best-effort")
    except OSError as error:
        raise InputError(f"{path} is damaged", expected="an intact HDF5 file", got=_said(error)) from None
    try:
        columns = _columns(file, path, wanted)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged", expected="an intact HDF5 file", got=_said(error)) from None
    problems = unequal(str(path), {name: len(column) for name, column in columns.items()})
    if problems:
        raise InputError(problems)
    others = sorted({other for name in columns for other in _sources(file[name], path)})
    digest = fingerprint(file_fingerprint(path), *map(file_fingerprint, others), *columns)
    dataset = ColumnDataset(columns, digest=digest, describe=lambda index: f"{path.name}, sample {index}")
    dataset.block = max((one.rows for one in columns.values() if isinstance(one, _Chunked)), default=1)
    return dataset


def _check_kind(path: Path) -> None:
    try:
        with existing(path).open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise InputError(f"cannot read {path}", got=error.strerror or str(error)) from None
    if not head.startswith(_SIGNATURE) and not h5py.is_hdf5(path):  # other bytes may stand before the signature
        raise InputError(f"{path} is not an HDF5 file", expected="arrays in HDF5", got=kind_of_file(head))


def _columns(file: Any, path: Path, wanted: Sequence[str] | None) -> dict[str, Column]:
    watched = Watched([path])
    top = [name for name in file if isinstance(file.get(name), h5py.Dataset)]
    if wanted is None and not top:
        groups = [name for name in file if isinstance(file.get(name), h5py.Group)]
        hint = f"name those to take, as `arrays: [{groups[0]}/…]`" if groups else None
        raise InputError(f"{path} holds no arrays at its top", hint=hint)
    below = [name for name in wanted or () if name not in top and isinstance(file.get(name), h5py.Dataset)]
    found: dict[str, Column] = {}
    problems: list[Problem] = []
    for name in chosen(str(path), [*top, *below], wanted):
        array = file[name]
        dtype, shape = array.dtype, tuple(array.shape or ())
        problem = unusable(name, str(path), dtype, shape) or _packed_unknown(name, path, array)
        if problem is not None:
            if wanted is None:
                problem = Problem(
                    problem.message, expected=problem.expected, got=problem.got, hint="name those to take in `arrays`"
                )
            problems.append(problem)
            continue
        others = _sources(array, path)
        if lost := [other for other in others if not h5py.is_hdf5(other)]:
            message = f"array `{name}` of {path} lies in other files, which are not all there"
            problems.append(Problem(message, expected="HDF5 files", got=f"no {listing([str(one) for one in lost], 3)}"))
            continue
        offset = array.id.get_offset()  # None where it is in chunks, in another file, or not written yet
        if offset is not None and not file.userblock_size:
            found[name] = Records(path, offset=offset, dtype=dtype, shape=shape[1:], count=shape[0])
        else:
            found[name] = _Chunked(array, path, name, Watched([path, *others]) if others else watched)
    if problems:
        raise InputError(problems)
    return found


def _sources(array: Any, path: Path) -> list[Path]:
    """The files that a virtual array is made of: where one is not there, HDF5 gives zeros in its place."""
    names = {one.file_name for one in array.virtual_sources()} if array.is_virtual else set()
    return sorted(_beside(path, name) for name in names - {"."} if "%b" not in name)  # %b: one file for each block


def _packed_unknown(name: str, path: Path, array: Any) -> Problem | None:
    """A problem where an array is packed by a filter that is not installed."""
    plan = array.id.get_create_plist()
    for number in range(plan.get_nfilters()):
        code, _, _, called = plan.get_filter(number)
        if not h5py.h5z.filter_avail(code):
            return Problem(
                f"array `{name}` of {path} is packed in a way that this HDF5 library does not know",
                expected="gzip, lzf, or no compression",
                got=f"filter {code} ({called.decode(errors='replace') or 'without a name'})",
                hint="write the array anew: `h5repack -f GZIP=4 IN OUT`",
            )
    return None


class _Chunked:
    """A column that lies in chunks, which may be compressed."""

    def __init__(self, array: Any, path: Path, name: str, watched: Watched) -> None:
        self._array = array
        self._path = path
        self._name = name
        self._watched = watched
        self._lock = threading.Lock()
        self.rows = min(array.chunks[0], array.shape[0]) if array.chunks else 1
        self.shape: tuple[int, ...] = array.shape[1:]
        self.dtype = array.dtype.newbyteorder("=")

    def __len__(self) -> int:
        return int(self._array.shape[0])

    def read(self, rows: Array) -> Array:
        """The arrays at `rows`; each chunk is read once, from the first to the last row that is wanted of it."""
        out = np.empty((len(rows), *self.shape), self.dtype)
        chunks = rows // self.rows
        damaged: dict[int, Sequence[Problem]] = {}
        self._watched.check()
        for chunk in np.unique(chunks):
            places = np.flatnonzero(chunks == chunk)
            first, last = int(rows[places].min()), int(rows[places].max())
            try:
                with self._lock:  # one thread at a time unpacks: the others find the chunk in the cache
                    out[places] = self._array[first : last + 1][rows[places] - first]
            except (OSError, RuntimeError) as error:
                self._watched.check()
                for row in places.tolist():
                    where = f"sample {rows[row]} of array `{self._name}` of {self._path}"
                    damaged[row] = [Problem(f"{where} cannot be read", expected="intact chunks", got=_said(error))]
        if damaged:
            raise DamagedSamples(damaged)
        return out


def listed_files(path: Path) -> list[Path]:
    """The files named in a text file, one a line, as Caffe's `HDF5Data` has them.

    A relative name is looked for beside the list, then from the current folder, which is where Caffe looks.
    """
    try:
        lines = existing(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}", expected="a text file with a name a line", got=_said(error)) from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise InputError(f"{path} names no file", expected="the name of an HDF5 file in each line")
    return [_beside(path, name) for name in names]


def _beside(path: Path, name: str) -> Path:
    """The file of that name in the folder that `path` is in; or, where there is none, from the current folder."""
    here = path.parent / name
    return here if here.is_file() or not Path(name).is_file() else Path(name).absolute()


def _said(error: Exception) -> str:
    """What a library says of an error, in one line."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__

"""Concatenation of datasets, such as the files of a dataset that comes in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, Samples
from netspec.data.files import fingerprint
from netspec.errors import InputError, Problem, listing, near_path
from netspec.files.damage import refuse_damage


def concatenate(parts: Sequence[Dataset], names: Sequence[str]) -> Dataset:
    """Concatenate the samples of all parts. Raises InputError if their fields or classes differ.

    `names` identify the parts in messages.
    """
    first = parts[0]
    problems = []
    for part, name in zip(parts[1:], names[1:], strict=True):
        for attribute in ("fields", "classes"):
            expected, got = dict(getattr(first, attribute)), dict(getattr(part, attribute))
            if expected != got:
                text = f"those of {names[0]}: {_described(expected)}"
                problems.append(Problem(f"{name} has different {attribute}", expected=text, got=_described(got)))
    if problems:
        raise InputError(problems)
    return first if len(parts) == 1 else _Concatenated(parts)


def open_each(paths: Sequence[Path], open_one: Callable[[Path], Dataset]) -> Dataset:
    """Concatenate the samples of all files. Raises one InputError with the problems of all files."""
    parts: list[Dataset] = []
    problems: list[Problem] = []
    missing = [path for path in paths if not path.exists()]
    if len(missing) > 1:
        message = f"there are no files {listing([str(path) for path in missing])}"
        problems.append(Problem(message, hint=near_path(missing[0], folders=False)))
        paths = [path for path in paths if path not in missing]
    for path in paths:
        try:
            with refuse_damage(path):
                parts.append(open_one(path))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return concatenate(parts, [str(path) for path in paths])


def _described(kinds: Mapping[str, object]) -> str:
    return listing([f"`{name}`: {kind}" for name, kind in kinds.items()]) or "none"


class _Concatenated(Dataset):
    def __init__(self, parts: Sequence[Dataset]) -> None:
        self._parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])
        self.fields = parts[0].fields
        self.classes = parts[0].classes
        self.block = max(part.block for part in parts)
        self.digest = fingerprint(*(part.digest for part in parts))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the samples at `indices`, from any parts."""
        return self._collected(indices, lambda part, rows: part.read(rows))

    def read_field(self, name: str, indices: Array) -> Samples:
        """Return one field of the samples at `indices`, from any parts."""
        return self._collected(indices, lambda part, rows: {name: part.read_field(name, rows)})[name]

    def _collected(self, indices: Array, read: Callable[[Dataset, Array], Mapping[str, Samples]]) -> dict[str, Samples]:
        """Return what `read` returns for the samples of each part, in the order of `indices`."""
        where = np.searchsorted(self._ends, indices, side="right")
        damaged: dict[int, Sequence[Problem]] = {}
        pieces: list[tuple[Array, Mapping[str, Samples]]] = []
        for number in np.unique(where):
            rows = np.flatnonzero(where == number)
            part = self._parts[number]
            try:
                pieces.append((rows, read(part, indices[rows] - (self._ends[number] - len(part)))))
            except DamagedSamples as error:
                damaged |= {int(rows[row]): problems for row, problems in error.rows.items()}
        if damaged:
            raise DamagedSamples(damaged)
        if len(pieces) == 1:
            return dict(pieces[0][1])
        names = pieces[0][1] if pieces else self.fields
        return {name: _stack(len(indices), [(rows, fields[name]) for rows, fields in pieces]) for name in names}

    def values_of(self, name: str) -> Array:
        """Return the values of all parts."""
        return np.concatenate([part.values_of(name) for part in self._parts])

    def reads_alone(self, name: str) -> bool:
        """Return whether all parts read this field alone."""
        return all(part.reads_alone(name) for part in self._parts)

    def describe(self, index: int) -> str:
        """Return the origin of sample `index`."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self._parts[number].describe(index - int(self._ends[number] - len(self._parts[number])))


def _stack(count: int, parts: Sequence[tuple[Array, Samples]]) -> Samples:
    """Put the samples of all parts at their rows of a batch of `count`."""
    first = parts[0][1]
    if isinstance(first, list):
        stacked: list[Array] = [np.empty(0)] * count
        for rows, samples in parts:
            for row, sample in zip(rows, samples, strict=True):
                stacked[row] = sample
        return stacked
    joined_array = np.empty((count, *first.shape[1:]), first.dtype)
    for rows, samples in parts:
        joined_array[rows] = samples
    return joined_array

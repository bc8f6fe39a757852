"""Datasets whose fields are columns: arrays that are read by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, FieldType, Samples
from netspec.errors import InputError, Problem, did_you_mean, listing


class RowArray(Protocol):
    """One array per sample, all of one shape and type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample's array."""
        ...

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """Element type, in native byte order."""
        ...

    def __len__(self) -> int: ...

    def read(self, rows: Array) -> Array:
        """Return the arrays at `rows` (N,), (N, *shape). Raises `DamagedSamples` with those that cannot be read."""
        ...


class InMemory:
    """A column that is an array (N, *shape) in memory."""

    def __init__(self, array: Array) -> None:
        self.array = array.astype(array.dtype.newbyteorder("="), copy=False)
        """The array, in native byte order."""
        self.shape = array.shape[1:]
        self.dtype = self.array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def read(self, rows: Array) -> Array:
        """Return the arrays at `rows`."""
        return np.take(self.array, rows, axis=0)


class ColumnDataset(Dataset):
    """Columns of one length as the fields of samples."""

    def __init__(
        self,
        columns: Mapping[str, RowArray],
        *,
        digest: str,
        describe: Callable[[int], str],
        classes: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._columns = dict(columns)
        self._describe = describe
        self.fields = {name: FieldType(column.shape, column.dtype.name) for name, column in self._columns.items()}
        self.classes = dict(classes or {})
        self.digest = digest

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the samples at `indices`. Raises `DamagedSamples` with those that have an unreadable field."""
        samples: dict[str, Samples] = {}
        damaged: dict[int, list[Problem]] = {}
        for name, column in self._columns.items():
            try:
                samples[name] = column.read(indices)
            except DamagedSamples as error:
                for row, problems in error.rows.items():
                    damaged.setdefault(row, []).extend(problems)
        if damaged:
            raise DamagedSamples(damaged)
        return samples

    def read_field(self, name: str, indices: Array) -> Samples:
        """Return one column of the samples at `indices`."""
        return self._columns[name].read(indices)

    def values_of(self, name: str) -> Array:
        """Return one column; an array in memory is not copied."""
        column = self._columns[name]
        return column.array if isinstance(column, InMemory) else column.read(np.arange(len(self)))

    def reads_alone(self, name: str) -> bool:
        """Return True: columns are read separately."""
        return True

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""
        return self._describe(index)


def array_problem(name: str, where: str, dtype: np.dtype[np.generic], shape: Sequence[int]) -> Problem | None:
    """Return a problem if an array of this type and shape, including the sample axis, cannot be a field."""
    if dtype.hasobject:
        return Problem(
            f"array `{name}` of {where} holds Python objects, which are never loaded",
            expected="numbers",
            got="pickled objects",
            hint="write the array with a numeric dtype",
        )
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        return Problem(
            f"array `{name}` of {where} holds no numbers that a net can take", expected="numbers", got=str(dtype)
        )
    if not shape:
        return Problem(
            f"array `{name}` of {where} has no axis of samples", expected="one axis or more", got="a single number"
        )
    return None


def length_problems(where: str, lengths: Mapping[str, int]) -> list[Problem]:
    """Return a problem if the arrays differ in their number of samples."""
    if len(set(lengths.values())) < 2:
        return []
    got = ", ".join(f"`{name}` has {length:,}" for name, length in lengths.items())
    return [
        Problem(
            f"the arrays of {where} differ in their number of samples", expected="first axes of equal length", got=got
        )
    ]


def array_names(where: str, names: Sequence[str], fields: Sequence[str] | None) -> list[str]:
    """Return the names of the arrays to read, by default all. Raises `InputError` with those that do not exist."""
    if fields is None:
        return list(names)
    missing = [
        Problem(
            f"{where} has no array `{name}`",
            expected=f"one of {listing(list(names))}" if names else "arrays",
            hint=did_you_mean(name, names),
        )
        for name in fields
        if name not in names
    ]
    if missing:
        raise InputError(missing)
    return list(fields)


class Recast(Dataset):
    """The samples of another dataset with other types and shapes of fields."""

    def __init__(self, dataset: Dataset, dtypes: Mapping[str, str], shapes: Mapping[str, Sequence[int]]) -> None:
        self._dataset = dataset
        self._dtypes = dict(dtypes)
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        problems: list[Problem] = []
        fields = dict(dataset.fields)
        for option, settings in (("dtypes", self._dtypes), ("shapes", self._shapes)):
            problems += [
                Problem(
                    f"the source has no field `{name}`",
                    path=f"{option}.{name}",
                    expected=f"one of {listing(list(fields))}",
                    hint=did_you_mean(name, fields),
                )
                for name in settings
                if name not in fields
            ]
        for name, shape in self._shapes.items():
            if name in fields and _count(shape) != _count(fields[name].shape):
                got = f"{fields[name]} from the file"
                problems.append(
                    Problem(
                        f"`{name}` cannot have this shape",
                        path=f"shapes.{name}",
                        expected="a shape with as many elements",
                        got=got,
                    )
                )
        if problems:
            raise InputError(problems)
        self.fields = {
            name: FieldType(self._shapes.get(name, kind.shape), self._dtypes.get(name, kind.dtype))
            for name, kind in fields.items()
        }
        self.classes = dataset.classes
        self.digest = dataset.digest

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the samples at `indices`. Raises `DamagedSamples` with values that the other type cannot represent."""
        return self._recast(self._dataset.read(indices), indices)

    def read_field(self, name: str, indices: Array) -> Samples:
        """Return one field of the samples at `indices`. Raises `DamagedSamples` as `read` does."""
        return self._recast({name: self._dataset.read_field(name, indices)}, indices)[name]

    def values_of(self, name: str) -> Array:
        """Return a field of all samples. Raises `DamagedSamples` as `read` does."""
        values = {name: self._dataset.values_of(name)}
        return np.asarray(self._recast(values, np.arange(len(self)))[name])

    def reads_alone(self, name: str) -> bool:
        """Return whether the other dataset reads this field alone."""
        return self._dataset.reads_alone(name)

    def _recast(self, read: Mapping[str, Samples], indices: Array) -> dict[str, Samples]:
        """Convert fields of samples to the requested types and shapes."""
        samples = dict(read)
        damaged: dict[int, list[Problem]] = {}
        for name, dtype in self._dtypes.items():
            if name not in samples:
                continue
            values = np.asarray(samples[name])
            with np.errstate(invalid="ignore", over="ignore"):
                converted = values.astype(dtype)
            if converted.dtype.kind in "iub":  # floats may round; non-finite values are reported by the net's inputs
                exact = (converted == values).reshape(len(values), -1)
                for row in np.flatnonzero(~exact.all(axis=1)).tolist():
                    bad = values[row].reshape(-1)[~exact[row]][0]
                    where = self.describe(int(indices[row]))
                    damaged.setdefault(row, []).append(
                        Problem(f"a value of `{name}` does not fit in {dtype}", expected=dtype, got=f"{bad} in {where}")
                    )
            samples[name] = converted
        if damaged:
            raise DamagedSamples(damaged)
        for name in self._shapes.keys() & samples.keys():
            samples[name] = np.asarray(samples[name]).reshape(-1, *self._shapes[name])
        return samples

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""
        return self._dataset.describe(index)


def _count(shape: Sequence[int | None]) -> int:
    count = 1
    for size in shape:
        count *= size or 0
    return count

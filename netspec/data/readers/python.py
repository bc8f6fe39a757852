"""Samples from a Python program: arrays, sequences or streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from traceback import extract_tb
from typing import Any, Protocol, runtime_checkable

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, FieldType
from netspec.data.files import fingerprint
from netspec.data.readers.arrays import ArrayDataset
from netspec.errors import InputError, Problem, counted, listing

LOOKED_AT = 16
"""Number of samples that the fingerprint of a sequence covers."""
MAX_PROBLEMS = 5
"""Number of mismatched samples that are listed; the others are counted."""

MAX_RAISED = 1000
"""Number of times in a row that an iterator may raise before reading stops."""

_NONE = object()
EXPECTED = "a mapping of arrays, a list of samples, or a function that makes an iterator of them"


@runtime_checkable
class Indexed(Protocol):
    """An object with a length that returns its samples by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def open_samples(
    samples: object, names: Sequence[str] | None, *, window: int, limit: int | None, skip: bool
) -> Dataset:
    """Wrap the samples as a dataset. Raises `InputError` for other objects; `skip` leaves out mismatched samples."""
    if isinstance(samples, Mapping):
        return _arrays(samples)
    if isinstance(samples, Indexed) and not isinstance(samples, str | bytes):
        return IndexedDataset(samples, names, skip=skip)
    if not callable(samples) and not hasattr(samples, "__iter__"):
        raise InputError("the object does not hold samples", expected=EXPECTED, got=type(samples).__name__)
    return StreamDataset(samples, names, window=window, limit=limit, skip=skip)


def _arrays(columns: Mapping[Any, Any]) -> ArrayDataset:
    arrays: dict[str, Array] = {}
    problems: list[Problem] = []
    for name, value in columns.items():
        try:
            arrays[str(name)] = array = np.asarray(value)
        except ValueError:
            problems.append(Problem(f"`{name}` is not an array", expected="rows of one length"))
            continue
        if array.dtype.kind not in "biuf" or not array.ndim:
            got = f"{array.dtype} of shape {list(array.shape)}"
            problems.append(Problem(f"`{name}` holds no samples", expected="an array of numbers (N, …)", got=got))
    lengths = {name: len(array) for name, array in arrays.items() if array.ndim}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"`{name}` has {length:,}" for name, length in lengths.items())
        problems.append(Problem("the arrays differ in their number of samples", got=got))
    if not columns:
        problems.append(Problem("there are no arrays", expected=EXPECTED))
    if problems:
        raise InputError(problems)
    return ArrayDataset(arrays, digest=_digest(arrays), describe=_described)


def _digest(arrays: Mapping[str, Array]) -> str:
    return fingerprint(*(part for name, array in arrays.items() for part in (name, str(array.dtype), array.tobytes())))


def _described(index: int) -> str:
    return f"sample {index}"


class _Kind:
    """The fields of a sample, taken from the first one; the others are compared with it.

    With `skip`, the first sample is the first that does not raise.
    """

    def __init__(self, samples: Iterable[object], names: Sequence[str] | None, *, skip: bool) -> None:
        self._names = names
        number, first = next(
            ((number, sample) for number, sample in enumerate(samples) if not (skip and isinstance(sample, Problem))),
            (0, _NONE),
        )
        if first is _NONE:
            raise InputError("there are no samples", expected="one or more")
        parts = self._parts(first)
        if isinstance(parts, Problem):
            raise InputError(_at(parts, number))
        self.fields: dict[str, FieldType] = {}
        for name, value in parts.items():
            array = _array(value)
            if array is None:
                raise InputError(
                    f"`{name}` of the first sample is not of numbers", expected="a number, or an array of numbers",
                    got=type(value).__name__,
                )  # fmt: skip
            self.fields[name] = FieldType(array.shape, array.dtype.name)

    def checked(self, sample: object) -> dict[str, Array] | Problem:
        """Return the arrays of a sample, or its problem."""
        parts = self._parts(sample)
        if isinstance(parts, Problem):
            return parts
        if parts.keys() != self.fields.keys():
            expected, got = listing(list(self.fields)), listing([str(name) for name in parts])
            return Problem("a sample has different fields from the first one", expected=expected, got=got)
        fields: dict[str, Array] = {}
        for name, kind in self.fields.items():
            array = _array(parts[name])
            if array is None or array.shape != kind.shape or not np.can_cast(array.dtype, kind.dtype, "same_kind"):
                got = type(parts[name]).__name__ if array is None else f"{array.dtype} of shape {list(array.shape)}"
                return Problem(f"`{name}` differs from the first sample", expected=str(kind), got=got)
            fields[name] = array
        return fields

    def _parts(self, sample: object) -> Mapping[str, Any] | Problem:
        if isinstance(sample, Problem):
            return sample
        if isinstance(sample, Mapping):
            return sample
        if not isinstance(sample, tuple):
            return Problem("not a sample", expected="a mapping by field, or a tuple", got=type(sample).__name__)
        if self._names is None:
            hint = "name its parts in the split: `fields: [image, label]`"
            return Problem("a sample is a tuple, whose parts have no names", got=f"{len(sample)} parts", hint=hint)
        if len(sample) != len(self._names):
            return Problem(
                "a sample has a different number of parts", expected=listing(self._names), got=f"{len(sample)} parts"
            )
        return dict(zip(self._names, sample, strict=True))

    def stacked(self, samples: Sequence[object]) -> dict[str, Array]:
        """Return the samples as arrays (N, …). Raises `DamagedSamples` with those unlike the first one."""
        checked = [self.checked(sample) for sample in samples]
        damaged = {row: [problem] for row, problem in enumerate(checked) if isinstance(problem, Problem)}
        if damaged:
            raise DamagedSamples(damaged)
        fields = {name: np.empty((len(samples), *_sizes(kind)), kind.dtype) for name, kind in self.fields.items()}
        for row, sample_arrays in enumerate(checked):
            assert not isinstance(sample_arrays, Problem)
            for name, value in sample_arrays.items():
                fields[name][row] = value
        return fields


def _sizes(kind: FieldType) -> tuple[int, ...]:
    return tuple(size for size in kind.shape if size is not None)


def _array(value: object) -> Array | None:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return None
    return array if array.dtype.kind in "biuf" else None


class IndexedDataset(Dataset):
    """A sequence: sample i is `samples[i]`. The fingerprint covers the length and some samples."""

    def __init__(self, samples: Indexed, names: Sequence[str] | None, *, skip: bool) -> None:
        self._source = samples
        self._length = len(samples)
        self._kind = _Kind(map(self._sample, range(self._length)), names, skip=skip)
        self.fields = self._kind.fields
        some = np.unique(np.linspace(0, self._length - 1, LOOKED_AT).astype(np.int64))
        checked = [self._kind.checked(self._sample(int(index))) for index in some]
        parts = [str(sample) if isinstance(sample, Problem) else _digest(sample) for sample in checked]
        self.digest = fingerprint(str(self._length), *parts)

    def __len__(self) -> int:
        return self._length

    def _sample(self, index: int) -> object:
        """Return a sample, or the problem if the program raises an exception."""
        try:
            return self._source[index]
        except Exception as error:
            return _raised(error)

    def read(self, indices: Array) -> dict[str, Array]:
        """Return the samples at `indices`, read one by one."""
        try:
            return self._kind.stacked([self._sample(int(index)) for index in indices])
        except DamagedSamples as error:
            raise _named(error, indices) from None

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""
        return _described(index)


class StreamDataset(Dataset):
    """Samples that come one after the other, the same in every pass.

    A first pass counts them. Later passes hold the samples of the current window, and of another one if a batch spans
    two; going back begins a new pass.
    """

    def __init__(
        self, samples: object, names: Sequence[str] | None, *, window: int, limit: int | None, skip: bool
    ) -> None:
        self._source, self._limit = samples, limit
        self.window = window
        self._buffered: dict[int, object] = {}
        self._next = 0
        self._kind = _Kind(self._samples(), names, skip=skip)
        self.fields = self._kind.fields
        self._length, self.digest = self._counted(skip=skip)
        self._coming = self._samples()

    def __len__(self) -> int:
        return self._length

    def _samples(self) -> Iterator[object]:
        """Begin a pass, in which a problem replaces a sample for which the program raises an exception."""
        try:
            iterable: Any = self._source() if callable(self._source) else self._source
        except Exception as error:
            raise InputError(_raised(error)) from None
        try:
            samples = iter(iterable)
        except TypeError:
            raise InputError(
                "the function must return an iterator",
                expected="a generator, or anything else to iterate",
                got=repr(iterable)[:60],
            ) from None
        if samples is self._source:
            raise InputError(
                "a generator can be iterated only once, but samples are counted first", got=repr(iterable)[:60],
                expected="a function that makes a new one for each pass", hint="pass `lambda: …`, or a list of samples",
            )  # fmt: skip
        return islice(_guarded(samples), self._limit)

    def _counted(self, *, skip: bool) -> tuple[int, str]:
        """Return the number of samples and a fingerprint. Raises `InputError` for mismatched samples, unless `skip`."""
        digest, count, wrong = sha256(), 0, 0
        problems: list[Problem] = []
        for sample in self._samples():
            fields = self._kind.checked(sample)
            if isinstance(fields, Problem):
                wrong += 1
                if len(problems) < MAX_PROBLEMS:
                    problems.append(_at(fields, count))
            else:
                for name, kind in self.fields.items():
                    digest.update(fields[name].astype(kind.dtype).tobytes())
            count += 1
        if wrong > len(problems):
            problems.append(Problem(f"{counted(wrong - len(problems), 'more sample')} do not fit"))
        if problems and not skip:
            raise InputError(problems)
        return count, fingerprint(str(count), digest.digest())

    def read(self, indices: Array) -> dict[str, Array]:
        """Return the samples at `indices`. Raises `InputError` if a pass has another number of samples than before."""
        rows = [int(index) for index in indices]
        assert self.window is not None
        lowest = min(rows, default=0) // self.window * self.window
        if any(index < self._next and index not in self._buffered for index in rows):
            self._coming, self._next = self._samples(), 0
            self._buffered.clear()
        for index in [index for index in self._buffered if index < lowest]:
            del self._buffered[index]
        while self._next <= max(rows, default=-1):
            self._pull(lowest)
        try:
            return self._kind.stacked([self._buffered[index] for index in rows])
        except DamagedSamples as error:
            raise _named(error, indices) from None

    def _pull(self, lowest: int) -> None:
        """Read the next sample of the pass, and keep it if it may be requested."""
        sample = next(self._coming, _NONE)
        if sample is _NONE:
            raise self._other(f"{self._next:,}")
        if self._next >= lowest:
            self._buffered[self._next] = sample
        self._next += 1
        if self._next == self._length and next(self._coming, _NONE) is not _NONE:
            raise self._other("more")

    def _other(self, got: str) -> InputError:
        return InputError(
            "a pass over the data has a different number of samples than the first one",
            expected=f"{self._length:,}, in the same order each time", got=got,
        )  # fmt: skip

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""
        return _described(index)


def _guarded(samples: Iterator[object]) -> Iterator[object]:
    """Yield samples, or a problem if the iterator raises an exception and continues afterwards.

    Raises `InputError` if it ends with the exception, as a generator does: further samples must not be lost silently.
    """
    raised: list[Problem] = []
    number = 0
    while True:
        try:
            sample: object = next(samples)
            raised = []
        except StopIteration:
            if raised:
                raise InputError(replace(_at(raised[-1], number - 1), hint="no sample comes after it")) from None
            return
        except Exception as error:
            sample = problem = _raised(error)
            raised.append(problem)
            if len(raised) > MAX_RAISED:
                raise InputError(_at(problem, number)) from None
        number += 1
        yield sample


def _raised(error: Exception) -> Problem:
    """Return the problem of a sample for which the program raised an exception."""
    frames = extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    description = " ".join(f"{type(error).__name__}: {error}".split())
    return Problem(
        "the program raised an exception for a sample", expected="a sample", got=f"{description[:200]}{where}"
    )


def _at(problem: Problem, index: int) -> Problem:
    where = f"in {_described(index)}"
    return Problem(
        problem.message,
        expected=problem.expected,
        got=f"{problem.got} {where}" if problem.got else where,
        hint=problem.hint,
    )


def _named(error: DamagedSamples, indices: Array) -> DamagedSamples:
    return DamagedSamples(
        {row: [_at(problem, int(indices[row])) for problem in problems] for row, problems in error.rows.items()}
    )

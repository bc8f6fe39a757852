"""Samples that a Python program gives: arrays, something with a length, or streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from netspec.data.base import DamagedSamples, Dataset, FieldType
from netspec.data.files import fingerprint
from netspec.data.readers.arrays import ArrayDataset
from netspec.errors import InputError, Problem, counted, listing

if TYPE_CHECKING:
    from netspec.data.base import Array

LOOKED_AT = 16
"""Number of samples that the fingerprint of a sized object covers."""
MOST_PROBLEMS = 5
"""Number of mismatched samples that are shown; the others are counted."""

MOST_RAISED = 1000
"""Number of times in a row that an iterator may raise before reading stops."""

_NONE = object()
EXPECTED = "a mapping of arrays, a list of samples, or a function that makes an iterator of them"


@runtime_checkable
class Indexed(Protocol):
    """What has a length and gives its samples by their index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def open_samples(given: object, names: Sequence[str] | None, *, window: int, limit: int | None, skip: bool) -> Dataset:
    """Wrap the samples as a dataset. Raises InputError unless they are samples; `skip` leaves out mismatched ones."""
    if isinstance(given, Mapping):
        return _arrays(given)
    if isinstance(given, Indexed) and not isinstance(given, str | bytes):
        return IndexedDataset(given, names, skip=skip)
    if not callable(given) and not hasattr(given, "__iter__"):
        raise InputError("the object does not hold samples", expected=EXPECTED, got=type(given).__name__)
    return StreamDataset(given, names, window=window, limit=limit, skip=skip)


def _arrays(given: Mapping[Any, Any]) -> ArrayDataset:
    arrays: dict[str, Array] = {}
    problems: list[Problem] = []
    for name, value in given.items():
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
    if not given:
        problems.append(Problem("there are no arrays", expected=EXPECTED))
    if problems:
        raise InputError(problems)
    return ArrayDataset(arrays, digest=_digest(arrays), describe=_described)


def _digest(arrays: Mapping[str, Array]) -> str:
    return fingerprint(*(part for name, array in arrays.items() for part in (name, str(array.dtype), array.tobytes())))


def _described(index: int) -> str:
    return f"sample {index}"


class _Kind:
    """What a sample consists of, as the first one shows; the others are compared with it.

    With `skip`, the first one is that which the program gives without raising.
    """

    def __init__(self, samples: Iterable[object], names: Sequence[str] | None, *, skip: bool) -> None:
        self._names = names
        number, first = next(
            ((number, one) for number, one in enumerate(samples) if not (skip and isinstance(one, Problem))), (0, _NONE)
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
        """The arrays of a sample, or what is wrong with it."""
        parts = self._parts(sample)
        if isinstance(parts, Problem):
            return parts
        if parts.keys() != self.fields.keys():
            expected, got = listing(list(self.fields)), listing([str(name) for name in parts])
            return Problem("a sample has other fields than the first one", expected=expected, got=got)
        found: dict[str, Array] = {}
        for name, kind in self.fields.items():
            array = _array(parts[name])
            if array is None or array.shape != kind.shape or not np.can_cast(array.dtype, kind.dtype, "same_kind"):
                got = type(parts[name]).__name__ if array is None else f"{list(array.shape)} of {array.dtype}"
                return Problem(f"`{name}` is not as in the first sample", expected=str(kind), got=got)
            found[name] = array
        return found

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
                "a sample has another number of parts", expected=listing(self._names), got=f"{len(sample)} parts"
            )
        return dict(zip(self._names, sample, strict=True))

    def stacked(self, samples: Sequence[object]) -> dict[str, Array]:
        """The samples as arrays (N, …). Raises DamagedSamples with those that are not as the first one was."""
        checked = [self.checked(sample) for sample in samples]
        damaged = {row: [one] for row, one in enumerate(checked) if isinstance(one, Problem)}
        if damaged:
            raise DamagedSamples(damaged)
        found = {name: np.empty((len(samples), *_sizes(kind)), kind.dtype) for name, kind in self.fields.items()}
        for row, one in enumerate(checked):
            assert not isinstance(one, Problem)
            for name, value in one.items():
                found[name][row] = value
        return found


def _sizes(kind: FieldType) -> tuple[int, ...]:
    return tuple(size for size in kind.shape if size is not None)


def _array(value: object) -> Array | None:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return None
    return array if array.dtype.kind in "biuf" else None


class IndexedDataset(Dataset):
    """Something with a length: sample i is `given[i]`. The fingerprint is of the length and of some samples."""

    def __init__(self, given: Indexed, names: Sequence[str] | None, *, skip: bool) -> None:
        self._given = given
        self._length = len(given)
        self._kind = _Kind(map(self._sample, range(self._length)), names, skip=skip)
        self.fields = self._kind.fields
        some = np.unique(np.linspace(0, self._length - 1, LOOKED_AT).astype(np.int64))
        checked = [self._kind.checked(self._sample(int(index))) for index in some]
        parts = [str(one) if isinstance(one, Problem) else _digest(one) for one in checked]
        self.digest = fingerprint(str(self._length), *parts)

    def __len__(self) -> int:
        return self._length

    def _sample(self, index: int) -> object:
        """A sample, or what the program raised in its place."""
        try:
            return self._given[index]
        except Exception as error:
            return _raised(error)

    def read(self, indices: Array) -> dict[str, Array]:
        """The samples at `indices`, asked for one by one."""
        try:
            return self._kind.stacked([self._sample(int(index)) for index in indices])
        except DamagedSamples as error:
            raise _named(error, indices) from None

    def describe(self, index: int) -> str:
        """By its number."""
        return _described(index)


class StreamDataset(Dataset):
    """Samples that come one after the other, the same in every pass.

    A first pass counts them. Later ones hold the samples of the window that is being read, and of one other where a
    batch spans two; going back begins a new pass.
    """

    def __init__(
        self, given: object, names: Sequence[str] | None, *, window: int, limit: int | None, skip: bool
    ) -> None:
        self._given, self._limit = given, limit
        self.window = window
        self._held: dict[int, object] = {}
        self._next = 0
        self._kind = _Kind(self._samples(), names, skip=skip)
        self.fields = self._kind.fields
        self._length, self.digest = self._counted(skip=skip)
        self._coming = self._samples()

    def __len__(self) -> int:
        return self._length

    def _samples(self) -> Iterator[object]:
        """A new pass, in which a problem stands for a sample that the program raised something for."""
        try:
            made: Any = self._given() if callable(self._given) else self._given
        except Exception as error:
            raise InputError(_raised(error)) from None
        try:
            samples = iter(made)
        except TypeError:
            raise InputError(
                "the function must return an iterator",
                expected="a generator, or anything else to iterate",
                got=repr(made)[:60],
            ) from None
        if samples is self._given:
            raise InputError(
                "a generator can be iterated only once, but samples are counted first", got=repr(made)[:60],
                expected="a function that makes a new one for each pass", hint="give `lambda: …`, or a list of samples",
            )  # fmt: skip
        return islice(_guarded(samples), self._limit)

    def _counted(self, *, skip: bool) -> tuple[int, str]:
        """The number of samples and a fingerprint. Raises InputError with those that do not fit, unless `skip`."""
        digest, count, wrong = sha256(), 0, 0
        problems: list[Problem] = []
        for sample in self._samples():
            found = self._kind.checked(sample)
            if isinstance(found, Problem):
                wrong += 1
                if len(problems) < MOST_PROBLEMS:
                    problems.append(_at(found, count))
            else:
                for name, kind in self.fields.items():
                    digest.update(found[name].astype(kind.dtype).tobytes())
            count += 1
        if wrong > len(problems):
            problems.append(Problem(f"{counted(wrong - len(problems), 'more sample')} do not fit"))
        if problems and not skip:
            raise InputError(problems)
        return count, fingerprint(str(count), digest.digest())

    def read(self, indices: Array) -> dict[str, Array]:
        """The samples at `indices`. Raises InputError where a pass has fewer or more of them than the first one."""
        wanted = [int(index) for index in indices]
        assert self.window is not None
        lowest = min(wanted, default=0) // self.window * self.window
        if any(index < self._next and index not in self._held for index in wanted):
            self._coming, self._next = self._samples(), 0
            self._held.clear()
        for index in [index for index in self._held if index < lowest]:
            del self._held[index]
        while self._next <= max(wanted, default=-1):
            self._pull(lowest)
        try:
            return self._kind.stacked([self._held[index] for index in wanted])
        except DamagedSamples as error:
            raise _named(error, indices) from None

    def _pull(self, lowest: int) -> None:
        """Take the next sample of the pass, and keep it if it may be asked for."""
        sample = next(self._coming, _NONE)
        if sample is _NONE:
            raise self._other(f"{self._next:,}")
        if self._next >= lowest:
            self._held[self._next] = sample
        self._next += 1
        if self._next == self._length and next(self._coming, _NONE) is not _NONE:
            raise self._other("more")

    def _other(self, got: str) -> InputError:
        return InputError(
            "a pass over the data has a different number of samples than the first one",
            expected=f"{self._length:,}, in the same order each time", got=got,
        )  # fmt: skip

    def describe(self, index: int) -> str:
        """By its number."""
        return _described(index)


def _guarded(samples: Iterator[object]) -> Iterator[object]:
    """The samples; a problem for each that the iterator raises something for, if it goes on after that.

    Raises InputError where it ends with that, as a generator does: what would have followed is not to be missed unseen.
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
            if len(raised) > MOST_RAISED:
                raise InputError(_at(problem, number)) from None
        number += 1
        yield sample


def _raised(error: Exception) -> Problem:
    """What the program raised in place of a sample, and where."""
    frames = extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    told = " ".join(f"{type(error).__name__}: {error}".split())
    return Problem("the program raised an exception for a sample", expected="a sample", got=f"{told[:200]}{where}")


def _at(found: Problem, index: int) -> Problem:
    where = f"in {_described(index)}"
    return Problem(
        found.message, expected=found.expected, got=f"{found.got} {where}" if found.got else where, hint=found.hint
    )


def _named(error: DamagedSamples, indices: Array) -> DamagedSamples:
    return DamagedSamples({row: [_at(one, int(indices[row])) for one in found] for row, found in error.rows.items()})

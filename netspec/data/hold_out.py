"""Division of a source into training, validation and test data, as `split` with a mapping declares it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import numpy as np

from netspec.data.base import Array, Dataset, Raw, Samples
from netspec.data.files import fingerprint
from netspec.data.random import hold_out_order
from netspec.data.stratified_groups import assign_groups
from netspec.data.timestamps import date_formats, moment_of
from netspec.errors import InputError, counted, listing
from netspec.schema.specs.hold_out import HoldOut

PARTS = ("train", "validation", "test")


class Divisible(Protocol):
    """Samples whose number is known, and fields of which can be read on their own."""

    @property
    def names(self) -> Collection[str]:
        """The fields and columns by which the samples can be divided."""
        ...

    def __len__(self) -> int: ...

    def values_of(self, name: str) -> Array:
        """Return the values of a field or column, (N,)."""
        ...

    def describe(self, index: int) -> str:
        """Return the origin of a sample: `train.csv, line 13`."""
        ...


def indices_of(hold_out: HoldOut, part: str, samples: Divisible) -> Array:
    """Return the indices of the samples of a part, in the order of the source.

    Raises `InputError` if a field is missing, or a part has no samples.
    """
    number = PARTS.index(part)
    parts = _parts(hold_out, samples)
    for name in ("train", *hold_out.parts):
        if not (parts == PARTS.index(name)).any():
            raise _empty_part(name, hold_out, samples)
    return np.flatnonzero(parts == number)


def check_division(hold_out: HoldOut, samples: Divisible, *, are_all: bool) -> None:
    """Raise `InputError` if samples cannot be divided. If they are not all (`are_all`), only times are checked."""
    if are_all:
        indices_of(hold_out, "train", samples)
    elif hold_out.time is not None:
        hold_out.check_columns(samples.names)
        moments_of(_values(hold_out, "time", samples), hold_out.time_format, samples.describe)


def _empty_part(name: str, hold_out: HoldOut, samples: Divisible) -> InputError:
    """Return the error for a part without samples."""
    got, together = counted(len(samples), "sample"), ""
    option = "group" if hold_out.group is not None else "time"
    if column := hold_out.columns.get(option):
        together = f"; samples with the same value of `{column}` stay together"
        got += f" with {counted(len(np.unique(_values(hold_out, option, samples))), 'value')} of `{column}`"
    expected = f"one sample or more in each part{together}"
    return InputError(f"no sample is left for {name} data", path="split", expected=expected, got=got)


def _parts(hold_out: HoldOut, samples: Divisible) -> Array:
    """Return the part of each sample as its index in `PARTS`, (N,). Raises `InputError` if a field is missing."""
    hold_out.check_columns(samples.names)
    if hold_out.time is not None:
        moments = moments_of(_values(hold_out, "time", samples), hold_out.time_format, samples.describe)
        unique, units = np.unique(moments, return_inverse=True)
        return _by_units(hold_out, units, np.arange(len(unique))[::-1])
    if hold_out.group is not None:
        unique, units = np.unique(_values(hold_out, "group", samples), return_inverse=True)
        order = hold_out_order(len(unique), hold_out.seed)
        if hold_out.stratify is not None:
            names, shares = zip(*_shares(hold_out), strict=True)
            values = _numbers_or_texts(_values(hold_out, "stratify", samples))
            parts_of_shares = np.array([PARTS.index(name) for name in names], np.int8)
            return parts_of_shares[assign_groups(shares, units, order, values)[units]]
        return _by_units(hold_out, units, order)
    order = hold_out_order(len(samples), hold_out.seed)
    if hold_out.stratify is not None:
        strata = np.unique(_numbers_or_texts(_values(hold_out, "stratify", samples)), return_inverse=True)[1]
        order = order[np.argsort(strata[order], kind="stable")]
    parts = np.zeros(len(samples), np.int8)
    parts[order] = _spread(hold_out, len(samples))
    return parts


def _spread(hold_out: HoldOut, count: int) -> Array:
    """Return the part of each position in an order of N samples: every part is spread evenly over the order.

    If the order is sorted by class, and random within each, every class is thus divided in proportion.
    """
    parts = np.zeros(count, np.int8)
    if hold_out.test is not None:
        parts[_evenly_spaced(count, hold_out.test)] = PARTS.index("test")
    others = np.flatnonzero(parts == 0)
    if hold_out.folds is not None:
        parts[others[hold_out.fold :: hold_out.folds]] = PARTS.index("validation")
    elif hold_out.validation is not None:
        share = hold_out.validation / (1 - (hold_out.test or 0))
        parts[others[_evenly_spaced(len(others), share)]] = PARTS.index("validation")
    return parts


def _evenly_spaced(count: int, share: float) -> Array:
    """Return evenly spaced positions that are a share of `count`, rounded."""
    ends = np.floor(np.arange(count + 1) * share + 0.5)
    return np.flatnonzero(np.diff(ends))


def _by_units(hold_out: HoldOut, units: Array, order: Array) -> Array:
    """Return the part of each sample if samples of one unit stay together; the first units in `order` are test data.

    A unit belongs to the part whose share of the samples contains the middle of the unit.
    """
    sizes = np.bincount(units, minlength=len(order))[order]
    middle = (np.cumsum(sizes) - sizes / 2) / sizes.sum()
    test = hold_out.test or 0.0
    first, last = test, test + (hold_out.validation or 0.0)
    if hold_out.folds is not None and hold_out.fold is not None:
        width = (1 - test) / hold_out.folds
        first, last = test + hold_out.fold * width, test + (hold_out.fold + 1) * width
    part_of_unit = np.zeros(len(order), np.int8)
    part_of_unit[order[middle < test]] = PARTS.index("test")
    part_of_unit[order[(middle >= first) & (middle < last)]] = PARTS.index("validation")
    parts: Array = part_of_unit[units]
    return parts


def _shares(hold_out: HoldOut) -> list[tuple[str, float]]:
    """Return the parts and their shares of the samples; each fold is a separate entry."""
    test = [] if hold_out.test is None else [("test", hold_out.test)]
    if hold_out.folds is None:
        validation = [] if hold_out.validation is None else [("validation", hold_out.validation)]
        return [("train", hold_out.training_share), *validation, *test]
    share = (1 - (hold_out.test or 0.0)) / hold_out.folds
    return [("validation" if fold == hold_out.fold else "train", share) for fold in range(hold_out.folds)] + test


def _values(hold_out: HoldOut, option: str, samples: Divisible) -> Array:
    """Return the values to divide by, which can be sorted. Raises `InputError` if the field has axes."""
    values = samples.values_of(hold_out.columns[option])
    if values.ndim > 1:
        raise InputError(
            "a field with axes does not say which samples belong together", expected="one value per sample",
            got=f"values of shape {list(values.shape[1:])}", path=f"split.{option}",
        )  # fmt: skip
    return values.astype(str) if values.dtype == object else values


def _numbers_or_texts(values: Array) -> Array:
    """Convert texts to numbers if all of them are numbers; return other values unchanged."""
    if values.dtype.kind not in "US":
        return values
    try:
        return values.astype(np.float64)
    except ValueError:
        return values


def moments_of(values: Array, format: str | None, describe: Callable[[int], str]) -> Array:
    """Convert values to times, as numbers or dates. Raises `InputError` for missing and other values.

    `describe` returns the origin of a value for messages.
    """
    values = values if format else _numbers_or_texts(values)
    kind = values.dtype.kind
    empty = np.flatnonzero(values == "" if kind in "US" else np.isnat(values) if kind == "M" else np.isnan(values))
    if len(empty):
        have = "has" if len(empty) == 1 else "have"
        raise InputError(
            f"{counted(len(empty), 'sample')} of {len(values):,} {have} no time", path="split.time",
            expected="a number or a date for each sample", got=f"none in {describe(int(empty[0]))}",
            hint="remove these rows, or divide the samples in a different way",
        )  # fmt: skip
    if kind not in "US":
        return values
    texts, text_indices = np.unique(values, return_inverse=True)
    moments: Array = np.array([moment_of(str(text), format) for text in texts], "datetime64[us]")[text_indices]
    unreadable = np.flatnonzero(np.isnat(moments))
    if len(unreadable):
        raise _unreadable_times(values[unreadable], format, describe(int(unreadable[0])))
    return moments


def _unreadable_times(values: Array, format: str | None, first: str) -> InputError:
    """Return the error for texts that are not times; `first` is the origin of the first one."""
    texts = list(dict.fromkeys(values.tolist()))
    likely = " or ".join(f"`{likely}`" for likely in date_formats(texts[:1]))
    hint = f"`time_format` says how dates are written: {likely or '`%d.%m.%Y`'}" if likely or not format else None
    return InputError(
        "not all values are dates in this format" if format else "not all values are numbers or dates",
        path="split.time", expected=f"`{format}`" if format else "numbers, or dates such as 2026-11-24",
        got=f"{listing(texts, 3)}; the first in {first}", hint=hint,
    )  # fmt: skip


class DatasetPart(Dataset):
    """The samples of a dataset that belong to one part of a divided source."""

    def __init__(self, dataset: Dataset, hold_out: HoldOut, part: str) -> None:
        if dataset.window is not None:
            raise InputError(
                "a stream is read once from its start, so no samples of it can be held out",
                expected="arrays, or samples that are read by index",
                hint="pass validation and test data as streams of their own",
            )
        self._dataset = dataset
        indices = indices_of(hold_out, part, _Fields(dataset))
        left_out = [dataset.unusable[index] for index in indices.tolist() if index in dataset.unusable]
        self._indices = indices[~np.isin(indices, [*dataset.unusable])]
        if not len(self._indices):
            got = f"{counted(len(left_out), 'sample')}, the first: {left_out[0]}"
            raise InputError(f"no sample of the {part} data can be used", path="split", expected="one or more", got=got)
        self.fields, self.classes, self.learned = dataset.fields, dataset.classes, dataset.learned
        self.annotations = dataset.annotations
        # Samples that were left out before the division belong to no part: they count once, as training data.
        before, damaged_before = (dataset.skipped, dataset.damaged) if part == "train" else (0, ())
        self.skipped, self.damaged = before + len(left_out), [*damaged_before, *left_out]
        self.block = dataset.block
        self.non_integer_labels, self.ragged_examples = dataset.non_integer_labels, dataset.ragged_examples
        self.digest = fingerprint(dataset.digest, self._indices.astype("<i8").tobytes())

    def __len__(self) -> int:
        return len(self._indices)

    def read(self, indices: Array) -> Mapping[str, Samples]:
        """Return the samples at `indices` of the part."""
        return self._dataset.read(self._indices[indices])

    def read_raw(self, indices: Array, pillow_fields: Collection[str]) -> Mapping[str, Raw]:
        """Read like `read`, but possibly leave Pillow images in the fields `pillow_fields`."""
        return self._dataset.read_raw(self._indices[indices], pillow_fields)

    def read_field(self, name: str, indices: Array) -> Samples:
        """Return one field of samples of the part."""
        return self._dataset.read_field(name, self._indices[indices])

    def values_of(self, name: str) -> Array:
        """Return a field of the samples of the part."""
        values: Array = self._dataset.values_of(name)[self._indices]
        return values

    def reads_alone(self, name: str) -> bool:
        """Return whether the divided dataset reads this field alone."""
        return self._dataset.reads_alone(name)

    def describe(self, index: int) -> str:
        """Return the origin of a sample."""
        return self._dataset.describe(int(self._indices[index]))

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return what identifies a sample in a list of predictions."""
        return self._dataset.identify(int(self._indices[index]))


class _Fields:
    """The fields and columns of a dataset, by name, for `indices_of`."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.names = (*dataset.columns, *dataset.fields)

    def __len__(self) -> int:
        return len(self._dataset)

    def values_of(self, name: str) -> Array:
        columns = self._dataset.columns
        return columns[name] if name in columns else self._dataset.values_of(name)

    def describe(self, index: int) -> str:
        return self._dataset.describe(index)


class NamedValues:
    """Samples that have not been read, with the fields that are known nevertheless, for `indices_of`."""

    def __init__(
        self,
        count: int,
        values: Mapping[str, Array],
        describe: Callable[[int], str] = lambda index: f"sample {index + 1}",
    ) -> None:
        self._count, self._values, self._describe, self.names = count, values, describe, tuple(values)

    def __len__(self) -> int:
        return self._count

    def values_of(self, name: str) -> Array:
        return self._values[name]

    def describe(self, index: int) -> str:
        return self._describe(index)

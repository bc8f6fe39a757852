"""Binds fields of a source to inputs of the net, and checks their values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from netspec.data.base import Array, DamagedSamples, FieldType, OutOfRangeSamples, RejectedSamples, with_location
from netspec.errors import InputError, Problem, SettingHint, and_more, counted, did_you_mean, listing
from netspec.schema.specs.data import SplitFields

MAX_ALIKE = 5
"""Number of samples of a batch with the same problem that are listed; the others are counted."""


MAX_NAMED = 10
"""Number of samples with the same problem that a message names."""
MAX_COUNTED = 100_000
"""Number of wrong values that are counted by value."""
TRANSFORMS_TO_ONE_SIZE = "Resizing, RandomResizedCrop, CenterCrop or Padding"
FINITE = "finite numbers: a single non-finite value would make all weights non-finite"


class ValueRange(NamedTuple):
    """The values that an input may have, both ends included."""

    low: float
    high: float
    why: str
    """Reason for messages, e.g. "`logits` has 10 classes"."""
    also: tuple[float, ...] = ()
    """Values outside of the range that are allowed too."""
    setting: tuple[str, str] | None = None
    """Layer and field that set the number of classes, if the values are classes."""

    def __str__(self) -> str:
        return " or ".join([f"{self.low} to {self.high}", *map(str, self.also)])

    def contains(self, values: Array) -> Array:
        """Return which of the values are allowed."""
        within = (values >= self.low) & (values <= self.high)
        for value in self.also:
            within |= values == value
        return within

    def hint_for(self, classes: int) -> str | None:
        """Return the change of the net for a number of classes, if its layer is known."""
        if self.setting is None:
            return None
        layer, field = self.setting
        return f"set `{field}: {classes}` in `{layer}`"


class _Fault(NamedTuple):
    """A reason why the net cannot accept some values."""

    good: Array
    """Which values (N, …) it can accept."""
    problem: Callable[[object, str], Problem]
    """Returns the problem of a value in a sample."""
    brief: str
    """The reason in a few words, after the name of an input: "is out of range"."""
    expected: str | None
    rejection: type[RejectedSamples] = DamagedSamples
    """The error that such values raise."""


@dataclass(frozen=True)
class InputBinding:
    """One input of the net: the field that feeds it, its type, and the values that it may have."""

    name: str
    field: str
    shape: tuple[int, ...]
    dtype: str
    exact: bool
    """Whether the element type can represent every value of the field. If not, each value is checked."""
    range: ValueRange | None = None
    classes: int = 0
    """The number of named classes of the field; 0 if it has none, or if they are unknown."""

    def convert(
        self, values: Array, indices: Array, describe: Callable[[int], str], into: Array | None = None
    ) -> Array:
        """Convert the values (N, …) to the type of the input, contiguous; into the array `into` if there is one.

        Raises `RejectedSamples` with the samples that the net cannot accept.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # such values are reported below
            if into is None:
                converted = np.asarray(values, self.dtype, order="C")
            else:
                np.copyto(into, values, casting="unsafe")  # as `asarray` does
                converted = into
        for fault in self._faults(values, converted):
            self._check(fault, values, indices, describe)
        return converted

    def check_all(self, values: Array, describe: Callable[[int], str], *, skip: bool = False) -> Iterator[Problem]:
        """Yield one problem for all samples with values (N, …) that the net cannot accept for the same reason.

        With `skip`, damaged samples do not count.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            converted = values.astype(self.dtype)
        for fault in self._faults(values, converted):
            if skip and fault.rejection is DamagedSamples:
                continue
            bad = ~fault.good.reshape(len(values), -1)
            rows = np.flatnonzero(bad.any(axis=1))
            first = [values.reshape(len(values), -1)[row, bad[row].argmax()].item() for row in rows[:MAX_COUNTED]]
            samples = [describe(int(row)) for row in rows[:MAX_NAMED]]
            if len(rows) == 1:
                yield fault.problem(first[0], samples[0])
            if len(rows) > 1:
                yield Problem(
                    f"`{self.name}` {fault.brief} in {len(rows):,} of {len(values):,} samples", path=self.name,
                    expected=fault.expected, got=_tally(first), hint=self._hint(first),
                    notes=(f"samples: {_joined(samples)}{and_more(len(rows) - len(samples))}",),
                )  # fmt: skip

    def check_each(
        self, samples: Iterable[Array | Sequence[Problem]], describe: Callable[[int], str], *, skip: bool
    ) -> Iterator[Problem]:
        """Yield one problem for all samples (*shape) with integers out of range, and one for all damaged samples.

        `samples` has the problems of a damaged sample in place of its values. With `skip`, these do not count.
        """
        assert self.range is not None
        count, wrong, damaged = 0, list[int](), list[str]()
        values: Counter[int] = Counter()
        for index, sample in enumerate(samples):
            count = index + 1
            if not isinstance(sample, np.ndarray):
                damaged += [problem.brief for problem in sample[:1]]
            elif (odd := sample[~self.range.contains(sample)]).size:
                wrong.append(index)
                values.update(dict(zip(*(part.tolist() for part in np.unique(odd, return_counts=True)), strict=True)))
        if wrong:
            shown = [f"{value} ({counted(number, 'value')})" for value, number in values.most_common(MAX_NAMED)]
            named = _joined([describe(index) for index in wrong[:MAX_NAMED]])
            yield Problem(
                f"`{self.name}` is out of range in {len(wrong):,} of {counted(count, 'sample')}", path=self.name,
                expected=f"{self.range}: {self.range.why}", got=", ".join(shown) + and_more(len(values) - len(shown)),
                hint=self._hint(list(values)), notes=(f"samples: {named}{and_more(len(wrong) - MAX_NAMED)}",),
            )  # fmt: skip
        if damaged and not skip:
            more = [f"{len(damaged) - MAX_NAMED:,} more"] if len(damaged) > MAX_NAMED else []
            yield Problem(
                f"`{self.name}` cannot be used in {len(damaged):,} of {counted(count, 'sample')}", path=self.name,
                expected="samples that can be read, or `on_error: skip`", notes=(*damaged[:MAX_NAMED], *more),
            )  # fmt: skip

    def _faults(self, values: Array, converted: Array) -> Iterator[_Fault]:
        """Yield which values (N, …) the net can accept, for each reason not to."""
        fits: Array | None = None
        if not self.exact:
            low, high = _exact_range(np.dtype(self.dtype))
            fits = (values >= low) & (values <= high)
            if values.dtype.kind == "f" and converted.dtype.kind != "f":
                fits &= values == np.trunc(values)
            yield _Fault(fits, self._inexact, f"does not fit in {self.dtype}", None)
        if converted.dtype.kind == "f":
            yield _Fault(np.isfinite(converted), self._not_finite, "is missing or not finite", FINITE)
        if self.range is not None:
            expected = f"{self.range}: {self.range.why}"
            allowed = self.range.contains(values)
            allowed = allowed if fits is None else allowed | ~fits
            yield _Fault(allowed, self._out_of_range, "is out of range", expected, OutOfRangeSamples)

    def _hint(self, values: Sequence[float]) -> str | None:
        """Return a hint if the net has too few classes, or if the values look like classes that are counted from 1."""
        if self.range is not None and self.classes > self.range.high + 1:
            return self.range.hint_for(self.classes)
        if self.range is not None and set(values) == {self.range.high + 1}:
            return "classes count from 0: if these count from 1, subtract 1, or add a class to the net"
        return None

    def _check(self, fault: _Fault, values: Array, indices: Array, describe: Callable[[int], str]) -> None:
        """Raise `RejectedSamples` if not all values are good."""
        if fault.good.all():
            return
        bad = ~fault.good.reshape(len(fault.good), -1)
        rows = np.flatnonzero(bad.any(axis=1))
        flat, listed = values.reshape(len(values), -1), rows[:MAX_ALIKE]
        problems: dict[int, list[Problem]] = {int(row): [] for row in rows}
        for row in listed:
            problems[int(row)].append(fault.problem(flat[row, bad[row].argmax()].item(), describe(int(indices[row]))))
        if len(rows) > len(listed):
            more = counted(len(rows) - len(listed), "more sample")
            text = f"`{self.name}`: the same problem in {more} of this batch of {len(bad):,}"
            problems[int(rows[-1])].append(Problem(text))
        raise fault.rejection(problems)

    def _inexact(self, value: object, sample: str) -> Problem:
        return Problem(f"a value for `{self.name}` does not fit in {self.dtype}", got=f"{value} in {sample}")

    def _not_finite(self, value: object, sample: str) -> Problem:
        return Problem(
            f"a value for `{self.name}` is not a finite {self.dtype}",
            expected=FINITE,
            got=f"{value} in {sample}",
        )

    def _out_of_range(self, value: object, sample: str) -> Problem:
        allowed = self.range or ValueRange(0, 0, "")
        expected = f"{allowed}: {allowed.why}"
        hint = allowed.hint_for(self.classes) if self.classes > allowed.high + 1 else None
        return Problem(
            f"`{self.name}` is {value}, out of range", expected=expected, got=f"{value} in {sample}", hint=hint
        )


def _tally(values: Sequence[float]) -> str:
    """Format values with their counts, the most frequent ones first: `10 (30 samples), 11 (1 sample)`."""
    counts = Counter(f"{value:g}" for value in values)
    listed = [f"{value} ({counted(number, 'sample')})" for value, number in counts.most_common(MAX_NAMED)]
    return ", ".join(listed) + and_more(len(counts) - len(listed))


def _joined(samples: Sequence[str]) -> str:
    """Join the names of samples; names of one file, which differ in the number at their end, are joined into one."""
    parts = [re.fullmatch(r"(.*?)(\d+)", sample) for sample in samples]
    starts = {part[1] for part in parts if part is not None}
    if None in parts or len(starts) != 1:
        return "; ".join(samples)
    return starts.pop() + ", ".join(part[2] for part in parts if part is not None)


def _exact_range(target: np.dtype[np.generic]) -> tuple[int, int]:
    """Return the range of integers that a type represents exactly."""
    if target.kind == "f":
        most = 2 ** (np.finfo(target.name).nmant + 1)
        return -most, most
    bounds = np.iinfo(target.name)
    return int(bounds.min), int(bounds.max)


def bind_inputs(
    fields: Mapping[str, FieldType],
    inputs: Mapping[str, FieldType],
    split: SplitFields,
    *,
    ranges: Mapping[str, ValueRange] | None = None,
    declared_inputs: Collection[str] | None = None,
    non_integer_labels: Mapping[str, Sequence[Problem]] = MappingProxyType({}),
    ragged_examples: Mapping[str, str] = MappingProxyType({}),
) -> tuple[InputBinding, ...]:
    """Bind a field to each input in `inputs`. Raises `InputError` with all that do not match.

    `ragged_examples` describes samples that differ in size. Rows of `non_integer_labels` are reported if the net needs
    integers, or left out one by one.

    `declared_inputs` are all inputs that the net declares, by default `inputs`; renaming any other is an error.
    """
    names = set(inputs) if declared_inputs is None else {*declared_inputs, *inputs}
    problems = [
        Problem(
            f"the net has no input `{name}`",
            split.where("inputs", name, key=True),
            path=f"inputs.{name}",
            expected=f"one of {listing(list(names))}",
            hint=did_you_mean(name, names),
        )
        for name in split.inputs
        if name not in names
    ]
    bindings = []
    only_fits = _only_fits(fields, inputs, split)
    for name, target in inputs.items():
        field = split.inputs.get(name, name)
        if field in fields:
            problem = _mismatch(name, field, fields[field], target, split, ragged_examples.get(field))
        else:
            problem = _missing_field(name, field, fields, target, split, only_fits)
        odd: Sequence[Problem] = ()
        if problem is not None and field in non_integer_labels and fields[field].shape == target.shape:
            odd = non_integer_labels[field] if np.dtype(target.dtype).kind in "iu" else ()
        if odd and split.on_error != "skip":
            problems += [
                with_location(row_problem, split, ("inputs", name) if name in split.inputs else ("source",))
                for row_problem in odd
            ]
        elif problem is not None and not odd:
            problems.append(problem)
        else:
            shape = tuple(size for size in target.shape if size is not None)  # none is None: sizes are known
            exact = _holds_all(np.dtype(fields[field].dtype), np.dtype(target.dtype))
            bindings.append(InputBinding(name, field, shape, target.dtype, exact, (ranges or {}).get(name)))
    if problems:
        raise InputError(problems)
    return tuple(bindings)


def _mismatch(
    name: str,
    field: str,
    source_type: FieldType,
    target: FieldType,
    split: SplitFields,
    sizes: str | None,
) -> Problem | None:
    """Return the reason why a field cannot feed an input of the net; None if it can."""
    path = ("inputs", name) if name in split.inputs else ("source",)
    where, dotted = split.where(*path), ".".join(path)
    problem = partial(Problem, location=where, path=dotted, got=f"{source_type} from the source")
    if source_type.ragged:
        return problem(
            f"the samples of `{field}` differ in size",
            expected=f"{target}, as the net's input `{name}` declares",
            hint=_shape_hint(name, source_type, target, split),
            notes=() if sizes is None else (sizes,),
        )
    if source_type.shape != target.shape:
        return problem(
            f"`{field}` has a different shape from the net's input `{name}`",
            expected=f"{target}, as the net declares",
            hint=_shape_hint(name, source_type, target, split),
        )
    source_kind, target_kind = np.dtype(source_type.dtype).kind, np.dtype(target.dtype).kind
    if (target_kind in "iu" and source_kind == "f") or (target_kind == "b" and source_kind != "b"):
        return problem(
            f"`{field}` cannot feed the net's input `{name}` without loss",
            expected=f"{target}, as the net declares",
            hint=f"if these are class numbers, write them as integers (2, not 2.5) in every row of the data; "
            f"if not, declare `{name}: {{dtype: float32}}` and use a loss for real numbers such as MeanSquaredError"
            if source_kind == "f" and not target.shape
            else f"declare `{name}` with `dtype: {'float32' if source_kind == 'f' else source_type.dtype}` in the net",
        )
    return None


def _shape_hint(name: str, source_type: FieldType, target: FieldType, split: SplitFields) -> str:
    """Return a hint on how samples of a field get the shape of the net's input `name`."""
    size = target.shape[-2:]
    can_resize = "size" in type(split).model_fields and len(size) == 2 and source_type.shape[-2:] != size
    resized = f"set `size: {list(size)}` in the source, or " if can_resize else ""
    if source_type.ragged:
        transforms = TRANSFORMS_TO_ONE_SIZE if len(source_type.shape) == 3 else "Padding"
        hint = f"{resized}add a transform that gives all of them one size: {transforms}"
    else:
        # A first size of 1 is more likely the channel of a gray image.
        first = target.shape[0] if target.shape else None
        batched = source_type.shape == target.shape[1:] and first is not None and (first > 1 or len(target.shape) > 3)
        shape = f"`{name}: {{shape: {list(source_type.shape)}}}`"
        hint = f"{resized}declare {shape} in the net{'' if resized else ', or change the data'}"
        if batched:
            hint = f"the batch axis is left out in the net: declare {shape}"
    if not can_resize:
        renamed = f", or name another field in `inputs: {{{name}: …}}`" if name in split.inputs else ""
        return hint + renamed
    data = f"resize the image to {size[0]} × {size[1]} pixels (height × width)"
    return SettingHint(hint, settings={"size": list(size)}, purpose="to resize the images", data=data)


def _missing_field(
    name: str,
    field: str,
    fields: Mapping[str, FieldType],
    target: FieldType,
    split: SplitFields,
    only_fits: Mapping[str, str],
) -> Problem:
    if name in split.inputs:
        expected, hint = f"one of {listing(list(fields))}", did_you_mean(field, fields)
        where = split.where("inputs", name)
        return Problem(f"the source has no field `{field}`", where, f"inputs.{name}", expected=expected, hint=hint)
    if name in only_fits:
        mapping = ", ".join(f"{key}: {value}" for key, value in {**split.inputs, **only_fits}.items())
        hint = f"set `inputs: {{{mapping}}}`"
    else:
        hint = f"name the field that feeds it: `inputs: {{{name}: …}}`"
    return Problem(
        f"the source has no field for the net's input `{name}`",
        split.where("source"),
        "source",
        expected=f"a field `{name}`: {target}",
        got=", ".join(f"`{present}`: {kind}" for present, kind in fields.items()),
        hint=hint,
    )


def _only_fits(fields: Mapping[str, FieldType], inputs: Mapping[str, FieldType], split: SplitFields) -> dict[str, str]:
    """Return unused fields for inputs without a field, if field and input each fit nothing else."""
    used = {split.inputs.get(name, name) for name in inputs} | {*split.inputs.values()}
    missing = [name for name in inputs if name not in split.inputs and name not in fields]
    pairs = [
        (name, field)
        for name in missing
        for field, kind in fields.items()
        if field not in used and _mismatch(name, field, kind, inputs[name], split, None) is None
    ]
    by_name, by_field = Counter(name for name, _ in pairs), Counter(field for _, field in pairs)
    return {name: field for name, field in pairs if by_name[name] == by_field[field] == 1}


def _holds_all(source: np.dtype[np.generic], target: np.dtype[np.generic]) -> bool:
    """Return whether a conversion needs no check of values. Floats may be rounded."""
    return bool(np.can_cast(source, target, "safe")) or (source.kind == "f" and target.kind == "f")

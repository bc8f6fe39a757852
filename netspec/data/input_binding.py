"""Binds fields of a source to inputs of the net, and checks their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from netspec.data.base import DamagedSamples, FieldType, with_location
from netspec.errors import InputError, Problem, counted, did_you_mean, listing
from netspec.schema.specs.data import SplitFields

if TYPE_CHECKING:
    from netspec.data.base import Array


MOST_ALIKE = 5
"""Number of samples of a batch with the same problem that are listed; the others are counted."""


class ValueRange(NamedTuple):
    """The values that an input may have, both ends included."""

    low: float
    high: float
    why: str
    """Reason for messages, e.g. "`logits` has 10 classes"."""
    also: tuple[float, ...] = ()
    """Values outside of the range that are allowed too."""

    def __str__(self) -> str:
        return " or ".join([f"{self.low} to {self.high}", *map(str, self.also)])

    def contains(self, values: Array) -> Array:
        """Return which of the values are allowed."""
        within = (values >= self.low) & (values <= self.high)
        for value in self.also:
            within |= values == value
        return within


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

    def convert(
        self, values: Array, indices: Array, describe: Callable[[int], str], into: Array | None = None
    ) -> Array:
        """Convert the values (N, …) to the type of the input, contiguous; into the array `into` if there is one.

        Raises `DamagedSamples` with the samples that the net cannot accept.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # such values are reported below
            if into is None:
                converted = np.asarray(values, self.dtype, order="C")
            else:
                np.copyto(into, values, casting="unsafe")  # as `asarray` does
                converted = into
        if not self.exact:
            low, high = _exact_range(np.dtype(self.dtype))
            fits = (values >= low) & (values <= high)
            if values.dtype.kind == "f" and converted.dtype.kind != "f":
                fits &= values == np.trunc(values)
            self._check(fits, values, indices, describe, self._inexact)
        if converted.dtype.kind == "f":
            self._check(np.isfinite(converted), values, indices, describe, self._not_finite)
        if self.range is not None:
            self._check(self.range.contains(values), values, indices, describe, self._out_of_range)
        return converted

    def _check(
        self,
        good: Array,
        values: Array,
        indices: Array,
        describe: Callable[[int], str],
        problem: Callable[[object, str], Problem],
    ) -> None:
        if good.all():
            return
        bad = ~good.reshape(len(good), -1)
        rows = np.flatnonzero(bad.any(axis=1))
        flat, shown = values.reshape(len(values), -1), rows[:MOST_ALIKE]
        problems: dict[int, list[Problem]] = {int(row): [] for row in rows}
        for row in shown:
            problems[int(row)].append(problem(flat[row, bad[row].argmax()].item(), describe(int(indices[row]))))
        if len(rows) > len(shown):
            more = counted(len(rows) - len(shown), "more sample")
            text = f"`{self.name}`: the same problem in {more} of this batch of {len(bad):,}"
            problems[int(rows[-1])].append(Problem(text))
        raise DamagedSamples(problems)

    def _inexact(self, value: object, sample: str) -> Problem:
        return Problem(f"a value for `{self.name}` does not fit in {self.dtype}", got=f"{value} in {sample}")

    def _not_finite(self, value: object, sample: str) -> Problem:
        return Problem(
            f"a value for `{self.name}` is not a finite {self.dtype}",
            expected="finite numbers: a single non-finite value would make all weights non-finite",
            got=f"{value} in {sample}",
        )

    def _out_of_range(self, value: object, sample: str) -> Problem:
        allowed = self.range or ValueRange(0, 0, "")
        expected = f"{allowed}: {allowed.why}"
        return Problem(f"`{self.name}` is {value}, out of range", expected=expected, got=f"{value} in {sample}")


def _exact_range(target: np.dtype[np.generic]) -> tuple[int, int]:
    """Return the range of integers that a type represents exactly."""
    if target.kind == "f":
        most = 2 ** (np.finfo(target.name).nmant + 1)
        return -most, most
    bounds = np.iinfo(target.name)
    return int(bounds.min), int(bounds.max)


def bind_inputs(
    fields: Mapping[str, FieldType],
    wanted: Mapping[str, FieldType],
    split: SplitFields,
    *,
    ranges: Mapping[str, ValueRange] | None = None,
    known: Collection[str] | None = None,
    non_integer_labels: Mapping[str, Sequence[Problem]] = MappingProxyType({}),
    ragged_examples: Mapping[str, str] = MappingProxyType({}),
) -> tuple[InputBinding, ...]:
    """Bind a field to each input in `wanted`. Raises `InputError` with all that do not match.

    `ragged_examples` describes samples that differ in size. Rows of `non_integer_labels` are reported if the net needs
    integers, or left out one by one.

    `known` are all inputs that the net declares, by default those wanted: renaming any other is an error.
    """
    names = set(wanted) if known is None else {*known, *wanted}
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
    for name, target in wanted.items():
        field = split.inputs.get(name, name)
        problem = _mismatch(name, field, fields, target, split, ragged_examples.get(field))
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
            shape = tuple(size for size in target.shape if size is not None)  # none is None: sizes of the net are known
            exact = _holds_all(np.dtype(fields[field].dtype), np.dtype(target.dtype))
            bindings.append(InputBinding(name, field, shape, target.dtype, exact, (ranges or {}).get(name)))
    if problems:
        raise InputError(problems)
    return tuple(bindings)


def _mismatch(
    name: str,
    field: str,
    fields: Mapping[str, FieldType],
    target: FieldType,
    split: SplitFields,
    sizes: str | None,
) -> Problem | None:
    renamed = name in split.inputs
    path = ("inputs", name) if renamed else ("source",)
    where, dotted = split.where(*path), ".".join(path)
    if field not in fields:
        hint = did_you_mean(field, fields) if renamed else f"name the field that feeds it: `inputs: {{{name}: …}}`"
        return Problem(
            f"the source has no field `{field}`"
            if renamed
            else f"the source has no field for the net's input `{name}`",
            where,
            dotted,
            expected=f"one of {listing(list(fields))}" if renamed else f"a field `{name}`: {target}",
            got=None if renamed else ", ".join(f"`{name_there}`: {kind}" for name_there, kind in fields.items()),
            hint=hint,
        )
    source_type = fields[field]
    if source_type.ragged:
        return Problem(
            f"the samples of `{field}` differ in size",
            where,
            dotted,
            expected=f"{target}, as the net's input `{name}` declares",
            got=f"{source_type} from the source",
            hint="add a transform that gives all of them one size: Resizing, RandomResizedCrop, CenterCrop or Padding",
            notes=() if sizes is None else (sizes,),
        )
    if source_type.shape != target.shape:
        # A first size of 1 is more likely the channel of a grey image.
        first = target.shape[0] if target.shape else None
        batched = source_type.shape == target.shape[1:] and first is not None and (first > 1 or len(target.shape) > 3)
        shape = f"`{name}: {{shape: {list(source_type.shape)}}}`"
        return Problem(
            f"`{field}` has a different shape from the net's input `{name}`",
            where,
            dotted,
            expected=f"{target}, as the net declares",
            got=f"{source_type} from the source",
            hint=f"the batch axis is left out in the net: declare {shape}"
            if batched
            else f"declare {shape} in the net, or change the data",
        )
    source_kind, target_kind = np.dtype(source_type.dtype).kind, np.dtype(target.dtype).kind
    if (target_kind in "iu" and source_kind == "f") or (target_kind == "b" and source_kind != "b"):
        return Problem(
            f"`{field}` cannot feed the net's input `{name}` without loss",
            where,
            dotted,
            expected=f"{target}, as the net declares",
            got=f"{source_type} from the source",
            hint=f"if these are class numbers, write them as integers (2, not 2.5) in every row of the data; "
            f"if not, declare `{name}: {{dtype: float32}}` and use a loss for real numbers such as MeanSquaredError"
            if source_kind == "f" and not target.shape
            else f"declare `{name}` with `dtype: {'float32' if source_kind == 'f' else source_type.dtype}` in the net",
        )
    return None


def _holds_all(source: np.dtype[np.generic], target: np.dtype[np.generic]) -> bool:
    """Return whether a conversion needs no check of values. Floats may be rounded."""
    return bool(np.can_cast(source, target, "safe")) or (source.kind == "f" and target.kind == "f")

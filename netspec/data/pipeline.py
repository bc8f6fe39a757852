"""A split's samples as its transforms leave them, and what the training split teaches the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import DamagedSamples, Dataset, FieldType, SampleKeys, Transform, blamed_on
from netspec.data.uint8_lut import MOST_CUT, Late, table_of_bytes
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.schema.specs.data import SplitFields

if TYPE_CHECKING:
    from netspec.data.base import Array, Raw, Samples

CHUNK, CHUNK_VALUES = 1024, 2**24
"""Most samples at a time when values are learned, and most numbers of a field. The batch size does not count, so that
the result does not depend on it."""


@dataclass(frozen=True)
class Learned:
    """What the training split settles for all splits. Plain data, so that a checkpoint can hold it."""

    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The class names of each label field: a label must mean the same in every split."""
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values that transforms compute from data, by `<type> <field> <number>`."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """What the source itself learned: `Dataset.learned`."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON data."""
        classes = {name: list(found) for name, found in self.classes.items()}
        values = {key: dict(found) for key, found in self.values.items()}
        return {"classes": classes, "values": values, "source": dict(self.source)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Learned:
        """The inverse of `as_json`."""
        return cls(classes=data["classes"], values=data["values"], source=data.get("source", {}))


@dataclass(frozen=True)
class _Step:
    transform: Transform
    name: str
    """The field that it changes."""
    stage: int
    """Its place in the list."""


@dataclass(frozen=True)
class _Part:
    """A step of which only the places are found here."""

    step: _Step
    before: FieldType
    places: str
    """The field for these."""


class Pipeline:
    """The samples of `dataset` after the transforms of `split`.

    Without `learned` this is the training split, whose samples settle what is to be learned; all others are given what
    it learned. Raises InputError with every transform that does not fit the data.
    """

    def __init__(self, dataset: Dataset, split: SplitFields, *, seed: int, learned: Learned | None = None) -> None:
        self._dataset = dataset
        self._split = split
        self._seed = seed
        self._steps: list[_Step] = []
        self._mixed: list[_Step] = []
        self._postponed: list[_Step] = []
        self._parts: list[_Part] = []
        self._raw = dict(dataset.fields)
        self.fields: dict[str, FieldType] = dict(dataset.fields)
        self.samples = min(len(dataset), split.limit or len(dataset))
        if not self.samples:
            raise InputError("the data has no samples", location=split.where("source"), path="source")
        if learned is not None:
            _check_classes(dataset, split, learned)
        values: dict[str, Mapping[str, Any]] = {}
        self._add_transforms(split, learned, values)
        self.learned = learned or Learned(dict(dataset.classes), values, dict(dataset.learned))

    def _add_transforms(
        self, split: SplitFields, learned: Learned | None, values: dict[str, Mapping[str, Any]]
    ) -> None:
        problems: list[Problem] = []
        seen: Counter[str] = Counter()
        for number, spec in enumerate(split.transforms):
            try:
                with blamed_on(split, "transforms", number):
                    transform = _as_transform(spec).of_classes(self._classes(learned))
                    name = self._field_of(transform)
                    if transform.needs_data:
                        kind = f"{type(transform).__name__} {name}"
                        key = f"{kind} {seen[kind]}"
                        seen[kind] += 1
                        # Learning reads all the data: not worth its time once something is known to be wrong.
                        values[key] = {} if problems else self._values(transform, name, key, learned)
                        transform = transform.model_copy(update=dict(values[key]))
                    if transform.mixes:
                        transform = transform.model_copy(update={"apply_to": name})
                        self.fields = transform.infer_fields(self.fields)
                    else:
                        self.fields[name] = transform.infer(self.fields[name])
                    steps = self._mixed if transform.mixes or self._mixed else self._steps
                    steps.append(_Step(transform, name, number))
            except InputError as error:
                problems += error.problems
        if problems:
            raise InputError(problems)

    def _classes(self, learned: Learned | None) -> dict[str, Sequence[str]]:
        """The classes of each field that still holds their numbers."""
        known = {**self._dataset.classes, **({} if learned is None else learned.classes)}
        return {name: found for name, found in known.items() if name in self.fields and not self.fields[name].shape}

    def _field_of(self, transform: Transform) -> str:
        name = transform.apply_to
        if name is None:
            for name, kind in self._raw.items():
                if transform.takes(kind):
                    return name
            raise InputError(
                "the source has no field to change",
                expected=f"{transform.changes}, or `apply_to`",
                got=", ".join(f"`{name}`: {kind}" for name, kind in self._raw.items()),
            )
        if name not in self.fields:
            raise InputError(
                f"the source has no field `{name}`",
                location=transform.where("apply_to"),
                path="apply_to",
                expected=f"one of {listing(list(self.fields))}",
                hint=did_you_mean(name, self.fields),
            )
        return name

    def _values(self, transform: Transform, name: str, key: str, learned: Learned | None) -> Mapping[str, Any]:
        if learned is None:
            return transform.learn(self.fields[name], self._chunks(name))
        if key not in learned.values:
            raise InputError(
                f"{type(transform).__name__} has no values to use: the training split learns none for `{name}`",
                expected="the same transform in the training split",
                got=f"values for {listing(list(learned.values))}" if learned.values else "nothing learned",
            )
        return learned.values[key]

    def _chunks(self, name: str) -> Iterator[Samples]:
        size, found = self._chunk_size(name), 0
        for start in range(0, self.samples, size):
            indices = np.arange(start, min(start + size, self.samples))
            for chunk in self._usable(indices):
                found += len(chunk[name])
                yield chunk[name]
        if not found:
            raise InputError("the data has no sample that can be used")

    def _chunk_size(self, name: str) -> int:
        """How many samples at a time: of images as large as a screen, few."""
        return max(1, min(CHUNK, CHUNK_VALUES // max(1, prod(size or 1024 for size in self.fields[name].shape))))

    def _usable(self, indices: Array) -> Iterator[Mapping[str, Samples]]:
        """The samples, without those that are damaged where these are to be left out."""
        while len(indices):
            try:
                yield self.read(indices, epoch=0)
                return
            except DamagedSamples as error:
                if self._split.on_error != "skip":
                    raise
                indices = np.delete(indices, list(error.rows))

    @property
    def transforms(self) -> list[tuple[str, Transform]]:
        """The transforms in order, learned values filled in, each with the name of the field that it changes."""
        parts = [one.step for one in self._parts]
        steps = sorted((*self._steps, *self._postponed, *parts, *self._mixed), key=lambda step: step.stage)
        return [(step.name, step.transform) for step in steps]

    @property
    def mixes(self) -> bool:
        """Whether samples of a batch are mixed with each other, so that only whole batches can be finished."""
        return bool(self._mixed)

    def postpone(self, name: str) -> Late | None:
        """Leave to whoever takes the batches what makes float32 of single bytes, where only moves come after it.

        Parts that were taken of images just before are left, too. None where nothing can be left.
        """
        own = [step for step in self._steps if step.name == name]
        others = [at for at, step in enumerate(own) if not (step.transform.pointwise or step.transform.moves)]
        first = max(others, default=-1) + 1
        late = [step for step in own[first:] if step.transform.pointwise]
        before = self._inferred(name, own[:first])
        if self._mixed or not late or before.ragged or before.dtype != "uint8" or self.fields[name].dtype != "float32":
            return None
        table = table_of_bytes(before, [step.transform for step in late])
        if table is None:
            return None
        own = [step for step in own if step not in late]
        parts = self._parts_of(name, own)
        own = own[: len(own) - len(parts)]
        self._postponed += late
        self._parts += parts
        self._steps = [step for step in self._steps if step.name != name or step in own]
        self.fields[name] = self._inferred(name, own)
        for one in parts:
            self.fields[one.places] = FieldType((4,), "int32")
        sizes = tuple(found for one in parts if (found := one.step.transform.crops(one.before)) is not None)
        shape = tuple(size for size in self.fields[name].shape if size is not None)
        return Late(table, shape, sizes, tuple(one.places for one in parts))

    def _parts_of(self, name: str, own: Sequence[_Step]) -> list[_Part]:
        """The last steps of a field of which the places are enough; none where they leave little of the images."""
        found: list[_Part] = []
        most = MOST_CUT * prod(size or 1 for size in self._inferred(name, own).shape)
        for number in reversed(range(len(own))):
            before = self._inferred(name, own[:number])
            if before.ragged or before.dtype != "uint8" or prod(size or 1 for size in before.shape) > most:
                break
            if own[number].transform.crops(before) is None:
                break
            found.insert(0, _Part(own[number], before, f"{name}/part{number}"))
        return found

    def _inferred(self, name: str, steps: Sequence[_Step]) -> FieldType:
        """Apply the first steps of a field."""
        field = self._raw[name]
        for step in steps:
            field = step.transform.infer(field)
        return field

    def read(self, indices: Array, epoch: int) -> Mapping[str, Samples]:
        """The samples at `indices` (N,) as they are in `epoch`, as a batch of their own.

        Raises DamagedSamples, placed at the split, with every sample that turns out to be damaged.
        """
        changed = self.changed(self.unchanged(indices), indices, epoch)
        self.check_mixed(changed, indices)
        return self.finished(changed, indices, epoch)

    def raw(self, indices: Array) -> Mapping[str, Samples]:
        """The samples at `indices` as the source gives them."""
        with blamed_on(self._split, "source"):
            return self._dataset.read(indices)

    def unchanged(self, indices: Array) -> Mapping[str, Raw]:
        """As `raw`, but for `changed` alone: images may stay Pillow's where the first transform takes such."""
        firsts = {step.name: step.transform for step in reversed(self._steps)}
        pictures = {name for name, transform in firsts.items() if transform.takes_pictures}
        with blamed_on(self._split, "source"):
            return self._dataset.read_raw(indices, pictures)

    def changed(self, batch: Mapping[str, Raw], indices: Array, epoch: int) -> Mapping[str, Samples]:
        """What becomes of samples one by one, whatever else is in the batch: all but what `finished` does."""
        made: dict[str, Any] = dict(batch)  # pictures only where the first transform takes them
        for step in self._steps:
            keys = SampleKeys(self._seed, epoch, indices, step.stage)
            with self._blamed(step, indices):
                made[step.name] = step.transform.apply(made[step.name], keys)
        for one in self._parts:
            made[one.places] = one.step.transform.places(
                one.before, SampleKeys(self._seed, epoch, indices, one.step.stage)
            )
        return made

    @contextmanager
    def _blamed(self, step: _Step, indices: Array) -> Iterator[None]:
        """Give problems their place in the spec, and those of samples the names of the samples."""
        with blamed_on(self._split, "transforms", step.stage):
            try:
                yield
            except DamagedSamples as error:
                raise DamagedSamples(
                    {row: self._named(found, indices[row]) for row, found in error.rows.items()}
                ) from None

    def _named(self, found: Sequence[Problem], index: int) -> list[Problem]:
        where = f"in {self.describe(int(index))}"
        return [replace(one, got=f"{one.got} {where}" if one.got else where) for one in found]

    def check_mixed(self, batch: Mapping[str, Samples], indices: Array) -> None:
        """Raise DamagedSamples with the samples that would spoil those that they are mixed with."""
        for step in self._mixed[:1]:
            with self._blamed(step, indices):
                step.transform.check_fields(batch)

    def finished(self, batch: Mapping[str, Samples], indices: Array, epoch: int) -> Mapping[str, Samples]:
        """The transforms from the first one on that mixes samples, on a whole batch."""
        for step in self._mixed:
            keys = SampleKeys(self._seed, epoch, indices, step.stage)
            with self._blamed(step, indices):
                if step.transform.mixes:
                    batch = step.transform.apply_fields(batch, keys)
                else:
                    batch = {**batch, step.name: step.transform.apply(batch[step.name], keys)}
        return batch

    def describe(self, index: int) -> str:
        """Where a sample comes from."""
        return self._dataset.describe(index)


def _as_transform(spec: object) -> Transform:
    if not isinstance(spec, Transform):
        raise TypeError(f"{type(spec).__name__} is not a data transform")
    return spec


def _check_classes(dataset: Dataset, split: SplitFields, learned: Learned) -> None:
    """A label must mean the same as in training. Raises InputError where it does not."""
    problems = []
    for name, classes in dataset.classes.items():
        trained = learned.classes.get(name)
        if trained is None or tuple(trained) == tuple(classes):
            continue
        missing, foreign = sorted(set(trained) - set(classes)), sorted(set(classes) - set(trained))
        facts = [f"lacks {listing(missing, 5)}"] * bool(missing) + [f"has also {listing(foreign, 5)}"] * bool(foreign)
        problems.append(
            Problem(
                f"the classes of `{name}` are not those of the training split",
                split.where("source"),
                path="source",
                expected=listing(list(trained), 10),
                got="; ".join(facts) or "the same classes in another order",
                hint="declare the same `classes` in both splits",
            )
        )
    if problems:
        raise InputError(problems)

"""A split's samples as its transforms leave them, and what the training split teaches the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Dataset, FieldType, SampleKeys, Transform, blamed_on
from netspec.errors import InputError, Problem, did_you_mean, listing
from netspec.schema.data import SplitFields

if TYPE_CHECKING:
    from netspec.data.base import Array

CHUNK = 1024
"""Samples at a time when values are learned; fixed, so that the result does not depend on the batch size."""


@dataclass(frozen=True)
class Learned:
    """What the training split settles for all splits. Plain data, so that a checkpoint can hold it."""

    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The class names of each label field: a label must mean the same in every split."""
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values of transforms that are computed from data, by `<type> <field> <number>`."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON data."""
        classes = {name: list(found) for name, found in self.classes.items()}
        return {"classes": classes, "values": {key: dict(values) for key, values in self.values.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Learned:
        """The inverse of `as_json`."""
        return cls(classes=data["classes"], values=data["values"])


@dataclass(frozen=True)
class _Step:
    transform: Transform
    name: str
    """The field that it changes."""


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
        self._raw = dict(dataset.fields)
        self.fields: dict[str, FieldType] = dict(dataset.fields)
        self.samples = min(len(dataset), split.limit or len(dataset))
        if not self.samples:
            raise InputError("the data has no samples", location=split.where("source"), path="source")
        if learned is not None:
            _check_classes(dataset, split, learned)
        values: dict[str, Mapping[str, Any]] = {}
        self._add_transforms(split, learned, values)
        self.learned = learned or Learned(dict(dataset.classes), values)

    def _add_transforms(
        self, split: SplitFields, learned: Learned | None, values: dict[str, Mapping[str, Any]]
    ) -> None:
        problems: list[Problem] = []
        seen: Counter[str] = Counter()
        for number, spec in enumerate(split.transforms):
            try:
                with blamed_on(split, "transforms", number):
                    transform = _as_transform(spec)
                    name = self._field_of(transform)
                    if transform.needs_data:
                        kind = f"{type(transform).__name__} {name}"
                        key = f"{kind} {seen[kind]}"
                        seen[kind] += 1
                        # Learning reads all the data: not worth its time once something is known to be wrong.
                        values[key] = {} if problems else self._values(transform, name, key, learned)
                        transform = transform.model_copy(update=dict(values[key]))
                    self.fields[name] = transform.infer(self.fields[name])
                    self._steps.append(_Step(transform, name))
            except InputError as error:
                problems += error.problems
        if problems:
            raise InputError(problems)

    def _field_of(self, transform: Transform) -> str:
        name = transform.apply_to
        if name is None:
            for name, kind in self._raw.items():
                if kind.shape and (kind.dtype == "uint8" or kind.dtype.startswith("float")):
                    return name
            raise InputError(
                "the source has no field to change",
                expected="a field of uint8 or floating values that is not a single number, or `apply_to`",
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

    def _chunks(self, name: str) -> Iterator[Array]:
        for start in range(0, self.samples, CHUNK):
            yield self.read(np.arange(start, min(start + CHUNK, self.samples)), epoch=0)[name]

    @property
    def transforms(self) -> list[tuple[str, Transform]]:
        """The transforms in order, learned values filled in, each with the name of the field that it changes."""
        return [(step.name, step.transform) for step in self._steps]

    def read(self, indices: Array, epoch: int) -> dict[str, Array]:
        """The samples at `indices` (N,), each field (N, *shape), as they are in `epoch`.

        Raises InputError, placed at the split, with every sample that turns out to be damaged.
        """
        with blamed_on(self._split, "source"):
            batch = self._dataset.read(indices)
        for stage, step in enumerate(self._steps):
            keys = SampleKeys(self._seed, epoch, indices, stage)
            batch[step.name] = step.transform.apply(batch[step.name], keys)
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

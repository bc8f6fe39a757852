"""The samples of a split after its transforms, and the values that the training split learns for all splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import (
    Array,
    DamagedSamples,
    Dataset,
    FieldType,
    Raw,
    RejectedSamples,
    SampleKeys,
    Samples,
    Transform,
    hint_at_skip,
    located_at,
)
from netspec.data.imaging.annotations import ImageAnnotations
from netspec.data.uint8_lut import MAX_CROP_RATIO, DeferredDecode, lookup_table
from netspec.errors import InputError, Problem, listing
from netspec.schema.specs.data import SplitFields

if TYPE_CHECKING:
    from netspec.data.tabular.encodings import ColumnEncoding

CHUNK, CHUNK_VALUES = 1024, 2**24
"""Maximum number of samples, and of values of a field, that are processed at a time when values are learned.
Independent of the batch size, so that the result is too."""


@dataclass(frozen=True)
class Learned:
    """Values of the training split that all splits use. Plain data, so that a checkpoint can store it."""

    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The class names of each label field. A label must mean the same in every split."""
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values that transforms compute from data, by `TYPE FIELD NUMBER`."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """Values that the source itself learned: `Dataset.learned`."""

    def as_json(self) -> dict[str, Any]:
        """Return the values as plain JSON data."""
        classes = {name: list(names) for name, names in self.classes.items()}
        values = {key: dict(fields) for key, fields in self.values.items()}
        return {"classes": classes, "values": values, "source": dict(self.source)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Learned:
        """Return the inverse of `as_json`."""
        return cls(classes=data["classes"], values=data["values"], source=data.get("source", {}))


@dataclass(frozen=True)
class TransformStep:
    """A transform of one field."""

    transform: Transform
    name: str
    """The field that the transform changes."""
    stage: int
    """Index of the transform in the list."""


@dataclass(frozen=True)
class _DeferredCrop:
    """A crop whose positions are computed here, and which is done later."""

    step: TransformStep
    before: FieldType
    position_field: str
    """The field of the positions."""


class TransformPipeline:
    """The samples of `dataset` after the transforms of `split`.

    Without `learned` this is the training split, from whose samples values are learned; all other splits receive these
    values. Raises `InputError` with all transforms that do not fit the data.
    """

    def __init__(self, dataset: Dataset, split: SplitFields, *, seed: int, learned: Learned | None = None) -> None:
        self._dataset = dataset
        self._split = split
        self._seed = seed
        self._steps: list[TransformStep] = []
        self._mixed: list[TransformStep] = []
        self._postponed: list[TransformStep] = []
        self._parts: list[_DeferredCrop] = []
        self._annotations = ImageAnnotations(dataset.annotations)
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
        occurrences: Counter[str] = Counter()
        for number, spec in enumerate(split.transforms):
            try:
                with located_at(split, "transforms", number):
                    declared = self._declared(spec)
                    if declared is None:
                        continue
                    with _paths_below("transforms", number):
                        transform = declared.with_classes(self._classes(learned))
                        name = self._field_of(transform)
                        if transform.needs_data:
                            transform.infer(self.fields[name])  # fails before all data is read
                    if transform.needs_data:
                        kind = f"{type(transform).__name__} {name}"
                        key = f"{kind} {occurrences[kind]}"
                        occurrences[kind] += 1
                        # Learning reads all the data, which is not worth the time once a problem is known.
                        values[key] = {} if problems else self._values(transform, name, key, learned)
                        transform = transform.model_copy(update=dict(values[key]))
                    with _paths_below("transforms", number):
                        self._annotations.check(transform, name)
                        if transform.mixes:
                            transform = transform.model_copy(update={"apply_to": name})
                            self.fields = transform.infer_fields(self.fields)
                        else:
                            self.fields[name] = transform.infer(self.fields[name])
                            self.fields |= self._annotations.inferred(transform, name, self.fields)
                    steps = self._mixed if transform.mixes or self._mixed else self._steps
                    steps.append(TransformStep(transform, name, number))
            except InputError as error:
                problems += error.problems
        if problems:
            raise InputError(problems)

    def _declared(self, spec: object) -> Transform | None:
        """Return the transform that the spec describes; without augmentation, that for evaluation."""
        transform = _as_transform(spec)
        return transform if self._split.augments else transform.for_evaluation(self.fields)

    def _classes(self, learned: Learned | None) -> dict[str, Sequence[str]]:
        """Return the class names of each field that still holds class numbers."""
        classes = {**self._dataset.classes, **({} if learned is None else learned.classes)}
        return {name: names for name, names in classes.items() if name in self.fields and not self.fields[name].shape}

    def _field_of(self, transform: Transform) -> str:
        name = transform.apply_to
        if name is None:
            for name, kind in self._raw.items():
                if transform.accepts(kind):
                    return name
            raise InputError(
                "the source has no field that this transform can change",
                expected=f"{transform.changes}, or `apply_to`",
                got=", ".join(f"`{name}`: {kind}" for name, kind in self._raw.items()),
            )
        if name not in self.fields:
            raise InputError(transform.missing_field_problem("apply_to", name, self.fields))
        return name

    def _values(self, transform: Transform, name: str, key: str, learned: Learned | None) -> Mapping[str, Any]:
        if learned is None:
            return transform.learn(self.fields[name], self._chunks(name))
        if key not in learned.values:
            raise InputError(
                f"{type(transform).__name__} has no values for `{name}`: the training split does not learn any",
                expected="the same transform in the training split",
                got=f"values for {listing(list(learned.values))}" if learned.values else "nothing learned",
            )
        return learned.values[key]

    def _chunks(self, name: str) -> Iterator[Samples]:
        size, samples = self._chunk_size(name), 0
        for start in range(0, self.samples, size):
            indices = np.arange(start, min(start + size, self.samples))
            for chunk in self._usable(indices):
                samples += len(chunk[name])
                yield chunk[name]
        if not samples:
            raise InputError("the data has no usable sample")

    def _chunk_size(self, name: str) -> int:
        """Return the number of samples to read at a time: only a few for large images."""
        return max(1, min(CHUNK, CHUNK_VALUES // max(1, prod(size or 1024 for size in self.fields[name].shape))))

    def _usable(self, indices: Array) -> Iterator[Mapping[str, Samples]]:
        """Yield the samples, without damaged ones if the split skips them."""
        while len(indices):
            try:
                yield self.read(indices, epoch=0)
                return
            except DamagedSamples as error:
                with hint_at_skip(self._split):
                    if self._split.on_error != "skip":
                        raise
                indices = np.delete(indices, list(error.rows))

    @property
    def transforms(self) -> list[tuple[str, Transform]]:
        """The transforms in order, with learned values, each with the name of the field that it changes."""
        parts = [crop.step for crop in self._parts]
        steps = sorted((*self._steps, *self._postponed, *parts, *self._mixed), key=lambda step: step.stage)
        return [(step.name, step.transform) for step in steps]

    @property
    def source_fields(self) -> Mapping[str, FieldType]:
        """The fields before all transforms, by name."""
        return self._raw

    @property
    def mixes(self) -> bool:
        """Whether samples of a batch are mixed, so that transforms can only be finished for whole batches."""
        return bool(self._mixed)

    def defer_decode(self, name: str) -> DeferredDecode | None:
        """Leave to the device the conversion of uint8 values to float32, if only moves of values follow it.

        The crops just before the conversion are left to it as well. Returns None if nothing can be deferred.
        """
        steps = [step for step in self._steps if step.name == name]
        others = [
            at for at, step in enumerate(steps) if not (step.transform.pointwise or step.transform.only_moves_values)
        ]
        first = max(others, default=-1) + 1
        late = [step for step in steps[first:] if step.transform.pointwise]
        before = self._inferred(name, steps[:first])
        if self._mixed or not late or before.ragged or before.dtype != "uint8" or self.fields[name].dtype != "float32":
            return None
        table = lookup_table(before, [step.transform for step in late])
        if table is None:
            return None
        steps = [step for step in steps if step not in late]
        parts = self._parts_of(name, steps)
        steps = steps[: len(steps) - len(parts)]
        self._postponed += late
        self._parts += parts
        self._steps = [step for step in self._steps if step.name != name or step in steps]
        self.fields[name] = self._inferred(name, steps)
        for crop in parts:
            self.fields[crop.position_field] = FieldType((4,), "int32")
        sizes = tuple(size for crop in parts if (size := crop.step.transform.crop_size(crop.before)) is not None)
        shape = tuple(size for size in self.fields[name].shape if size is not None)
        return DeferredDecode(table, shape, sizes, tuple(crop.position_field for crop in parts))

    def _parts_of(self, name: str, steps: Sequence[TransformStep]) -> list[_DeferredCrop]:
        """Return the last steps of a field as crops to defer; none if the crops are much smaller than the images."""
        crops: list[_DeferredCrop] = []
        if self._annotations.of(name):
            return crops  # a crop on the device would not move them
        most = MAX_CROP_RATIO * prod(size or 1 for size in self._inferred(name, steps).shape)
        for number in reversed(range(len(steps))):
            before = self._inferred(name, steps[:number])
            if before.ragged or before.dtype != "uint8" or prod(size or 1 for size in before.shape) > most:
                break
            if steps[number].transform.crop_size(before) is None:
                break
            crops.insert(0, _DeferredCrop(steps[number], before, f"{name}/part{number}"))
        return crops

    def _inferred(self, name: str, steps: Sequence[TransformStep]) -> FieldType:
        """Return the type of a field after its first steps."""
        field = self._raw[name]
        for step in steps:
            field = step.transform.infer(field)
        return field

    def read(self, indices: Array, epoch: int) -> Mapping[str, Samples]:
        """Return the samples at `indices` (N,) as they are in `epoch`, as a separate batch.

        Raises `RejectedSamples`, located in the split, with every sample that cannot be used.
        """
        changed = self.transform_samples(self.read_raw(indices), indices, epoch)
        self.check_mixed(changed, indices)
        return self.transform_batch(changed, indices, epoch)

    def raw(self, indices: Array) -> Mapping[str, Samples]:
        """Return the samples at `indices` as the source returns them."""
        with located_at(self._split, "source"):
            return self._dataset.read(indices)

    def read_raw(self, indices: Array) -> Mapping[str, Raw]:
        """Return the samples for `transform_samples`: Pillow images if the first transform accepts these."""
        firsts = {step.name: step.transform for step in reversed(self._steps)}
        pillow_fields = {name for name, transform in firsts.items() if transform.accepts_pillow_images}
        with located_at(self._split, "source"):
            return self._dataset.read_raw(indices, pillow_fields)

    def transform_samples(self, batch: Mapping[str, Raw], indices: Array, epoch: int) -> Mapping[str, Samples]:
        """Apply the transforms that treat each sample separately: those before the ones of `transform_batch`."""
        fields: dict[str, Any] = dict(batch)  # Pillow images only for transforms that accept them
        for step in self._steps:
            keys = SampleKeys(self._seed, epoch, indices, step.stage)
            with self._located_at(step, indices):
                before = fields[step.name]
                fields[step.name] = step.transform.apply(before, keys)
                fields |= self._annotations.moved(step.transform, step.name, before, fields, keys)
        for crop in self._parts:
            fields[crop.position_field] = crop.step.transform.crop_positions(
                crop.before, SampleKeys(self._seed, epoch, indices, crop.step.stage)
            )
        return fields

    @contextmanager
    def _located_at(self, step: TransformStep, indices: Array) -> Iterator[None]:
        """Add the location in the spec to problems, and the names of the rejected samples."""
        with located_at(self._split, "transforms", step.stage):
            try:
                yield
            except RejectedSamples as error:
                raise type(error)(
                    {row: self._named(problems, indices[row]) for row, problems in error.rows.items()}
                ) from None

    def _named(self, problems: Sequence[Problem], index: int) -> list[Problem]:
        where = f"in {self.describe(int(index))}"
        return [replace(problem, got=f"{problem.got} {where}" if problem.got else where) for problem in problems]

    def check_mixed(self, batch: Mapping[str, Samples], indices: Array) -> None:
        """Raise `RejectedSamples` with the samples that would spoil those that they are mixed with."""
        for step in self._mixed[:1]:
            with self._located_at(step, indices):
                step.transform.check_fields(batch)

    def transform_batch(self, batch: Mapping[str, Samples], indices: Array, epoch: int) -> Mapping[str, Samples]:
        """Apply the first transform that mixes samples and all after it, to a whole batch."""
        for step in self._mixed:
            keys = SampleKeys(self._seed, epoch, indices, step.stage)
            with self._located_at(step, indices):
                if step.transform.mixes:
                    batch = step.transform.apply_fields(batch, keys)
                else:
                    batch = {**batch, step.name: step.transform.apply(batch[step.name], keys)}
        return batch

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""
        return self._dataset.describe(index)

    @property
    def column_ranges(self) -> Mapping[str, tuple[str, int, int]]:
        """For a table: the field of each column, and the range of its elements in a sample of that field."""
        return self._dataset.column_ranges

    @property
    def column_encodings(self) -> Mapping[str, tuple[ColumnEncoding | None, ...]]:
        """For a table: how the columns of each field are encoded."""
        return self._dataset.column_encodings

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return what identifies a sample in a list of predictions."""
        return self._dataset.identify(index)


@contextmanager
def _paths_below(*path: str | int) -> Iterator[None]:
    """Make the paths of problems, which are fields of the value at `path`, paths in the split."""
    try:
        yield
    except InputError as error:
        above = ".".join(map(str, path))
        raise InputError(
            [
                replace(problem, path=f"{above}.{problem.path}") if problem.path else problem
                for problem in error.problems
            ]
        ) from None


def _as_transform(spec: object) -> Transform:
    if not isinstance(spec, Transform):
        raise TypeError(f"{type(spec).__name__} is not a data transform")
    return spec


def _check_classes(dataset: Dataset, split: SplitFields, learned: Learned) -> None:
    """Check that labels mean the same as in training. Raises `InputError` if they do not."""
    problems = []
    for name, classes in dataset.classes.items():
        trained = learned.classes.get(name)
        if trained is None or tuple(trained) == tuple(classes):
            continue
        missing, foreign = sorted(set(trained) - set(classes)), sorted(set(classes) - set(trained))
        facts = [f"lacks {listing(missing, 5)}"] * bool(missing) + [f"also has {listing(foreign, 5)}"] * bool(foreign)
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

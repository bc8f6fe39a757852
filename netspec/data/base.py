"""Interfaces of `netspec.data`: a `Source` opens a `Dataset`; a `Transform` changes one field of its samples.

This module does not import NumPy, so that a spec with sources and transforms is checked without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field

from netspec.errors import InputError, NetspecError, Problem, did_you_mean, listing
from netspec.files.damage import refuse_damage
from netspec.schema.specs.data import SplitFields
from netspec.schema.specs.paths import files_named_in
from netspec.schema.specs.spec import Spec, problem

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.random import Generator
    from numpy.typing import NDArray

    from netspec.data.imaging.annotations import Annotation
    from netspec.data.imaging.arrays import PillowImage
    from netspec.data.tabular.encodings import ColumnEncoding
    from netspec.data.tabular.row_times import RowTimes
    from netspec.data.tabular.sample_rows import SampleRows

    Array: TypeAlias = NDArray[Any]
    Samples: TypeAlias = Array | list[Array]
    """One field of a batch: (N, *shape), or a list of N arrays if the samples differ in size."""
    Raw: TypeAlias = Samples | list[PillowImage]
    """One field as its first transform may receive it: also a list of Pillow images."""
else:
    Array = Samples = Raw = Any

_CHUNK = 1024
"""Number of samples that are read at a time to get one field of all."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class FieldType(NamedTuple):
    """Shape and element type of one field of a sample; no batch axis."""

    shape: tuple[int | None, ...]
    """Sizes of the axes. None if a size differs from sample to sample; a batch of the field is then a list."""
    dtype: str
    """NumPy's name of the element type: `uint8`, `float32`, …"""

    def __str__(self) -> str:
        return f"{self.dtype} of shape [{', '.join('?' if size is None else str(size) for size in self.shape)}]"

    @property
    def ragged(self) -> bool:
        """Whether samples differ in size."""
        return None in self.shape


@dataclass(frozen=True)
class Survey:
    """Facts from the headers and first samples of a source, found in much less time than opening it takes."""

    fields: Mapping[str, FieldType] = field(default_factory=dict)
    """The types of the fields."""
    learned: Collection[str] = ()
    """Fields whose type depends on values that the training split learns from all of its samples."""
    classes: Mapping[str, int] = field(default_factory=dict)
    """The number of classes of each label field for which it is certain."""
    least_classes: Mapping[str, int] = field(default_factory=dict)
    """The number of classes of other label fields so far: there may be more in samples that were not read."""
    columns: Collection[str] = ()
    """Names by which the samples of a table or a list can be divided. Others are divided by their fields."""
    complete: bool = True
    """Whether the samples that were read are those of the split, so that the `learned` fields are certain as well."""
    read: str = ""
    """The part of the files that was read, for messages, if not all: `the first 4,096 rows of train.csv`."""
    annotations: Mapping[str, Annotation] = field(default_factory=dict)
    """Masks and boxes, which transforms move with their image."""
    damaged: Sequence[str] = ()
    """Problems of samples that `on_error: skip` leaves out, with their locations."""
    ragged_examples: Mapping[str, str] = field(default_factory=dict)
    """Description of two samples that differ in size, by field."""
    samples: int | None = None
    """The number of samples before `split` divides them and `limit` cuts them, if it is known."""


class Dataset:
    """Samples that can be read in any order, by several threads at once.

    A foreign exception in `read` or `read_raw` of a subclass becomes `DamagedSamples`.
    """

    fields: Mapping[str, FieldType]
    """The fields of a sample, by name."""
    classes: Mapping[str, tuple[str, ...]] = _NOTHING
    """The class names of each label field that has them: the label `i` means `classes[field][i]`."""
    digest: str
    """Fingerprint of the samples, which changes with the data."""
    learned: Mapping[str, Any] = _NOTHING
    """Values of the training split that all splits use (vocabularies, statistics of columns), as plain JSON data."""
    skipped: int = 0
    """Number of damaged samples that were left out when the source was opened with `on_error: skip`."""
    damaged: Sequence[str] = ()
    """Problems of the first few damaged samples, with their locations."""
    unusable: Mapping[int, str] = MappingProxyType({})
    """For files of a list that `split` divides: the problems of samples that their part leaves out, by index."""
    rows_without: Mapping[str, Sequence[int]] = _NOTHING
    """For a table: the rows, counted from 0, that `missing: drop` leaves out, by the first column without a value."""
    rows_without_key: Mapping[str, Sequence[int]] = _NOTHING
    """For rows with keys: those, counted from 0, without the key of a column, whose value is then missing."""
    unknown_values: Mapping[str, Mapping[str, int]] = _NOTHING
    """For a table: the values that the training data does not have, with numbers of rows, by column."""
    non_integer_labels: Mapping[str, Sequence[Problem]] = _NOTHING
    """Problems of rows whose values are not integers, by label field, for nets that require integers."""
    ragged_examples: Mapping[str, str] = _NOTHING
    """Description of two samples that differ in size, by field."""
    columns: Mapping[str, Array] = _NOTHING
    """For files of a list: the values of its columns by which `split` divides the samples, (N,), by name."""
    column_ranges: Mapping[str, tuple[str, int, int]] = _NOTHING
    """For a table: the field of each column, and the range of its elements on the last axis of that field."""
    column_encodings: Mapping[str, tuple[ColumnEncoding | None, ...]] = _NOTHING
    """For a table: how the columns of each field are encoded, in their order; None if that is not plain data."""
    source_rows: SampleRows | None = None
    """For a table: its rows as they are in the file."""
    row_times: RowTimes | None = None
    """For windows of a table that is not the training data: the times of its rows, if they are known."""
    vocabulary_sizes: Mapping[str, int] = _NOTHING
    """Number of tokens of the tokenizer, for each field of tokens."""
    annotations: Mapping[str, Annotation] = _NOTHING
    """Rules by which fields that belong to positions in an image (masks, boxes) follow its transforms, by field."""
    window: int | None = None
    """For a stream, the number of samples that it can hold. One thread reads a stream, window by window."""
    block: int = 1
    """Number of consecutive samples that are read together. Shuffle windows keep such blocks together."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in {"read", "read_raw"} & cls.__dict__.keys():
            setattr(cls, name, _guarded_read(cls.__dict__[name]))

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no `__len__`")

    def read(self, indices: Array) -> Mapping[str, Samples]:
        """Return the samples at `indices` (N,), by field. The arrays are never written to again.

        Raises `DamagedSamples` with all rows that cannot be read.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `read`")

    def read_raw(self, indices: Array, pillow_fields: Collection[str]) -> Mapping[str, Raw]:
        """Read samples like `read`, but possibly leave images in the fields `pillow_fields` as Pillow images."""
        return self.read(indices)

    def read_field(self, name: str, indices: Array) -> Samples:
        """Return one field of the samples at `indices`, without reading the others if they are stored separately."""
        return self.read(indices)[name]

    def values_of(self, name: str) -> Array:
        """Return a scalar field of all samples, (N,), for example to divide them by its values."""
        import numpy as np

        chunks = [np.arange(start, min(start + _CHUNK, len(self))) for start in range(0, len(self), _CHUNK)]
        return np.concatenate([np.asarray(self.read(indices)[name]) for indices in chunks])

    def reads_alone(self, name: str) -> bool:
        """Return whether `values_of` and `read_field` read only this field, which is fast if it is small."""
        return False

    def describe(self, index: int) -> str:
        """Return the origin of a sample for error messages: `train.csv, line 13`."""
        raise NotImplementedError(f"{type(self).__name__} has no `describe`")

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return what identifies a sample in a list of predictions: `("file", "a.png")` or `("row", 13)`."""
        return "row", index + 1


class RejectedSamples(InputError):
    """Some requested samples cannot be used."""

    def __init__(self, rows: Mapping[int, Sequence[Problem]]) -> None:
        self.rows = dict(rows)
        """The problems, by row of the requested indices."""
        super().__init__([problem for problems in self.rows.values() for problem in problems])


class DamagedSamples(RejectedSamples):
    """Samples that cannot be read, or have values that are not finite. With `on_error: skip` they are left out."""


class OutOfRangeSamples(RejectedSamples):
    """Samples with labels or tokens that the net does not have: a mistake in the spec, which is never skipped."""


def _guarded_read(read: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that reads samples: if it raises a foreign exception, find the samples that cause it."""

    @wraps(read)
    def guarded(dataset: Dataset, indices: Array, *arguments: Any) -> Any:
        try:
            return read(dataset, indices, *arguments)
        except (NetspecError, ImportError):
            raise
        except Exception:
            rows: dict[int, Sequence[Problem]] = {}
            for row, index in enumerate(indices.tolist()):
                try:
                    with refuse_damage(dataset.describe(index), "a sample that can be read"):
                        read(dataset, indices[row : row + 1], *arguments)
                except InputError as error:
                    rows[row] = error.problems
            if not rows:  # no single sample fails: too little memory for all of them, or a bug
                raise
            raise DamagedSamples(rows) from None

    return guarded


def _distinct(names: list[str]) -> list[str]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise problem("has a class twice", expected="each class once", got=", ".join(map(repr, repeated)))
    return names


ClassNames = Annotated[list[str], Field(min_length=1), AfterValidator(_distinct)]
"""Class names in the order of their indices."""


class Source(SplitFields):
    """Base of data sources: the fields of a source in YAML, and a method that opens it.

    A foreign exception in `open` of a subclass becomes an `InputError` with the file's name.
    """

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Example fields for the reference and the registry-wide tests. Their files need not exist."""

    divides_itself: ClassVar[bool] = False
    """Whether `open` leaves out the samples that `hold_out` gives to other splits, because it learns from the samples.
    Otherwise they are left out afterwards."""

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        super().__pydantic_init_subclass__(**keywords)
        if "open" in cls.__dict__:
            cls.open = _guarded_open(cls.__dict__["open"])  # type: ignore[method-assign]  # same signature

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the source. Raises `InputError` if a file is damaged.

        `seed` is for sources that generate samples. `learned` is the `Dataset.learned` of the training split; None for
        the training split itself.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `open`")

    def with_files(self, paths: Sequence[Path], fields: Collection[str]) -> list[Source]:
        """Return sources of the same kind for other files, of which only `fields` are needed, in their order.

        Empty if the files are of another kind, or if the source does not read files.
        """
        return []

    def file_suffix(self) -> str | None:
        """Return the suffix of a file that `with_files` accepts; None if there is none."""
        return None

    def known_classes(self) -> Mapping[str, int]:
        """Return the number of classes of each label field that is known without reading samples."""
        classes = getattr(self, "classes", None)
        return {"label": len(classes)} if classes else {}

    def classes_without_samples(self) -> Mapping[str, Sequence[str]] | None:
        """Return the class names of each label field without reading samples; None if samples have more to learn.

        Empty if the names are in a folder that does not exist.
        """
        return None

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Return the fields of a sample if the spec alone determines them, to check them before opening files."""
        return None

    def survey(self) -> Survey:
        """Look at the headers and first samples, in less than a second. Raises `InputError` for problems in them.

        By default nothing is read: the result is what the spec alone determines.
        """
        return Survey(self.known_fields() or {}, classes=self.known_classes())

    def check_division(self) -> None:
        """Look at the first samples. Raises `InputError` if `split` cannot divide them. By default nothing is read."""

    def optional_paths(self) -> Collection[str]:
        """Return the fields whose paths need not exist before the source is opened, since opening it makes them."""
        return ()


def _guarded_open(open_: Callable[..., Dataset]) -> Callable[..., Dataset]:
    """Wrap a method that opens a source: a foreign exception becomes an `InputError` that names the source's files.

    Samples that belong to other splits are left out.
    """

    @wraps(open_)
    def guarded(source: Source, **arguments: Any) -> Dataset:
        kind = f"data for the source {type(source).__name__}"
        with refuse_damage(" or ".join(files_named_in(source)) or kind, kind):
            dataset = open_(source, **arguments)
        if source.hold_out is None or source.divides_itself:
            return dataset
        from netspec.data.hold_out import DatasetPart

        with located_at(source, "split"):
            return DatasetPart(dataset, source.hold_out, source.split_name)

    return guarded


@dataclass(frozen=True)
class SampleKeys:
    """Keys of a transform's randomness: seed, epoch and sample, never batch, worker or time."""

    seed: int
    epoch: int
    indices: Array
    """Index in the dataset of each sample of the batch, (N,)."""
    stage: int
    """Position of the transform in its list, so that two equal transforms draw different numbers."""

    def generator(self, row: int) -> Generator:
        """Return a generator for sample `row` of the batch. Its numbers depend on the keys alone."""
        from netspec.data.random import sample_generator

        return sample_generator(self.seed, self.epoch, int(self.indices[row]), self.stage)

    def uniform(self, count: int) -> Array:
        """Return `count` numbers for each sample, (N, count) of float64 in [0, 1). Every call returns the same.

        For whole arrays of noise, `generator` is faster; it draws other numbers.
        """
        from netspec.data.random import sample_uniform

        return sample_uniform(self.seed, self.epoch, self.indices, self.stage, count)


class Transform(Spec):
    """Base of transforms, which change one field of every sample; a transform that `mixes` may change all fields.

    Batches are split into parts that are transformed concurrently: the result for a sample depends only on its values,
    the transform's fields and the keys. Images are (N, C, H, W), possibly transposed views of (N, H, W, C).
    """

    mixes: ClassVar[bool] = False
    """Whether samples of a batch are mixed. If so, `infer_fields` and `apply_fields` are called instead."""

    accepts_pillow_images: ClassVar[bool] = False
    """Whether `apply` accepts Pillow images (`PillowImage`), as the first transform of a field."""

    pointwise: ClassVar[bool] = False
    """Whether each value is transformed separately, by a function that depends on its channel only."""

    positions: ClassVar[Literal["kept", "moved"] | None] = None
    """Effect on positions in an image, which masks and boxes follow: `kept` if only values change, `moved` for an
    `ImageTransform` with `move_points`. None: not known, so images with masks or boxes are refused."""

    @property
    def only_moves_values(self) -> bool:
        """Whether the transform only moves or drops values within a channel, for samples of one size."""
        return False

    def crop_size(self, field: FieldType) -> tuple[int, int, int] | None:
        """Return height, width and padding byte if the transform only crops uint8 images.

        `field` is the type of the images before it, all of one size. `crop_positions` returns the positions.
        """
        return None

    def crop_positions(self, field: FieldType, keys: SampleKeys) -> Array:
        """Return the crops that `apply` makes, if `crop_size` returns a size: (N, 4) of int32.

        Columns: top row, left column, whether to flip vertically, whether to flip horizontally.
        """
        raise NotImplementedError(f"{type(self).__name__} is not a crop")

    random: ClassVar[bool] = False
    """Whether the transform changes samples at random, to augment training data."""

    def for_evaluation(self, fields: Mapping[str, FieldType]) -> Transform | None:
        """Return the transform for samples that are held out from the training split, in place of this one.

        It is the transform itself, None for a `random` one, or another transform that gives samples of the same type.
        `fields` are the types before it.
        """
        return None if self.random else self

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Example fields for the reference and the registry-wide tests."""

    example_split: ClassVar[dict[str, Any] | None] = None
    """Fields of the split in the example of the reference; by default a split of images."""

    apply_to: str | None = None
    """The field of the source to change. By default the first field of uint8 or floating values that is not a single
    number, such as `image` or `features`."""

    changes: ClassVar[str] = "a field of uint8 or floating values that is not a single number"
    """Description of the fields that `accepts` returns True for."""

    def accepts(self, field: FieldType) -> bool:
        """Return whether the transform can change a field. Without `apply_to` it changes the first such field."""
        return bool(field.shape) and (field.dtype == "uint8" or field.dtype.startswith("float"))

    @property
    def needs_data(self) -> bool:
        """Whether values of this transform must be learned from the training split before it can be applied."""
        return False

    def learn(self, field: FieldType, chunks: Iterable[Samples]) -> dict[str, Any]:
        """Return the missing field values, learned from all samples `(N, *shape)` in order, as plain JSON data.

        `infer` has accepted the field before.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `learn`")

    @property
    def needs_classes(self) -> bool:
        """Whether the number of classes must come from the source."""
        return False

    def with_classes(self, classes: Mapping[str, Sequence[str]]) -> Self:
        """Return the transform for a source with these classes. Only labels that are still class numbers are listed."""
        return self

    def missing_field_problem(self, option: str, name: str, fields: Mapping[str, FieldType]) -> Problem:
        """Return the problem for an option that names a field which the samples lack."""
        return Problem(
            f"the source has no field `{name}`", self.where(option), option,
            expected=f"one of {listing(list(fields))}", hint=did_you_mean(name, fields),
        )  # fmt: skip

    def infer(self, field: FieldType) -> FieldType:
        """Return the type of the transformed field. Raises `InputError` if the field cannot be transformed."""
        raise NotImplementedError(f"{type(self).__name__} has no `infer`")

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """Return the transformed field of a batch, a list if samples differ in size. Does not modify `batch`.

        Raises `RejectedSamples` with the rows that cannot be transformed. The caller adds the names of these samples.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `apply`")

    def restore(self, values: Array) -> Array:
        """Undo the transform, for predictions (N, …) of a field that it changed.

        Raises `NotImplementedError` if it cannot be undone.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be undone")

    def infer_fields(self, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
        """Return the types of all fields after a transform that mixes samples."""
        raise NotImplementedError(f"{type(self).__name__} has no `infer_fields`")

    def check_fields(self, batch: Mapping[str, Samples]) -> None:
        """Raise `RejectedSamples` with the rows that must not be mixed with others. By default none."""

    def apply_fields(self, batch: Mapping[str, Samples], keys: SampleKeys) -> dict[str, Samples]:
        """Return all fields of a batch after a transform that mixes samples. Does not modify `batch`."""
        raise NotImplementedError(f"{type(self).__name__} has no `apply_fields`")


def per_sample(batch: Samples, change: Callable[[Array], Array]) -> Samples:
    """Apply `change` to a batch (N, …), or to each sample as a batch of one if the samples differ in size."""
    return [change(sample[None])[0] for sample in batch] if isinstance(batch, list) else change(batch)


@contextmanager
def located_at(spec: Spec, *path: str | int) -> Iterator[None]:
    """Add a location in the spec to the problems raised in the block, next to their location in a data file.

    The location is that of the value at `path`, or at the problem's own path if it has one (`columns.2`).
    """
    try:
        yield
    except RejectedSamples as error:
        rows = {
            row: [with_location(problem, spec, path) for problem in problems] for row, problems in error.rows.items()
        }
        raise type(error)(rows) from None
    except InputError as error:
        raise type(error)([with_location(problem, spec, path) for problem in error.problems]) from None


@contextmanager
def hint_at_skip(split: SplitFields) -> Iterator[None]:
    """Add a hint at `on_error: skip` to the last problem of damaged samples raised in the block.

    Files that no spec names have no such field.
    """
    try:
        yield
    except InputError as error:
        if split.on_error == "skip" or split.written is None:
            raise
        if isinstance(error, DamagedSamples):
            rows = {row: list(problems) for row, problems in error.rows.items()}
            rows[max(rows)] = _with_skip_hint(rows[max(rows)])
            raise DamagedSamples(rows) from None
        raise type(error)(_with_skip_hint(error.problems)) from None


def _with_skip_hint(problems: Sequence[Problem]) -> list[Problem]:
    *others, last = problems
    hints = [hint for hint in (last.hint, "`on_error: skip` leaves out damaged samples") if hint]
    return [*others, replace(last, hint="; ".join(hints))]


def with_location(problem: Problem, spec: Spec, path: tuple[str | int, ...]) -> Problem:
    """Return a problem with the location in the spec that led to it, as `located_at` adds it.

    A spec without locations was not written by anyone: it describes other files than a spec names.
    """
    if spec.written is None:
        return problem
    steps = tuple(int(step) if step.isdigit() else step for step in problem.path.split(".")) if problem.path else path
    where = spec.where(*steps)
    if where is not None and problem.location is not None and problem.location.file != where.file:
        return replace(problem, notes=(*problem.notes, f"requested at {where}"))
    return problem.at(where, ".".join(map(str, steps)))

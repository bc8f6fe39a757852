"""Contracts of `netspec.data`: a `Source` opens a `Dataset`; a `Transform` changes one field of its samples.

Nothing here imports NumPy, so that a spec that names sources and transforms is checked without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import AfterValidator, Field

from netspec.errors import InputError, NetspecError, Problem
from netspec.files.damage import refuse_damage
from netspec.schema.specs.data import SplitFields
from netspec.schema.specs.paths import files_named_in
from netspec.schema.specs.spec import Spec, problem

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.random import Generator
    from numpy.typing import NDArray

    from netspec.data.imaging.arrays import Picture

    Array: TypeAlias = NDArray[Any]
    Samples: TypeAlias = Array | list[Array]
    """One field of a batch: (N, *shape), or a list of N arrays where the samples differ in size."""
    Raw: TypeAlias = Samples | list[Picture]
    """One field as its first transform may get it: images that are still Pillow's too."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class FieldType(NamedTuple):
    """Shape and element type of one field of a sample; no batch axis."""

    shape: tuple[int | None, ...]
    """None: this size differs from sample to sample; a batch of the field is a list then."""
    dtype: str
    """NumPy's name of the element type: `uint8`, `float32`, …"""

    def __str__(self) -> str:
        return f"[{', '.join('?' if size is None else str(size) for size in self.shape)}] of {self.dtype}"

    @property
    def ragged(self) -> bool:
        """Whether samples differ in size."""
        return None in self.shape


class Dataset:
    """Samples that can be read in any order, by several threads at once.

    Any exception of a subclass's `read` or `read_raw` that is not netspec's own becomes `DamagedSamples`.
    """

    fields: Mapping[str, FieldType]
    """The fields of a sample, by name."""
    classes: Mapping[str, tuple[str, ...]] = _NOTHING
    """The class names of each label field that has them: the label `i` means `classes[field][i]`."""
    digest: str
    """Fingerprint of the samples, which changes with the data."""
    learned: Mapping[str, Any] = _NOTHING
    """What the training split settles for all others (vocabularies, statistics of columns), as plain JSON data."""
    skipped: int = 0
    """How many damaged samples were left out at opening, as `on_error: skip` asks for."""
    damaged: Sequence[str] = ()
    """Problems of the first few of these, with their locations."""
    unwhole: Mapping[str, Sequence[Problem]] = _NOTHING
    """For an integer label: the rows with other values, reported if the net only takes integers."""
    uneven: Mapping[str, str] = _NOTHING
    """For fields whose samples differ in size: a description of two such samples."""
    window: int | None = None
    """A stream's only: how many samples it can hold. Then it is read by one thread, in the order of its windows."""
    block: int = 1
    """How many neighbours are read as one, where that costs more than reading a few: a window keeps them together."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in {"read", "read_raw"} & cls.__dict__.keys():
            setattr(cls, name, _guarded_read(cls.__dict__[name]))

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not say how many samples it has")

    def read(self, indices: Array) -> Mapping[str, Samples]:
        """The samples at `indices` (N,), each field as `Samples`: new arrays, or ones that are never written to again.

        Raises `DamagedSamples` with all rows that cannot be read.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it is read")

    def read_raw(self, indices: Array, pictures: Collection[str]) -> Mapping[str, Raw]:
        """As `read`, but images of files may stay Pillow's in the fields named in `pictures`."""
        return self.read(indices)

    def describe(self, index: int) -> str:
        """Return the origin of a sample for error messages: `train.csv, line 13`."""
        raise NotImplementedError(f"{type(self).__name__} does not say where a sample comes from")


class DamagedSamples(InputError):
    """Some samples of those asked for cannot be used; with `on_error: skip` they are left out."""

    def __init__(self, rows: Mapping[int, Sequence[Problem]]) -> None:
        self.rows = dict(rows)
        """The problems, by row of the requested indices."""
        super().__init__([found for problems in self.rows.values() for found in problems])


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
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise problem("a class is declared twice", expected="every class once", got=", ".join(map(repr, twice)))
    return names


ClassNames = Annotated[list[str], Field(min_length=1), AfterValidator(_distinct)]
"""Class names in the order of their indices."""


class Source(SplitFields):
    """A source's fields in YAML, and how to open it.

    Any exception of a subclass's `open` that is not netspec's own becomes an `InputError` with the file's name.
    """

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Fields as they may be written, for the reference and its tests; files need not be there."""

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        super().__pydantic_init_subclass__(**keywords)
        if "open" in cls.__dict__:
            cls.open = _guarded_open(cls.__dict__["open"])  # type: ignore[method-assign]  # the same, guarded

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """The samples. Raises InputError where a file is damaged.

        `seed` is for sources that generate samples. `learned` is the `Dataset.learned` of the training split; the
        training split itself gets None.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it is opened")

    def of_file(self, path: Path, fields: Collection[str]) -> Source | None:
        """The same kind of samples from another file, of which only these fields are needed.

        None for a source that does not read such samples from one file.
        """
        return None

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """Fields of a sample if the spec alone determines them: they are checked before any file is opened."""
        return None


def _guarded_open(open_: Callable[..., Dataset]) -> Callable[..., Dataset]:
    """Wrap a method that opens a source: a foreign exception becomes an `InputError` that names the source's files."""

    @wraps(open_)
    def guarded(source: Source, **arguments: Any) -> Dataset:
        kind = f"data for the source {type(source).__name__}"
        with refuse_damage(" or ".join(files_named_in(source)) or kind, kind):
            return open_(source, **arguments)

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
        """The random numbers of sample `row` of the batch, the same wherever and whenever it is drawn."""
        from netspec.data.random import sample_generator

        return sample_generator(self.seed, self.epoch, int(self.indices[row]), self.stage)

    def uniform(self, count: int) -> Array:
        """`count` numbers for each sample, (N, count) of float64 in [0, 1): the same at every call, and few of them.

        Where a sample needs whole arrays of noise, `generator` is faster; its numbers are others.
        """
        from netspec.data.random import sample_uniform

        return sample_uniform(self.seed, self.epoch, self.indices, self.stage, count)


class Transform(Spec):
    """Changes one field of every sample; one that `mixes` changes any fields of a batch.

    Batches are cut into parts, which are changed at the same time: what becomes of a sample depends on nothing but its
    values, the transform's fields, and its keys. Images are (N, C, H, W), and may be transposed views of (N, H, W, C).
    """

    mixes: ClassVar[bool] = False
    """Whether samples of a batch are mixed with each other: `infer_fields` and `apply_fields` count then."""

    takes_pictures: ClassVar[bool] = False
    """Whether `apply` takes images that are still Pillow's (`Picture`), as the first transform of a field."""

    pointwise: ClassVar[bool] = False
    """Whether each number becomes another by itself, the same in all samples and in all places of a channel."""

    @property
    def moves(self) -> bool:
        """Whether it only moves numbers of samples of one size within their channels, or leaves some out."""
        return False

    def crops(self, field: FieldType) -> tuple[int, int, int] | None:
        """Height, width, and the byte around, if all it does is to take a part of each image of bytes.

        `places` says which part; `field` is what images are before, all of one size.
        """
        return None

    def places(self, field: FieldType, keys: SampleKeys) -> Array:
        """Of transforms for which `crops` tells a size: (N, 4) of int32, where each begins, and whether it is turned.

        That is from above, from the left, top to bottom and left to right. `apply` does the same.
        """
        raise NotImplementedError(f"{type(self).__name__} takes no parts of images")

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Fields as they may be written, for the reference and its tests."""

    shown_in: ClassVar[dict[str, Any] | None] = None
    """Fields of the split that the reference shows it in; default: one of images."""

    apply_to: str | None = None
    """the field of the source to change; default: the first one that is not a single number and holds uint8 or
    floating values, which is `image` or `features`"""

    changes: ClassVar[str] = "a field of uint8 or floating values that is not a single number"
    """Description of the fields that `takes` accepts."""

    def takes(self, field: FieldType) -> bool:
        """Whether a field of the source is one to change where `apply_to` names none: the first such field is."""
        return bool(field.shape) and (field.dtype == "uint8" or field.dtype.startswith("float"))

    @property
    def needs_data(self) -> bool:
        """Whether values of this transform must be learned from the training split before it can be applied."""
        return False

    def learn(self, field: FieldType, chunks: Iterable[Samples]) -> dict[str, Any]:
        """The missing field values, learned from all samples `(N, *shape)` in order. They are plain JSON data."""
        raise NotImplementedError(f"{type(self).__name__} learns nothing from data")

    @property
    def needs_classes(self) -> bool:
        """Whether it is for the source to say how many classes there are."""
        return False

    def of_classes(self, classes: Mapping[str, Sequence[str]]) -> Self:
        """The same transform for a source whose label fields, where they are numbers still, have these classes."""
        return self

    def infer(self, field: FieldType) -> FieldType:
        """The type of the changed field. Raises InputError where the field cannot be changed so."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it makes of a field")

    def apply(self, batch: Samples, keys: SampleKeys) -> Samples:
        """The changed field of a batch, a list where `infer` was given a size of None; `batch` is left as it is.

        Raises `DamagedSamples` with the rows that cannot be changed; which samples these are is added.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")

    def infer_fields(self, fields: Mapping[str, FieldType]) -> dict[str, FieldType]:
        """The types of all fields afterwards, of a transform that mixes."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it makes of the fields")

    def check_fields(self, batch: Mapping[str, Samples]) -> None:  # most have nothing to check
        """Raises DamagedSamples with the rows that must not be mixed with others."""

    def apply_fields(self, batch: Mapping[str, Samples], keys: SampleKeys) -> dict[str, Samples]:
        """All fields of a whole batch afterwards, of a transform that mixes; `batch` is left as it is."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")


def one_by_one(batch: Samples, change: Callable[[Array], Array]) -> Samples:
    """`change` of a batch (N, …); of samples that differ in size, of each as a batch of one."""
    return [change(sample[None])[0] for sample in batch] if isinstance(batch, list) else change(batch)


@contextmanager
def blamed_on(spec: Spec, *path: str | int) -> Iterator[None]:
    """Give the problems raised inside a location in the spec, in addition to their own in a data file.

    That place is the value at `path`, or at the problem's own path where it has one (`columns.2`).
    """
    try:
        yield
    except DamagedSamples as error:
        rows = {row: [placed(found, spec, path) for found in problems] for row, problems in error.rows.items()}
        raise DamagedSamples(rows) from None
    except InputError as error:
        raise type(error)([placed(found, spec, path) for found in error.problems]) from None


def placed(found: Problem, spec: Spec, path: tuple[str | int, ...]) -> Problem:
    """A problem with the place in the spec that led to it, as `blamed_on` gives it."""
    steps = tuple(int(step) if step.isdigit() else step for step in found.path.split(".")) if found.path else path
    where = spec.where(*steps)
    if where is not None and found.location is not None and found.location.file != where.file:
        return replace(found, notes=(*found.notes, f"asked for at {where}"))
    return found.at(where, ".".join(map(str, steps)))

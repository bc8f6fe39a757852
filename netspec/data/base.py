"""The contracts of the data room: `Source` opens a `Dataset`; a `Transform` changes one field of its samples.

Nothing here imports NumPy, so that a spec that names sources and transforms is checked without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol

from pydantic import AfterValidator, Field

from netspec.errors import InputError, Problem
from netspec.schema.data import SplitFields
from netspec.schema.spec import Spec, problem

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.random import Generator
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]


class FieldType(NamedTuple):
    """Shape and element type of one field of a sample; no batch axis."""

    shape: tuple[int, ...]
    dtype: str
    """NumPy's name of the element type: `uint8`, `float32`, …"""

    def __str__(self) -> str:
        return f"{list(self.shape)} of {self.dtype}"


class Dataset(Protocol):
    """Samples that can be read in any order. `read` is called from one other thread at a time."""

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """What a sample consists of, by name."""
        ...

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """The class names of each label field that has them: the label `i` means `classes[field][i]`."""
        ...

    @property
    def digest(self) -> str:
        """A fingerprint of the samples: another one after the data has changed."""
        ...

    def __len__(self) -> int: ...

    def read(self, indices: Array) -> dict[str, Array]:
        """The samples at `indices` (N,) as one array a field, `(N, *shape)`, new or never written to again."""
        ...

    def describe(self, index: int) -> str:
        """Where a sample comes from, for an error message: `train.csv, line 13`."""
        ...


def _distinct(names: list[str]) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise problem("a class is declared twice", expected="every class once", got=", ".join(map(repr, twice)))
    return names


ClassNames = Annotated[list[str], Field(min_length=1), AfterValidator(_distinct)]
"""Class names in the order of their indices."""


class Source(SplitFields):
    """A source's fields in YAML, and how to open it."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Fields as they may be written, for the reference and its tests; files need not be there."""

    def open(self, *, seed: int = 0) -> Dataset:
        """The samples. `seed` is for sources that make samples up. Raises InputError where a file is damaged."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is opened")

    def known_fields(self) -> Mapping[str, FieldType] | None:
        """What a sample consists of, where the spec alone says it: then it is checked before any file is opened."""
        return None


@dataclass(frozen=True)
class SampleKeys:
    """What the randomness of a transform may depend on: seed, epoch and sample, never batch, worker or time."""

    seed: int
    epoch: int
    indices: Array
    """Index in the dataset of each sample of the batch, (N,)."""
    stage: int
    """Position of the transform in its list, so that two equal transforms draw different numbers."""

    def generator(self, row: int) -> Generator:
        """The random numbers of sample `row` of the batch, the same wherever and whenever it is drawn."""
        from netspec.data.order import sample_generator

        return sample_generator(self.seed, self.epoch, int(self.indices[row]), self.stage)


class Transform(Spec):
    """Changes one field of every sample."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Fields as they may be written, for the reference and its tests."""

    apply_to: str | None = None
    """the field of the source to change; default: the first one that is not a single number and holds uint8 or
    floating values, which is `image` or `features`"""

    @property
    def needs_data(self) -> bool:
        """Whether values of this transform must be learned from the training split before it can be applied."""
        return False

    def learn(self, field: FieldType, chunks: Iterable[Array]) -> dict[str, Any]:
        """The missing field values, learned from all samples `(N, *shape)` in order. They are plain JSON data."""
        raise NotImplementedError(f"{type(self).__name__} learns nothing from data")

    def infer(self, field: FieldType) -> FieldType:
        """The type of the changed field. Raises InputError where the field cannot be changed so."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it makes of a field")

    def apply(self, batch: Array, keys: SampleKeys) -> Array:
        """The changed field of a batch, (N, *shape); `batch` itself is left as it is."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")


@contextmanager
def blamed_on(spec: Spec, *path: str | int) -> Iterator[None]:
    """Give the problems raised inside the place in the spec that led to them, beside one of their own in a data file.

    That place is the value at `path`, or at the problem's own path where it has one (`columns.2`).
    """
    try:
        yield
    except InputError as error:
        raise type(error)([_placed(found, spec, path) for found in error.problems]) from None


def _placed(found: Problem, spec: Spec, path: tuple[str | int, ...]) -> Problem:
    steps = tuple(int(step) if step.isdigit() else step for step in found.path.split(".")) if found.path else path
    where = spec.where(*steps)
    if where is not None and found.location is not None and found.location.file != where.file:
        return replace(found, notes=(*found.notes, f"asked for at {where}"))
    return found.at(where, ".".join(map(str, steps)))

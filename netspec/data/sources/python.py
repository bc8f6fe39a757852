"""`{source: python}`: samples that a Python program passes to the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr

from netspec.data.base import Dataset, Source, located_at
from netspec.errors import InputError
from netspec.schema.specs.data import SOURCES, ShuffleWindow
from netspec.schema.specs.spec import problem

WINDOW = 10_000
"""Number of samples of a stream that are held for `shuffle: true`."""


def _distinct(names: list[str]) -> list[str]:
    duplicates = [name for name in names if names.count(name) > 1]
    if duplicates:
        raise problem("has a field twice", expected="each field once", got=duplicates[0])
    return names


@SOURCES.register
class Python(Source):
    """Samples from a Python program: `netspec.train(spec, samples={"train": …, "test": …})`.

    Accepts a mapping of arrays (N, …) by field; a sequence whose samples are read by index, from several threads (a
    list, a map-style dataset); or a stream: an iterable, or a function that returns a new iterator for each pass over
    the data. A stream is counted in a first pass; only the samples to shuffle are held in memory. A sample is a mapping
    of numbers and arrays by field, or a tuple in the order of `fields`. All samples have the same shapes.
    """

    source: Literal["python"] = "python"
    fields: Annotated[list[str], Field(min_length=1), AfterValidator(_distinct)] | None = None
    """Names of the parts of a sample, if samples are tuples."""

    samples: ClassVar = ({"fields": ["image", "label"]},)

    _samples: Any = PrivateAttr(default=None)

    def with_samples(self, samples: object) -> Self:
        """Return this split with its samples."""
        split = self.model_copy()
        split._samples = samples
        return split

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """Open the samples. Those of a stream are counted. Raises `InputError` for anything else."""
        from netspec.data.readers.python import open_samples

        if self._samples is None:
            raise InputError(
                "the samples of this split are missing", location=self.where("source"), path="source",
                expected="a Python program that passes them: `netspec.train(spec, samples={'train': …})`",
            )  # fmt: skip
        shuffle = self.shuffle
        window = shuffle.window if isinstance(shuffle, ShuffleWindow) else WINDOW if shuffle else 1
        with located_at(self, "source"):
            return open_samples(
                self._samples, self.fields, window=window, limit=self.limit, skip=self.on_error == "skip"
            )

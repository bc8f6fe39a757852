"""The data of a training opened and looked at: figures, rows and pictures for `netspec data show`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from netspec.data.base import DamagedSamples, Dataset, FieldType, Source
from netspec.data.loader import Loader
from netspec.data.pipeline import Learned, Pipeline
from netspec.data.statistics import Scanned, chosen, scan, stages
from netspec.data.thread_pool import processors
from netspec.errors import InputError, Problem, counted
from netspec.exchange.files import write_atomically
from netspec.schema.specs.train import TrainSpec
from netspec.tools.specs import load_spec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MOST_VALUES = 6
EPOCHS = 3
"""Number of epochs whose samples are shown."""
MOST_ROWS = 8
LEAST_SHARE = 0.005
"""A class of which less is mixed in is not named."""


@dataclass
class Shown:
    """One part of the data of a training, opened."""

    part: str
    split: Source
    dataset: Dataset
    pipeline: Pipeline
    seed: int
    scanned: Scanned

    @classmethod
    def of(cls, source: str | Path, overrides: Sequence[str], part: str, most: int) -> Self:
        """Open the data, the training split first, and compute figures over at most `most` samples."""
        spec = load_spec(source, overrides)
        if not isinstance(spec, TrainSpec):
            raise InputError(
                "this is a net: it says nothing of data", location=spec.where(), expected="a training file"
            )
        split = spec.data.test if part == "test" else spec.data.train
        if split is None:
            raise InputError(
                Problem("there is no test data", spec.where("data"), "data", expected="`test:` next to `train:`")
            )
        seed, learned = spec.train.seed, None
        dataset, pipeline = _opened(spec.data.train, seed, None)
        if part == "test":
            learned = pipeline.learned
            dataset, pipeline = _opened(split, seed, learned)
        assert isinstance(split, Source)
        return cls(part, split, dataset, pipeline, seed, scan(dataset, pipeline, split, most))

    @property
    def threads(self) -> str:
        """How many threads prepare samples."""
        return counted(self.split.workers or processors(), "thread") if self.split.prefetch else "no thread of its own"

    @cached_property
    def image(self) -> str | None:
        """The first field that is an image when it is prepared."""
        return next((name for name, kind in self.pipeline.fields.items() if _is_image(kind)), None)

    def rate(self, seconds: float) -> float | None:
        """How many samples a second the loader prepares; None where it is not measured, or cannot make batches."""
        if not seconds or any(kind.ragged for kind in self.pipeline.fields.values()):
            return None
        with Loader(self.dataset, self.split, seed=self.seed, learned=self.pipeline.learned) as loader:
            batches = iter(loader)
            next(batches)  # threads are started, files found
            began, samples = time.perf_counter(), 0
            while (passed := time.perf_counter() - began) < seconds:
                samples += len(next(batches))
        return samples / passed

    def prepared(self, most: int, epochs: int) -> tuple[list[int], list[dict[str, Any]]]:
        """Samples spread over the set, by index; as they are read, then as they are in each epoch: usable ones only."""
        indices = chosen(self.dataset, self.pipeline.samples, most)
        while True:
            try:
                found = [stages(self.pipeline, indices, epoch) for epoch in range(epochs)]
                return indices.tolist(), [dict(found[0][0]), *(dict(prepared) for _, prepared in found)]
            except DamagedSamples as error:
                if self.split.on_error != "skip" or len(error.rows) == len(indices):
                    raise
                indices = np.delete(indices, list(error.rows))

    def rows(self, samples: int) -> list[dict[str, Any]]:
        """The values of a few prepared samples, shortened."""
        if not samples:
            return []
        indices, (_, prepared) = self.prepared(min(samples, MOST_ROWS), 1)
        described = [{"sample": self.dataset.describe(index)} for index in indices]
        return [
            {**one, **{name: self._value(name, batch[row]) for name, batch in prepared.items()}}
            for row, one in enumerate(described)
        ]

    def _value(self, name: str, value: Any) -> Any:
        array = np.asarray(value)
        if array.ndim == 0:
            return self._label(name, array)
        flat = [short_number(one) for one in array.ravel()[: MOST_VALUES + 1].tolist()]
        shown = ", ".join(flat[:MOST_VALUES]) + ", …" * (len(flat) > MOST_VALUES)
        return f"[{shown}]" if array.ndim == 1 else f"{list(array.shape)}: {shown}"

    def _label(self, name: str, value: Array) -> Any:
        """A single number, or what the class is called."""
        figures = self.scanned.raw.get(name)
        if value.dtype.kind in "iub" and figures is not None and figures.names:
            return figures.class_name(int(value))
        return value.item()

    def label(self, prepared: dict[str, Any], row: int) -> str:
        """What is said of a sample by its single numbers, and by shares of classes that transforms mixed."""
        said = []
        for name, batch in prepared.items():
            value = np.asarray(batch[row])
            figures = self.scanned.raw.get(name)
            if value.ndim == 0:
                said.append(f"{short_text(self._label(name, value))}")
            elif value.ndim == 1 and figures is not None and figures.counts is not None:
                most = np.argsort(-value, kind="stable")[:2]
                shares = [(value[one], figures.class_name(int(one))) for one in most if value[one] >= LEAST_SHARE]
                said.append(" + ".join(f"{100 * share:.0f} % {title}" for share, title in shares))
        return ", ".join(said)

    def as_json(self) -> dict[str, Any]:
        """All figures as plain JSON data."""
        found = self.scanned
        return {
            "split": self.part,
            "source": getattr(self.split, "source", ""),
            "samples": self.pipeline.samples,
            "read": found.read,
            "skipped_at_opening": self.dataset.skipped,
            "damaged": found.damaged,
            "fields": {name: one.as_json() for name, one in found.raw.items()},
            "prepared": {name: one.as_json() for name, one in found.prepared.items()},
            "learned": self.pipeline.learned.as_json(),
        }


def _opened(split: Any, seed: int, learned: Learned | None) -> tuple[Dataset, Pipeline]:
    assert isinstance(split, Source)
    dataset = split.open(seed=seed, learned=None if learned is None else learned.source)
    return dataset, Pipeline(dataset, split, seed=seed, learned=learned)


def _is_image(kind: FieldType) -> bool:
    return len(kind.shape) == 3 and (kind.shape[0] or 0) <= 4 and np.dtype(kind.dtype).kind in "iuf"


def write_sheet(shown: Shown, target: Path, samples: int) -> Path | None:
    """Write pictures of samples, raw and prepared; None where the set has none."""
    from netspec.data.contact_sheet import Strip, contact_sheet, picture, span_of

    name = shown.image
    if name is None:
        return None
    indices, found = shown.prepared(samples, EPOCHS)
    raw, *epochs = found
    if all(_same(one[name], epochs[0][name]) for one in epochs):  # nothing is drawn
        epochs = epochs[:1]
    was_image = name in shown.dataset.fields and _is_image(shown.dataset.fields[name])
    columns = [list(raw[name])] if was_image else []
    spans = [span_of(column) for column in columns]
    spans += [span_of([image for one in epochs for image in one[name]])] * len(epochs)
    columns += [list(one[name]) for one in epochs]
    strips = []
    for row in range(len(indices)):
        pictures = [picture(column[row], span) for column, span in zip(columns, spans, strict=True)]
        texts = [shown.label(one, row) for one in ([raw] if was_image else []) + epochs]
        strips.append(Strip(pictures, texts[:1] if len(set(texts)) == 1 else texts))
    after = "prepared" if len(epochs) == 1 else f"prepared, in {len(epochs)} epochs"
    title = f"{shown.part}: {name}, " + (f"as it is read (framed), then {after}" if was_image else after)
    sheet = contact_sheet(strips, title)
    write_atomically(target, lambda path: sheet.save(path, "PNG"))
    return target


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(first, second) for first, second in zip(one, other, strict=True))


def short_text(value: Any) -> str:
    """A value of a sample as text of at most 80 characters."""
    if isinstance(value, float):
        return short_number(value)
    text = str(value)
    if isinstance(value, (list, tuple)):
        shown = ", ".join(short_text(one) for one in value[:MOST_VALUES])
        text = f"[{shown}{', …' if len(value) > MOST_VALUES else ''}]"
    return text if len(text) <= 80 else f"{text[:79]}…"


def short_number(number: float) -> str:
    """A number with five significant digits."""
    return f"{number:,}" if isinstance(number, int) else f"{float(number):,.5g}"

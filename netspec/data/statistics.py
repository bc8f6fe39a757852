"""Statistics of the fields of a dataset: value ranges, means, deviations and classes, computed chunk by chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, FieldType, Samples
from netspec.data.imaging.annotations import MaskAnnotation
from netspec.data.moments import RunningMoments
from netspec.data.pipeline import TransformPipeline
from netspec.schema.specs.data import SplitFields

MAX_COLUMNS = 64
"""A vector of at most this many values is a row of a table, whose columns have separate statistics."""
MAX_CLASSES = 1000
"""Integers with more distinct values than this are not classes."""


@dataclass
class FieldStatistics(RunningMoments):
    """Statistics of one field over the samples added so far; `mean`, `deviation`, `low` and `high` by channel."""

    kind: FieldType
    names: tuple[str, ...] = ()
    """Class names, if the source knows them."""
    samples: int = 0
    missing: int = 0
    """Number of values that are not finite."""
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Smallest and largest size of each axis."""
    labeled: Literal["samples", "pixels", "boxes"] = "samples"
    """Owner of the class indices in the field: pixels of a mask, or boxes of a detection (negative for padding)."""
    counts: Counter[int] | None = None
    """Number of samples, pixels or boxes per class; None if the field does not hold classes."""

    def __post_init__(self) -> None:
        super().__init__()
        if self.labeled != "samples" or (not self.kind.shape and np.dtype(self.kind.dtype).kind in "iub"):
            self.counts = Counter()

    @property
    def channels(self) -> int:
        """Number of parts of a sample with separate statistics: channels of an image, columns of a row; else 1.

        A vector of integers is a sequence, such as a text, whose positions are not distinguished.
        """
        shape = self.kind.shape
        row = len(shape) == 1 and np.dtype(self.kind.dtype).kind == "f"
        per_channel = len(shape) == 3 or (row and (shape[0] or MAX_COLUMNS + 1) <= MAX_COLUMNS)
        return int(shape[0] or 1) if per_channel else 1

    def add(self, samples: Samples) -> None:
        """Add samples to the statistics."""
        parts = samples if isinstance(samples, list) else [samples]
        for part in parts:
            shape = part.shape if isinstance(samples, list) else part.shape[1:]
            self.sizes = self.sizes or [(size, size) for size in shape]
            self.sizes = [
                (min(low, size), max(high, size)) for (low, high), size in zip(self.sizes, shape, strict=True)
            ]
            self._add(part.reshape(1 if isinstance(samples, list) else len(part), self.channels, -1))
        self.samples += len(samples)
        if self.counts is not None:
            for part in parts:
                used = part[part >= 0] if self.labeled == "boxes" else part
                classes, counts = np.unique(used, return_counts=True)
                self.counts.update(dict(zip(classes.tolist(), counts.tolist(), strict=True)))
            if len(self.counts) > max(MAX_CLASSES, len(self.names)):
                self.counts = None

    def _add(self, values: Array) -> None:
        """Add values (N, channels, any)."""
        values = values.transpose(1, 0, 2).reshape(values.shape[1], -1)
        if not values.size:
            return
        exact = values.astype(np.float64)
        exact[~np.isfinite(exact)] = np.nan
        self.missing += int(np.isnan(exact).sum())
        self.add_values(exact)

    def classes(self) -> dict[str, int]:
        """Return the number of samples of each class, by name or number, including known classes without samples."""
        counts = self.counts or Counter()
        all_counts = dict.fromkeys(range(len(self.names)), 0) | dict(sorted(counts.items()))
        return {self.class_name(label): number for label, number in all_counts.items()}

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number."""
        return self.names[label] if 0 <= label < len(self.names) else str(label)

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as plain JSON data."""
        data: dict[str, Any] = {"shape": list(self.kind.shape), "dtype": self.kind.dtype, "missing": self.missing}
        if self.kind.ragged:
            data["sizes"] = [list(span) for span in self.sizes]
        if not self.is_empty:
            data |= {"low": _plain(self.low), "high": _plain(self.high)}
            data |= {"mean": _plain(self.mean), "deviation": _plain(self.deviation)}
        return data if self.counts is None else {**data, "classes": self.classes()}


def _plain(values: Array) -> list[float | None]:
    """Return values for JSON: None for an element that was never finite."""
    return [number if np.isfinite(number) else None for number in np.asarray(values).tolist()]


@dataclass
class ScanResult:
    """Statistics of a part of a dataset, before and after its transforms."""

    raw: dict[str, FieldStatistics]
    prepared: dict[str, FieldStatistics]
    read: int = 0
    """Number of samples that were read."""
    damaged: list[str] = field(default_factory=list)
    """Problems of the samples that were left out."""


def _labeled(dataset: Dataset) -> dict[str, Literal["samples", "pixels", "boxes"]]:
    """Return, for annotation fields with class indices, whether these are of pixels or boxes."""
    labeled: dict[str, Literal["samples", "pixels", "boxes"]] = {}
    for name, annotation in dataset.annotations.items():
        if isinstance(annotation, MaskAnnotation):
            labeled[name] = "pixels"
        else:
            labeled |= dict.fromkeys(set(annotation.dependents(name)) & dataset.classes.keys(), "boxes")
    return labeled


def scan(dataset: Dataset, pipeline: TransformPipeline, split: SplitFields, most: int) -> ScanResult:
    """Compute statistics over at most `most` samples, spread over the set, or the first ones of a stream; 0: all.

    Raises `DamagedSamples` if samples are damaged and the split does not skip them.
    """
    names = {name: tuple(classes) for name, classes in dataset.classes.items()}
    labeled = _labeled(dataset)
    raw, prepared = (
        {
            name: FieldStatistics(kind, names.get(name, ()), labeled=labeled.get(name, "samples"))
            for name, kind in fields.items()
        }
        for fields in (dataset.fields, pipeline.fields)
    )
    result = ScanResult(raw, prepared)
    for chunk in _chunks(sample_indices(dataset, pipeline.samples, most), split.batch_size):
        indices = chunk
        while len(indices):
            try:
                batches = read_both(pipeline, indices)
                break
            except DamagedSamples as error:
                if split.on_error != "skip":
                    raise
                result.damaged += [problem.brief for problems in error.rows.values() for problem in problems[:1]]
                indices = np.delete(indices, list(error.rows))
        else:
            continue
        result.read += len(indices)
        for figures, batch in zip((result.raw, result.prepared), batches, strict=True):
            for name, statistics in figures.items():
                statistics.add(batch[name])
    return result


def read_both(
    pipeline: TransformPipeline, indices: Array, epoch: int = 0
) -> tuple[Mapping[str, Samples], Mapping[str, Samples]]:
    """Return samples before and after the transforms."""
    raw = pipeline.raw(indices)
    changed = pipeline.transform_samples(raw, indices, epoch)
    pipeline.check_mixed(changed, indices)
    return raw, pipeline.transform_batch(changed, indices, epoch)


def sample_indices(dataset: Dataset, samples: int, most: int) -> Array:
    """Return which samples to read: evenly spread and including the first, or the first ones of a stream."""
    if not most or most >= samples:
        return np.arange(samples)
    return np.arange(most) if dataset.window is not None else np.arange(most) * samples // most


def _chunks(indices: Array, size: int) -> Iterator[Array]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]

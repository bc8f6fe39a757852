"""Inspect the data of a training: statistics, rows and images of samples, before and after transforms."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import DamagedSamples, Dataset, FieldType, Source
from netspec.data.imaging.annotations import MaskAnnotation
from netspec.data.loader import Loader
from netspec.data.pipeline import Learned, TransformPipeline
from netspec.data.statistics import ScanResult, read_both, sample_indices, scan
from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer
from netspec.data.text.tokens import UNKNOWN
from netspec.data.thread_pool import processors
from netspec.errors import InputError, counted
from netspec.exchange.files import write_atomically
from netspec.schema.load import Overrides
from netspec.schema.load import Source as SpecSource
from netspec.schema.specs.train import TrainSpec
from netspec.tools.specs import load_spec
from netspec.training.evaluation import split_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.data.tabular.sample_rows import ColumnSummary
    from netspec.data.text.tokens import Tokenizer

    Array = NDArray[Any]

MAX_VALUES = 6
MAX_TOKENS = 80
"""Number of tokens of a text that are converted back to text."""
EPOCHS = 3
"""Number of epochs whose samples are shown."""
MAX_ROWS = 8
MIN_SHARE = 0.005
"""Smallest share of a mixed-in class that is named."""


@dataclass(frozen=True)
class DataReport:
    """A split of the data of a training file, opened, with statistics."""

    part: str
    """`train`, `validation` or `test`."""
    split: Source
    """The fields of the split in the training file."""
    dataset: Dataset
    """The samples as they are read."""
    pipeline: TransformPipeline
    """The transforms, and what the training data determines for them."""
    seed: int
    scanned: ScanResult
    """Statistics of each field, raw and prepared, and the damaged samples."""
    columns: Sequence[ColumnSummary] = ()
    """For a table: findings about each column that is read, in the same samples."""

    @property
    def threads(self) -> str:
        """Number of threads that prepare samples, as text."""
        return counted(self.split.workers or processors(), "thread") if self.split.prefetch else "no thread of its own"

    @cached_property
    def image(self) -> str | None:
        """The first field that is an image when it is prepared."""
        return next((name for name, kind in self.pipeline.fields.items() if _is_image(kind)), None)

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        """The tokenizer of a source of texts."""
        saved = self.pipeline.learned.source.get(TOKENIZER)
        return None if saved is None else saved_tokenizer(saved)

    def rate(self, seconds: float) -> float | None:
        """Samples per second of the loader, measured for `seconds`; None if this is 0 or samples differ in shape."""
        if not seconds or any(kind.ragged for kind in self.pipeline.fields.values()):
            return None
        with Loader(self.dataset, self.split, seed=self.seed, learned=self.pipeline.learned) as loader:
            batches = iter(loader)
            next(batches)  # the first batch includes starting threads and opening files
            began, samples = time.perf_counter(), 0
            while (passed := time.perf_counter() - began) < seconds:
                samples += len(next(batches))
        return samples / passed

    def prepared(self, most: int, epochs: int) -> tuple[list[int], list[dict[str, Any]]]:
        """Indices of samples spread over the data, and their fields: as read, then prepared in each epoch.

        Damaged samples are left out if the split skips them.
        """
        indices = sample_indices(self.dataset, self.pipeline.samples, most)
        while True:
            try:
                batches = [read_both(self.pipeline, indices, epoch) for epoch in range(epochs)]
                return indices.tolist(), [dict(batches[0][0]), *(dict(prepared) for _, prepared in batches)]
            except DamagedSamples as error:
                if self.split.on_error != "skip" or len(error.rows) == len(indices):
                    raise
                indices = np.delete(indices, list(error.rows))

    def rows(self, samples: int) -> list[dict[str, Any]]:
        """Return up to `samples` prepared samples, at most 8: a mapping of field to shortened value for each.

        A sample of a table also has the `cells` of its row in the file, by column.
        """
        if not samples:
            return []
        indices, (_, prepared) = self.prepared(min(samples, MAX_ROWS), 1)
        return self._rows_at(indices, prepared)

    def rows_and_pictures(self, indices: Sequence[int]) -> tuple[list[dict[str, Any]], list[Array | None]]:
        """Return what `rows` does for some samples, and their images, (H, W, 3) of uint8; None without one."""
        from netspec.data.contact_sheet import displayable, span_of

        raw, prepared = (dict(batch) for batch in read_both(self.pipeline, np.asarray(indices)))
        shown = {name: batch for name, batch in prepared.items() if np.ndim(batch[0]) < 2}  # no pixels, masks or boxes
        rows = self._rows_at(indices, shown)
        if self.image is None:
            return rows, [None] * len(rows)
        is_read = self.image in self.dataset.fields and _is_image(self.dataset.fields[self.image])
        batch = raw if is_read else prepared
        images = [np.asarray(image) for image in batch[self.image]]
        span = span_of(images)
        pictures = [self._overlaid(displayable(image, span), batch, row) for row, image in enumerate(images)]
        return rows, [*pictures]

    def _rows_at(self, indices: Sequence[int], prepared: Mapping[str, Any]) -> list[dict[str, Any]]:
        described = [{"sample": self.dataset.describe(index)} for index in indices]
        if self.dataset.source_rows is not None:
            cells = self.dataset.source_rows.cells(np.asarray(indices))
            return [{**row, "cells": texts} for row, texts in zip(described, cells, strict=True)]
        return [
            {**description, **{name: self._value(name, batch[row]) for name, batch in prepared.items()}}
            for row, description in enumerate(described)
        ]

    def _value(self, name: str, value: Any) -> Any:
        array = np.asarray(value)
        if array.ndim == 0:
            return self._label(name, array)
        if array.ndim == 1 and array.dtype.kind == "i" and self._tokenizer is not None:
            text = self._tokenizer.decode(array[:MAX_TOKENS].tolist())
            return text if self._tokenizer.unknown is None else text.replace(UNKNOWN, "<unknown>")
        flat = [short_number(number) for number in array.ravel()[: MAX_VALUES + 1].tolist()]
        listed = ", ".join(flat[:MAX_VALUES]) + ", …" * (len(flat) > MAX_VALUES)
        return f"[{listed}]" if array.ndim == 1 else f"{list(array.shape)}: {listed}"

    def _label(self, name: str, value: Array) -> Any:
        """A scalar, or the name of the class that it stands for."""
        statistics_of_field = self.scanned.raw.get(name)
        if value.dtype.kind in "iub" and statistics_of_field is not None and statistics_of_field.names:
            return statistics_of_field.class_name(int(value))
        return value.item()

    def label(self, prepared: dict[str, Any], row: int) -> str:
        """Label an image with the sample's scalar fields, and with the shares of classes that transforms mixed."""
        labels = []
        for name, batch in prepared.items():
            value = np.asarray(batch[row])
            statistics_of_field = self.scanned.raw.get(name)
            if value.ndim == 0:
                labels.append(f"{short_text(self._label(name, value))}")
            elif statistics_of_field is not None and statistics_of_field.labeled == "boxes":
                labels.append(
                    ", ".join(statistics_of_field.class_name(number) for number in value.tolist() if number >= 0)
                )
            elif value.ndim == 1 and statistics_of_field is not None and statistics_of_field.counts is not None:
                most = np.argsort(-value, kind="stable")[:2]
                shares = [
                    (value[index], statistics_of_field.class_name(int(index)))
                    for index in most
                    if value[index] >= MIN_SHARE
                ]
                labels.append(" + ".join(f"{100 * share:.0f} % {title}" for share, title in shares))
        return ", ".join(labels)

    def write_contact_sheet(self, path: str | Path, samples: int) -> bool:
        """Write a PNG of N samples, each as read and as prepared in three epochs. False if no field is an image."""
        from netspec.data.contact_sheet import Strip, contact_sheet, displayable, span_of

        name = self.image
        if name is None:
            return False
        indices, batches = self.prepared(samples, EPOCHS)
        raw, *epochs = batches
        if all(_same(epoch[name], epochs[0][name]) for epoch in epochs):  # nothing is drawn
            epochs = epochs[:1]
        was_image = name in self.dataset.fields and _is_image(self.dataset.fields[name])
        columns = [list(raw[name])] if was_image else []
        spans = [span_of(column) for column in columns]
        spans += [span_of([image for epoch in epochs for image in epoch[name]])] * len(epochs)
        columns += [list(epoch[name]) for epoch in epochs]
        strips = []
        for row in range(len(indices)):
            drawn_batches = ([raw] if was_image else []) + epochs
            images = [
                self._overlaid(displayable(column[row], span), batch, row)
                for column, span, batch in zip(columns, spans, drawn_batches, strict=True)
            ]
            texts = [self.label(batch, row) for batch in drawn_batches]
            strips.append(Strip(images, texts[:1] if len(set(texts)) == 1 else texts))
        after = "prepared" if len(epochs) == 1 else f"prepared, in {len(epochs)} epochs"
        title = f"{self.part}: {name}, " + (f"as it is read (framed), then {after}" if was_image else after)
        sheet = contact_sheet(strips, title)
        write_atomically(Path(path), lambda path: sheet.save(path, "PNG"))
        return True

    def _overlaid(self, pixels: Array, batch: dict[str, Any], row: int) -> Array:
        """Return an image with the mask or the boxes of its sample drawn over it, if it has any."""
        from netspec.data.contact_sheet import outlined, overlaid

        for name, annotation in self.dataset.annotations.items():
            if annotation.image != self.image or name not in batch:
                continue
            if isinstance(annotation, MaskAnnotation):
                return overlaid(pixels, np.asarray(batch[name][row]))
            boxes, labels = np.asarray(batch[name][row]), np.asarray(batch["labels"][row])
            return outlined(pixels, boxes[labels >= 0], labels[labels >= 0])
        return pixels

    def as_json(self) -> dict[str, Any]:
        """The statistics as plain data."""
        statistics = self.scanned
        return {
            "split": self.part,
            "source": getattr(self.split, "source", ""),
            "samples": self.pipeline.samples,
            "read": statistics.read,
            "skipped_at_opening": self.dataset.skipped,
            "damaged": statistics.damaged,
            "columns": [self._column_as_json(column) for column in self.columns],
            "fields": {name: statistics_of_field.as_json() for name, statistics_of_field in statistics.raw.items()},
            "prepared": {
                name: statistics_of_field.as_json() for name, statistics_of_field in statistics.prepared.items()
            },
            "learned": self.pipeline.learned.as_json(),
        }

    def _column_as_json(self, column: ColumnSummary) -> dict[str, Any]:
        field, start, stop = self.dataset.column_ranges[column.name]
        return {**column.as_json(), "field": field, "elements": [start, stop]}


def inspect_data(
    source: SpecSource, *, overrides: Overrides = (), split: str = "train", max_samples: int = 10_000
) -> DataReport:
    """Open the data of a training file, and compute statistics over at most `max_samples` samples (0: all).

    `split` is `"train"`, `"validation"` or `"test"`. Statistics are per field and channel, before and after transforms.
    Raises `InputError` if the data cannot be read.

        >>> netspec.inspect_data("train.yaml").scanned.raw["image"].mean
    """
    spec = load_spec(source, overrides)
    if not isinstance(spec, TrainSpec):
        raise InputError("this is a net file, which has no data", location=spec.where(), expected="a training file")
    fields = split_of(spec, split)
    seed = spec.train.seed
    dataset, pipeline = _open(spec.data.train, seed, None)
    if split != "train":
        dataset, pipeline = _open(fields, seed, pipeline.learned)
    assert isinstance(fields, Source)
    scanned = scan(dataset, pipeline, fields, max_samples)
    table, indices = dataset.source_rows, sample_indices(dataset, pipeline.samples, max_samples)
    columns = table.summaries(indices) if table is not None else []
    return DataReport(split, fields, dataset, pipeline, seed, scanned, columns)


def _open(split: Any, seed: int, learned: Learned | None) -> tuple[Dataset, TransformPipeline]:
    assert isinstance(split, Source)
    dataset = split.open(seed=seed, learned=None if learned is None else learned.source)
    return dataset, TransformPipeline(dataset, split, seed=seed, learned=learned)


def _is_image(kind: FieldType) -> bool:
    return len(kind.shape) == 3 and (kind.shape[0] or 0) <= 4 and np.dtype(kind.dtype).kind in "iuf"


def _same(a: Any, other: Any) -> bool:
    return all(np.array_equal(first, second) for first, second in zip(a, other, strict=True))


def short_text(value: Any, most: int = 80) -> str:
    """A value of a sample as text of at most `most` characters."""
    if isinstance(value, float):
        return short_number(value)
    text = str(value)
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}: {short_text(item, most)}" for key, item in value.items())
    elif isinstance(value, bool):
        text = text.lower()
    elif isinstance(value, (list, tuple)):
        listed = ", ".join(short_text(item) for item in value[:MAX_VALUES])
        text = f"[{listed}{', …' if len(value) > MAX_VALUES else ''}]"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def short_number(number: float) -> str:
    """A number with five significant digits, or rounded to an integer if it is large."""
    if isinstance(number, int):
        return f"{number:,}"
    size = abs(number)
    return f"{number:,.0f}" if 1e5 <= size < 1e9 else f"{number:.5g}" if size < 1e4 else f"{number:,.5g}"

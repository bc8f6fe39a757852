"""`RecordedPipeline`: reports when samples are read and transformed, for profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TypeAlias

from netspec.data.base import Array, Raw
from netspec.data.pipeline import TransformPipeline, TransformStep

Record: TypeAlias = Callable[[str, float, float], None]
"""Receives what was done, and its start and end in seconds of `perf_counter`, in the thread that did it."""


class RecordedPipeline(TransformPipeline):
    """A pipeline that returns the samples of another one, and reports each read and each transform."""

    def __init__(self, pipeline: TransformPipeline, record: Record) -> None:
        vars(self).update(vars(pipeline))
        self._record = record

    def read_raw(self, indices: Array) -> Mapping[str, Raw]:
        """Read samples as the other pipeline does."""
        began = perf_counter()
        samples = super().read_raw(indices)
        self._record("read", began, perf_counter())
        return samples

    @contextmanager
    def _located_at(self, step: TransformStep, indices: Array) -> Iterator[None]:
        began = perf_counter()
        with super()._located_at(step, indices):
            yield
        self._record(type(step.transform).__name__, began, perf_counter())

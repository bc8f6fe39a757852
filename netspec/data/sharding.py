"""One worker's share of the batches: a part of each batch in training, every n-th batch in an evaluation.

The samples of a batch do not depend on the number of workers. Damaged samples make a batch smaller, since a worker does
not know which samples other workers leave out. A worker without samples gets an unused one, so that it can take part in
collective operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from netspec.data.base import Array
from netspec.data.batches import Batch, BatchBuilder, BatchPart, Cursor, PreparedPart
from netspec.data.input_binding import InputBinding
from netspec.data.pipeline import TransformPipeline
from netspec.data.random import Order
from netspec.data.thread_pool import ThreadPool
from netspec.schema.specs.data import SplitFields


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one of `count` workers: their parts of a batch are as equal as possible."""

    number: int = 0
    count: int = 1
    shards: int | None = None
    """Number of parts that are never split. Each worker has a contiguous range of them. None: as many as workers."""

    def of(self, start: int, stop: int) -> tuple[int, int]:
        """Return the start and end of the share of a range of positions."""
        size, shards = stop - start, self.shards or self.count
        first, last = (shards * number // self.count for number in (self.number, self.number + 1))
        return start + size * first // shards, start + size * last // shards

    def has(self, batch: int) -> bool:
        """Return whether the worker has this batch, if each batch belongs to one worker."""
        return batch % self.count == self.number


ALONE = Share()


class ShardedBatchBuilder(BatchBuilder):
    """Builds a worker's share of the batches of a split."""

    def __init__(
        self,
        pipeline: TransformPipeline,
        bindings: Sequence[InputBinding],
        split: SplitFields,
        share: Share,
        *,
        stream: bool,
    ) -> None:
        super().__init__(pipeline, bindings, split, stream=stream)
        self._share = share
        self._spare: dict[str, Array] | None = None

    def batches(
        self, start: Cursor, order: Callable[[int], Order], *, endless: bool, workers: ThreadPool | None
    ) -> Iterator[Batch]:
        """Yield the worker's share of every batch from `start` on, or in a single pass the batches of the worker."""
        parts = self._parts(self._own(self._jobs(start, order, endless=endless), endless=endless), workers)
        cursor, samples, size = start, self._pipeline.samples, self._split.batch_size
        while endless or cursor.epoch == 0:
            position, stop = cursor.position, min(cursor.position + size, samples)
            first, end = self._range(cursor.step - start.step, position, stop, endless=endless)
            parts_read = list(_until(parts, end)) if first < end else []
            inputs, indices = self._inputs_of([part for part in parts_read if len(part)], cursor.epoch)
            skipped = tuple(sample for part in parts_read for sample in part.job.skipped.values())
            batch = Batch(inputs, indices, cursor.epoch, position, cursor.step, stop, skipped, first - position)
            if endless or first < end:
                yield batch
            cursor = cursor.after(batch, samples)

    def _range(self, number: int, start: int, stop: int, *, endless: bool) -> tuple[int, int]:
        """Return the positions of a batch that belong to the worker."""
        if endless:
            return self._share.of(start, stop)
        return (start, stop) if self._share.has(number) else (start, start)

    def _own(self, batches_to_prepare: Iterator[BatchPart], *, endless: bool) -> Iterator[BatchPart]:
        """Yield the worker's part of each batch. A stream is read in full, in its order."""
        for number, job in enumerate(batches_to_prepare):
            start, stop = job.stop - len(job.positions), job.stop
            batch = self._read(job) if self._stream else job
            first, end = self._range(number, start, stop, endless=endless)
            if first < end:
                yield batch.between(first, end)

    def _inputs_of(self, parts: Sequence[PreparedPart], epoch: int) -> tuple[dict[str, Array], Array]:
        """Return inputs and indices. Without samples, the inputs have one unused sample."""
        if parts:
            inputs, _, indices = self._join_parts(parts, epoch)
            self._spare = {name: values[:1] for name, values in inputs.items()}
            return inputs, indices
        none: np.ndarray[Any, Any] = np.zeros(0, np.int64)
        zeros = {binding.name: np.zeros((1, *binding.shape), binding.dtype) for binding in self._bindings}
        return self._spare or zeros, none


def _until(parts: Iterator[PreparedPart], end: int) -> Iterator[PreparedPart]:
    """Yield the parts of a batch that ends at a position."""
    for part in parts:
        yield part
        if part.job.stop == end:
            return

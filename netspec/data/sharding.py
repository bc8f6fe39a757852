"""One worker's share of the batches: a part of each batch in training, every n-th batch in an evaluation.

Which samples a batch consists of does not depend on how many workers share it. Damaged samples that are left out leave
it smaller, since what another worker leaves out is not known; a worker that has none at all gets one that does not
count, so that it can take its part in what all workers do together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.batches import Batch, BatchMaker, Cursor, Job, Part
from netspec.data.input_binding import Feed
from netspec.data.pipeline import Pipeline
from netspec.data.random import Order
from netspec.data.thread_pool import Workers
from netspec.schema.specs.data import SplitFields

if TYPE_CHECKING:
    from netspec.data.base import Array


@dataclass(frozen=True, slots=True)
class Share:
    """Which samples of each batch a worker has: of `count` parts as equal as can be, that with this number."""

    number: int = 0
    count: int = 1
    shards: int | None = None
    """Parts that are never cut: each worker has some of them, in a row. None: a worker's share is its only part."""

    def of(self, start: int, stop: int) -> tuple[int, int]:
        """Where the share begins and ends of what lies between two places."""
        size, shards = stop - start, self.shards or self.count
        first, last = (shards * number // self.count for number in (self.number, self.number + 1))
        return start + size * first // shards, start + size * last // shards

    def has(self, batch: int) -> bool:
        """Whether the worker has this batch, where each is for one of them."""
        return batch % self.count == self.number


ALONE = Share()


class SharedBatchMaker(BatchMaker):
    """Makes a worker's share of the batches of a split."""

    def __init__(
        self, pipeline: Pipeline, feeds: Sequence[Feed], split: SplitFields, share: Share, *, stream: bool
    ) -> None:
        super().__init__(pipeline, feeds, split, stream=stream)
        self._share = share
        self._spare: dict[str, Array] | None = None

    def batches(
        self, start: Cursor, order: Callable[[int], Order], *, endless: bool, workers: Workers | None
    ) -> Iterator[Batch]:
        """The worker's share of every batch from `start` on; of one pass, those batches that are the worker's."""
        parts = self._parts(self._own(self._jobs(start, order, endless=endless), endless=endless), workers)
        cursor, samples, size = start, self._pipeline.samples, self._split.batch_size
        while endless or cursor.epoch == 0:
            position, stop = cursor.position, min(cursor.position + size, samples)
            first, end = self._range(cursor.step - start.step, position, stop, endless=endless)
            found = list(_until(parts, end)) if first < end else []
            inputs, indices = self._made_of([part for part in found if len(part)], cursor.epoch)
            skipped = tuple(one for part in found for one in part.job.skipped.values())
            batch = Batch(inputs, indices, cursor.epoch, position, cursor.step, stop, skipped, first - position)
            if endless or first < end:
                yield batch
            cursor = cursor.after(batch, samples)

    def _range(self, number: int, start: int, stop: int, *, endless: bool) -> tuple[int, int]:
        """The places of a batch that are the worker's."""
        if endless:
            return self._share.of(start, stop)
        return (start, stop) if self._share.has(number) else (start, start)

    def _own(self, jobs: Iterator[Job], *, endless: bool) -> Iterator[Job]:
        """Of each batch what is the worker's; a stream is read whole, in its order."""
        for number, job in enumerate(jobs):
            start, stop = job.stop - len(job.places), job.stop
            whole = self._read(job) if self._stream else job
            first, end = self._range(number, start, stop, endless=endless)
            if first < end:
                yield whole.between(first, end)

    def _made_of(self, parts: Sequence[Part], epoch: int) -> tuple[dict[str, Array], Array]:
        """Inputs and indices; where there are no samples, a spare one for the inputs."""
        if parts:
            inputs, _, indices = self._finished(parts, epoch)
            self._spare = {name: values[:1] for name, values in inputs.items()}
            return inputs, indices
        none: np.ndarray[Any, Any] = np.zeros(0, np.int64)
        zeros = {feed.name: np.zeros((1, *feed.shape), feed.dtype) for feed in self._feeds}
        return self._spare or zeros, none


def _until(parts: Iterator[Part], end: int) -> Iterator[Part]:
    """The parts of a batch, which ends at that place."""
    for part in parts:
        yield part
        if part.job.stop == end:
            return

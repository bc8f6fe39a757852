"""Making batches: cutting an epoch into parts, preparing these at the same time, and leaving out damaged samples.

What becomes of a sample depends on nothing but the sample, the seed and the epoch, so it makes no difference how an
epoch is cut. A batch is the next samples of the epoch's order that can be used; which samples are damaged does not
depend on threads or batches either, so the batch that follows a position is always the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import DamagedSamples, blamed_on
from netspec.data.input_binding import Feed
from netspec.data.pipeline import Pipeline
from netspec.data.prefetch import Pace
from netspec.data.random import Order
from netspec.data.thread_pool import Workers
from netspec.errors import InputError, Problem, counted
from netspec.schema.specs.data import SplitFields

if TYPE_CHECKING:
    from netspec.data.base import Array, Raw, Samples

PARTS, FEWEST, NEAR = 16, 4, 2**16
"""Most and fewest parts that a batch is cut into where preparing it is slow, and the numbers of a part that are enough.

A part takes a while to begin and to hand over; one of large images should stay in the cache.
"""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A damaged sample that was left out."""

    index: int
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        """Description of the problem: "image a.jpg cannot be read: image file is truncated"."""
        return "; ".join(one.brief for one in self.problems)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples for one step. The arrays belong to the reader, who may keep them."""

    inputs: dict[str, Array]
    """One array for each input of the net, (N, *shape)."""
    indices: Array
    """Indices of the samples in the dataset, (N,)."""
    epoch: int
    """The pass over the data that the batch belongs to, counted from 0."""
    position: int
    """How many samples of this epoch came before, those left out included."""
    step: int
    """How many batches came before, over all epochs."""
    end: int
    """How many samples of this epoch came before the next batch."""
    skipped: tuple[Skipped, ...] = ()
    """The damaged samples between `position` and `end`."""
    offset: int = 0
    """Number of samples of the full batch that come before this worker's share."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def rows(self) -> int:
        """How many samples the arrays hold: those of the batch, or 1 where a worker has none, which does not count."""
        return max(len(self), 1)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position of the next batch."""

    epoch: int = 0
    position: int = 0
    step: int = 0

    def after(self, batch: Batch, samples: int) -> Cursor:
        """Position after a batch."""
        ended = batch.end >= samples
        return Cursor(batch.epoch + ended, 0 if ended else batch.end, batch.step + 1)


@dataclass(frozen=True, slots=True)
class _Block:
    """The arrays of a whole batch, which its parts are written into."""

    arrays: dict[str, Array]
    rows: int


@dataclass(frozen=True, slots=True)
class Job:
    """Samples to be prepared: places of an epoch's order."""

    epoch: int
    places: Array
    indices: Array
    stop: int
    """The place behind its last sample, damaged or not."""
    last: bool
    """Whether the epoch ends with it."""
    raw: Mapping[str, Raw] | None = None
    """The samples, where they have been read already."""
    skipped: dict[int, Skipped] = field(default_factory=dict)
    """Those left out so far, by their place."""
    block: _Block | None = None
    offset: int = 0
    """Where in the block its samples begin."""
    whole: Job | None = None
    """The batch that it is a part of."""

    def rows(self, start: int, stop: int) -> Job:
        """Some of the samples."""
        raw = None if self.raw is None else {name: values[start:stop] for name, values in self.raw.items()}
        ends = stop == len(self.places)
        skipped = self.skipped if start == 0 else {}
        return replace(
            self, places=self.places[start:stop], indices=self.indices[start:stop],
            stop=self.stop if ends else int(self.places[stop]), last=self.last and ends, raw=raw,
            skipped=skipped, offset=start, whole=self,
        )  # fmt: skip

    def between(self, start: int, stop: int) -> Job:
        """A job of its own: the samples at the places from `start` to `stop`."""
        first, end = (int(one) for one in np.searchsorted(self.places, [start, stop]))
        skipped = {place: one for place, one in self.skipped.items() if start <= place < stop}
        return replace(self.rows(first, end), stop=stop, skipped=skipped, offset=0, whole=None)

    def without(self, rows: Mapping[int, Sequence[Problem]]) -> Job:
        """All but the damaged ones, which are noted; they fill no block any more."""
        gone = {int(self.places[row]): Skipped(int(self.indices[row]), tuple(found)) for row, found in rows.items()}
        kept = np.delete(np.arange(len(self.places)), list(rows))
        raw = None if self.raw is None else {name: _picked(values, kept) for name, values in self.raw.items()}
        return replace(
            self, places=self.places[kept], indices=self.indices[kept], raw=raw, skipped={**self.skipped, **gone},
            block=None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """Prepared samples, stored as one block if none of them is damaged."""

    job: Job
    fields: Mapping[str, Samples]

    def __len__(self) -> int:
        return len(self.job.places)

    def rows(self, start: int, stop: int) -> Part:
        job = replace(self.job.rows(start, stop), offset=self.job.offset + start, whole=None, skipped={})
        return Part(job, {name: values[start:stop] for name, values in self.fields.items()})


class BatchMaker:
    """Makes the batches of a split. Of a `stream`, samples are read by one thread, in their order."""

    def __init__(self, pipeline: Pipeline, feeds: Sequence[Feed], split: SplitFields, *, stream: bool) -> None:
        self._pipeline, self._feeds, self._split = pipeline, feeds, split
        self._skip = split.on_error == "skip"
        self._stream = stream
        numbers = max(1, sum(prod(feed.shape) for feed in feeds))
        least, most = (-(-split.batch_size // parts) for parts in (PARTS, FEWEST))
        self._rows_of_part = max(least, min(most, NEAR // numbers))

    def batches(
        self, start: Cursor, order: Callable[[int], Order], *, endless: bool, workers: Workers | None
    ) -> Iterator[Batch]:
        """The batches from `start` on, of all epochs or of the first; `order` gives that of an epoch's samples.

        Raises InputError where no sample of an epoch can be used. It may run in another thread: it touches nothing that
        the consumer changes.
        """
        parts = self._parts(self._jobs(start, order, endless=endless), workers)
        cursor, samples, size = start, self._pipeline.samples, self._split.batch_size
        while endless or cursor.epoch == 0:
            epoch, supply = cursor.epoch, _Supply(parts)
            while cursor.epoch == epoch:
                supply.fill(size)
                taken = supply.take(size)
                if not taken:
                    raise self._nothing_usable(supply)
                inputs, places, indices = self._finished(taken, epoch)
                if self._skip:
                    supply.fill(1)  # only damaged ones may follow: then this batch is the last
                end = samples if supply.ended else int(places[-1]) + 1
                skipped = supply.skipped_before(end)
                batch = Batch(inputs, indices, epoch, cursor.position, cursor.step, end, skipped)
                yield batch
                cursor = cursor.after(batch, samples)

    def _jobs(self, start: Cursor, order: Callable[[int], Order], *, endless: bool) -> Iterator[Job]:
        """The samples of each batch, should none of them be damaged."""
        epoch, first, samples, size = start.epoch, start.position, self._pipeline.samples, self._split.batch_size
        while endless or epoch == 0:
            chosen = order(epoch)
            for place in range(first, samples, size):
                stop = min(place + size, samples)
                yield Job(epoch, np.arange(place, stop), chosen.take(place, stop), stop, stop == samples)
            epoch, first = epoch + 1, 0

    def _parts(self, jobs: Iterator[Job], workers: Workers | None) -> Iterator[Part]:
        """Prepared samples in their order: batch by batch, and once that is slow, in parts, by all workers."""
        pace = Pace()
        for job in jobs:
            began = perf_counter()
            part = self._made(job)
            slow = pace.is_slow(perf_counter() - began)
            yield part
            if slow and workers is not None:
                parts = -(-self._split.batch_size // self._rows_of_part)
                yield from workers.in_order(self._made, self._cut(jobs), parts + workers.count)
            elif slow:
                yield from map(self._made, self._cut(jobs))  # parts stay in the cache, where batches do not

    def _cut(self, jobs: Iterator[Job]) -> Iterator[Job]:
        for job in jobs:
            whole = self._read(job) if self._stream else job  # a stream is read here, in its order
            rows = len(whole.places)
            if not self._pipeline.mixes:
                shapes = {feed.name: (rows, *feed.shape) for feed in self._feeds}
                dtypes = {feed.name: feed.dtype for feed in self._feeds}
                whole = replace(
                    whole, block=_Block({name: np.empty(shapes[name], dtypes[name]) for name in shapes}, rows)
                )
            for start in range(0, max(rows, 1), self._rows_of_part):
                yield whole.rows(start, min(start + self._rows_of_part, rows))

    def _made(self, job: Job) -> Part:
        """Prepare a job's samples, without damaged ones if these are left out."""
        try:
            while len((job := self._read(job)).places):
                try:
                    return Part(job, self._prepared(job))
                except DamagedSamples as error:
                    job = self._without(job, error)
        except DamagedSamples:
            if job.whole is not None:
                self._made(replace(job.whole, block=None))  # raises with all damaged samples of the batch
            raise
        return Part(job, {})

    def _read(self, job: Job) -> Job:
        while job.raw is None and len(job.places):
            try:
                return replace(job, raw=self._pipeline.unchanged(job.indices))
            except DamagedSamples as error:
                job = self._without(job, error)
        return job

    def _without(self, job: Job, error: DamagedSamples) -> Job:
        if not self._skip:
            raise error
        return job.without(error.rows)

    def _prepared(self, job: Job) -> Mapping[str, Samples]:
        """The inputs of the net; the fields that are to be mixed where samples are mixed."""
        assert job.raw is not None
        changed = self._pipeline.changed(job.raw, job.indices, job.epoch)
        if self._pipeline.mixes:
            self._pipeline.check_mixed(changed, job.indices)
            return changed
        rows = slice(job.offset, job.offset + len(job.places))
        into = {} if job.block is None else {name: array[rows] for name, array in job.block.arrays.items()}
        return self._fed(changed, job.indices, into)

    def _fed(self, fields: Mapping[str, Samples], indices: Array, into: Mapping[str, Array]) -> dict[str, Array]:
        describe = self._pipeline.describe
        with blamed_on(self._split, "source"):
            return {
                feed.name: feed.convert(np.asarray(fields[feed.field]), indices, describe, into.get(feed.name))
                for feed in self._feeds
            }

    def _finished(self, parts: Sequence[Part], epoch: int) -> tuple[dict[str, Array], Array, Array]:
        """Inputs, places and indices of a batch."""
        places = np.concatenate([part.job.places for part in parts])
        indices = np.concatenate([part.job.indices for part in parts])
        fields = _joined(parts)
        if not self._pipeline.mixes:
            return {name: np.asarray(values) for name, values in fields.items()}, places, indices
        return self._fed(self._pipeline.finished(fields, indices, epoch), indices, {}), places, indices

    def _nothing_usable(self, supply: _Supply) -> InputError:
        skipped = supply.skipped_before(self._pipeline.samples)
        found = [problem for one in skipped for problem in one.problems]
        return InputError(
            [
                Problem(
                    f"none of {counted(len(skipped), 'sample')} can be used", self._split.where("on_error"), "on_error",
                    expected="one sample or more that is not damaged",
                ),
                *found[:5],
            ]
        )  # fmt: skip


class _Supply:
    """The usable samples of one epoch that have been prepared and not been taken."""

    def __init__(self, parts: Iterator[Part]) -> None:
        self._parts = parts
        self._ready: deque[Part] = deque()
        self._count = 0
        self._skipped: dict[int, Skipped] = {}
        self._all_came = False

    @property
    def ended(self) -> bool:
        """Whether all samples of the epoch have been taken."""
        return self._all_came and not self._count

    def fill(self, count: int) -> None:
        """Prepare samples until `count` are ready, or the epoch ends."""
        while self._count < count and not self._all_came:
            part = next(self._parts)
            self._all_came = part.job.last
            self._skipped |= part.job.skipped
            if len(part):
                self._ready.append(part)
                self._count += len(part)

    def take(self, count: int) -> list[Part]:
        """The next samples, `count` or what is left."""
        taken: list[Part] = []
        while count and self._ready:
            part = self._ready.popleft()
            if len(part) > count:
                self._ready.appendleft(part.rows(count, len(part)))
                part = part.rows(0, count)
            taken.append(part)
            count -= len(part)
            self._count -= len(part)
        return taken

    def skipped_before(self, place: int) -> tuple[Skipped, ...]:
        """The damaged samples before a place that were not asked for yet."""
        places = sorted(one for one in self._skipped if one < place)
        return tuple(self._skipped.pop(one) for one in places)


def _joined(parts: Sequence[Part]) -> Mapping[str, Samples]:
    """The fields of all parts, in one; nothing is copied where they are a block."""
    if len(parts) == 1:
        return parts[0].fields
    block = parts[0].job.block
    if block is not None and block.rows == sum(map(len, parts)) and all(part.job.block is block for part in parts):
        return block.arrays
    fields = {name: [part.fields[name] for part in parts] for name in parts[0].fields}
    return {name: _concatenated(values) for name, values in fields.items()}


def _concatenated(values: Sequence[Samples]) -> Samples:
    if any(isinstance(one, list) for one in values):
        return [sample for one in values for sample in one]
    return np.concatenate(values)


def _picked(values: Raw, rows: Array) -> Raw:
    return [values[row] for row in rows] if isinstance(values, list) else values[rows]

"""Builds batches: splits an epoch into parts, prepares these concurrently, and leaves out damaged samples.

The result for a sample depends only on the sample, the seed and the epoch, so it does not matter how an epoch is split.
A batch consists of the next usable samples in the order of the epoch. Which samples are damaged does not depend on
threads or batches either, so the batch after a position is always the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from time import perf_counter

import numpy as np

from netspec.data.base import Array, DamagedSamples, Raw, RejectedSamples, Samples, hint_at_skip, located_at
from netspec.data.input_binding import InputBinding
from netspec.data.pipeline import TransformPipeline
from netspec.data.prefetch import SlowStreak
from netspec.data.random import Order
from netspec.data.thread_pool import ThreadPool
from netspec.errors import InputError, Problem, counted
from netspec.schema.specs.data import SplitFields

MAX_PARTS, MIN_PARTS, PART_VALUES = 16, 4, 2**16
"""Limits on splitting batches that are slow to prepare: most parts, fewest parts, and values that suffice for a part.

Starting a part and passing it on has a cost; a part of large images should fit in the cache.
"""


@dataclass(frozen=True, slots=True)
class SkippedSample:
    """A damaged sample that was left out."""

    index: int
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        """Description of the problem: "image a.jpg cannot be read: image file is truncated"."""
        return "; ".join(problem.brief for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples for one step. The arrays belong to the caller, who may keep them."""

    inputs: dict[str, Array]
    """The array of each input of the net, (N, *shape)."""
    indices: Array
    """Indices of the samples in the dataset, (N,)."""
    epoch: int
    """The pass over the data that the batch belongs to, counted from 0."""
    position: int
    """Number of samples of this epoch before this batch, including those left out."""
    step: int
    """Number of batches before this one, over all epochs."""
    end: int
    """Number of samples of this epoch before the next batch."""
    skipped: tuple[SkippedSample, ...] = ()
    """The damaged samples between `position` and `end`."""
    offset: int = 0
    """Number of samples of the full batch that come before this worker's share."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def rows(self) -> int:
        """Number of samples in the arrays: those of the batch, or 1 unused sample if this worker has none."""
        return max(len(self), 1)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position of the next batch."""

    epoch: int = 0
    position: int = 0
    step: int = 0

    def after(self, batch: Batch, samples: int) -> Cursor:
        """Return the position after a batch."""
        ended = batch.end >= samples
        return Cursor(batch.epoch + ended, 0 if ended else batch.end, batch.step + 1)


@dataclass(frozen=True, slots=True)
class _BatchArrays:
    """The arrays of a whole batch, which its parts write to."""

    arrays: dict[str, Array]
    rows: int


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Samples to prepare, by their positions in the order of an epoch: a batch, or a part of it."""

    epoch: int
    positions: Array
    indices: Array
    stop: int
    """Position after its last sample, damaged or not."""
    last: bool
    """Whether it is the last part of the epoch."""
    raw: Mapping[str, Raw] | None = None
    """The samples, if they have been read already."""
    skipped: dict[int, SkippedSample] = field(default_factory=dict)
    """The samples left out so far, by their position."""
    block: _BatchArrays | None = None
    offset: int = 0
    """First row of its samples in the block."""
    whole: BatchPart | None = None
    """The batch that contains it."""

    def rows(self, start: int, stop: int) -> BatchPart:
        """Return the part with these rows."""
        raw = None if self.raw is None else {name: values[start:stop] for name, values in self.raw.items()}
        ends = stop == len(self.positions)
        skipped = self.skipped if start == 0 else {}
        return replace(
            self, positions=self.positions[start:stop], indices=self.indices[start:stop],
            stop=self.stop if ends else int(self.positions[stop]), last=self.last and ends, raw=raw,
            skipped=skipped, offset=start, whole=self,
        )  # fmt: skip

    def between(self, start: int, stop: int) -> BatchPart:
        """Return a separate part: the samples at the positions from `start` to `stop`."""
        first, end = (int(position) for position in np.searchsorted(self.positions, [start, stop]))
        skipped = {position: sample for position, sample in self.skipped.items() if start <= position < stop}
        return replace(self.rows(first, end), stop=stop, skipped=skipped, offset=0, whole=None)

    def without(self, rows: Mapping[int, Sequence[Problem]]) -> BatchPart:
        """Return the part without the damaged samples, which are recorded. It no longer writes to a block."""
        left_out = {
            int(self.positions[row]): SkippedSample(int(self.indices[row]), tuple(problems))
            for row, problems in rows.items()
        }
        usable = np.delete(np.arange(len(self.positions)), list(rows))
        raw = None if self.raw is None else {name: _picked(values, usable) for name, values in self.raw.items()}
        return replace(
            self, positions=self.positions[usable], indices=self.indices[usable], raw=raw,
            skipped={**self.skipped, **left_out}, block=None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """Prepared samples, stored in one block if none of them is damaged."""

    job: BatchPart
    fields: Mapping[str, Samples]

    def __len__(self) -> int:
        return len(self.job.positions)

    def rows(self, start: int, stop: int) -> PreparedPart:
        job = replace(self.job.rows(start, stop), offset=self.job.offset + start, whole=None, skipped={})
        return PreparedPart(job, {name: values[start:stop] for name, values in self.fields.items()})


class BatchBuilder:
    """Builds the batches of a split. The samples of a `stream` are read by one thread, in their order."""

    def __init__(
        self, pipeline: TransformPipeline, bindings: Sequence[InputBinding], split: SplitFields, *, stream: bool
    ) -> None:
        self._pipeline, self._bindings, self._split = pipeline, bindings, split
        self._skip = split.on_error == "skip"
        self._stream = stream
        numbers = max(1, sum(prod(binding.shape) for binding in bindings))
        least, most = (-(-split.batch_size // parts) for parts in (MAX_PARTS, MIN_PARTS))
        self._rows_of_part = max(least, min(most, PART_VALUES // numbers))

    def batches(
        self, start: Cursor, order: Callable[[int], Order], *, endless: bool, workers: ThreadPool | None
    ) -> Iterator[Batch]:
        """Yield the batches from `start` on, of all epochs or of the first; `order` returns the order of an epoch.

        Raises `InputError` if no sample of an epoch can be used. May run in another thread: it modifies nothing that
        the consumer uses.
        """
        parts = self._parts(self._jobs(start, order, endless=endless), workers)
        cursor, samples, size = start, self._pipeline.samples, self._split.batch_size
        while endless or cursor.epoch == 0:
            epoch, supply = cursor.epoch, _ReadySamples(parts)
            while cursor.epoch == epoch:
                supply.fill(size)
                parts_taken = supply.take(size)
                if not parts_taken:
                    raise self._nothing_usable(supply)
                inputs, positions, indices = self._join_parts(parts_taken, epoch)
                if self._skip:
                    supply.fill(1)  # only damaged samples may follow: then this batch is the last
                end = samples if supply.ended else int(positions[-1]) + 1
                skipped = supply.skipped_before(end)
                batch = Batch(inputs, indices, epoch, cursor.position, cursor.step, end, skipped)
                yield batch
                cursor = cursor.after(batch, samples)

    def _jobs(self, start: Cursor, order: Callable[[int], Order], *, endless: bool) -> Iterator[BatchPart]:
        """Yield the samples of each batch, assuming that none of them is damaged."""
        epoch, first, samples, size = start.epoch, start.position, self._pipeline.samples, self._split.batch_size
        while endless or epoch == 0:
            chosen = order(epoch)
            for position in range(first, samples, size):
                stop = min(position + size, samples)
                yield BatchPart(epoch, np.arange(position, stop), chosen.take(position, stop), stop, stop == samples)
            epoch, first = epoch + 1, 0

    def _parts(self, batches_to_prepare: Iterator[BatchPart], workers: ThreadPool | None) -> Iterator[PreparedPart]:
        """Yield prepared samples in their order: whole batches, or once that is slow, parts prepared by all workers."""
        pace = SlowStreak()
        for job in batches_to_prepare:
            began = perf_counter()
            part = self._prepare_part(job)
            slow = pace.is_slow(perf_counter() - began)
            yield part
            if slow and workers is not None:
                parts = -(-self._split.batch_size // self._rows_of_part)
                yield from workers.map_ordered(
                    self._prepare_part, self._split_batches(batches_to_prepare), parts + workers.count
                )
            elif slow:
                yield from map(
                    self._prepare_part, self._split_batches(batches_to_prepare)
                )  # parts fit in the cache, whole batches do not

    def _split_batches(self, batches_to_prepare: Iterator[BatchPart]) -> Iterator[BatchPart]:
        for job in batches_to_prepare:
            batch = self._read(job) if self._stream else job  # a stream is read here, in its order
            rows = len(batch.positions)
            if not self._pipeline.mixes:
                shapes = {binding.name: (rows, *binding.shape) for binding in self._bindings}
                dtypes = {binding.name: binding.dtype for binding in self._bindings}
                batch = replace(
                    batch, block=_BatchArrays({name: np.empty(shapes[name], dtypes[name]) for name in shapes}, rows)
                )
            for start in range(0, max(rows, 1), self._rows_of_part):
                yield batch.rows(start, min(start + self._rows_of_part, rows))

    def _prepare_part(self, job: BatchPart) -> PreparedPart:
        """Prepare samples. Damaged ones are left out if the split skips them."""
        try:
            while len((job := self._read(job)).positions):
                try:
                    return PreparedPart(job, self._prepared(job))
                except DamagedSamples as error:
                    job = self._without(job, error)
        except RejectedSamples:
            if job.whole is not None:
                self._prepare_part(replace(job.whole, block=None))  # raises with all rejected samples of the batch
            raise
        return PreparedPart(job, {})

    def _read(self, job: BatchPart) -> BatchPart:
        while job.raw is None and len(job.positions):
            try:
                return replace(job, raw=self._pipeline.read_raw(job.indices))
            except DamagedSamples as error:
                job = self._without(job, error)
        return job

    def _without(self, job: BatchPart, error: DamagedSamples) -> BatchPart:
        with hint_at_skip(self._split):
            if not self._skip:
                raise error
        return job.without(error.rows)

    def _prepared(self, job: BatchPart) -> Mapping[str, Samples]:
        """Return the inputs of the net, or the fields to mix if samples are mixed."""
        assert job.raw is not None
        changed = self._pipeline.transform_samples(job.raw, job.indices, job.epoch)
        if self._pipeline.mixes:
            self._pipeline.check_mixed(changed, job.indices)
            return changed
        rows = slice(job.offset, job.offset + len(job.positions))
        into = {} if job.block is None else {name: array[rows] for name, array in job.block.arrays.items()}
        return self._bind(changed, job.indices, into)

    def _bind(self, fields: Mapping[str, Samples], indices: Array, into: Mapping[str, Array]) -> dict[str, Array]:
        describe = self._pipeline.describe
        with located_at(self._split, "source"):
            return {
                binding.name: binding.convert(
                    np.asarray(fields[binding.field]), indices, describe, into.get(binding.name)
                )
                for binding in self._bindings
            }

    def _join_parts(self, parts: Sequence[PreparedPart], epoch: int) -> tuple[dict[str, Array], Array, Array]:
        """Return inputs, positions and indices of a batch."""
        positions = np.concatenate([part.job.positions for part in parts])
        indices = np.concatenate([part.job.indices for part in parts])
        fields = _joined(parts)
        if not self._pipeline.mixes:
            return {name: np.asarray(values) for name, values in fields.items()}, positions, indices
        return self._bind(self._pipeline.transform_batch(fields, indices, epoch), indices, {}), positions, indices

    def _nothing_usable(self, supply: _ReadySamples) -> InputError:
        skipped = supply.skipped_before(self._pipeline.samples)
        problems = [problem for sample in skipped for problem in sample.problems]
        return InputError(
            [
                Problem(
                    f"none of {counted(len(skipped), 'sample')} can be used", self._split.where("on_error"), "on_error",
                    expected="one sample or more that is not damaged",
                ),
                *problems[:5],
            ]
        )  # fmt: skip


class _ReadySamples:
    """The usable samples of one epoch that have been prepared and not yet been returned."""

    def __init__(self, parts: Iterator[PreparedPart]) -> None:
        self._parts = parts
        self._ready: deque[PreparedPart] = deque()
        self._count = 0
        self._skipped: dict[int, SkippedSample] = {}
        self._all_came = False

    @property
    def ended(self) -> bool:
        """Whether all samples of the epoch have been returned."""
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

    def take(self, count: int) -> list[PreparedPart]:
        """Return the next `count` samples, or what is left of the epoch."""
        parts: list[PreparedPart] = []
        while count and self._ready:
            part = self._ready.popleft()
            if len(part) > count:
                self._ready.appendleft(part.rows(count, len(part)))
                part = part.rows(0, count)
            parts.append(part)
            count -= len(part)
            self._count -= len(part)
        return parts

    def skipped_before(self, position: int) -> tuple[SkippedSample, ...]:
        """Return the damaged samples before a position that were not returned yet."""
        positions = sorted(skipped_at for skipped_at in self._skipped if skipped_at < position)
        return tuple(self._skipped.pop(skipped_at) for skipped_at in positions)


def _joined(parts: Sequence[PreparedPart]) -> Mapping[str, Samples]:
    """Return the fields of all parts together. Nothing is copied if they share a block."""
    if len(parts) == 1:
        return parts[0].fields
    block = parts[0].job.block
    if block is not None and block.rows == sum(map(len, parts)) and all(part.job.block is block for part in parts):
        return block.arrays
    fields = {name: [part.fields[name] for part in parts] for name in parts[0].fields}
    return {name: _concatenated(values) for name, values in fields.items()}


def _concatenated(values: Sequence[Samples]) -> Samples:
    if any(isinstance(array, list) for array in values):
        return [sample for array in values for sample in array]
    return np.concatenate(values)


def _picked(values: Raw, rows: Array) -> Raw:
    return [values[row] for row in rows] if isinstance(values, list) else values[rows]

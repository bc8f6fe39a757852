"""The loader: a split as batches, in an order that the seed and the epoch alone decide.

The batch that follows any point of a training is a function of (seed, epoch, position): nothing is drawn from a
running generator, so resuming, prefetching and evaluating in between change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from netspec.data.base import Dataset, FieldType, Source, Transform, blamed_on
from netspec.data.feeds import ValueRange, match_feeds
from netspec.data.order import epoch_order, order_digest
from netspec.data.pipeline import Learned, Pipeline
from netspec.data.prefetch import Prefetcher
from netspec.errors import InputError, Problem
from netspec.schema.data import SplitFields

if TYPE_CHECKING:
    from types import TracebackType

    from netspec.data.base import Array, Samples


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples for one step. The arrays belong to the reader, who may keep them."""

    inputs: dict[str, Array]
    """One array for each input of the net, (N, *shape)."""
    indices: Array
    """Which samples of the dataset these are, (N,)."""
    epoch: int
    """The pass over the data that the batch belongs to, counted from 0."""
    position: int
    """How many samples of this epoch came before."""
    step: int
    """How many batches came before, over all epochs."""

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The place of the next batch."""

    epoch: int = 0
    position: int = 0
    step: int = 0

    def after(self, batch: Batch, samples: int) -> _Cursor:
        end = batch.position + len(batch)
        return _Cursor(batch.epoch + (end >= samples), 0 if end >= samples else end, batch.step + 1)


class Loader:
    """The batches of a split.

    Iterating gives training batches without end, from the cursor on; `one_pass` gives every sample once, for an
    evaluation. Either way the last batch of an epoch is as small as what is left. Use it as a context manager, or
    `close` it: that ends the threads of iterations that were left half way.

    `wanted`: the inputs to fill, by name; default: all fields of the source under their own names. `known`: all
    inputs that the net declares, if more than those wanted. `ranges`: the values that an input may have. `learned`:
    `Loader.learned` of the training split, for every other split. Raises InputError with all that does not match.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: SplitFields,
        *,
        seed: int,
        wanted: Mapping[str, FieldType] | None = None,
        ranges: Mapping[str, ValueRange] | None = None,
        known: Collection[str] | None = None,
        learned: Learned | None = None,
        prefetch: int | None = None,
    ) -> None:
        self._pipeline = Pipeline(dataset, split, seed=seed, learned=learned)
        if wanted is None:
            back = {source: name for name, source in split.inputs.items()}
            wanted = {back.get(name, name): field for name, field in self._pipeline.fields.items()}
        self._feeds = match_feeds(self._pipeline.fields, wanted, split, ranges=ranges, known=known)
        self._split = split
        self._data_digest = dataset.digest
        self._seed = seed
        self._shuffle = split.shuffle
        self._prefetch = split.prefetch if prefetch is None else prefetch
        self._cursor = _Cursor()
        self._open: list[Prefetcher[Batch]] = []
        self._training: Prefetcher[Batch] | None = None
        self.batch_size = split.batch_size
        self.samples = self._pipeline.samples
        """How many samples an epoch has."""
        self.learned: Learned = self._pipeline.learned
        """What was learned from this split, if it is that of training; else what was given."""

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has, the smaller last one included."""
        return -(-self.samples // self.batch_size)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes that batches have: that of most, then that of the last one if it is smaller."""
        full, rest = divmod(self.samples, self.batch_size)
        return (self.batch_size,) * bool(full) + (rest,) * bool(rest)

    @property
    def transforms(self) -> list[tuple[str, Transform]]:
        """The transforms in order, learned values filled in, each with a net's input that it reaches."""
        steps = self._pipeline.transforms
        return [(feed.name, step) for field, step in steps for feed in self._feeds if feed.field == field]

    def __iter__(self) -> Iterator[Batch]:
        """Batches from the cursor on, epoch after epoch. A new iteration ends the one before."""
        if self._training is not None:
            self._training.close()
        for batch in self._ahead(self._cursor, training=True):
            self._cursor = self._cursor.after(batch, self.samples)
            yield batch

    def one_pass(self) -> Iterator[Batch]:
        """Every sample once, in the order of the source; the cursor stays where it is."""
        return self._ahead(_Cursor(), training=False)

    def _ahead(self, start: _Cursor, *, training: bool) -> Iterator[Batch]:
        with Prefetcher(self._batches(start, training=training), self._prefetch) as ahead:
            self._open.append(ahead)
            if training:
                self._training = ahead
            try:
                yield from ahead
            finally:
                self._open.remove(ahead)

    def _batches(self, cursor: _Cursor, *, training: bool) -> Iterator[Batch]:
        """May run in the prefetching thread: it touches nothing that the consumer changes."""
        epoch, order = -1, np.zeros(0, np.int64)
        while training or cursor.epoch == 0:
            if cursor.epoch != epoch:
                epoch = cursor.epoch
                order = self._order_of(epoch) if training else np.arange(self.samples)
            indices = order[cursor.position : cursor.position + self.batch_size]
            batch = Batch(self._inputs(indices, epoch), indices, epoch, cursor.position, cursor.step)
            yield batch
            cursor = cursor.after(batch, self.samples)

    def _inputs(self, indices: Array, epoch: int) -> dict[str, Array]:
        fields = self._pipeline.read(indices, epoch)
        with blamed_on(self._split, "source"):
            return self._fed(fields, indices)

    def _fed(self, fields: dict[str, Samples], indices: Array) -> dict[str, Array]:
        describe = self._pipeline.describe
        return {feed.name: feed.convert(np.asarray(fields[feed.field]), indices, describe) for feed in self._feeds}

    def _order_of(self, epoch: int) -> Array:
        return epoch_order(self.samples, self._seed, epoch) if self._shuffle else np.arange(self.samples)

    def state(self) -> dict[str, int | str]:
        """The cursor, after the batch last given out, and what the rest of the training depends on: plain JSON data."""
        return {
            "epoch": self._cursor.epoch,
            "position": self._cursor.position,
            "step": self._cursor.step,
            "samples": self.samples,
            "order": order_digest(self._order_of(self._cursor.epoch)),
            "data": self._data_digest,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state` was taken.

        The batch size may be another one. Raises InputError if the data, its order or its length are not those of then.
        """
        numbers = [state.get(key) for key in ("epoch", "position", "step")]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise InputError(
                "the checkpoint's place in the data is damaged", expected="whole numbers", got=str(numbers)
            )
        cursor = _Cursor(*(int(number) for number in numbers if number is not None))
        found = state.get("data")
        if found != self._data_digest:
            raise InputError(
                "the training data changed since the checkpoint",
                expected=f"data with the fingerprint {str(found)[:12]}",
                got=self._data_digest[:12],
                hint="restore the data, or start a new training from the weights",
            )
        problem = self._other_order(state, cursor)
        if problem is not None:
            raise InputError(problem)
        if self._training is not None:
            self._training.close()
        self._cursor = cursor

    def _other_order(self, state: Mapping[str, Any], cursor: _Cursor) -> Problem | None:
        hint = "give the checkpoint's settings, or start a new training from the weights"
        if state.get("samples") != self.samples:
            expected, got = f"{state.get('samples')} samples", f"{self.samples} samples"
            return Problem("`limit` changed since the checkpoint", expected=expected, got=got, hint=hint)
        if state.get("order") != order_digest(self._order_of(cursor.epoch)):
            expected = f"the order of epoch {cursor.epoch} in the checkpoint"
            return Problem(
                "`seed` or `shuffle` changed since the checkpoint", expected=expected, got="another order", hint=hint
            )
        if cursor.position >= self.samples:
            expected = f"a position below {self.samples}"
            return Problem("the checkpoint's place in the data is damaged", expected=expected, got=str(cursor.position))
        return None

    def close(self) -> None:
        """End all iterations and their threads."""
        for ahead in list(self._open):
            ahead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_loader(
    split: SplitFields,
    *,
    seed: int,
    wanted: Mapping[str, FieldType] | None = None,
    ranges: Mapping[str, ValueRange] | None = None,
    known: Collection[str] | None = None,
    learned: Learned | None = None,
    prefetch: int | None = None,
) -> Loader:
    """Open the source of a split and make its loader; the arguments are those of `Loader`."""
    if not isinstance(split, Source):
        raise TypeError(f"{type(split).__name__} is not a data source")
    return Loader(
        split.open(seed=seed, learned=None if learned is None else learned.source),
        split,
        seed=seed,
        wanted=wanted,
        ranges=ranges,
        known=known,
        learned=learned,
        prefetch=prefetch,
    )

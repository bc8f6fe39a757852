"""The loader: a split as batches, in an order that the seed and the epoch alone decide.

The batch that follows any point of a training is a function of (seed, epoch, position): nothing is drawn from a
running generator, so resuming, prefetching and evaluating in between change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from netspec.data.base import Dataset, FieldType, Source, Transform
from netspec.data.batches import Batch, BatchMaker, Cursor
from netspec.data.input_binding import Feed, ValueRange, match_feeds
from netspec.data.pipeline import Learned, Pipeline
from netspec.data.prefetch import Prefetcher
from netspec.data.random import Order, Shuffled, Straight, Windowed, order_digest
from netspec.data.sharding import ALONE, Share, SharedBatchMaker
from netspec.data.thread_pool import Workers, processors
from netspec.data.uint8_lut import Late
from netspec.errors import InputError, Problem
from netspec.schema.specs.data import ShuffleWindow, SplitFields

if TYPE_CHECKING:
    from types import TracebackType


class Loader:
    """The batches of a split.

    Iterating gives training batches without end, from the cursor on; `one_pass` gives every sample once, for an
    evaluation. Either way the last batch of an epoch is as small as what is left. Use it as a context manager, or
    `close` it: that ends the threads of iterations that were left half way.

    `wanted`: the inputs to fill, by name; default: all fields of the source under their own names. `known`: all
    inputs that the net declares, if more than those wanted. `ranges`: the values that an input may have. `learned`:
    `Loader.learned` of the training split, for every other split. `share`: what of each batch this worker has. `late`:
    whether inputs may come as bytes, as `postponed` says. Raises InputError with all that does not match.
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
        share: Share = ALONE,
        late: bool = False,
    ) -> None:
        self._pipeline = Pipeline(dataset, split, seed=seed, learned=learned)
        if wanted is None:
            back = {source: name for name, source in split.inputs.items()}
            wanted = {back.get(name, name): field for name, field in self._pipeline.fields.items()}
        self._feeds = match_feeds(
            self._pipeline.fields,
            wanted,
            split,
            ranges=ranges,
            known=known,
            unwhole=dataset.unwhole,
            uneven=dataset.uneven,
        )
        self.postponed: dict[str, Late] = {}
        """Remaining work on inputs that arrive as bytes; positions of crops are separate, numbered inputs."""
        if late:
            self._leave_late()
        self._split = split
        self._data_digest = dataset.digest
        self._seed = seed
        self._stream, self._block = dataset.window is not None, dataset.block
        self._window = _window_of(dataset, split)
        self._share = share
        self._whole = BatchMaker(self._pipeline, self._feeds, split, stream=self._stream)
        self._shared = SharedBatchMaker(self._pipeline, self._feeds, split, share, stream=self._stream)
        self._prefetch = split.prefetch if prefetch is None else prefetch
        self._workers = split.workers or processors()
        self._cursor = Cursor()
        self._open: list[Prefetcher[Batch]] = []
        self._training: Prefetcher[Batch] | None = None
        self.batch_size = split.batch_size
        self.samples = self._pipeline.samples
        """How many samples an epoch has."""
        self.learned: Learned = self._pipeline.learned
        """Values learned from this split if it is the training split; else the given ones."""
        self.skips = split.on_error == "skip"
        """Whether damaged samples are left out."""
        self.skipped_at_opening: int = dataset.skipped
        """How many damaged samples the source left out when it was opened, as `on_error: skip` asks for."""
        self.damaged_at_opening: Sequence[str] = dataset.damaged
        """Problems of the first few of these."""

    def _leave_late(self) -> None:
        """Give bytes to those inputs that alone read a field of which they are all that is needed."""
        feeds = list[Feed]()
        for feed in self._feeds:
            alone = sum(one.field == feed.field for one in self._feeds) == 1
            asked = alone and feed.range is None and feed.dtype == "float32"
            late = self._pipeline.postpone(feed.field) if asked else None
            if late is not None:
                self.postponed[feed.name] = late
                feed = replace(feed, dtype="uint8", exact=True, shape=late.shape)
                feeds += [
                    Feed(f"{feed.name}/part{number}", field, (4,), "int32", exact=True)
                    for number, field in enumerate(late.places)
                ]
            feeds.append(feed)
        self._feeds = tuple(feeds)

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has, the smaller last one included; fewer, where damaged samples are left out."""
        return -(-self.samples // self.batch_size)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes that batches have: that of most, then that of the last one if it is smaller.

        Where damaged samples are left out, the last one may be smaller still. On several workers, of what this one has.
        """
        full, rest = divmod(self.samples, self.batch_size)
        sizes = (self.batch_size,) * bool(full) + (rest,) * bool(rest)
        return tuple(max(1, end - start) for start, end in (self._share.of(0, size) for size in sizes))

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

    def one_pass(self, *, shared: bool = True) -> Iterator[Batch]:
        """Every sample once, in the order of the source; the cursor stays where it is.

        With several workers each takes every n-th batch, unless all see all batches (not `shared`).
        """
        return self._ahead(Cursor(), training=False, shared=shared)

    def _ahead(self, start: Cursor, *, training: bool, shared: bool = True) -> Iterator[Batch]:
        maker = self._shared if shared and self._share.count > 1 else self._whole
        workers = Workers(self._workers) if self._prefetch and self._workers > 1 else None
        order = self._order_of if training else lambda _: Straight()
        batches = maker.batches(start, order, endless=training, workers=workers)
        with Prefetcher(batches, self._prefetch, workers) as ahead:
            self._open.append(ahead)
            if training:
                self._training = ahead
            try:
                yield from ahead
            finally:
                self._open.remove(ahead)

    def _order_of(self, epoch: int) -> Order:
        if not self._split.shuffle:
            return Straight()
        if self._window is not None:
            window, stream, block = self._window, self._stream, self._block
            return Windowed(self.samples, self._seed, epoch, window, stream=stream, block=block)
        return Shuffled(self.samples, self._seed, epoch)

    @property
    def epoch(self) -> int:
        """The pass over the data that the next batch belongs to, counted from 0."""
        return self._cursor.epoch

    @property
    def between_epochs(self) -> bool:
        """Whether the next batch is the first one of an epoch."""
        return self._cursor.position == 0

    def state(self) -> dict[str, int | str]:
        """The cursor, after the batch last given out, and what the rest of the training depends on: plain JSON data."""
        return {
            "epoch": self._cursor.epoch,
            "position": self._cursor.position,
            "step": self._cursor.step,
            "samples": self.samples,
            "order": order_digest(self._order_of(self._cursor.epoch), self.samples),
            "data": self._data_digest,
        }

    @property
    def place(self) -> tuple[int, int, int]:
        """The place of the next batch: epoch, samples before it in that, batches before it in all."""
        return self._cursor.epoch, self._cursor.position, self._cursor.step

    def go_on_from(self, epoch: int, position: int, step: int) -> None:
        """Go on from where a loader of the same data was."""
        if self._training is not None:
            self._training.close()
        self._cursor = Cursor(epoch, position, step)

    def go_to(self, batches: int) -> None:
        """Continue as if `batches` batches had been returned."""
        epoch, done = divmod(batches, self.steps_per_epoch)
        self.go_on_from(epoch, done * self.batch_size, batches)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state` was taken.

        The batch size may be another one. Raises InputError if the data, its order or its length are not those of then.
        """
        numbers = [state.get(key) for key in ("epoch", "position", "step")]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise InputError(
                "the checkpoint's place in the data is damaged", expected="whole numbers", got=str(numbers)
            )
        cursor = Cursor(*(int(number) for number in numbers if number is not None))
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
        self.go_on_from(cursor.epoch, cursor.position, cursor.step)

    def _other_order(self, state: Mapping[str, Any], cursor: Cursor) -> Problem | None:
        hint = "give the checkpoint's settings, or start a new training from the weights"
        if state.get("samples") != self.samples:
            expected, got = f"{state.get('samples')} samples", f"{self.samples} samples"
            return Problem("`limit` changed since the checkpoint", expected=expected, got=got, hint=hint)
        if state.get("order") != order_digest(self._order_of(cursor.epoch), self.samples):
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


def _window_of(dataset: Dataset, split: SplitFields) -> int | None:
    """How many samples are mixed with each other; None: all. Raises InputError where a stream cannot hold as many."""
    asked = split.shuffle.window if isinstance(split.shuffle, ShuffleWindow) else None
    if dataset.window is None or asked is None:
        return asked or dataset.window
    if asked > dataset.window:
        raise InputError(
            Problem(
                "the stream cannot hold as many samples as are to be shuffled", split.where("shuffle", "window"),
                "shuffle.window", expected=f"at most {dataset.window:,}", got=f"{asked:,}",
            )
        )  # fmt: skip
    return asked


def open_loader(
    split: SplitFields,
    *,
    seed: int,
    wanted: Mapping[str, FieldType] | None = None,
    ranges: Mapping[str, ValueRange] | None = None,
    known: Collection[str] | None = None,
    learned: Learned | None = None,
    prefetch: int | None = None,
    share: Share = ALONE,
    late: bool = False,
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
        share=share,
        late=late,
    )

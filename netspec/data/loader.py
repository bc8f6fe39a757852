"""The loader: yields the batches of a split in an order that depends only on the seed and the epoch.

The batch at any point of a training is a function of (seed, epoch, position), not of the state of a generator, so
resuming, prefetching and evaluating in between change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from netspec.data.base import Array, DamagedSamples, Dataset, FieldType, Samples, Source, Transform, with_location
from netspec.data.batches import Batch, BatchBuilder, Cursor
from netspec.data.input_binding import InputBinding, ValueRange, bind_inputs
from netspec.data.pipeline import Learned, TransformPipeline
from netspec.data.prefetch import Prefetcher
from netspec.data.random import BalancedOrder, Order, SequentialOrder, ShuffledOrder, WindowedOrder, order_digest
from netspec.data.recording import Record, RecordedPipeline
from netspec.data.sharding import ALONE, ShardedBatchBuilder, Share
from netspec.data.thread_pool import ThreadPool, processors
from netspec.data.uint8_lut import DeferredDecode
from netspec.errors import InputError, Problem, counted, listing
from netspec.schema.specs.data import LABEL, ShuffleWindow, SplitFields

if TYPE_CHECKING:
    from netspec.data.tabular.encodings import ColumnEncoding
    from netspec.data.tabular.row_times import RowTimes


MAX_CHECKED = 10_000_000
"""Largest number of samples whose labels are all checked before the first batch."""
MAX_PIXELS = 2**28
"""Number of class indices in masks, or in other arrays, that are checked before the first batch."""
CHUNK = 64
"""Number of samples with masks that are read at a time."""


class Loader:
    """The batches of a split.

    Iterating yields training batches without end, from the current position; `one_pass` yields every sample once, for
    an evaluation. In both cases the last batch of an epoch has the remaining samples. Use the loader as a context
    manager, or `close` it, to end the threads of unfinished iterations.

    `inputs`: the inputs to fill, by name; by default all fields of the source under their own names.
    `declared_inputs`: all inputs that the net declares, if there are more. `ranges`: the allowed values of inputs.
    `learned`: `Loader.learned` of the training split, for other splits. `share`: this worker's share of each batch.
    `late`: whether inputs may be returned as uint8, as `deferred` describes. Raises `InputError` with all mismatches.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: SplitFields,
        *,
        seed: int,
        inputs: Mapping[str, FieldType] | None = None,
        ranges: Mapping[str, ValueRange] | None = None,
        declared_inputs: Collection[str] | None = None,
        learned: Learned | None = None,
        prefetch: int | None = None,
        share: Share = ALONE,
        late: bool = False,
    ) -> None:
        self._pipeline = TransformPipeline(dataset, split, seed=seed, learned=learned)
        self._bindings = bind_inputs(
            self._pipeline.fields, self._inputs_of(split) if inputs is None else inputs, split, ranges=ranges,
            declared_inputs=declared_inputs, non_integer_labels=dataset.non_integer_labels,
            ragged_examples=dataset.ragged_examples,
        )  # fmt: skip
        self._check_labels(dataset, split)
        self.deferred: dict[str, DeferredDecode] = {}
        """Remaining work on inputs that are returned as uint8. The positions of crops are separate, numbered inputs."""
        if late:
            self._leave_late()
        self._split = split
        self.digest = dataset.digest
        """Fingerprint of the samples, which changes with the data."""
        self._seed = seed
        self._stream, self._block = dataset.window is not None, dataset.block
        self._window = _window_of(dataset, split)
        self._classes: Array | None = None
        """The class of each sample, counted from 0, if classes are drawn equally often."""
        self.sampling: str | None = None
        """Description of the sampler for the log."""
        if split.sampler is not None:
            self._balance(dataset, split)
        self._share = share
        self._make_builders()
        self._prefetch = split.prefetch if prefetch is None else prefetch
        self._workers = split.workers or processors()
        self._cursor = Cursor()
        self._open: list[Prefetcher[Batch]] = []
        self._training: Prefetcher[Batch] | None = None
        self.batch_size = split.batch_size
        self.samples = self._pipeline.samples
        """Number of samples of an epoch."""
        self._set_data_facts(dataset, split)

    def _set_data_facts(self, dataset: Dataset, split: SplitFields) -> None:
        """Set the attributes that describe the data for messages, logs and reports."""
        self.learned: Learned = self._pipeline.learned
        """Values learned from this split if it is the training split, else those passed to it."""
        self.is_held_out = split.split_name != "train"
        """Whether the samples are a part of the source of the training data."""
        self.skips = split.on_error == "skip"
        """Whether damaged samples are left out."""
        self.skipped_at_opening: int = dataset.skipped
        """Number of damaged samples that the source left out when it was opened with `on_error: skip`."""
        self.damaged_at_opening: Sequence[str] = dataset.damaged
        """Problems of the first few damaged samples."""
        self.classes_without_samples = _classes_without_samples(dataset, self.samples)
        """Names of the classes of labels that no sample has, if labels are read without the rest of the samples."""
        self.class_counts = self._class_counts(dataset)
        """Number of classes of each input that has class indices, unless transforms change them."""
        self.rows_without: Mapping[str, Sequence[int]] = dataset.rows_without
        """The rows of a table that `missing: drop` leaves out, by the first column without a value."""
        self.rows_without_key: Mapping[str, Sequence[int]] = dataset.rows_without_key
        """The rows in memory that have no value for the key of a column, which counts as missing."""
        self.unknown_values: Mapping[str, Mapping[str, int]] = dataset.unknown_values
        """The values of a table that the training data does not have, with numbers of rows, by column."""
        self.row_times: RowTimes | None = dataset.row_times
        """The times of the rows of a table for whose windows predictions are made, if they are known."""

    def _make_builders(self) -> None:
        arguments = self._pipeline, self._bindings, self._split
        self._full_builder = BatchBuilder(*arguments, stream=self._stream)
        self._sharded_builder = ShardedBatchBuilder(*arguments, self._share, stream=self._stream)

    def record_times(self, record: Record) -> None:
        """Report each read and each transform of all further iterations."""
        self._pipeline = RecordedPipeline(self._pipeline, record)
        self._make_builders()

    def _inputs_of(self, split: SplitFields) -> dict[str, FieldType]:
        """Return all fields, under the names of the inputs that they feed."""
        inputs = {field: name for name, field in split.inputs.items()}
        return {inputs.get(name, name): field for name, field in self._pipeline.fields.items()}

    def _check_labels(self, dataset: Dataset, split: SplitFields) -> None:
        """Check labels and masks that are read without the rest of the samples by the net's ranges.

        Also checks tokens if the tokenizer has more than the net accepts. Raises `InputError` with the numbers of wrong
        samples, without damaged ones if the split skips them. All other values are checked batch by batch.
        """
        problems: list[Problem] = []
        skip = split.on_error == "skip"
        changed = {name for name, _ in self._pipeline.transforms}
        for binding in self._bindings:
            tokens = dataset.vocabulary_sizes.get(binding.field, 0)
            too_many = binding.range is not None and tokens > binding.range.high + 1
            alone = dataset.reads_alone(binding.field) and binding.field not in changed
            if self._pipeline.mixes or not (too_many or alone):
                continue
            path = ("inputs", binding.name) if binding.name in split.inputs else ("source",)
            binding = replace(binding, classes=len(dataset.classes.get(binding.field, ())))
            label_problems: Iterable[Problem] = ()
            if binding.shape and binding.range is not None:
                read = self._transformed if binding.field in changed else dataset.read_field
                label_problems = binding.check_each(self._samples_of(read, binding.field), dataset.describe, skip=skip)
            elif binding.shape or len(dataset) > MAX_CHECKED:
                continue
            elif binding.range is not None or np.dtype(binding.dtype).kind == "f":
                try:
                    values = dataset.values_of(binding.field)[: self._pipeline.samples]
                except DamagedSamples:
                    if not skip:
                        raise
                    continue
                label_problems = binding.check_all(values, dataset.describe, skip=skip)
            if too_many:
                hint = f"the tokenizer has {counted(tokens, 'token')}"
                label_problems = [replace(problem, hint=hint) for problem in label_problems]
            problems += [with_location(replace(problem, path=""), split, path) for problem in label_problems]
        if problems:
            raise InputError(problems)

    def _class_counts(self, dataset: Dataset) -> dict[str, int]:
        unchanged = dataset.classes.keys() - {name for name, _ in self._pipeline.transforms}
        return {
            binding.name: len(dataset.classes[binding.field])
            for binding in self._bindings
            if binding.field in unchanged and dataset.classes[binding.field]
        }

    def _transformed(self, field: str, indices: Array) -> Samples:
        """Return a field of samples after the transforms."""
        return self._pipeline.read(indices, epoch=0)[field]

    def _samples_of(
        self, read_field: Callable[[str, Array], Samples], field: str
    ) -> Iterator[Array | Sequence[Problem]]:
        """Yield a field of the samples in order, or the problems of damaged ones, up to `MAX_PIXELS` values."""
        values = 0
        for start in range(0, self._pipeline.samples, CHUNK):
            indices = np.arange(start, min(start + CHUNK, self._pipeline.samples))
            damaged: Mapping[int, Sequence[Problem]] = {}
            try:
                arrays = iter(read_field(field, indices))
            except DamagedSamples as error:
                damaged = error.rows
                usable = np.delete(indices, list(damaged))
                arrays = iter(read_field(field, usable) if len(usable) else ())
            for row in range(len(indices)):
                if row in damaged:
                    yield damaged[row]
                    continue
                array = np.asarray(next(arrays))
                yield array
                values += array.size
            if values >= MAX_PIXELS:
                return

    def _balance(self, dataset: Dataset, split: SplitFields) -> None:
        """Find the class of each sample. Raises `InputError` if samples have no `label`, or are a stream."""
        samples = self._pipeline.samples
        kind = dataset.fields.get(LABEL)
        is_class = kind is not None and not kind.shape and np.dtype(kind.dtype).kind in "biu"
        if dataset.window is not None or not is_class:
            got = f"fields {listing(list(dataset.fields))}" if kind is None else f"`{LABEL}` {kind}"
            got = "a stream" if dataset.window is not None else got
            problem = Problem(
                "classes cannot be balanced", split.where("sampler"), "sampler",
                expected=f"samples that are read by index, with a class in the field `{LABEL}`", got=got,
            )  # fmt: skip
            raise InputError(problem)
        values, self._classes, counts = np.unique(
            dataset.values_of(LABEL)[:samples], return_inverse=True, return_counts=True
        )
        names = dataset.classes.get(LABEL)
        class_names = [names[value] if names and 0 <= value < len(names) else str(value) for value in values.tolist()]
        listed = listing([f"{name} ({count:,})" for name, count in zip(class_names, counts.tolist(), strict=True)], 10)
        self.sampling = (
            f"sampler: balanced: {samples // len(counts):,} draws of each class per epoch; samples: {listed}"
        )

    def _leave_late(self) -> None:
        """Return fields as uint8 if exactly one input reads them and only the conversion to float32 is left."""
        bindings = list[InputBinding]()
        for binding in self._bindings:
            is_only_use = sum(other_binding.field == binding.field for other_binding in self._bindings) == 1
            can_defer = is_only_use and binding.range is None and binding.dtype == "float32"
            late = self._pipeline.defer_decode(binding.field) if can_defer else None
            if late is not None:
                self.deferred[binding.name] = late
                binding = replace(binding, dtype="uint8", exact=True, shape=late.shape)
                bindings += [
                    InputBinding(f"{binding.name}/part{number}", field, (4,), "int32", exact=True)
                    for number, field in enumerate(late.position_fields)
                ]
            bindings.append(binding)
        self._bindings = tuple(bindings)

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches of an epoch, including a smaller last one; fewer if damaged samples are left out."""
        return -(-self.samples // self.batch_size)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes of batches: of most batches, then of the last one if it is smaller.

        If damaged samples are left out, the last one may be smaller still. With several workers these are the sizes of
        this worker's share.
        """
        full, remainder = divmod(self.samples, self.batch_size)
        sizes = (self.batch_size,) * bool(full) + (remainder,) * bool(remainder)
        return tuple(max(1, end - start) for start, end in (self._share.of(0, size) for size in sizes))

    @property
    def transforms(self) -> list[tuple[str, Transform]]:
        """The transforms in order, with learned values, each with an input of the net that it affects."""
        steps = self._pipeline.transforms
        return [(binding.name, step) for field, step in steps for binding in self._bindings if binding.field == field]

    @property
    def forecast_inputs(self) -> tuple[str, str] | None:
        """Inputs with the past and the next values of a time series, in the same unit; None for other samples."""
        windows = getattr(self._split, "windows", None)
        if windows is None or not windows.horizon or self._pipeline.transforms:
            return None
        inputs = {binding.field: binding.name for binding in self._bindings}
        return (inputs["past"], inputs["label"]) if {"past", "label"} <= inputs.keys() else None

    @property
    def source_fields(self) -> dict[str, FieldType]:
        """The types of the inputs before all transforms, by name; of those that a transform adds, after it."""
        fields = {**self._pipeline.fields, **self._pipeline.source_fields}
        return {binding.name: fields[binding.field] for binding in self._bindings}

    @property
    def added_inputs(self) -> list[str]:
        """Names of the inputs that read no field of the source: transforms add their values to the samples."""
        return [binding.name for binding in self._bindings if binding.field not in self._pipeline.source_fields]

    def source_samples(self, indices: Array) -> dict[str, Samples]:
        """Return the samples at `indices` (N,) of the types `source_fields`, by input."""
        fields = self._pipeline.raw(indices)
        if any(binding.field not in fields for binding in self._bindings):
            fields = {**self._pipeline.read(indices, epoch=0), **fields}
        return {binding.name: fields[binding.field] for binding in self._bindings}

    @property
    def classes(self) -> dict[str, Sequence[str]]:
        """The class names of each input of the net whose values are classes with names."""
        names = self.learned.classes
        return {binding.name: names[binding.field] for binding in self._bindings if binding.field in names}

    @property
    def column_ranges(self) -> dict[str, tuple[str, int, int]]:
        """For a table: the input that each column is a part of, and the range of its elements, without the label."""
        inputs = {binding.field: binding.name for binding in self._bindings if binding.field != "label"}
        ranges = self._pipeline.column_ranges.items()
        return {column: (inputs[field], start, stop) for column, (field, start, stop) in ranges if field in inputs}

    @property
    def unit_scales(self) -> dict[str, float]:
        """The factor that converts an input to the unit of the data, for each input in another unit."""
        scales: dict[str, float] = {}
        label = getattr(self._split, "label", None)
        column = self.learned.source.get(str(label)) if label is not None else None
        for binding in self._bindings:
            if len(binding.shape) > 1:
                continue
            steps = [step for name, step in self.transforms if name == binding.name]
            ends = np.stack([np.zeros(binding.shape), np.ones(binding.shape)])
            try:
                for step in reversed(steps):
                    ends = step.restore(ends)
            except NotImplementedError:
                continue
            factors = np.unique(ends[1] - ends[0])
            if len(factors) != 1:
                continue
            scale = float(factors[0])
            if binding.field == LABEL and isinstance(column, Mapping) and "scale" in column:
                scale *= float(np.asarray(column["scale"]).flat[0])
            if scale != 1.0:
                scales[binding.name] = abs(scale)
        return scales

    @property
    def column_encodings(self) -> dict[str, tuple[ColumnEncoding | None, ...]]:
        """For a table: how the columns of each input are encoded, in their order."""
        encodings = self._pipeline.column_encodings
        return {binding.name: encodings[binding.field] for binding in self._bindings if binding.field in encodings}

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return what identifies a sample in a list of predictions: `("file", "a.png")` or `("row", 13)`."""
        return self._pipeline.identify(index)

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches from the current position on, epoch after epoch. A new iteration ends the previous one."""
        if self._training is not None:
            self._training.close()
        for batch in self._ahead(self._cursor, training=True):
            self._cursor = self._cursor.after(batch, self.samples)
            yield batch

    def one_pass(self, *, shared: bool = True) -> Iterator[Batch]:
        """Yield every sample once, in the order of the source, without changing the position.

        Each of several workers reads every n-th batch, or, unless `shared`, all batches.
        """
        return self._ahead(Cursor(), training=False, shared=shared)

    def _ahead(self, start: Cursor, *, training: bool, shared: bool = True) -> Iterator[Batch]:
        builder = self._sharded_builder if shared and self._share.count > 1 else self._full_builder
        workers = ThreadPool(self._workers) if self._prefetch and self._workers > 1 else None
        order = self._order_of if training else lambda _: SequentialOrder()
        batches = builder.batches(start, order, endless=training, workers=workers)
        with Prefetcher(batches, self._prefetch, workers) as ahead:
            self._open.append(ahead)
            if training:
                self._training = ahead
            try:
                yield from ahead
            finally:
                self._open.remove(ahead)

    def _order_of(self, epoch: int) -> Order:
        if self._classes is not None:
            return BalancedOrder(self._classes, self._seed, epoch)
        if not self._split.shuffle:
            return SequentialOrder()
        if self._window is not None:
            window, stream, block = self._window, self._stream, self._block
            return WindowedOrder(self.samples, self._seed, epoch, window, stream=stream, block=block)
        return ShuffledOrder(self.samples, self._seed, epoch)

    @property
    def epoch(self) -> int:
        """The pass over the data that the next batch belongs to, counted from 0."""
        return self._cursor.epoch

    @property
    def between_epochs(self) -> bool:
        """Whether the next batch is the first one of an epoch."""
        return self._cursor.position == 0

    def state(self) -> dict[str, int | str]:
        """Return the position after the last batch, and fingerprints of the data and its order, as plain JSON data."""
        return {
            "epoch": self._cursor.epoch,
            "position": self._cursor.position,
            "step": self._cursor.step,
            "samples": self.samples,
            "order": order_digest(self._order_of(self._cursor.epoch), self.samples),
            "data": self.digest,
        }

    @property
    def position(self) -> tuple[int, int, int]:
        """Position of the next batch: epoch, samples before it in the epoch, batches before it in total."""
        return self._cursor.epoch, self._cursor.position, self._cursor.step

    def seek(self, epoch: int, position: int, step: int) -> None:
        """Continue from a position of a loader of the same data."""
        if self._training is not None:
            self._training.close()
        self._cursor = Cursor(epoch, position, step)

    def seek_batch(self, batches: int) -> None:
        """Continue as if `batches` batches had been returned."""
        epoch, batches_done = divmod(batches, self.steps_per_epoch)
        self.seek(epoch, batches_done * self.batch_size, batches)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the position that `state` returned.

        The batch size may differ. Raises `InputError` if the data, its order or its length has changed.
        """
        numbers = [state.get(key) for key in ("epoch", "position", "step")]
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise InputError(
                "the checkpoint's position in the data is damaged", expected="integers from 0", got=str(numbers)
            )
        cursor = Cursor(*(int(number) for number in numbers if number is not None))
        digest = state.get("data")
        if digest != self.digest:
            raise InputError(
                "the training data changed since the checkpoint",
                expected=f"data with the fingerprint {str(digest)[:12]}",
                got=self.digest[:12],
                hint="restore the data, or start a new training from the weights",
            )
        problem = self._other_order(state, cursor)
        if problem is not None:
            raise InputError(problem)
        self.seek(cursor.epoch, cursor.position, cursor.step)

    def _other_order(self, state: Mapping[str, Any], cursor: Cursor) -> Problem | None:
        hint = "restore the settings of the checkpoint, or start a new training from the weights"
        if state.get("samples") != self.samples:
            expected, got = f"{state.get('samples')} samples", f"{self.samples} samples"
            return Problem("`limit` changed since the checkpoint", expected=expected, got=got, hint=hint)
        if state.get("order") != order_digest(self._order_of(cursor.epoch), self.samples):
            expected = f"the order of epoch {cursor.epoch} in the checkpoint"
            return Problem(
                "`seed` or `shuffle` changed since the checkpoint",
                expected=expected,
                got="a different order",
                hint=hint,
            )
        if cursor.position >= self.samples:
            expected = f"a position below {self.samples}"
            return Problem(
                "the checkpoint's position in the data is damaged", expected=expected, got=str(cursor.position)
            )
        return None

    def close(self) -> None:
        """End all iterations and their threads."""
        for ahead in list(self._open):
            ahead.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _classes_without_samples(dataset: Dataset, samples: int) -> list[str]:
    names = dataset.classes.get(LABEL, ())
    if not names or not dataset.reads_alone(LABEL):
        return []
    counts = np.bincount(dataset.values_of(LABEL)[:samples], minlength=len(names))
    return [name for name, count in zip(names, counts.tolist(), strict=False) if not count]


def _window_of(dataset: Dataset, split: SplitFields) -> int | None:
    """Return the size of the shuffle window; None for all samples. Raises `InputError` if a stream cannot hold it."""
    requested = split.shuffle.window if isinstance(split.shuffle, ShuffleWindow) else None
    if dataset.window is None or requested is None:
        return requested or dataset.window
    if requested > dataset.window:
        raise InputError(
            Problem(
                "the stream cannot hold that many samples for shuffling", split.where("shuffle", "window"),
                "shuffle.window", expected=f"at most {dataset.window:,}", got=f"{requested:,}",
            )
        )  # fmt: skip
    return requested


def open_loader(
    split: SplitFields,
    *,
    seed: int,
    inputs: Mapping[str, FieldType] | None = None,
    ranges: Mapping[str, ValueRange] | None = None,
    declared_inputs: Collection[str] | None = None,
    learned: Learned | None = None,
    prefetch: int | None = None,
    share: Share = ALONE,
    late: bool = False,
) -> Loader:
    """Open the source of a split and return its loader. The arguments are those of `Loader`."""
    if not isinstance(split, Source):
        raise TypeError(f"{type(split).__name__} is not a data source")
    return Loader(
        split.open(seed=seed, learned=None if learned is None else learned.source),
        split,
        seed=seed,
        inputs=inputs,
        ranges=ranges,
        declared_inputs=declared_inputs,
        learned=learned,
        prefetch=prefetch,
        share=share,
        late=late,
    )


OpenLoader = Callable[..., Loader]
"""`open_loader`, or `SharedLoaders.open` with the same arguments."""

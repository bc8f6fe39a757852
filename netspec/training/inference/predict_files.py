"""Prediction for the samples of other files, preprocessed like the data of the training, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import ProgramKind
from netspec.data.base import Source
from netspec.data.batches import Batch
from netspec.data.file_kinds import IMAGES, SOUNDS, TEXTS, has_table_suffix
from netspec.data.loader import Loader, open_loader
from netspec.data.sources.documents import Documents
from netspec.data.sources.files import FileSource
from netspec.data.sources.image_folder import ImageFileSource, images_like
from netspec.data.tabular.cells import TextCells
from netspec.data.tabular.csv import TextFile
from netspec.data.tabular.number_format import PLAIN
from netspec.data.tabular.row_errors import describe_missing, describe_unknown
from netspec.data.tabular.row_times import TIME_STEPS, UsualSteps
from netspec.data.tabular.source import TableSource
from netspec.data.tabular.table_format import open_by_content
from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer
from netspec.data.transforms.resizing import Resizing
from netspec.errors import InputError, Problem, SettingHint, and_more, counted, listing
from netspec.schema.specs.data import SOURCES
from netspec.schema.specs.train import TrainSpec
from netspec.training.evaluation import learned_of
from netspec.training.events import MAX_EXAMPLES
from netspec.training.generation.encoder_decoder import EncoderDecoderGenerator, decoder_columns
from netspec.training.inference.decoding import Decoder
from netspec.training.inference.image_windows import Window, image_window, moving_transforms
from netspec.training.inference.model import DEFAULT_BATCH, Model
from netspec.training.inference.raw_samples import sample_kind
from netspec.training.required_inputs import input_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.data.imaging.base import ImageTransform
    from netspec.data.tabular.number_format import NumberFormat
    from netspec.data.tabular.table_file import TableFile


@dataclass(frozen=True)
class InputNotes:
    """What a user should know about files whose samples are predicted: a sentence each, or nothing."""

    missing: str = ""
    """Rows of a table without a prediction, since a value is missing."""
    missing_key_notes: str = ""
    """Columns that a table or rows in memory leave out, whose cells count as empty."""
    unread_key_notes: str = ""
    """Keys of rows in memory that are not columns of the training, and are ignored."""
    unknown: str = ""
    """Values of a table that the training data does not have."""
    unread: str = ""
    """Files in folders that are left out, since their format is not read."""
    time_notes: tuple[str, ...] = ()
    """Unusual steps between the rows of a time series, and the times of the last forecast."""


@dataclass(frozen=True)
class PredictedBatch:
    """The outputs of consecutive samples."""

    ids: dict[str, list[str | int]]
    """Identifier of each sample: its file (`file`), or its row counted from 1 (`row`)."""
    outputs: dict[str, NDArray[Any]]
    """Arrays (N, …) by the names of the outputs."""
    sizes: Sequence[tuple[int, int]] | None = None
    """Height and width of each sample's image in its file, if the net sees all of it; None for other samples."""
    windows: Sequence[Window | None] | None = None
    """The part of each sample's image that the net sees, in pixels of the file; None for other samples."""
    notes: InputNotes = field(default_factory=InputNotes)
    """Notes about the table or the files of the samples, in the first batch of these."""
    unknown_texts: Sequence[int] = ()
    """Indices in the batch of the samples whose texts have no token of the vocabulary."""
    partly_unknown_texts: Sequence[int] = ()
    """Indices in the batch of the other source texts of an encoder-decoder net that have tokens outside of it."""
    unreadable: tuple[Problem, ...] = ()
    """Problems of the files between the previous batch and the next one that were left out, one for each."""


def recall_learned(model: Model, spec: TrainSpec) -> None:
    """Read from the training data what the model's weights do not record, such as the names of classes.

    Weights of other programs record nothing. Class names are dropped if their number differs from the net's number of
    classes. Raises `InputError` if training samples are needed and missing.
    """
    learned = learned_of(spec, model.compiler, model.preprocessing.learned)
    if model.preprocessing.learned is None:
        fields = spec.data.train.inputs
        counts = {fields.get(label, label): domain.high for label, domain in model.compiler.domains.items()}
        named = {
            field: names for field, names in learned.classes.items() if len(names) == counts.get(field, len(names))
        }
        learned = replace(learned, classes=named)
    model.preprocessing = replace(model.preprocessing, learned=learned)


def describe_unnamed_classes(model: Model, spec: TrainSpec, decoders: Mapping[str, Decoder]) -> str:
    """Return why classes are numbers, if the training folder should have their names but does not; or nothing.

    Call it after `recall_learned`.
    """
    split, learned = spec.data.train, model.preprocessing.learned
    folder = split.class_folder() if isinstance(split, FileSource) else None
    named = all(decoder.classes or decoder.probabilities is None for decoder in decoders.values())
    if named or folder is None or (learned is not None and learned.classes):
        return ""
    if getattr(split, "classes", None):
        reason = "`data.train.classes` does not have one name per class of the net"
    elif folder.is_dir():
        reason = f"the number of class folders in {folder} is not the net's number of classes"
    else:
        reason = f"the training folder {folder} does not exist"
    return (
        f"classes are numbers, since {reason}: set data.train.path=FOLDER, with a folder per class, or list the names "
        f"in order: 'data.train.classes=[cat, dog]'"
    )


def predict_files(
    model: Model,
    spec: TrainSpec,
    paths: Sequence[Path],
    batch_size: int | None = None,
    split: Source | None = None,
    *,
    skip: bool = False,
    takes_overrides: bool = False,
) -> Iterator[PredictedBatch]:
    """Yield the net's outputs for every sample of files in the format of the test data, or of the training data.

    The transforms of that data are applied, with the values learned in training. The files do not need fields that
    only the loss reads. The decoder of an encoder-decoder net reads the most probable tokens instead of those of a
    file. `split` describes the format of the files if it is another one. With `skip`, images, sounds and texts that
    cannot be read are left out. Raises `InputError` if the data has no such format, or with all problems
    of a file; with `takes_overrides`, it names overrides for files in other formats.
    """
    generator = EncoderDecoderGenerator(model, spec) if decoder_columns(spec) else None
    compute = model.predict if generator is None else generator.greedy_outputs
    excluded = () if generator is None else (generator.decoder_input,)
    preparation = FilePreparation(model, spec, excluded, takes_overrides=takes_overrides)
    for identities, batch in preparation.batches(paths, batch_size, split, skip=skip):
        outputs = compute(batch.inputs, len(batch))
        yield PredictedBatch(
            identities, outputs, preparation.image_sizes(identities), preparation.image_windows(identities),
            InputNotes() if batch.position else preparation.notes, preparation.unknown_texts(batch),
            [] if generator is None else generator.partly_unknown(batch.inputs, len(batch)),
            tuple(sample.problems[0] for sample in batch.skipped),
        )  # fmt: skip


class FilePreparation:
    """Reads samples from files as inputs of a net, prepared like the data of its training.

    `excluded_inputs` are not read. Hints at settings are about the files, or with `takes_overrides` about overrides.
    """

    def __init__(
        self, model: Model, spec: TrainSpec, excluded_inputs: Collection[str] = (), *, takes_overrides: bool = False
    ) -> None:
        self._takes_overrides = takes_overrides
        self.split = inference_split(spec)
        self._written_split = next((name for name, split in spec.data if split is self.split), "train")
        """Name of the split in the training file; a held-out part is written as a field of `train`."""
        recall_learned(model, spec)
        assert model.preprocessing.learned is not None
        self.learned = model.preprocessing.learned
        """Class names, vocabularies and statistics of the training data."""
        inputs = input_fields(model.compiler, [ProgramKind.PREDICT])
        self._inputs = {name: described for name, described in inputs.items() if name not in excluded_inputs}
        self._declared_inputs = model.compiler.spec.inputs
        self._seed = spec.train.seed
        self.notes = InputNotes()
        """Notes about the current table or files."""
        self._reserved_tokens = _reserved_tokens(self.split, self.learned.source)
        self._text_inputs: dict[str, list[int]] = {}
        """The reserved tokens of each input that has the tokens of the current source's texts."""
        self._shows_whole_images = False
        """Whether the samples of the current source are images that are at most resized."""
        self._moves: list[ImageTransform] | None = None
        """The transforms that move positions in the images of the current source, if it has images."""
        self._read_size: tuple[int, int] | None = None

    @property
    def fields(self) -> set[str]:
        """The fields of samples that the net reads."""
        return {self.split.inputs.get(name, name) for name in self._inputs}

    def batches(
        self, paths: Sequence[Path], batch_size: int | None = None, split: Source | None = None, *, skip: bool = False
    ) -> Iterator[tuple[dict[str, list[str | int]], Batch]]:
        """Yield the samples of files in batches, with what tells them apart.

        `split` describes the format of the files, by default that of the data of the training. With `skip`, files that
        are samples are left out if they cannot be read, unless all of them are.
        """
        for path, source in _sources(split or self.split, paths, list(self._inputs)):
            source = source.fixed().model_copy(update={"batch_size": batch_size or DEFAULT_BATCH})
            if skip and isinstance(source, FileSource) and not (len(paths) == 1 and paths[0].is_file()):
                source = source.model_copy(update={"on_error": "skip"})
            with self._open(source) as loader:
                self._refuse_unread_files(loader, paths)
                unknown = describe_unknown(loader.unknown_values)
                unknown = f"{path}: {unknown}" if unknown and path is not None else unknown
                missing_keys = _describe_missing_keys(path, source, loader)
                unread_keys = describe_unread_keys(source.unread_keys if isinstance(source, TableSource) else ())
                times = self._describe_times(path, source, loader)
                unread = _unread_files(source, paths)
                self.notes = InputNotes(_missing_rows(path, loader), missing_keys, unread_keys, unknown, unread, times)
                self._text_inputs = self._text_inputs_of(source, loader)
                self._shows_whole_images = isinstance(source, ImageFileSource) and all(
                    transform.positions == "kept" or (isinstance(transform, Resizing) and transform.stretches)
                    for _, transform in loader.transforms
                )
                if isinstance(source, ImageFileSource):
                    self._moves = moving_transforms([transform for _, transform in loader.transforms])
                    self._read_size = source.size
                for batch in loader.one_pass():
                    origins = [loader.identify(index) for index in batch.indices.tolist()]
                    ids: dict[str, list[str | int]] = {"file": [str(path)] * len(batch)} if path is not None else {}
                    ids[origins[0][0]] = [origin for _, origin in origins]
                    if loader.row_times is not None:
                        times_read: list[str | int] = [loader.row_times.text(int(row) - 1) for _, row in origins]
                        ids.setdefault(loader.row_times.column, times_read)
                    yield ids, batch

    def _describe_times(self, path: Path | None, source: Source, loader: Loader) -> tuple[str, ...]:
        """Return sentences about the times of a time series: unusual steps, and the rows of the last forecast."""
        times = loader.row_times
        if times is None or not isinstance(source, TableSource) or source.windows is None:
            return ()
        steps = self.learned.source.get(TIME_STEPS)
        usual = UsualSteps(*steps) if steps else times.usual_steps  # older runs do not have them
        last = int(loader.identify(loader.samples - 1)[1]) - 1
        sentences = times.describe_unusual(usual), times.describe_forecast(last, source.windows.horizon, usual)
        title = "" if path is None else f"{path}: "
        return tuple(f"{title}{sentence}" for sentence in sentences if sentence)

    def _open(self, source: Source) -> Loader:
        try:
            return open_loader(
                source, seed=self._seed, inputs=self._inputs, declared_inputs=self._declared_inputs,
                learned=self.learned,
            )  # fmt: skip
        except InputError as error:
            raise InputError([self._with_own_hint(problem, source) for problem in error.problems]) from None

    def _with_own_hint(self, problem: Problem, source: Source) -> Problem:
        """Replace a hint at a setting by one about the data or overrides: the training file must not change."""
        hint = problem.hint
        if not isinstance(hint, SettingHint):
            return problem
        in_memory = isinstance(source, TableSource) and source.origin.in_memory
        if self._takes_overrides and not in_memory:
            return replace(problem, hint=hint.as_override(f"data.{self._written_split}", type(source).model_fields))
        return problem if hint.data is None else replace(problem, hint=hint.data)

    def _refuse_unread_files(self, loader: Loader, paths: Sequence[Path]) -> None:
        """Raise `InputError` if the net reads no field of the files, only fields that transforms add."""
        added = loader.added_inputs
        if len(added) < len(self._inputs):
            return
        shapes = [f"`{name}`: {self._inputs[name]}" for name in added]
        raise InputError(
            f"predictions do not depend on {listing([str(path) for path in paths], 3)}: the net computes them from "
            f"{listing([f'`{name}`' for name in added])}, which transforms add to each sample",
            expected=f"an .npz file with, for each sample, {listing(shapes)}",
        )

    def _text_inputs_of(self, source: Source, loader: Loader) -> dict[str, list[int]]:
        if isinstance(source, TableSource):
            names = {column: name for column, (name, _, _) in loader.column_ranges.items()}
        else:
            names = {field: name for name, field in source.inputs.items()}
            names.setdefault("text", "text")
        return {names[text]: tokens for text, tokens in self._reserved_tokens.items() if text in names}

    def unknown_texts(self, batch: Batch) -> list[int]:
        """Return the indices of the samples of a batch whose texts have no token of the vocabulary."""
        unknown = np.zeros(len(batch), bool)
        for name, reserved in self._text_inputs.items():
            if name in batch.inputs:
                tokens = batch.inputs[name][: len(batch)].reshape(len(batch), -1)
                unknown |= np.isin(tokens, reserved).all(axis=1)
        indices: list[int] = np.flatnonzero(unknown).tolist()
        return indices

    def image_sizes(self, ids: Mapping[str, Sequence[str | int]]) -> list[tuple[int, int]] | None:
        """Return height and width of the images of a batch of `batches`; None if the net does not see all of them."""
        return _sizes(ids) if self._shows_whole_images else None

    def image_windows(self, ids: Mapping[str, Sequence[str | int]]) -> list[Window | None] | None:
        """Return the part of each image of a batch that the net sees; None if samples are not files of images."""
        if self._moves is None:
            return None
        return [image_window(self._moves, size, self._read_size) for size in _sizes(ids)]


def _missing_rows(path: Path | None, loader: Loader) -> str:
    """Return which rows of a table `missing: drop` leaves out, as a sentence; or nothing."""
    count = sum(map(len, loader.rows_without.values()))
    if not count:
        return ""
    title = "" if path is None else f"{path}: "
    rows = f"{count:,} of {counted(loader.samples + count, 'row')} {'has' if count == 1 else 'have'} no prediction"
    return f"{title}{rows}: {describe_missing(loader.rows_without)}"


def _describe_missing_keys(path: Path | None, source: Source, loader: Loader) -> str:
    """Return which columns a table or its rows leave out, as a sentence; or nothing."""
    rows_without = loader.rows_without_key
    if not rows_without or not isinstance(source, TableSource):
        return ""
    if source.origin.has_keys:
        return f"keys that rows do not have count as null: {describe_missing(rows_without)}"
    title = "" if path is None else f"{path}: "
    names = listing([f"`{name}`" for name in rows_without])
    columns = f"the column {names} is" if len(rows_without) == 1 else f"the columns {names} are"
    unread = source.unread_columns(source.opened_file().names)
    others = f"; columns that are not read: {listing([f'`{name}`' for name in unread])}" if unread else ""
    return f"{title}{columns} missing, so all cells count as empty{others}"


def _reserved_tokens(split: Source, learned: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the reserved tokens of each column of texts; of documents, by the field `text`."""
    saved = {}
    if isinstance(split, TableSource):
        columns = {name: entry for name, entry in learned.items() if isinstance(entry, Mapping)}
        saved = {name: entry[TOKENIZER] for name, entry in columns.items() if TOKENIZER in entry}
    elif isinstance(split, FileSource) and TOKENIZER in learned:
        saved = {"text": learned[TOKENIZER]}
    return {name: saved_tokenizer(entry).reserved for name, entry in saved.items()}


def describe_unread_keys(keys: Sequence[str]) -> str:
    """Return a sentence about keys of rows or texts in memory that are ignored; or nothing."""
    shown = listing([f"`{key}`" for key in keys], 5)
    return f"keys that are not columns of the model are ignored: {shown}" if keys else ""


def describe_unknown_texts(texts: Sequence[str], tokens: str = "no token of the vocabulary") -> str:
    """Return a sentence about samples whose texts have such tokens."""
    have = "has" if len(texts) == 1 else "have"
    shown = ", ".join(texts[:3]) + and_more(len(texts) - 3)
    return f"{counted(len(texts), 'text')} {have} {tokens}: {shown}"


def _unread_files(source: Source, paths: Sequence[Path]) -> str:
    """Return which files in folders are in formats that are not read, as a sentence; or nothing."""
    if not isinstance(source, FileSource):
        return ""
    from netspec.data.readers.file_samples import unread_files_below

    kind = source.file_kind()
    unread = [file for path in paths if path.is_dir() for file in unread_files_below(path, kind)]
    return f"left out: {kind.describe_unread(unread)}" if unread else ""


def _sizes(ids: Mapping[str, Sequence[str | int]]) -> list[tuple[int, int]]:
    """Return height and width of the images in files."""
    from netspec.data.readers.decode import upright_size

    return [upright_size(Path(str(file)), str(file)) for file in ids["file"]]


def input_arrays(model: Model, spec: TrainSpec, path: Path) -> dict[str, NDArray[Any]]:
    """Return the samples of a file as arrays (N, …) by the names of the net's inputs, prepared as in the training."""
    batches = [batch.inputs for _, batch in FilePreparation(model, spec).batches([path])]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def inference_split(spec: TrainSpec) -> Source:
    """Return the split that defines format and transforms of new samples: the test data, if there is any."""
    split = spec.data.deployed
    assert isinstance(split, Source)
    return split


def input_suffix(spec: TrainSpec) -> str:
    """Return the suffix of files that a training reads, or `.png` if it reads arrays."""
    return inference_split(spec).file_suffix() or ".png"


def _sources(split: Source, paths: Sequence[Path], inputs: Sequence[str]) -> Iterator[tuple[Path | None, Source]]:
    """Yield the sources that read the files, each with its file if there are several tables."""
    if isinstance(split, TableSource) and (folders := [path for path in paths if path.is_dir()]):
        raise InputError([
            Problem(
                f"{folder} is a folder, but the net was trained on tables", expected="files",
                hint=f"a pattern names several: '{folder}/*{split.file_suffix() or '.csv'}'",
            )
            for folder in folders
        ])  # fmt: skip
    if isinstance(split, TableSource) and (problems := list(_not_tables(paths))):
        raise InputError(problems)
    sources = split.with_files(paths, {split.inputs.get(name, name) for name in inputs}) or images_like(split, paths)
    if not sources:
        raise InputError(list(_wrong_kind_problems(split, paths)))
    several = len(sources) > 1
    yield from zip(paths if several else [None], sources, strict=True)


def _not_tables(paths: Sequence[Path]) -> Iterator[Problem]:
    """Yield a problem for each existing image or sound."""
    for path in paths:
        name = "an image" if IMAGES.has_suffix(path) else "a sound" if SOUNDS.has_suffix(path) else None
        if name is not None and path.exists():
            yield Problem(f"{path} cannot be read: the net was trained on tables", expected="a table", got=name)


def _wrong_kind_problems(split: Source, paths: Sequence[Path]) -> Iterator[Problem]:
    """Yield a problem for each file of another kind than the training reads."""
    kind = split.file_kind() if isinstance(split, FileSource) else IMAGES if sample_kind(split) == "image" else None
    if kind is None:
        yield Problem(
            f"{listing([str(path) for path in paths], 3)} cannot replace the training data, whose source is "
            f"`{getattr(split, SOURCES.tag)}`",
            expected="an .npz file with the net's inputs; or files of the kind that the net was trained on: images, "
            "sounds, texts or a table",
        )
        return
    others = [path for path in paths if not path.is_dir() and path.suffix.lower() not in kind.suffixes]
    for path in others[:MAX_EXAMPLES]:
        expected = f"a file whose name ends in {listing(sorted(kind.suffixes))}"
        if kind is TEXTS:
            expected += "; or a table (CSV, Parquet) with a column `text`"
        if path.exists():
            yield Problem(f"{path} cannot be read: the net was trained on {kind.name}s", expected=expected)
        else:
            hint = 'texts are rows: [{"text": "…"}]' if kind is TEXTS else None
            yield Problem(f'no such file or folder: "{path}"', expected=expected, hint=hint)


@dataclass(frozen=True)
class TableFormat:
    """The notation and the types of a table whose columns are written."""

    delimiter: str = ","
    decimal: str = "."
    types: Mapping[str, Any] = field(default_factory=dict)
    """Types of columns in Parquet files: Arrow's, or names of these."""
    metadata: Mapping[bytes, bytes] = field(default_factory=dict)
    """Metadata of Parquet files."""


@dataclass(frozen=True)
class MatchingRows:
    """The columns of some rows of tables."""

    texts: dict[str, list[str]]
    """The cells as texts, as in their file."""
    values: dict[str, list[Any]]
    """The cells as values of their types."""


@dataclass
class TableRows:
    """The rows of tables, read in step with their predictions."""

    names: list[str]
    """The names of the columns, the same in all tables."""
    format: TableFormat
    """The format of the first table."""
    _cells: dict[str, Iterator[tuple[Sequence[str], Sequence[Any]]]]
    """The texts and values of the rows of each table that have not been read, by path."""
    _reopen: Callable[[str], Iterator[tuple[Sequence[str], Sequence[Any]]]]
    """Returns the texts and values of all rows of the table at a path."""
    _read: dict[str, int] = field(default_factory=dict)
    """Number of rows read, by path."""

    def matching(self, ids: Mapping[str, Sequence[str | int]]) -> MatchingRows:
        """Return the columns of the rows with these ids, after the previous ones. Skips rows in between.

        A row before the previous ones means that the table is predicted again, and is read from its start.
        """
        rows = ids["row"]
        paths = ids.get("file") or [next(iter(self._cells))] * len(rows)
        cells = []
        for path, row in zip(map(str, paths), map(int, rows), strict=True):
            if row <= self._read.get(path, 0):
                self._cells[path], self._read[path] = self._reopen(path), 0
            cells.append(next(islice(self._cells[path], row - 1 - self._read.get(path, 0), None)))
            self._read[path] = row
        texts, values = (map(list, zip(*part, strict=True)) for part in zip(*cells, strict=True))
        return MatchingRows(dict(zip(self.names, texts, strict=True)), dict(zip(self.names, values, strict=True)))


def rows_of(spec: TrainSpec, paths: Sequence[Path]) -> TableRows | None:
    """Return the rows of tables; None if they are not tables.

    Raises `InputError` if the tables have different columns.
    """
    split = inference_split(spec)
    if not (isinstance(split, TableSource) or (isinstance(split, Documents) and all(map(has_table_suffix, paths)))):
        return None
    opened = split.other_file if isinstance(split, TableSource) else open_by_content
    files = {str(path): opened(path) for path in paths}
    first, *others = files.values()
    for file in others:
        if file.names != first.names:
            raise InputError(f"{file.path} has other columns than {first.path}", expected=listing(first.names, 10))
    numbers = split.number_formats(first.names) if isinstance(split, TableSource) else {}
    format_ = TableFormat(types=getattr(first, "types", {}), metadata=getattr(first, "metadata", {}))
    if isinstance(first, TextFile):
        types = {name: "float64" if index in numbers else "string" for index, name in enumerate(first.names)}
        notation = split.number_format if isinstance(split, TableSource) else PLAIN
        format_ = TableFormat(first.delimiter, notation.decimal, types)
    cells = {path: _cells(file, numbers) for path, file in files.items()}
    return TableRows(list(first.names), format_, cells, lambda path: _cells(opened(Path(path)), numbers))


def _cells(file: TableFile, numbers: Mapping[int, NumberFormat]) -> Iterator[tuple[Sequence[str], Sequence[Any]]]:
    """Yield the texts and the values of the cells of each row."""
    for block in file.blocks(range(len(file.names))):
        values = [
            _numbers(cells, numbers[index]) if isinstance(cells, TextCells) and index in numbers else cells.values()
            for index, cells in enumerate(block.cells)
        ]
        for row, row_values in enumerate(zip(*values, strict=True)):
            yield [cells.text(row) for cells in block.cells], row_values


def _numbers(cells: TextCells, format_: NumberFormat) -> list[float | int | None]:
    """Return cells as numbers; None for other texts."""
    numbers = cells.numbers(format_).tolist()
    return [None if isnan(x) else int(x) if abs(x) < 2**53 and x.is_integer() else x for x in numbers]

"""Use a trained net: predict outputs for samples, evaluate weights on test data."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

import numpy as np

from netspec.data.file_kinds import TEXTS
from netspec.data.files import read_bytes
from netspec.data.tabular.source import TableSource
from netspec.data.text.files import decoded
from netspec.data.text.table_column import has_text_column
from netspec.errors import InputError, Problem, listing, near_path
from netspec.schema.load import Overrides, Source
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.tools.inference.evaluation_files import write_evaluation
from netspec.tools.inference.prediction_files import AnsweredBatch, write_answers
from netspec.tools.model_inputs import is_model_file, load, read_npz, spec_and_weights, unapplied_transforms
from netspec.tools.specs import load_spec, model_settings
from netspec.training.evaluation import Evaluation
from netspec.training.evaluation import test as evaluate_weights
from netspec.training.inference.decoding import Column, Decoder, boxes_in_image, decoders_of
from netspec.training.inference.model import Model
from netspec.training.inference.predict_files import (
    PredictedBatch,
    TableFormat,
    TableRows,
    describe_unknown_texts,
    describe_unnamed_classes,
    inference_split,
    input_suffix,
    predict_files,
    recall_learned,
    rows_of,
)
from netspec.training.inference.raw_samples import (
    TEXT,
    is_row,
    is_single_line,
    is_text_file,
    raw_files,
    temporary_folder,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


Inputs: TypeAlias = Any
"""Paths and patterns of files, a binary stream, arrays by the names of inputs, images, rows or a data frame."""


@dataclass(frozen=True)
class Prediction:
    """The outputs of a net, and the answers that they stand for."""

    outputs: dict[str, NDArray[Any]]
    """Arrays (N, …) by the names of the outputs."""
    answers: dict[str, Column]
    """A value for each sample by the name of the column: `file` or `row`, then `class` and `probability`, `prediction`,
    `text`, `mask` or others, as the losses of the net say what an output means."""
    unapplied_transforms: tuple[str, ...]
    """Transforms of the training that were not applied, each as a line."""
    remark: str | None
    """Reason why the device is this one, if that needs an explanation."""
    device_warnings: tuple[str, ...] = ()
    """Faults of the device, such as kernels that failed its check and are not used."""
    missing: tuple[str, ...] = ()
    """Rows without a prediction, since a value is missing: a sentence for each table."""
    missing_key_notes: tuple[str, ...] = ()
    """Columns that a table or rows in memory leave out, whose cells count as empty: a sentence for each table."""
    unread_key_notes: tuple[str, ...] = ()
    """Keys of rows in memory that are not columns of the training, and are ignored: one sentence, or none."""
    unknown: tuple[str, ...] = ()
    """Values that the training data does not have, a sentence for each table; and texts without a known token, or
    source texts of an encoder-decoder net with unknown ones."""
    unread: tuple[str, ...] = ()
    """Files in folders that were left out, since their format is not read: one sentence, or none."""
    time_notes: tuple[str, ...] = ()
    """Unusual steps between the rows of a time series, and the times of the last forecast."""
    unnamed_classes: str = ""
    """Reason why classes are numbers, if their names are not known but could be; a sentence."""

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(next(iter(self.outputs.values())))

    def non_finite(self) -> dict[str, list[int]]:
        """Indices of the samples that have NaN or infinite elements, by output."""
        indices_by_output = {
            name: np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1)).tolist()
            for name, array in self.outputs.items()
        }
        return {name: indices for name, indices in indices_by_output.items() if indices}


@dataclass
class PredictionStream:
    """Predictions that are computed while they are iterated over, batch by batch; once."""

    batches: Iterator[AnsweredBatch]
    unapplied_transforms: tuple[str, ...]
    remark: str | None
    device_warnings: tuple[str, ...] = ()
    unnamed_classes: str = ""
    """Reason why classes are numbers, if their names are not known but could be; a sentence."""
    samples: int = 0
    """Number of samples so far."""
    columns: list[str] = field(default_factory=list)
    """Names of the columns of answers, from the first batch on; last those that `keep` adds."""
    output_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the outputs of a sample, from the first batch on."""
    non_finite: dict[str, list[int]] = field(default_factory=dict)
    """Number of samples so far with NaN or infinite elements, and the index of the first one, by output."""
    missing: list[str] = field(default_factory=list)
    """Rows so far without a prediction, since a value is missing: a sentence for each table."""
    missing_key_notes: list[str] = field(default_factory=list)
    """Columns that a table or rows in memory leave out, whose cells count as empty: a sentence for each table."""
    unread_key_notes: list[str] = field(default_factory=list)
    """Keys of rows in memory that are not columns of the training, and are ignored: one sentence, or none."""
    unknown: list[str] = field(default_factory=list)
    """Values so far that the training data does not have: a sentence for each table. At the end, also texts without a
    known token, and source texts of an encoder-decoder net with unknown ones."""
    unread: list[str] = field(default_factory=list)
    """Files in folders that were left out, since their format is not read: one sentence, or none."""
    time_notes: list[str] = field(default_factory=list)
    """Unusual steps between the rows of a time series, and the times of the last forecast."""
    unreadable: int = 0
    """Number of files so far that were left out, since they could not be read."""

    def __iter__(self) -> Iterator[AnsweredBatch]:
        unknown_texts: list[str] = []
        partly_unknown_texts: list[str] = []
        for batch in self.batches:
            self.columns = sorted(batch.columns, key=batch.texts.__contains__)
            self.output_shapes = {name: array.shape[1:] for name, array in batch.outputs.items()}
            for name, array in batch.outputs.items():
                bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
                if len(bad):
                    number, first = self.non_finite.get(name, [0, self.samples + int(bad[0])])
                    self.non_finite[name] = [number + len(bad), first]
            self.samples += len(batch)
            self.missing += filter(None, [batch.notes.missing])
            self.missing_key_notes += filter(None, [batch.notes.missing_key_notes])
            self.unread_key_notes += filter(None, [batch.notes.unread_key_notes])
            self.unknown += filter(None, [batch.notes.unknown])
            self.unread += filter(None, [batch.notes.unread])
            self.time_notes += batch.notes.time_notes
            self.unreadable += len(batch.unreadable)
            unknown_texts += batch.unknown_texts
            partly_unknown_texts += batch.partly_unknown_texts
            yield batch
        if unknown_texts:
            self.unknown.append(describe_unknown_texts(unknown_texts))
        if partly_unknown_texts:
            self.unknown.append(describe_unknown_texts(partly_unknown_texts, "tokens outside the vocabulary"))


def predict(
    source: Source,
    inputs: Inputs,
    *,
    weights: str | Path | None = None,
    output: str | Path | None = None,
    top: int = 1,
    keep: bool = False,
    overrides: Overrides = (),
    batch_size: int | None = None,
    device: str = "auto",
    autotune: str | None = None,
) -> Prediction:
    """Compute answers and outputs of a net for samples in files or arrays.

    `source` is a run directory, a net file, a training file or a model file of any known format. A net or training file
    needs `weights`, a weights file or a checkpoint; the others contain weights.

    `inputs` are arrays by the names of the net's inputs, or an `.npz` file with them; no transform is applied to these.
    If `source` describes a training, `inputs` may also be files of the kind that its data has: tables, images, sounds,
    texts, folders of these, a pattern such as `photos/*.png`, or an open binary file; these are prepared as in the
    training. So are Pillow images, a list of rows such as `[{"age": 39, "job": "clerk"}]`, a data frame of pandas
    or polars, and texts as rows `[{"text": "…"}]`. `batch_size` samples are computed at a time.

    `top` is the number of classes to name for each sample. `keep` adds the columns of a table to the answers. `output`
    names a file to write the answers to, in the format of its suffix: `.csv`, `.jsonl`, `.parquet`; or `.npz` for the
    outputs as arrays; `.json` for boxes as COCO results; or a folder for masks, or images with boxes, as PNG files.
    `predict_stream` does the same in constant memory.

    Raises `InputError` if the samples do not fit the net.

        >>> netspec.predict("runs/lenet_mnist", "digit.png").answers
        {'file': ['digit.png'], 'class': ['7'], 'probability': [0.9998]}
    """
    stream = predict_stream(
        source, inputs, weights=weights, top=top, keep=keep, overrides=overrides, batch_size=batch_size, device=device,
        autotune=autotune,
    )  # fmt: skip
    if output is not None and _are_paths(inputs):
        refuse_overwriting(Path(output), inputs)
    batches = list(stream)
    if output is not None:
        write_answers(Path(output), batches)
    first = batches[0]
    answers = {name: [value for batch in batches for value in batch.columns[name]] for name in first.columns}
    outputs = {name: np.concatenate([batch.outputs[name] for batch in batches]) for name in first.outputs}
    return Prediction(
        outputs, answers, stream.unapplied_transforms, stream.remark, stream.device_warnings, tuple(stream.missing),
        tuple(stream.missing_key_notes), tuple(stream.unread_key_notes), tuple(stream.unknown), tuple(stream.unread),
        tuple(stream.time_notes), stream.unnamed_classes,
    )  # fmt: skip


def predict_stream(
    source: Source,
    inputs: Inputs,
    *,
    weights: str | Path | None = None,
    top: int = 1,
    keep: bool = False,
    overrides: Overrides = (),
    batch_size: int | None = None,
    device: str = "auto",
    autotune: str | None = None,
    on_error: Literal["error", "skip"] = "error",
) -> PredictionStream:
    """Return the predictions of `predict` batch by batch, so that any number of samples fits into memory.

    The arguments are those of `predict`. Samples are read and computed during the iteration, which raises the errors of
    later samples. With `on_error="skip"`, images, sounds and texts in files of their own that cannot be read are left
    out, and reported as `unreadable` by the batch.

        >>> for batch in netspec.predict_stream("runs/adult", "new.csv"):
        ...     print(batch.columns["class"])
    """
    spec, model = spec_and_model(source, weights, overrides, device, autotune)
    is_stream = hasattr(inputs, "read")
    transformed = isinstance(spec, TrainSpec)
    if not is_stream:
        predicted, transformed = _predicted(model, spec, inputs, batch_size, skip=on_error == "skip")
    if transformed and isinstance(spec, TrainSpec):
        recall_learned(model, spec)
    decoders = decoders_of(spec, model.preprocessing)
    if is_stream:
        answered = _answer_content(model, spec, inputs, batch_size, decoders, top, keep=keep)
    else:
        answered = _answered(predicted, decoders, top, _rows_to_keep(spec, inputs) if keep else None)
    unapplied = () if transformed else unapplied_transforms(model, model.preprocessing.or_declared_in(spec))
    unnamed = describe_unnamed_classes(model, spec, decoders) if isinstance(spec, TrainSpec) else ""
    opened = model.compiler.device
    return PredictionStream(answered, tuple(unapplied), opened.remark, tuple(opened.warnings), unnamed)


def _rows_to_keep(spec: NetSpec | TrainSpec, inputs: Inputs) -> TableRows:
    rows = None
    if isinstance(spec, TrainSpec) and isinstance(inputs, (str, Path, Sequence)):
        paths = _input_paths(inputs)
        rows = None if _are_texts(spec, paths) else rows_of(spec, paths)
    if rows is None:
        raise InputError("only the rows of a table have columns to keep", expected="a CSV or Parquet file as input")
    return rows


def _predicted(
    model: Model, spec: NetSpec | TrainSpec, inputs: Inputs, batch_size: int | None, *, skip: bool
) -> tuple[Iterator[PredictedBatch], bool]:
    """Return the predictions for any inputs, and whether these pass through the transforms of the training."""
    if isinstance(inputs, Mapping) and not is_row(inputs):
        return _predict_arrays(model, inputs, batch_size), False
    if isinstance(spec, TrainSpec) and not _are_paths(inputs):
        return _predict_raw(model, spec, inputs, batch_size), True
    paths = _input_paths(inputs)
    if isinstance(spec, TrainSpec) and _are_texts(spec, paths):
        return _predict_texts(model, spec, paths, batch_size), True
    if isinstance(spec, TrainSpec) and not _is_arrays(paths):
        return predict_files(model, spec, paths, batch_size, skip=skip, takes_overrides=True), True
    return _predict_arrays(model, _read_arrays(paths), batch_size), False


def spec_and_model(
    source: Source, weights: str | Path | None, overrides: Overrides, device: str, autotune: str | None
) -> tuple[NetSpec | TrainSpec, Model]:
    """Open what `predict` takes as `source`: the spec, and the model with its weights."""
    if isinstance(source, (str, Path)) and is_model_file(Path(source)):
        if overrides:
            raise InputError("the settings of a model file cannot be changed", got=" ".join(map(str, overrides)))
        model = load(source, weights, device=device, autotune=autotune or "off")
        return model.spec, model
    spec_file, weights_file = spec_and_weights(source, weights)
    spec = load_spec(spec_file, overrides)
    return spec, load(spec, weights_file, device=device, **model_settings(spec, autotune))


def _input_paths(inputs: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files that paths and patterns name, sorted within a pattern.

    Raises `InputError` with all paths and patterns that name none.
    """
    paths: list[Path] = []
    problems: list[Problem] = []
    for text in [inputs] if isinstance(inputs, (str, Path)) else inputs:
        path = Path(text)
        if path.exists():
            paths.append(path)
        elif not glob.has_magic(str(text)):
            problems.append(Problem(f"no such file or folder: {path}", hint=near_path(path) or _text_hint(str(text))))
        elif matches := sorted(glob.glob(str(text), recursive=True)):  # noqa: PTH207 - Path.glob takes no absolute pattern
            paths += map(Path, matches)
        else:
            problems.append(Problem(f"no file matches {text}", expected="a pattern such as photos/*.png"))
    if problems:
        raise InputError(problems)
    if not paths:
        raise InputError("there is no input", expected="one file or more")
    return paths


def refuse_overwriting(output: Path, inputs: str | Path | Sequence[str | Path]) -> None:
    """Raise `InputError` if the output would overwrite one of the input files."""
    for path in _input_paths(inputs):
        if output.resolve() in (path.resolve(), path.resolve().parent):
            raise InputError(
                f"the output would replace the input {path}", expected="a different file or folder", got=str(output)
            )


def _text_hint(text: str) -> str | None:
    """Return a hint how to predict a text itself, if the path looks like a text."""
    is_text = " " in text.strip() and "/" not in text and not Path(text).suffix
    return 'to predict a text, use standard input (--input -) or a row: [{"text": "…"}]' if is_text else None


def _are_paths(inputs: object) -> bool:
    items = inputs if isinstance(inputs, Sequence) and not isinstance(inputs, str) else [inputs]
    return all(isinstance(item, (str, Path)) for item in items)


def _is_arrays(paths: Sequence[Path]) -> bool:
    return len(paths) == 1 and paths[0].suffix == ".npz"


def _read_arrays(paths: Sequence[Path]) -> dict[str, NDArray[Any]]:
    if not _is_arrays(paths):
        raise InputError(
            "a net without its training takes arrays only", expected="one .npz file with an array for each input",
            got=listing([str(path) for path in paths], 3),
            hint="with a run directory or a training file, images, tables and other files are prepared as in training",
        )  # fmt: skip
    return read_npz(paths[0])


def _answer_content(
    model: Model, spec: NetSpec | TrainSpec, content: BinaryIO, batch_size: int | None,
    decoders: Mapping[str, Decoder], top: int, *, keep: bool,
) -> Iterator[AnsweredBatch]:  # fmt: skip
    """Predict for the content of a file, which is copied to a temporary file first."""
    suffix = input_suffix(spec) if isinstance(spec, TrainSpec) else ".npz"
    with temporary_folder() as folder:
        path = folder / f"standard_input{suffix}"  # the name in messages
        with path.open("wb") as file:
            copyfileobj(content, file)
        if not path.stat().st_size:
            raise InputError("the standard input is empty", expected="the content of a file")
        if isinstance(spec, TrainSpec):
            if suffix == ".txt" and has_text_column(path):
                path = path.rename(path.with_suffix(".csv"))
            elif is_single_line(path) and is_text_file(path, inference_split(spec)):
                path = path.rename(path.with_suffix(".txt"))
            batches, _ = _predicted(model, spec, [path], batch_size, skip=False)
        else:
            batches = _predict_arrays(model, read_npz(path), batch_size)
        yield from _answered(map(_with_stdin_name, batches), decoders, top, _rows_to_keep(spec, path) if keep else None)


def _with_stdin_name(batch: PredictedBatch) -> PredictedBatch:
    """Name the standard input instead of a temporary file."""
    return replace(batch, ids={name: ["-"] * len(ids) if name == "file" else ids for name, ids in batch.ids.items()})


def _predict_raw(model: Model, spec: TrainSpec, samples: object, batch_size: int | None) -> Iterator[PredictedBatch]:
    """Predict for images, rows or texts in memory, which are numbered instead of named by files."""
    with raw_files(samples, inference_split(spec)) as (paths, split):
        yield from _numbered(predict_files(model, spec, paths, batch_size, split, takes_overrides=True))


def _are_texts(spec: TrainSpec, paths: Sequence[Path]) -> bool:
    """Return whether files are single texts, and the training reads texts from a table."""
    split = inference_split(spec)
    return isinstance(split, TableSource) and all(
        path.suffix.lower() in TEXTS.suffixes and is_text_file(path, split) for path in paths
    )


def _predict_texts(
    model: Model, spec: TrainSpec, paths: Sequence[Path], batch_size: int | None
) -> Iterator[PredictedBatch]:
    """Predict for files that each contain a text, as rows of a table of texts."""
    texts = [{TEXT: decoded(path, read_bytes(path))} for path in paths]
    with raw_files(texts, inference_split(spec)) as (tables, split):
        for batch in predict_files(model, spec, tables, batch_size, split):
            yield replace(batch, ids={"file": [str(paths[int(row) - 1]) for row in batch.ids["row"]]})


def _predict_arrays(model: Model, arrays: Mapping[str, Any], batch_size: int | None) -> Iterator[PredictedBatch]:
    return _numbered(PredictedBatch({}, outputs) for outputs in model.predict_batches(arrays, batch_size))


def _numbered(batches: Iterable[PredictedBatch]) -> Iterator[PredictedBatch]:
    """Yield predictions with the numbers of their samples, from 1."""
    first = 1
    for batch in batches:
        samples = len(next(iter(batch.outputs.values())))
        rows: list[str | int] = [*range(first, first + samples)]
        yield replace(batch, ids={"row": rows} | {name: ids for name, ids in batch.ids.items() if name != "file"})
        first += samples


def _answered(
    batches: Iterator[PredictedBatch], decoders: Mapping[str, Decoder], top: int, rows: TableRows | None
) -> Iterator[AnsweredBatch]:
    """Decode the outputs of batches, and add the columns of their rows."""
    for batch in batches:
        columns, texts = answers_of(batch, decoders, top), dict[str, Column]()
        if rows is not None:
            time_columns = batch.ids.keys() - {"file", "row"}
            answers = {name: values for name, values in columns.items() if name not in time_columns}
            matching = rows.matching(batch.ids)
            columns, texts = {**matching.values, **_renamed(answers, rows.names)}, {**matching.texts}
        named = next((decoder for decoder in decoders.values() if decoder.classes), None)
        classes, ids = ((), ()) if named is None else (named.classes, named.category_ids)
        yield AnsweredBatch(
            columns,
            batch.outputs,
            classes,
            ids,
            batch.notes,
            tuple(_sample_name(batch.ids, index) for index in batch.unknown_texts),
            tuple(_sample_name(batch.ids, index) for index in batch.partly_unknown_texts),
            batch.unreadable,
            texts,
            TableFormat() if rows is None else rows.format,
        )


def _sample_name(ids: Mapping[str, Sequence[str | int]], index: int) -> str:
    """Return the name of a sample in messages: `reviews/1.txt`, `row 3`, or `new.csv, row 3`."""
    return ", ".join(f"row {values[index]}" if key == "row" else str(values[index]) for key, values in ids.items())


def _resized(mask: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Return a mask (H, W) in the size of its image: each pixel has the class of the nearest one."""
    if mask.ndim != 2 or mask.shape == size:
        return mask
    rows, columns = ((np.arange(new) + 0.5) * old / new for new, old in zip(size, mask.shape, strict=True))
    resized: NDArray[Any] = mask[rows.astype(np.int64)[:, None], columns.astype(np.int64)]
    return resized


def answers_of(batch: PredictedBatch, decoders: Mapping[str, Decoder], top: int) -> dict[str, Column]:
    """Return the ids and the columns of answers for a batch; if the net has several outputs, `OUTPUT.COLUMN`.

    Masks and boxes are those of the images in their files, if these are known.
    """
    columns: dict[str, Column] = dict(batch.ids)
    for output, array in batch.outputs.items():
        for column, values in decoders[output](array, top).items():
            if column == "mask" and batch.sizes is not None:
                values = [_resized(mask, size) for mask, size in zip(values, batch.sizes, strict=True)]
            if column == "boxes" and batch.windows is not None:
                values = [
                    boxes if window is None else boxes_in_image(boxes, window)
                    for boxes, window in zip(values, batch.windows, strict=True)
                ]
            columns[column if len(decoders) == 1 else f"{output}.{column}"] = values
    return columns


def _renamed(columns: Mapping[str, Column], reserved: Sequence[str]) -> dict[str, Column]:
    """Return columns under names that the table does not use: `class` becomes `predicted_class` if it has one."""
    return {f"predicted_{name}" if name in reserved else name: values for name, values in columns.items()}


def test(
    source: Source,
    *,
    weights: str | Path | None = None,
    overrides: Overrides = (),
    device: str = "auto",
    samples: Mapping[str, Any] | None = None,
    split: str = "test",
    report: bool = False,
    output: str | Path | None = None,
) -> Evaluation:
    """Evaluate weights on the test data of a training, or on another split; each sample counts exactly once.

    `source` is a run directory, or a training file with `weights`, a weights file or a checkpoint. `samples` are the
    data of splits with `source: python`: `{"test": arrays}`.

    `split` is `"test"`, `"validation"` or `"train"`. `report` adds a report of the classes and a confusion matrix to
    the metrics of a classifier. `output` names a folder to write all metrics to: `metrics.json`, a CSV file for each
    table, and an image of each confusion matrix.

    Raises `InputError` if there is no such data, or the weights do not fit.

        >>> netspec.test("runs/lenet_mnist").metrics
    """
    spec_file, weights_file = spec_and_weights(source, weights)
    evaluation = evaluate_weights(
        spec_file, weights_file, overrides, device=device, samples=samples, split=split, report=report
    )
    if output is not None:
        write_evaluation(evaluation, Path(output))
    return evaluation

"""Explain predictions: the parts of an image, text, sound or row that they depend on; the importance of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from netspec.data.audio.riff import read_sound, with_silence
from netspec.data.base import Source as DataSource
from netspec.data.files import existing
from netspec.data.tabular.declaration import index_of
from netspec.data.tabular.source import TableSource
from netspec.errors import InputError
from netspec.exchange.files import write_atomically
from netspec.schema.load import Source
from netspec.schema.specs.train import TrainSpec
from netspec.tools.inference.explained_value import explained_value
from netspec.tools.model_inputs import load, spec_and_weights
from netspec.tools.specs import load_spec, model_settings
from netspec.training.evaluation import data_change, in_target_units, open_evaluation_loader
from netspec.training.inference.model import Model
from netspec.training.inference.predict_files import FilePreparation, inference_split, input_arrays, recall_learned
from netspec.training.inference.raw_samples import TEXT, is_text_file, raw_files, sample_kind, temporary_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

PATCHES = 12
"""Number of patches along the shorter side of an image."""
COVERED_AT_A_TIME = 16
"""Number of images with a covered part that are computed at a time."""
TEXT_PARTS = 200
"""Maximum number of parts of a text: a longer one is divided into groups of words."""
SOUND_PARTS = 20
"""Number of parts of a sound, each of which is replaced by silence."""
ROW_PARTS = 24
"""Maximum number of groups of rows of a window."""
OTHER_ROWS = 100
"""Number of other rows whose values replace those of the explained one."""
MAX_SAMPLES = 10_000
"""Number of rows that the importance of columns is measured on."""
REPETITIONS = 3
"""Number of random orders of each column."""


@dataclass(frozen=True)
class ImageExplanation:
    """Changes of a predicted value if parts of an image are covered."""

    label: str | None
    """The class; None if the net predicts numbers."""
    quantity: Literal["probability", "score", "prediction"]
    """Kind of the value: the probability of a class, the score of a box, or a predicted number."""
    value: float
    """The value for the whole image."""
    heat_map: Array
    """(H, W): decrease of the value if the part around a pixel is covered; negative if it increases."""


class Contribution(NamedTuple):
    """A part of a sample, and the change of a predicted value without it."""

    part: str
    """Words of a text, a column of a row, rows before a forecast (lags), or an interval of a sound."""
    contribution: float
    """Decrease of the value without the part; negative if it increases."""


@dataclass(frozen=True)
class Explanation:
    """Changes of a predicted value if parts of a sample are left out or replaced."""

    label: str | None
    """The class; None if the net predicts numbers."""
    quantity: Literal["probability", "score", "prediction"]
    """Kind of the value: the probability of a class, a score, or a predicted number."""
    value: float
    """The value for the whole sample."""
    parts: list[Contribution]
    """The parts, in the order of the sample."""
    row: int | None = None
    """Number of the row of a table, from 1; for a forecast, of the last row that it reads."""
    data_change: str | None = None
    """Sentence that says how the rows whose values replace others differ from those at the time of the training."""
    notes: tuple[str, ...] = ()
    """Sentences about the table of the row: unknown values, and columns that are missing."""


@dataclass(frozen=True)
class ColumnImportance:
    """Increase of the loss if the values of a column are shuffled among rows."""

    column: str
    increase: float
    """Mean increase of the loss over several random orders."""
    deviation: float
    """Standard deviation of the increase."""
    in_units: dict[str, float] = field(default_factory=dict)
    """Mean increase of metrics in the unit of the target, by name, if the net learned the target in another unit."""


class ColumnImportances(list[ColumnImportance]):
    """The importance of columns, the most important first."""

    split: str = ""
    """The split whose rows were used."""
    samples: int = 0
    """Number of rows, or of windows of rows, that were used."""
    data_change: str | None = None
    """Sentence that says how the rows differ from those at the time of the training; None if they do not."""


@dataclass(frozen=True)
class _BackgroundRows:
    """Rows of a split of a table."""

    split: str
    arrays: dict[str, Array]
    """The inputs of the net, by name."""
    ranges: dict[str, tuple[str, int, int]]
    """The input and the elements of each column."""
    scales: dict[str, float]
    """Factors to the unit of the data, by input."""
    data_change: str | None


def explain_image(
    source: Source,
    image: str | Path,
    *,
    label: str | None = None,
    output: str | Path | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> ImageExplanation:
    """Explain what a net predicts for an image by occlusion (Zeiler and Fergus 2014, arXiv:1311.2901).

    Parts of the image are covered with the mean color of the image, one after the other; if this reduces the
    probability of the class, the class depends on the part. `source` is a run directory or a training file with
    `weights`; `label` is a class, by default the most probable one. For a mask, the value is the mean probability over
    the pixels of the class; for boxes, the score of the best one; for a number, the number. `output` names a PNG file
    for the image with the heat map drawn over it.

    Raises `InputError` if the net reads more than an image, or predicts a text.

        >>> netspec.explain_image("runs/flowers", "rose.jpg", output="why.png").label
    """
    spec, model = _training_and_model(source, weights, device)
    _check_kind(spec, "image", "images", "image_folder")
    arrays = input_arrays(model, spec, existing(Path(image)))
    images = [name for name, array in arrays.items() if array.ndim == 4]
    if len(arrays) != 1 or len(images) != 1:
        expected = "a net with one input of images (C, H, W)"
        got = ", ".join(f"`{name}`: {list(array.shape[1:])}" for name, array in arrays.items())
        raise InputError("only predictions for images can be explained by covering parts", expected=expected, got=got)
    pixels = arrays[images[0]][:1]
    explained, compute = explained_value(spec, model, {images[0]: pixels}, label)
    heat_map = _occluded(pixels, lambda batch: compute({images[0]: batch}), explained.value)
    if output is not None:
        _draw_heat_map(Path(image), heat_map, Path(output))
    return ImageExplanation(explained.label, explained.quantity, explained.value, heat_map)


def explain_text(
    source: Source,
    text: str,
    *,
    label: str | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> Explanation:
    """Explain what a net predicts for a text: how much the probability of its class falls if a word is left out.

    `source` is a run directory or a training file with `weights`; `label` is a class, by default the most probable one.
    Words are separated by white space. In texts of more than 200 words, groups of words are left out.

    Raises `InputError` if the net does not predict a class or numbers for each text.

        >>> netspec.explain_text("runs/reviews", "A wonderful film").parts[1]
        Contribution(part='wonderful', contribution=0.41)
    """
    spec, model = _training_and_model(source, weights, device)
    _check_kind(spec, "text", "texts", "documents")
    return _without_words(spec, model, text, label)


def _without_words(spec: TrainSpec, model: Model, text: str, label: str | None) -> Explanation:
    words = text.split()
    if len(words) < 2:
        raise InputError("the text is too short to leave a word out", expected="two words or more", got=repr(text))
    edges = _edges(len(words), TEXT_PARTS)
    parts = [" ".join(words[start:stop]) for start, stop in pairwise(edges)]
    texts = [text, *(" ".join(words[:start] + words[stop:]) for start, stop in pairwise(edges))]
    with raw_files([{TEXT: each} for each in texts], inference_split(spec)) as (paths, split):
        return _without_parts(spec, model, paths, parts, label, split, keeps_positions=False)


def explain_audio(
    source: Source,
    audio: str | Path,
    *,
    label: str | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> Explanation:
    """Explain what a net predicts for a WAV file: how much the probability of its class falls if a part is silent.

    `source` is a run directory or a training file with `weights`; `label` is a class, by default the most probable one.
    The parts are a twentieth of the audio each, named by the seconds at which they begin and end.

    Raises `InputError` if the net does not predict classes or numbers.

        >>> netspec.explain_audio("runs/commands", "yes.wav").parts[8]
        Contribution(part='0.40–0.45 s', contribution=0.37)
    """
    spec, model = _training_and_model(source, weights, device)
    _check_kind(spec, "audio", "audio", "audio")
    header, _ = read_sound(Path(audio))
    edges = _edges(header.frames, SOUND_PARTS)
    digits = 2 if header.frames / header.rate >= SOUND_PARTS / 100 else 4
    names = [f"{start / header.rate:.{digits}f}–{stop / header.rate:.{digits}f} s" for start, stop in pairwise(edges)]
    content = Path(audio).read_bytes()
    with temporary_folder() as folder:
        paths = [Path(audio)]
        for number, (start, stop) in enumerate(pairwise(edges)):
            paths.append(folder / f"{number:02d}.wav")
            paths[-1].write_bytes(with_silence(header, content, start, stop))
        return _without_parts(spec, model, paths, names, label)


def explain_row(
    source: Source,
    rows: Any,
    *,
    row: int | None = None,
    label: str | None = None,
    split: str | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
    seed: int = 1,
) -> Explanation:
    """Explain what a net predicts for a row of a table, or a forecast.

    Each column gets the values of other rows of a split (test, validation or train; by default the first of these that
    the training has); its contribution is the mean decrease of the predicted value. For a forecast, the values of all
    rows of a window are replaced, and then those of all columns in some of the rows. If the only column is a text, the
    parts are its words, as in `explain_text`.

    `rows` are a file of the kind that the training reads, a row such as `{"age": 39, "job": "clerk"}`, a list of rows,
    or a data frame. `row` is the row to explain, counted from 1; for a forecast, the last row that it reads; by default
    the last one. `label` is a class, by default the most probable one.

    Raises `InputError` if the training does not read a table.

        >>> netspec.explain_row("runs/adult", {"age": 39, "job": "clerk"}).parts[0]
        Contribution(part='age', contribution=0.12)
    """
    spec, model = _training_and_model(source, weights, device)
    _check_kind(spec, "table", "table", "csv")
    number, sample, notes = _row_of(spec, model, rows, row)
    table = inference_split(spec)
    if isinstance(table, TableSource) and (column := table.text_column()) is not None:
        return replace(_without_words(spec, model, _cell(rows, table, column, number), label), row=number, notes=notes)
    table_rows = _table_rows(spec, model, split)
    background, ranges = table_rows.arrays, table_rows.ranges
    samples = len(next(iter(background.values())))
    chosen = np.random.default_rng(seed).choice(samples, min(samples, OTHER_ROWS), replace=False)
    others = {name: background[name][chosen] for name in sample}
    repeated = {name: np.repeat(array, len(chosen), axis=0) for name, array in sample.items()}
    explained, compute = explained_value(spec, model, sample, label)

    def contribution(part: str, changed: Mapping[str, Array]) -> Contribution:
        return Contribution(part, explained.value - float(compute({**repeated, **changed}).mean()))

    parts = [
        contribution(column, {key: _with_elements_of(repeated[key], others[key], start, stop)})
        for column, (key, start, stop) in ranges.items()
        if key in sample
    ]
    windows = getattr(inference_split(spec), "windows", None)
    if windows is not None:
        edges = _edges(windows.length, ROW_PARTS)
        fields = {key for key, _, _ in ranges.values() if key in sample}
        for start, stop in pairwise(edges):
            changed = {key: repeated[key].copy() for key in fields}
            for key, values in changed.items():
                values[:, start:stop] = others[key][:, start:stop]
            parts.append(contribution(_lags(windows.length - start, windows.length - stop + 1), changed))
    return Explanation(
        explained.label, explained.quantity, explained.value, parts, number, table_rows.data_change, notes
    )


def _edges(length: int, parts: int) -> list[int]:
    """Return the limits of at most `parts` parts of about the same size."""
    edges: list[int] = np.linspace(0, length, min(parts, length) + 1).astype(int).tolist()
    return edges


def _lags(first: int, last: int) -> str:
    """Return the name of rows of a window; the lag is the distance from the first row of the forecast."""
    return f"lag {first}" if first == last else f"lags {first}–{last}"


def _row_of(spec: TrainSpec, model: Model, rows: Any, row: int | None) -> tuple[int, dict[str, Array], tuple[str, ...]]:
    """Return the number of a row, by default of the last one, its inputs (1, …), and notes on the table."""
    number, found = 0, dict[str, Any]()
    preparation = FilePreparation(model, spec)
    with raw_files(rows, inference_split(spec)) as (paths, split):
        for ids, batch in preparation.batches(paths, split=split):
            origins = ids["row"]
            if row is None or row in origins:
                index = len(origins) - 1 if row is None else origins.index(row)
                number = int(origins[index])
                found = {name: array[index : index + 1] for name, array in batch.inputs.items()}
    if not found:
        which = "any row" if row is None else f"row {row}"
        raise InputError(f"there is no prediction for {which}", expected="a row that `netspec predict` prints")
    notes = preparation.notes
    return number, found, tuple(filter(None, [notes.missing_key_notes, notes.unread_key_notes, notes.unknown]))


def _cell(rows: Any, table: TableSource, column: str, number: int) -> str:
    """Return the text in a column of a row, which is counted from 1."""
    with raw_files(rows, table) as (paths, split):
        assert isinstance(split, TableSource)
        file = split.other_file(paths[0])
        index = index_of(column, file.names)
        assert index is not None  # the row has been predicted
        texts = (block.cells[0].text(row) for block in file.blocks([index]) for row in range(len(block)))
        return next(islice(texts, number - 1, None))


def _without_parts(
    spec: TrainSpec, model: Model, paths: Sequence[Path], names: Sequence[str], label: str | None,
    split: DataSource | None = None, *, keeps_positions: bool = True,
) -> Explanation:  # fmt: skip
    """Explain the prediction for the first file by those for the others, each of which lacks one part."""
    batches = [batch.inputs for _, batch in FilePreparation(model, spec).batches(paths, split=split)]
    arrays = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    whole = {name: array[:1] for name, array in arrays.items()}
    explained, compute = explained_value(spec, model, whole, label, keeps_positions=keeps_positions)
    falls = explained.value - compute({name: array[1:] for name, array in arrays.items()})
    parts = list(map(Contribution, names, falls.tolist()))
    return Explanation(explained.label, explained.quantity, explained.value, parts)


def _check_kind(spec: TrainSpec, kind: str, plural: str, example: str) -> None:
    """Raise `InputError` if a training reads samples of another kind."""
    split = inference_split(spec)
    got = kind if kind == "table" and isinstance(split, TableSource) else sample_kind(split)
    if got != kind:
        raise InputError(f"the net was not trained on {plural}", expected=f"a source such as `{example}`", got=got)


def explained_kind(source: Source, path: str | Path, weights: str | Path | None = None) -> str:
    """Return the kind of the samples in a file for a training: `image`, `text`, `table`, `audio` or `arrays`."""
    spec = load_spec(spec_and_weights(source, weights)[0])
    if not isinstance(spec, TrainSpec):
        return "arrays"
    split = inference_split(spec)
    kind = sample_kind(split)
    return "table" if kind == "text" and not is_text_file(Path(path), split) else kind


def _occluded(image: Array, compute: Callable[[Array], Array], unoccluded: float) -> Array:
    """Return the decrease of a value (H, W), averaged over the overlapping patches that cover a pixel."""
    height, width = image.shape[2:]
    side = max(1, min(height, width) // PATCHES * 2)
    stride = max(1, side // 2)
    corners = [
        (top, left)
        for top in range(0, max(1, height - side + stride), stride)
        for left in range(0, max(1, width - side + stride), stride)
    ]
    color = image.mean(axis=(0, 2, 3))[:, None, None]
    total, count = np.zeros((height, width)), np.zeros((height, width))
    for first in range(0, len(corners), COVERED_AT_A_TIME):
        batch = corners[first : first + COVERED_AT_A_TIME]
        covered = np.repeat(image, len(batch), axis=0)
        for number, (top, left) in enumerate(batch):
            covered[number, :, top : top + side, left : left + side] = color
        for (top, left), value in zip(batch, compute(covered), strict=True):
            total[top : top + side, left : left + side] += unoccluded - value
            count[top : top + side, left : left + side] += 1
    return total / np.maximum(count, 1)


def _draw_heat_map(image: Path, heat_map: Array, output: Path) -> None:
    """Draw a heat map over an image: red where covering reduces the explained value, blue where it increases it."""
    from PIL import Image

    with Image.open(image) as opened:
        drawing = opened.convert("RGB")
    drawing = drawing.resize((max(256, drawing.width), round(max(256, drawing.width) * drawing.height / drawing.width)))
    strength = np.abs(heat_map) / max(float(np.abs(heat_map).max()), 1e-12)
    colors = np.where(heat_map[..., None] >= 0, [220, 20, 20], [30, 60, 220]).astype(np.uint8)
    mask = Image.fromarray((160 * strength).astype(np.uint8)).resize(drawing.size, Image.Resampling.BICUBIC)
    drawing.paste(Image.fromarray(colors).resize(drawing.size), mask=mask)
    write_atomically(output, partial(drawing.save, format="PNG"))


def explain_columns(
    source: Source,
    *,
    split: str | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
    seed: int = 1,
) -> ColumnImportances:
    """Return the importance of each column of a table, the most important first (Breiman 2001).

    The values of a column are exchanged between the rows of a split (test, validation or train; by default the first of
    these that the training has); the more the loss rises, the more the net depends on the column. If columns carry the
    same information, each of them seems less important. Up to 10,000 rows are used.

    Raises `InputError` if the training does not read a table.

        >>> netspec.explain_columns("runs/adult")[0].column
    """
    spec, model = _training_and_model(source, weights, device)
    table_rows = _table_rows(spec, model, split)
    arrays, scales = table_rows.arrays, table_rows.scales
    samples = len(next(iter(arrays.values())))
    before, metrics_before = _figures(model, arrays, scales)
    importances = []
    for number, (column, (key, start, stop)) in enumerate(table_rows.ranges.items()):
        rises, metric_rises = [], dict.fromkeys(metrics_before, 0.0)
        for repetition in range(REPETITIONS):
            order = np.random.default_rng([seed, number, repetition]).permutation(samples)
            loss, metrics = _figures(
                model, {**arrays, key: _with_elements_of(arrays[key], arrays[key][order], start, stop)}, scales
            )
            rises.append(loss - before)
            for name in metric_rises:
                metric_rises[name] += (metrics[name] - metrics_before[name]) / REPETITIONS
        importances.append(ColumnImportance(column, float(np.mean(rises)), float(np.std(rises)), metric_rises))
    ranked = ColumnImportances(sorted(importances, key=lambda importance: -importance.increase))
    ranked.split, ranked.samples, ranked.data_change = table_rows.split, samples, table_rows.data_change
    return ranked


def _table_rows(spec: TrainSpec, model: Model, split: str | None) -> _BackgroundRows:
    """Read rows of a split of a table."""
    name = split or next(name for name in ("test", "validation", "train") if name in spec.data.splits())
    learned = model.preprocessing.learned
    assert learned is not None  # recalled
    batches: list[dict[str, Array]] = []
    with open_evaluation_loader(spec, name, model.compiler, learned) as loader:
        ranges, scales = loader.column_ranges, loader.unit_scales
        if not ranges:
            raise InputError(
                "only a net trained on a table has columns to rank", expected="a source with columns, such as `csv`",
                hint="to explain the prediction for a sample, name its file: --input FILE",
            )  # fmt: skip
        samples = 0
        for batch in loader.one_pass():
            batches.append(batch.inputs)
            samples += len(batch)
            if samples >= MAX_SAMPLES:
                break
        change = data_change(name, model.preprocessing, loader)
    arrays = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    return _BackgroundRows(name, arrays, ranges, scales, change)


def _with_elements_of(values: Array, others: Array, start: int, stop: int) -> Array:
    """Return values (N, …) with the elements from `start` to `stop` of the last axis taken from other rows (N, …)."""
    if values.ndim == 1:
        return others
    changed = values.copy()
    changed[..., start:stop] = others[..., start:stop]
    return changed


def _figures(model: Model, arrays: Mapping[str, Array], scales: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """Return the loss, and the metrics in the unit of the target."""
    evaluation = model.evaluate(dict(arrays))
    if evaluation.loss is None:
        raise InputError("the net has no loss, so no column can change it", expected="`losses` in the net")
    return evaluation.loss, in_target_units(model.spec, scales, evaluation.metrics)


def _training_and_model(source: Source, weights: str | Path | None, device: str) -> tuple[TrainSpec, Model]:
    spec_file, weights_file = spec_and_weights(source, weights)
    spec = load_spec(spec_file)
    if not isinstance(spec, TrainSpec):
        raise InputError(
            "this is a net file, without data", expected="a run directory or a training file", got=str(source)
        )
    model = load(spec.net, weights_file, device=device, **model_settings(spec))
    recall_learned(model, spec)
    return spec, model

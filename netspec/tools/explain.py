"""Explain predictions: the parts of an image or words of a text that a class depends on; the importance of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from netspec.errors import InputError, did_you_mean, listing
from netspec.exchange.files import write_atomically
from netspec.schema.load import Source
from netspec.schema.specs.train import TrainSpec
from netspec.tools.model_inputs import load, spec_and_weights
from netspec.tools.specs import load_spec
from netspec.training.decoding import decoders_of
from netspec.training.evaluation import in_target_units, learned_of, open_evaluation_loader
from netspec.training.model import Model
from netspec.training.predict_files import FilePreparation, inference_split, input_arrays
from netspec.training.raw_samples import TEXT, raw_files, sample_kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

PATCHES = 12
"""Number of patches along the shorter side of an image."""
MAX_SAMPLES = 10_000
"""Number of rows that the importance of columns is measured on."""
REPETITIONS = 3
"""Number of random orders of each column."""


@dataclass(frozen=True)
class ImageExplanation:
    """Changes of a class's probability if parts of an image are covered."""

    label: str
    """The class."""
    probability: float
    """Its probability for the whole image."""
    heat: Array
    """(H, W): decrease of the probability if the part around a pixel is covered; negative if it increases."""


class WordContribution(NamedTuple):
    """A word of a text, and the change of a class's probability without it."""

    word: str
    contribution: float
    """Decrease of the probability without the word; negative if it increases."""


@dataclass(frozen=True)
class TextExplanation:
    """Changes of a class's probability if words of a text are left out."""

    label: str
    """The class."""
    probability: float
    """Its probability for the whole text."""
    words: list[WordContribution]
    """The words, in the order of the text."""


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


def explain_image(
    source: Source,
    image: str | Path,
    *,
    label: str | None = None,
    output: str | Path | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> ImageExplanation:
    """Explain the class of an image by occlusion (Zeiler and Fergus 2014, arXiv:1311.2901).

    Parts of the image are covered with the mean color of the image, one after the other; if this reduces the
    probability of the class, the class depends on the part. `source` is a run directory or a training file with
    `weights`; `label` is a class, by default the most probable one. `output` names a PNG file for the image with the
    heat drawn over it.

    Raises `InputError` if the net does not classify images.

        >>> netspec.explain_image("runs/flowers", "rose.jpg", output="why.png").label
    """
    spec, model = _training_and_model(source, weights, device)
    arrays = input_arrays(model, spec, Path(image))
    images = [name for name, array in arrays.items() if array.ndim == 4]
    if len(arrays) != 1 or len(images) != 1:
        expected = "a net with one input of images (C, H, W)"
        got = ", ".join(f"`{name}`: {list(array.shape[1:])}" for name, array in arrays.items())
        raise InputError("only classes of images can be explained by covering parts", expected=expected, got=got)
    pixels = arrays[images[0]][:1]
    unoccluded = _probabilities(spec, model, {images[0]: pixels})[0]
    chosen = _chosen(label, unoccluded)

    def probability(batch: Array) -> Array:
        return np.array([by_class[chosen] for by_class in _probabilities(spec, model, {images[0]: batch})])

    heat = _occluded(pixels, probability, unoccluded[chosen])
    if output is not None:
        _write_heat(Path(image), heat, Path(output))
    return ImageExplanation(chosen, unoccluded[chosen], heat)


def explain_text(
    source: Source,
    text: str,
    *,
    label: str | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
) -> TextExplanation:
    """Explain the class of a text: how much its probability falls if a word is left out.

    `source` is a run directory or a training file with `weights`; `label` is a class, by default the most probable one.
    Words are separated by white space.

    Raises `InputError` if the net does not classify texts.

        >>> netspec.explain_text("runs/reviews", "A wonderful film").words[1]
        WordContribution(word='wonderful', contribution=0.41)
    """
    spec, model = _training_and_model(source, weights, device)
    kind = sample_kind(inference_split(spec))
    if kind != "text":
        raise InputError("the training reads no texts", expected="a source of texts, such as `documents`", got=kind)
    words = text.split()
    if len(words) < 2:
        raise InputError("the text is too short to leave a word out", expected="two words or more", got=repr(text))
    texts = [text, *(" ".join(words[:index] + words[index + 1 :]) for index in range(len(words)))]
    by_text: list[dict[str, float]] = []
    with raw_files([{TEXT: each} for each in texts], inference_split(spec)) as (paths, split):
        for _, batch in FilePreparation(model, spec).batches(paths, split=split):
            by_text += _probabilities(spec, model, batch.inputs)
    chosen = _chosen(label, by_text[0])
    whole = by_text[0][chosen]
    contributions = [whole - without[chosen] for without in by_text[1:]]
    return TextExplanation(chosen, whole, list(map(WordContribution, words, contributions)))


def explained_kind(source: Source, weights: str | Path | None = None) -> str:
    """Return the kind of the samples of a training: `image`, `text`, `table`, `sound` or `arrays`."""
    spec = load_spec(spec_and_weights(source, weights)[0])
    return sample_kind(inference_split(spec)) if isinstance(spec, TrainSpec) else "arrays"


def _probabilities(spec: TrainSpec, model: Model, inputs: Mapping[str, Array]) -> list[dict[str, float]]:
    """Return the probability of each class by its name, for each sample. Raises `InputError` if there are none."""
    output, decoder = next(iter(decoders_of(spec, model.preprocessing).items()))
    scores = model.predict(dict(inputs))[output]
    columns = decoder(scores, scores.shape[-1])
    if "probability" not in columns:
        raise InputError(
            "only the class of a whole image or text can be explained",
            expected="a net that predicts one class for each sample", got=f"predictions with {listing(list(columns))}",
        )  # fmt: skip
    ranks = [name for name in columns if name.startswith("class")]
    return [
        {str(columns[name][row]): columns[name.replace("class", "probability")][row] for name in ranks}
        for row in range(len(scores))
    ]


def _chosen(label: str | None, probabilities: Mapping[str, float]) -> str:
    """Return the class to explain, by default the most probable one. Raises `InputError` if there is no such class."""
    chosen = max(probabilities, key=probabilities.__getitem__) if label is None else label
    if chosen not in probabilities:
        expected = f"one of {listing(list(probabilities), 10)}"
        raise InputError(f"there is no class {chosen!r}", expected=expected, hint=did_you_mean(chosen, probabilities))
    return chosen


def _occluded(image: Array, probability: Any, unoccluded: float) -> Array:
    """Return the decrease of a probability (H, W), averaged over the overlapping patches that cover a pixel."""
    height, width = image.shape[2:]
    side = max(1, min(height, width) // PATCHES * 2)
    stride = max(1, side // 2)
    corners = [
        (top, left)
        for top in range(0, max(1, height - side + stride), stride)
        for left in range(0, max(1, width - side + stride), stride)
    ]
    covered = np.repeat(image, len(corners), axis=0)
    for number, (top, left) in enumerate(corners):
        covered[number, :, top : top + side, left : left + side] = image.mean(axis=(0, 2, 3))[:, None, None]
    falls = unoccluded - probability(covered)
    total, count = np.zeros((height, width)), np.zeros((height, width))
    for (top, left), fall in zip(corners, falls, strict=True):
        total[top : top + side, left : left + side] += fall
        count[top : top + side, left : left + side] += 1
    return total / np.maximum(count, 1)


def _write_heat(image: Path, heat: Array, output: Path) -> None:
    """Draw the heat over an image: red where the class depends on it, blue where other classes do."""
    from PIL import Image

    with Image.open(image) as opened:
        drawing = opened.convert("RGB")
    drawing = drawing.resize((max(256, drawing.width), round(max(256, drawing.width) * drawing.height / drawing.width)))
    strength = np.abs(heat) / max(float(np.abs(heat).max()), 1e-12)
    colors = np.where(heat[..., None] >= 0, [220, 20, 20], [30, 60, 220]).astype(np.uint8)
    mask = Image.fromarray((160 * strength).astype(np.uint8)).resize(drawing.size, Image.Resampling.BICUBIC)
    drawing.paste(Image.fromarray(colors).resize(drawing.size), mask=mask)
    write_atomically(output, lambda path: drawing.save(path, format="PNG"))


def explain_columns(
    source: Source,
    *,
    split: str | None = None,
    weights: str | Path | None = None,
    device: str = "auto",
    seed: int = 1,
) -> list[ColumnImportance]:
    """Return the importance of each column of a table, the most important first (Breiman 2001).

    The values of a column are exchanged between the rows of a split (test, validation or train; by default the first of
    these that the training has); the more the loss rises, the more the net depends on the column. If columns carry the
    same information, each of them seems less important. Up to 10,000 rows are used.

    Raises `InputError` if the training does not read a table.

        >>> netspec.explain_columns("runs/adult")[0].column
    """
    spec, model = _training_and_model(source, weights, device)
    name = split or next(name for name in ("test", "validation", "train") if name in spec.data.splits())
    learned = learned_of(spec, model.compiler, model.preprocessing.learned)
    batches: list[dict[str, Array]] = []
    with open_evaluation_loader(spec, name, model.compiler, learned) as loader:
        ranges, scales = loader.column_ranges, loader.unit_scales
        if not ranges:
            raise InputError("the training reads no table", expected="a source with columns, such as `csv`")
        samples = 0
        for batch in loader.one_pass():
            batches.append(batch.inputs)
            samples += len(batch)
            if samples >= MAX_SAMPLES:
                break
    arrays = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    before, metrics_before = _figures(model, arrays, scales)
    importances = []
    for number, (column, (key, start, stop)) in enumerate(ranges.items()):
        rises, metric_rises = [], dict.fromkeys(metrics_before, 0.0)
        for repetition in range(REPETITIONS):
            order = np.random.default_rng([seed, number, repetition]).permutation(samples)
            loss, metrics = _figures(model, {**arrays, key: _exchanged(arrays[key], order, start, stop)}, scales)
            rises.append(loss - before)
            for name in metric_rises:
                metric_rises[name] += (metrics[name] - metrics_before[name]) / REPETITIONS
        importances.append(ColumnImportance(column, float(np.mean(rises)), float(np.std(rises)), metric_rises))
    return sorted(importances, key=lambda importance: -importance.increase)


def _exchanged(values: Array, order: Array, start: int, stop: int) -> Array:
    """Return values (N, …) with the elements from `start` to `stop` of the last axis taken from another row."""
    changed = values.copy()
    if values.ndim == 1:
        return values[order]
    changed[..., start:stop] = values[order][..., start:stop]
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
    return spec, load(spec.net, weights_file, device=device, precision=str(spec.train.precision))

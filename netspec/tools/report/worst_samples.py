"""The samples of a split with the highest losses, with pictures or rows, targets and predictions."""

from __future__ import annotations

import heapq
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.compile import LOSS, ProgramKind
from netspec.data.batches import Batch
from netspec.errors import InputError
from netspec.schema.specs.links import resolve_names
from netspec.schema.specs.train import TrainSpec
from netspec.tools.data_report import inspect_data, short_text
from netspec.tools.model_inputs import load, spec_and_weights
from netspec.tools.specs import load_spec, model_settings
from netspec.training.class_weights import with_class_weights
from netspec.training.evaluation import learned_of, open_evaluation_loader
from netspec.training.inference.decoding import Decoder, decoders_of
from netspec.training.inference.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SAMPLES = 2000
"""Number of samples whose losses are computed: the first ones of the split."""
MAX_VALUES = 8
"""Number of values of a target that are shown; of a longer one, none."""
LARGEST_PICTURE = 320
"""Longest side of a picture, in pixels."""


@dataclass(frozen=True)
class WorstSample:
    """A sample, with what the net should have predicted and what it predicted."""

    name: str
    """Origin of the sample: `photos/cat/3.jpg`, `train.csv, line 13`."""
    loss: float
    target: str
    prediction: str
    fields: dict[str, str]
    """Other fields of the sample, shortened; the cells of a table."""
    picture: bytes | None
    """Content of a PNG file; None if the sample has no image."""


@dataclass(frozen=True)
class WorstSamples:
    """The samples with the highest losses, in descending order."""

    samples: tuple[WorstSample, ...]
    compared: int
    """Number of samples whose losses were computed."""
    total: int
    """Number of samples of the split."""


def worst_samples(
    run: Path, split: str, *, count: int = 12, most: int = MAX_SAMPLES, device: str = "auto"
) -> WorstSamples:
    """Return the samples of a split that the weights of a run predict worst, among the first `most`.

    Computes the loss of one sample at a time, so it is that of the net for every kind of loss. Raises `InputError` if
    the data can't be read, or the net has no loss.
    """
    spec_file, weights = spec_and_weights(run, None)
    loaded = load_spec(spec_file)
    assert isinstance(loaded, TrainSpec)
    spec, _ = with_class_weights(loaded)
    if not spec.net.losses:
        raise InputError("the net has no loss, so no sample is worse than another")
    model = load(spec.net, weights, device=device, **model_settings(spec))
    learned = learned_of(spec, model.compiler, model.preprocessing.learned)
    with open_evaluation_loader(spec, split, model.compiler, learned) as loader:
        compared = 0
        worst: list[tuple[float, int, int, Mapping[str, NDArray[Any]]]] = []
        for loss, index, inputs in _losses(model, loader.one_pass(), most):
            compared += 1
            entry = (loss, -compared, index, inputs)  # of equal losses, the first sample
            heapq.heappush(worst, entry) if len(worst) < count else heapq.heappushpop(worst, entry)
        total, classes = loader.samples, loader.classes
    worst.sort(reverse=True)
    if not worst:
        return WorstSamples((), 0, total)
    targets = [_target(spec, inputs, classes) for *_, inputs in worst]
    predictions = _predictions(model, decoders_of(spec, model.preprocessing), [inputs for *_, inputs in worst])
    rows, pictures = inspect_data(spec_file, split=split, max_samples=1).rows_and_pictures([row[2] for row in worst])
    shown = [
        WorstSample(str(row.pop("sample")), loss, target, prediction, _fields(row), _png(picture))
        for (loss, *_), target, prediction, row, picture in zip(
            worst, targets, predictions, rows, pictures, strict=True
        )
    ]
    return WorstSamples(tuple(shown), compared, total)


def _losses(
    model: Model, batches: Iterator[Batch], most: int
) -> Iterator[tuple[float, int, Mapping[str, NDArray[Any]]]]:
    """Yield the loss, the index and the inputs of each sample."""
    program, left = model.compiler.program(ProgramKind.TEST, 1), most
    for batch in batches:
        for row, index in enumerate(batch.indices.tolist()[:left]):
            inputs = {name: array[row : row + 1] for name, array in batch.inputs.items()}
            loss = float(program(inputs)[LOSS])
            yield inf if isnan(loss) else loss, index, inputs
        left -= len(batch)
        if left <= 0:
            return


def _target(spec: TrainSpec, inputs: Mapping[str, NDArray[Any]], classes: Mapping[str, Sequence[str]]) -> str:
    """Return the targets of the losses that are a few values or probabilities of classes, as text."""
    texts = []
    for name in dict.fromkeys(loss.sources[1] for loss in resolve_names(spec.net).losses if len(loss.sources) > 1):
        value = inputs[name][0] if name in inputs else np.zeros((0, 0))
        names = classes.get(name, ())
        if value.ndim == 1 and len(value) == len(names):
            texts.append(", ".join(names[at] for at in np.flatnonzero(value >= 0.5).tolist()))
        elif value.ndim == 1 and value.dtype.kind == "f" and value.size <= MAX_VALUES:
            texts.append(", ".join(map(short_text, value.tolist())))
        elif value.size == 1:
            number = value.item()
            if isinstance(number, int) and 0 <= number < len(names):
                texts.append(names[number])
            else:
                texts.append(short_text(number))
    return ", ".join(texts)


def _predictions(
    model: Model, decoders: Mapping[str, Decoder], samples: Sequence[Mapping[str, NDArray[Any]]]
) -> list[str]:
    """Return the answers for samples, each as a line."""
    program = model.compiler.program(ProgramKind.PREDICT, 1)
    names = program.inputs.keys()
    lines = []
    for inputs in samples:
        outputs = program({name: array for name, array in inputs.items() if name in names})
        answers = {
            (column if len(decoders) == 1 else f"{output}.{column}"): values[0]
            for output, decoder in decoders.items()
            for column, values in decoder(np.asarray(outputs[output])).items()
        }
        simple = {name: value for name, value in answers.items() if isinstance(value, (str, int, float))}
        lines.append(", ".join(f"{name} {short_text(value)}" for name, value in simple.items()))
    return lines


def _fields(row: Mapping[str, Any]) -> dict[str, str]:
    cells = row.get("cells", row)
    return {str(name): short_text(value, 200) for name, value in cells.items()}


def _png(picture: NDArray[Any] | None) -> bytes | None:
    if picture is None:
        return None
    from PIL import Image

    image, content = Image.fromarray(np.ascontiguousarray(picture)), io.BytesIO()
    image.thumbnail((LARGEST_PICTURE, LARGEST_PICTURE))
    image.save(content, "PNG", optimize=True)
    return content.getvalue()

"""The scalar that an explanation attributes to the input: of a class, a mask, a box or a predicted number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from netspec.errors import InputError, did_you_mean, listing
from netspec.layers.vision.boxes import BoxSelection, box_overlaps
from netspec.schema.specs.train import TrainSpec
from netspec.training.inference.decoding import Decoder, decoders_of
from netspec.training.inference.model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True)
class ExplainedValue:
    """One value of a prediction, and the function that computes it for changed samples."""

    label: str | None
    """The class; None if the net predicts numbers."""
    quantity: Literal["probability", "score", "prediction"]
    """Kind of the value, as `netspec predict` names it."""
    value: float
    of_output: Callable[[Array], Array]
    """Returns the value of each sample, from an output of the net: (N, …) → (N)."""


def explained_value(
    spec: TrainSpec, model: Model, sample: Mapping[str, Array], label: str | None, *, keeps_positions: bool = True
) -> tuple[ExplainedValue, Callable[[Mapping[str, Array]], Array]]:
    """Return the value to explain for a sample (1, …), and a function that computes it for samples (N, …).

    - The probability of a class: of `label`, by default of the most probable class. If each pixel or step has a class,
      the mean probability over the pixels that have the class in the whole sample; the default is the class of most
      pixels.
    - The score of a box: of the one with the highest score, or with the highest of the class `label`. For changed
      samples, it is the largest product of score and overlap with this box (D-RISE, Petsiuk et al. 2021,
      arXiv:2006.03204).
    - A predicted number in the unit of the data, or the mean of several.

    `keeps_positions`: changed samples have the same pixels or steps as the whole one. Raises `InputError` if there is
    no such class, if no pixel has it, or if predictions are of another kind.
    """
    output, decoder = next(iter(decoders_of(spec, model.preprocessing).items()))

    def outputs(inputs: Mapping[str, Array]) -> Array:
        return np.asarray(model.predict(inputs)[output])

    scores = outputs(sample)
    answers = decoder(scores)
    if decoder.selection is not None:
        explained = explained_box(decoder, decoder.selection, scores[0], label)
    elif answers.keys() & {"class", "classes", "mask", "tags"} and (keeps_positions or scores.ndim <= 2):
        explained = _class(decoder, scores, label)
    elif any(name.startswith("prediction") for name in answers):
        explained = _number(decoder, scores, label)
    else:
        raise InputError(
            "predictions of this kind cannot be explained", got=listing(list(answers)),
            expected="a net that predicts classes, numbers, masks or boxes, and not a text",
        )  # fmt: skip
    return explained, lambda inputs: explained.of_output(outputs(inputs))


def _class(decoder: Decoder, output: Array, label: str | None) -> ExplainedValue:
    """Return the probability of a class, averaged over the elements that have it."""
    values = decoder.probabilities or (lambda scores: scores)
    by_class = values(output)
    classes = by_class.argmax(axis=1)
    names = _names(decoder.classes, by_class.shape[1])
    index = int(np.bincount(classes.ravel()).argmax()) if label is None else _index(label, names)
    chosen = classes[0] == index
    if classes.ndim == 1:
        chosen = np.ones_like(chosen)
    elif not chosen.any():
        present = listing([names[each] for each in np.unique(classes).tolist()], 10)
        raise InputError(f"no pixel or step has the class {names[index]!r}", expected=f"one of {present}")

    def compute(scores: Array) -> Array:
        probabilities: Array = values(scores)[:, index][:, chosen].reshape(len(scores), -1).mean(axis=1)
        return probabilities

    quantity: Literal["probability", "score"] = "score" if decoder.probabilities is None else "probability"
    return ExplainedValue(names[index], quantity, float(compute(output)[0]), compute)


def explained_box(decoder: Decoder, selection: BoxSelection, cells: Array, label: str | None) -> ExplainedValue:
    """Return the score of the best box, or of the best one of a class."""
    boxes = selection.select(cells)
    names = _names(decoder.classes, cells.shape[1] - 4)
    if label is not None:
        index = _index(label, names)
        boxes = boxes[boxes[:, 5] == index]
    if not len(boxes):
        kind = "box" if label is None else f"box of the class {label!r}"
        raise InputError(f"the net finds no {kind}", expected=f"a score of {selection.score_threshold:g} or more")
    best, column = boxes[0, :4], int(boxes[0, 5])

    def compute(predictions: Array) -> Array:
        overlaps = [box_overlaps(best[None], cells[:, :4])[0] for cells in predictions]
        return np.array([(row * cells[:, 4 + column]).max() for row, cells in zip(overlaps, predictions, strict=True)])

    return ExplainedValue(names[column], "score", float(boxes[0, 4]), compute)


def _number(decoder: Decoder, output: Array, label: str | None) -> ExplainedValue:
    """Return a predicted number, or the mean of several."""
    if label is not None:
        raise InputError("the net predicts numbers, not classes", got=f"the class {label!r}")

    def compute(scores: Array) -> Array:
        columns = [np.asarray(column, np.float64) for column in decoder(scores).values()]
        means: Array = np.concatenate([column.reshape(len(scores), -1) for column in columns], axis=1).mean(axis=1)
        return means

    return ExplainedValue(None, "prediction", float(compute(output)[0]), compute)


def _names(classes: Sequence[str], count: int) -> list[str]:
    return [classes[index] if index < len(classes) else str(index) for index in range(count)]


def _index(label: str, names: Sequence[str]) -> int:
    if label not in names:
        expected = f"one of {listing(list(names), 10)}"
        raise InputError(f"there is no class {label!r}", expected=expected, hint=did_you_mean(label, names))
    return names.index(label)

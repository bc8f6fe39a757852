"""Answers from a net's outputs: class names and probabilities, values in their own units, texts, masks.

The losses of a net say what its outputs mean (`LossSpec.prediction_kind`); the names of classes, vocabularies and the
normalization of targets are those that the training learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from netspec.data.base import Transform
from netspec.data.readers.boxes.annotated import CATEGORY_IDS
from netspec.data.tabular.columns.text import TextColumnSpec
from netspec.data.text.tokenizers.base import TOKENIZER, saved_tokenizer
from netspec.layers.losses_and_metrics import LossSpec, PredictionKind
from netspec.layers.vision.boxes import BoxSelection, box_selection
from netspec.schema.specs.data import TRANSFORMS
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink, Links, LossLink, resolve_names
from netspec.schema.specs.net import NetSpec
from netspec.schema.specs.train import TrainSpec
from netspec.training.preprocessing import PreprocessingRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.data.text.tokens import Tokenizer

    Array = NDArray[Any]

Column = list[Any]
"""A value for each sample: a number, a text, a list, or an array."""
BOX_EDGES = ("x1", "y1", "x2", "y2")
"""Names of the edges of a box in answers: left, top, right, bottom."""
MAX_COLUMNS = 1000
"""Number of elements of an output up to which each has its own column."""


@dataclass(frozen=True)
class Postprocessing:
    """Function that turns a raw output into the values of the answers."""

    function: Literal["softmax", "sigmoid", "restore"]
    """`restore` converts to the units of the data, by a factor and an offset for each element."""
    compute: Callable[[Array], Array]
    """The function, of an output (N, …)."""
    axis: int = -1
    """The axis of a softmax."""


@dataclass(frozen=True)
class Decoder:
    """Turns one output of a net into columns of answers."""

    decode: Callable[[Array, int], dict[str, Column]]
    """`decode(output, top)` returns the columns for an output (N, …); `top` is the number of classes to name."""
    classes: tuple[str, ...] = ()
    """Names of the classes, if the output is about classes with names."""
    postprocessing: Postprocessing | None = None
    """Operation by which `decode` computes its values; None if it uses the output unchanged."""
    not_in_graph: str = ""
    """Step of `decode` that has no form in an exported model."""
    selection: BoxSelection | None = None
    """Fields that select boxes from the output of a detector."""
    category_ids: tuple[int, ...] = ()
    """Ids of the classes in the annotations of the data (COCO), if they have any."""
    target: Mapping[str, str] = field(default_factory=dict)
    """The column of the table that the output predicts: its `target` name and its `unit`, as far as they are known."""
    probabilities: Callable[[Array], Array] | None = None
    """Returns the probabilities of the classes (N, C, …) of an output (N, …); None if it does not have them."""

    def __call__(self, output: Array, top: int = 1) -> dict[str, Column]:
        """Return the columns of answers for an output (N, …)."""
        return self.decode(output, top)


def decoders_of(spec: NetSpec | TrainSpec, preprocessing: PreprocessingRecord) -> dict[str, Decoder]:
    """Return a decoder for each output of a net, by the name of the output."""
    net = spec.net if isinstance(spec, TrainSpec) else spec
    links = resolve_names(net)
    labels = _Labels(spec, preprocessing)
    return {output: _decoder(output, links, labels) for output in links.outputs}


def _decoder(output: str, links: Links, labels: _Labels) -> Decoder:
    layers = {name: layer for layer in links.layers for name in layer.outputs}
    activation = None
    if output in layers and (selection := box_selection(layers[output].fields)) is not None:
        return _box_decoder(layers[output], selection, links, labels)
    for name in _upstream(output, layers):
        loss = next((loss for loss in links.losses if loss.sources[:1] == (name,)), None)
        if loss is not None and _kind(loss) is not None:
            decoder = _for_loss(loss, labels, activated=activation is not None)
            return replace(decoder, target=labels.column(loss.sources[1]) if len(loss.sources) > 1 else {})
        if name == output and name in layers:
            activation = _activation(layers[name].fields)
    classes, function = labels.meaning(output)
    match function or activation:
        case "softmax":
            return _class_decoder(classes, -1, _softmax if function else _as_probabilities)
        case "sigmoid":
            return _binary_decoder(classes, _sigmoid if function else _clipped)
    if classes:
        return _class_decoder(classes, -1, None)
    return Decoder(lambda array, _: _value_columns(array))


def _upstream(output: str, layers: Mapping[str, LayerLink]) -> Iterator[str]:
    """Yield an output, and what it reads if it is only an activation: losses may read the values before it."""
    yield output
    layer = layers.get(output)
    if (
        layer is not None
        and type(layer.fields).__name__ in ("Softmax", "Sigmoid", "Activation")
        and _activation(layer.fields)
    ):
        yield from layer.sources[:1]


def _activation(layer: LayerFields) -> str | None:
    """Return `softmax` or `sigmoid` if a layer ends with that function."""
    function = getattr(layer, "activation", None)
    name = str(getattr(function, "type", None) or type(layer).__name__).lower()
    return name if name in ("softmax", "sigmoid") else None


def _kind(loss: LossLink) -> PredictionKind | None:
    assert isinstance(loss.fields, LossSpec)
    return loss.fields.prediction_kind


def _for_loss(loss: LossLink, labels: _Labels, *, activated: bool) -> Decoder:
    """Return the decoder for the prediction of a loss; `activated`: a softmax or sigmoid follows that prediction."""
    fields = loss.fields
    target = loss.sources[1] if len(loss.sources) > 1 else ""
    classes = labels.classes(target)
    from_logits = getattr(fields, "from_logits", None)
    match _kind(loss):
        case "classes" if (tokenizer := labels.tokenizer(target)) is not None and from_logits:
            return _text_decoder(tokenizer)
        case "classes":
            scores = _as_probabilities if activated or from_logits is False else _softmax if from_logits else None
            return _class_decoder(classes, int(getattr(fields, "axis", -1)), scores, labels.text(target))
        case "binary":
            return _binary_decoder(classes, _clipped if activated or from_logits is False else _sigmoid)
        case "frames":
            return _frame_decoder(classes, int(getattr(fields, "mask_index", 0)), labels.text(target))
    restore = labels.restore(target)
    return Decoder(
        lambda array, _: _value_columns(restore(array)),
        postprocessing=Postprocessing("restore", restore) if labels.is_changed(target) else None,
    )


def _box_decoder(layer: LayerLink, selection: BoxSelection, links: Links, labels: _Labels) -> Decoder:
    """Boxes of a detector's layer, with the classes of the labels that the loss of its input reads."""
    targets = [loss.sources[2] for loss in links.losses if _kind(loss) == "boxes" and loss.sources[0] in layer.sources]
    classes = labels.classes(targets[0]) if targets else ()

    def decode(output: Array, top: int) -> dict[str, Column]:
        selected = [selection.select(sample).tolist() for sample in output]
        return {"boxes": [[_box_answer(row, classes) for row in rows] for rows in selected]}

    ids = labels.category_ids() if targets else ()
    return Decoder(decode, classes, selection=selection, category_ids=ids)


def _box_answer(row: Sequence[float], classes: Sequence[str]) -> dict[str, Any]:
    """Return a detection as plain data; its edges are fractions of the image."""
    *edges, score, label = row
    return {"class": _named(classes, int(label)), "score": round(score, 6), **dict(zip(BOX_EDGES, edges, strict=True))}


def boxes_in_image(boxes: Sequence[dict[str, Any]], window: Sequence[float]) -> list[dict[str, Any]]:
    """Return boxes in pixels of an image, of which the net sees a window: left, top, right and bottom edge."""
    left, top, right, bottom = window
    scale = {
        "x1": (left, right - left),
        "y1": (top, bottom - top),
        "x2": (left, right - left),
        "y2": (top, bottom - top),
    }
    return [
        {**box, **{edge: round(start + box[edge] * length, 2) for edge, (start, length) in scale.items()}}
        for box in boxes
    ]


class _Labels:
    """Facts known in training about the net's inputs that losses read as targets."""

    def __init__(self, spec: NetSpec | TrainSpec, preprocessing: PreprocessingRecord) -> None:
        self._split = spec.data.train if isinstance(spec, TrainSpec) else None
        self._record = preprocessing
        self._learned = preprocessing.learned

    def _field(self, target: str) -> str:
        """Return the field of the source that feeds an input."""
        return target if self._split is None else self._split.inputs.get(target, target)

    def classes(self, target: str) -> tuple[str, ...]:
        """Return the class names of a target, if it has them."""
        return tuple(self._learned.classes.get(self._field(target), ())) if self._learned is not None else ()

    def column(self, target: str) -> dict[str, str]:
        """Return the name and the unit of the column of a table that feeds an input, as far as they are known."""
        label, columns = getattr(self._split, "label", None), getattr(self._split, "columns", None)
        declared = columns if isinstance(columns, Mapping) else {}
        names = [
            name
            for name, column in declared.items()
            if column.field_of(name, is_label=name == str(label)) == self._field(target)
        ]
        if not names and label is not None and self._field(target) == "label":
            names = [str(label)]
        if len(names) != 1:
            return {}
        unit = getattr(declared.get(names[0]), "unit", None)
        return {"target": names[0]} | ({} if unit is None else {"unit": unit})

    def meaning(self, output: str) -> tuple[tuple[str, ...], str]:
        """Return the class names of an output that no loss reads, and the function that gives probabilities."""
        recorded = self._record.outputs.get(output, {})
        return tuple(recorded.get("classes", ())), str(recorded.get("function", ""))

    def category_ids(self) -> tuple[int, ...]:
        """Return the ids that the data's annotation file has for the classes of boxes, if it has any."""
        ids = None if self._learned is None else self._learned.source.get(CATEGORY_IDS)
        return tuple(ids) if isinstance(ids, list) else ()

    def text(self, target: str) -> Callable[[Sequence[int]], str] | None:
        """Return the function that decodes tokens of a target, if its values are tokens of a text."""
        saved = None if self._learned is None else self._learned.source.get(TOKENIZER)
        return saved_tokenizer(saved).decode if isinstance(saved, Mapping) and self._field(target) != "label" else None

    def tokenizer(self, target: str) -> Tokenizer | None:
        """Return the tokenizer of a target that is a text column for a decoder."""
        columns = getattr(self._split, "columns", None)
        if self._learned is None or not isinstance(columns, Mapping):
            return None
        for name, column in columns.items():
            if isinstance(column, TextColumnSpec) and column.decoder_input:
                is_label = name == str(getattr(self._split, "label", None))
                if column.field_of(name, is_label=is_label) == self._field(target):
                    return saved_tokenizer(self._learned.source[name][TOKENIZER])
        return None

    def restore(self, target: str) -> Callable[[Array], Array]:
        """Return the function that converts predictions of a target from what the net learned to the data's units."""
        transforms = [TRANSFORMS.parse(step) for step in self._steps(target)]
        column = self._learned_column(target)

        def restored(values: Array) -> Array:
            for transform in reversed(transforms):
                assert isinstance(transform, Transform)
                values = transform.restore(values)
            if column is not None:
                values = values.astype(np.float64) * np.asarray(column["scale"]) + np.asarray(column["offset"])
            return values

        return restored

    def is_changed(self, target: str) -> bool:
        """Return whether the net learned a target in other units than those of the data."""
        return bool(self._steps(target)) or self._learned_column(target) is not None

    def _steps(self, target: str) -> list[dict[str, Any]]:
        """Return the transforms of a target that can be undone."""
        steps = [step for step in self._record.transforms or () if step.get("input") == target]
        return [
            {name: value for name, value in step.items() if name not in ("input", "adapt")}
            for step in steps
            if step.get("type") in ("Rescaling", "Normalization")
        ]

    def _learned_column(self, target: str) -> Mapping[str, Any] | None:
        """Return offset and scale of a normalized label column of a table."""
        label = getattr(self._split, "label", None)
        if self._learned is None or label is None or self._field(target) != "label":
            return None
        column = self._learned.source.get(str(label))
        return column if isinstance(column, Mapping) and {"offset", "scale"} <= column.keys() else None


def _class_decoder(
    classes: tuple[str, ...], axis: int, scores: Callable[..., Array] | None,
    text: Callable[[Sequence[int]], str] | None = None,
) -> Decoder:  # fmt: skip
    """Classes along an axis: one per sample, a tag or token per step, or a mask of pixels.

    `scores` turns the output into probabilities along the axis; None: the output has scores of another kind.
    """

    def per_sample(output: Array, top: int) -> dict[str, Column]:
        values = output if scores is None else scores(output, 1)
        order = np.argsort(-values, axis=1, kind="stable")[:, : max(1, min(top, values.shape[1]))]
        kind = "score" if scores is None else "probability"
        columns: dict[str, Column] = {}
        for rank in range(order.shape[1]):
            suffix = f"_{rank + 1}" if rank else ""
            columns[f"class{suffix}"] = [_named(classes, index) for index in order[:, rank].tolist()]
            ranked = np.take_along_axis(values, order[:, rank : rank + 1], axis=1)[:, 0]
            columns[f"{kind}{suffix}"] = ranked.astype(np.float64).tolist()
        return columns

    def per_element(output: Array) -> Array:
        best: Array = output.argmax(axis=axis if axis >= 0 else output.ndim + axis)
        return best

    def decode(output: Array, top: int) -> dict[str, Column]:
        if output.ndim == 2:
            return per_sample(output, top)
        best = per_element(output)
        if best.ndim == 2 and text is not None:
            return {"text": [text(row) for row in best.tolist()]}
        if best.ndim == 2:
            return {"tags": [[_named(classes, index) for index in row] for row in best.tolist()]}
        count = output.shape[axis]
        return _mask_columns(best.astype(np.uint8 if count <= 256 else np.int32), classes, count)

    softmax = Postprocessing("softmax", lambda output: _softmax(output, axis), axis)
    return Decoder(
        decode,
        classes,
        softmax if scores is _softmax else None,
        probabilities=None if scores is None else lambda output: np.moveaxis(scores(output, axis), axis, 1),
    )


def _text_decoder(tokenizer: Tokenizer) -> Decoder:
    """Texts up to their end tokens, from the logits of their tokens (N, T, V), and their probabilities."""

    def decode(output: Array, top: int) -> dict[str, Column]:
        logits = tokenizer.mask_impossible(output)
        best = logits.argmax(axis=2)
        texts = [tokenizer.before_end(row) for row in best.tolist()]
        tokens = np.take_along_axis(_softmax(logits, 2), best[:, :, None], axis=2)[:, :, 0]
        probabilities = [float(row[: len(text) + 1].prod()) for row, text in zip(tokens, texts, strict=True)]
        return {"text": [tokenizer.decode(text) for text in texts], "probability": probabilities}

    return Decoder(decode, not_in_graph="decoding of tokens")


def _binary_decoder(classes: tuple[str, ...], probability: Callable[[Array], Array]) -> Decoder:
    """Yes or no: one answer per sample, the names of all that apply, or a mask of pixels."""

    def decode(output: Array, top: int) -> dict[str, Column]:
        yes = probability(output.astype(np.float64))
        if yes.ndim > 2:
            mask = (yes > 0.5).astype(np.uint8)
            return _mask_columns(mask[:, 0] if mask.shape[1] == 1 else mask, classes if len(classes) == 2 else (), 2)
        if yes.ndim == 2 and yes.shape[1] > 1:
            chosen = [[_named(classes, index) for index in np.flatnonzero(row > 0.5).tolist()] for row in yes]
            return {"classes": chosen, "probabilities": yes.tolist()}
        yes = yes.reshape(len(yes))
        names = classes if len(classes) == 2 else ("0", "1")
        return {
            "class": [names[value > 0.5] for value in yes.tolist()],
            "probability": np.where(yes > 0.5, yes, 1 - yes).tolist(),
        }

    def probabilities(output: Array) -> Array:
        yes = probability(output.astype(np.float64))
        if yes.ndim == 1 or (yes.ndim == 3 and yes.shape[1] > 1):
            yes = yes[:, None]
        return np.concatenate([1 - yes, yes], axis=1) if yes.shape[1] == 1 else yes

    sigmoid = Postprocessing("sigmoid", _sigmoid) if probability is _sigmoid else None
    return Decoder(decode, classes, sigmoid, probabilities=probabilities)


def _frame_decoder(classes: tuple[str, ...], blank: int, text: Callable[[Sequence[int]], str] | None) -> Decoder:
    """Best class of each frame, without repetitions and blanks: greedy CTC decoding."""

    def decode(output: Array, top: int) -> dict[str, Column]:
        best = output.argmax(axis=2)
        is_token = best != blank
        is_token[:, 1:] &= best[:, 1:] != best[:, :-1]
        labels = [row[keep].tolist() for row, keep in zip(best, is_token, strict=True)]
        if text is not None:
            return {"text": [text(row) for row in labels]}
        return {"labels": [[_named(classes, index) for index in row] for row in labels]}

    return Decoder(decode, classes, not_in_graph="greedy CTC decoding")


def _mask_columns(masks: Array, classes: Sequence[str], count: int) -> dict[str, Column]:
    """The masks (N, …), and the share of each of `count` classes in each mask, by the name of the class."""
    sizes = [np.bincount(mask.ravel(), minlength=count) / mask.size for mask in masks]
    names = [str(_named(classes, index)) for index in range(count)]
    return {"mask": list(masks), "shares": [dict(zip(names, shares.tolist(), strict=True)) for shares in sizes]}


def _value_columns(array: Array) -> dict[str, Column]:
    """One column for each element of a sample; a single column of nested lists if there are too many."""
    flat = array.reshape(len(array), -1)
    if flat.shape[1] == 1:
        return {"prediction": _shortest(flat[:, 0])}
    if flat.shape[1] > MAX_COLUMNS or array.ndim > 2:
        return {"prediction": list(array)}
    return {f"prediction_{index}": _shortest(flat[:, index]) for index in range(flat.shape[1])}


def _shortest(values: Array) -> list[float]:
    """Return numbers with the shortest digits that are the same float32: 377898.25 instead of 377898.25134590315."""
    return [float(str(value)) for value in values.astype(np.float32)]


def _named(classes: Sequence[str], index: int) -> str | int:
    return classes[index] if index < len(classes) else index


def _softmax(scores: Array, axis: int) -> Array:
    powers = np.exp(scores.astype(np.float64) - scores.max(axis=axis, keepdims=True))
    probabilities: Array = powers / powers.sum(axis=axis, keepdims=True)
    return probabilities


def _as_probabilities(output: Array, axis: int) -> Array:
    """Divide by the sum, as cross-entropies do with a prediction of probabilities."""
    probabilities: Array = output.astype(np.float64) / np.maximum(output.sum(axis=axis, keepdims=True), 1e-30)
    return probabilities


def _clipped(probability: Array) -> Array:
    clipped: Array = np.clip(probability, 0.0, 1.0)
    return clipped


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))

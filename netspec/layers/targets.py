"""What losses and metrics share: predictions brought beside their targets."""

from __future__ import annotations

from netspec.graph.ops.reduce import reshape_to
from netspec.graph.value import Value
from netspec.layers.base import Builder, need, sample_axis


def alike(net: Builder, prediction: Value, target: Value) -> tuple[Value, Value]:
    """Both as floats of one shape. A last axis of size 1 that only one of them has is added to the other, as in Keras.

    Nothing else is broadcast: (N, 1) against (N) would silently become (N, N).
    """
    shape = target.shape
    if (*shape, 1) == prediction.shape or shape == (*prediction.shape, 1):
        shape = prediction.shape
    hint = None
    if len(shape) < len(prediction.shape):
        hint = _flatten(prediction, len(shape) + 1) or "for class numbers use the Sparse… loss or metric"
    need(
        shape == prediction.shape,
        "prediction and target differ in shape",
        expected=f"a target of sizes {list(prediction.shape[1:])} per sample",
        got=f"{list(target.shape[1:])}",
        hint=hint,
    )
    return net.floating(prediction), reshape_to(net.floating(target), shape)


def _flatten(prediction: Value, rank: int) -> str | None:
    """What to do where a prediction has more axes than the `rank` that its target asks for."""
    if len(prediction.shape) <= max(rank, 2):
        return None
    layer, kind = prediction.node.scope.layer, prediction.node.scope.kind
    before = f"before `{layer}`" if kind == "Dense" else f"after `{layer}`"
    pool = " or GlobalAveragePooling2D" if len(prediction.shape) == 4 else ""
    return f"the prediction has axes that the target has not: add a Flatten{pool} layer {before}"


def _scores(prediction: Value, count: int) -> str:
    """How a prediction comes to have scores for so many classes."""
    layer, kind = prediction.node.scope.layer, prediction.node.scope.kind
    field = {"Dense": "units", "Conv2D": "filters"}.get(kind)
    return f"`{layer}` has {f'`{field}: {count}`' if field else f'{count} scores'}, one for each class"


def classes(net: Builder, prediction: Value, label: Value, axis: int = -1) -> tuple[Value, Value, int]:
    """Scores (N, …, C, …) as floats, class numbers (N, …), and the axis of the classes counted from the front.

    The label has the prediction's shape without the class axis; that axis may also be there with size 1.
    """
    swapped = label.dtype.is_float and not prediction.dtype.is_float
    need(not swapped, "prediction and target are swapped", expected="`from: [prediction, target]`")
    axis = sample_axis(prediction, axis, "of classes")
    need(
        not label.dtype.is_float,
        "class numbers must be whole numbers",
        expected="an input with `dtype: int32`",
        got=label.type,
        hint="for vectors of probabilities use the loss or metric without Sparse",
    )
    shape = prediction.shape[:axis] + prediction.shape[axis + 1 :]
    kept = (*prediction.shape[:axis], 1, *prediction.shape[axis + 1 :])
    count = prediction.shape[axis]
    need(
        label.shape in (shape, kept),
        "the class numbers do not fit the prediction",
        expected=f"sizes {list(shape[1:])} per sample, one class number for each vector of {count} scores",
        got=f"{list(label.shape[1:])}",
        hint=_flatten(prediction, len(label.shape) + 1) if len(label.shape) + 1 < len(prediction.shape) else None,
    )
    net.require_range(label, 0, count, _scores(prediction, count))
    return net.floating(prediction), reshape_to(label, shape), axis

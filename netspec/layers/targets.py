"""Helpers shared by losses and metrics: predictions aligned with their targets, weights and numbers of classes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from netspec.errors import counted
from netspec.graph.ops.elementwise import Equal, GreaterOrEqual, Where, call_elementwise, cast, scalar
from netspec.graph.ops.linear import Gather
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.shape import OneHot
from netspec.graph.ops.source import constant
from netspec.graph.types import DType, batch_shape
from netspec.graph.value import Value, current_scope, require_precomputable
from netspec.layers.base import Builder
from netspec.layers.checks import require, sample_axis
from netspec.schema.specs.spec import Spec, describe, problem

EPSILON = 1e-7
"""Distance that values are kept from 0, as in Keras."""


def align_target(
    builder: Builder, prediction: Value, target: Value, names: tuple[str, str] = ("prediction", "target")
) -> tuple[Value, Value]:
    """Return both as floats of one shape. A last axis of size 1 that only one has is added to the other, as in Keras.

    Nothing else is broadcast: (N, 1) against (N) would silently become (N, N).
    """
    shape = target.shape
    if (*shape, 1) == prediction.shape or shape == (*prediction.shape, 1):
        shape = prediction.shape
    hint = None
    if len(shape) < len(prediction.shape):
        hint = _flatten_hint(prediction, len(shape) + 1)
        if hint is None and "Categorical" in current_scope().kind:
            hint = "for class indices use the Sparse… loss or metric"
        elif hint is None and names == ("prediction", "target") and len(shape) == 1:
            hint = "for one value per sample, the last layer needs 1 output"
    require(
        shape == prediction.shape,
        f"{names[0]} and {names[1]} differ in shape",
        expected=f"a {names[1]} of shape {batch_shape(prediction.shape)}",
        got=batch_shape(target.shape),
        hint=hint,
    )
    return builder.floating(prediction), reshape_to(builder.floating(target), shape)


def one_hot_target(builder: Builder, prediction: Value, target: Value) -> Value:
    """Convert class indices (N) or (N, 1) to one-hot vectors (N, C) for a prediction (N, C); keep other targets."""
    batch, *rest = prediction.shape
    is_index = not target.dtype.is_float and target.shape in ((batch,), (batch, 1))
    if not is_index or len(rest) != 1 or rest[0] == 1:
        return target
    _require_classes(builder, prediction, target, rest[0])
    return OneHot(rest[0], builder.dtype, 1)(reshape_to(target, (batch,)))


def to_signs(target: Value) -> Value:
    """Targets as -1 and 1: 0 is replaced by -1."""
    return call_elementwise(Where(), call_elementwise(Equal(), target, 0.0), -1.0, target)


def _flatten_hint(prediction: Value, rank: int) -> str | None:
    """Hint for a prediction with more axes than the `rank` that its target implies."""
    if len(prediction.shape) <= max(rank, 2):
        return None
    layer, kind = prediction.node.scope.layer, prediction.node.scope.kind
    before = f"before `{layer}`" if kind == "Dense" else f"after `{layer}`"
    pool = " or GlobalAveragePooling2D" if len(prediction.shape) == 4 else ""
    return f"the prediction has axes that the target does not have: add a Flatten{pool} layer {before}"


def _require_classes(builder: Builder, prediction: Value, label: Value, count: int, also: Collection[int] = ()) -> None:
    """Require `label` to be below the number of classes of a prediction, and name the field that sets it."""
    layer, kind = prediction.node.scope.layer, prediction.node.scope.kind
    field = {"Dense": "units", "Conv2D": "filters"}.get(kind)
    reason = f"`{layer}` has {f'`{field}: {count}`' if field else f'{count} scores'}, one for each class"
    builder.require_range(label, 0, count, reason, also, (layer, field) if field else None)


def class_scores(
    builder: Builder, prediction: Value, label: Value, axis: int = -1, ignored: int | None = None
) -> tuple[Value, Value, int]:
    """Scores (N, …, C, …) as floats, class indices (N, …), and the axis of the classes counted from the front.

    The label has the prediction's shape without the class axis, or with size 1 there. The index `ignored` may occur
    even if it is not a class.
    """
    swapped = label.dtype.is_float and not prediction.dtype.is_float
    require(not swapped, "prediction and target are swapped", expected="`from: [prediction, target]`")
    axis = sample_axis(prediction, axis, "for classes")
    sparse = current_scope().kind.startswith("Sparse")
    require(
        not label.dtype.is_float,
        "class indices must be integers",
        expected="an input with `dtype: int32`",
        got=label.type,
        hint="for vectors of probabilities use the loss or metric without Sparse" if sparse else None,
    )
    shape = prediction.shape[:axis] + prediction.shape[axis + 1 :]
    shape_with_axis = (*prediction.shape[:axis], 1, *prediction.shape[axis + 1 :])
    count = prediction.shape[axis]
    require(
        label.shape in (shape, shape_with_axis),
        "the class indices do not match the prediction",
        expected=f"one class index for each vector of {count} scores: {batch_shape(shape)}",
        got=batch_shape(label.shape),
        hint=_flatten_hint(prediction, len(label.shape) + 1) if len(label.shape) + 1 < len(prediction.shape) else None,
    )
    _require_classes(builder, prediction, label, count, () if ignored is None else (ignored,))
    return builder.floating(prediction), reshape_to(label, shape), axis


def mask_ignored(label: Value, ignored: int | None) -> tuple[Value, Value | None]:
    """Class indices with `ignored` replaced by 0, and a mask that is False for these."""
    if ignored is None:
        return label, None
    require(
        ignored >= 0 or label.dtype != DType.UINT8,
        f"a uint8 is never {ignored}: no element would be ignored",
        got=label.type,
    )
    is_ignored = call_elementwise(Equal(), label, ignored)
    return call_elementwise(Where(), is_ignored, 0, label), call_elementwise(Equal(), cast(is_ignored, DType.INT32), 0)


BALANCED: Literal["balanced"] = "balanced"
"""The `class_weight` that counts the targets of the training data."""


def _class_weight(value: Any) -> Any:
    """Validate {class: weight}, whose keys may be strings, the weights of all classes in order, or `balanced`."""
    if value == BALANCED:
        return value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else None
    if items is None:
        raise problem(
            "not a mapping or list of weights", expected="`{class: weight}`, a list, or `balanced`", got=describe(value)
        )
    weights: dict[int, float] = {}
    for name, weight in items:
        index = int(name) if isinstance(name, str) and name.isdecimal() else name
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise problem("not a class index", field=str(name), expected="0, 1, 2 …", got=describe(name))
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or weight < 0:
            raise problem(
                "has an invalid value", field=str(name), expected="a number of 0 or more", got=describe(weight)
            )
        weights[index] = float(weight)
    return weights if isinstance(value, dict) else tuple(weights.values())


ClassWeight = Annotated[
    dict[int, float] | tuple[float, ...] | Literal["balanced"],
    BeforeValidator(_class_weight, json_schema_input_type=dict[str, float] | list[float] | Literal["balanced"]),
]
"""Weights of the samples of each class."""


class ClassWeighted(Spec):
    """Base with the field `class_weight` of losses whose targets are classes."""

    class_weight: ClassWeight | None = None
    """Weight of the samples of a class: `{0: 1.0, 3: 5.0}`, others 1, or a list with one weight per class. `balanced`
    counts the n targets of the training data when a run starts: a class with m of them, of k classes that occur, gets n
    / (k · m). The resolved spec of the run has the weights."""

    def class_weight_factors(self, builder: Builder, label: Value, count: int) -> tuple[Value, ...]:
        """The weight of each class index of `label`, for `count` classes; empty if all are 1."""
        weights = self.class_weights(builder, count)
        return () if weights is None else (Gather()(weights, label),)

    def class_weights(self, builder: Builder, count: int) -> Value | None:
        """The weights of all `count` classes; None if all are 1."""
        return None if self.class_weight is None else constant(self._table(builder, count))

    def binary_weight_factors(self, builder: Builder, target: Value) -> tuple[Value, ...]:
        """The weight of each element of `target`, which belongs to class 1 from ½ on; empty if all are 1."""
        if self.class_weight is None:
            return ()
        negative, positive = map(float, self._table(builder, 2))
        return (
            Where()(
                call_elementwise(GreaterOrEqual(), target, 0.5),
                scalar(positive, target.dtype),
                scalar(negative, target.dtype),
            ),
        )

    def _table(self, builder: Builder, count: int) -> Any:
        import numpy as np

        require_precomputable(count, "classes")
        table = np.ones(count, str(builder.dtype))
        # The weights of `balanced` are known when a run starts; until then, all weights are 1.
        weights = {} if self.class_weight is None or self.class_weight == BALANCED else self.class_weight
        if isinstance(weights, tuple):
            require(
                len(weights) == count,
                f"`class_weight` has {len(weights)} weights for {count} classes",
                expected="a number for each class, or `{class: weight}` for some",
                got=list(weights),
            )
            weights = dict(enumerate(weights))
        for index, weight in weights.items():
            require(
                index < count,
                f"`class_weight` has a class {index}, which does not exist",
                expected=f"classes from 0 to {count - 1}",
                got=f"class {index}",
            )
            table[index] = weight
        return table


def describe_class_count(prediction: str, scores: int, label: str, classes: int, *, is_exact: bool = True) -> str:
    """Return the sentence that the number of a prediction's scores is not that of its label's classes."""
    only, more = "only " if classes < scores else "", "" if is_exact else " or more"
    class_count = f"{classes:,} class{'es' * (classes != 1)}{more}"
    return f"`{prediction}` has {counted(scores, 'score')}, but `{label}` has {only}{class_count}"

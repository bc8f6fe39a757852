"""What losses and metrics share: predictions brought beside their targets, and weights of classes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from netspec.graph.ops.elementwise import Equal, GreaterOrEqual, Where, cast, elementwise, scalar
from netspec.graph.ops.linear import Gather
from netspec.graph.ops.reduce import reshape_to
from netspec.graph.ops.source import constant
from netspec.graph.types import DType
from netspec.graph.value import Value, current_scope
from netspec.layers.base import Builder
from netspec.layers.checks import need, sample_axis
from netspec.schema.spec import Spec, describe, problem

EPSILON = 1e-7
"""Where a number may come too near to 0 it is kept so far from it, as in Keras."""


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


def classes(
    net: Builder, prediction: Value, label: Value, axis: int = -1, ignored: int | None = None
) -> tuple[Value, Value, int]:
    """Scores (N, …, C, …) as floats, class numbers (N, …), and the axis of the classes counted from the front.

    The label has the prediction's shape without the class axis; that axis may also be there with size 1. The number
    `ignored` may be there too, even if it is no class.
    """
    swapped = label.dtype.is_float and not prediction.dtype.is_float
    need(not swapped, "prediction and target are swapped", expected="`from: [prediction, target]`")
    axis = sample_axis(prediction, axis, "of classes")
    sparse = current_scope().kind.startswith("Sparse")
    need(
        not label.dtype.is_float,
        "class numbers must be whole numbers",
        expected="an input with `dtype: int32`",
        got=label.type,
        hint="for vectors of probabilities use the loss or metric without Sparse" if sparse else None,
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
    net.require_range(label, 0, count, _scores(prediction, count), () if ignored is None else (ignored,))
    return net.floating(prediction), reshape_to(label, shape), axis


def unless(label: Value, ignored: int | None) -> tuple[Value, Value | None]:
    """Class numbers with 0 in place of `ignored`, and where they are another: those places count."""
    if ignored is None:
        return label, None
    need(ignored >= 0 or label.dtype != DType.UINT8, f"no uint8 is {ignored}: nothing would be ignored", got=label.type)
    there = elementwise(Equal(), label, ignored)
    return elementwise(Where(), there, 0, label), elementwise(Equal(), cast(there, DType.INT32), 0)


def _class_weight(value: Any) -> Any:
    """{class: weight}, whose keys may be texts, or the weights of all classes in turn."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else None
    if pairs is None:
        raise problem("not weights of classes", expected="`{class: weight}`, or a list", got=describe(value))
    found: dict[int, float] = {}
    for name, weight in pairs:
        number = int(name) if isinstance(name, str) and name.isdecimal() else name
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise problem("not the number of a class", field=str(name), expected="0, 1, 2 …", got=describe(name))
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or weight < 0:
            raise problem("not a weight", field=str(name), expected="a number of 0 or more", got=describe(weight))
        found[number] = float(weight)
    return found if isinstance(value, dict) else tuple(found.values())


ClassWeight = Annotated[
    dict[int, float] | tuple[float, ...],
    BeforeValidator(_class_weight, json_schema_input_type=dict[str, float] | list[float]),
]
"""How much the samples of each class count."""


class ClassWeighted(Spec):
    """Fields of losses whose targets are classes."""

    class_weight: ClassWeight | None = None
    """how much samples of a class count: `{0: 1.0, 3: 5.0}`, others 1, or a list with one number for each class"""

    def factors_of_classes(self, net: Builder, label: Value, count: int) -> tuple[Value, ...]:
        """The weight of each class number of `label` among `count` classes; nothing where all are 1."""
        return () if self.class_weight is None else (Gather()(constant(self._table(net, count)), label),)

    def factors_of_answers(self, net: Builder, target: Value) -> tuple[Value, ...]:
        """The weight of each number of `target`, from ½ on a yes, which is class 1."""
        if self.class_weight is None:
            return ()
        no, yes = map(float, self._table(net, 2))
        return (
            Where()(elementwise(GreaterOrEqual(), target, 0.5), scalar(yes, target.dtype), scalar(no, target.dtype)),
        )

    def _table(self, net: Builder, count: int) -> Any:
        import numpy as np

        table = np.ones(count, str(net.dtype))
        given = self.class_weight or {}
        if isinstance(given, tuple):
            need(
                len(given) == count,
                f"`class_weight` has {len(given)} weights for {count} classes",
                expected="a number for each class, or `{class: weight}` for some",
                got=list(given),
            )
            given = dict(enumerate(given))
        for number, weight in given.items():
            need(
                number < count,
                f"`class_weight` has a class {number}",
                expected=f"classes from 0 to {count - 1}",
                got=f"class {number}",
            )
            table[number] = weight
        return table

"""The vocabulary of the rules: what a layer reads, how its axes are told it, and what that does to its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from netspec.exchange.keras_import.axes import (
    Held,
    Order,
    axis_here,
    channels_first,
    data_format,
    identity,
    wish_of_call,
)
from netspec.exchange.keras_import.config import Call, Tensor, tensors_in
from netspec.exchange.keras_import.fields import Unsupported, fields_of, without_format
from netspec.exchange.keras_import.translate import Convert, Translator
from netspec.exchange.keras_names import Variable, layer_type
from netspec.layers.activations import OverAxis
from netspec.schema.kinds import ACTIVATIONS, LAYERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from netspec.graph.value import Value

Rule: TypeAlias = "Callable[[Translator, Call], None]"
_RULES: dict[str, Rule] = {}

AXES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "BatchNormalization", "LayerNormalization", "GroupNormalization", "UnitNormalization", "RMSNormalization",
            "Normalization", "Softmax", "Concatenate",
        ),
        "axis",
    ),
    "PReLU": "shared_axes",
}  # fmt: skip
"""Fields that hold axes of the input."""
_ONE_AXIS = ("BatchNormalization", "GroupNormalization", "Normalization", "Concatenate")
MERGES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")


def rule(*classes: str) -> Callable[[Rule], Rule]:
    """Decorator: the function writes down calls of these layers."""

    def register(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(classes, function))
        return function

    return register


def rule_of(type_: str) -> Rule | None:
    """The rule of a layer that has one of its own."""
    return _RULES.get(type_)


def operands(net: Translator, call: Call) -> list[Tensor]:
    """What the layer reads, in the order of `from`."""
    found = list(tensors_in(call.args))
    if "inputs" in call.kwargs:
        found += tensors_in(call.kwargs["inputs"])
    found += tensors_in(call.kwargs.get("initial_state"))
    return found


def arrived(net: Translator, call: Call, tensors: Sequence[Tensor]) -> list[Held]:
    """The inputs, as the layer wants their axes."""
    wish = wish_of_call(call)
    if wish.kind == "any":
        outer = call.layer.wrapped + (call.layer.class_name == "TimeDistributed")
        return [_steps_first(net, net.get(one), outer) for one in tensors]
    found = []
    for index, one in enumerate(tensors):
        held = net.get(one)
        rank = len(held.order)
        lead = wish.lead if index == 0 else wish.lead - (len(net.get(tensors[0]).order) - rank)
        order = channels_first(rank, lead) if wish.kind == "first" and lead > 0 else identity(rank)
        if held.rows is not None and wish.kind == "plain":
            found.append(held)  # the rule for Dense takes it
        else:
            found.append(net.turned(held, order))
    return found


def _steps_first(net: Translator, held: Held, outer: int) -> Held:
    """A tensor whose axes of steps, behind the batch, are where they are in Keras."""
    steps = tuple(range(1, min(outer + 1, len(held.order))))
    return held if held.order[1 : 1 + outer] == steps else net.plain(held)


def wrapped(net: Translator, call: Call, type_: str, fields: dict[str, Any], inputs: int) -> tuple[str, dict[str, Any]]:
    """The layer within as many TimeDistributed as its model is in."""
    if inputs > 1 and call.layer.wrapped and type_ not in MERGES:
        raise Unsupported("it has several inputs within a model that is TimeDistributed")
    for _ in range(call.layer.wrapped if inputs == 1 else 0):
        type_, fields = "TimeDistributed", {"layer": {"type": type_, **fields}}
    return type_, fields


def usual(
    net: Translator, call: Call, more: Mapping[str, Any] | None = None, fields: dict[str, Any] | None = None
) -> None:
    """A layer that goes by its fields: those of its configuration, and `more`."""
    layer = call.layer
    type_ = layer_type(layer.class_name)
    given = arrived(net, call, operands(net, call))
    if not given:
        raise Unsupported("it reads nothing")
    if fields is None:
        fields = fields_of(type_, without_format(layer.config), net.reading) | dict(more or {})
    order = given[0].order
    turn_fields(type_, fields, order, layer.wrapped)
    _turn_inner(fields, order)
    _softmax_of_channels_first(call, type_, fields)
    wish = wish_of_call(call)

    def orders(made: Sequence[Value]) -> list[Order]:
        return [_order_behind(type_, wish.kind, wish.lead, given[0], value, fields) for value in made]

    rows = given[0].rows
    outer, wrapping = wrapped(net, call, type_, fields, len(given))
    keeps = rows if wish.kind == "any" else None
    held = net.weighted(call, outer, wrapping, given, orders, lambda one: conversion(one, given[0], fields), keeps)
    net.put(call, *held)


def _order_behind(type_: str, kind: str, lead: int, given: Held, value: Value, fields: Mapping[str, Any]) -> Order:
    """How the axes of an output lie."""
    rank, before = len(value.shape), len(given.order)
    if kind == "any":
        return given.order if rank == before else identity(rank)
    if kind == "plain":
        return identity(rank)
    inner = fields.get("layer")
    while isinstance(inner, dict):
        type_, inner = str(inner.get("type")), inner.get("layer")
    if type_.startswith("ConvLSTM"):
        return channels_first(rank, lead - (before - rank))
    return channels_first(rank, lead) if rank == before else identity(rank)


def turn_fields(type_: str, fields: dict[str, Any], order: Order, lead: int = 0) -> None:
    """Axes in fields, as they are counted here; `lead` axes of the input are not the layer's."""
    own = (0, *(axis - lead for axis in order[1 + lead :]))
    name = AXES.get(type_)
    if name in fields and fields[name] is not None:
        axes = fields[name] if isinstance(fields[name], list) else [fields[name]]
        turned = sorted({axis_here(int(axis), own) for axis in axes})
        usual_ = LAYERS[type_].model_fields[name].default
        like = [turned, [axis - len(own) for axis in turned]]
        same = next((one for one in like if one == (list(usual_) if isinstance(usual_, tuple) else [usual_])), turned)
        if type_ in _ONE_AXIS and len(same) > 1:
            raise Unsupported(f"`{name}` are several axes, {axes}")
        fields[name] = same[0] if len(same) == 1 else same
    if fields.get("noise_shape"):
        sizes: list[Any] = [None] * len(order)
        for axis, size in zip(order, fields["noise_shape"], strict=False):
            sizes[axis] = size
        fields["noise_shape"] = sizes
    if type_ == "Activation" and own[-1] != len(own) - 1 and _along_an_axis(fields.get("activation")):
        fields["axis"] = own[-1]


def _turn_inner(fields: dict[str, Any], order: Order) -> None:
    inner, lead = fields.get("layer"), 1
    if isinstance(inner, dict) and len(order) > 2:
        turn_fields(str(inner["type"]), inner, order, lead)


def _along_an_axis(function: Any) -> bool:
    name = function.get("type") if isinstance(function, dict) else function
    return isinstance(name, str) and name in ACTIVATIONS and issubclass(ACTIVATIONS[name], OverAxis)


def _softmax_of_channels_first(call: Call, type_: str, fields: dict[str, Any]) -> None:
    """Keras's functions run over the last axis, also where the channels come first; here over the channels."""
    function = fields.get("activation")
    if data_format(call.layer.config) == "channels_first" and "Conv" in type_ and _along_an_axis(function):
        fields["activation"] = {"type": function["type"] if isinstance(function, dict) else function, "axis": -1}


def conversion(one: Variable, given: Held, fields: Mapping[str, Any]) -> tuple[str, Convert] | None:
    """What is done to a weight because the axes of the layer's input lie otherwise than in Keras."""
    import numpy as np

    order = given.order
    if one.kind == "sample" and order != identity(len(order)):
        back = tuple(axis - 1 for axis in np.argsort(order)[1:])
        return f"sample {back}", lambda array: array.transpose(back)
    if one.kind == "axes":
        axes = fields.get("axis", -1)
        here = sorted(axis % len(order) for axis in (axes if isinstance(axes, list) else [axes]) if axis is not None)
        there = [order.index(axis) for axis in here]
        turn = tuple(sorted(range(len(there)), key=lambda k: there[k]))
        back = tuple(np.argsort(turn))
        if list(back) != list(range(len(back))):
            return f"axes {back}", lambda array: array.transpose(back)
    if given.rows is not None:
        return "rows", lambda array: _put_rows(array, given.rows)
    return None


def _put_rows(array: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """The rows of a matrix, or the numbers of a vector, for features in the order that they have here."""
    import numpy as np

    if array.shape[:1] != rows.shape:
        return array
    found = np.empty_like(array)
    found[rows] = array
    return found

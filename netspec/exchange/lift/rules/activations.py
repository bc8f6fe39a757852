"""Activation functions: a field of the producing layer if it has one, else the layer Activation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, isclose, prod
from typing import Any

from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.layers import LiftedLayer
from netspec.exchange.lift.patterns.activations import ACTIVATION
from netspec.exchange.lift.patterns.finding import DOMAIN
from netspec.exchange.lift.registry import rule
from netspec.exchange.lift.rules.arithmetic import add_clip
from netspec.exchange.lift.rules.functions import formula
from netspec.exchange.lift.rules.merging import CONVOLUTIONS
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.graph.ops.softmax import Hardmax, LogSoftmax, Softmax, SoftmaxFamily
from netspec.schema.specs.kinds import ACTIVATIONS

OVER_CHANNELS = dict.fromkeys(CONVOLUTIONS, 1)
"""The axis of a layer's own softmax, if it is not the last."""


@rule(ACTIVATION, domain=DOMAIN, keeps_type=True)
def pattern(ctx: LiftContext, node: OperatorNode) -> None:
    """An activation function that was found as a pattern of several nodes."""
    function = node.attributes.get("function")
    if not isinstance(function, dict) and function not in ACTIVATIONS.names():
        raise UnsupportedFeature("netspec does not have this activation function")
    _activate(ctx, node, function)


_SINGLE: dict[str, tuple[str, dict[str, str], dict[str, float]]] = {
    "LeakyRelu": ("leaky_relu", {"alpha": "negative_slope"}, {}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": "alpha", "beta": "beta"}, {}),
    "HardSwish": ("hard_silu", {}, {}),
    "Celu": ("celu", {"alpha": "alpha"}, {}),
    "Selu": ("selu", {}, {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "Softsign": ("softsign", {}, {}),
    "Mish": ("mish", {}, {}),
    "Swish": ("swish", {"alpha": "beta"}, {}),
    "Elu": ("elu", {"alpha": "alpha"}, {}),
    "ThresholdedRelu": ("threshold", {"alpha": "threshold"}, {}),
}


@rule(*_SINGLE)
def single(ctx: LiftContext, node: OperatorNode) -> None:
    """Functions with an ONNX operator; each attribute is a field of the function, or must equal its constant."""
    function, fields, constants = _SINGLE[node.op_type]
    have = node.attributes
    for name, value in constants.items():
        if not isclose(have.get(name, value), value, rel_tol=1e-6, abs_tol=1e-9):
            raise UnsupportedFeature(f"`{function}` has a fixed {name} = {value:g}, got {have[name]:g}")
    cls = ACTIVATIONS[function]
    attributes = {
        field: have[name]
        for name, field in fields.items()
        if name in have and not isclose(have[name], cls.model_fields[field].default, rel_tol=1e-6)
    }
    _activate(ctx, node, {"type": function, **attributes} if attributes else function)


@rule("Gelu")
def gelu(ctx: LiftContext, node: OperatorNode) -> None:
    """Exact GELU, or its approximation with tanh."""
    _activate(ctx, node, {"type": "gelu", "approximate": True} if node.attributes["approximate"] == "tanh" else "gelu")


@rule("Clip")
def clip(ctx: LiftContext, node: OperatorNode) -> None:
    """The limits of an activation function → that function; others → Clip; integers and computed limits → a formula."""
    limit_names = [name for name in node.inputs[1:] if name]
    limits = _limits(ctx, node) if not any(map(ctx.tensors.is_computed, limit_names)) else {"min": inf, "max": -inf}
    if limits["min"] >= limits["max"] or not ctx.tensors.dtype(node.inputs[0]).is_float:
        _clipped(ctx, node)
        return
    function = {(0.0, inf): "relu", (0.0, 6.0): "relu6", (-1.0, 1.0): "hard_tanh"}.get((limits["min"], limits["max"]))
    if function is not None:
        _activate(ctx, node, function)
    else:
        add_clip(ctx, node, node.inputs[0], limits["min"], limits["max"])


def _clipped(ctx: LiftContext, node: OperatorNode) -> None:
    """Apply the upper limit last: it wins if it is below the lower one."""
    operands, text = [node.inputs[0]], "{0}"
    for index, key, function in ((1, "min", "max"), (2, "max", "min")):
        if node.operand(index):
            text = f"{function}({text}, {{{len(operands)}}})"
            operands.append(node.operand(index))
        elif key in node.attributes:
            text = f"{function}({text}, {node.attributes[key]!r})"
    if text == "{0}":
        ctx.reshaping.alias(node, node.inputs[0])
    else:
        formula(ctx, replace(node, inputs=tuple(operands)), text)


@rule("PRelu")
def prelu(ctx: LiftContext, node: OperatorNode) -> None:
    """Slopes that broadcast over a sample → PReLU."""
    x = node.inputs[0]
    slopes, rank = ctx.tensors.constant(node.inputs[1], "slope"), ctx.tensors.rank(x)
    shape = (1,) * (rank - slopes.ndim) + slopes.shape
    if not ctx.tensors.single_sample and (slopes.ndim > rank or shape[0] != 1):
        raise MixesSamples(
            f"its slopes {list(slopes.shape)} do not broadcast to each sample, {list(ctx.tensors.shape(x)[1:])}"
        )
    slopes = slopes.reshape(shape[1 - ctx.tensors.axis_offset :])
    shared = [axis for axis, size in enumerate(slopes.shape, 1) if size == 1]
    ctx.layers.add(node, "PReLU", [x], {"shared_axes": shared or None}, {"alpha": slopes})


def _limits(ctx: LiftContext, node: OperatorNode) -> dict[str, float]:
    """Clip's limits: operands since opset 11, attributes before."""
    limits = {"min": -inf, "max": inf} | {key: node.attributes[key] for key in ("min", "max") if key in node.attributes}
    for index, key in ((1, "min"), (2, "max")):
        if node.operand(index):
            limits[key] = float(ctx.tensors.constant(node.operand(index), key).reshape(()))
    return limits


SOFTMAXES: Mapping[str, type[SoftmaxFamily]] = {"Softmax": Softmax, "LogSoftmax": LogSoftmax, "Hardmax": Hardmax}


@rule(*SOFTMAXES)
def softmax(ctx: LiftContext, node: OperatorNode) -> None:
    """Functions along one axis; before opset 13 along all axes from `axis` on, which are merged first."""
    source = node.inputs[0]
    shape = ctx.tensors.shape(source)
    axis = node.as_op(SOFTMAXES[node.op_type]).axis % len(shape)
    if node.opset < 13 and any(size != 1 for size in shape[axis + 1 :]):
        flat, result = ctx.tensors.fresh_name(node.outputs[0]), ctx.tensors.fresh_name(node.outputs[0])
        ctx.reshaping.reshape(node, source, (*shape[:axis], prod(shape[axis:])), flat)
        ctx.tensors.axis(flat, axis)
        flat_node = replace(node, inputs=(flat,), outputs=(result,), attributes={"axis": -1}, opset=13)
        softmax(ctx, flat_node)
        ctx.reshaping.reshape(node, result, shape)
        return
    if node.op_type == "Hardmax":
        net_axis = ctx.tensors.axis(source, axis)
        ctx.layers.add(node, "Hardmax", [source], {} if axis == len(shape) - 1 else {"axis": net_axis})
        return
    ctx.tensors.axis(source, axis)
    net_axis, last = ctx.layers.view_with_single_axes(source, axis).axis(axis), ctx.tensors.rank_in_net(source) - 1

    def fits(layer: LiftedLayer) -> bool:
        return OVER_CHANNELS.get(layer.type, last) == net_axis

    _activate(ctx, node, _SOFTMAX[node.op_type], fits, {} if net_axis == last else {"axis": net_axis})


_SOFTMAX = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}


def _activate(
    ctx: LiftContext,
    node: OperatorNode,
    function: str | dict[str, Any],
    fits: Callable[[LiftedLayer], bool] = lambda layer: True,
    fields: Mapping[str, Any] | None = None,
) -> None:
    layer = ctx.layers.fusable_producer(node.inputs[0], node)
    takes = layer is not None and layer.type != "Activation" and layer.applies_activation
    if layer is not None and takes and "activation" not in layer.fields and fits(layer):
        layer.fields["activation"] = function
        ctx.layers.absorb(layer, node)
    else:
        ctx.layers.add_elementwise(node, "Activation", node.inputs[:1], {"activation": function, **(fields or {})})

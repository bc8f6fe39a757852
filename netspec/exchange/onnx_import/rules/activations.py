"""Activation functions: a field of the layer before where it has one, else the layer Activation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, isclose, prod
from typing import Any

from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.patterns.activations import ACTIVATION
from netspec.exchange.onnx_import.patterns.finding import DOMAIN
from netspec.exchange.onnx_import.rules.arithmetic import limited
from netspec.exchange.onnx_import.rules.functions import formula
from netspec.exchange.onnx_import.rules.merging import CONVOLUTIONS
from netspec.exchange.onnx_import.translate import Layer, Translator, rule
from netspec.schema.kinds import ACTIVATIONS

OVER_CHANNELS = dict.fromkeys(CONVOLUTIONS, 1)
"""The axis that a layer's own softmax runs over, where it is not the last."""


@rule(ACTIVATION, domain=DOMAIN)
def pattern(net: Translator, node: Node) -> None:
    """A function that was recognised by its nodes."""
    function = node.attributes.get("function")
    if not isinstance(function, dict) and function not in ACTIVATIONS.names():
        raise Unsupported("netspec has no such activation function")
    _activate(net, node, function)


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
def single(net: Translator, node: Node) -> None:
    """Operators of their own; an attribute is a field of the function, or must have the function's constant."""
    function, fields, constants = _SINGLE[node.op_type]
    have = node.attributes
    for name, value in constants.items():
        if not isclose(have.get(name, value), value, rel_tol=1e-6, abs_tol=1e-9):
            raise Unsupported(f"`{function}` has {name} = {value:g}, this is {have[name]:g}")
    cls = ACTIVATIONS[function]
    given = {
        field: have[name]
        for name, field in fields.items()
        if name in have and not isclose(have[name], cls.model_fields[field].default, rel_tol=1e-6)
    }
    _activate(net, node, {"type": function, **given} if given else function)


@rule("Gelu")
def gelu(net: Translator, node: Node) -> None:
    """With the normal distribution, or with tanh in its place."""
    _activate(net, node, {"type": "gelu", "approximate": True} if node.attributes["approximate"] == "tanh" else "gelu")


@rule("Clip")
def clip(net: Translator, node: Node) -> None:
    """Limits of an activation function → that; others → Clip; those of whole numbers, or computed ones, a formula."""
    given = [name for name in node.inputs[1:] if name]
    limits = _limits(net, node) if not any(map(net.is_computed, given)) else {"min": inf, "max": -inf}
    if limits["min"] >= limits["max"] or not net.dtype(node.inputs[0]).is_float:
        _clipped(net, node)
        return
    function = {(0.0, inf): "relu", (0.0, 6.0): "relu6", (-1.0, 1.0): "hard_tanh"}.get((limits["min"], limits["max"]))
    if function is not None:
        _activate(net, node, function)
    else:
        limited(net, node, node.inputs[0], limits["min"], limits["max"])


def _clipped(net: Translator, node: Node) -> None:
    """The upper limit last: it counts where it is below the lower one."""
    operands, text = [node.inputs[0]], "{0}"
    for index, key, function in ((1, "min", "max"), (2, "max", "min")):
        if node.operand(index):
            text = f"{function}({text}, {{{len(operands)}}})"
            operands.append(node.operand(index))
        elif key in node.attributes:
            text = f"{function}({text}, {node.attributes[key]!r})"
    if text == "{0}":
        net.same(node, node.inputs[0])
    else:
        formula(net, replace(node, inputs=tuple(operands)), text)


@rule("PRelu")
def prelu(net: Translator, node: Node) -> None:
    """Slopes that broadcast over a sample → PReLU."""
    x = node.inputs[0]
    slopes, rank = net.constant(node.inputs[1], "slope"), net.rank(x)
    shape = (1,) * (rank - slopes.ndim) + slopes.shape
    if not net.whole and (slopes.ndim > rank or shape[0] != 1):
        raise Mixed(f"slopes {list(slopes.shape)} of samples {list(net.shape(x)[1:])}")
    slopes = slopes.reshape(shape[1 - net.lead :])
    shared = [axis for axis, size in enumerate(slopes.shape, 1) if size == 1]
    net.add(node, "PReLU", [x], {"shared_axes": shared} if shared else {}, {"alpha": slopes})


def _limits(net: Translator, node: Node) -> dict[str, float]:
    """Clip's limits: operands since opset 11, attributes before."""
    limits = {"min": -inf, "max": inf} | {key: node.attributes[key] for key in ("min", "max") if key in node.attributes}
    for index, key in ((1, "min"), (2, "max")):
        if node.operand(index):
            limits[key] = float(net.constant(node.operand(index), key).reshape(()))
    return limits


@rule("Softmax", "LogSoftmax", "Hardmax")
def softmax(net: Translator, node: Node) -> None:
    """Functions along one axis; before opset 13 over all axes from `axis` on, which are made one."""
    source = node.inputs[0]
    shape = net.shape(source)
    axis = int(node.attributes["axis"]) % len(shape)
    if node.opset < 13 and any(size != 1 for size in shape[axis + 1 :]):
        flat, done = net.hide(node.outputs[0]), net.hide(node.outputs[0])
        net.reshape(node, source, (*shape[:axis], prod(shape[axis:])), flat)
        net.axis(flat, axis)
        made = replace(node, inputs=(flat,), outputs=(done,), attributes={"axis": -1}, opset=13)
        softmax(net, made)
        net.reshape(node, done, shape)
        return
    if node.op_type == "Hardmax":
        own = net.axis(source, axis)
        net.add(node, "Hardmax", [source], {} if axis == len(shape) - 1 else {"axis": own})
        return
    net.axis(source, axis)
    held, last = net.lying(source, axis).axis(axis), net.net_rank(source) - 1

    def fits(layer: Layer) -> bool:
        return OVER_CHANNELS.get(layer.type, last) == held

    _activate(net, node, _SOFTMAX[node.op_type], fits, {} if held == last else {"axis": held})


_SOFTMAX = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}


def _activate(
    net: Translator,
    node: Node,
    function: str | dict[str, Any],
    fits: Callable[[Layer], bool] = lambda layer: True,
    fields: Mapping[str, Any] | None = None,
) -> None:
    layer = net.host(node.inputs[0], node)
    takes = layer is not None and layer.type != "Activation" and layer.applies_activation
    if layer is not None and takes and "activation" not in layer.fields and fits(layer):
        layer.fields["activation"] = function
        net.absorb(layer, node)
    else:
        net.each(node, "Activation", node.inputs[:1], {"activation": function, **(fields or {})})

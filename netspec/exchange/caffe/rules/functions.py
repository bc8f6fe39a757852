"""Functions of single elements, and Dropout."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, nan
from typing import Any

from netspec.exchange.caffe.fillers import initializers
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.registry import Unsupported, rule
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.values import Blob, Made
from netspec.exchange.caffe.wiring import Node
from netspec.schema.kinds import LAYERS


def _base(given: Message, path: str) -> dict[str, Any]:
    """The fields of Exp and Log; a base of -1 is e."""
    base = given["base"]
    if base != -1 and base <= 0:
        raise Unsupported(f"its base is {base:g}", f"{path}.base")
    return {"base": None if base == -1 else base, "scale": given["scale"], "shift": given["shift"]}


_ACTIVATIONS = {"Sigmoid": "sigmoid", "TanH": "tanh"}
_FUNCTIONS: dict[str, tuple[str, str, Callable[[Message, str], dict[str, Any]]]] = {
    "ELU": ("ELU", "elu_param", lambda given, _: {"alpha": given["alpha"]}),
    "Swish": ("Swish", "swish_param", lambda given, _: {"beta": given["beta"]}),
    "Threshold": ("Threshold", "threshold_param", lambda given, _: {"threshold": given["threshold"]}),
    "Clip": ("Clip", "clip_param", lambda given, _: {"min": given["min"], "max": given["max"]}),
    "Exp": ("Exp", "exp_param", _base),
    "Log": ("Log", "log_param", _base),
}


@rule("ReLU")
def relu(net: Translator, node: Node) -> None:
    """The activation of the layer before it where it runs in place, else ReLU or LeakyReLU."""
    slope = node.layer["relu_param"]["negative_slope"]
    if slope:
        _activate(net, node, {"type": "leaky_relu", "negative_slope": slope}, "LeakyReLU", {"negative_slope": slope})
    else:
        _activate(net, node, "relu", "ReLU", {})


@rule(*_ACTIVATIONS)
def activation(net: Translator, node: Node) -> None:
    """Functions that are no layer of their own."""
    function = _ACTIVATIONS[node.type]
    _activate(net, node, function, "Activation", {"activation": function})


@rule("Softmax")
def softmax(net: Translator, node: Node) -> None:
    """Softmax, over the channels if nothing else is said."""
    path = "softmax_param"
    x = net.read(node)
    axis = net.axis(node, f"{path}.axis", len(x.shape), node.layer[path]["axis"])
    net.give(node, net.one(node, "Softmax", [x], {} if axis == len(x.shape) - 1 else {"axis": axis}))


@rule("BNLL")
def bnll(net: Translator, node: Node) -> None:
    """ln(1 + eˣ): softplus."""
    _activate(net, node, "softplus", "BNLL", {})


@rule("AbsVal")
def absolute(net: Translator, node: Node) -> None:
    """Abs."""
    net.give(node, net.one(node, "Abs", [net.read(node)]))


@rule(*_FUNCTIONS)
def function(net: Translator, node: Node) -> None:
    """Layers of the same fields."""
    type_, path, fields = _FUNCTIONS[node.type]
    net.give(node, net.one(node, type_, [net.read(node)], fields(node.layer[path], path)))


@rule("Power")
def power(net: Translator, node: Node) -> None:
    """Power; the same number for whatever it reads where its scale is 0, as Caffe has it."""
    given = node.layer["power_param"]
    if given["scale"]:
        fields = {name: given[name] for name in ("power", "scale", "shift")}
        net.give(node, net.one(node, "Power", [net.read(node)], fields))
        return
    try:
        number = float(given["shift"]) ** float(given["power"])
    except (ArithmeticError, ValueError):
        number = nan
    if isinstance(number, complex) or not isfinite(number):
        raise Unsupported("what it gives is no number", "power_param.power")
    net.give(node, net.one(node, "Expression", [net.read(node)], {"expr": f"{number!r} if x < 0 else {number!r}"}))


@rule("Dropout")
def dropout(net: Translator, node: Node) -> None:
    """Dropout, which scales in training too."""
    rate = node.layer["dropout_param"]["dropout_ratio"]
    net.give(node, net.one(node, "Dropout", [net.read(node)], {"rate": rate}))


@rule("PReLU")
def prelu(net: Translator, node: Node) -> None:
    """A slope for each channel, or one for all."""
    given, x = node.layer["prelu_param"], net.read(node)
    rank = len(x.shape)
    axes = list(range(1 if given["channel_shared"] else 2, rank))
    fields = {
        **({"shared_axes": axes if len(axes) > 1 else axes[0]} if axes else {}),
        # Caffe's filler, where none is given, is a quarter.
        "alpha_initializer": {"type": "Constant", "value": 0.25},
        **initializers(given, "prelu_param", alpha_initializer="filler"),
    }
    if not net.trained:
        del fields["alpha_initializer"]
    wanted = (1,) * (rank - 1) if given["channel_shared"] else (x.shape[1], *(1 for _ in x.shape[2:]))

    def spread(array: Any) -> Any:
        return array.reshape(wanted) if array.size == (1 if given["channel_shared"] else x.shape[1]) else array

    net.give(node, net.one(node, "PReLU", [x], fields, parameters={"alpha": Blob(node, 0, spread)}))


def _activate(net: Translator, node: Node, function: Any, type_: str, fields: dict[str, Any]) -> None:
    """The activation function of the layer before, where that takes one and is read by this layer alone, in place."""
    x = net.read(node)
    if node.layer["top"][0] == node.layer["bottom"][0] and takes_activation(net, node, x):
        assert x.layer is not None
        x.layer.fields["activation"] = function
        net.give(node, x)
    else:
        net.give(node, net.one(node, type_, [x], fields))


def takes_activation(net: Translator, node: Node, x: Made) -> bool:
    """Whether a value's layer has an activation function to be set, and nobody but this layer reads it."""
    if x.layer is None or "activation" not in LAYERS[x.layer.type].model_fields or x.layer.type == "Activation":
        return False
    return "activation" not in x.layer.fields and len(net.readers(node.bottoms[0])) == 1

"""Elementwise functions."""

from __future__ import annotations

from math import isfinite, nan
from typing import Any

from netspec.exchange.formats.caffe.fillers import initializers
from netspec.exchange.formats.caffe.importer import CaffeImporter, NetValue, ParameterBlob, rule
from netspec.exchange.formats.caffe.wiring import CaffeNode
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.kinds import LAYERS

_ACTIVATIONS = {"Sigmoid": "sigmoid", "TanH": "tanh"}


@rule("ReLU")
def relu(importer: CaffeImporter, node: CaffeNode) -> None:
    """The activation of the previous layer if it runs in place, else ReLU or LeakyReLU."""
    slope = node.layer["relu_param"]["negative_slope"]
    if slope:
        _activate(
            importer, node, {"type": "leaky_relu", "negative_slope": slope}, "LeakyReLU", {"negative_slope": slope}
        )
    else:
        _activate(importer, node, "relu", "ReLU", {})


@rule(*_ACTIVATIONS)
def activation(importer: CaffeImporter, node: CaffeNode) -> None:
    """Functions that are not layers in netspec → Activation, or a field of the previous layer."""
    function = _ACTIVATIONS[node.type]
    _activate(importer, node, function, "Activation", {"activation": function})


@rule("Softmax")
def softmax(importer: CaffeImporter, node: CaffeNode) -> None:
    """Softmax, over the channels by default."""
    path = "softmax_param"
    x = importer.read(node)
    axis = importer.axis(node, f"{path}.axis", len(x.shape), node.layer[path]["axis"])
    importer.set_top(node, importer.add(node, "Softmax", [x], {} if axis == len(x.shape) - 1 else {"axis": axis}))


@rule("BNLL")
def bnll(importer: CaffeImporter, node: CaffeNode) -> None:
    """ln(1 + eˣ): softplus."""
    _activate(importer, node, "softplus", "BNLL", {})


@rule("Power")
def power(importer: CaffeImporter, node: CaffeNode) -> None:
    """Power; a constant if its scale is 0, as in Caffe."""
    param = node.layer["power_param"]
    if param["scale"]:
        fields = {name: param[name] for name in ("power", "scale", "shift")}
        importer.set_top(node, importer.add(node, "Power", [importer.read(node)], fields))
        return
    try:
        number = float(param["shift"]) ** float(param["power"])
    except (ArithmeticError, ValueError):
        number = nan
    if isinstance(number, complex) or not isfinite(number):
        raise UnsupportedFeature("`shift` to the power of `power` must be a finite number", field="power_param.power")
    importer.set_top(
        node, importer.add(node, "Expression", [importer.read(node)], {"expr": f"{number!r} if x < 0 else {number!r}"})
    )


@rule("PReLU")
def prelu(importer: CaffeImporter, node: CaffeNode) -> None:
    """PReLU with a slope per channel, or one for all."""
    param, x = node.layer["prelu_param"], importer.read(node)
    rank = len(x.shape)
    axes = list(range(1 if param["channel_shared"] else 2, rank))
    fields = {
        **({"shared_axes": axes if len(axes) > 1 else axes[0]} if axes else {}),
        # Caffe's default is a quarter.
        "alpha_initializer": {"type": "Constant", "value": 0.25},
        **initializers(param, "prelu_param", alpha_initializer="filler"),
    }
    if not importer.trained:
        del fields["alpha_initializer"]
    shape = (1,) * (rank - 1) if param["channel_shared"] else (x.shape[1], *(1 for _ in x.shape[2:]))

    def spread(array: Any) -> Any:
        return array.reshape(shape) if array.size == (1 if param["channel_shared"] else x.shape[1]) else array

    alpha = ParameterBlob(node, 0, spread)
    importer.set_top(node, importer.add(node, "PReLU", [x], fields, parameters={"alpha": alpha}))


def _activate(importer: CaffeImporter, node: CaffeNode, function: Any, type_: str, fields: dict[str, Any]) -> None:
    """Set the activation of the previous layer, if it has the field and only this layer reads it, in place."""
    x = importer.read(node)
    if node.layer["top"][0] == node.layer["bottom"][0] and takes_activation(importer, node, x):
        assert x.layer is not None
        x.layer.fields["activation"] = function
        importer.set_top(node, x)
    else:
        importer.set_top(node, importer.add(node, type_, [x], fields))


def takes_activation(importer: CaffeImporter, node: CaffeNode, x: NetValue) -> bool:
    """Whether the activation of a value's layer can be set, and only this layer reads the value."""
    if x.layer is None or "activation" not in LAYERS[x.layer.type].model_fields or x.layer.type == "Activation":
        return False
    (read,) = node.bottoms
    return "activation" not in x.layer.fields and read not in importer.outputs and len(importer.readers(read)) == 1

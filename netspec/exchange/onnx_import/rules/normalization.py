"""BatchNormalization."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.translate import Translator, rule

DEFAULT_EPSILON, DEFAULT_MOMENTUM = 1e-3, 0.99


@rule("BatchNormalization")
def batch_normalization(net: Translator, node: Node) -> None:
    """The inference form; its channels are axis 1 of its operand, which may be another axis of a layer's output."""
    if node.attributes.get("training_mode") or node.attributes.get("spatial", 1) != 1:
        raise Unsupported(
            "the training form" if node.attributes.get("training_mode") else "statistics for each element"
        )
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    arrays = {name: net.constant(tensor, name) for name, tensor in zip(names, node.inputs[1:], strict=True)}
    fields: dict[str, Any] = {}
    if node.attributes["epsilon"] != DEFAULT_EPSILON:
        fields["epsilon"] = node.attributes["epsilon"]
    if node.attributes["momentum"] != DEFAULT_MOMENTUM:
        fields["momentum"] = node.attributes["momentum"]
    turned = net.turned.get(node.inputs[0])
    if turned is None:
        net.add(node, "BatchNormalization", node.inputs[:1], fields, arrays)
        return
    fields["axis"] = turned.permutation[1]
    layer = net.add(node, "BatchNormalization", [turned.source], fields, arrays)
    net.set_aside(layer, node, turned.permutation)

"""Dropout, of single numbers and of several together."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.patterns.finding import DOMAIN
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("Dropout", several=True)
def dropout(net: Translator, node: Node) -> None:
    """The same tensor in inference; the layer keeps the rate for further training. Nothing is masked then."""
    import numpy as np

    mask = (*node.outputs, "")[1]
    if mask and net.is_read(mask):
        if not net.whole:
            raise Mixed("its mask is that of each sample")
        net.constants[mask] = np.broadcast_to(np.ones((), bool), net.shape(node.inputs[0]))
    training = node.operand(2)
    if training and (net.is_computed(training) or bool(net.constants[training].reshape(()))):
        net.remarks.append(f"{node.describe()} drops numbers whenever the model runs; here it does only in training")
    net.each(node, "Dropout", node.inputs[:1], {"rate": _rate(net, node)})


@rule("Dropout", domain=DOMAIN)
def together(net: Translator, node: Node) -> None:
    """Of whole channels SpatialDropout2D (or 1D, 3D), else Dropout that is told which numbers go together."""
    shape, noise = net.shape(node.inputs[0]), node.attributes["noise_shape"]
    if len(noise) != len(shape):
        raise Unsupported(f"numbers of {list(shape)} dropped by {noise}")
    own = [size is None or size == have != 1 for size, have in zip(noise, shape, strict=True)]
    fields: dict[str, Any] = {"rate": _rate(net, node)}
    if own == [True, True, *[False] * (len(shape) - 2)] and len(shape) in (3, 4, 5) and not net.whole:
        net.add(node, f"SpatialDropout{len(shape) - 2}D", node.inputs[:1], fields)
    else:
        fields["noise_shape"] = [*[None] * net.lead, *(None if free else 1 for free in own)]
        net.add(node, "Dropout", node.inputs[:1], fields)


def _rate(net: Translator, node: Node) -> float:
    if node.operand(1):
        return float(str(net.constant(node.operand(1), "ratio").reshape(())))
    return float(node.attributes.get("ratio", 0.5))

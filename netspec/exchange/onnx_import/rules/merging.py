"""Several inputs into one: element by element (or a bias added), and Concatenate."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.rules.arithmetic import limit, subtracted_from, with_constant
from netspec.exchange.onnx_import.translate import Layer, Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONVOLUTIONS = [
    *(f"Conv{rank}D{kind}" for rank in (1, 2, 3) for kind in ("", "Transpose")),
    *(f"{kind}Conv{rank}D" for rank in (1, 2) for kind in ("Depthwise", "Separable")),
]
CHANNEL_AXIS = {**dict.fromkeys(CONVOLUTIONS, 1), "Dense": -1}
"""Along which axis of its output a layer's `bias` lies."""


@rule("Add", "Sum")
def add(net: Translator, node: Node) -> None:
    """Two computed tensors → Add; one and a constant → the bias of the layer before it."""
    constants = [name for name in node.inputs if name in net.constants]
    if not constants:
        _add_layer(net, node)
    elif len(node.inputs) == 2:
        (computed,) = (name for name in node.inputs if name not in net.constants)
        if not _bias(net, node, computed, net.constants[constants[0]]):
            with_constant(net, node, computed, net.constants[constants[0]], "Add")
    else:
        raise Unsupported("constants among more than two operands")


MERGED = {"Sub": "Subtract", "Mul": "Multiply", "Max": "Maximum", "Min": "Minimum", "Mean": "Average"}


@rule(*MERGED)
def merge(net: Translator, node: Node) -> None:
    """Computed tensors, element by element → Subtract, Multiply, Maximum, Minimum, Average; with constants, others."""
    constants = [name for name in node.inputs if name in net.constants]
    if node.op_type == "Mul" and len(constants) == 1 and _averages(net, node, constants[0]):
        return
    if constants:
        _one_constant(net, node, constants)
    elif len(node.inputs) == 1:
        net.same(node, node.inputs[0])
    else:
        net.add(node, MERGED[node.op_type], node.inputs, {})


def _one_constant(net: Translator, node: Node, constants: list[str]) -> None:
    if len(node.inputs) != 2 or node.op_type == "Mean":
        raise Unsupported("constants among its operands")
    computed = next(name for name in node.inputs if name not in net.constants)
    constant = net.constants[constants[0]]
    if node.op_type in ("Max", "Min"):
        limit(net, node, computed, constant)
    elif node.op_type == "Sub" and node.inputs[0] in net.constants:
        subtracted_from(net, node, constant, computed)
    else:
        with_constant(net, node, computed, constant, node.op_type)


def _averages(net: Translator, node: Node, constant: str) -> bool:
    """A sum times one over the number of its operands → Average."""
    (total,) = (name for name in node.inputs if name != constant)
    before, factor = net.host(total, node), net.constants[constant]
    if before is None or before.type != "Add" or factor.size != 1:
        return False
    if not isclose(float(factor.reshape(())), 1 / len(before.inputs), rel_tol=1e-6):
        return False
    net.layers.remove(before)
    net.add(node, "Average", before.inputs, {})
    return True


def _add_layer(net: Translator, node: Node) -> None:
    if len(node.inputs) == 1:
        net.same(node, node.inputs[0])
        return
    before = net.host(node.inputs[0], node)
    if before is not None and before.type == "Add" and node.inputs[0] not in node.inputs[1:]:
        inputs = (*before.inputs, *node.inputs[1:])  # a + b + c, from the left as Add adds
        net.layers.remove(before)
        net.add(node, "Add", inputs, {})
        return
    net.add(node, "Add", node.inputs, {})


def _bias(net: Translator, node: Node, computed: str, constant: NDArray[Any]) -> bool:
    """Have the constant as bias of the layer before; False where it cannot be that."""
    layer, shape = net.host(computed, node), net.shape(computed)
    bias = _along(layer, shape, constant) if layer is not None else None
    if layer is None or bias is None:
        return False
    if layer.fields.pop("use_bias", True):
        layer.arrays["bias"] = layer.arrays["bias"] + bias
    else:
        layer.arrays["bias"] = bias
    net.absorb(layer, node)
    return True


def _along(layer: Layer, shape: tuple[int, ...], constant: NDArray[Any]) -> NDArray[Any] | None:
    """The constant as a vector along the channels of the layer's output; None if it varies along another axis."""
    import numpy as np

    axis = CHANNEL_AXIS.get(layer.type)
    if axis is None or "activation" in layer.fields or constant.ndim > len(shape):
        return None
    axis %= len(shape)
    full = (1,) * (len(shape) - constant.ndim) + constant.shape
    if any(size != 1 for place, size in enumerate(full) if place != axis) or full[axis] not in (1, shape[axis]):
        return None
    return np.array(np.broadcast_to(constant.reshape(-1), (shape[axis],)), np.float32)


@rule("Concat")
def concat(net: Translator, node: Node) -> None:
    """Computed tensors one after another → Concatenate."""
    if len(node.inputs) == 1:
        net.same(node, node.inputs[0])
        return
    axis = node.attributes["axis"] % len(net.shape(node.inputs[0]))
    net.add(node, "Concatenate", node.inputs, {} if axis == 1 else {"axis": axis})

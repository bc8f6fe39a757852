"""Several inputs into one: element by element (or a bias added), and Concatenate."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Node
from netspec.exchange.onnx_import.rules.arithmetic import limit, subtracted_from, with_constant
from netspec.exchange.onnx_import.rules.beside import joined_beside
from netspec.exchange.onnx_import.rules.functions import formula
from netspec.exchange.onnx_import.tensors import Axes
from netspec.exchange.onnx_import.translate import Layer, Translator, rule
from netspec.graph.types import DType

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
    if _is_short(net, node):
        formula(net, node, " + ".join(f"{{{k}}}" for k in range(len(node.inputs))))
        return
    if len(constants) != 1 or len(node.inputs) != 2:
        _add_layer(net, node)
        return
    (computed,) = (name for name in node.inputs if name not in net.constants)
    if not _bias(net, node, computed, net.constants[constants[0]]):
        with_constant(net, node, computed, constants[0], "Add")


MERGED = {"Sub": "Subtract", "Mul": "Multiply", "Max": "Maximum", "Min": "Minimum", "Mean": "Average"}


@rule(*MERGED)
def merge(net: Translator, node: Node) -> None:
    """Computed tensors, element by element → Subtract, Multiply, Maximum, Minimum, Average; with constants, others."""
    constants = [name for name in node.inputs if name in net.constants]
    if node.op_type == "Mul" and len(constants) == 1 and _averages(net, node, constants[0]):
        return
    if len(node.inputs) == 1:
        net.same(node, node.inputs[0])
    elif _is_short(net, node):
        places = [f"{{{k}}}" for k in range(len(node.inputs))]
        sign = {"Sub": " - ", "Mul": " * "}.get(node.op_type)
        formula(net, node, sign.join(places) if sign else f"{node.op_type.lower()}({', '.join(places)})")
    elif len(constants) != 1 or len(node.inputs) != 2 or node.op_type == "Mean":
        net.each(node, MERGED[node.op_type], node.inputs, {})
    else:
        computed = next(name for name in node.inputs if name not in net.constants)
        if node.op_type in ("Max", "Min"):
            limit(net, node, computed, constants[0])
        elif node.op_type == "Sub" and node.inputs[0] in net.constants:
            subtracted_from(net, node, constants[0], computed)
        else:
            with_constant(net, node, computed, constants[0], node.op_type)


def _is_short(net: Translator, node: Node) -> bool:
    """Whether there are whole numbers of types that layers take as floats, which a formula keeps."""
    types = {net.dtype(name) for name in node.inputs if name not in net.constants}
    return not any(one.is_float for one in types) and not types <= {DType.INT32, DType.INT64}


def _averages(net: Translator, node: Node, constant: str) -> bool:
    """A sum times one over the number of its operands → Average."""
    (total,) = (name for name in node.inputs if name != constant)
    before, factor = net.host(total, node), net.constants[constant]
    if before is None or before.type != "Add" or factor.size != 1:
        return False
    if not isclose(float(factor.reshape(())), 1 / len(before.inputs), rel_tol=1e-6):
        return False
    laid = net.held(total).axes
    net.layers.remove(before)
    net.add(node, "Average", before.inputs, {}, laid=lambda rank: laid)
    return True


def _add_layer(net: Translator, node: Node) -> None:
    if len(node.inputs) == 1:
        net.same(node, node.inputs[0])
        return
    before = net.host(node.inputs[0], node)
    if before is not None and before.type == "Add" and node.inputs[0] not in node.inputs[1:]:
        rest = net.operands(node.inputs)[1:]  # a + b + c, from the left as Add adds
        if net.held(node.inputs[0]).axes == net.in_order(net.rank(node.inputs[0])):
            net.layers.remove(before)
            net.add(node, "Add", (*before.inputs, *rest), {})
            return
    net.each(node, "Add", node.inputs, {})


def _bias(net: Translator, node: Node, computed: str, constant: NDArray[Any]) -> bool:
    """Have the constant as bias of the layer before; False where it cannot be that."""
    layer = net.host(computed, node)
    bias = _along(layer, net.shape(computed), net.held(computed).axes, constant) if layer is not None else None
    if layer is None or bias is None:
        return False
    if layer.fields.pop("use_bias", True):
        layer.arrays["bias"] = layer.arrays["bias"] + bias
    else:
        layer.arrays["bias"] = bias
    net.absorb(layer, node)
    return True


def _along(layer: Layer, shape: tuple[int, ...], axes: Axes, constant: NDArray[Any]) -> NDArray[Any] | None:
    """The constant as a vector along the channels of the layer's output; None if it varies along another axis."""
    import numpy as np

    channels = CHANNEL_AXIS.get(layer.type)
    if channels is None or "activation" in layer.fields or constant.ndim > len(shape) or constant.dtype.kind != "f":
        return None
    held = (max(axis for lies in axes for axis in lies) if channels == -1 else channels,)
    if held not in axes:
        return None
    axis = axes.index(held)
    full = (1,) * (len(shape) - constant.ndim) + constant.shape
    if any(size != 1 for place, size in enumerate(full) if place != axis) or full[axis] not in (1, shape[axis]):
        return None
    return np.array(np.broadcast_to(constant.reshape(-1), (shape[axis],)), np.float32)


@rule("Concat")
def concat(net: Translator, node: Node) -> None:
    """Tensors one after another → Concatenate; those without elements are left out."""
    inputs = [name for name in node.inputs if net.is_computed(name) or net.constants[name].size]
    if len(inputs) == 1:
        net.same(node, inputs[0])
        return
    if joined_beside(net, node):
        return
    axis = net.axis(node.inputs[0], node.attributes["axis"], "it makes a batch of several")
    net.add(node, "Concatenate", inputs, {} if axis == 1 else {"axis": axis})

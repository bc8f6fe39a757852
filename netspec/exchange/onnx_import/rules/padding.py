"""Zeros around data: Pad."""

from __future__ import annotations

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.rules.windows import padding_field
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("Pad")
def pad(net: Translator, node: Node) -> None:
    """Zeros around spatial axes → ZeroPadding2D (or 1D, 3D)."""
    shape, operand = net.shape(node.inputs[0]), node.operand(1)
    given = net.constant(operand, "padding").tolist() if operand else node.attributes["pads"]
    axes = net.constant(node.operand(3), "axes").tolist() if node.operand(3) else list(range(len(shape)))
    value = float(net.constant(node.operand(2), "value").reshape(())) if node.operand(2) else 0.0
    mode = node.attributes.get("mode", "constant")
    if (mode if isinstance(mode, str) else mode.decode()) != "constant" or value or node.attributes.get("value"):
        raise Unsupported("padding with something else than zeros")
    sides = [(0, 0)] * len(shape)
    for axis, before, after in zip(axes, given[: len(axes)], given[len(axes) :], strict=True):
        sides[axis % len(shape)] = int(before), int(after)
    if any(map(any, sides[:2])) or len(shape) not in (3, 4, 5) or min(map(min, sides)) < 0:
        raise Unsupported(f"padding {sides} of {len(shape)} axes: not zeros around 1 to 3 spatial axes")
    fields = padding_field(sides[2:]) or {"padding": 0}
    net.sampled(node, f"ZeroPadding{len(shape) - 2}D", node.inputs[:1], {} if fields == {"padding": 1} else fields)

"""Zeros around data, and parts of it: Pad, Slice and Split."""

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
    net.add(node, f"ZeroPadding{len(shape) - 2}D", node.inputs[:1], {} if fields == {"padding": 1} else fields)


@rule("Split", several=True)
def split(net: Translator, node: Node) -> None:
    """The parts of an axis → Split."""
    shape, count = net.shape(node.inputs[0]), len(node.outputs)
    axis = node.attributes["axis"] % len(shape)
    if node.operand(1):
        sizes = net.constant(node.operand(1), "sizes").tolist()
    elif "split" in node.attributes:
        sizes = node.attributes["split"]
    else:  # equal ones, of which the last may be smaller
        size = -(-shape[axis] // count)
        sizes = [size] * (count - 1) + [shape[axis] - size * (count - 1)]
    fields = {"sections": count if len(set(sizes)) == 1 else sizes}
    net.add(node, "Split", node.inputs[:1], fields | ({} if axis == 1 else {"axis": axis}))


@rule("Slice")
def cut(net: Translator, node: Node) -> None:
    """Sides of spatial axes cut off → Cropping2D (or 1D, 3D)."""
    shape = net.shape(node.inputs[0])
    if node.operand(1):
        starts, ends = (net.constant(node.inputs[k], "range").tolist() for k in (1, 2))
    else:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
    axes = net.constant(node.operand(3), "axes").tolist() if node.operand(3) else node.attributes.get("axes")
    steps = net.constant(node.operand(4), "steps").tolist() if node.operand(4) else [1] * len(starts)
    if set(steps) != {1}:
        raise Unsupported(f"every so many elements: steps {steps}")
    sides = [(0, 0)] * len(shape)
    for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
        first, last, _ = slice(start, end).indices(shape[axis % len(shape)])
        sides[axis % len(shape)] = first, shape[axis % len(shape)] - max(first, last)
    if any(map(any, sides[:2])) or len(shape) not in (3, 4, 5):
        raise Unsupported(f"cuts {sides} of {len(shape)} axes: not the sides of 1 to 3 spatial axes")
    written = padding_field(sides[2:]).get("padding", 0)
    net.add(node, f"Cropping{len(shape) - 2}D", node.inputs[:1], {"cropping": written})

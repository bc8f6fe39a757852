"""Parts of tensors, and parts exchanged: Slice, Split, Gather, Tile, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from typing import Any

from netspec.exchange.onnx_import.model import Node, Unsupported
from netspec.exchange.onnx_import.rules.windows import padding_field
from netspec.exchange.onnx_import.translate import Translator, rule


@rule("Slice")
def cut(net: Translator, node: Node) -> None:
    """Sides of spatial axes cut off → Cropping2D (or 1D, 3D); other parts → Slice, one for each axis."""
    shape = net.shape(node.inputs[0])
    if node.operand(1):
        starts, ends = (net.constant(node.inputs[k], "range").tolist() for k in (1, 2))
    else:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
    axes = net.constant(node.operand(3), "axes").tolist() if node.operand(3) else node.attributes.get("axes")
    steps = net.constant(node.operand(4), "steps").tolist() if node.operand(4) else [1] * len(starts)
    parts: dict[int, tuple[int, int, int]] = {}
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps, strict=True):
        if step < 1:
            raise Unsupported(f"elements in the opposite order: steps {steps}")
        size = shape[axis % len(shape)]
        first, last, _ = slice(start, end, step).indices(size)
        if (first, last, step) != (0, size, 1):
            parts[axis % len(shape)] = first, last, step
    held = {axis: net.axis(node.inputs[0], axis, "a part of the batch") for axis in parts}
    if parts and len(shape) in (3, 4, 5) and min(parts) > 1 and {step for _, _, step in parts.values()} == {1}:
        sides = [(0, 0)] * len(shape)
        for axis, (first, last, _) in parts.items():
            sides[axis] = first, shape[axis] - max(first, last)
        written = padding_field(sides[2:]).get("padding", 0)
        net.sampled(node, f"Cropping{len(shape) - 2}D", node.inputs[:1], {"cropping": written})
        return
    layers = [
        ("Slice", ({} if held[axis] == 1 else {"axis": held[axis]}) | _range(shape[axis], *part))
        for axis, part in parts.items()
    ]
    net.chain(node, node.inputs[0], layers)


def _range(size: int, first: int, last: int, step: int) -> dict[str, Any]:
    fields = {"start": first, "stop": last, "step": step}
    return {name: value for name, value in fields.items() if value != {"start": 0, "stop": size, "step": 1}[name]}


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
    held = net.axis(node.inputs[0], axis, "parts of the batch")
    net.add(node, "Split", node.inputs[:1], fields | ({} if held == 1 else {"axis": held}))


@rule("Gather")
def gather(net: Translator, node: Node) -> None:
    """Rows of a constant table → Embedding; constant places → Gather; samples in another order → BatchReindex."""
    data, index = node.inputs
    if data in net.constants:
        _embedding(net, node)
        return
    axis = node.attributes["axis"] % len(net.shape(data))
    if index not in net.constants:
        if axis != 0 or net.rank(index) != 1 or net.whole:
            raise Unsupported("the same computed places in all samples")
        net.add(node, "BatchReindex", node.inputs, {})
        return
    places = net.constants[index]
    held = net.axis(data, axis, "samples by constant numbers")
    if places.ndim > 1:
        raise Unsupported(f"places of {places.ndim} axes")
    along = {} if held == 1 else {"axis": held}
    layers: list[tuple[str, dict[str, Any]]] = [("Gather", {"indices": places.reshape(-1).tolist(), **along})]
    if places.ndim == 0:  # the axis goes
        layers.append(("Squeeze", {"axis": held}))
    net.chain(node, data, layers)


def _embedding(net: Translator, node: Node) -> None:
    table = net.constants[node.inputs[0]]
    if table.ndim != 2 or node.attributes["axis"] % 2 != 0:
        raise Unsupported("a look-up of other things than rows of a matrix")
    fields = {"input_dim": table.shape[0], "output_dim": table.shape[1]}
    net.add(node, "Embedding", node.inputs[1:2], fields, {"embeddings": table})


@rule("Tile")
def tile(net: Translator, node: Node) -> None:
    """Repeated along its axes → Tile, one for each axis."""
    repeats = net.constant(node.inputs[1], "repeats").tolist()
    net.need_room([size * count for size, count in zip(net.shape(node.inputs[0]), repeats, strict=True)])
    axes = {axis: net.axis(node.inputs[0], axis, "it repeats the batch") for axis, n in enumerate(repeats) if n != 1}
    layers = [
        ("Tile", {"tiles": repeats[axis], **({} if held == 1 else {"axis": held})}) for axis, held in axes.items()
    ]
    net.chain(node, node.inputs[0], layers)


@rule("DepthToSpace", "SpaceToDepth")
def blocks(net: Translator, node: Node) -> None:
    """Blocks of places and channels → the layers of the same names, whose mode is CRD by default."""
    mode = node.attributes.get("mode", "DCR")  # which SpaceToDepth has not, and always is
    fields = {"block_size": node.attributes["blocksize"]}
    net.sampled(node, node.op_type, node.inputs, fields | ({} if mode == "CRD" else {"mode": mode}))

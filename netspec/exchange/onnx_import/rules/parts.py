"""Parts of tensors, and parts exchanged: Slice, Split, Gather, Tile, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.rules.beside import cut_beside, picked_beside, split_beside
from netspec.exchange.onnx_import.rules.windows import padding_field, short
from netspec.exchange.onnx_import.translate import Translator, rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_COPIES = 2**12
"""Of an axis of more than one element: each is an operand of what puts them together."""


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
    turned: list[int] = []
    for axis, start, end, step in zip(axes or range(len(starts)), starts, ends, steps, strict=True):
        size = shape[axis % len(shape)]
        places = range(*slice(start, end, step).indices(size))
        if step < 0:  # those counted up, in the opposite order
            places = range(places[-1], places[0] + 1, -step) if places else places
            turned.append(axis % len(shape))
        if places != range(size):
            parts[axis % len(shape)] = places.start, places.stop, places.step
    left = {axis: len(range(*part)) for axis, part in parts.items()}
    if 0 in left.values():
        net.constants[node.outputs[0]] = _nothing(net, node, left)
        return
    if cut_beside(net, node, parts, turned):
        return
    flips = [net.axis(node.inputs[0], axis, "samples in the opposite order") for axis in turned]
    held = {axis: net.axis(node.inputs[0], axis, "a part of the batch") for axis in parts}
    if (
        parts
        and not flips
        and len(shape) in (3, 4, 5)
        and min(parts) > 1
        and {step for _, _, step in parts.values()} == {1}
    ):
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
    if flips:
        layers.append(("Flip", {} if flips == [1] else {"axis": short(flips)}))
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
    for name, size in zip(node.outputs, sizes, strict=True):
        if size == 0 and name:
            net.constants[name] = _nothing(net, node, {axis: 0})
    parts = [(name, size) for name, size in zip(node.outputs, sizes, strict=True) if size]
    if not parts:
        return
    if len(parts) == 1:
        net.same(replace(node, outputs=(parts[0][0],)), node.inputs[0])
        return
    if split_beside(net, node, axis, parts):
        return
    held = net.axis(node.inputs[0], axis, "parts of the batch")
    sizes = [size for _, size in parts]
    fields = {"sections": len(sizes) if len(set(sizes)) == 1 else sizes}
    names = [name for name, _ in parts]
    net.add(node, "Split", node.inputs[:1], fields | ({} if held == 1 else {"axis": held}), outputs=names)


def _nothing(net: Translator, node: Node, sizes: Mapping[int, int]) -> NDArray[Any]:
    """A tensor without elements, of other sizes along these axes: a constant, of which Concat takes no notice."""
    import numpy as np

    shape = (sizes.get(axis, size) for axis, size in enumerate(net.shape(node.inputs[0])))
    return np.zeros(tuple(shape), str(net.dtype(node.inputs[0])))


@rule("Gather")
def gather(net: Translator, node: Node) -> None:
    """Rows of a constant table → Embedding; constant places → Gather; samples in another order → BatchReindex."""
    data, index = node.inputs
    axis = node.attributes["axis"] % len(net.shape(data))
    if data in net.constants and axis == 0 and net.constants[data].dtype.kind == "f" and net.rank(data) > 0:
        _embedding(net, node)
        return
    if picked_beside(net, node):
        return
    if index not in net.constants:
        if axis == 0 and net.rank(index) == 1 and not net.whole and net.is_computed(data):
            net.add(node, "BatchReindex", node.inputs, {})
            return
        if not net.whole:
            raise Mixed("the same computed places in all samples")
        net.add(node, "Gather", node.inputs, {} if axis == 0 else {"axis": axis + 1})
        return
    places = net.constants[index]
    held = net.axis(data, axis, "samples by constant numbers")
    along = {} if held == 1 else {"axis": held}
    fields: dict[str, Any] = {"indices": places.reshape(-1).tolist(), **along}
    if places.ndim == 0:  # the axis goes
        net.chain(node, data, [("Gather", fields), ("Squeeze", {"axis": held})])
    elif places.ndim == 1:
        net.chain(node, data, [("Gather", fields)])
    else:
        picked, shape = net.hide(node.outputs[0]), net.shape(data)
        net.add(node, "Gather", [data], fields, outputs=[picked])
        net.reshape(node, picked, (*shape[:axis], *places.shape, *shape[axis + 1 :]))


def _embedding(net: Translator, node: Node) -> None:
    """Rows of a table of floats, of whatever shape."""
    table, index = net.constants[node.inputs[0]], node.inputs[1]
    width = prod(table.shape[1:])
    fields = {"input_dim": table.shape[0], "output_dim": width}
    arrays = {"embeddings": table.reshape(-1, width)}
    if table.ndim == 2:
        net.add(node, "Embedding", [index], fields, arrays)
        return
    rows, places = net.hide(node.outputs[0]), net.shape(index)
    net.add(node, "Embedding", [index], fields, arrays, outputs=[rows])
    net.reshape(node, rows, (*places, *table.shape[1:]))


@rule("Tile")
def tile(net: Translator, node: Node) -> None:
    """Repeated along its axes → Tile, one for each axis."""
    repeats = net.constant(node.inputs[1], "repeats").tolist()
    shape = net.shape(node.inputs[0])
    net.need_room([size * count for size, count in zip(shape, repeats, strict=True)])
    if any(count > MAX_COPIES for size, count in zip(shape, repeats, strict=True) if size > 1):
        raise Unsupported(f"it repeats {list(shape)} {repeats} times")
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

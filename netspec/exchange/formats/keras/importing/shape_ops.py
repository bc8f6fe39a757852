"""Operations of Keras that reshape, slice, gather and join.

Most are operators of ONNX. Those that are layers of Keras by another name, and those that add or remove an axis of
size 1, become these layers directly: ONNX's operators would be lifted to layers that state all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from netspec.exchange.formats.keras.importing.axes import TensorView
from netspec.exchange.formats.keras.importing.config import CallOutput, tensors_in
from netspec.exchange.formats.keras.importing.fields import plain
from netspec.exchange.formats.keras.importing.operations import operation
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation, array_of
from netspec.exchange.formats.keras.importing.reductions import NOWHERE, of_sample
from netspec.exchange.formats.keras.importing.shape_layers import merged, permuted, reshaped
from netspec.exchange.lift.patterns.finding import DOMAIN
from netspec.exchange.lift.rules.functions import FORMULA
from netspec.exchange.unsupported import UnsupportedFeature


@operation("pad")
def pad(op: KerasOperation) -> str:
    """Pad each sample by a constant, or by mirrored data."""
    sides, rank = op.argument("pad_width", 1), len(op.tensor.order)
    mode, value = str(op.argument("mode", 2, "constant")).lower(), op.argument("constant_values", 3, 0.0)
    pairs = [side for side in sides if isinstance(side, list) and len(side) == 2] if isinstance(sides, list) else []
    if len(pairs) != rank or any(pairs[0]):
        raise UnsupportedFeature("it pads something else than the axes of each sample")
    if mode not in ("constant", "reflect") or isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnsupportedFeature(f"it pads in the mode {mode[:60]!r}")
    pads = [side[end] for end in (0, 1) for side in pairs]
    return op.node("Pad", op.tensor, pads=pads, mode=mode, value=float(value))


@operation("reshape")
def reshape(op: KerasOperation) -> None:
    """The batch must stay as it is."""
    held, shape = op.plain_tensor, op.argument("shape", 1)
    sizes = shape if isinstance(shape, list) else []
    if (
        not sizes
        or sizes[0] not in (-1, None)
        or sizes.count(-1) > 1
        or any(type(size) is not int for size in sizes[1:])
    ):
        raise UnsupportedFeature(f"it makes the shape {str(shape)[:60]}, whose first size is not the batch alone")
    reshaped(op.importer, op.call, held, sizes[1:])


@operation("transpose")
def transpose(op: KerasOperation) -> None:
    """All axes after the batch."""
    held, axes = op.tensor, op.argument("axes", 1)
    permuted(op.importer, op.call, held, axes if isinstance(axes, list) else list(range(len(held.order)))[::-1])


@operation("concatenate")
def concatenate(op: KerasOperation) -> None:
    """Concatenate tensors."""
    first = op.arguments["args"][0] if op.arguments["args"] else None
    merged(op.importer, op.call, "Concatenate", {"axis": int(op.argument("axis", 1, -1))}, list(tensors_in(first)))


@operation("add_n")
def added(op: KerasOperation) -> None:
    """The sum of tensors."""
    merged(op.importer, op.call, "Add", {}, list(tensors_in(op.arguments["args"])))


@operation("stack")
def stack(op: KerasOperation) -> Sequence[TensorView]:
    """Stack: Concatenate of tensors with a new axis."""
    tensors = list(tensors_in(op.arguments["args"][0] if op.arguments["args"] else None))
    axis = int(op.argument("axis", 1, 0))
    made = []
    for tensor in tensors:
        held = op.importer.plain(tensor)
        axis = axis % (len(held.order) + 1)
        made += op.layer("ExpandDims", {"axis": axis}, [held], name=f"{op.layer_name}/expand")
    return op.layer("Concatenate", {"axis": axis}, made)


@operation("hstack", "append")
def behind(op: KerasOperation) -> None:
    """Concatenate tensors."""
    axis = 1 if op.name == "hstack" else op.argument("axis", 2)
    if axis is None:
        raise UnsupportedFeature("it joins samples")
    merged(op.importer, op.call, "Concatenate", {"axis": int(axis)}, list(tensors_in(op.call.args)))


@operation("expand_dims", "squeeze")
def axes_of_one(op: KerasOperation) -> Sequence[TensorView]:
    """Add or remove an axis of size 1."""
    held, axis = op.plain_tensor, op.argument("axis", 1, None)
    name = "ExpandDims" if op.name == "expand_dims" else "Squeeze"
    fields = {} if axis is None else {"axis": axis[0] if isinstance(axis, list) and name == "ExpandDims" else axis}
    return op.layer(name, fields, [held])


@operation("moveaxis", "swapaxes")
def moved(op: KerasOperation) -> None:
    """Move or swap axes."""
    held = op.tensor
    rank = len(held.order)
    names = ("source", "destination") if op.name == "moveaxis" else ("axis1", "axis2")
    both = [op.argument(name, index) for index, name in enumerate(names, 1)]
    sources, targets = ([axis % rank for axis in (each if isinstance(each, list) else [each])] for each in both)
    if op.name == "swapaxes":
        sources, targets = [*sources, *targets], [*targets, *sources]
    rest = [axis for axis in range(rank) if axis not in sources]
    for target, source in sorted(set(zip(targets, sources, strict=True))):
        rest.insert(target, source)
    permuted(op.importer, op.call, held, rest)


@operation("split", "array_split", "hsplit")
def split(op: KerasOperation) -> Sequence[str]:
    """Split into parts of equal size, of which the first are larger if that is impossible, or at given indices."""
    sections, axis = op.argument("sections", 1), 1 if op.name == "hsplit" else op.argument("axis", 2, 0)
    size = op.tensor.shape[of_sample(axis, op.tensor)]
    if isinstance(sections, int):
        sections = [size // sections + (index < size % sections) for index in range(sections)]
    elif "function" not in op.call.layer.config:  # NumPy's: the indices of the ends
        sections = [end - start for start, end in pairwise([0, *sections, size])]
    return op.node_with_results(len(sections), "Split", op.tensor, axis=axis, split=sections)


@operation("unstack")
def unstack(op: KerasOperation) -> Sequence[TensorView]:
    """Unstack an axis."""
    held, own = op.plain_tensor, op.layer_name
    axis = of_sample(op.argument("axis", 2, 0), held)
    parts = op.layer("Split", {"sections": held.value.shape[axis], "axis": axis}, [held], name=f"{own}/split")
    names = [f"{own}/{index}" for index in range(len(parts))]
    return [op.layer("Squeeze", {"axis": axis}, [part], name=name)[0] for part, name in zip(parts, names, strict=True)]


@operation("get_item")
def get_item(op: KerasOperation) -> str:
    """Slices, single indices, and new axes."""
    args, shape = op.arguments["args"], op.tensor.shape
    key: Any = op.arguments.get("slice_spec", op.arguments.get("key", args[1] if len(args) > 1 else None))
    listed = key if isinstance(key, list) else [key]
    parts = _spread([part for part in listed if part is not None], len(shape))
    starts, ends, axes, steps, indices = [], [], [], [], {}
    for axis, (part, size) in enumerate(zip(parts, shape, strict=True)):
        if type(part) is int and axis:
            indices[axis] = part
        elif not isinstance(part, slice) or any(type(end) is not int for end in _ends(part)):
            raise UnsupportedFeature("it takes other things of a tensor than parts along its axes")
        elif range(size)[part] != range(size):
            if axis == 0:
                raise UnsupportedFeature("it takes samples out of the batch")
            kept = range(size)[part]
            starts.append(kept.start)
            ends.append(kept.stop if kept.stop >= 0 else -size - 1)
            axes.append(axis)
            steps.append(kept.step)
    new = _new_axes(listed, len(parts))
    held = op.plain_tensor if indices or new else op.tensor
    made = op.node("Slice", held, starts, ends, axes, steps) if axes else op.operand(held)
    for axis, index in reversed(indices.items()):
        made = op.node("Gather", made, index, axis=axis)
    return op.node("Unsqueeze", made, new) if new else made


def _ends(part: slice) -> list[Any]:
    return [end for end in (part.start, part.stop, part.step) if end is not None]


def _new_axes(key: Sequence[Any], rank: int) -> list[int]:
    """The positions of new axes in the result."""
    given = sum(each is not None and each is not Ellipsis for each in key)
    found, place = [], 0
    for each in key:
        if each is None:
            found.append(place)
        place += rank - given if each is Ellipsis else int(type(each) is not int)
    if 0 in found:
        raise UnsupportedFeature("it puts an axis before the batch")
    return found


def _spread(key: Sequence[Any], rank: int) -> list[Any]:
    """One entry for each axis."""
    before = next((index for index, one in enumerate(key) if one is Ellipsis), len(key))
    behind = key[before + 1 :]
    more = rank - before - len(behind)
    if more < 0:
        raise UnsupportedFeature("it takes parts along more axes than there are")
    return [*key[:before], *[slice(None)] * more, *behind]


@operation("slice")
def cut(op: KerasOperation) -> str:
    """Slice by start indices and a shape."""
    shape, starts, rank = op.argument("shape", 2), op.argument("start_indices", 1), len(op.tensor.order)
    shape = op.argument("size", 2) if shape is None else shape
    if not isinstance(starts, list) or len(starts) != rank or starts[0] != 0:
        raise UnsupportedFeature("it selects samples of the batch, or computed indices")
    ends = [_END if size == -1 else start + size for start, size in zip(starts, shape, strict=True)]
    return op.node("Slice", op.tensor, starts[1:], ends[1:], list(range(1, rank)))


_END = 2**31
"""An end of slices beyond that of every axis."""


@operation("diff")
def difference(op: KerasOperation) -> str:
    """Differences of adjacent elements."""
    made, axis = op.operand(op.tensor), of_sample(op.argument("axis", 2, -1), op.tensor)
    for _ in range(op.argument("n", 1, 1)):
        made = op.node("Sub", *(op.node("Slice", made, [start], [end], [axis]) for start, end in ((1, _END), (0, -1))))
    return made


_MIRRORED = {"fliplr": 1, "flip_left_right": -2, "flip_up_down": -3}
"""Operations that reverse one axis of images (channels-last)."""


@operation("flip", *_MIRRORED)
def flip(op: KerasOperation) -> str:
    """Reverse along axes."""
    given = _MIRRORED.get(op.name, op.argument("axis", 1))
    axes = [of_sample(axis, op.tensor) for axis in (given if isinstance(given, list) else [given])]
    count = len(axes)
    return op.node("Slice", op.tensor, [-1] * count, [-_END] * count, axes, [-1] * count)


@operation("tile")
def tile(op: KerasOperation) -> str:
    """Tile."""
    times, rank = op.argument("repeats", 1), len(op.tensor.order)
    times = [times] if isinstance(times, int) else times
    if not isinstance(times, list) or len(times) > rank or (len(times) == rank and times[0] != 1):
        raise UnsupportedFeature("it repeats samples")
    return op.node("Tile", op.tensor, [1] * (rank - len(times)) + times)


@operation("repeat", "roll")
def by_rule(op: KerasOperation) -> str:
    """Repeat or roll along an axis, by gathering."""
    import numpy as np

    repeats, made = op.name == "repeat", op.operand(op.tensor)
    axes, what = op.argument("axis", 2), op.argument("repeats" if repeats else "shift", 1)
    for axis, count in zip(axes, what, strict=True) if isinstance(axes, list) else [(axes, what)]:
        indices = np.arange(op.tensor.shape[of_sample(axis, op.tensor)])
        made = op.node("Gather", made, np.repeat(indices, count) if repeats else np.roll(indices, count), axis=axis)
    return made


@operation("take")
def take(op: KerasOperation) -> str:
    """Take at constant indices of an axis, or rows of a constant table at computed ones."""
    source, index = op.arguments["args"][0], op.arguments.get("indices", op.arguments["args"][-1])
    if op.argument("batch_dims", NOWHERE, 0):
        raise UnsupportedFeature("its indices differ between samples")
    axis = op.argument("axis", 2)
    if not isinstance(source, CallOutput):
        table = array_of(source)
        if axis not in (0, -table.ndim):
            raise UnsupportedFeature("it looks up a part of each row of a table")
        text = f"{{0}} + {len(table)} if {{0}} < 0 else {{0}}"
        return op.node("Gather", table, op.node(FORMULA, op.importer.plain(index), domain=DOMAIN, text=text))
    if isinstance(index, CallOutput):
        if axis != 0 or len(op.importer.get(index).order) != 1:
            raise UnsupportedFeature("its indices are a second tensor for all samples")
        return op.node("Gather", op.tensor, index)
    return op.node("Gather", op.tensor, plain(index), axis=of_sample(axis, op.tensor))


@operation("take_along_axis")
def take_along_axis(op: KerasOperation) -> str:
    """GatherElements."""
    import numpy as np

    args = op.arguments["args"]
    operands = [args[0], op.arguments.get("indices", args[-1])]
    source, index = (
        op.operand(op.importer.plain(each)) if isinstance(each, CallOutput) else op.operand(array_of(each))
        for each in operands
    )
    index = op.node("CastLike", index, np.int32(0))
    shape, wanted = op.shape(source), op.shape(index)
    axis = op.argument("axis", 2)
    axis = axis % len(shape) if type(axis) is int and -len(shape) <= axis < len(shape) else 0
    sizes = list(zip(shape, wanted, strict=False))
    if not axis or len(shape) != len(wanted) or any(a < b for at, (a, b) in enumerate(sizes) if at != axis):
        raise UnsupportedFeature("its indices are those of larger data, or go through several samples")
    repeats = [size if at not in (0, axis) and count == 1 else 1 for at, (size, count) in enumerate(sizes)]
    return op.node("GatherElements", source, op.node("Tile", index, repeats) if max(repeats) > 1 else index, axis=axis)


@operation("diagonal", "trace")
def diagonal(op: KerasOperation) -> str:
    """The diagonal of each matrix, or its sum."""
    rank, offset = len(op.tensor.order), op.argument("offset", 1, 0)
    axes = [op.argument(key, NOWHERE, default) % rank for key, default in (("axis1", 0), ("axis2", 1))]
    if axes != [rank - 2, rank - 1] or rank < 3:
        raise UnsupportedFeature("its matrices are not along the last two axes")
    *lead, rows, columns = op.tensor.shape
    indices = [row * columns + row + offset for row in range(rows) if 0 <= row + offset < columns]
    made = op.node("Gather", op.node("Reshape", op.plain_tensor, [*lead, rows * columns]), indices, axis=rank - 2)
    return op.node("ReduceSum", made, axes=[rank - 2], keepdims=0) if op.name == "trace" else made

"""Import operations of Keras that reshape, slice, gather and join.

Most are operators of ONNX. Those that are layers of Keras by another name, and those that add or remove an axis of
size 1, become these layers directly: ONNX's operators would be lifted to layers that state all sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.importing.axes import TensorView
from netspec.exchange.formats.keras.importing.config import CallOutput, tensors_in
from netspec.exchange.formats.keras.importing.fields import plain_value
from netspec.exchange.formats.keras.importing.operations import operation
from netspec.exchange.formats.keras.importing.operator_nodes import KerasOperation, array_of
from netspec.exchange.formats.keras.importing.reductions import KEYWORD_ONLY, axis_of_sample
from netspec.exchange.formats.keras.importing.shape_layers import merged, permuted, reshaped
from netspec.exchange.lift.patterns.finding import DOMAIN
from netspec.exchange.lift.rules.functions import FORMULA
from netspec.exchange.unsupported import UnsupportedFeature


@operation("pad")
def pad(op: KerasOperation) -> str:
    """Pad each sample by a constant, or by mirrored data."""
    sides, rank = op.argument("pad_width", 1), len(op.tensor.order)
    mode, value = str(op.argument("mode", 2, "constant")).lower(), op.argument("constant_values", 3, 0.0)
    paddings = [side for side in sides if isinstance(side, list) and len(side) == 2] if isinstance(sides, list) else []
    if len(paddings) != rank or any(paddings[0]):
        raise UnsupportedFeature("its `pad_width` must have one pair per axis and not pad the batch")
    if mode not in ("constant", "reflect") or isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnsupportedFeature(f"its mode {mode[:60]!r} or its constant value is not supported")
    pads = [side[end] for end in (0, 1) for side in paddings]
    return op.node("Pad", op.tensor, pads=pads, mode=mode, value=float(value))


@operation("reshape")
def reshape(op: KerasOperation) -> Sequence[TensorView]:
    """Reshape each sample; the batch must stay as it is."""
    view, shape = op.tensor_in_keras_order, op.argument("shape", 1)
    sizes = shape if isinstance(shape, list) else []
    if (
        not sizes
        or sizes[0] not in (-1, None)
        or sizes.count(-1) > 1
        or any(type(size) is not int for size in sizes[1:])
    ):
        raise UnsupportedFeature(f"its shape {str(shape)[:60]} must start with -1, the batch")
    return reshaped(op.importer, op.call, view, sizes[1:])


@operation("transpose")
def transpose(op: KerasOperation) -> Sequence[TensorView]:
    """Transpose axes after the batch."""
    view, axes = op.tensor, op.argument("axes", 1)
    return permuted(op.importer, op.call, view, axes if isinstance(axes, list) else list(range(len(view.order)))[::-1])


@operation("concatenate")
def concatenate(op: KerasOperation) -> Sequence[TensorView]:
    """Concatenate tensors."""
    first = op.arguments["args"][0] if op.arguments["args"] else None
    return merged(
        op.importer, op.call, "Concatenate", {"axis": int(op.argument("axis", 1, -1))}, list(tensors_in(first))
    )


@operation("add_n")
def add_n(op: KerasOperation) -> Sequence[TensorView]:
    """The sum of tensors."""
    return merged(op.importer, op.call, "Add", {}, list(tensors_in(op.arguments["args"])))


@operation("stack")
def stack(op: KerasOperation) -> Sequence[TensorView]:
    """Stack: Concatenate of tensors with a new axis."""
    tensors = list(tensors_in(op.arguments["args"][0] if op.arguments["args"] else None))
    axis = int(op.argument("axis", 1, 0))
    expanded = []
    for tensor in tensors:
        view = op.importer.in_keras_order(tensor)
        axis = axis % (len(view.order) + 1)
        expanded += op.layer("ExpandDims", {"axis": axis}, [view], name=f"{op.layer_name}/expand")
    return op.layer("Concatenate", {"axis": axis}, expanded)


@operation("hstack", "append")
def append(op: KerasOperation) -> Sequence[TensorView]:
    """Concatenate tensors."""
    axis = 1 if op.name == "hstack" else op.argument("axis", 2)
    if axis is None:
        raise UnsupportedFeature("it flattens the whole batch (`axis` is None)")
    return merged(op.importer, op.call, "Concatenate", {"axis": int(axis)}, list(tensors_in(op.call.args)))


@operation("expand_dims", "squeeze")
def expand_dims_or_squeeze(op: KerasOperation) -> Sequence[TensorView]:
    """Add or remove an axis of size 1."""
    view, axis = op.tensor_in_keras_order, op.argument("axis", 1, None)
    name = "ExpandDims" if op.name == "expand_dims" else "Squeeze"
    fields = {} if axis is None else {"axis": axis[0] if isinstance(axis, list) and name == "ExpandDims" else axis}
    return op.layer(name, fields, [view])


@operation("moveaxis", "swapaxes")
def move_axes(op: KerasOperation) -> Sequence[TensorView]:
    """Move or swap axes."""
    view = op.tensor
    rank = len(view.order)
    names = ("source", "destination") if op.name == "moveaxis" else ("axis1", "axis2")
    ends = [op.argument(name, index) for index, name in enumerate(names, 1)]
    sources, targets = ([axis % rank for axis in (end if isinstance(end, list) else [end])] for end in ends)
    if op.name == "swapaxes":
        sources, targets = [*sources, *targets], [*targets, *sources]
    permutation = [axis for axis in range(rank) if axis not in sources]
    for target, source in sorted(set(zip(targets, sources, strict=True))):
        permutation.insert(target, source)
    return permuted(op.importer, op.call, view, permutation)


@operation("split", "array_split", "hsplit")
def split(op: KerasOperation) -> Sequence[str]:
    """Split into equal parts (the first are larger if the size is not divisible), or at given indices."""
    sections, axis = op.argument("sections", 1), 1 if op.name == "hsplit" else op.argument("axis", 2, 0)
    size = op.tensor.shape[axis_of_sample(axis, op.tensor)]
    if isinstance(sections, int):
        sections = [size // sections + (index < size % sections) for index in range(sections)]
    elif "function" not in op.call.layer.config:  # as in NumPy: indices, not sizes
        sections = [end - start for start, end in pairwise([0, *sections, size])]
    return op.node_with_results(len(sections), "Split", op.tensor, axis=axis, split=sections)


@operation("unstack")
def unstack(op: KerasOperation) -> Sequence[TensorView]:
    """Unstack an axis."""
    view, name_prefix = op.tensor_in_keras_order, op.layer_name
    axis = axis_of_sample(op.argument("axis", 2, 0), view)
    slices = op.layer("Split", {"sections": view.value.shape[axis], "axis": axis}, [view], name=f"{name_prefix}/split")
    names = [f"{name_prefix}/{index}" for index in range(len(slices))]
    return [
        op.layer("Squeeze", {"axis": axis}, [slice_], name=name)[0] for slice_, name in zip(slices, names, strict=True)
    ]


@operation("get_item")
def get_item(op: KerasOperation) -> str:
    """Slices, single indices, and new axes."""
    args, shape = op.arguments["args"], op.tensor.shape
    key: Any = op.arguments.get("slice_spec", op.arguments.get("key", args[1] if len(args) > 1 else None))
    items = key if isinstance(key, list) else [key]
    indices_of_axes = _index_per_axis([item for item in items if item is not None], len(shape))
    starts, stops, axes, steps, indices = [], [], [], [], {}
    for axis, (item, size) in enumerate(zip(indices_of_axes, shape, strict=True)):
        if type(item) is int and axis:
            indices[axis] = item
        elif not isinstance(item, slice) or any(type(end) is not int for end in _bounds(item)):
            raise UnsupportedFeature("only constant integers and slices are supported as indices")
        elif range(size)[item] != range(size):
            if axis == 0:
                raise UnsupportedFeature("it selects samples of the batch")
            selected = range(size)[item]
            starts.append(selected.start)
            stops.append(selected.stop if selected.stop >= 0 else -size - 1)
            axes.append(axis)
            steps.append(selected.step)
    new = _new_axes(items, len(indices_of_axes))
    view = op.tensor_in_keras_order if indices or new else op.tensor
    result = op.node("Slice", view, starts, stops, axes, steps) if axes else op.operand(view)
    for axis, index in reversed(indices.items()):
        result = op.node("Gather", result, index, axis=axis)
    return op.node("Unsqueeze", result, new) if new else result


def _bounds(part: slice) -> list[Any]:
    return [end for end in (part.start, part.stop, part.step) if end is not None]


def _new_axes(key: Sequence[Any], rank: int) -> list[int]:
    """The positions of new axes in the result."""
    indexed_axes = sum(item is not None and item is not Ellipsis for item in key)
    new_axes, axis = [], 0
    for item in key:
        if item is None:
            new_axes.append(axis)
        axis += rank - indexed_axes if item is Ellipsis else int(type(item) is not int)
    if 0 in new_axes:
        raise UnsupportedFeature("it adds an axis before the batch axis")
    return new_axes


def _index_per_axis(key: Sequence[Any], rank: int) -> list[Any]:
    """Expand an index to one entry per axis."""
    ellipsis = next((index for index, item in enumerate(key) if item is Ellipsis), len(key))
    after_ellipsis = key[ellipsis + 1 :]
    missing = rank - ellipsis - len(after_ellipsis)
    if missing < 0:
        raise UnsupportedFeature("it has more indices than its input has axes")
    return [*key[:ellipsis], *[slice(None)] * missing, *after_ellipsis]


@operation("slice")
def slice_(op: KerasOperation) -> str:
    """Slice by start indices and a shape."""
    shape, starts, rank = op.argument("shape", 2), op.argument("start_indices", 1), len(op.tensor.order)
    shape = op.argument("size", 2) if shape is None else shape
    if not isinstance(starts, list) or len(starts) != rank or starts[0] != 0:
        raise UnsupportedFeature("it selects samples of the batch, or its start indices are computed")
    stops = [_BEYOND_EVERY_AXIS if size == -1 else start + size for start, size in zip(starts, shape, strict=True)]
    return op.node("Slice", op.tensor, starts[1:], stops[1:], list(range(1, rank)))


_BEYOND_EVERY_AXIS = 2**31
"""An end of slices beyond the end of any axis."""


@operation("diff")
def difference(op: KerasOperation) -> str:
    """Differences of adjacent elements."""
    result, axis = op.operand(op.tensor), axis_of_sample(op.argument("axis", 2, -1), op.tensor)
    for _ in range(op.argument("n", 1, 1)):
        result = op.node(
            "Sub",
            *(op.node("Slice", result, [start], [end], [axis]) for start, end in ((1, _BEYOND_EVERY_AXIS), (0, -1))),
        )
    return result


_MIRRORED = {"fliplr": 1, "flip_left_right": -2, "flip_up_down": -3}
"""Operations that reverse one axis of images (channels-last)."""


@operation("flip", *_MIRRORED)
def flip(op: KerasOperation) -> str:
    """Reverse along axes."""
    axes_given = _MIRRORED.get(op.name, op.argument("axis", 1))
    axes = [axis_of_sample(axis, op.tensor) for axis in (axes_given if isinstance(axes_given, list) else [axes_given])]
    count = len(axes)
    return op.node("Slice", op.tensor, [-1] * count, [-_BEYOND_EVERY_AXIS] * count, axes, [-1] * count)


@operation("tile")
def tile(op: KerasOperation) -> str:
    """Tile."""
    times, rank = op.argument("repeats", 1), len(op.tensor.order)
    times = [times] if isinstance(times, int) else times
    if not isinstance(times, list) or len(times) > rank or (len(times) == rank and times[0] != 1):
        raise UnsupportedFeature("it repeats along the batch axis")
    return op.node("Tile", op.tensor, [1] * (rank - len(times)) + times)


@operation("repeat", "roll")
def repeat_or_roll(op: KerasOperation) -> str:
    """Repeat or roll along an axis, by gathering."""
    repeats, result = op.name == "repeat", op.operand(op.tensor)
    axes, amounts = op.argument("axis", 2), op.argument("repeats" if repeats else "shift", 1)
    for axis, count in zip(axes, amounts, strict=True) if isinstance(axes, list) else [(axes, amounts)]:
        indices = np.arange(op.tensor.shape[axis_of_sample(axis, op.tensor)])
        result = op.node("Gather", result, np.repeat(indices, count) if repeats else np.roll(indices, count), axis=axis)
    return result


@operation("take")
def take(op: KerasOperation) -> str:
    """Take elements at constant indices of an axis, or rows of a constant table at computed indices."""
    source, index = op.arguments["args"][0], op.arguments.get("indices", op.arguments["args"][-1])
    if op.argument("batch_dims", KEYWORD_ONLY, 0):
        raise UnsupportedFeature("`batch_dims` is not supported")
    axis = op.argument("axis", 2)
    if not isinstance(source, CallOutput):
        table = array_of(source)
        if axis not in (0, -table.ndim):
            raise UnsupportedFeature("a constant table is only supported with indices along axis 0")
        text = f"{{0}} + {len(table)} if {{0}} < 0 else {{0}}"
        return op.node("Gather", table, op.node(FORMULA, op.importer.in_keras_order(index), domain=DOMAIN, text=text))
    if isinstance(index, CallOutput):
        if axis != 0 or len(op.importer.get(index).order) != 1:
            raise UnsupportedFeature("its computed indices apply to all samples of the batch")
        return op.node("Gather", op.tensor, index)
    return op.node("Gather", op.tensor, plain_value(index), axis=axis_of_sample(axis, op.tensor))


@operation("take_along_axis")
def take_along_axis(op: KerasOperation) -> str:
    """GatherElements."""
    args = op.arguments["args"]
    operands = [args[0], op.arguments.get("indices", args[-1])]
    source, index = (
        op.operand(op.importer.in_keras_order(operand))
        if isinstance(operand, CallOutput)
        else op.operand(array_of(operand))
        for operand in operands
    )
    index = op.node("CastLike", index, np.int32(0))
    shape, index_shape = op.shape(source), op.shape(index)
    axis = op.argument("axis", 2)
    axis = axis % len(shape) if type(axis) is int and -len(shape) <= axis < len(shape) else 0
    sizes = list(zip(shape, index_shape, strict=False))
    if (
        not axis
        or len(shape) != len(index_shape)
        or any(size_ < count_ for position, (size_, count_) in enumerate(sizes) if position != axis)
    ):
        raise UnsupportedFeature("its indices do not fit its input, or are along the batch axis")
    repeats = [size if position not in (0, axis) and count == 1 else 1 for position, (size, count) in enumerate(sizes)]
    return op.node("GatherElements", source, op.node("Tile", index, repeats) if max(repeats) > 1 else index, axis=axis)


@operation("diagonal", "trace")
def diagonal(op: KerasOperation) -> str:
    """The diagonal of each matrix, or its sum."""
    rank, offset = len(op.tensor.order), op.argument("offset", 1, 0)
    axes = [op.argument(key, KEYWORD_ONLY, default) % rank for key, default in (("axis1", 0), ("axis2", 1))]
    if axes != [rank - 2, rank - 1] or rank < 3:
        raise UnsupportedFeature("its matrices must be along the last two axes")
    *lead, rows, columns = op.tensor.shape
    indices = [row * columns + row + offset for row in range(rows) if 0 <= row + offset < columns]
    result = op.node(
        "Gather", op.node("Reshape", op.tensor_in_keras_order, [*lead, rows * columns]), indices, axis=rank - 2
    )
    return op.node("ReduceSum", result, axes=[rank - 2], keepdims=0) if op.name == "trace" else result

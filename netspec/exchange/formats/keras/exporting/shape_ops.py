"""ONNX's operators that reshape, slice, gather and scatter, as operations of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.exchange.formats.keras.exporting.model import OPS_CORE
from netspec.exchange.formats.keras.exporting.operators import (
    EmittedTensor,
    OperationWriter,
    SymbolicSizes,
    counted,
    ends_of,
    joined,
    known,
    operator,
    tensor,
    whole,
    without,
)
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.graph.ops.indexing import GatherElements
from netspec.graph.ops.shape import Concat, Transpose


@operator("Shape")
def shape(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Shape; the first size is the batch."""
    x = tensor(operands[0])
    return SymbolicSizes((None, *x.shape[1:]), x)


@operator("Reshape")
def reshape(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Reshape: 0 keeps a size, -1 infers it."""
    x, given = operands[0], whole(operands[1])
    sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(given)]
    left = prod(x.shape) // max(1, prod(size for size in sizes if size != -1))
    sizes = [left if size == -1 else size for size in sizes]
    return low.reshaped(x, sizes) if isinstance(x, EmittedTensor) else known(x).reshape(sizes)


@operator("Unsqueeze", "Squeeze")
def axes_of_one(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Squeeze and Unsqueeze."""
    x, axes = operands[0], whole(operands[1])
    if node.op_type == "Squeeze":
        sizes = without(x.shape, [axis % len(x.shape) for axis in axes], False)
    else:
        rank = len(x.shape) + len(axes)
        left = iter(x.shape)
        sizes = [1 if axis in [added % rank for added in axes] else next(left) for axis in range(rank)]
    return low.reshaped(x, sizes) if isinstance(x, EmittedTensor) else known(x).reshape(sizes)


@operator("Transpose")
def transpose(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Transpose."""
    x, axes = operands[0], node.as_op(Transpose).permutation
    return low.turned(x, axes) if isinstance(x, EmittedTensor) else known(x).transpose(axes)


@operator("Expand")
def expand(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Expand: repeat along axes of size 1; a constant is repeated for each sample of a tensor."""
    import numpy as np

    x, sizes = operands
    if not isinstance(sizes, SymbolicSizes):
        wide = np.broadcast_shapes(x.shape, tuple(whole(sizes)))
        return repeated(low, x, wide) if isinstance(x, EmittedTensor) else np.broadcast_to(known(x), wide)
    wide = np.broadcast_shapes(x.shape, tuple(sizes.of.shape[0] if size is None else size for size in sizes.sizes))
    if isinstance(x, EmittedTensor):
        return repeated(low, x, wide)
    x = known(x)
    rows = np.broadcast_to(x, (1, *wide[1:]))
    return joined(low, "Where" if x.dtype == bool else "Add", _spread(low, sizes.of, rows), str(x.dtype))


def _spread(low: OperationWriter, of: EmittedTensor, rows: Any) -> list[Any]:
    """Make a constant depend on the samples of a tensor, so that it is repeated for each of them."""
    import numpy as np

    element = "int32" if rows.dtype == bool else str(rows.dtype)
    nothing = low.op(
        "ZerosLike", [column(low, of, rows.ndim)], (of.shape[0], *[1] * (rows.ndim - 1)), element, dtype=element
    )
    if rows.dtype != bool:
        return [nothing, rows]
    return [joined(low, "Equal", [nothing, np.array(0, element)], "bool"), rows, rows]


def column(low: OperationWriter, of: EmittedTensor, rank: int) -> EmittedTensor:
    """One element of each sample of a tensor, (N, 1, …)."""
    if len(of.shape) > 1:
        sizes = (of.shape[0], prod(of.shape[1:]))
        of = low.part(low.reshaped(of, sizes), 1, slice(0, 1))
    return low.reshaped(of, (of.shape[0], *[1] * (rank - 1)))


def repeated(low: OperationWriter, x: EmittedTensor, sizes: Sequence[int]) -> EmittedTensor:
    """The tensor repeated along axes of size 1."""
    if len(sizes) > len(x.shape):
        x = low.reshaped(x, (*[1] * (len(sizes) - len(x.shape)), *x.shape))
    times = [size if have == 1 else 1 for have, size in zip(x.shape, sizes, strict=True)]
    if times[0] != 1:
        raise UnsupportedFeature("one sample is repeated for all")
    return x if set(times) == {1} else low.op("Tile", [x], sizes, repeats=times)


@operator("Range")
def numbers(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The index of each sample, 0, 1, …."""
    start, stop, step = operands
    if not isinstance(stop, SymbolicSizes) or stop.sizes != (None,) or whole(start) != [0] or whole(step) != [1]:
        raise UnsupportedFeature("Keras needs a constant number of elements")
    return low.reshaped(samples(low, stop.of, 1), (stop.of.shape[0],))


def samples(low: OperationWriter, of: EmittedTensor, rank: int) -> Any:
    """The index of each sample, (N, 1, …)."""
    import numpy as np

    one = column(low, of, rank)
    ones = low.op("OnesLike", [one], one.shape, "int32", dtype="int32")
    return joined(low, "Subtract", [low.op("Cumsum", [ones], ones.shape, axis=0, dtype=None), np.array(1, "int32")])


@operator("Concat")
def concatenate(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Concat."""
    import numpy as np

    if any(isinstance(operand, SymbolicSizes) for operand in operands):
        (of,) = {operand.of for operand in operands if isinstance(operand, SymbolicSizes)}
        return SymbolicSizes(tuple(size for operand in operands for size in _listed(operand)), of)
    axis = node.as_op(Concat).axis % len(operands[0].shape)
    if not any(isinstance(operand, EmittedTensor) for operand in operands):
        return np.concatenate([known(operand) for operand in operands], axis)
    sizes = [
        sum(operand.shape[axis] for operand in operands) if at == axis else size
        for at, size in enumerate(operands[0].shape)
    ]
    return low.op("Concatenate", [list(operands)], sizes, axis=axis)


def _listed(operand: Any) -> Sequence[int | None]:
    return operand.sizes if isinstance(operand, SymbolicSizes) else whole(operand)


@operator("Slice")
def part(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Slice; negative steps slice the reversed tensor."""
    x, starts, ends, axes, steps = [*operands, None, None][:5]
    starts, ends = whole(starts), whole(ends)
    axes = list(range(len(starts))) if axes is None else whole(axes)
    steps = [1] * len(starts) if steps is None else whole(steps)
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        axis, size = axis % len(x.shape), x.shape[axis]
        taken = range(*_bounds(size, *bounds))
        if taken == range(size):
            continue
        if not taken:
            raise UnsupportedFeature("nothing is left of an axis")
        if not isinstance(x, EmittedTensor):
            x = known(x).take(list(taken), axis)
            continue
        if axis == 0:
            raise UnsupportedFeature("it takes samples out of the batch")
        if taken.step < 0:
            x = low.op("Flip", [x], x.shape, axis=axis)
            taken = range(size - 1 - taken[0], size - taken[-1], -taken.step)
        step = None if taken.step == 1 else taken.step
        if taken != range(size):
            x = low.part(x, axis, slice(taken.start, min(size, taken[-1] + 1), step))
    return x


def _bounds(size: int, start: int, stop: int, step: int) -> tuple[int, int, int]:
    """An index as ONNX counts: from the end if negative, and clipped to the axis."""
    start = min(max(start + size if start < 0 else start, 0), size if step > 0 else size - 1)
    stop = stop + size if stop < 0 else stop
    return start, min(max(stop, 0), size) if step > 0 else max(stop, -1), step


@operator("Split")
def split(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Split."""
    x, axis = tensor(operands[0]), int(node.attributes.get("axis", 0)) % len(operands[0].shape)
    count = len(node.outputs)
    sections = whole(operands[1]) if len(operands) > 1 else [x.shape[axis] // count] * count
    shapes = [[*x.shape[:axis], size, *x.shape[axis + 1 :]] for size in sections]
    made = low.op("Split", [x], shapes[0], indices_or_sections=ends_of(sections), axis=axis)
    return low.others(made, shapes)


@operator("Pad")
def pad(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Pad by constants, or by gathered elements of the data."""
    x, pads, value, axes = [*operands, None, None][:4]
    x, mode, listed = tensor(x), str(node.attributes.get("mode", "constant")), whole(pads)
    axes = list(range(len(x.shape))) if axes is None else whole(axes)
    sides = [[0, 0] for _ in x.shape]
    for index, axis in enumerate(axes):
        sides[axis] = [listed[index], listed[index + len(axes)]]
    for axis, (before, behind) in enumerate(sides):
        if min(before, behind) < 0:  # negative padding crops
            x = low.part(x, axis, slice(max(0, -before), x.shape[axis] + min(0, behind)))
            sides[axis] = [max(0, before), max(0, behind)]
    if mode == "constant":
        number = 0.0 if value is None else known(value).ravel()[0].item()
        sizes = [size + sum(side) for size, side in zip(x.shape, sides, strict=True)]
        return low.op("Pad", [x], sizes, pad_width=sides, mode="constant", kwargs={"constant_values": number})
    for axis, side in enumerate(sides):
        if any(side):
            x = _taken(low, x, axis, _around(x.shape[axis], side, mode))
    return x


def _around(size: int, side: Sequence[int], mode: str) -> Any:
    """The source index of each element of a padded axis."""
    import numpy as np

    found = np.pad(np.arange(size), tuple(side), mode=mode)  # type: ignore[call-overload]  # a mode of NumPy's
    return found.astype("int32")


def _taken(low: OperationWriter, x: Any, axis: int, index: Any) -> EmittedTensor:
    sizes = [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]]
    return low.op("Take", [x, index], sizes, str(x.dtype), axis=axis)


@operator("Gather")
def gather(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Gather by constant or computed indices."""
    x, index = operands
    if isinstance(x, SymbolicSizes):
        return SymbolicSizes(tuple(x.sizes[position] for position in whole(index)), x.of)
    axis = int(node.attributes.get("axis", 0)) % len(x.shape)
    if not isinstance(x, EmittedTensor) and not isinstance(index, EmittedTensor):
        return known(x).take(known(index), axis)
    if not isinstance(index, EmittedTensor):
        index = known(index) % x.shape[axis]
        if index.ndim == 0 and isinstance(x, EmittedTensor):  # a scalar index removes the axis
            return low.op("Take", [x, int(index)], without(x.shape, [axis], False), axis=axis)
        index = index.astype("int32")
    return _taken(low, x, axis, index)


@operator("GatherElements")
def gather_elements(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """GatherElements."""
    x, index = operands
    axis = node.as_op(GatherElements).axis % len(x.shape)
    x, index = (
        low.within(x, index.shape, axis),
        index if isinstance(index, EmittedTensor) else known(index).astype("int32"),
    )
    return low.op("TakeAlongAxis", [x, index], index.shape, str(x.dtype), axis=axis)


@operator("GatherND")
def gather_parts(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """GatherND: rows of a table, looked up by flat indices."""
    import numpy as np

    x, index = operands
    lead, count = int(node.attributes.get("batch_dims", 0)), index.shape[-1]
    if not isinstance(x, EmittedTensor) or not isinstance(index, EmittedTensor):
        raise UnsupportedFeature("the data of GatherND does not depend on the samples")
    sizes, rest, asked = x.shape[lead : lead + count], x.shape[lead + count :], index.shape[lead:-1]
    flat = row_numbers(low, index, sizes)
    if lead == 0:
        return _taken(low, low.reshaped(x, (prod(sizes), *rest)), 0, flat)
    if lead > 1:  # batch axes: each has its own part of the table
        own = np.arange(prod(x.shape[1:lead])) * prod(sizes)
        flat = joined(low, "Add", [flat, own.reshape(1, *x.shape[1:lead], *[1] * len(asked)).astype(flat.dtype)])
    sample, count = x.shape[0], prod(flat.shape[1:])
    wide = (sample, count, prod(rest))
    places = repeated(low, low.reshaped(flat, (sample, count, 1)), wide)
    table = low.reshaped(x, (sample, prod(x.shape[1:lead]) * prod(sizes), prod(rest)))
    found = low.op("TakeAlongAxis", [table, places], wide, x.dtype, axis=1)
    return low.reshaped(found, (*x.shape[:lead], *asked, *rest))


def row_numbers(low: OperationWriter, index: EmittedTensor, sizes: Sequence[int]) -> EmittedTensor:
    """Indices along several axes, the last axis of `index`, as flat indices."""
    import numpy as np

    element, shape = index.dtype, index.shape
    index = counted(low, index, sizes)
    if shape[-1] == 1:
        return low.reshaped(index, shape[:-1])
    steps = np.array([prod(sizes[k + 1 :]) for k in range(len(sizes))], element)
    product = joined(low, "Multiply", [index, steps])
    return low.cast(low.op("Sum", [product], shape[:-1], axis=len(shape) - 1, keepdims=False), element)


_JOINED = {"none": None, "add": "add", "mul": "mul", "min": "min", "max": "max"}


@operator("ScatterElements")
def scatter_elements(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """ScatterElements."""
    import numpy as np

    x, index, updates = (tensor(operand) for operand in operands)
    axis, rank = int(node.attributes.get("axis", 0)) % len(x.shape), len(x.shape)
    index = counted(low, low.cast(index, "int32"), x.shape[axis])
    nothing = low.op("ZerosLike", [index], index.shape, "int32", dtype="int32")
    columns = []
    for at in range(rank):
        if at == axis:
            columns.append(index)
            continue
        along = [-1 if index == at else 1 for index in range(rank)]
        own = samples(low, index, rank) if at == 0 else np.arange(index.shape[at], dtype="int32").reshape(along)
        columns.append(joined(low, "Add", [nothing, own]))
    count = prod(index.shape)
    flat = [low.reshaped(column, (count, 1)) for column in columns]
    places = low.op("Concatenate", [flat], (count, rank), "int32", axis=1)
    return _scattered(low, node, x, places, low.reshaped(updates, (count,)))


def _scattered(
    low: OperationWriter, node: OperatorNode, x: EmittedTensor, places: EmittedTensor, updates: EmittedTensor
) -> EmittedTensor:
    how = _JOINED[str(node.attributes.get("reduction", "none"))]
    return low.op("ScatterUpdate", [x, places, updates], x.shape, module=OPS_CORE, reduction=how)


@operator("Trilu")
def triangle(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """An operation on each matrix."""
    x, k = tensor(operands[0]), whole(operands[1])[0] if len(operands) > 1 else 0
    return low.op("Triu" if node.attributes.get("upper", 1) else "Tril", [x], x.shape, k=k)

"""ONNX's operators that move numbers, as operations of Keras: shapes, parts, and what is looked up or put at places."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from netspec.exchange.keras_export.lowering import (
    Lowering,
    Made,
    Sizes,
    ends_of,
    known,
    operator,
    tensor,
    whole,
)
from netspec.exchange.keras_export.model import OPS_CORE
from netspec.exchange.keras_export.operators import counted, joined, without
from netspec.exchange.keras_export.values import Unwritable
from netspec.exchange.onnx_emit import OnnxNode


@operator("Shape")
def shape(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """The sizes, of which the first is open."""
    x = tensor(operands[0])
    return Sizes((None, *x.shape[1:]), x)


@operator("Reshape")
def reshape(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """As many numbers in another shape: 0 is a size as it was, -1 what is left."""
    x, given = operands[0], whole(operands[1])
    sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(given)]
    left = prod(x.shape) // max(1, prod(size for size in sizes if size != -1))
    sizes = [left if size == -1 else size for size in sizes]
    return low.reshaped(x, sizes) if isinstance(x, Made) else known(x).reshape(sizes)


@operator("Unsqueeze", "Squeeze")
def axes_of_one(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Axes of size 1 more, or less."""
    x, axes = operands[0], whole(operands[1])
    if node.op_type == "Squeeze":
        sizes = without(x.shape, [axis % len(x.shape) for axis in axes], False)
    else:
        rank = len(x.shape) + len(axes)
        left = iter(x.shape)
        sizes = [1 if axis in [one % rank for one in axes] else next(left) for axis in range(rank)]
    return low.reshaped(x, sizes) if isinstance(x, Made) else known(x).reshape(sizes)


@operator("Transpose")
def transpose(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """The axes in another order."""
    x, axes = operands[0], [int(axis) for axis in node.attributes["perm"]]
    return low.turned(x, axes) if isinstance(x, Made) else known(x).transpose(axes)


@operator("Expand")
def expand(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Repeated along axes of size 1; of a constant, for each sample that a tensor has."""
    import numpy as np

    x, sizes = operands
    if not isinstance(sizes, Sizes):
        wide = np.broadcast_shapes(x.shape, tuple(whole(sizes)))
        return repeated(low, x, wide) if isinstance(x, Made) else np.broadcast_to(known(x), wide)
    wide = np.broadcast_shapes(x.shape, tuple(sizes.of.shape[0] if size is None else size for size in sizes.sizes))
    if isinstance(x, Made):
        return repeated(low, x, wide)
    x = known(x)
    rows = np.broadcast_to(x, (1, *wide[1:]))
    return joined(low, "Where" if x.dtype == bool else "Add", _spread(low, sizes.of, rows), str(x.dtype))


def _spread(low: Lowering, of: Made, rows: Any) -> list[Any]:
    """Operands that make a constant one for each sample: nothing is added to it, or it is chosen everywhere."""
    import numpy as np

    element = "int32" if rows.dtype == bool else str(rows.dtype)
    nothing = low.op(
        "ZerosLike", [column(low, of, rows.ndim)], (of.shape[0], *[1] * (rows.ndim - 1)), element, dtype=element
    )
    if rows.dtype != bool:
        return [nothing, rows]
    return [joined(low, "Equal", [nothing, np.array(0, element)], "bool"), rows, rows]


def column(low: Lowering, of: Made, rank: int) -> Made:
    """One number of each sample of a tensor, (N, 1, …)."""
    if len(of.shape) > 1:
        sizes = (of.shape[0], prod(of.shape[1:]))
        of = low.part(low.reshaped(of, sizes), 1, slice(0, 1))
    return low.reshaped(of, (of.shape[0], *[1] * (rank - 1)))


def repeated(low: Lowering, x: Made, sizes: Sequence[int]) -> Made:
    """The tensor repeated along axes of size 1."""
    if len(sizes) > len(x.shape):
        x = low.reshaped(x, (*[1] * (len(sizes) - len(x.shape)), *x.shape))
    times = [size if have == 1 else 1 for have, size in zip(x.shape, sizes, strict=True)]
    if times[0] != 1:
        raise Unwritable("one sample is repeated for all")
    return x if set(times) == {1} else low.op("Tile", [x], sizes, repeats=times)


@operator("Range")
def numbers(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """0, 1, … as many as there are samples."""
    start, stop, step = operands
    if not isinstance(stop, Sizes) or stop.sizes != (None,) or whole(start) != [0] or whole(step) != [1]:
        raise Unwritable("Keras wants to know how many numbers there are")
    return low.reshaped(samples(low, stop.of, 1), (stop.of.shape[0],))


def samples(low: Lowering, of: Made, rank: int) -> Any:
    """The number of each sample, (N, 1, …)."""
    import numpy as np

    one = column(low, of, rank)
    ones = low.op("OnesLike", [one], one.shape, "int32", dtype="int32")
    return joined(low, "Subtract", [low.op("Cumsum", [ones], ones.shape, axis=0, dtype=None), np.array(1, "int32")])


@operator("Concat")
def concatenate(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """One behind the other."""
    import numpy as np

    if any(isinstance(one, Sizes) for one in operands):
        (of,) = {one.of for one in operands if isinstance(one, Sizes)}
        return Sizes(tuple(size for one in operands for size in _listed(one)), of)
    axis = int(node.attributes["axis"]) % len(operands[0].shape)
    if not any(isinstance(one, Made) for one in operands):
        return np.concatenate([known(one) for one in operands], axis)
    sizes = [
        sum(one.shape[axis] for one in operands) if at == axis else size for at, size in enumerate(operands[0].shape)
    ]
    return low.op("Concatenate", [list(operands)], sizes, axis=axis)


def _listed(operand: Any) -> Sequence[int | None]:
    return operand.sizes if isinstance(operand, Sizes) else whole(operand)


@operator("Slice")
def part(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Parts along axes; where they go backwards, of what is turned round."""
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
            raise Unwritable("nothing is left of an axis")
        if not isinstance(x, Made):
            x = known(x).take(list(taken), axis)
            continue
        if axis == 0:
            raise Unwritable("it takes samples out of the batch")
        if taken.step < 0:
            x = low.op("Flip", [x], x.shape, axis=axis)
            taken = range(size - 1 - taken[0], size - taken[-1], -taken.step)
        step = None if taken.step == 1 else taken.step
        if taken != range(size):
            x = low.part(x, axis, slice(taken.start, min(size, taken[-1] + 1), step))
    return x


def _bounds(size: int, start: int, stop: int, step: int) -> tuple[int, int, int]:
    """As ONNX counts: from the end where negative, and limited to the axis."""
    start = min(max(start + size if start < 0 else start, 0), size if step > 0 else size - 1)
    stop = stop + size if stop < 0 else stop
    return start, min(max(stop, 0), size) if step > 0 else max(stop, -1), step


@operator("Split")
def split(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Parts of these sizes."""
    x, axis = tensor(operands[0]), int(node.attributes.get("axis", 0)) % len(operands[0].shape)
    count = len(node.outputs)
    sections = whole(operands[1]) if len(operands) > 1 else [x.shape[axis] // count] * count
    shapes = [[*x.shape[:axis], size, *x.shape[axis + 1 :]] for size in sections]
    made = low.op("Split", [x], shapes[0], indices_or_sections=ends_of(sections), axis=axis)
    return low.others(made, shapes)


@operator("Pad")
def pad(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Constants around the data, or the data's own numbers, which are looked up."""
    x, pads, value, axes = [*operands, None, None][:4]
    x, mode, listed = tensor(x), str(node.attributes.get("mode", "constant")), whole(pads)
    axes = list(range(len(x.shape))) if axes is None else whole(axes)
    sides = [[0, 0] for _ in x.shape]
    for place, axis in enumerate(axes):
        sides[axis] = [listed[place], listed[place + len(axes)]]
    for axis, (before, behind) in enumerate(sides):
        if min(before, behind) < 0:  # they cut off
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
    """Where the numbers of a padded axis come from."""
    import numpy as np

    found = np.pad(np.arange(size), tuple(side), mode=mode)  # type: ignore[call-overload]  # a mode of NumPy's
    return found.astype("int32")


def _taken(low: Lowering, x: Any, axis: int, index: Any) -> Made:
    sizes = [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]]
    return low.op("Take", [x, index], sizes, str(x.dtype), axis=axis)


@operator("Gather")
def gather(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """By places along an axis, which are known or computed."""
    x, index = operands
    if isinstance(x, Sizes):
        return Sizes(tuple(x.sizes[place] for place in whole(index)), x.of)
    axis = int(node.attributes.get("axis", 0)) % len(x.shape)
    if not isinstance(x, Made) and not isinstance(index, Made):
        return known(x).take(known(index), axis)
    if not isinstance(index, Made):
        index = known(index) % x.shape[axis]
        if index.ndim == 0 and isinstance(x, Made):  # one place: the axis goes
            return low.op("Take", [x, int(index)], without(x.shape, [axis], False), axis=axis)
        index = index.astype("int32")
    return _taken(low, x, axis, index)


@operator("GatherElements")
def gather_elements(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """A number for each place."""
    x, index = operands
    axis = int(node.attributes.get("axis", 0)) % len(x.shape)
    x, index = low.within(x, index.shape, axis), index if isinstance(index, Made) else known(index).astype("int32")
    return low.op("TakeAlongAxis", [x, index], index.shape, str(x.dtype), axis=axis)


@operator("GatherND")
def gather_parts(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """By places along several axes: rows of a table, which are looked up by one number each."""
    import numpy as np

    x, index = operands
    lead, count = int(node.attributes.get("batch_dims", 0)), index.shape[-1]
    if not isinstance(x, Made) or not isinstance(index, Made):
        raise Unwritable("what is looked up by several places is no tensor of samples")
    sizes, rest, asked = x.shape[lead : lead + count], x.shape[lead + count :], index.shape[lead:-1]
    flat = row_numbers(low, index, sizes)
    if lead == 0:
        return _taken(low, low.reshaped(x, (prod(sizes), *rest)), 0, flat)
    if lead > 1:  # further axes that both have: each has a table of its own, one behind another
        own = np.arange(prod(x.shape[1:lead])) * prod(sizes)
        flat = joined(low, "Add", [flat, own.reshape(1, *x.shape[1:lead], *[1] * len(asked)).astype(flat.dtype)])
    sample, count = x.shape[0], prod(flat.shape[1:])
    wide = (sample, count, prod(rest))
    places = repeated(low, low.reshaped(flat, (sample, count, 1)), wide)
    table = low.reshaped(x, (sample, prod(x.shape[1:lead]) * prod(sizes), prod(rest)))
    found = low.op("TakeAlongAxis", [table, places], wide, x.dtype, axis=1)
    return low.reshaped(found, (*x.shape[:lead], *asked, *rest))


def row_numbers(low: Lowering, index: Made, sizes: Sequence[int]) -> Made:
    """Places along several axes, the last axis of `index`, as places along all of them taken as one."""
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
def scatter_elements(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Numbers put at places along an axis, and along all others where they are."""
    import numpy as np

    x, index, updates = (tensor(one) for one in operands)
    axis, rank = int(node.attributes.get("axis", 0)) % len(x.shape), len(x.shape)
    index = counted(low, low.cast(index, "int32"), x.shape[axis])
    nothing = low.op("ZerosLike", [index], index.shape, "int32", dtype="int32")
    columns = []
    for at in range(rank):
        if at == axis:
            columns.append(index)
            continue
        along = [-1 if one == at else 1 for one in range(rank)]
        own = samples(low, index, rank) if at == 0 else np.arange(index.shape[at], dtype="int32").reshape(along)
        columns.append(joined(low, "Add", [nothing, own]))
    count = prod(index.shape)
    flat = [low.reshaped(one, (count, 1)) for one in columns]
    places = low.op("Concatenate", [flat], (count, rank), "int32", axis=1)
    return _scattered(low, node, x, places, low.reshaped(updates, (count,)))


def _scattered(low: Lowering, node: OnnxNode, x: Made, places: Made, updates: Made) -> Made:
    how = _JOINED[str(node.attributes.get("reduction", "none"))]
    return low.op("ScatterUpdate", [x, places, updates], x.shape, module=OPS_CORE, reduction=how)


@operator("Trilu")
def triangle(low: Lowering, node: OnnxNode, operands: Sequence[Any]) -> Any:
    """Of each matrix."""
    x, k = tensor(operands[0]), whole(operands[1])[0] if len(operands) > 1 else 0
    return low.op("Triu" if node.attributes.get("upper", 1) else "Tril", [x], x.shape, k=k)

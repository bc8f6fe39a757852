"""Operations of Keras that reshape, slice, gather and join."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats.keras.importing.axes import TensorView, axis_here
from netspec.exchange.formats.keras.importing.config import CallOutput, LayerCall, tensors_in
from netspec.exchange.formats.keras.importing.elementwise import constant
from netspec.exchange.formats.keras.importing.fields import plain
from netspec.exchange.formats.keras.importing.importer import KerasImporter
from netspec.exchange.formats.keras.importing.operations import argument, keeping, name_of, one, operation
from netspec.exchange.formats.keras.importing.reductions import NOWHERE, matrix, of_sample, reduced
from netspec.exchange.formats.keras.importing.shape_layers import merged, permuted, reshaped
from netspec.exchange.unsupported import UnsupportedFeature

if TYPE_CHECKING:
    from numpy.typing import NDArray


@operation("pad")
def pad(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Pad each sample by a constant, or by mirrored data."""
    held, sides = one(importer, given), argument(given, "pad_width", 1)
    mode, value = str(argument(given, "mode", 2, "constant")).lower(), argument(given, "constant_values", 3, 0.0)
    pairs = [side for side in sides if isinstance(side, list) and len(side) == 2] if isinstance(sides, list) else []
    if held.rows is not None or len(pairs) != len(held.order) or any(pairs[0]):
        raise UnsupportedFeature("it pads something else than the axes of each sample")
    if mode not in ("constant", "reflect") or isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnsupportedFeature(f"it pads in the mode {mode[:60]!r}")
    here = [pairs[held.order.index(axis)] for axis in range(1, len(held.order))]
    keeping(importer, call, held, "Pad", {"padding": here, "mode": mode, "value": float(value)})


@operation("reshape")
def reshape(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """The batch must stay as it is."""
    held, shape = importer.plain(one(importer, given)), argument(given, "shape", 1)
    sizes = shape if isinstance(shape, list) else []
    if (
        not sizes
        or sizes[0] not in (-1, None)
        or sizes.count(-1) > 1
        or any(type(size) is not int for size in sizes[1:])
    ):
        raise UnsupportedFeature(f"it makes the shape {str(shape)[:60]}, whose first size is not the batch alone")
    reshaped(importer, call, held, sizes[1:])


@operation("transpose")
def transpose(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """All axes after the batch."""
    held, axes = one(importer, given), argument(given, "axes", 1)
    permuted(importer, call, held, axes if isinstance(axes, list) else list(range(len(held.order)))[::-1])


@operation("concatenate")
def concatenate(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Concatenate tensors."""
    first = given["args"][0] if given["args"] else None
    merged(importer, call, "Concatenate", {"axis": int(argument(given, "axis", 1, -1))}, list(tensors_in(first)))


@operation("add_n")
def added(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """The sum of tensors."""
    merged(importer, call, "Add", {}, list(tensors_in(given["args"])))


@operation("stack")
def stack(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Stack: Concatenate of tensors with a new axis."""
    tensors = list(tensors_in(given["args"][0] if given["args"] else None))
    axis = int(argument(given, "axis", 1, 0))
    made = []
    for tensor in tensors:
        held = importer.plain(tensor)
        axis = axis % (len(held.order) + 1)
        made += importer.add(call, "ExpandDims", {"axis": axis}, [held], name=f"{importer.name_of(call)}/expand")
    importer.put(call, *importer.add(call, "Concatenate", {"axis": axis}, made))


@operation("hstack", "append")
def behind(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Concatenate tensors."""
    axis = 1 if name_of(call) == "hstack" else argument(given, "axis", 2)
    if axis is None:
        raise UnsupportedFeature("it joins samples")
    merged(importer, call, "Concatenate", {"axis": int(axis)}, list(tensors_in(call.args)))


@operation("expand_dims", "squeeze")
def axes_of_one(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Add or remove an axis of size 1."""
    held, axis = importer.plain(one(importer, given)), argument(given, "axis", 1, None)
    name = "ExpandDims" if name_of(call) == "expand_dims" else "Squeeze"
    fields = {} if axis is None else {"axis": axis[0] if isinstance(axis, list) and name == "ExpandDims" else axis}
    importer.put(call, *importer.add(call, name, fields, [held]))


@operation("moveaxis", "swapaxes")
def moved(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Move or swap axes."""
    held = one(importer, given)
    rank = len(held.order)
    names = ("source", "destination") if name_of(call) == "moveaxis" else ("axis1", "axis2")
    both = [argument(given, name, index) for index, name in enumerate(names, 1)]
    sources, targets = ([axis % rank for axis in (each if isinstance(each, list) else [each])] for each in both)
    if name_of(call) == "swapaxes":
        sources, targets = [*sources, *targets], [*targets, *sources]
    rest = [axis for axis in range(rank) if axis not in sources]
    for target, source in sorted(set(zip(targets, sources, strict=True))):
        rest.insert(target, source)
    permuted(importer, call, held, rest)


@operation("split", "array_split", "hsplit")
def split(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Split into equal parts, or at given indices."""
    held, sections = one(importer, given), argument(given, "sections", 1)
    axis = 1 if name_of(call) == "hsplit" else argument(given, "axis", 2, 0)
    here = axis_here(int(axis), held.order)
    if name_of(call) == "array_split" and isinstance(sections, int):  # the first ones are larger if the sizes differ
        size = held.value.shape[here]
        fields = {"sections": [size // sections + (k < size % sections) for k in range(sections)], "axis": here}
        importer.put(call, *importer.add(call, "Split", fields, [held], *[held.order] * sections))
        return
    if isinstance(sections, list) and "function" not in call.layer.config:  # NumPy's: the indices of the ends
        ends = [0, *sections, held.value.shape[here]]
        sections = [end - start for start, end in pairwise(ends)]
    count = sections if isinstance(sections, int) else len(sections)
    fields = {"sections": sections, "axis": here}
    importer.put(call, *importer.add(call, "Split", fields, [held], *[held.order] * count))


@operation("unstack")
def unstack(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Unstack an axis."""
    held, own = importer.plain(one(importer, given)), importer.name_of(call)
    axis = of_sample(argument(given, "axis", 2, 0), held)
    parts = importer.add(call, "Split", {"sections": held.value.shape[axis], "axis": axis}, [held], name=f"{own}/split")
    names = [f"{own}/{index}" for index in range(len(parts))]
    made = [
        importer.add(call, "Squeeze", {"axis": axis}, [part], name=name)[0]
        for part, name in zip(parts, names, strict=True)
    ]
    importer.put(call, *made)


@operation("get_item")
def get_item(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Slices, single indices, and new axes."""
    held = one(importer, given)
    second = given["args"][1] if len(given["args"]) > 1 else None
    key: Any = given.get("slice_spec", given.get("key", second))
    listed = key if isinstance(key, list) else [key]
    parts = _spread([each for each in listed if each is not None], len(held.order))
    if any(type(part) is int for part in parts) or None in listed:
        held = importer.plain(held)
    gone, steps, mirrored = [], [], []
    for axis, part in enumerate(parts):
        size = held.shape[axis]
        if type(part) is int and axis:
            start = part % size if -size <= part < size else size
            steps.append({"axis": axis, "start": start, "stop": start + 1})
            gone.append(axis)
        elif not isinstance(part, slice) or any(type(end) is not int for end in _ends(part)):
            raise UnsupportedFeature("it takes other things of a tensor than parts along its axes")
        elif range(size)[part] != range(size):
            if axis == 0:
                raise UnsupportedFeature("it takes samples out of the batch")
            fields = {"axis": held.order[axis], "start": part.start or 0, "stop": part.stop, "step": part.step or 1}
            if fields["step"] < 0:
                places = range(size)[part]
                fields |= {"start": min(places, default=0), "stop": max(places, default=-1) + 1, "step": -part.step}
                mirrored.append(held.order[axis])
            steps.append({name: each for name, each in fields.items() if each is not None})
    name, new = importer.name_of(call), _new_axes(listed, len(parts))
    todo: list[tuple[str, dict[str, Any]]] = [("Slice", fields) for fields in steps]
    todo += [("Flip", {"axis": mirrored})] if mirrored else []
    todo += ([("Squeeze", {"axis": gone})] if gone else []) + [("ExpandDims", {"axis": axis}) for axis in new]
    for index, (kind, fields) in enumerate(todo or [("Identity", {})]):
        own = name if index >= len(todo) - 1 else f"{name}/{kind.lower()}"
        orders = [] if kind in ("Squeeze", "ExpandDims") else [held.order]
        (held,) = importer.add(call, kind, fields, [held], *orders, name=own)
    importer.put(call, held)


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
def cut(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Slice by start indices and a shape."""
    held, shape, starts = (
        importer.plain(one(importer, given)),
        argument(given, "shape", 2),
        argument(given, "start_indices", 1),
    )
    shape = argument(given, "size", 2) if shape is None else shape
    if not isinstance(starts, list) or len(starts) != len(held.order) or starts[0] != 0:
        raise UnsupportedFeature("it selects samples of the batch, or computed indices")
    name = importer.name_of(call)
    for axis in range(1, len(held.order)):
        fields = {"axis": axis, "start": starts[axis]}
        fields |= {} if shape[axis] == -1 else {"stop": starts[axis] + shape[axis]}
        own = name if axis == len(held.order) - 1 else f"{name}/{axis}"
        (held,) = importer.add(call, "Slice", fields, [held], name=own)
    importer.put(call, held)


@operation("diff")
def difference(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Differences of adjacent elements."""
    held, name = importer.plain(one(importer, given)), importer.name_of(call)
    axis, times = of_sample(argument(given, "axis", 2, -1), held), argument(given, "n", 1, 1)
    for turn in range(times):
        last = held.value.shape[axis] - 1
        parts = [{"axis": axis, "start": start, "stop": start + last} for start in (1, 0)]
        ends = [importer.add(call, "Slice", part, [held], name=f"{name}/part")[0] for part in parts]
        (held,) = importer.add(call, "Subtract", {}, ends, name=name if turn == times - 1 else f"{name}/{turn}")
    importer.put(call, held)


_MIRRORED = {"fliplr": 1, "flip_left_right": -2, "flip_up_down": -3}
"""Operations that reverse one axis of images (channels-last)."""


@operation("flip", *_MIRRORED)
def flip(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Reverse along axes."""
    held, axes = one(importer, given), _MIRRORED.get(name_of(call), argument(given, "axis", 1))
    here = sorted(held.order[of_sample(axis, held)] for axis in (axes if isinstance(axes, list) else [axes]))
    keeping(importer, call, held, "Flip", {"axis": here})


@operation("tile")
def tile(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Tile."""
    held, times = one(importer, given), argument(given, "repeats", 1)
    times = [times] if isinstance(times, int) else times
    rank, name = len(held.order), importer.name_of(call)
    if not isinstance(times, list) or len(times) > rank or (len(times) == rank and times[0] != 1):
        raise UnsupportedFeature("it repeats samples")
    several = [(axis + rank - len(times), count) for axis, count in enumerate(times) if count != 1]
    for index, (axis, count) in enumerate(several):
        own = name if index == len(several) - 1 else f"{name}/{axis}"
        (held,) = importer.add(call, "Tile", {"tiles": count, "axis": held.order[axis]}, [held], held.order, name=own)
    if not several:
        (held,) = importer.add(call, "Identity", {}, [held], held.order)
    importer.put(call, held)


@operation("repeat", "roll")
def by_rule(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Repeat or roll along an axis, by gathering."""
    import numpy as np

    held, name, repeats = one(importer, given), importer.name_of(call), name_of(call) == "repeat"
    axes, what = argument(given, "axis", 2), argument(given, "repeats" if repeats else "shift", 1)
    pairs = list(zip(axes, what, strict=True)) if isinstance(axes, list) else [(axes, what)]
    for index, (axis, count) in enumerate(pairs):
        places = np.arange(held.shape[of_sample(axis, held)])
        places = np.repeat(places, count) if repeats else np.roll(places, count)
        fields = {"indices": places.tolist(), "axis": held.order[of_sample(axis, held)]}
        own = name if index == len(pairs) - 1 else f"{name}/{index}"
        (held,) = importer.add(call, "Gather", fields, [held], held.order, name=own)
    importer.put(call, held)


@operation("take")
def take(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """Take at constant indices of an axis, or rows of a constant table at computed ones."""
    source, index = given["args"][0], given["indices"] if "indices" in given else given["args"][1]
    if argument(given, "batch_dims", NOWHERE, 0):
        raise UnsupportedFeature("its indices differ between samples")
    if not isinstance(source, CallOutput):
        _looked_up(importer, call, given, matrix(source), importer.plain(index))
        return
    if isinstance(index, CallOutput):
        numbers = importer.get(index)
        if argument(given, "axis", 2) != 0 or len(numbers.order) != 1:
            raise UnsupportedFeature("its indices are a second tensor for all samples")
        held = importer.get(source)
        importer.put(call, *importer.add(call, "BatchReindex", {}, [held, numbers], held.order))
        return
    held, name = importer.get(source), importer.name_of(call)
    axis = of_sample(argument(given, "axis", 2), held)
    places = matrix(index) if isinstance(index, list) else matrix([plain(index)])[0]
    held = held if places.ndim == 1 else importer.plain(held)
    fields = {"indices": places.ravel().tolist(), "axis": held.order[axis]}
    own = name if places.ndim == 1 else f"{name}/places"
    (held,) = importer.add(call, "Gather", fields, [held], held.order, name=own)
    if places.ndim != 1:
        shape = [*held.value.shape[1:axis], *places.shape, *held.value.shape[axis + 1 :]]
        (held,) = importer.add(call, "Reshape", {"target_shape": shape}, [held])
    importer.put(call, held)


def _looked_up(
    importer: KerasImporter, call: LayerCall, given: dict[str, Any], table: NDArray[Any], index: TensorView
) -> None:
    """Rows of a table; an Embedding for vectors of floats."""
    import numpy as np

    if argument(given, "axis", 2) not in (0, -table.ndim):
        raise UnsupportedFeature("it looks up a part of each row of a table")
    if table.ndim != 2 or "float" not in str(table.dtype):
        importer.put(
            call, *importer.add(call, "Gather", {"axis": 1}, [constant(importer, call, table[None], index), index])
        )
        return
    rows, size = table.shape
    formula = {"expr": f"x + {rows} if x < 0 else x", "keep_types": True}
    (index,) = importer.add(call, "Expression", formula, [index], name=f"{importer.name_of(call)}/counted")
    importer.put(
        call, *importer.add(call, "Embedding", {"input_dim": rows, "output_dim": size, "trainable": False}, [index])
    )
    importer.draft.layers[-1].arrays["embeddings"] = np.ascontiguousarray(table, np.float32)


@operation("take_along_axis")
def take_along_axis(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """GatherElements."""
    operands = [given["args"][0], given["indices"] if "indices" in given else given["args"][1]]
    like = importer.plain(next(each for each in operands if isinstance(each, CallOutput)))
    source, index = (
        importer.plain(each) if isinstance(each, CallOutput) else constant(importer, call, _of_one(each, like), like)
        for each in operands
    )
    if index.value.dtype.is_float:
        (index,) = importer.add(call, "Cast", {"dtype": "int32"}, [index], name=f"{importer.name_of(call)}/whole")
    axis = of_sample(argument(given, "axis", 2), source)
    sizes = list(zip(source.value.shape, index.value.shape, strict=False))
    if len(source.order) != len(index.order) or any(a < b for at, (a, b) in enumerate(sizes) if at != axis):
        raise UnsupportedFeature("its indices are those of larger data")
    for at, (size, count) in enumerate(sizes):
        if at not in (0, axis) and count == 1 < size:
            own = f"{importer.name_of(call)}/places_{at}"
            (index,) = importer.add(call, "Tile", {"tiles": size, "axis": at}, [index], name=own)
    importer.put(call, *importer.add(call, "GatherElements", {"axis": axis}, [source, index]))


def _of_one(numbers: Any, like: TensorView) -> NDArray[Any]:
    array = matrix(numbers)
    if array.ndim != len(like.order) or array.shape[0] != 1:
        raise UnsupportedFeature("one of its operands is an array that differs from sample to sample")
    return array


@operation("diagonal", "trace")
def diagonal(importer: KerasImporter, call: LayerCall, given: dict[str, Any]) -> None:
    """The diagonal of each matrix, or its sum."""
    held, name = importer.plain(one(importer, given)), importer.name_of(call)
    rank, offset = len(held.order), argument(given, "offset", 1, 0)
    axes = [argument(given, key, NOWHERE, usual) % rank for key, usual in (("axis1", 0), ("axis2", 1))]
    if axes != [rank - 2, rank - 1] or rank < 3:
        raise UnsupportedFeature("its matrices are not along the last two axes")
    rows, columns = held.value.shape[-2:]
    places = [row * columns + row + offset for row in range(rows) if 0 <= row + offset < columns]
    shape = [*held.value.shape[1:-2], rows * columns]
    (held,) = importer.add(call, "Reshape", {"target_shape": shape}, [held], name=f"{name}/rows")
    fields, sums = {"indices": places, "axis": rank - 2}, name_of(call) == "trace"
    (held,) = importer.add(call, "Gather", fields, [held], name=f"{name}/diagonal" if sums else name)
    importer.put(call, reduced(importer, call, held, "sum", [rank - 2], False) if sums else held)

"""Layers that combine, split and reshape: Eltwise, Concat, Slice, Crop, Reshape, Im2col and others."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from netspec.exchange.formats.caffe.importer import CaffeImporter, rule
from netspec.exchange.formats.caffe.rules.weighted import flattened, plain, window_sizes
from netspec.exchange.formats.caffe.wiring import CaffeNode, last_step
from netspec.exchange.unsupported import UnsupportedFeature

OPERATIONS = {"PROD": "Multiply", "SUM": "Add", "MAX": "Maximum"}
"""The layer for each operation of an Eltwise without coefficients."""


@rule("Split")
def split(importer: CaffeImporter, node: CaffeNode) -> None:
    """All tops are the same value."""
    for index in range(len(node.layer["top"])):
        importer.set_top(node, importer.read(node), index)


@rule("Silence")
def silence(importer: CaffeImporter, node: CaffeNode) -> None:
    """Left out: a value that nothing reads is not computed."""


@rule("Eltwise")
def eltwise(importer: CaffeImporter, node: CaffeNode) -> None:
    """Multiply, Add or WeightedSum, Maximum."""
    path = "eltwise_param"
    param, inputs = node.layer[path], [importer.read(node, index) for index in range(len(node.bottoms))]
    coefficients = param["coeff"]
    if len({x.shape for x in inputs}) > 1:
        raise UnsupportedFeature(f"its inputs differ in size: {' and '.join(str(list(x.shape[1:])) for x in inputs)}")
    if coefficients and param["operation"] != "SUM":
        raise UnsupportedFeature("coefficients are only supported for the operation SUM", field=f"{path}.coeff")
    if coefficients and len(coefficients) != len(inputs):
        raise UnsupportedFeature(
            f"it has {len(coefficients)} coefficients for {len(inputs)} inputs", field=f"{path}.coeff"
        )
    if len(inputs) < 2:
        raise UnsupportedFeature("it needs 2 bottoms or more, got 1", field="bottom")
    if any(coefficient != 1 for coefficient in coefficients):
        importer.set_top(
            node,
            importer.add(
                node, "WeightedSum", inputs, {"coefficients": [float(str(coefficient)) for coefficient in coefficients]}
            ),
        )
    else:
        importer.set_top(node, importer.add(node, OPERATIONS[param["operation"]], inputs))


@rule("Concat")
def concat(importer: CaffeImporter, node: CaffeNode) -> None:
    """Concatenate."""
    inputs = [importer.read(node, index) for index in range(len(node.bottoms))]
    axis = _axis(importer, node, "concat_param", "concat_dim", len(inputs[0].shape))
    importer.set_top(node, inputs[0] if len(inputs) == 1 else importer.add(node, "Concatenate", inputs, {"axis": axis}))


@rule("Slice")
def slices(importer: CaffeImporter, node: CaffeNode) -> None:
    """Split into equal parts or at given indices."""
    path = "slice_param"
    x, tops = importer.read(node), len(node.layer["top"])
    axis = _axis(importer, node, path, "slice_dim", len(x.shape))
    size, points = x.shape[axis], [int(point) for point in node.layer[path]["slice_point"]]
    if points and len(points) != tops - 1:
        raise UnsupportedFeature(
            f"it has {len(points)} slice points for {tops} tops, but needs {tops - 1}", field=f"{path}.slice_point"
        )
    ends = [*points, size]
    sizes = [end - start for start, end in zip([0, *points], ends, strict=True)]
    if points and min(sizes) < 1:
        raise UnsupportedFeature(
            f"its slice points {points} must be ascending and within the axis of size {size}",
            field=f"{path}.slice_point",
        )
    if not points and size % tops:
        raise UnsupportedFeature(f"axis {axis} of size {size} cannot be split into {tops} equal parts", field=path)
    if tops == 1:
        importer.set_top(node, x)
        return
    equal = not points or len(set(sizes)) == 1
    parts = importer.add_outputs(node, "Split", [x], {"sections": tops if equal else sizes, "axis": axis})
    for index, part in enumerate(parts):
        importer.set_top(node, part, index)


def _axis(importer: CaffeImporter, node: CaffeNode, path: str, older: str, rank: int) -> int:
    """The axis, which had another name in older versions."""
    name = older if older in node.layer[path] else "axis"
    return importer.axis(node, f"{path}.{name}", rank, node.layer[path][name])


@rule("Crop")
def crop(importer: CaffeImporter, node: CaffeNode) -> None:
    """Crop, to the size of the second input."""
    path = "crop_param"
    param, x, reference = node.layer[path], importer.read(node), importer.read(node, 1)
    offset = [int(offset) for offset in param["offset"]] or [0]
    axis = param["axis"]
    if axis in (0, -len(x.shape)) and offset[0] == 0:  # both have the same number of samples
        axis, offset = 1, offset[1:] or offset
    axis = importer.axis(node, f"{path}.axis", len(x.shape), axis)
    importer.set_top(node, importer.add(node, "Crop", [x, reference], {"axis": axis, "offset": plain(offset)}))


@rule("Flatten")
def flatten(importer: CaffeImporter, node: CaffeNode) -> None:
    """Flatten, or Reshape if it merges only some axes."""
    path = "flatten_param"
    param, x = node.layer[path], importer.read(node)
    rank = len(x.shape)
    first = importer.axis(node, f"{path}.axis", rank, param["axis"])
    last = importer.axis(node, f"{path}.end_axis", rank, param["end_axis"])
    shape = x.shape
    if first >= last:
        importer.set_top(node, x)
    elif first == 1 and last == rank - 1:
        importer.set_top(node, importer.add(node, "Flatten", [x]))
    else:
        target = [*shape[1:first], prod(shape[first : last + 1]), *shape[last + 1 :]]
        importer.set_top(node, importer.add(node, "Reshape", [x], {"target_shape": target}))


@rule("Reshape")
def reshape(importer: CaffeImporter, node: CaffeNode) -> None:
    """Reshape of samples; axis 0 must stay unchanged."""
    path = "reshape_param"
    param, x = node.layer[path], importer.read(node)
    rank, dims = len(x.shape), [int(size) for size in param["shape"]["dim"]]
    if last_step(node) and x.shape[1] == 1 and node.key in importer.sequences.layers:
        importer.set_top(node, importer.add(node, "Reshape", [x], {"target_shape": [*x.shape[2:]]}))
        return
    if node.key in importer.sequences.layers:
        raise UnsupportedFeature("a sequence (T, N, …) cannot be reshaped: its batch is axis 1", field=path)
    start = param["axis"] if param["axis"] >= 0 else rank + param["axis"] + 1
    count = param["num_axes"]
    end = rank if count == -1 else start + count
    if not 0 <= start <= end <= rank:
        raise UnsupportedFeature(
            f"axes {start} to {end} are out of range for an input with {rank} axes", field=f"{path}.axis"
        )
    if any(size < -1 for size in dims) or dims.count(-1) > 1:
        raise UnsupportedFeature(f"{dims} is not a valid shape: at most one size may be -1", field=f"{path}.shape")
    if any(size == 0 and start + index >= rank for index, size in enumerate(dims)):
        raise UnsupportedFeature("a size of 0 copies an axis that its input does not have", field=f"{path}.shape")
    sizes = [x.shape[start + index] if size == 0 else size for index, size in enumerate(dims)]
    if start > 0:
        target = [*x.shape[1:start], *sizes, *x.shape[end:]]
    else:
        target = [*sizes[1:], *x.shape[end:]]
        sample_size, target_size = prod(x.shape[1:]), prod(size for size in target if size != -1)
        fits = sample_size == target_size or (-1 in target and dims[:1] > [0] and sample_size % target_size == 0)
        keeps_batch = bool(dims) and (dims[0] == 0 or fits)
        if not keeps_batch:
            raise UnsupportedFeature("it changes axis 0, the batch", field=f"{path}.shape")
        if dims[0] > 0 and -1 in target:
            importer.notes.add(
                f"`{node.name}`: the size {dims[0]} of axis 0 is assumed to be the batch size",
                "the first size in {count} Reshape layers is assumed to be the batch size", f"`{node.name}`",
            )  # fmt: skip
    if not target:
        raise UnsupportedFeature("the new shape has no axis besides the batch", field=f"{path}.shape")
    importer.set_top(node, importer.add(node, "Reshape", [x], {"target_shape": target}))


@rule("Reduction")
def reduction(importer: CaffeImporter, node: CaffeNode) -> None:
    """Reduction over the axes from `axis` on, followed by a factor."""
    path = "reduction_param"
    param, x = node.layer[path], importer.read(node)
    rank = len(x.shape)
    axis = importer.axis(node, f"{path}.axis", rank, param["axis"])
    fields: dict[str, Any] = {"operation": param["operation"].lower()}
    if axis > 1:
        fields["axes"] = list(range(axis, rank))
    reduced = importer.add(node, "Reduction", [x], fields)
    if param["coeff"] != 1:
        reduced = importer.add(node, "Power", [reduced], {"scale": param["coeff"]}, part="coeff")
    importer.set_top(node, reduced)


@rule("ArgMax")
def arg_max(importer: CaffeImporter, node: CaffeNode) -> None:
    """ArgMax along an axis, which stays, or over all of a sample: then (N, 1, k), or (N, 2, k) with the values."""
    path = "argmax_param"
    param, x = node.layer[path], importer.read(node)
    top_k, values = param["top_k"], param["out_max_val"]
    if "axis" in param:
        axis = importer.axis(node, f"{path}.axis", len(x.shape), param["axis"])
        fields = {"axis": axis, "keepdims": True, "top_k": top_k, "out_max_val": values}
        importer.set_top(node, importer.add_outputs(node, "ArgMax", [x], fields)[-1])
        return
    parts = importer.add_outputs(
        node, "ArgMax", [flattened(importer, node, x, 1)], {"keepdims": True, "top_k": top_k, "out_max_val": values}
    )
    rows = [
        importer.add(node, "Reshape", [part], {"target_shape": [1, top_k]}, part=f"row{index}" if values else "row")
        for index, part in enumerate(parts)
    ]
    importer.set_top(node, importer.add(node, "Concatenate", rows, part="pairs") if values else rows[0])


MAX_WINDOW = 64
"""Largest number of elements of a window: each becomes up to three layers."""


@rule("Im2col")
def patches(importer: CaffeImporter, node: CaffeNode) -> None:
    """(N, C, H, W) → (N, C · elements, OH, OW): values at each element of the window, by slices."""
    path = "convolution_param"
    param, x = node.layer[path], importer.read(node)
    if len(x.shape) != 4 or importer.axis(node, f"{path}.axis", len(x.shape), param["axis"]) != 1:
        raise UnsupportedFeature("its input is not an image (N, C, H, W)", field=f"{path}.axis")
    size, strides, pads, dilation = window_sizes(param, path, 2)
    if size[0] * size[1] > MAX_WINDOW:
        raise UnsupportedFeature(
            f"a window of {size[0]} × {size[1]} elements: at most {MAX_WINDOW} are supported", field=path
        )
    if any(pads):
        x = importer.add(node, "ZeroPadding2D", [x], {"padding": plain(pads)}, part="padded")
    counts = [
        (length - (window - 1) * gap - 1) // stride + 1
        for length, window, gap, stride in zip(x.shape[2:], size, dilation, strides, strict=True)
    ]
    if min(counts) < 1:
        raise UnsupportedFeature(f"its window is larger than its input, {list(x.shape[2:])}", field=path)
    channels, parts = x.shape[1], []
    for offset in product(*map(range, size)):
        patch, name = x, "_".join(map(str, offset))
        for axis, (at, count, gap, stride) in enumerate(zip(offset, counts, dilation, strides, strict=True)):
            fields = {"axis": 2 + axis, "start": at * gap, "stop": at * gap + (count - 1) * stride + 1, "step": stride}
            patch = importer.add(node, "Slice", [patch], fields, part=f"{'rows' if axis == 0 else 'at'}_{name}")
        parts.append(importer.add(node, "ExpandDims", [patch], {"axis": 2}, part=f"part_{name}"))
    joined = importer.add(node, "Concatenate", parts, {"axis": 2}, part="parts") if len(parts) > 1 else parts[0]
    shape = [channels * len(parts), *counts]
    importer.set_top(node, importer.add(node, "Reshape", [joined], {"target_shape": shape}))

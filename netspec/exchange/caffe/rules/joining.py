"""Several inputs into one, one into several, and other shapes: Eltwise, Concat, Slice, Crop, Reshape and their like."""

from __future__ import annotations

from math import prod
from typing import Any

from netspec.exchange.caffe.registry import Unsupported, rule
from netspec.exchange.caffe.rules.weighted import flattened, plain
from netspec.exchange.caffe.sequences import last_step
from netspec.exchange.caffe.translate import Translator
from netspec.exchange.caffe.wiring import Node


@rule("Split")
def split(net: Translator, node: Node) -> None:
    """The same value under several names."""
    for index in range(len(node.layer["top"])):
        net.give(node, net.read(node), index)


@rule("Silence")
def silence(net: Translator, node: Node) -> None:
    """What nothing reads costs nothing."""


@rule("Eltwise")
def eltwise(net: Translator, node: Node) -> None:
    """Multiply, Add or WeightedSum, Maximum."""
    path = "eltwise_param"
    given, inputs = node.layer[path], [net.read(node, index) for index in range(len(node.bottoms))]
    coefficients = given["coeff"]
    if len({x.shape for x in inputs}) > 1:
        raise Unsupported(f"its inputs differ in size: {' and '.join(str(list(x.shape[1:])) for x in inputs)}")
    if coefficients and given["operation"] != "SUM":
        raise Unsupported("coefficients are for sums", f"{path}.coeff")
    if coefficients and len(coefficients) != len(inputs):
        raise Unsupported(f"{len(coefficients)} coefficients for {len(inputs)} inputs", f"{path}.coeff")
    if len(inputs) < 2:
        raise Unsupported("it has one input", "bottom")
    if any(one != 1 for one in coefficients):
        net.give(
            node, net.one(node, "WeightedSum", inputs, {"coefficients": [float(str(one)) for one in coefficients]})
        )
    else:
        net.give(node, net.one(node, {"PROD": "Multiply", "SUM": "Add", "MAX": "Maximum"}[given["operation"]], inputs))


@rule("Concat")
def concat(net: Translator, node: Node) -> None:
    """Concatenate."""
    inputs = [net.read(node, index) for index in range(len(node.bottoms))]
    axis = _axis(net, node, "concat_param", "concat_dim", len(inputs[0].shape))
    net.give(node, inputs[0] if len(inputs) == 1 else net.one(node, "Concatenate", inputs, {"axis": axis}))


@rule("Slice")
def slices(net: Translator, node: Node) -> None:
    """Split, of equal parts or at given places."""
    path = "slice_param"
    x, tops = net.read(node), len(node.layer["top"])
    axis = _axis(net, node, path, "slice_dim", len(x.shape))
    size, points = x.shape[axis], [int(one) for one in node.layer[path]["slice_point"]]
    if points and len(points) != tops - 1:
        raise Unsupported(f"{len(points)} places to cut at for {tops} parts", f"{path}.slice_point")
    ends = [*points, size]
    sizes = [end - start for start, end in zip([0, *points], ends, strict=True)]
    if points and min(sizes) < 1:
        raise Unsupported(f"it cannot be cut at {points}: the axis has {size}", f"{path}.slice_point")
    if not points and size % tops:
        raise Unsupported(f"{size} along axis {axis} cannot be cut into {tops} equal parts", path)
    if tops == 1:
        net.give(node, x)
        return
    equal = not points or len(set(sizes)) == 1
    parts = net.add(node, "Split", [x], {"sections": tops if equal else sizes, "axis": axis})
    for index, part in enumerate(parts):
        net.give(node, part, index)


def _axis(net: Translator, node: Node, path: str, older: str, rank: int) -> int:
    """The axis, which was called otherwise before."""
    name = older if older in node.layer[path] else "axis"
    return net.axis(node, f"{path}.{name}", rank, node.layer[path][name])


@rule("Crop")
def crop(net: Translator, node: Node) -> None:
    """Crop, to the size of the second input."""
    path = "crop_param"
    given, x, reference = node.layer[path], net.read(node), net.read(node, 1)
    offset = [int(one) for one in given["offset"]] or [0]
    axis = given["axis"]
    if axis in (0, -len(x.shape)) and offset[0] == 0:  # samples are as many in both
        axis, offset = 1, offset[1:] or offset
    axis = net.axis(node, f"{path}.axis", len(x.shape), axis)
    net.give(node, net.one(node, "Crop", [x, reference], {"axis": axis, "offset": plain(offset)}))


@rule("Tile")
def tile(net: Translator, node: Node) -> None:
    """Tile."""
    path = "tile_param"
    given, x = node.layer[path], net.read(node)
    axis = net.axis(node, f"{path}.axis", len(x.shape), given["axis"])
    net.give(node, net.one(node, "Tile", [x], {"tiles": given["tiles"], "axis": axis}))


@rule("BatchReindex")
def reindex(net: Translator, node: Node) -> None:
    """BatchReindex."""
    net.give(node, net.one(node, "BatchReindex", [net.read(node), net.read(node, 1)]))


@rule("Flatten")
def flatten(net: Translator, node: Node) -> None:
    """Flatten, or Reshape where only some axes are joined."""
    path = "flatten_param"
    given, x = node.layer[path], net.read(node)
    rank = len(x.shape)
    first = net.axis(node, f"{path}.axis", rank, given["axis"])
    last = net.axis(node, f"{path}.end_axis", rank, given["end_axis"])
    shape = x.shape
    if first >= last:
        net.give(node, x)
    elif first == 1 and last == rank - 1:
        net.give(node, net.one(node, "Flatten", [x]))
    else:
        target = [*shape[1:first], prod(shape[first : last + 1]), *shape[last + 1 :]]
        net.give(node, net.one(node, "Reshape", [x], {"target_shape": target}))


@rule("Reshape")
def reshape(net: Translator, node: Node) -> None:
    """Reshape of samples; axis 0 must stay what it is."""
    path = "reshape_param"
    given, x = node.layer[path], net.read(node)
    rank, dims = len(x.shape), [int(one) for one in given["shape"]["dim"]]
    if last_step(node) and x.shape[1] == 1 and node.key in net.sequences.layers:
        net.give(node, net.one(node, "Reshape", [x], {"target_shape": [*x.shape[2:]]}))
        return
    if node.key in net.sequences.layers:
        raise Unsupported("another shape of a sequence, whose samples are along axis 1", path)
    start = given["axis"] if given["axis"] >= 0 else rank + given["axis"] + 1
    count = given["num_axes"]
    end = rank if count == -1 else start + count
    if not 0 <= start <= end <= rank:
        raise Unsupported(f"there are no axes {start} to {end}: the input has {rank}", f"{path}.axis")
    if any(size < -1 for size in dims) or dims.count(-1) > 1:
        raise Unsupported(f"{dims} is no shape", f"{path}.shape")
    if any(size == 0 and start + place >= rank for place, size in enumerate(dims)):
        raise Unsupported("it keeps an axis that its input has not", f"{path}.shape")
    sizes = [x.shape[start + place] if size == 0 else size for place, size in enumerate(dims)]
    if start > 0:
        target = [*x.shape[1:start], *sizes, *x.shape[end:]]
    else:
        target = [*sizes[1:], *x.shape[end:]]
        whole, known = prod(x.shape[1:]), prod(size for size in target if size != -1)
        kept = bool(dims) and (dims[0] == 0 or whole == known or (-1 in target and dims[0] > 0 and whole % known == 0))
        if not kept:
            raise Unsupported("it changes axis 0, where the samples of a batch are", f"{path}.shape")
        if dims[0] > 0 and -1 in target:
            net.note(f"`{node.name}`: the {dims[0]} of axis 0 is taken for the number of samples")
    if not target:
        raise Unsupported("nothing but the batch is left", f"{path}.shape")
    net.give(node, net.one(node, "Reshape", [x], {"target_shape": target}))


@rule("Reduction")
def reduction(net: Translator, node: Node) -> None:
    """Reduction over all axes from one on, and a factor behind it."""
    path = "reduction_param"
    given, x = node.layer[path], net.read(node)
    rank = len(x.shape)
    axis = net.axis(node, f"{path}.axis", rank, given["axis"])
    fields: dict[str, Any] = {"operation": given["operation"].lower()}
    if axis > 1:
        fields["axes"] = list(range(axis, rank))
    made = net.one(node, "Reduction", [x], fields)
    if given["coeff"] != 1:
        made = net.one(node, "Power", [made], {"scale": given["coeff"]}, part="coeff")
    net.give(node, made)


@rule("ArgMax")
def arg_max(net: Translator, node: Node) -> None:
    """ArgMax along an axis, which stays, or over all of a sample: then (N, 1, k), or (N, 2, k) with the numbers."""
    path = "argmax_param"
    given, x = node.layer[path], net.read(node)
    top_k, values = given["top_k"], given["out_max_val"]
    if "axis" in given:
        axis = net.axis(node, f"{path}.axis", len(x.shape), given["axis"])
        fields = {"axis": axis, "keepdims": True, "top_k": top_k, "out_max_val": values}
        net.give(node, net.add(node, "ArgMax", [x], fields)[-1])
        return
    parts = net.add(
        node, "ArgMax", [flattened(net, node, x, 1)], {"keepdims": True, "top_k": top_k, "out_max_val": values}
    )
    rows = [
        net.one(node, "Reshape", [one], {"target_shape": [1, top_k]}, part=f"row{place}" if values else "row")
        for place, one in enumerate(parts)
    ]
    net.give(node, net.one(node, "Concatenate", rows, part="pairs") if values else rows[0])

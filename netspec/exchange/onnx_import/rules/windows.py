"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from netspec.exchange.onnx_import.model import Mixed, Node, Unsupported
from netspec.exchange.onnx_import.tensors import one_sample
from netspec.exchange.onnx_import.translate import Layer, Steps, Translator, rule


@rule("Conv")
def conv(net: Translator, node: Node) -> None:
    """Conv with a constant kernel (M, C/groups, sizes…) → Conv2D (or 1D, 3D), DepthwiseConv2D, SeparableConv2D."""
    kernel = net.constant(node.inputs[1], "kernel")
    size = list(kernel.shape[2:])
    rank = _rank(len(size), "a convolution")
    if node.attributes.get("kernel_shape", size) != size:
        raise Unsupported(f"its kernel is {size}, its attribute says {node.attributes['kernel_shape']}")
    dilation = _ints(node, "dilations", [1] * rank)
    fields: dict[str, Any] = {"filters": kernel.shape[0], "kernel_size": short(size)}
    fields |= _strides(node, [1] * rank) | _padding(net, node, size, dilation)
    if dilation != [1] * rank:
        fields["dilation_rate"] = short(dilation)
    groups = node.attributes["group"]
    arrays = {"kernel": kernel}
    if node.operand(2):
        arrays["bias"] = net.constant(node.operand(2), "bias")
    else:
        fields["use_bias"] = False
    if groups == net.shape(node.inputs[0])[1] > 1 and rank < 3 and kernel.shape[0] % groups == 0:
        del fields["filters"]
        multiplier = {"depth_multiplier": kernel.shape[0] // groups} if kernel.shape[0] != groups else {}
        net.sampled(node, f"DepthwiseConv{rank}D", node.inputs[:1], fields | multiplier, arrays)
        return
    before = net.host(node.inputs[0], node)
    if (
        groups == 1
        and before is not None
        and _is_half(before)
        and _as_sampled(net, node.inputs[0])
        and not fields.keys() - HALF
        and set(size) == {1}
    ):
        arrays["depthwise_kernel"] = before.arrays["kernel"]
        arrays["pointwise_kernel"] = arrays.pop("kernel")
        bias = {name: fields[name] for name in ("use_bias",) if name in fields}
        first = {name: value for name, value in before.fields.items() if name != "use_bias"}
        laid = net.held(node.inputs[0]).axes
        net.layers.remove(before)
        fields = {"filters": fields["filters"], **first, **bias}
        net.add(node, f"SeparableConv{rank}D", before.inputs, fields, arrays, laid=lambda rank: laid)
        return
    net.sampled(node, f"Conv{rank}D", node.inputs[:1], fields | ({"groups": groups} if groups != 1 else {}), arrays)


@rule("DeformConv")
def deform_conv(net: Translator, node: Node) -> None:
    """DeformConv of images with a constant kernel → DeformConv2D."""
    kernel = net.constant(node.inputs[1], "kernel")
    size, said = list(kernel.shape[2:]), node.attributes
    if len(size) != 2:
        raise Unsupported(f"a convolution beside its window over {len(size)} axes, not 2")
    dilation = _ints(node, "dilations", [1, 1])
    fields: dict[str, Any] = {"filters": kernel.shape[0], "kernel_size": short(size)} | _strides(node, [1, 1])
    fields |= _padding(net, node, size, dilation) | ({} if dilation == [1, 1] else {"dilation_rate": short(dilation)})
    fields |= {
        ours: said[name] for name, ours in (("group", "groups"), ("offset_group", "offset_groups")) if said[name] != 1
    }
    arrays = {"kernel": kernel}
    if node.operand(3):
        arrays["bias"] = net.constant(node.operand(3), "bias")
    else:
        fields["use_bias"] = False
    operands = [node.inputs[0], node.inputs[2], *filter(None, [node.operand(4)])]
    net.sampled(node, "DeformConv2D", operands, fields, arrays)


def _as_sampled(net: Translator, tensor: str) -> bool:
    """Whether a tensor lies as layers for images take it."""
    rank = net.rank(tensor)
    return net.held(tensor).axes == (one_sample(rank) if net.whole else net.in_order(rank))


HALF = {"filters", "kernel_size", "use_bias"}
"""Fields of a convolution that does no more than mix the channels at each place."""


def _is_half(layer: Layer) -> bool:
    """Whether a layer is a depthwise convolution and nothing else: what comes first in a separable one."""
    bare = layer.fields.get("use_bias") is False and "activation" not in layer.fields
    return layer.type.startswith("DepthwiseConv") and bare


@rule("ConvTranspose")
def conv_transpose(net: Translator, node: Node) -> None:
    """ConvTranspose with a constant kernel (C, M/groups, sizes…) → Conv2DTranspose, or 1D, 3D."""
    kernel = net.constant(node.inputs[1], "kernel")
    size = list(kernel.shape[2:])
    rank = _rank(len(size), "a transposed convolution")
    groups, dilation = node.attributes["group"], _ints(node, "dilations", [1] * rank)
    fields: dict[str, Any] = {"filters": kernel.shape[1] * groups, "kernel_size": short(size)}
    fields |= _strides(node, [1] * rank)
    sides, extra = _transposed_padding(node, size, dilation, net.shape(node.inputs[0])[2:])
    fields |= padding_field(sides)
    if any(extra) or "padding" not in fields:  # without padding the layer's default is another
        fields["output_padding"] = short(extra)
    if dilation != [1] * rank:
        fields["dilation_rate"] = short(dilation)
    if groups != 1:
        fields["groups"] = groups
    arrays = {"kernel": kernel}
    if node.operand(2):
        arrays["bias"] = net.constant(node.operand(2), "bias")
    else:
        fields["use_bias"] = False
    net.sampled(node, f"Conv{rank}DTranspose", node.inputs[:1], fields, arrays)


def _transposed_padding(
    node: Node, size: list[int], dilation: list[int], spatial: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Padding and further padding of the result, given or such that the result has the size wanted."""
    rank, auto = len(size), node.attributes.get("auto_pad", "NOTSET")
    strides, extra = _ints(node, "strides", [1] * rank), _ints(node, "output_padding", [0] * rank)
    if not len(strides) == len(extra) == len(dilation) == len(spatial) == rank or min(extra) < 0:
        raise Unsupported(f"windows over other than {rank} axes")
    wanted = _ints(node, "output_shape", [])[-rank:]
    grows = bool(wanted)  # a shape that is asked for is reached; what auto_pad wants is only ever cut down to
    if not wanted and auto.startswith("SAME"):
        wanted = [have * stride for have, stride in zip(spatial, strides, strict=True)]
    if not wanted:
        flat = _ints(node, "pads", [0] * (2 * rank)) if auto == "NOTSET" else [0] * (2 * rank)
        if len(flat) != 2 * rank or min(flat) < 0:
            raise Unsupported(f"padding {flat}")
        return list(zip(flat[:rank], flat[rank:], strict=True)), extra
    sides = []
    for axis, (have, want) in enumerate(zip(spatial, wanted, strict=True)):
        full = strides[axis] * (have - 1) + extra[axis] + (size[axis] - 1) * dilation[axis] + 1
        rest = max(0, full - want)
        extra[axis] += max(0, want - full) if grows else 0
        smaller = rest // 2
        sides.append((smaller, rest - smaller) if auto == "SAME_UPPER" else (rest - smaller, smaller))
    return sides, extra


@rule("LpPool", "GlobalLpPool")
def power_pool(net: Translator, node: Node) -> None:
    """The root of a sum of powers: the powers' mean, times how many there are."""
    import numpy as np

    power, steps = node.attributes.get("p", 2), Steps(net, node)
    if node.attributes.get("ceil_mode"):
        raise Unsupported("windows that reach beyond the end")
    x = node.inputs[0] if power % 2 == 0 else steps.of("Abs", node.inputs[0])
    x = x if power == 1 else steps.of("Pow", x, steps.constant(np.float32(power)))
    if node.op_type == "LpPool":
        count = prod(_ints(node, "kernel_shape", []))
        window = {name: value for name, value in node.attributes.items() if name not in ("p", "ceil_mode")}
        y = steps.of("AveragePool", x, count_include_pad=1, **window)
    else:
        count = prod(net.shape(node.inputs[0])[2:])
        y = steps.of("GlobalAveragePool", x)
    y = steps.of("Mul", y, steps.constant(np.float32(count)))
    if power != 1:
        steps.of("Pow", y, steps.constant(np.float32(1 / power)))
    steps.run()


@rule("MaxPool", "AveragePool", several=True)
def pool(net: Translator, node: Node) -> None:
    """MaxPool → MaxPooling2D, AveragePool → AveragePooling2D (or 1D, 3D); for the places of maxima ArgMaxPooling2D."""
    size = _ints(node, "kernel_shape", [])
    rank = _rank(len(size), "pooling")
    dilation = _ints(node, "dilations", [1] * rank)
    padding = _padding(net, node, size, dilation)
    if dilation != [1] * rank:
        padding["dilation_rate"] = short(dilation)
    if node.attributes.get("ceil_mode"):
        padding["ceil_mode"] = True
    if node.attributes.get("count_include_pad") and "padding" in padding:
        padding["count_include_pad"] = True
    strides = _strides(node, size, absent=[1] * rank)
    fields = ({} if size == [2] * rank else {"pool_size": short(size)}) | strides | padding
    places = node.outputs[1] if len(node.outputs) > 1 and net.is_read(node.outputs[1]) else ""
    if not places or net.is_read(node.outputs[0]):
        net.sampled(node, f"{node.op_type}ing{rank}D", node.inputs[:1], fields, outputs=node.outputs[:1])
    if places:
        _places(net, replace(node, outputs=(places,)), f"ArgMaxPooling{rank}D", fields)


def _places(net: Translator, node: Node, type_: str, fields: dict[str, Any]) -> None:
    """Where the maxima are: ONNX counts through the whole tensor, a net in each channel, which MaxUnpool takes too."""
    import numpy as np

    (places,), (x, *_), by_column = node.outputs, node.inputs, bool(node.attributes.get("storage_order"))
    readers = {one.op_type for one in net.model.nodes if places in (*one.inputs, *one.captured)}
    if readers == {"MaxUnpool"} and places not in net.model.outputs and not net.whole and not by_column:
        net.add(node, type_, [x], fields, outputs=[places])
        return
    if not net.whole:
        raise Mixed(f"its second result, `{places}`, counts places in the whole batch")
    held, shape = net.hide(places), net.shape(x)
    net.sampled(node, type_, [x], fields, outputs=[held])
    starts = np.arange(prod(shape[:2])).reshape(*shape[:2], *(1 for _ in shape[2:])) * prod(shape[2:])
    before = net.hide(places)
    net.constants[before] = starts
    counted = "x"
    if by_column:  # axes in the opposite order: the first counts single places
        first, *sizes = shape[2:]
        counted = f"quotient(x, {prod(sizes)})"
        for axis, size in enumerate(sizes):
            after = prod(sizes[axis + 1 :])
            inside = f"quotient(x, {after})" if after > 1 else "x"
            counted += f" + {inside} % {size} * {first * prod(sizes[:axis])}"
    net.each(node, "Expression", [held, before], {"expr": f"{counted} + y", "keep_types": True})


@rule("MaxUnpool")
def max_unpool(net: Translator, node: Node) -> None:
    """The layer of the same name, which finds the place in a channel in that of the whole tensor."""
    size = _ints(node, "kernel_shape", [])
    sides = _ints(node, "pads", [0] * (2 * len(size)))
    fields: dict[str, Any] = {"pool_size": size}
    strides = _ints(node, "strides", [1] * len(size))
    if strides != size:
        fields["strides"] = strides
    if any(sides):
        fields["padding"] = sides
    if node.operand(2):
        fields["output_size"] = net.constant(node.operand(2), "output_shape").tolist()[2:]
    net.add(node, "MaxUnpool", node.inputs[:2], fields)


@rule("GlobalAveragePool", "GlobalMaxPool")
def global_pool(net: Translator, node: Node) -> None:
    """Over all spatial axes, which stay with size 1."""
    rank = _rank(len(net.shape(node.inputs[0])) - 2, "pooling")
    net.sampled(node, f"{node.op_type}ing{rank}D", node.inputs[:1], {"keepdims": True})


def _rank(axes: int, what: str) -> int:
    """The number of spatial axes, which must be one that there are layers for."""
    if axes not in (1, 2, 3):
        raise Unsupported(f"{what} over {axes} axes, not 1 to 3")
    return axes


def short(numbers: Sequence[int]) -> int | list[int]:
    """One number for equal ones, as people write it."""
    return numbers[0] if len(set(numbers)) == 1 else list(numbers)


def _ints(node: Node, name: str, default: list[int]) -> list[int]:
    value = node.attributes.get(name, default)
    return list(value) if isinstance(value, (list, tuple)) else []


def _strides(node: Node, default: list[int], absent: list[int] | None = None) -> dict[str, Any]:
    strides = _ints(node, "strides", absent or default)
    if len(strides) != len(default):
        raise Unsupported(f"strides {strides}")
    return {} if strides == default else {"strides": short(strides)}


def _padding(net: Translator, node: Node, size: list[int], dilation: list[int]) -> dict[str, Any]:
    """The field `padding`, from explicit pads or `auto_pad`."""
    sides = geometry(node, size, net.shape(node.inputs[0])[2:], dilation)[1]
    return {"padding": "same"} if node.attributes.get("auto_pad") == "SAME_UPPER" else padding_field(sides)


def geometry(
    node: Node, size: list[int], spatial: Sequence[int], dilation: list[int] | None = None
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Strides, the padding at both sides of each axis, and dilations, of a window over these spatial axes."""
    rank = len(size)
    strides = _ints(node, "strides", [1] * rank)
    dilation = _ints(node, "dilations", [1] * rank) if dilation is None else dilation
    if not len(spatial) == len(strides) == len(dilation) == rank:
        raise Unsupported(f"windows over other than {rank} axes")
    auto = node.attributes.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        reach = [(window - 1) * step + 1 for window, step in zip(size, dilation, strict=True)]
        lower = [_same_lower(*sizes) for sizes in zip(spatial, reach, strides, strict=True)]
        return strides, lower if auto == "SAME_LOWER" else [(end, begin) for begin, end in lower], dilation
    flat = [0] * (2 * rank) if auto == "VALID" else _ints(node, "pads", [0] * (2 * rank))
    if len(flat) != 2 * rank or min(flat) < 0:
        raise Unsupported(f"padding {flat}")
    return strides, list(zip(flat[:rank], flat[rank:], strict=True)), dilation


def padding_field(pads: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The field `padding` as people write it; nothing where there is none."""
    if not any(map(any, pads)):
        return {}
    if all(begin == end for begin, end in pads):
        return {"padding": short([begin for begin, _ in pads])}
    sides = [list(side) for side in pads]
    return {"padding": sides[0] if len(sides) == 1 else sides}


def _same_lower(size: int, reach: int, stride: int) -> tuple[int, int]:
    total = max(0, (-(-size // stride) - 1) * stride + reach - size)
    return total - total // 2, total // 2

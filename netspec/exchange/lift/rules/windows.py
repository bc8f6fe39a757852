"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.axis_view import axes_of_single_sample
from netspec.exchange.lift.context import LiftContext
from netspec.exchange.lift.layers import LiftedLayer
from netspec.exchange.lift.nodes import Expansion
from netspec.exchange.lift.registry import rule
from netspec.exchange.net_yaml_writer import without_defaults
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import MixesSamples, UnsupportedFeature
from netspec.graph.ops.convolution import Conv
from netspec.graph.ops.window import Window


@rule("Conv")
def conv(ctx: LiftContext, node: OperatorNode) -> None:
    """Conv with a constant kernel (M, C/groups, sizes…) → Conv2D (or 1D, 3D), DepthwiseConv2D, SeparableConv2D."""
    kernel = ctx.tensors.constant(node.inputs[1], "kernel")
    size = list(kernel.shape[2:])
    rank = _rank(len(size), "a convolution")
    if node.attributes.get("kernel_shape", size) != size:
        raise UnsupportedFeature(
            f"its kernel has the size {size}, but `kernel_shape` is {node.attributes['kernel_shape']}"
        )
    fields: dict[str, Any] = {"filters": kernel.shape[0], "kernel_size": short(size)}
    fields |= _window_fields(ctx, node, size, [1] * rank)
    groups, arrays = node.attributes["group"], {"kernel": kernel}
    _set_bias(ctx, fields, arrays, node.operand(2))
    if groups == ctx.tensors.shape(node.inputs[0])[1] > 1 and rank < 3 and kernel.shape[0] % groups == 0:
        del fields["filters"]
        fields["depth_multiplier"] = kernel.shape[0] // groups
        ctx.reshaping.add_per_sample(node, f"DepthwiseConv{rank}D", node.inputs[:1], fields, arrays)
        return
    before = ctx.layers.fusable_producer(node.inputs[0], node)
    if (
        groups == 1
        and before is not None
        and _is_plain_depthwise(before)
        and _is_stored_as_images(ctx, node.inputs[0])
        and not without_defaults(f"Conv{rank}D", fields).keys() - POINTWISE_FIELDS
        and set(size) == {1}
    ):
        arrays["depthwise_kernel"] = before.arrays["kernel"]
        arrays["pointwise_kernel"] = arrays.pop("kernel")
        first = {name: value for name, value in before.fields.items() if name != "use_bias"}
        axes = ctx.tensors.view(node.inputs[0]).axes
        ctx.layers.written.remove(before)
        fields = {"filters": fields["filters"], **first, "use_bias": fields["use_bias"]}
        ctx.layers.add(node, f"SeparableConv{rank}D", before.inputs, fields, arrays, result_axes=lambda rank: axes)
        return
    ctx.reshaping.add_per_sample(node, f"Conv{rank}D", node.inputs[:1], {**fields, "groups": groups}, arrays)


def _set_bias(ctx: LiftContext, fields: dict[str, Any], arrays: dict[str, NDArray[Any]], bias: str) -> None:
    """Set the bias of a convolution and its field `use_bias`."""
    fields["use_bias"] = bool(bias)
    if bias:
        arrays["bias"] = ctx.tensors.constant(bias, "bias")


@rule("DeformConv")
def deform_conv(ctx: LiftContext, node: OperatorNode) -> None:
    """DeformConv of images with a constant kernel → DeformConv2D."""
    kernel = ctx.tensors.constant(node.inputs[1], "kernel")
    size, attributes = list(kernel.shape[2:]), node.attributes
    if len(size) != 2:
        raise UnsupportedFeature(f"only deformable convolutions over 2 axes are supported, not {len(size)}")
    fields: dict[str, Any] = {"filters": kernel.shape[0], "kernel_size": short(size)}
    fields |= _window_fields(ctx, node, size, [1, 1])
    fields |= {"groups": attributes["group"], "offset_groups": attributes["offset_group"]}
    arrays = {"kernel": kernel}
    _set_bias(ctx, fields, arrays, node.operand(3))
    operands = [node.inputs[0], node.inputs[2], *filter(None, [node.operand(4)])]
    ctx.reshaping.add_per_sample(node, "DeformConv2D", operands, fields, arrays)


def _is_stored_as_images(ctx: LiftContext, tensor: str) -> bool:
    """Whether a tensor is stored as layers of images read it: samples first, axes in order."""
    rank = ctx.tensors.rank(tensor)
    return ctx.tensors.view(tensor).axes == (
        axes_of_single_sample(rank) if ctx.tensors.single_sample else ctx.tensors.axes_in_order(rank)
    )


POINTWISE_FIELDS = {"filters", "kernel_size", "use_bias"}
"""Fields of a pointwise convolution, the second half of a separable one."""


def _is_plain_depthwise(layer: LiftedLayer) -> bool:
    """Whether a layer is a depthwise convolution without bias and activation, the first half of a separable one."""
    bare = layer.fields.get("use_bias") is False and "activation" not in layer.fields
    return layer.type.startswith("DepthwiseConv") and bare


@rule("ConvTranspose")
def conv_transpose(ctx: LiftContext, node: OperatorNode) -> None:
    """ConvTranspose with a constant kernel (C, M/groups, sizes…) → Conv2DTranspose, or 1D, 3D."""
    kernel = ctx.tensors.constant(node.inputs[1], "kernel")
    size = list(kernel.shape[2:])
    rank = _rank(len(size), "a transposed convolution")
    groups, dilation = node.attributes["group"], _ints(node, "dilations", [1] * rank)
    fields: dict[str, Any] = {"filters": kernel.shape[1] * groups, "kernel_size": short(size)}
    sides, extra = _transposed_padding(node, size, dilation, ctx.tensors.shape(node.inputs[0])[2:])
    strides = _ints(node, "strides", [1] * rank)
    fields |= {"strides": short(strides), "dilation_rate": short(dilation), "groups": groups, **padding_field(sides)}
    if any(extra) or "padding" not in fields:  # without padding, the layer's default is another size of the result
        fields["output_padding"] = short(extra)
    arrays = {"kernel": kernel}
    _set_bias(ctx, fields, arrays, node.operand(2))
    ctx.reshaping.add_per_sample(node, f"Conv{rank}DTranspose", node.inputs[:1], fields, arrays)


def _transposed_padding(
    node: OperatorNode, size: list[int], dilation: list[int], spatial: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Padding and output padding, from the attributes or from the requested size of the result."""
    rank, auto = len(size), node.attributes.get("auto_pad", "NOTSET")
    strides, extra = _ints(node, "strides", [1] * rank), _ints(node, "output_padding", [0] * rank)
    if not len(strides) == len(extra) == len(dilation) == len(spatial) == rank or min(extra) < 0:
        raise UnsupportedFeature(
            f"strides, dilations, output_padding and input must be for {rank} spatial axes, without negative values"
        )
    output_sizes = _ints(node, "output_shape", [])[-rank:]
    grows = bool(output_sizes)  # `output_shape` may enlarge the result, `auto_pad` only crops it
    if not output_sizes and auto.startswith("SAME"):
        output_sizes = [have * stride for have, stride in zip(spatial, strides, strict=True)]
    if not output_sizes:
        flat = _ints(node, "pads", [0] * (2 * rank)) if auto == "NOTSET" else [0] * (2 * rank)
        if len(flat) != 2 * rank or min(flat) < 0:
            raise UnsupportedFeature(f"its padding must be {2 * rank} values of 0 or more, got {flat}")
        return list(zip(flat[:rank], flat[rank:], strict=True)), extra
    sides = []
    for axis, (have, want) in enumerate(zip(spatial, output_sizes, strict=True)):
        full = strides[axis] * (have - 1) + extra[axis] + (size[axis] - 1) * dilation[axis] + 1
        surplus = max(0, full - want)
        extra[axis] += max(0, want - full) if grows else 0
        smaller = surplus // 2
        sides.append((smaller, surplus - smaller) if auto == "SAME_UPPER" else (surplus - smaller, smaller))
    return sides, extra


@rule("LpPool", "GlobalLpPool")
def power_pool(ctx: LiftContext, node: OperatorNode) -> None:
    """(Σ |x|ᵖ)^(1/p) over each window: the sum is the mean times the number of elements."""
    power, steps = node.attributes.get("p", 2), Expansion(ctx, node)
    if node.attributes.get("ceil_mode"):
        raise UnsupportedFeature("`ceil_mode` is not supported")
    x = node.inputs[0] if power % 2 == 0 else steps.node("Abs", node.inputs[0])
    x = x if power == 1 else steps.node("Pow", x, steps.number(power))
    if node.op_type == "LpPool":
        count = prod(_ints(node, "kernel_shape", []))
        window = {name: value for name, value in node.attributes.items() if name not in ("p", "ceil_mode")}
        y = steps.node("AveragePool", x, count_include_pad=1, **window)
    else:
        count = prod(ctx.tensors.shape(node.inputs[0])[2:])
        y = steps.node("GlobalAveragePool", x)
    y = steps.node("Mul", y, steps.number(count))
    if power != 1:
        steps.node("Pow", y, steps.number(1 / power))
    steps.lift()


@rule("MaxPool", "AveragePool", uses_all_results=True, keeps_type=True)
def pool(ctx: LiftContext, node: OperatorNode) -> None:
    """MaxPool → MaxPooling2D, AveragePool → AveragePooling2D (or 1D, 3D); indices of maxima → ArgMaxPooling2D."""
    size = _ints(node, "kernel_shape", [])
    rank = _rank(len(size), "pooling")
    fields = {"pool_size": short(size), "ceil_mode": bool(node.attributes.get("ceil_mode"))}
    fields |= _window_fields(ctx, node, size, size)
    if node.attributes.get("count_include_pad") and "padding" in fields:
        fields["count_include_pad"] = True
    indices = node.outputs[1] if len(node.outputs) > 1 and ctx.tensors.is_read(node.outputs[1]) else ""
    if not indices or ctx.tensors.is_read(node.outputs[0]):
        ctx.reshaping.add_per_sample(
            node, f"{node.op_type}ing{rank}D", node.inputs[:1], fields, outputs=node.outputs[:1]
        )
    if indices:
        _max_indices(ctx, replace(node, outputs=(indices,)), f"ArgMaxPooling{rank}D", fields)


def _max_indices(ctx: LiftContext, node: OperatorNode, type_: str, fields: dict[str, Any]) -> None:
    """Import indices of maxima: ONNX's are into the full tensor, those of netspec's layers into each channel."""
    (indices,), (x, *_), by_column = node.outputs, node.inputs, bool(node.attributes.get("storage_order"))
    readers = {node.op_type for node in ctx.model.nodes if indices in (*node.inputs, *node.captured)}
    if (
        readers == {"MaxUnpool"}
        and indices not in ctx.model.outputs
        and not ctx.tensors.single_sample
        and not by_column
    ):
        ctx.layers.add(node, type_, [x], fields, outputs=[indices])
        return
    if not ctx.tensors.single_sample:
        raise MixesSamples(f"its second output, `{indices}`, contains indices into the whole batch")
    argmax, shape = ctx.tensors.fresh_name(indices), ctx.tensors.shape(x)
    ctx.reshaping.add_per_sample(node, type_, [x], fields, outputs=[argmax])
    starts = np.arange(prod(shape[:2])).reshape(*shape[:2], *(1 for _ in shape[2:])) * prod(shape[2:])
    before = ctx.tensors.fresh_name(indices)
    ctx.tensors.constants[before] = starts
    counted = "x"
    if by_column:  # column-major: the first axis has stride 1
        first, *sizes = shape[2:]
        counted = f"quotient(x, {prod(sizes)})"
        for axis, size in enumerate(sizes):
            after = prod(sizes[axis + 1 :])
            inside = f"quotient(x, {after})" if after > 1 else "x"
            counted += f" + {inside} % {size} * {first * prod(sizes[:axis])}"
    ctx.layers.add_elementwise(node, "Expression", [argmax, before], {"expr": f"{counted} + y", "keep_types": True})


@rule("MaxUnpool")
def max_unpool(ctx: LiftContext, node: OperatorNode) -> None:
    """The layer of the same name, which converts indices into the whole tensor to indices into a channel."""
    size = _ints(node, "kernel_shape", [])
    sides = _ints(node, "pads", [0] * (2 * len(size)))
    strides = _ints(node, "strides", [1] * len(size))
    fields: dict[str, Any] = {"pool_size": size, "strides": None if strides == size else strides}
    if any(sides):
        fields["padding"] = sides
    if node.operand(2):
        fields["output_size"] = ctx.tensors.constant(node.operand(2), "output_shape").tolist()[2:]
    ctx.layers.add(node, "MaxUnpool", node.inputs[:2], fields)


@rule("GlobalAveragePool", "GlobalMaxPool", keeps_type=True)
def global_pool(ctx: LiftContext, node: OperatorNode) -> None:
    """Pool over all spatial axes, which keep size 1."""
    rank = _rank(len(ctx.tensors.shape(node.inputs[0])) - 2, "pooling")
    ctx.reshaping.add_per_sample(node, f"{node.op_type}ing{rank}D", node.inputs[:1], {"keepdims": True})


def _rank(axes: int, operation: str) -> int:
    """The number of spatial axes. Raises `UnsupportedFeature` unless it is 1 to 3."""
    if axes not in (1, 2, 3):
        raise UnsupportedFeature(f"{operation} over {axes} spatial axes is not supported, only over 1 to 3")
    return axes


def short(numbers: Sequence[int]) -> int | list[int]:
    """A single number if all are equal, as people write it."""
    return numbers[0] if len(set(numbers)) == 1 else list(numbers)


def _ints(node: OperatorNode, name: str, default: list[int]) -> list[int]:
    value = node.attributes.get(name, default)
    return list(value) if isinstance(value, (list, tuple)) else []


def _window_fields(ctx: LiftContext, node: OperatorNode, size: list[int], strides: list[int]) -> dict[str, Any]:
    """Strides, padding and dilation as fields of a layer, whose default strides are `strides`."""
    window = window_of(node, size, ctx.tensors.shape(node.inputs[0])[2:])
    fields: dict[str, Any] = {} if list(window.strides) == strides else {"strides": short(window.strides)}
    fields |= {"padding": "same"} if node.attributes.get("auto_pad") == "SAME_UPPER" else padding_field(window.pads)
    return fields | {"dilation_rate": short(window.dilation)}


def window_of(node: OperatorNode, size: list[int], spatial: Sequence[int]) -> Window:
    """The window of a node over spatial axes of these sizes, decoded as for Conv; `auto_pad` becomes padding."""
    rank, auto = len(size), node.attributes.get("auto_pad", "NOTSET")
    strides, dilation = (_ints(node, name, [1] * rank) for name in ("strides", "dilations"))
    if not len(spatial) == len(strides) == len(dilation) == rank:
        raise UnsupportedFeature(f"strides, dilations and input must be for {rank} spatial axes, as the kernel is")
    pads = _ints(node, "pads", [0] * (2 * rank)) if auto == "NOTSET" else [0] * (2 * rank)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        reach = [(window - 1) * step + 1 for window, step in zip(size, dilation, strict=True)]
        sizes = zip(spatial, strides, reach, strict=True)
        totals = [max(0, (-(-have // stride) - 1) * stride + window - have) for have, stride, window in sizes]
        smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = smaller + larger if auto == "SAME_UPPER" else larger + smaller
    if len(pads) != 2 * rank or min(pads) < 0:
        raise UnsupportedFeature(f"its padding must be {2 * rank} values of 0 or more, got {pads}")
    attributes = {"kernel_shape": size, "strides": strides, "pads": pads, "dilations": dilation, "group": 1}
    return replace(node, attributes=attributes).as_op(Conv).window


def padding_field(pads: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The field `padding` in its shortest form; empty without padding."""
    if not any(map(any, pads)):
        return {}
    if all(begin == end for begin, end in pads):
        return {"padding": short([begin for begin, _ in pads])}
    sides = [list(side) for side in pads]
    return {"padding": sides[0] if len(sides) == 1 else sides}

"""ONNX's operators with windows, and quantized ones, as operations of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.exporting.model import OPS_NN
from netspec.exchange.formats.keras.exporting.operators import (
    EmittedTensor,
    OperationWriter,
    as_constant,
    as_float,
    as_integers,
    as_tensor,
    minus_zero_point,
    one_hot_vectors,
    operator,
    reduced,
)
from netspec.exchange.formats.keras.exporting.shape_ops import sample_indices
from netspec.exchange.formats.keras.exporting.spatial import SMALLEST_FLOAT
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature

MAX_WINDOW_SIZE = 128
"""Largest window whose elements are read by separate operations."""


def _sides(node: OperatorNode, rank: int) -> list[list[int]]:
    pads = [int(pad) for pad in node.attributes.get("pads", [0] * 2 * rank)]
    return [[pad_before, pad_after] for pad_before, pad_after in zip(pads[:rank], pads[rank:], strict=True)]


def _per_axis(node: OperatorNode, name: str, rank: int) -> list[int]:
    return [int(value) for value in node.attributes.get(name, [1] * rank)]


def _steps(node: OperatorNode, rank: int) -> tuple[list[list[int]], list[int], list[int]]:
    """Padding, strides and dilations of an operator with windows."""
    return _sides(node, rank), _per_axis(node, "strides", rank), _per_axis(node, "dilations", rank)


def _window_geometry(
    x: EmittedTensor, node: OperatorNode
) -> tuple[list[int], list[list[int]], list[int], list[int], list[int]]:
    """Size, padding, strides and dilation of a window, and the number of windows along each axis."""
    window = [int(size) for size in node.attributes["kernel_shape"]]
    rank = len(window)
    padding, strides, dilations = _steps(node, rank)
    counts = []
    for axis in range(rank):
        free = x.shape[2 + axis] + sum(padding[axis]) - (window[axis] - 1) * dilations[axis] - 1
        count = (-(-free // strides[axis]) if node.attributes.get("ceil_mode") else free // strides[axis]) + 1
        if (count - 1) * strides[axis] >= x.shape[2 + axis] + padding[axis][0]:
            count -= 1  # a window that would begin after the data
        counts.append(count)
    return window, padding, strides, dilations, counts


def _window_elements(
    ops: OperationWriter, node: OperatorNode, x: EmittedTensor, value: float
) -> tuple[list[EmittedTensor], list[Any]]:
    """For each element of a window, its values in all windows, and their indices in the data."""
    window, padding, strides, dilations, counts = _window_geometry(x, node)
    if prod(window) > MAX_WINDOW_SIZE:
        raise UnsupportedFeature(
            f"its window has more than {MAX_WINDOW_SIZE} elements, each of which needs operations in Keras"
        )
    rank = len(window)
    covered_sizes = [
        (count - 1) * stride + (size - 1) * dilation + 1
        for count, stride, size, dilation in zip(counts, strides, window, dilations, strict=True)
    ]
    padding_after = [max(0, end - x.shape[2 + axis] - padding[axis][0]) for axis, end in enumerate(covered_sizes)]
    pad_width = [[0, 0], [0, 0], *[[padding[axis][0], padding_after[axis]] for axis in range(rank)]]
    sizes = [size + sum(pads) for size, pads in zip(x.shape, pad_width, strict=True)]
    if any(map(any, pad_width)):
        x = ops.op("Pad", [x], sizes, pad_width=pad_width, mode="constant", kwargs={"constant_values": value})
    elements, positions = [], []
    for window_index in product(*map(range, window)):
        starts = [position * dilation for position, dilation in zip(window_index, dilations, strict=True)]
        key = [slice(None), slice(None)]
        key += [slice(start, start + (count - 1) * stride + 1, stride if stride > 1 else None)
                for start, count, stride in zip(starts, counts, strides, strict=True)]  # fmt: skip
        elements.append(ops.op("GetItem", [x, key], [*x.shape[:2], *counts]))
        coordinates = [np.arange(count) * stride + start - pads[0]
                 for count, stride, start, pads in zip(counts, strides, starts, padding, strict=True)]  # fmt: skip
        positions.append(np.stack(np.meshgrid(*coordinates, indexing="ij")))
    return elements, positions


@operator("MaxPool")
def max_pool(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The maximum of each window, and its flat index in the data."""
    x = as_tensor(operands[0])
    elements, positions = _window_elements(ops, node, x, SMALLEST_FLOAT)
    shape = elements[0].shape
    if len(node.outputs) == 1:
        largest = elements[0]
        for element in elements[1:]:
            largest = ops.elementwise("Maximum", largest, element)
        return largest
    stacked = ops.op("Stack", [list(elements)], [*shape, len(elements)], axis=len(shape))
    chosen = ops.op("Argmax", [stacked], shape, "int32", axis=len(shape), keepdims=False)
    largest = ops.op("Max", [stacked], shape, axis=len(shape), keepdims=False)
    spatial_shape = x.shape[2:]
    steps = [prod(spatial_shape[axis + 1 :]) for axis in range(len(spatial_shape))]
    flat = np.stack([np.tensordot(steps, position, 1) for position in positions], -1)  # (out…, elements)
    is_largest = one_hot_vectors(ops, chosen, len(elements), len(shape), "int32")
    product_ = ops.elementwise("Multiply", is_largest, flat[None, None].astype("int32"))
    indices = ops.op("Sum", [product_], shape, axis=len(shape), keepdims=False)
    indices = ops.cast(indices, "int64")
    channel_size = prod(spatial_shape)
    if all(
        _subtracts_offset(ops, reader, channel_size) for reader in ops.graph.nodes if node.outputs[1] in reader.inputs
    ):
        return largest, indices  # subtract the offset of its channel and sample
    channel_offsets = (np.arange(x.shape[1]) * channel_size).reshape(1, -1, *[1] * len(spatial_shape))
    sample_offsets = ops.cast(sample_indices(ops, x, len(shape)), "int64")
    sample_offsets = ops.elementwise("Multiply", sample_offsets, np.array(channel_size * x.shape[1], "int64"))
    return largest, ops.elementwise("Add", ops.elementwise("Add", indices, channel_offsets), sample_offsets)


def _subtracts_offset(ops: OperationWriter, reader: OperatorNode, size: int) -> bool:
    """Whether an operator subtracts offsets of channels of this size."""
    divisor = ops.graph.constants.get(reader.inputs[-1])
    return reader.op_type == "Mod" and divisor is not None and divisor.size == 1 and divisor.item() == size


@operator("AveragePool")
def average_pool(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The mean of each window, without excluded elements."""
    x = as_tensor(operands[0])
    elements, positions = _window_elements(ops, node, x, 0.0)
    total = elements[0]
    for element in elements[1:]:
        total = ops.elementwise("Add", total, element)
    counts_padding = bool(node.attributes.get("count_include_pad"))
    padding = _sides(node, len(x.shape) - 2)
    bounds = [(-pad_before if counts_padding else 0, size + (pad_after if counts_padding else 0))
              for (pad_before, pad_after), size in zip(padding, x.shape[2:], strict=True)]  # fmt: skip
    counts = np.zeros(())
    for position in positions:
        inside = [(low <= at) & (at < high) for at, (low, high) in zip(position, bounds, strict=True)]
        counts = counts + np.all(inside, axis=0)
    return ops.elementwise("TrueDivide", total, np.asarray(counts, "float32")[None, None])


@operator("LRN")
def local_response(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """LRN: x / (bias + alpha · mean of squares of neighboring channels) ^ beta, by a pooling along the channels."""
    x, attributes = as_tensor(operands[0]), node.attributes
    size, channels = int(attributes["size"]), x.shape[1]
    squares = ops.reshaped(ops.elementwise("Square", x), (x.shape[0], channels, prod(x.shape[2:])))
    channels_before = (size - 1) // 2
    pad_width = [[0, 0], [channels_before, size - 1 - channels_before], [0, 0]]
    padded = ops.op(
        "Pad", [squares], (x.shape[0], channels + size - 1, squares.shape[2]), pad_width=pad_width, mode="constant",
        kwargs={"constant_values": 0.0},
    )  # fmt: skip
    mean = ops.op("AveragePool", [padded], squares.shape, module=OPS_NN, pool_size=size, strides=1, padding="valid",
                  data_format="channels_last")  # fmt: skip
    coefficients = [
        np.array(attributes.get(name, default), "float32")
        for name, default in (("alpha", 1e-4), ("bias", 1.0), ("beta", 0.75))
    ]
    alpha, bias, beta = coefficients
    denominator = ops.elementwise("Power", ops.elementwise("Add", ops.elementwise("Multiply", mean, alpha), bias), beta)
    return ops.elementwise("TrueDivide", x, ops.reshaped(denominator, x.shape))


@operator("InstanceNormalization")
def instance_normalization(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """InstanceNormalization."""
    x, scale, bias = operands
    axes, vector_shape = list(range(2, len(x.shape))), [1, -1, *[1] * (len(x.shape) - 2)]
    normalized = _standardize(ops, as_tensor(x), axes, float(node.attributes.get("epsilon", 1e-5)))
    return ops.elementwise(
        "Add",
        ops.elementwise("Multiply", normalized, as_constant(scale).reshape(vector_shape)),
        as_constant(bias).reshape(vector_shape),
    )


@operator("LayerNormalization")
def layer_normalization(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """LayerNormalization."""
    x, scale, bias = [*operands, None][:3]
    axes = list(range(int(node.attributes.get("axis", -1)) % len(x.shape), len(x.shape)))
    normalized = _standardize(ops, as_tensor(x), axes, float(node.attributes.get("epsilon", 1e-5)))
    normalized = ops.elementwise("Multiply", normalized, scale)
    return normalized if bias is None else ops.elementwise("Add", normalized, bias)


@operator("BatchNormalization")
def batch_normalization(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """BatchNormalization by statistics that are operands."""
    x, *vectors = operands
    vector_shape = (1, x.shape[1], *[1] * (len(x.shape) - 2))
    scale, bias, mean, variance = (
        ops.reshaped(vector, vector_shape)
        if isinstance(vector, EmittedTensor)
        else as_constant(vector).reshape(vector_shape)
        for vector in vectors
    )
    epsilon = np.array(node.attributes.get("epsilon", 1e-5), "float32")
    factor = ops.elementwise("TrueDivide", scale, ops.elementwise("Sqrt", ops.elementwise("Add", variance, epsilon)))
    shift = ops.elementwise("Subtract", bias, ops.elementwise("Multiply", mean, factor))
    return ops.elementwise("Add", ops.elementwise("Multiply", x, factor), shift)


def _standardize(ops: OperationWriter, x: EmittedTensor, axes: Sequence[int], epsilon: float) -> Any:
    """Normalize along axes to mean 0 and variance 1."""
    centered = ops.elementwise("Subtract", x, reduced(ops, "Mean", x, axes))
    variance = reduced(ops, "Mean", ops.elementwise("Square", centered), axes)
    deviation = ops.elementwise("Sqrt", ops.elementwise("Add", variance, np.array(epsilon, "float32")))
    return ops.elementwise("TrueDivide", centered, deviation)


# Convolutions


def _channels_last(ops: OperationWriter, x: EmittedTensor) -> EmittedTensor:
    return ops.transposed(x, [0, *range(2, len(x.shape)), 1])


def _channels_first(ops: OperationWriter, x: EmittedTensor) -> EmittedTensor:
    return ops.transposed(x, [0, len(x.shape) - 1, *range(1, len(x.shape) - 1)])


@operator("Conv")
def convolve(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Convolution with channels last and constant weights; padding is an operation before it."""
    x, kernel, bias = [*operands, None][:3]
    x, kernel = as_tensor(x), as_constant(kernel)
    rank = kernel.ndim - 2
    padding, strides, dilations = _steps(node, rank)
    images = _channels_last(ops, x)
    pad_width = [[0, 0], *padding, [0, 0]]
    sizes = [size + sum(pads) for size, pads in zip(images.shape, pad_width, strict=True)]
    if any(map(any, padding)):
        images = ops.op("Pad", [images], sizes, pad_width=pad_width, mode="constant", kwargs={"constant_values": 0.0})
    out = [(size - (window - 1) * dilation - 1) // stride + 1
           for size, window, dilation, stride
           in zip(sizes[1:-1], kernel.shape[2:], dilations, strides, strict=True)]  # fmt: skip
    groups = images.shape[-1] // kernel.shape[1]
    group_outputs = []
    for group, weights in enumerate(np.split(kernel, groups)):
        group_channels = slice(group * kernel.shape[1], (group + 1) * kernel.shape[1])
        group_input = images if groups == 1 else ops.sliced(images, len(images.shape) - 1, group_channels)
        group_outputs.append(ops.op(
            "Conv", [group_input, weights.transpose(*range(2, kernel.ndim), 1, 0)], [x.shape[0], *out, len(weights)],
            module=OPS_NN, strides=strides, padding="valid", data_format="channels_last", dilation_rate=dilations,
        ))  # fmt: skip
    shape = [x.shape[0], *out, kernel.shape[0]]
    result = group_outputs[0] if groups == 1 else ops.op("Concatenate", [group_outputs], shape, axis=len(shape) - 1)
    return _channels_first(ops, result if bias is None else ops.elementwise("Add", result, as_constant(bias)))


@operator("ConvInteger")
def integer_convolve(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Products of integers minus their zero points, in floats, which are exact up to 2^24."""
    x, kernel, zero_point, kernel_zero_point = [*operands, None, None][:4]
    if kernel_zero_point is not None and kernel_zero_point.shape:
        kernel_zero_point = as_constant(kernel_zero_point).reshape(-1, *[1] * (len(kernel.shape) - 1))
    result = convolve(
        ops, node, [minus_zero_point(ops, x, zero_point), minus_zero_point(ops, kernel, kernel_zero_point)]
    )
    return ops.cast(as_tensor(result), "int32")


@operator("Col2Im")
def col2im(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Col2Im: windows added up to an image, which has two axes in Keras; padding is cropped after it."""
    x, size, window = as_tensor(operands[0]), as_integers(operands[1]), as_integers(operands[2])
    if len(window) > 2:
        raise UnsupportedFeature("Keras adds up windows of two axes")
    rank = len(window)
    padding = _sides(node, rank)
    padded_sizes = [extent + sum(pads) for extent, pads in zip(size, padding, strict=True)]
    unit_axes = [1] * (2 - rank)
    channels = x.shape[1] // prod(window)
    image = ops.op(
        "Fold", [x], [x.shape[0], channels, *unit_axes, *padded_sizes], module=OPS_NN,
        output_size=[*unit_axes, *padded_sizes],
        kernel_size=[*unit_axes, *window], dilation=[*unit_axes, *_per_axis(node, "dilations", rank)], padding=0,
        stride=[*unit_axes, *_per_axis(node, "strides", rank)],
    )  # fmt: skip
    image = ops.reshaped(image, [x.shape[0], channels, *padded_sizes])
    for axis, (pad_before, _) in enumerate(padding):
        if padded_sizes[axis] != size[axis]:
            image = ops.sliced(image, 2 + axis, slice(pad_before, pad_before + size[axis]))
    return image


# Quantization


def _broadcastable(x: Any, vector: Any, axis: int) -> Any:
    """A vector along an axis, in a shape that broadcasts with the tensor."""
    if isinstance(vector, EmittedTensor) or vector.ndim != 1 or vector.size == 1:
        return vector
    return vector.reshape([-1 if other_axis == axis % len(x.shape) else 1 for other_axis in range(len(x.shape))])


@operator("QuantizeLinear")
def quantize(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """round(x / scale) + zero point, clipped to the type."""
    x, scale, zero_point = [*operands, None][:3]
    axis = int(node.attributes.get("axis", 1))
    element = "uint8" if zero_point is None else str(zero_point.dtype)
    result = ops.elementwise("Round", ops.elementwise("TrueDivide", as_tensor(x), _broadcastable(x, scale, axis)))
    if zero_point is not None:
        result = ops.elementwise("Add", result, _broadcastable(x, as_float(ops, zero_point), axis))
    limits = np.iinfo(element)
    for kind, limit in (("Maximum", limits.min), ("Minimum", limits.max)):
        result = ops.elementwise(kind, result, np.array(limit, "float32"))
    return ops.cast(result, element)


@operator("DequantizeLinear")
def dequantize(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """(x - zero point) · scale."""
    x, scale, zero_point = [*operands, None][:3]
    axis = int(node.attributes.get("axis", 1))
    result = as_float(ops, x)
    if zero_point is not None:
        result = ops.elementwise("Subtract", result, _broadcastable(x, as_float(ops, zero_point), axis))
    return ops.elementwise("Multiply", result, _broadcastable(x, scale, axis))

"""ONNX's operators with windows, and quantized ones, as operations of Keras."""

from __future__ import annotations

from collections.abc import Sequence
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
from netspec.graph.ops.window import Window

MAX_WINDOW_SIZE = 128
"""Largest window whose elements are read by separate operations."""


def _window(node: OperatorNode, size: Sequence[int]) -> Window:
    """The window of this size that an operator moves over its data."""
    rank = len(size)
    pads = node.attributes.get("pads", [0] * 2 * rank)
    strides, dilation = (tuple(node.attributes.get(name, [1] * rank)) for name in ("strides", "dilations"))
    return Window(tuple(size), strides, tuple(zip(pads[:rank], pads[rank:], strict=True)), dilation)


def _padded(ops: OperationWriter, x: EmittedTensor, pads: Sequence[Sequence[int]], value: float) -> EmittedTensor:
    if not any(map(any, pads)):
        return x
    sizes = [size + sum(sides) for size, sides in zip(x.shape, pads, strict=True)]
    return ops.op("Pad", [x], sizes, pad_width=pads, mode="constant", kwargs={"constant_values": value})


def _window_elements(
    ops: OperationWriter, x: EmittedTensor, window: Window, value: float
) -> tuple[list[EmittedTensor], list[Any]]:
    """For each position within a window, the elements there of all windows, and their indices in the data."""
    if prod(window.size) > MAX_WINDOW_SIZE:
        raise UnsupportedFeature(
            f"its window has more than {MAX_WINDOW_SIZE} elements, each of which needs operations in Keras"
        )
    counts = window.out(x.shape[2:])
    x = _padded(ops, x, [(0, 0), (0, 0), *window.pads], value)
    elements, positions = [], []
    for _, visited in window.offsets(counts):
        elements.append(ops.op("GetItem", [x, list(visited)], [*x.shape[:2], *counts]))
        coordinates = [
            np.arange(part.start, part.stop, part.step) - before
            for part, (before, _) in zip(visited[2:], window.pads, strict=True)
        ]
        positions.append(np.stack(np.meshgrid(*coordinates, indexing="ij")))
    return elements, positions


@operator("MaxPool")
def max_pool(ops: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The maximum of each window, and its flat index in the data."""
    x, window = as_tensor(operands[0]), _window(node, node.attributes["kernel_shape"])
    elements, positions = _window_elements(ops, x, window, SMALLEST_FLOAT)
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
    x, window = as_tensor(operands[0]), _window(node, node.attributes["kernel_shape"])
    elements, positions = _window_elements(ops, x, window, 0.0)
    total = elements[0]
    for element in elements[1:]:
        total = ops.elementwise("Add", total, element)
    counts_padding = bool(node.attributes.get("count_include_pad"))
    bounds = [(-pad_before if counts_padding else 0, size + (pad_after if counts_padding else 0))
              for (pad_before, pad_after), size in zip(window.pads, x.shape[2:], strict=True)]  # fmt: skip
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
    padded = _padded(ops, squares, pad_width, 0.0)
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
    window = _window(node, kernel.shape[2:])
    out = window.out(x.shape[2:])
    images = _padded(ops, _channels_last(ops, x), [(0, 0), *window.pads, (0, 0)], 0.0)
    groups = images.shape[-1] // kernel.shape[1]
    group_outputs = []
    for group, weights in enumerate(np.split(kernel, groups)):
        group_channels = slice(group * kernel.shape[1], (group + 1) * kernel.shape[1])
        group_input = images if groups == 1 else ops.sliced(images, len(images.shape) - 1, group_channels)
        group_outputs.append(ops.op(
            "Conv", [group_input, weights.transpose(*range(2, kernel.ndim), 1, 0)], [x.shape[0], *out, len(weights)],
            module=OPS_NN, strides=window.strides, padding="valid", data_format="channels_last",
            dilation_rate=window.dilation,
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
    x, size, window = as_tensor(operands[0]), as_integers(operands[1]), _window(node, as_integers(operands[2]))
    if len(size) > 2:
        raise UnsupportedFeature("Keras folds windows over at most two axes")
    padded_sizes = [extent + sum(pads) for extent, pads in zip(size, window.pads, strict=True)]
    unit_axes = [1] * (2 - len(size))
    channels = x.shape[1] // prod(window.size)
    image = ops.op(
        "Fold", [x], [x.shape[0], channels, *unit_axes, *padded_sizes], module=OPS_NN,
        output_size=[*unit_axes, *padded_sizes],
        kernel_size=[*unit_axes, *window.size], dilation=[*unit_axes, *window.dilation], padding=0,
        stride=[*unit_axes, *window.strides],
    )  # fmt: skip
    image = ops.reshaped(image, [x.shape[0], channels, *padded_sizes])
    for axis, (pad_before, _) in enumerate(window.pads):
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

"""ONNX's operators with windows, and quantized ones, as operations of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from netspec.exchange.formats.keras.exporting.model import OPS_NN
from netspec.exchange.formats.keras.exporting.operators import (
    EmittedTensor,
    OperationWriter,
    as_float,
    joined,
    known,
    less,
    operator,
    reduced,
    tensor,
    told,
    whole,
)
from netspec.exchange.formats.keras.exporting.shape_ops import samples
from netspec.exchange.formats.keras.exporting.spatial import LEAST
from netspec.exchange.operator_graph.graph import OperatorNode
from netspec.exchange.unsupported import UnsupportedFeature

MOST_PLACES = 128
"""Largest size of a window whose elements are handled one by one."""


def _sides(node: OperatorNode, rank: int) -> list[list[int]]:
    pads = [int(pad) for pad in node.attributes.get("pads", [0] * 2 * rank)]
    return [[before, behind] for before, behind in zip(pads[:rank], pads[rank:], strict=True)]


def _each(node: OperatorNode, name: str, rank: int) -> list[int]:
    return [int(number) for number in node.attributes.get(name, [1] * rank)]


def _reach(x: EmittedTensor, node: OperatorNode) -> tuple[list[int], list[list[int]], list[int], list[int], list[int]]:
    """Size, padding, strides and dilation of a window, and the number of windows along each axis."""
    window = [int(size) for size in node.attributes["kernel_shape"]]
    rank = len(window)
    sides, steps, gaps = _sides(node, rank), _each(node, "strides", rank), _each(node, "dilations", rank)
    counts = []
    for axis in range(rank):
        room = x.shape[2 + axis] + sum(sides[axis]) - (window[axis] - 1) * gaps[axis] - 1
        count = (-(-room // steps[axis]) if node.attributes.get("ceil_mode") else room // steps[axis]) + 1
        if (count - 1) * steps[axis] >= x.shape[2 + axis] + sides[axis][0]:
            count -= 1  # a window that would begin after the data
        counts.append(count)
    return window, sides, steps, gaps, counts


def _windows(
    low: OperationWriter, node: OperatorNode, x: EmittedTensor, value: float
) -> tuple[list[EmittedTensor], list[Any]]:
    """For each element of a window, its values in all windows, and their indices in the data."""
    import numpy as np

    window, sides, steps, gaps, counts = _reach(x, node)
    if prod(window) > MOST_PLACES:
        raise UnsupportedFeature(
            f"its window has more than {MOST_PLACES} elements, each of which needs operations in Keras"
        )
    rank = len(window)
    ends = [
        (count - 1) * step + (size - 1) * gap + 1
        for count, step, size, gap in zip(counts, steps, window, gaps, strict=True)
    ]
    more = [max(0, end - x.shape[2 + axis] - sides[axis][0]) for axis, end in enumerate(ends)]
    width = [[0, 0], [0, 0], *[[sides[axis][0], more[axis]] for axis in range(rank)]]
    sizes = [size + sum(side) for size, side in zip(x.shape, width, strict=True)]
    if any(map(any, width)):
        x = low.op("Pad", [x], sizes, pad_width=width, mode="constant", kwargs={"constant_values": value})
    found, places = [], []
    for at in product(*map(range, window)):
        starts = [position * gap for position, gap in zip(at, gaps, strict=True)]
        key = [slice(None), slice(None)]
        key += [slice(start, start + (count - 1) * step + 1, step if step > 1 else None)
                for start, count, step in zip(starts, counts, steps, strict=True)]  # fmt: skip
        found.append(low.op("GetItem", [x, key], [*x.shape[:2], *counts]))
        where = [np.arange(count) * step + start - side[0]
                 for count, step, start, side in zip(counts, steps, starts, sides, strict=True)]  # fmt: skip
        places.append(np.stack(np.meshgrid(*where, indexing="ij")))
    return found, places


@operator("MaxPool")
def max_pool(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The maximum of each window, and its flat index in the data."""
    import numpy as np

    x = tensor(operands[0])
    found, places = _windows(low, node, x, LEAST)
    shape = found[0].shape
    if len(node.outputs) == 1:
        largest = found[0]
        for one in found[1:]:
            largest = joined(low, "Maximum", [largest, one])
        return largest
    stacked = low.op("Stack", [list(found)], [*shape, len(found)], axis=len(shape))
    chosen = low.op("Argmax", [stacked], shape, "int32", axis=len(shape), keepdims=False)
    largest = low.op("Max", [stacked], shape, axis=len(shape), keepdims=False)
    inner = x.shape[2:]
    steps = [prod(inner[axis + 1 :]) for axis in range(len(inner))]
    flat = np.stack([np.tensordot(steps, position, 1) for position in places], -1)  # (out…, elements)
    index = told(low, chosen, len(found), len(shape), "int32")
    product_ = joined(low, "Multiply", [index, flat[None, None].astype("int32")])
    at = low.op("Sum", [product_], shape, axis=len(shape), keepdims=False)
    at = low.cast(at, "int64")
    per = prod(inner)
    if all(_is_within(low, reader, per) for reader in low.graph.nodes if node.outputs[1] in reader.inputs):
        return largest, at  # subtract the offset of its channel and sample
    before = (np.arange(x.shape[1]) * per).reshape(1, -1, *[1] * len(inner))
    batch = low.cast(samples(low, x, len(shape)), "int64")
    batch = joined(low, "Multiply", [batch, np.array(per * x.shape[1], "int64")])
    return largest, joined(low, "Add", [joined(low, "Add", [at, before]), batch])


def _is_within(low: OperationWriter, reader: OperatorNode, size: int) -> bool:
    """Whether an operator subtracts offsets of channels of this size."""
    by = low.graph.constants.get(reader.inputs[-1])
    return reader.op_type == "Mod" and by is not None and by.size == 1 and by.item() == size


@operator("AveragePool")
def average_pool(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """The mean of each window, without excluded elements."""
    import numpy as np

    x = tensor(operands[0])
    found, places = _windows(low, node, x, 0.0)
    total = found[0]
    for one in found[1:]:
        total = joined(low, "Add", [total, one])
    counted = bool(node.attributes.get("count_include_pad"))
    sides = _sides(node, len(x.shape) - 2)
    bounds = [(-before if counted else 0, size + (behind if counted else 0))
              for (before, behind), size in zip(sides, x.shape[2:], strict=True)]  # fmt: skip
    number = sum(np.all([(low_ <= at) & (at < high) for at, (low_, high) in zip(position, bounds, strict=True)], axis=0)
                 for position in places)  # fmt: skip
    return joined(low, "TrueDivide", [total, np.asarray(number, "float32")[None, None]])


@operator("LRN")
def local_response(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """LRN: x / (bias + alpha · mean of squares of neighboring channels) ^ beta, by a pooling along the channels."""
    import numpy as np

    x, given = tensor(operands[0]), node.attributes
    size, channels = int(given["size"]), x.shape[1]
    squares = low.reshaped(joined(low, "Square", [x]), (x.shape[0], channels, prod(x.shape[2:])))
    before = (size - 1) // 2
    width = [[0, 0], [before, size - 1 - before], [0, 0]]
    wide = low.op(
        "Pad", [squares], (x.shape[0], channels + size - 1, squares.shape[2]), pad_width=width, mode="constant",
        kwargs={"constant_values": 0.0},
    )  # fmt: skip
    mean = low.op("AveragePool", [wide], squares.shape, module=OPS_NN, pool_size=size, strides=1, padding="valid",
                  data_format="channels_last")  # fmt: skip
    numbers = [
        np.array(given.get(name, usual), "float32") for name, usual in (("alpha", 1e-4), ("bias", 1.0), ("beta", 0.75))
    ]
    alpha, bias, beta = numbers
    under = joined(low, "Power", [joined(low, "Add", [joined(low, "Multiply", [mean, alpha]), bias]), beta])
    return joined(low, "TrueDivide", [x, low.reshaped(under, x.shape)])


@operator("InstanceNormalization")
def instance_normalization(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """InstanceNormalization."""
    x, scale, bias = operands
    axes, spread = list(range(2, len(x.shape))), [1, -1, *[1] * (len(x.shape) - 2)]
    made = standardized(low, tensor(x), axes, float(node.attributes.get("epsilon", 1e-5)))
    return joined(
        low, "Add", [joined(low, "Multiply", [made, known(scale).reshape(spread)]), known(bias).reshape(spread)]
    )


@operator("LayerNormalization")
def layer_normalization(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """LayerNormalization."""
    x, scale, bias = [*operands, None][:3]
    axes = list(range(int(node.attributes.get("axis", -1)) % len(x.shape), len(x.shape)))
    made = standardized(low, tensor(x), axes, float(node.attributes.get("epsilon", 1e-5)))
    made = joined(low, "Multiply", [made, scale])
    return made if bias is None else joined(low, "Add", [made, bias])


@operator("BatchNormalization")
def batch_normalization(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """BatchNormalization, by given statistics or those of the batch."""
    import numpy as np

    x, *vectors = operands
    column = (1, x.shape[1], *[1] * (len(x.shape) - 2))
    scale, bias, mean, variance = (
        low.reshaped(vector, column) if isinstance(vector, EmittedTensor) else known(vector).reshape(column)
        for vector in vectors
    )
    epsilon = np.array(node.attributes.get("epsilon", 1e-5), "float32")
    factor = joined(low, "TrueDivide", [scale, joined(low, "Sqrt", [joined(low, "Add", [variance, epsilon])])])
    shift = joined(low, "Subtract", [bias, joined(low, "Multiply", [mean, factor])])
    return joined(low, "Add", [joined(low, "Multiply", [x, factor]), shift])


def standardized(low: OperationWriter, x: EmittedTensor, axes: Sequence[int], epsilon: float) -> Any:
    """Normalize along axes to mean 0 and variance 1."""
    import numpy as np

    centred = joined(low, "Subtract", [x, reduced(low, "Mean", x, axes)])
    variance = reduced(low, "Mean", joined(low, "Square", [centred]), axes)
    length = joined(low, "Sqrt", [joined(low, "Add", [variance, np.array(epsilon, "float32")])])
    return joined(low, "TrueDivide", [centred, length])


# Convolutions


def _last(low: OperationWriter, x: EmittedTensor) -> EmittedTensor:
    return low.turned(x, [0, *range(2, len(x.shape)), 1])


def _first(low: OperationWriter, x: EmittedTensor) -> EmittedTensor:
    return low.turned(x, [0, len(x.shape) - 1, *range(1, len(x.shape) - 1)])


@operator("Conv")
def convolve(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Convolution with channels last and constant weights; padding is an operation before it."""
    import numpy as np

    x, kernel, bias = [*operands, None][:3]
    x, kernel = tensor(x), known(kernel)
    rank = kernel.ndim - 2
    sides, steps, gaps = _sides(node, rank), _each(node, "strides", rank), _each(node, "dilations", rank)
    read = _last(low, x)
    width = [[0, 0], *sides, [0, 0]]
    sizes = [size + sum(side) for size, side in zip(read.shape, width, strict=True)]
    if any(map(any, sides)):
        read = low.op("Pad", [read], sizes, pad_width=width, mode="constant", kwargs={"constant_values": 0.0})
    out = [(size - (window - 1) * gap - 1) // step + 1
           for size, window, gap, step in zip(sizes[1:-1], kernel.shape[2:], gaps, steps, strict=True)]  # fmt: skip
    groups = read.shape[-1] // kernel.shape[1]
    made = []
    for group, weights in enumerate(np.split(kernel, groups)):
        ours = slice(group * kernel.shape[1], (group + 1) * kernel.shape[1])
        own = read if groups == 1 else low.part(read, len(read.shape) - 1, ours)
        made.append(low.op(
            "Conv", [own, weights.transpose(*range(2, kernel.ndim), 1, 0)], [x.shape[0], *out, len(weights)],
            module=OPS_NN, strides=steps, padding="valid", data_format="channels_last", dilation_rate=gaps,
        ))  # fmt: skip
    shape = [x.shape[0], *out, kernel.shape[0]]
    result = made[0] if groups == 1 else low.op("Concatenate", [made], shape, axis=len(shape) - 1)
    return _first(low, result if bias is None else joined(low, "Add", [result, known(bias)]))


@operator("ConvInteger")
def whole_convolve(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Products of integers minus their zero points, in floats, which are exact up to 2^24."""
    x, kernel, zero, kernel_zero = [*operands, None, None][:4]
    if kernel_zero is not None and kernel_zero.shape:
        kernel_zero = known(kernel_zero).reshape(-1, *[1] * (len(kernel.shape) - 1))
    made = convolve(low, node, [less(low, x, zero), less(low, kernel, kernel_zero)])
    return low.cast(tensor(made), "int32")


@operator("Col2Im")
def added_windows(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """Col2Im: windows added up to an image, which has two axes in Keras; padding is cropped after it."""
    x, size, window = tensor(operands[0]), whole(operands[1]), whole(operands[2])
    if len(window) > 2:
        raise UnsupportedFeature("Keras adds up windows of two axes")
    rank = len(window)
    sides = _sides(node, rank)
    full = [extent + sum(side) for extent, side in zip(size, sides, strict=True)]
    more = [1] * (2 - rank)
    channels = x.shape[1] // prod(window)
    made = low.op(
        "Fold", [x], [x.shape[0], channels, *more, *full], module=OPS_NN, output_size=[*more, *full],
        kernel_size=[*more, *window], dilation=[*more, *_each(node, "dilations", rank)], padding=0,
        stride=[*more, *_each(node, "strides", rank)],
    )  # fmt: skip
    made = low.reshaped(made, [x.shape[0], channels, *full])
    for axis, (before, _) in enumerate(sides):
        if full[axis] != size[axis]:
            made = low.part(made, 2 + axis, slice(before, before + size[axis]))
    return made


# Quantization


def _along(x: Any, numbers: Any, axis: int) -> Any:
    """A vector along an axis, in a shape that broadcasts with the tensor."""
    if isinstance(numbers, EmittedTensor) or numbers.ndim != 1 or numbers.size == 1:
        return numbers
    return numbers.reshape([-1 if at == axis % len(x.shape) else 1 for at in range(len(x.shape))])


@operator("QuantizeLinear")
def quantize(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """round(x / scale) + zero point, clipped to the type."""
    import numpy as np

    x, scale, zero = [*operands, None][:3]
    axis = int(node.attributes.get("axis", 1))
    element = "uint8" if zero is None else str(zero.dtype)
    made = joined(low, "Round", [joined(low, "TrueDivide", [tensor(x), _along(x, scale, axis)])])
    if zero is not None:
        made = joined(low, "Add", [made, _along(x, as_float(low, zero), axis)])
    limits = np.iinfo(element)
    for kind, limit in (("Maximum", limits.min), ("Minimum", limits.max)):
        made = joined(low, kind, [made, np.array(limit, "float32")])
    return low.cast(made, element)


@operator("DequantizeLinear")
def dequantize(low: OperationWriter, node: OperatorNode, operands: Sequence[Any]) -> Any:
    """(x - zero point) · scale."""
    x, scale, zero = [*operands, None][:3]
    axis = int(node.attributes.get("axis", 1))
    made = as_float(low, x)
    if zero is not None:
        made = joined(low, "Subtract", [made, _along(x, as_float(low, zero), axis)])
    return joined(low, "Multiply", [made, _along(x, scale, axis)])

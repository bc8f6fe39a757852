"""Write layers with windows and other layers of images, channels last; padding that Keras lacks becomes a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.exchange.formats.keras.exporting.axes import channels_last, net_order
from netspec.exchange.formats.keras.exporting.config import data_format, function_fields
from netspec.exchange.formats.keras.exporting.layers import input_channel_axis, layer_and_activation, rule, type_of
from netspec.exchange.formats.keras.exporting.model import OPS_NUMPY, KerasTensor
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.links import LayerLink

SMALLEST_FLOAT = -3.4028234663852886e38
"""The smallest float32, as padding of a maximum."""
Sides = tuple[tuple[int, int], ...]


def output_orders(writer: KerasWriter, link: LayerLink) -> list[tuple[int, ...]]:
    """The orders of the outputs of a layer of images."""
    ranks = [writer.types[name].rank for name in link.outputs]
    return [channels_last(rank) if rank > 2 else net_order(rank) for rank in ranks]


@rule(
    *(f"Global{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)),
    *(f"Adaptive{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)),
    *(f"{kind}{rank}D" for kind in ("UpSampling", "ZeroPadding", "Cropping", "SpatialDropout") for rank in (1, 2, 3)),
    "Resizing", "CenterCrop", channel=input_channel_axis,
)  # fmt: skip
def layer_with_channels_last(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write the same layer with channels last."""
    config = writer.config(link, **data_format(link.fields))
    for name in ("padding", "cropping", "size"):  # for a single axis, Keras has a number instead of a list
        if type_of(link.fields).endswith("1D") and name in config:
            config[name] = config[name][0]
    return writer.layer(link, [writer.last(inputs[0])], orders=output_orders(writer, link), config=config)


@rule(
    *(f"Conv{rank}D" for rank in (1, 2, 3)), "DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D",
    channel=input_channel_axis,
)  # fmt: skip
def convolution(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a convolution; explicit padding becomes a ZeroPadding before it."""
    fields: Any = link.fields
    x, padding = writer.last(inputs[0]), fields.padding
    if padding == "causal" and type_of(fields) != "Conv1D":
        padding_before = (fields.kernel_size[0] - 1) * fields.dilation_rate[0]
        padding = ((padding_before, 0),)
    if not isinstance(padding, str):
        x, padding = pad_images(writer, link, x, padding, 0.0), "valid"
    arrays = writer.weights(link, x)
    extra = {**data_format(fields), "padding": padding}
    return layer_and_activation(writer, link, [x], orders=output_orders(writer, link), arrays=arrays, **extra)


@rule(*(f"Conv{rank}DTranspose" for rank in (1, 2, 3)), channel=input_channel_axis)
def transposed(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a transposed convolution; explicit padding becomes a Cropping after it."""
    fields: Any = link.fields
    x = writer.last(inputs[0])
    padding = fields.padding if isinstance(fields.padding, str) else "valid"
    extra = {**data_format(fields), "padding": padding}
    is_cropped = not isinstance(fields.padding, str) and any(map(any, fields.padding))
    if not is_cropped and fields.groups == 1:
        return layer_and_activation(
            writer, link, [x], orders=output_orders(writer, link), arrays=writer.weights(link, x), **extra
        )
    if function_fields(fields.activation) if fields.activation is not None else False:
        raise UnsupportedFeature(
            "it becomes several layers in Keras, and its activation has fields: move the activation to a layer after it"
        )
    (order,) = output_orders(writer, link)
    shape = tuple(writer.types[link.outputs[0]].shape[axis] for axis in order[1:])
    sides = _cropped_sides(fields, x, shape) if is_cropped else []
    uncropped_shape = (
        (*(size + sum(side) for size, side in zip(shape, sides, strict=False)), shape[-1]) if is_cropped else shape
    )
    group_outputs = transposed_by_group(writer, link, x, uncropped_shape, extra)
    if not is_cropped:
        return writer.layer(link, [group_outputs], kind="Concatenate", orders=[order], config={"axis": -1})
    y = group_outputs[0]
    if len(group_outputs) > 1:
        y = writer.helper(f"{link.name}_full", "Concatenate", [group_outputs], uncropped_shape, order, axis=-1)
    config = _sides_config("cropping", sides)
    return writer.layer(link, [y], kind=f"Cropping{len(sides)}D", orders=[order], config=config)


def transposed_by_group(
    writer: KerasWriter, link: LayerLink, x: KerasTensor, shape: tuple[int, ...], extra: dict[str, Any]
) -> list[KerasTensor]:  # fmt: skip
    """Write a transposed convolution per group, since Keras does not support groups. `shape` is that of the result."""
    fields: Any = link.fields
    (order,) = output_orders(writer, link)
    if fields.groups == 1:
        config = writer.config(link, **extra)
        return [
            writer.helper(
                f"{link.name}_full", type_of(fields), [x], shape, order, arrays=writer.weights(link, x), **config
            )
        ]
    arrays, group_outputs = writer.weights(link, x), []
    group_inputs, group_filters = x.shape[-1] // fields.groups, shape[-1] // fields.groups
    config = writer.config(link, "groups", **extra, filters=group_filters)
    for group in range(fields.groups):
        group_slice = slice(group * group_inputs, (group + 1) * group_inputs)
        key = [*[slice(None)] * len(x.shape), group_slice]
        group_input = writer.helper(
            f"{link.name}_input_{group}", "GetItem", [x, key], (*x.shape[:-1], group_inputs), x.order, module=OPS_NUMPY
        )
        group_arrays = {
            path: array[..., group_slice]  # (window…, out, in)
            if path == "vars/0" else array[group * group_filters : (group + 1) * group_filters]
            for path, array in arrays.items()
        }  # fmt: skip
        group_outputs.append(
            writer.helper(f"{link.name}_group_{group}", type_of(fields), [group_input], (*shape[:-1], group_filters),
                          order, arrays=group_arrays, **config)
        )  # fmt: skip
    return group_outputs


def _cropped_sides(fields: Any, x: KerasTensor, shape: Sequence[int]) -> list[list[int]]:
    """Number of elements that explicit padding crops, before and after, along each axis."""
    sides = []
    for axis, (cropped_before, _) in enumerate(fields.padding):
        window = (fields.kernel_size[axis] - 1) * fields.dilation_rate[axis] + 1
        declared = None if fields.output_padding is None else fields.output_padding[axis]
        output_padding = max(0, fields.strides[axis] - window) if declared is None else declared
        full_size = (x.shape[axis] - 1) * fields.strides[axis] + window + output_padding
        sides.append([cropped_before, full_size - cropped_before - shape[axis]])
    if min(map(min, sides)) < 0:
        raise UnsupportedFeature("Keras cannot crop the start of an axis and pad its end")
    return sides


@rule(*(f"MaxPooling{rank}D" for rank in (1, 2, 3)), channel=input_channel_axis)
def max_pooling(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a max pooling; explicit padding, and the padding of `ceil_mode`, becomes a layer before it."""
    fields: Any = link.fields
    x, padding = writer.last(inputs[0]), fields.padding
    if not isinstance(padding, str) or fields.ceil_mode:
        if padding == "same":
            raise UnsupportedFeature("Keras has no `ceil_mode`")
        x, padding = pad_images(writer, link, x, window_overhang(writer, link, x), SMALLEST_FLOAT), "valid"
    config = writer.config(link, "ceil_mode", padding=padding, **data_format(fields))
    return writer.layer(link, [x], orders=output_orders(writer, link), config=config)


@rule(*(f"AveragePooling{rank}D" for rank in (1, 2, 3)), channel=input_channel_axis)
def average_pooling(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write an average pooling; padding becomes a layer before it, and a factor after it if the average excludes it.

    Keras's own `same` differs between its backends: with PyTorch it copies the border.
    """
    fields: Any = link.fields
    x, (order,) = writer.last(inputs[0]), output_orders(writer, link)
    sides = window_overhang(writer, link, x)
    config = writer.config(link, "ceil_mode", "count_include_pad", padding="valid", **data_format(fields))
    factors = _exclusion_factors(fields, x, sides, writer.types[link.outputs[0]].shape[2:])
    x = pad_images(writer, link, x, sides, 0.0)
    if factors is None:
        return writer.layer(link, [x], orders=[order], config=config)
    shape = tuple(writer.types[link.outputs[0]].shape[axis] for axis in order[1:])
    y = writer.helper(f"{link.name}_padded", type_of(fields), [x], shape, order, **config)
    return writer.layer(link, [y, factors], kind="Multiply", module=OPS_NUMPY, orders=[order], config={})


def _exclusion_factors(fields: Any, x: KerasTensor, sides: Sides, out: Sequence[int]) -> NDArray[Any] | None:
    """Factors that turn averages of full windows into averages of counted elements; None if all elements count."""
    declared_sides = {"same": sides, "valid": ((0, 0),) * len(out)}.get(fields.padding, fields.padding)
    strides, factors = fields.strides or fields.pool_size, np.ones((), np.float32)
    for axis, ((padded_before, _), count) in enumerate(zip(sides, out, strict=True)):
        counted = declared_sides[axis] if fields.count_include_pad else (0, 0)
        window_starts = np.arange(count) * strides[axis] - padded_before
        window_ends = np.minimum(window_starts + fields.pool_size[axis], x.shape[axis] + counted[1])
        counted_elements = window_ends - np.maximum(window_starts, -counted[0])
        factors = np.multiply.outer(factors, fields.pool_size[axis] / counted_elements)
    return None if (factors == 1).all() else np.asarray(factors[None, ..., None], np.float32)


def window_overhang(writer: KerasWriter, link: LayerLink, x: KerasTensor) -> Sides:
    """Number of elements by which windows extend beyond the data, before and after, along each axis."""
    fields: Any = link.fields
    out = writer.types[link.outputs[0]].shape[2:]
    strides, overhang = fields.strides or fields.pool_size, []
    for axis, (count, step, window) in enumerate(zip(out, strides, fields.pool_size, strict=True)):
        covered, size = (count - 1) * step + window, x.shape[axis]
        if isinstance(fields.padding, str):
            padded_before = max(0, covered - size) // 2 if fields.padding == "same" else 0
            padded_after = 0
        else:
            padded_before, padded_after = fields.padding[axis]
        rounds_up = fields.ceil_mode or fields.padding == "same"
        overhang.append((padded_before, max(0, covered - padded_before - size) if rounds_up else padded_after))
    return tuple(overhang)


def pad_images(writer: KerasWriter, link: LayerLink, x: KerasTensor, sides: Sides, value: float) -> KerasTensor:
    """Pad the spatial axes of a tensor with channels last."""
    if not any(map(any, sides)):
        return x
    sizes = [
        size + padded_before + padded_after for size, (padded_before, padded_after) in zip(x.shape, sides, strict=False)
    ]
    name, shape = f"{link.name}_padding", (*sizes, x.shape[-1])
    pad_width = [list(side) for side in sides]
    if value:
        width = [[0, 0], *pad_width, [0, 0]]
        return writer.helper(
            name, "Pad", [x], shape, x.order, module=OPS_NUMPY, kwargs={"constant_values": value}, pad_width=width,
            mode="constant",
        )  # fmt: skip
    config = _sides_config("padding", pad_width)
    return writer.helper(name, f"ZeroPadding{len(pad_width)}D", [x], shape, x.order, **config)


def _sides_config(key: str, sides: list[list[int]]) -> dict[str, Any]:
    """The configuration of a ZeroPadding or Cropping layer; Keras's layers of sequences have a single pair."""
    return {key: sides[0]} if len(sides) == 1 else {key: sides, "data_format": "channels_last"}

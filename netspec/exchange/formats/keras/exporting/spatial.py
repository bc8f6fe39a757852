"""Layers with windows, and others of images, channels last; padding that Keras lacks becomes a layer before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats.keras.exporting.axes import channels_last, in_order
from netspec.exchange.formats.keras.exporting.config import data_format, function_fields
from netspec.exchange.formats.keras.exporting.layers import finished, of_images, rule, type_of
from netspec.exchange.formats.keras.exporting.model import OPS_NUMPY, KerasTensor
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.specs.links import LayerLink

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST = -3.4028234663852886e38
"""The smallest float32, as padding of a maximum."""
Sides = tuple[tuple[int, int], ...]


def turned(writer: KerasWriter, link: LayerLink) -> list[tuple[int, ...]]:
    """The orders of the outputs of a layer of images."""
    ranks = [writer.types[name].rank for name in link.outputs]
    return [channels_last(rank) if rank > 2 else in_order(rank) for rank in ranks]


@rule(
    *(f"Global{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)),
    *(f"Adaptive{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)),
    *(f"{kind}{rank}D" for kind in ("UpSampling", "ZeroPadding", "Cropping", "SpatialDropout") for rank in (1, 2, 3)),
    "Resizing", "CenterCrop", channel=of_images,
)  # fmt: skip
def of_channels_last(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """The same layer, with channels last."""
    config = writer.config(link, **data_format(link.fields))
    for name in ("padding", "cropping", "size"):  # for a single axis Keras has plain numbers instead of a list
        if type_of(link.fields).endswith("1D") and name in config:
            config[name] = config[name][0]
    return writer.layer(link, [writer.last(inputs[0])], orders=turned(writer, link), config=config)


@rule(
    *(f"Conv{rank}D" for rank in (1, 2, 3)), "DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D",
    channel=of_images,
)  # fmt: skip
def convolution(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Explicit padding is a ZeroPadding before it."""
    fields: Any = link.fields
    x, padding = writer.last(inputs[0]), fields.padding
    if padding == "causal" and type_of(fields) != "Conv1D":
        reach = (fields.kernel_size[0] - 1) * fields.dilation_rate[0]
        padding = ((reach, 0),)
    if not isinstance(padding, str):
        x, padding = padded(writer, link, x, padding, 0.0), "valid"
    arrays = writer.weights(link, x)
    more = {**data_format(fields), "padding": padding}
    return finished(writer, link, [x], orders=turned(writer, link), arrays=arrays, **more)


@rule(*(f"Conv{rank}DTranspose" for rank in (1, 2, 3)), channel=of_images)
def transposed(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Explicit padding of a transposed convolution is a Cropping after it."""
    fields: Any = link.fields
    x = writer.last(inputs[0])
    padding = fields.padding if isinstance(fields.padding, str) else "valid"
    more = {**data_format(fields), "padding": padding}
    explicit = not isinstance(fields.padding, str) and any(map(any, fields.padding))
    if not explicit and fields.groups == 1:
        return finished(writer, link, [x], orders=turned(writer, link), arrays=writer.weights(link, x), **more)
    if function_fields(fields.activation) if fields.activation is not None else False:
        raise UnsupportedFeature("an activation with fields cannot follow several parts: make it a layer")
    (order,) = turned(writer, link)
    shape = tuple(writer.types[link.outputs[0]].shape[axis] for axis in order[1:])
    sides = _cut(fields, x, shape) if explicit else []
    full = (*(size + sum(side) for size, side in zip(shape, sides, strict=False)), shape[-1]) if explicit else shape
    parts = by_groups(writer, link, x, full, more)
    if not explicit:
        return writer.layer(link, [parts], kind="Concatenate", orders=[order], config={"axis": -1})
    y = parts[0]
    if len(parts) > 1:
        y = writer.helper(f"{link.name}_full", "Concatenate", [parts], full, order, axis=-1)
    one = len(sides) == 1
    format_: dict[str, Any] = {} if one else {"data_format": "channels_last"}
    config = {"cropping": sides[0] if one else sides, **format_}
    return writer.layer(link, [y], kind=f"Cropping{len(sides)}D", orders=[order], config=config)


def by_groups(
    writer: KerasWriter, link: LayerLink, x: KerasTensor, shape: tuple[int, ...], more: dict[str, Any]
) -> list[KerasTensor]:  # fmt: skip
    """A transposed convolution for each group of channels, with outputs of this total shape: Keras has no groups."""
    fields: Any = link.fields
    (order,) = turned(writer, link)
    if fields.groups == 1:
        config = writer.config(link, **more)
        return [
            writer.helper(
                f"{link.name}_full", type_of(fields), [x], shape, order, arrays=writer.weights(link, x), **config
            )
        ]
    arrays, made = writer.weights(link, x), []
    inside, outside = x.shape[-1] // fields.groups, shape[-1] // fields.groups
    config = writer.config(link, "groups", **more, filters=outside)
    for group in range(fields.groups):
        ours = slice(group * inside, (group + 1) * inside)
        key = [*[slice(None)] * len(x.shape), ours]
        part = writer.helper(
            f"{link.name}_input_{group}", "GetItem", [x, key], (*x.shape[:-1], inside), x.order, module=OPS_NUMPY
        )
        own = {
            path: array[..., ours]  # (window…, out, in)
            if path == "vars/0" else array[group * outside : (group + 1) * outside]
            for path, array in arrays.items()
        }  # fmt: skip
        made.append(
            writer.helper(f"{link.name}_group_{group}", type_of(fields), [part], (*shape[:-1], outside), order,
                       arrays=own, **config)
        )  # fmt: skip
    return made


def _cut(fields: Any, x: KerasTensor, shape: Sequence[int]) -> list[list[int]]:
    """Number of elements that explicit padding crops, before and after, along each axis."""
    sides = []
    for axis, (before, _) in enumerate(fields.padding):
        reach = (fields.kernel_size[axis] - 1) * fields.dilation_rate[axis] + 1
        extra = None if fields.output_padding is None else fields.output_padding[axis]
        more = max(0, fields.strides[axis] - reach) if extra is None else extra
        full = (x.shape[axis] - 1) * fields.strides[axis] + reach + more
        sides.append([before, full - before - shape[axis]])
    if min(map(min, sides)) < 0:
        raise UnsupportedFeature("Keras has no padding that cuts off at the start and adds at the end")
    return sides


@rule(*(f"MaxPooling{rank}D" for rank in (1, 2, 3)), channel=of_images)
def max_pooling(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """A max pooling; explicit padding, and that of `ceil_mode`, is a layer before it."""
    fields: Any = link.fields
    x, padding = writer.last(inputs[0]), fields.padding
    if not isinstance(padding, str) or fields.ceil_mode:
        if padding == "same":
            raise UnsupportedFeature("Keras rounds down")
        x, padding = padded(writer, link, x, reached(writer, link, x), LEAST), "valid"
    config = writer.config(link, "ceil_mode", padding=padding, **data_format(fields))
    return writer.layer(link, [x], orders=turned(writer, link), config=config)


@rule(*(f"AveragePooling{rank}D" for rank in (1, 2, 3)), channel=of_images)
def average_pooling(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """An average pooling; padding is a layer before it, with a factor after it if the average excludes it.

    Keras's own `same` differs between its backends: with PyTorch it copies the border.
    """
    fields: Any = link.fields
    x, (order,) = writer.last(inputs[0]), turned(writer, link)
    sides = reached(writer, link, x)
    config = writer.config(link, "ceil_mode", "count_include_pad", padding="valid", **data_format(fields))
    factors = _factors(fields, x, sides, writer.types[link.outputs[0]].shape[2:])
    x = padded(writer, link, x, sides, 0.0)
    if factors is None:
        return writer.layer(link, [x], orders=[order], config=config)
    shape = tuple(writer.types[link.outputs[0]].shape[axis] for axis in order[1:])
    y = writer.helper(f"{link.name}_padded", type_of(fields), [x], shape, order, **config)
    return writer.layer(link, [y, factors], kind="Multiply", module=OPS_NUMPY, orders=[order])


def _factors(fields: Any, x: KerasTensor, sides: Sides, out: Sequence[int]) -> NDArray[Any] | None:
    """Factors of the averages of whole windows that exclude some elements; None if all are included."""
    import numpy as np

    own = {"same": sides, "valid": ((0, 0),) * len(out)}.get(fields.padding, fields.padding)
    strides, found = fields.strides or fields.pool_size, np.ones((), np.float32)
    for axis, ((before, _), count) in enumerate(zip(sides, out, strict=True)):
        counted = own[axis] if fields.count_include_pad else (0, 0)
        starts = np.arange(count) * strides[axis] - before
        ends = np.minimum(starts + fields.pool_size[axis], x.shape[axis] + counted[1])
        inside = ends - np.maximum(starts, -counted[0])
        found = np.multiply.outer(found, fields.pool_size[axis] / inside)
    return None if (found == 1).all() else np.asarray(found[None, ..., None], np.float32)


def reached(writer: KerasWriter, link: LayerLink, x: KerasTensor) -> Sides:
    """Number of elements by which windows extend beyond the data, before and after, along each axis."""
    fields: Any = link.fields
    out = writer.types[link.outputs[0]].shape[2:]
    strides, found = fields.strides or fields.pool_size, []
    for axis, (count, step, window) in enumerate(zip(out, strides, fields.pool_size, strict=True)):
        reach, size = (count - 1) * step + window, x.shape[axis]
        if isinstance(fields.padding, str):
            before = max(0, reach - size) // 2 if fields.padding == "same" else 0
            behind = 0
        else:
            before, behind = fields.padding[axis]
        more = fields.ceil_mode or fields.padding == "same"
        found.append((before, max(0, reach - before - size) if more else behind))
    return tuple(found)


def padded(writer: KerasWriter, link: LayerLink, x: KerasTensor, sides: Sides, value: float) -> KerasTensor:
    """Pad the spatial axes of a tensor with channels last."""
    if not any(map(any, sides)):
        return x
    sizes = [size + before + after for size, (before, after) in zip(x.shape, sides, strict=False)]
    name, shape = f"{link.name}_padding", (*sizes, x.shape[-1])
    given = [list(side) for side in sides]
    if value:
        width = [[0, 0], *given, [0, 0]]
        return writer.helper(
            name, "Pad", [x], shape, x.order, module=OPS_NUMPY, kwargs={"constant_values": value}, pad_width=width,
            mode="constant",
        )  # fmt: skip
    one = len(given) == 1
    more: dict[str, Any] = {"padding": given[0]} if one else {"padding": given, "data_format": "channels_last"}
    return writer.helper(name, f"ZeroPadding{len(given)}D", [x], shape, x.order, **more)

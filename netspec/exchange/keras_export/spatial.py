"""Layers with a window, and others of images: channels last; padding that Keras has no word for is a layer before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.exchange.keras_export.model import OPS_NUMPY, Tensor
from netspec.exchange.keras_export.rules import data_format, finished, of_images, rule, type_of
from netspec.exchange.keras_export.values import Unwritable, function_fields
from netspec.exchange.keras_export.writer import Writer, channels_last, in_order
from netspec.schema.links import LayerLink

LEAST = -3.4028234663852886e38
"""What is never the largest: numbers of a file are finite."""
Sides = tuple[tuple[int, int], ...]


def turned(net: Writer, link: LayerLink) -> list[tuple[int, ...]]:
    """The orders of the outputs of a layer of images."""
    ranks = [net.types[name].rank for name in link.outputs]
    return [channels_last(rank) if rank > 2 else in_order(rank) for rank in ranks]


@rule(
    *(f"Global{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)),
    *(f"Adaptive{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)),
    *(f"{kind}{rank}D" for kind in ("UpSampling", "ZeroPadding", "Cropping", "SpatialDropout") for rank in (1, 2, 3)),
    "Resizing", "CenterCrop", channel=of_images,
)  # fmt: skip
def of_channels_last(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """The same layer, for channels that come last."""
    config = net.config(link, **data_format(link.fields))
    for name in ("padding", "cropping", "size"):  # of one axis Keras has the two numbers, or the one, themselves
        if type_of(link.fields).endswith("1D") and name in config:
            config[name] = config[name][0]
    return net.layer(link, [net.last(inputs[0])], orders=turned(net, link), config=config)


@rule(
    *(f"Conv{rank}D" for rank in (1, 2, 3)), "DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D",
    channel=of_images,
)  # fmt: skip
def convolution(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Explicit padding is a ZeroPadding before it."""
    fields: Any = link.fields
    x, padding = net.last(inputs[0]), fields.padding
    if padding == "causal" and type_of(fields) != "Conv1D":
        reach = (fields.kernel_size[0] - 1) * fields.dilation_rate[0]
        padding = ((reach, 0),)
    if not isinstance(padding, str):
        x, padding = padded(net, link, x, padding, 0.0), "valid"
    arrays = net.weights(link, x)
    more = {**data_format(fields), "padding": padding}
    return finished(net, link, [x], orders=turned(net, link), arrays=arrays, **more)


@rule(*(f"Conv{rank}DTranspose" for rank in (1, 2, 3)), channel=of_images)
def transposed(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Explicit padding, which cuts off, is a Cropping behind it."""
    fields: Any = link.fields
    x = net.last(inputs[0])
    padding = fields.padding if isinstance(fields.padding, str) else "valid"
    more = {**data_format(fields), "padding": padding}
    if not isinstance(fields.padding, str) and any(map(any, fields.padding)):
        return cropped(net, link, x, more)
    return finished(net, link, [x], orders=turned(net, link), arrays=net.weights(link, x), **more)


def cropped(net: Writer, link: LayerLink, x: Tensor, more: dict[str, Any]) -> Sequence[Tensor]:
    """A transposed convolution of which the sides are cut off: the last layer, behind its function, does that."""
    fields: Any = link.fields
    if function_fields(fields.activation) if fields.activation is not None else False:
        raise Unwritable("a function with numbers of its own stands behind what is cut off: make it a layer")
    (order,) = turned(net, link)
    out = [net.types[link.outputs[0]].shape[axis] for axis in order[1:]]
    sides, whole = [], []
    for axis, (before, _) in enumerate(fields.padding):
        reach = (fields.kernel_size[axis] - 1) * fields.dilation_rate[axis] + 1
        extra = None if fields.output_padding is None else fields.output_padding[axis]
        more_ = max(0, fields.strides[axis] - reach) if extra is None else extra
        full = (x.shape[axis] - 1) * fields.strides[axis] + reach + more_
        sides.append([before, full - before - out[axis]])
        whole.append(full)
    if min(map(min, sides)) < 0:
        raise Unwritable("Keras has no padding that cuts off at the start and adds at the end")
    config, arrays = net.config(link, **more), net.weights(link, x)
    full_shape = (*whole, out[-1])
    kind = type_of(fields)
    y = net.helper(f"{link.name}_full", kind, [x], full_shape, order, arrays=arrays, **config)
    one = len(sides) == 1
    format_: dict[str, Any] = {} if one else {"data_format": "channels_last"}
    config = {"name": "", "cropping": sides[0] if one else sides, **format_}
    return net.layer(link, [y], kind=f"Cropping{len(sides)}D", orders=[order], config=config)


@rule(*(f"{kind}Pooling{rank}D" for kind in ("Max", "Average") for rank in (1, 2, 3)), channel=of_images)
def pooling(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Explicit padding, and what rounding up reaches beyond, is a layer before it."""
    fields: Any = link.fields
    x, padding = net.last(inputs[0]), fields.padding
    strides = fields.strides or fields.pool_size
    if not isinstance(padding, str) or fields.ceil_mode:
        if padding == "same":
            raise Unwritable("Keras rounds down")
        sides = tuple((0, 0) for _ in strides) if isinstance(padding, str) else padding
        out = net.types[link.outputs[0]].shape[2:]
        reaches = [(count - 1) * step + size for count, step, size in zip(out, strides, fields.pool_size, strict=True)]
        sides = tuple(
            (before, after + max(0, reach - before - size - after) if fields.ceil_mode else after)
            for (before, after), reach, size in zip(sides, reaches, x.shape, strict=False)
        )
        largest = type_of(fields).startswith("Max")
        if any(map(any, sides)) and not largest:
            counted = fields.count_include_pad and not fields.ceil_mode
            if not counted:
                raise Unwritable("Keras has no padding that averages leave out, and rounds down")
        x, padding = padded(net, link, x, sides, LEAST if largest else 0.0), "valid"
    if padding == "same" and type_of(fields).startswith("Average"):
        net.note(f"`{link.name}` averages with padding: with PyTorch, Keras takes copies of the border for it")
    config = net.config(link, "ceil_mode", "count_include_pad", padding=padding, **data_format(fields))
    return net.layer(link, [x], orders=turned(net, link), config=config)


def padded(net: Writer, link: LayerLink, x: Tensor, sides: Sides, value: float) -> Tensor:
    """The tensor, whose channels are last, with more places on the sides of its spatial axes."""
    if not any(map(any, sides)):
        return x
    sizes = [size + before + after for size, (before, after) in zip(x.shape, sides, strict=False)]
    name, shape = f"{link.name}_padding", (*sizes, x.shape[-1])
    given = [list(one) for one in sides]
    if value:
        width = [[0, 0], *given, [0, 0]]
        return net.helper(
            name, "Pad", [x], shape, x.order, module=OPS_NUMPY, kwargs={"constant_values": value}, pad_width=width,
            mode="constant",
        )  # fmt: skip
    one = len(given) == 1
    more: dict[str, Any] = {"padding": given[0]} if one else {"padding": given, "data_format": "channels_last"}
    return net.helper(name, f"ZeroPadding{len(given)}D", [x], shape, x.order, **more)

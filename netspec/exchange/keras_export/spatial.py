"""Layers with a window, and others of images: channels last; padding that Keras has no word for is a layer before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netspec.exchange.keras_export.laying import channels_last, in_order
from netspec.exchange.keras_export.model import OPS_NUMPY, Tensor
from netspec.exchange.keras_export.rules import finished, of_images, rule, type_of
from netspec.exchange.keras_export.values import Unwritable, data_format, function_fields
from netspec.exchange.keras_export.writer import Writer
from netspec.schema.links import LayerLink

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    explicit = not isinstance(fields.padding, str) and any(map(any, fields.padding))
    if not explicit and fields.groups == 1:
        return finished(net, link, [x], orders=turned(net, link), arrays=net.weights(link, x), **more)
    if function_fields(fields.activation) if fields.activation is not None else False:
        raise Unwritable("a function with numbers of its own stands behind what is put together: make it a layer")
    (order,) = turned(net, link)
    shape = tuple(net.types[link.outputs[0]].shape[axis] for axis in order[1:])
    sides = _cut(fields, x, shape) if explicit else []
    full = (*(size + sum(side) for size, side in zip(shape, sides, strict=False)), shape[-1]) if explicit else shape
    parts = by_groups(net, link, x, full, more)
    if not explicit:
        return net.layer(link, [parts], kind="Concatenate", orders=[order], config={"axis": -1})
    y = parts[0]
    if len(parts) > 1:
        y = net.helper(f"{link.name}_full", "Concatenate", [parts], full, order, axis=-1)
    one = len(sides) == 1
    format_: dict[str, Any] = {} if one else {"data_format": "channels_last"}
    config = {"cropping": sides[0] if one else sides, **format_}
    return net.layer(link, [y], kind=f"Cropping{len(sides)}D", orders=[order], config=config)


def by_groups(
    net: Writer, link: LayerLink, x: Tensor, shape: tuple[int, ...], more: dict[str, Any]
) -> list[Tensor]:  # fmt: skip
    """A transposed convolution, of results of this shape together, for each group of channels: Keras has no groups."""
    fields: Any = link.fields
    (order,) = turned(net, link)
    if fields.groups == 1:
        config = net.config(link, **more)
        return [
            net.helper(f"{link.name}_full", type_of(fields), [x], shape, order, arrays=net.weights(link, x), **config)
        ]
    arrays, made = net.weights(link, x), []
    inside, outside = x.shape[-1] // fields.groups, shape[-1] // fields.groups
    config = net.config(link, "groups", **more, filters=outside)
    for group in range(fields.groups):
        ours = slice(group * inside, (group + 1) * inside)
        key = [*[slice(None)] * len(x.shape), ours]
        part = net.helper(
            f"{link.name}_input_{group}", "GetItem", [x, key], (*x.shape[:-1], inside), x.order, module=OPS_NUMPY
        )
        own = {
            path: array[..., ours]  # (window…, out, in)
            if path == "vars/0" else array[group * outside : (group + 1) * outside]
            for path, array in arrays.items()
        }  # fmt: skip
        made.append(
            net.helper(f"{link.name}_group_{group}", type_of(fields), [part], (*shape[:-1], outside), order,
                       arrays=own, **config)
        )  # fmt: skip
    return made


def _cut(fields: Any, x: Tensor, shape: Sequence[int]) -> list[list[int]]:
    """What explicit padding cuts off, before and behind, along each axis."""
    sides = []
    for axis, (before, _) in enumerate(fields.padding):
        reach = (fields.kernel_size[axis] - 1) * fields.dilation_rate[axis] + 1
        extra = None if fields.output_padding is None else fields.output_padding[axis]
        more = max(0, fields.strides[axis] - reach) if extra is None else extra
        full = (x.shape[axis] - 1) * fields.strides[axis] + reach + more
        sides.append([before, full - before - shape[axis]])
    if min(map(min, sides)) < 0:
        raise Unwritable("Keras has no padding that cuts off at the start and adds at the end")
    return sides


@rule(*(f"MaxPooling{rank}D" for rank in (1, 2, 3)), channel=of_images)
def max_pooling(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Explicit padding, and what rounding up reaches beyond, is a layer before it."""
    fields: Any = link.fields
    x, padding = net.last(inputs[0]), fields.padding
    if not isinstance(padding, str) or fields.ceil_mode:
        if padding == "same":
            raise Unwritable("Keras rounds down")
        x, padding = padded(net, link, x, reached(net, link, x), LEAST), "valid"
    config = net.config(link, "ceil_mode", padding=padding, **data_format(fields))
    return net.layer(link, [x], orders=turned(net, link), config=config)


@rule(*(f"AveragePooling{rank}D" for rank in (1, 2, 3)), channel=of_images)
def average_pooling(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Padding is a layer before it, and a factor behind it where that is not to count.

    Keras's own `same` is not the same on all of its backends: with PyTorch it takes copies of the border.
    """
    fields: Any = link.fields
    x, (order,) = net.last(inputs[0]), turned(net, link)
    sides = reached(net, link, x)
    config = net.config(link, "ceil_mode", "count_include_pad", padding="valid", **data_format(fields))
    factors = _factors(fields, x, sides, net.types[link.outputs[0]].shape[2:])
    x = padded(net, link, x, sides, 0.0)
    if factors is None:
        return net.layer(link, [x], orders=[order], config=config)
    shape = tuple(net.types[link.outputs[0]].shape[axis] for axis in order[1:])
    y = net.helper(f"{link.name}_padded", type_of(fields), [x], shape, order, **config)
    return net.layer(link, [y, factors], kind="Multiply", module=OPS_NUMPY, orders=[order])


def _factors(fields: Any, x: Tensor, sides: Sides, out: Sequence[int]) -> NDArray[Any] | None:
    """What means over whole windows are multiplied by, since some of their places do not count; None if all do."""
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


def reached(net: Writer, link: LayerLink, x: Tensor) -> Sides:
    """What a pooling's windows reach beyond the data, before and behind it, along each axis."""
    fields: Any = link.fields
    out = net.types[link.outputs[0]].shape[2:]
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

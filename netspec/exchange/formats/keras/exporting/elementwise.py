"""Write elementwise layers, and layers whose fields are axes: their inputs may have their axes in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.exporting.axes import channels_last, net_order
from netspec.exchange.formats.keras.exporting.config import function_fields, function_name
from netspec.exchange.formats.keras.exporting.layers import activation_layers, rule, type_of
from netspec.exchange.formats.keras.exporting.model import OPS_NUMPY, KerasTensor
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.layers.activation.base import OverAxis
from netspec.schema.specs.links import LayerLink


@rule(
    "ReLU", "LeakyReLU", "ELU", "Identity", "ActivityRegularization", "Dropout", "AlphaDropout", "GaussianDropout",
    "GaussianNoise", keeps_order=True,
)  # fmt: skip
def elementwise(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write an elementwise layer."""
    (x,) = inputs
    extra: dict[str, Any] = {}
    noise = getattr(link.fields, "noise_shape", None)
    if noise is not None:
        x = writer.with_net_features(x)
        extra["noise_shape"] = [noise[axis] for axis in x.order]
    return writer.elementwise_layer(link, x, **extra)


@rule("Activation", keeps_order=True)
def activation(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write an elementwise function, or a function along an axis, which is the last in Keras except for softmax."""
    (x,), fields = inputs, link.fields
    function: Any = getattr(fields, "activation", None)
    if isinstance(function, OverAxis):
        x = writer.with_net_features(x)
        rank = len(x.order)
        axis = (getattr(fields, "axis", -1) if function.axis is None else function.axis) % rank
        if type_of(function) == "softmax":
            config = writer.config(link, "activation", "axis", axis=x.axis(axis))
            return writer.layer(link, [x], kind="Softmax", orders=[x.order], config=config)
        x = writer.permuted(x, order_with_axis_last(x, axis))
        config = writer.config(link, "axis", "activation", activation=function_name(function))
        return writer.layer(link, [x], orders=[x.order], config=config)
    if function_fields(function):
        y = activation_layers(writer, f"{link.name}_{type_of(function)}", function, x, 1)
        return writer.elementwise_layer(link, y, "activation", "axis", kind="Identity")
    return writer.elementwise_layer(link, x, "axis")


def order_with_axis_last(x: KerasTensor, axis: int) -> tuple[int, ...]:
    """Return the tensor's order of axes if the axis is already last, else one with that axis last."""
    return x.order if x.order[-1] == axis else channels_last(len(x.order), axis)


FUNCTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Swish": ("silu", {"beta": 1.0}),
    "BNLL": ("softplus", {}),
    "Exp": ("exponential", {"scale": 1.0, "shift": 0.0, "base": None}),
}
"""Layers that are an activation function in Keras, and the values of their fields that the function implies."""


@rule(*FUNCTIONS, keeps_order=True)
def function_layer(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a layer that is an activation function in Keras."""
    function, implied = FUNCTIONS[type_of(link.fields)]
    for key, value in implied.items():
        if getattr(link.fields, key) != value:
            raise UnsupportedFeature(f"Keras's `{function}` has no `{key}`")
    return writer.elementwise_layer(link, inputs[0], *implied, kind="Activation", activation=function)


@rule("Softmax", "UnitNormalization", keeps_order=True)
def softmax_or_unit_normalization(
    writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]
) -> Sequence[KerasTensor]:
    """Write a layer along given axes, without weights."""
    x, *mask = [writer.with_net_features(tensor) for tensor in inputs]
    axes = sorted(x.axis(axis) for axis in getattr(link.fields, "axis", (-1,)))
    config = writer.config(link, axis=axes[0] if len(axes) == 1 else axes)
    kwargs = {"mask": writer.permuted(mask[0], x.order)} if mask else {}
    return writer.layer(link, [x], orders=[x.order], config=config, kwargs=kwargs)


@rule("LayerNormalization", "RMSNormalization", keeps_order=True)
def normalization_over_axes(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a normalization with weights over the given axes, in the order of Keras's axes."""
    x, fields = writer.with_net_features(inputs[0]), link.fields
    axes = sorted(axis % len(x.order) for axis in getattr(fields, "axis", (-1,)))
    keras_order = sorted(axes, key=x.axis)
    if sorted(map(x.axis, axes)) != list(range(len(x.order) - len(axes), len(x.order))):
        # Keras's PyTorch backend assumes that adjacent axes are the last ones.
        x = writer.permuted(x, (*(axis for axis in x.order if axis not in axes), *axes))
        keras_order = axes
    arrays = {
        path: array.transpose([axes.index(axis) for axis in keras_order])
        for path, array in writer.weights(link, x).items()
    }
    keras_axes = [x.axis(axis) for axis in keras_order]
    config = writer.config(link, axis=keras_axes[0] if len(keras_axes) == 1 else keras_axes)
    return writer.layer(link, [x], orders=[x.order], config=config, arrays=arrays)


@rule("BatchNormalization", "GroupNormalization", "InstanceNormalization", keeps_order=True)
def normalization_by_channel(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a normalization with weights per channel."""
    x = writer.with_net_features(inputs[0])
    fields: Any = link.fields
    kind, extra = type_of(fields), {"axis": x.axis(fields.axis)}
    left_out: tuple[str, ...] = ()
    if kind == "InstanceNormalization" and fields.track_running_stats:
        kind = "BatchNormalization"
        writer.notes.add(f"`{link.name}` is a BatchNormalization in Keras, which trains with statistics over the batch")
    elif kind == "InstanceNormalization":
        kind, extra["groups"] = "GroupNormalization", x.shape[x.axis(fields.axis) - 1]
        left_out = ("track_running_stats", "momentum", "moving_mean_initializer", "moving_variance_initializer")
    if kind == "BatchNormalization":
        left_out = _fields_without_counterpart(writer, link)
    config, arrays = writer.config(link, *left_out, **extra), writer.weights(link, x)
    return writer.layer(link, [x], kind=kind, orders=[x.order], config=config, arrays=arrays)


def _fields_without_counterpart(writer: KerasWriter, link: LayerLink) -> tuple[str, ...]:
    """Fields of BatchNormalization to leave out, with a note if that changes training.

    Raises `UnsupportedFeature` if it changes inference.
    """
    fields: Any = link.fields
    if not fields.track_running_stats:
        raise UnsupportedFeature("Keras's BatchNormalization normalizes by moving averages in inference")
    left_out: tuple[str, ...] = ("track_running_stats", "unbiased_moving_variance")
    if getattr(fields, "unbiased_moving_variance", False):
        writer.notes.add(
            f"`unbiased_moving_variance` of `{link.name}` was left out: Keras averages the biased variance"
        )
    if fields.momentum is None:
        left_out += ("momentum",)
        writer.notes.add(f"`momentum: null` of `{link.name}` was left out: Keras keeps no mean over all batches")
    return left_out


@rule("PReLU", keeps_order=True)
def prelu(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a PReLU with weights per element, or shared along axes."""
    x, shared = writer.with_net_features(inputs[0]), getattr(link.fields, "shared_axes", None)
    config = writer.config(link, shared_axes=None if shared is None else sorted(x.axis(axis) for axis in shared))
    return writer.layer(link, [x], orders=[x.order], config=config, arrays=writer.weights(link, x))


@rule("Normalization", keeps_order=True)
def normalization(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a Normalization with statistics as fields or weights; Keras also stores a count of samples."""
    x = writer.with_net_features(inputs[0])
    fields: Any = link.fields
    extra: dict[str, Any] = {}
    arrays = writer.weights(link, x)
    if fields.axis is None:
        extra["axis"], size = None, 1
        arrays = {path: array.reshape(()) for path, array in arrays.items()}
    else:
        axis = fields.axis % len(x.order)
        x = writer.permuted(x, order_with_axis_last(x, axis))
        extra["axis"], size = -1, x.shape[-1]
    for name in ("mean", "variance"):
        statistic = getattr(fields, name)
        if statistic is not None:
            values = list(statistic) * (size if len(statistic) == 1 else 1)
            extra[name] = values[0] if fields.axis is None else values
    if arrays:
        arrays["vars/2"] = np.zeros((), "int32")
    return writer.layer(link, [x], orders=[x.order], config=writer.config(link, **extra), arrays=arrays)


@rule("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", keeps_order=True)
def merge(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Merge inputs elementwise, all in the order of axes of the first input whose order is not the net's."""
    images = [tensor.flattened_from for tensor in inputs]
    if images[0] is not None and len({image and (image.shape, image.order) for image in images}) == 1:
        return [replace(output, flattened_from=images[0]) for output in writer.layer(link, [inputs])]
    tensors = _in_common_order(writer, inputs)
    rank = writer.types[link.outputs[0]].rank
    order = tensors[0].order if len(tensors[0].order) == rank else net_order(rank)
    return writer.layer(link, [tensors], orders=[order])


@rule("Concatenate", keeps_order=True)
def concatenate(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Concatenate along an axis."""
    tensors = _in_common_order(writer, inputs)
    order = tensors[0].order
    config = writer.config(link, axis=tensors[0].axis(getattr(link.fields, "axis", 1)))
    return writer.layer(link, [tensors], orders=[order], config=config)


def _in_common_order(writer: KerasWriter, inputs: list[KerasTensor]) -> list[KerasTensor]:
    tensors = [writer.with_net_features(tensor) for tensor in inputs]
    other_orders = [tensor.order for tensor in tensors if not tensor.plain]
    same_rank = len({len(tensor.order) for tensor in tensors}) == 1
    order = other_orders[0] if other_orders and same_rank else None
    return [writer.permuted(tensor, order or net_order(len(tensor.order))) for tensor in tensors]


@rule("Pad", keeps_order=True)
def pad(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Pad by a constant or mirrored data, with an operation of Keras."""
    x = writer.with_net_features(inputs[0])
    fields: Any = link.fields
    if fields.mode not in ("constant", "reflect"):
        raise UnsupportedFeature(f"Keras's `pad` has no mode `{fields.mode}`")
    if min(map(min, fields.padding)) < 0:
        raise UnsupportedFeature("Keras's `pad` does not crop: negative padding has no counterpart")
    sides = [(0, 0), *fields.padding]
    config = {"pad_width": [list(sides[axis]) for axis in x.order], "mode": fields.mode}
    kwargs = {"constant_values": fields.value} if fields.mode == "constant" else {}
    return writer.layer(link, [x], kind="Pad", module=OPS_NUMPY, orders=[x.order], config=config, kwargs=kwargs)


@rule("Power", keeps_order=True)
def power(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a Rescaling, if the power is 1."""
    fields: Any = link.fields
    if fields.power != 1:
        raise UnsupportedFeature("Keras has no layer for a power other than 1")
    return writer.elementwise_layer(link, inputs[0], "power", "shift", kind="Rescaling", offset=fields.shift)

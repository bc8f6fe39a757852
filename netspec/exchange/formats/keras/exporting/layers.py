"""Write layers that Keras has too, most of which only differ in the order of axes, and layers of learned values.

Keras has no layers like Scale, Bias and Parameter. Learned factors become an EinsumDense whose equation sums over no
axis. Learned summands and values become an Embedding with a single row, which every sample looks up. Keras trains both,
with the optimizer states of the net.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from string import ascii_lowercase
from typing import Any, TypeAlias, cast

import numpy as np

from netspec.exchange.formats.keras.exporting.axes import (
    channels_last,
    clean,
    feature_order,
    net_order,
    with_feature_order,
)
from netspec.exchange.formats.keras.exporting.config import data_format, function_fields, layer_config, nested_layer
from netspec.exchange.formats.keras.exporting.model import OPS_NN, OPS_NUMPY, KerasTensor
from netspec.exchange.formats.keras.exporting.writer import KerasWriter, LayerRule
from netspec.exchange.formats.keras.names import DATA_FORMAT, SPATIAL_WITHOUT_FORMAT
from netspec.exchange.rule_table import RuleTable
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.layers.activation.base import ActivationSpec, OverAxis
from netspec.layers.base import LayerSpec
from netspec.layers.math.scale import ChannelwiseLayer
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink

WriteRule: TypeAlias = "Callable[[KerasWriter, LayerLink, list[KerasTensor]], Sequence[KerasTensor]]"

RULES: RuleTable[LayerRule] = RuleTable("netspec.exchange.formats.keras.exporting")
"""Rules by the type of layer."""


def rule(
    *types: str,
    channel: Callable[[LayerFields], int | None] = lambda _: None,
    keeps_order: bool = False,
    changes_order: bool = False,
) -> Callable[[WriteRule], WriteRule]:
    """Register the rule that writes layers of these types."""

    def register(write: WriteRule) -> WriteRule:
        RULES.register(*types)(LayerRule(write, channel, keeps_order, changes_order))
        return write

    return register


def type_of(fields: object) -> str:
    """The type of a layer."""
    return str(getattr(fields, "type", ""))


@rule(
    "EinsumDense", "Embedding", "Masking", "RepeatVector", "Dot",
    "SimpleRNN", "LSTM", "GRU", "RNN",
)  # fmt: skip
def layer_in_net_order(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a layer whose inputs have their axes in the net's order; further inputs are initial states."""
    fields = link.fields
    if type_of(fields) == "Masking" and len(inputs) > 1:
        raise UnsupportedFeature("Keras's Masking does not take a mask as an input")
    x, *states = [writer.plain(tensor) for tensor in inputs]
    args: list[Any] = [[x, *states]] if type_of(fields) == "Dot" else [x]
    kwargs = {"initial_state": states} if states and len(args) == 1 and args[0] is x else {}
    config = writer.config(link)
    shape = config.get("output_shape")
    if isinstance(shape, int):
        config["output_shape"] = [shape]
    return writer.layer(link, args, config=config, kwargs=kwargs, arrays=writer.weights(link, x))


@rule("ReversibleEmbedding")
def reversible_embedding(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a ReversibleEmbedding; `reverse` is an argument of the call."""
    x, fields = writer.plain(inputs[0]), cast("Any", link.fields)
    kwargs = {"reverse": True} if fields.reverse else {}
    sizes = [(fields.input_dim, fields.output_dim), (fields.output_dim, fields.input_dim)]
    names = ["embeddings", "reverse_embeddings"][: 1 if fields.tie_weights else 2]
    embeddings = [(name, size, writer.state(link, name)) for name, size in zip(names, sizes, strict=False)]
    arrays = {
        f"vars/{index}": np.zeros(size, "float32")
        if array is None  # the direction that the net does not use
        else array
        for index, (_, size, array) in enumerate(embeddings)
    }
    return writer.layer(
        link, [x], config=writer.config(link, "reverse"), kwargs=kwargs, arrays=arrays if writer.arrays else {}
    )


@rule("Attention", "AdditiveAttention", "MultiHeadAttention", "GroupQueryAttention")
def attention(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write attention of query, value, key and mask; `use_causal_mask` is an argument of the call."""
    tensors = [writer.plain(tensor) for tensor in inputs]
    tensors += tensors[:1] * (2 - len(tensors))  # self-attention
    config = writer.config(link, "use_causal_mask", "return_attention_scores")
    if type_of(link.fields) == "GroupQueryAttention" and len({tensor.shape[-1] for tensor in tensors[:3]}) > 1:
        raise UnsupportedFeature(
            "Keras's GroupQueryAttention needs query, key and value with the same number of features"
        )
    kwargs: dict[str, Any] = {"use_causal_mask": True} if getattr(link.fields, "use_causal_mask", False) else {}
    args: list[Any] = [tensors]
    if type_of(link.fields) in ("MultiHeadAttention", "GroupQueryAttention"):
        args = [*tensors[:3]]
        kwargs |= {"attention_mask": tensors[3]} if len(tensors) > 3 else {}
        kwargs |= {"return_attention_scores": True} if len(link.outputs) > 1 else {}
        if isinstance(config.get("output_shape"), int):
            config["output_shape"] = [config["output_shape"]]
    return writer.layer(link, args, config=config, kwargs=kwargs, arrays=writer.weights(link, tensors[0]))


@rule("Dense")
def dense(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a Dense over the last axis; after a Flatten, reorder its rows to Keras's order of features."""
    (x,) = inputs
    is_unshared = link.fields.share is None and not any(
        other_link.fields.share == link.name for other_link in writer.links
    )
    keeps_row_order = x.flattened_from is not None and is_unshared
    x = x if keeps_row_order else writer.plain(x)
    arrays = writer.weights(link, x)
    if keeps_row_order and "vars/0" in arrays:
        arrays["vars/0"] = arrays["vars/0"][feature_order(x)]
    return layer_and_activation(writer, link, [x], arrays=arrays)


def layer_and_activation(
    writer: KerasWriter,
    link: LayerLink,
    args: list[Any],
    *without: str,
    orders: Sequence[tuple[int, ...]] | None = None,
    arrays: Any = None,
    **extra: Any,
) -> Sequence[KerasTensor]:
    """Write the layer, followed by a layer for its activation if that has fields, which Keras's layers do not take."""
    function: ActivationSpec | None = getattr(link.fields, "activation", None)
    is_separate = function is not None and bool(function_fields(function))
    config = writer.config(link, *without, *(["activation"] if is_separate else []), **extra)
    outputs = writer.layer(link, args, orders=orders, config=config, arrays=arrays)
    if not is_separate or function is None:
        return outputs
    (y,) = outputs
    axis = 1 if y.order[-1] == 1 or len(y.order) == 2 else len(y.order) - 1  # the net's axis of the features
    return [activation_layers(writer, f"{y.layer}_{type_of(function)}", function, y, axis)]


ACTIVATION_LAYERS = {"relu": "ReLU", "leaky_relu": "LeakyReLU", "elu": "ELU"}
"""Functions that are layers with fields in Keras."""
ACTIVATION_OPERATIONS = {
    "gelu": "Gelu", "celu": "Celu", "hard_shrink": "HardShrink", "soft_shrink": "SoftShrink", "threshold": "Threshold",
    "squareplus": "Squareplus", "glu": "Glu",
}  # fmt: skip
"""Functions that are operations with fields in Keras."""


def activation_layers(
    writer: KerasWriter, name: str, function: ActivationSpec, x: KerasTensor, axis: int
) -> KerasTensor:
    """Apply an activation as separate layers and operations; `axis` is the net's axis of the features."""
    type_ = type_of(function)
    if isinstance(function, OverAxis):
        axis = (axis if function.axis is None else function.axis) % len(x.order)
        x = writer.with_net_features(x)
        if type_ == "softmax":
            return writer.helper(name, "Softmax", [x], x.shape, x.order, axis=x.axis(axis))
        raise UnsupportedFeature(f"Keras's `{type_}` has no `axis`")
    fields = {key: getattr(function, key) for key in type(function).model_fields if key != "type"}
    if type_ in ACTIVATION_LAYERS:
        return writer.helper_like(x, name, ACTIVATION_LAYERS[type_], [x], **fields)
    if type_ == "swish":
        scaled = writer.helper_like(x, f"{name}_factor", "Multiply", [x, fields["beta"]], module=OPS_NUMPY)
        gate = writer.helper_like(x, f"{name}_gate", "Sigmoid", [scaled], module=OPS_NN)
        return writer.helper_like(x, name, "Multiply", [x, gate], module=OPS_NUMPY)
    if type_ == "hard_sigmoid":
        scaled = writer.helper_like(x, f"{name}_alpha", "Multiply", [x, fields["alpha"]], module=OPS_NUMPY)
        shifted = writer.helper_like(x, f"{name}_beta", "Add", [scaled, fields["beta"]], module=OPS_NUMPY)
        return writer.helper_like(x, name, "Clip", [shifted], module=OPS_NUMPY, x_min=0.0, x_max=1.0)
    if type_ not in ACTIVATION_OPERATIONS:
        raise UnsupportedFeature(f"Keras's `{type_}` has no {', '.join(f'`{key}`' for key in fields)}")
    return writer.helper_like(x, name, ACTIVATION_OPERATIONS[type_], [x], module=OPS_NN, **fields)


# Layers of images and other data with channels.


WRAPPED_AXES = {"TimeDistributed": 1, "SpectralNormalization": 0, "Bidirectional": 0}
"""Wrapper layers → number of axes that they add to the input of the inner layer."""


def input_channel_axis(fields: LayerFields) -> int | None:
    """The channel axis of the input, if Keras's layer needs it last."""
    type_, layer = type_of(fields), getattr(fields, "layer", None)
    if type_ in WRAPPED_AXES and layer is not None:
        axis = input_channel_axis(layer)
        return axis if axis is None else axis + WRAPPED_AXES[type_]
    if type_.startswith("ConvLSTM"):
        return 2
    spatial = (type_ != "Flatten" and DATA_FORMAT.fullmatch(type_)) or type_ in SPATIAL_WITHOUT_FORMAT
    return 1 if spatial else None


def output_channel_axis(fields: LayerFields) -> int | None:
    """The channel axis of the output, if Keras's layer returns it last."""
    type_, layer = type_of(fields), getattr(fields, "layer", None)
    if type_ in WRAPPED_AXES and layer is not None:
        axis = output_channel_axis(layer)
        return axis if axis is None else axis + WRAPPED_AXES[type_]
    if type_.startswith("ConvLSTM"):
        return 2 if getattr(fields, "return_sequences", False) else 1
    return input_channel_axis(fields)


@rule("Bidirectional", channel=input_channel_axis)
def bidirectional(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a Bidirectional by the rule of its inner layer: for vectors or for images."""
    return (
        layer_in_net_order(writer, link, inputs)
        if input_channel_axis(link.fields) is None
        else conv_lstm(writer, link, inputs)
    )


@rule(
    *(f"ConvLSTM{rank}D" for rank in (1, 2, 3)),
    channel=input_channel_axis,
)  # fmt: skip
def conv_lstm(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """(N, T, C, …) → (N, C, …), or (N, T, C, …) with `return_sequences`; states are (N, C, …)."""
    fields = link.fields
    if not isinstance(getattr(fields, "padding", ""), str):
        raise UnsupportedFeature("Keras's layer has no explicit padding, only `same` and `valid`")
    x, states = writer.last(inputs[0], 2), [writer.last(tensor) for tensor in inputs[1:]]
    orders = [
        channels_last(writer.types[name].rank, (output_channel_axis(fields) or 1) if index == 0 else 1)
        for index, name in enumerate(link.outputs)
    ]
    config = writer.config(link, **data_format(fields))
    kwargs = {"initial_state": states} if states else {}
    return writer.layer(link, [x], orders=orders, config=config, kwargs=kwargs, arrays=writer.weights(link, x))


@rule("TimeDistributed", "SpectralNormalization", channel=input_channel_axis)
def wrapper(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a wrapper, with the order of axes that its inner layer needs."""
    fields: Any = link.fields
    inner, channel = fields.layer, input_channel_axis(link.fields)
    if type_of(inner) not in RULES.all():
        raise UnsupportedFeature(f"Keras has no layer `{type_of(inner)}` for its field `layer`")
    if type_of(inner) == "SpectralNormalization":
        raise UnsupportedFeature("Keras does not load the weights of a nested SpectralNormalization")
    if type_of(inner) in ("LayerNormalization", "RMSNormalization") and tuple(getattr(inner, "axis", (-1,))) != (-1,):
        raise UnsupportedFeature("with its PyTorch backend, Keras always normalizes the last axes of a nested layer")
    if len(inputs) > 1:
        raise UnsupportedFeature("Keras's wrapper layers take only one input")
    if channel is not None:
        _require_single_layer(inner)
    x = writer.plain(inputs[0]) if channel is None else writer.last(inputs[0], channel)
    if len(link.outputs) > 1:
        return layer_per_step(writer, link, inner, x)
    rank, output_channel = writer.types[link.outputs[0]].rank, output_channel_axis(link.fields)
    order = (
        net_order(rank) if output_channel is None or rank <= output_channel + 1 else channels_last(rank, output_channel)
    )
    config = writer.config(link, "layer", layer=nested_layer(inner, "inner"))
    return writer.layer(link, [x], orders=[order], config=config, arrays=writer.weights(link, x))


def _require_single_layer(layer: LayerFields) -> None:
    """Raise `UnsupportedFeature` unless a layer of images in a field becomes a single layer in Keras."""
    if type_of(layer) in WRAPPED_AXES:
        return _require_single_layer(cast("Any", layer).layer)
    padding = getattr(layer, "padding", "valid")
    if not isinstance(padding, str):
        raise UnsupportedFeature("Keras's layer has no explicit padding, only `same` and `valid`")
    if padding != "valid" and re.fullmatch("AveragePooling.D|Conv.DTranspose", type_of(layer)):
        raise UnsupportedFeature(f"`padding: {padding}` of a nested layer pads differently in Keras")
    return None


def layer_per_step(writer: KerasWriter, link: LayerLink, inner: LayerSpec, x: KerasTensor) -> Sequence[KerasTensor]:
    """Call the inner layer for each step and stack the outputs: Keras's TimeDistributed has only one output."""
    if input_channel_axis(inner) is not None:
        raise UnsupportedFeature("Keras's wrapper layers have only one output")
    steps, *shape = x.shape
    step_inputs = [
        writer.helper(f"{link.name}_step_{step}", "GetItem", [x, [slice(None), step]], tuple(shape),
                   net_order(len(x.order) - 1), module=OPS_NUMPY)
        for step in range(steps)
    ]  # fmt: skip
    config = layer_config(inner, clean(link.name), {})
    arrays = {path.removeprefix("layer/"): array for path, array in writer.weights(link, x).items()}
    first_outputs = writer.layer(link, step_inputs[:1], kind=type_of(inner), config=config, arrays=arrays)
    keras_layer, first_call = writer.model.layers[first_outputs[0].layer], first_outputs[0].call
    keras_layer.calls.extend(([part], {}) for part in step_inputs[1:])
    stacked = []
    for output in first_outputs:
        step_outputs = [
            replace(output, call=first_call + step, shape=output.shape[1:], order=net_order(len(output.shape)))
            for step in range(steps)
        ]
        stacked.append(
            writer.helper(
                f"{link.name}_stacked", "Stack", [step_outputs], output.shape, output.order, module=OPS_NUMPY, axis=1
            )
        )
    return stacked


@rule("Flatten", changes_order=True)
def flatten(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Flatten in Keras's order; `flattened_from` of the result records that order."""
    (x,) = inputs
    (output,) = writer.layer(link, [x], config=writer.config(link, data_format="channels_last"))
    if x.flattened_from is not None:
        return [replace(output, flattened_from=x.flattened_from)]
    return [output if x.plain else with_feature_order(x, output)]


@rule("Reshape", "Squeeze", "ExpandDims", changes_order=True)
def reshape(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Reshape in the net's order."""
    shape = list(writer.types[link.outputs[0]].shape[1:])
    x = writer.plain(inputs[0])
    return writer.layer(link, [x], kind="Reshape", config=writer.config(link, "axis", target_shape=shape))


@rule("Permute", "Transpose")
def permute(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Permute the axes, directly into the order that the next layer needs, if that has channels."""
    fields: Any = link.fields
    x = writer.with_net_features(inputs[0])
    if type_of(fields) == "Permute":
        permutation = (0, *fields.dims)
    else:
        rank = len(x.order)
        permutation = tuple(range(rank))[::-1] if fields.axes is None else tuple(axis % rank for axis in fields.axes)
    if permutation[0] != 0:
        raise UnsupportedFeature("Keras's Permute cannot move the batch axis")
    order = writer.preferred_order(link.outputs[0])
    dims = [x.order.index(permutation[axis]) for axis in order]
    if dims == list(range(len(dims))):
        return writer.layer(link, [x], kind="Identity", orders=[order], config=writer.config(link, "dims", "axes"))
    config = writer.config(link, "dims", "axes", dims=dims[1:])
    return writer.layer(link, [x], kind="Permute", orders=[order], config=config)


@rule("Scale", keeps_order=True)
def scale(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write learned factors and a bias as an EinsumDense."""
    x, fields = writer.with_net_features(inputs[0]), link.fields
    assert isinstance(fields, ChannelwiseLayer)
    if len(inputs) > 1:
        raise UnsupportedFeature("Keras has no layer that scales by a second input along some axes")
    if fields.num_axes > 1:
        x = writer.plain(x)
    first = fields.axis % len(x.order)
    axes = range(first, first + fields.num_axes)
    letters = ascii_lowercase[: len(x.order)]
    equation_axes = "".join(letters[x.axis(axis)] for axis in axes)
    arrays = writer.weights(link, x)
    fields_as_json = writer.config(link, "axis", "num_axes", "use_bias")
    config = {name.replace("scale_", "kernel_"): value for name, value in fields_as_json.items()}
    config |= {"equation": f"{letters},{equation_axes}->{letters}", "output_shape": list(x.shape), "activation": None}
    if getattr(fields, "use_bias", False):
        config["bias_axes"] = equation_axes
        if "vars/1" in arrays:  # Keras adds axes of size 1 for the following axes
            trailing_axes = len(x.order) - 1 - x.axis(axes[-1])
            arrays["vars/1"] = arrays["vars/1"].reshape(*arrays["vars/1"].shape, *[1] * trailing_axes)
    writer.drops_mask.add(link.name)
    return writer.layer(link, [x], kind="EinsumDense", orders=[x.order], config=config, arrays=arrays)


@rule("Bias", keeps_order=True)
def bias(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Add a learned array along axes."""
    x, fields = writer.with_net_features(inputs[0]), link.fields
    assert isinstance(fields, ChannelwiseLayer)
    if len(inputs) > 1:
        raise UnsupportedFeature("Keras has no layer that adds a second input along some axes")
    first_axis = fields.axis % len(x.order)
    array = writer.state(link, "bias")
    if array is not None:
        own_axes = [axis for axis in x.order if first_axis <= axis < first_axis + fields.num_axes]
        array = array.transpose([axis - first_axis for axis in own_axes])
    sizes = [
        size if first_axis <= axis < first_axis + fields.num_axes else 1
        for axis, size in zip(x.order[1:], x.shape, strict=True)
    ]
    summand = _learned_values(writer, link, x, "bias", array, tuple(sizes), x.order)
    writer.drops_mask.add(link.name)
    return [writer.helper(f"{link.name}_added", "Add", [[x, summand]], x.shape, x.order)]


@rule("Parameter")
def parameter(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Write a learned array, the same for each sample."""
    fields: Any = link.fields
    if fields.dtype != "float32":
        raise UnsupportedFeature("Keras stores integers only as constants, with at most 1,000,000 elements")
    x = writer.with_net_features(inputs[0])
    writer.drops_mask.add(link.name)
    return [
        _learned_values(
            writer, link, x, "value", writer.state(link, "value"), fields.shape, net_order(len(fields.shape) + 1)
        )
    ]


@rule("PositionEmbedding")
def position_embedding(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Look up a vector per position, by indices that are computed for each sample."""
    x = writer.plain(inputs[0])
    *position_shape, features = x.shape
    first_feature = writer.helper(
        f"{link.name}_first", "GetItem", [x, [*[slice(None)] * len(x.shape), 0]], tuple(position_shape),
        net_order(len(x.shape)), module=OPS_NUMPY,
    )  # fmt: skip
    zeros = _zeros(writer, link, first_feature)
    fields_as_json = writer.config(link, "sequence_length", "initializer", input_dim=0, output_dim=features)
    config = {**fields_as_json, "input_dim": getattr(link.fields, "sequence_length", 0)}
    config["embeddings_initializer"] = writer.config(link)["initializer"]
    indices = writer.helper(
        f"{link.name}_places", "Add", [zeros, np.arange(position_shape[-1], dtype="int32")], tuple(position_shape),
        zeros.order, module=OPS_NUMPY, element="int32",
    )  # fmt: skip
    writer.drops_mask.add(link.name)
    return writer.layer(link, [indices], kind="Embedding", config=config, arrays=writer.weights(link, x))


def _zeros(writer: KerasWriter, link: LayerLink, x: KerasTensor) -> KerasTensor:
    """Integer zeros in the shape of a tensor."""
    return writer.helper(
        f"{link.name}_zeros", "ZerosLike", [x], x.shape, x.order, module=OPS_NUMPY, element="int32", dtype="int32"
    )


def _learned_values(
    writer: KerasWriter,
    link: LayerLink,
    x: KerasTensor,
    state: str,
    array: Any,
    shape: tuple[int, ...],
    order: tuple[int, ...],
) -> KerasTensor:
    """Repeat a state of the layer for each sample of `x`: (N, *shape). `array` has the given shape."""
    if getattr(link.fields, f"{state}_constraint", None) is not None:
        raise UnsupportedFeature("Keras would apply its constraint to the whole array, not along an axis")
    if x.shape:
        first_elements = [slice(None), *[slice(0, 1)] * len(x.shape)]
        x = writer.helper(
            f"{link.name}_first",
            "GetItem",
            [x, first_elements],
            (1,) * len(x.shape),
            x.order,
            module=OPS_NUMPY,
            element=x.dtype,
        )
    size, fields_as_json = prod(shape), writer.config(link)
    config: dict[str, Any] = {
        key: fields_as_json[key]
        for key in ("name", "dtype", "trainable", "activity_regularizer")
        if key in fields_as_json
    }
    config |= {"input_dim": 1, "output_dim": size}
    config |= {
        f"embeddings_{setting}": fields_as_json[f"{state}_{setting}"]
        for setting in ("initializer", "regularizer")
        if f"{state}_{setting}" in fields_as_json
    }
    arrays = {} if array is None else {"vars/0": array.reshape(1, size)}
    looked_up = writer.layer(link, [_zeros(writer, link, x)], kind="Embedding", config=config, arrays=arrays)[0]
    return writer.helper(f"{link.name}_{state}", "Reshape", [looked_up], shape, order, target_shape=list(shape))

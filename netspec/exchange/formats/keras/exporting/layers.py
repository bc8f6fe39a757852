"""Layers that Keras has too, most of which differ only in the order of axes, and layers of learned values.

Keras has no layers like Scale, Bias and Parameter. What is multiplied along axes becomes an EinsumDense whose equation
sums nothing; what is added, or is a value by itself, becomes the single row of an Embedding that every sample looks up.
Both are trained in Keras, and their optimizer's states are those of the net.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod
from string import ascii_lowercase
from typing import Any, TypeAlias, cast

from netspec.exchange.formats.keras.exporting.axes import channels_last, clean, flattened, in_order, row_order
from netspec.exchange.formats.keras.exporting.config import configured, data_format, function_fields, inside
from netspec.exchange.formats.keras.exporting.model import OPS_NN, OPS_NUMPY, KerasTensor
from netspec.exchange.formats.keras.exporting.writer import KerasWriter, LayerRule
from netspec.exchange.formats.keras.names import DATA_FORMAT, SPATIAL_WITHOUT_FORMAT
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.layers.activation.base import ActivationSpec, OverAxis
from netspec.layers.base import LayerSpec
from netspec.layers.math.scale import ChannelwiseLayer
from netspec.schema.specs.kinds import LayerFields
from netspec.schema.specs.links import LayerLink

Write: TypeAlias = "Callable[[KerasWriter, LayerLink, list[KerasTensor]], Sequence[KerasTensor]]"

RULES: dict[str, LayerRule] = {}
"""Rules by the type of layer."""


def rule(
    *types: str,
    channel: Callable[[LayerFields], int | None] = lambda _: None,
    passes: bool = False,
    neutral: bool = False,
) -> Callable[[Write], Write]:
    """Register the rule that writes layers of these types."""

    def register(write: Write) -> Write:
        RULES.update(dict.fromkeys(types, LayerRule(write, channel, passes, neutral)))
        return write

    return register


def type_of(fields: object) -> str:
    """The type of a layer."""
    return str(getattr(fields, "type", ""))


@rule(
    "EinsumDense", "Embedding", "Masking", "RepeatVector", "Dot",
    "SimpleRNN", "LSTM", "GRU", "RNN",
)  # fmt: skip
def same(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """A layer that reads axes in the net's order; further inputs are initial states."""
    fields = link.fields
    if type_of(fields) == "Masking" and len(inputs) > 1:
        raise UnsupportedFeature("Keras has no layer that gives its input another mask")
    x, *states = [writer.plain(tensor) for tensor in inputs]
    args: list[Any] = [[x, *states]] if type_of(fields) == "Dot" else [x]
    kwargs = {"initial_state": states} if states and len(args) == 1 and args[0] is x else {}
    config = writer.config(link)
    shape = config.get("output_shape")
    if isinstance(shape, int):
        config["output_shape"] = [shape]
    return writer.layer(link, args, config=config, kwargs=kwargs, arrays=writer.weights(link, x))


@rule("ReversibleEmbedding")
def reversible(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """A Bidirectional, whose initial states are arguments of the call."""
    import numpy as np

    x, fields = writer.plain(inputs[0]), cast("Any", link.fields)
    kwargs = {"reverse": True} if fields.reverse else {}
    sizes = [(fields.input_dim, fields.output_dim), (fields.output_dim, fields.input_dim)]
    names = ["embeddings", "reverse_embeddings"][: 1 if fields.tie_weights else 2]
    given = [(name, size, writer.state(link, name)) for name, size in zip(names, sizes, strict=False)]
    arrays = {
        f"vars/{index}": np.zeros(size, "float32")
        if array is None  # the direction that the net does not use
        else array
        for index, (_, size, array) in enumerate(given)
    }
    return writer.layer(
        link, [x], config=writer.config(link, "reverse"), kwargs=kwargs, arrays=arrays if writer.arrays else {}
    )


@rule("Attention", "AdditiveAttention", "MultiHeadAttention", "GroupQueryAttention")
def attention(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Attention of query, value, key and mask; `use_causal_mask` is an argument of the call."""
    found = [writer.plain(tensor) for tensor in inputs]
    found += found[:1] * (2 - len(found))  # self-attention
    config = writer.config(link, "use_causal_mask", "return_attention_scores")
    if type_of(link.fields) == "GroupQueryAttention" and len({one.shape[-1] for one in found[:3]}) > 1:
        raise UnsupportedFeature("query, key and value have as many features there")
    kwargs: dict[str, Any] = {"use_causal_mask": True} if getattr(link.fields, "use_causal_mask", False) else {}
    args: list[Any] = [found]
    if type_of(link.fields) in ("MultiHeadAttention", "GroupQueryAttention"):
        args = [*found[:3]]
        kwargs |= {"attention_mask": found[3]} if len(found) > 3 else {}
        kwargs |= {"return_attention_scores": True} if len(link.outputs) > 1 else {}
        if isinstance(config.get("output_shape"), int):
            config["output_shape"] = [config["output_shape"]]
    return writer.layer(link, args, config=config, kwargs=kwargs, arrays=writer.weights(link, found[0]))


@rule("Dense")
def dense(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """A Dense over the last axis; after a Flatten its rows have the order of Keras's features."""
    (x,) = inputs
    alone = link.fields.share is None and not any(other.fields.share == link.name for other in writer.links)
    keeps = x.rows is not None and alone
    x = x if keeps else writer.plain(x)
    arrays = writer.weights(link, x)
    if keeps and "vars/0" in arrays:
        arrays["vars/0"] = arrays["vars/0"][row_order(x)]
    return finished(writer, link, [x], arrays=arrays)


def finished(
    writer: KerasWriter,
    link: LayerLink,
    args: list[Any],
    *without: str,
    orders: Sequence[tuple[int, ...]] | None = None,
    arrays: Any = None,
    **more: Any,
) -> Sequence[KerasTensor]:
    """The layer, followed by a layer for an activation with fields, which Keras's layers do not take."""
    function: ActivationSpec | None = getattr(link.fields, "activation", None)
    apart = function is not None and bool(function_fields(function))
    config = writer.config(link, *without, *(["activation"] if apart else []), **more)
    made = writer.layer(link, args, orders=orders, config=config, arrays=arrays)
    if not apart or function is None:
        return made
    (y,) = made
    axis = 1 if y.order[-1] == 1 or len(y.order) == 2 else len(y.order) - 1  # the features
    return [applied(writer, f"{y.layer}_{type_of(function)}", function, y, axis)]


PARAMETRIZED = {"relu": "ReLU", "leaky_relu": "LeakyReLU", "elu": "ELU"}
"""Functions that are layers with fields in Keras."""
OPERATIONS = {
    "gelu": "Gelu", "celu": "Celu", "hard_shrink": "HardShrink", "soft_shrink": "SoftShrink", "threshold": "Threshold",
    "squareplus": "Squareplus", "glu": "Glu",
}  # fmt: skip
"""Functions that are operations with fields in Keras."""


def applied(writer: KerasWriter, name: str, function: ActivationSpec, x: KerasTensor, axis: int) -> KerasTensor:
    """A function of a tensor, whose features are an axis of the net, as separate layers and operations."""
    type_, shape = type_of(function), x.shape
    if isinstance(function, OverAxis):
        axis = (axis if function.axis is None else function.axis) % len(x.order)
        x = writer.straight(x)
        if type_ == "softmax":
            return writer.helper(name, "Softmax", [x], shape, x.order, axis=x.axis(axis))
        raise UnsupportedFeature(f"Keras's `{type_}` has no `axis`")
    told = {key: getattr(function, key) for key in type(function).model_fields if key != "type"}
    if type_ in PARAMETRIZED:
        return writer.helper(name, PARAMETRIZED[type_], [x], shape, x.order, rows=x.rows, **told)
    if type_ == "swish":
        inner = writer.helper(
            f"{name}_factor", "Multiply", [x, told["beta"]], shape, x.order, module=OPS_NUMPY, rows=x.rows
        )
        gate = writer.helper(f"{name}_gate", "Sigmoid", [inner], shape, x.order, module=OPS_NN, rows=x.rows)
        return writer.helper(name, "Multiply", [x, gate], shape, x.order, module=OPS_NUMPY, rows=x.rows)
    if type_ == "hard_sigmoid":
        made = x
        for kind, key in (("Multiply", "alpha"), ("Add", "beta")):
            made = writer.helper(
                f"{name}_{key}", kind, [made, told[key]], shape, x.order, module=OPS_NUMPY, rows=x.rows
            )
        return writer.helper(name, "Clip", [made], shape, x.order, module=OPS_NUMPY, rows=x.rows, x_min=0.0, x_max=1.0)
    if type_ not in OPERATIONS:
        raise UnsupportedFeature(f"Keras's `{type_}` has no {', '.join(f'`{key}`' for key in told)}")
    return writer.helper(name, OPERATIONS[type_], [x], shape, x.order, module=OPS_NN, rows=x.rows, **told)


# Layers of images and other data with channels


AROUND = {"TimeDistributed": 1, "SpectralNormalization": 0, "Bidirectional": 0}
"""Wrappers, and the number of axes that they add to the input of the layer inside."""


def of_images(fields: LayerFields) -> int | None:
    """The channel axis of the input, if the layer needs it last in Keras."""
    type_, layer = type_of(fields), getattr(fields, "layer", None)
    if type_ in AROUND and layer is not None:
        axis = of_images(layer)
        return axis if axis is None else axis + AROUND[type_]
    if type_.startswith("ConvLSTM"):
        return 2
    spatial = (type_ != "Flatten" and DATA_FORMAT.fullmatch(type_)) or type_ in SPATIAL_WITHOUT_FORMAT
    return 1 if spatial else None


def channels_of(fields: LayerFields) -> int | None:
    """The channel axis of the output, if the layer has it last in Keras."""
    type_, layer = type_of(fields), getattr(fields, "layer", None)
    if type_ in AROUND and layer is not None:
        axis = channels_of(layer)
        return axis if axis is None else axis + AROUND[type_]
    if type_.startswith("ConvLSTM"):
        return 2 if getattr(fields, "return_sequences", False) else 1
    return of_images(fields)


@rule("Bidirectional", channel=of_images)
def both_ways(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """That of the recurrent layer inside, for vectors or images."""
    return same(writer, link, inputs) if of_images(link.fields) is None else recurrent_images(writer, link, inputs)


@rule(
    *(f"ConvLSTM{rank}D" for rank in (1, 2, 3)),
    channel=of_images,
)  # fmt: skip
def recurrent_images(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """(N, T, C, …) → (N, C, …), or (N, T, C, …) with `return_sequences`; states are (N, C, …)."""
    fields = link.fields
    if not isinstance(getattr(fields, "padding", ""), str):
        raise UnsupportedFeature("Keras has no explicit padding there")
    x, states = writer.last(inputs[0], 2), [writer.last(tensor) for tensor in inputs[1:]]
    orders = [
        channels_last(writer.types[name].rank, (channels_of(fields) or 1) if index == 0 else 1)
        for index, name in enumerate(link.outputs)
    ]
    config = writer.config(link, **data_format(fields))
    kwargs = {"initial_state": states} if states else {}
    return writer.layer(link, [x], orders=orders, config=config, kwargs=kwargs, arrays=writer.weights(link, x))


@rule("TimeDistributed", "SpectralNormalization", channel=of_images)
def around(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """A wrapper, which needs the axes that the layer inside needs."""
    fields: Any = link.fields
    inner, channel = fields.layer, of_images(link.fields)
    if type_of(inner) not in RULES:
        raise UnsupportedFeature(f"Keras has no layer `{type_of(inner)}`, which is inside")
    if type_of(inner) == "SpectralNormalization":
        raise UnsupportedFeature("Keras does not load the weights of a SpectralNormalization there")
    if type_of(inner) in ("LayerNormalization", "RMSNormalization") and tuple(getattr(inner, "axis", (-1,))) != (-1,):
        raise UnsupportedFeature("with PyTorch, Keras takes the axes for the last ones")
    if len(inputs) > 1:
        raise UnsupportedFeature("a layer around another has one input there")
    if channel is not None:
        _need_plain(inner)
    x = writer.plain(inputs[0]) if channel is None else writer.last(inputs[0], channel)
    if len(link.outputs) > 1:
        return step_by_step(writer, link, inner, x)
    rank, made = writer.types[link.outputs[0]].rank, channels_of(link.fields)
    order = in_order(rank) if made is None or rank <= made + 1 else channels_last(rank, made)
    config = writer.config(link, "layer", layer=inside(inner, "inner"))
    return writer.layer(link, [x], orders=[order], config=config, arrays=writer.weights(link, x))


def _need_plain(layer: LayerFields) -> None:
    """Raise `UnsupportedFeature` unless a layer of images in a field becomes a single layer in Keras."""
    if type_of(layer) in AROUND:
        return _need_plain(cast("Any", layer).layer)
    padding = getattr(layer, "padding", "valid")
    if not isinstance(padding, str):
        raise UnsupportedFeature("Keras has no explicit padding there")
    if padding != "valid" and re.fullmatch("AveragePooling.D|Conv.DTranspose", type_of(layer)):
        raise UnsupportedFeature(f"Keras's `padding: {padding}` is another one")
    return None


def step_by_step(writer: KerasWriter, link: LayerLink, inner: LayerSpec, x: KerasTensor) -> Sequence[KerasTensor]:
    """The layer inside for each step, with stacked outputs, since Keras's TimeDistributed has one output."""
    if of_images(inner) is not None:
        raise UnsupportedFeature("a layer around another has one output there")
    steps, *shape = x.shape
    parts = [
        writer.helper(f"{link.name}_step_{step}", "GetItem", [x, [slice(None), step]], tuple(shape),
                   in_order(len(x.order) - 1), module=OPS_NUMPY)
        for step in range(steps)
    ]  # fmt: skip
    config = configured(inner, clean(link.name), {})
    arrays = {path.removeprefix("layer/"): array for path, array in writer.weights(link, x).items()}
    made = writer.layer(link, parts[:1], kind=type_of(inner), config=config, arrays=arrays)
    called, first = writer.model.layers[made[0].layer], made[0].call
    called.calls.extend(([part], {}) for part in parts[1:])
    found = []
    for one in made:
        states = [
            replace(one, call=first + step, shape=one.shape[1:], order=in_order(len(one.shape)))
            for step in range(steps)
        ]
        found.append(
            writer.helper(f"{link.name}_stacked", "Stack", [states], one.shape, one.order, module=OPS_NUMPY, axis=1)
        )
    return found


@rule("Flatten", neutral=True)
def flatten(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Flatten in Keras's order, which the readers of the result take into account."""
    (x,) = inputs
    (made,) = writer.layer(link, [x], config=writer.config(link, data_format="channels_last"))
    if x.rows is not None:
        return [replace(made, rows=x.rows)]
    return [made if x.plain else flattened(x, made)]


@rule("Reshape", "Squeeze", "ExpandDims", neutral=True)
def reshape(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Reshape in the net's order."""
    shape = list(writer.types[link.outputs[0]].shape[1:])
    x = writer.plain(inputs[0])
    return writer.layer(link, [x], kind="Reshape", config=writer.config(link, "axis", target_shape=shape))


@rule("Permute", "Transpose")
def permute(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Permute the axes, directly into the order that the next layer needs, if that has channels."""
    fields: Any = link.fields
    x = writer.straight(inputs[0])
    if type_of(fields) == "Permute":
        moved = (0, *fields.dims)
    else:
        rank = len(x.order)
        moved = tuple(range(rank))[::-1] if fields.axes is None else tuple(axis % rank for axis in fields.axes)
    if moved[0] != 0:
        raise UnsupportedFeature("the batch is the first axis there")
    order = writer.wanted(link.outputs[0])
    places = [x.order.index(moved[axis]) for axis in order]
    if places == list(range(len(places))):
        return writer.layer(link, [x], kind="Identity", orders=[order], config=writer.config(link, "dims", "axes"))
    config = writer.config(link, "dims", "axes", dims=places[1:])
    return writer.layer(link, [x], kind="Permute", orders=[order], config=config)


def kept(writer: KerasWriter, link: LayerLink, x: KerasTensor, made: Iterable[KerasTensor]) -> list[KerasTensor]:
    """The outputs of an elementwise layer, which have the input's order of axes."""
    return [replace(one, rows=x.rows) for one in made]


@rule("Scale", passes=True)
def scale(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """Learned factors, and a bias."""
    x, fields = writer.straight(inputs[0]), link.fields
    assert isinstance(fields, ChannelwiseLayer)
    if len(inputs) > 1:
        raise UnsupportedFeature("Keras has no layer that multiplies along axes and adds a learned bias")
    if fields.num_axes > 1:
        x = writer.plain(x)
    first = fields.axis % len(x.order)
    axes = range(first, first + fields.num_axes)
    letters = ascii_lowercase[: len(x.order)]
    along = "".join(letters[x.axis(axis)] for axis in axes)
    arrays = writer.weights(link, x)
    told = writer.config(link, "axis", "num_axes", "use_bias")
    config = {name.replace("scale_", "kernel_"): value for name, value in told.items()}
    config |= {"equation": f"{letters},{along}->{letters}", "output_shape": list(x.shape), "activation": None}
    if getattr(fields, "use_bias", False):
        config["bias_axes"] = along
        if "vars/1" in arrays:  # in Keras the following axes have size 1
            behind = len(x.order) - 1 - x.axis(axes[-1])
            arrays["vars/1"] = arrays["vars/1"].reshape(*arrays["vars/1"].shape, *[1] * behind)
    writer.maskless.add(link.name)
    return writer.layer(link, [x], kind="EinsumDense", orders=[x.order], config=config, arrays=arrays)


@rule("Bias", passes=True)
def bias(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """A learned array, added along axes."""
    x, fields = writer.straight(inputs[0]), link.fields
    assert isinstance(fields, ChannelwiseLayer)
    if len(inputs) > 1:
        raise UnsupportedFeature("Keras has no layer that adds along axes")
    first = fields.axis % len(x.order)
    array = writer.state(link, "bias")
    if array is not None:
        kept = [axis for axis in x.order if first <= axis < first + fields.num_axes]
        array = array.transpose([axis - first for axis in kept])
    sizes = [
        size if first <= axis < first + fields.num_axes else 1 for axis, size in zip(x.order[1:], x.shape, strict=True)
    ]
    added = _row(writer, link, x, "bias", array, tuple(sizes), x.order)
    writer.maskless.add(link.name)
    return [writer.helper(f"{link.name}_added", "Add", [[x, added]], x.shape, x.order)]


@rule("Parameter")
def parameter(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """A learned array, the same for each sample."""
    fields: Any = link.fields
    if fields.dtype != "float32":
        raise UnsupportedFeature("Keras stores integers only as constants, with at most 1,000,000 elements")
    x = writer.straight(inputs[0])
    writer.maskless.add(link.name)
    return [_row(writer, link, x, "value", writer.state(link, "value"), fields.shape, in_order(len(fields.shape) + 1))]


@rule("PositionEmbedding")
def positions(writer: KerasWriter, link: LayerLink, inputs: list[KerasTensor]) -> Sequence[KerasTensor]:
    """A vector per position, looked up by indices that are computed for each sample."""
    import numpy as np

    x = writer.plain(inputs[0])
    *places, features = x.shape
    first = writer.helper(
        f"{link.name}_first", "GetItem", [x, [*[slice(None)] * len(x.shape), 0]], tuple(places),
        in_order(len(x.shape)), module=OPS_NUMPY,
    )  # fmt: skip
    zeros = _zeros(writer, link, first)
    told = writer.config(link, "sequence_length", "initializer", input_dim=0, output_dim=features)
    config = {**told, "input_dim": getattr(link.fields, "sequence_length", 0)}
    config["embeddings_initializer"] = writer.config(link)["initializer"]
    counted = writer.helper(
        f"{link.name}_places", "Add", [zeros, np.arange(places[-1], dtype="int32")], tuple(places), zeros.order,
        module=OPS_NUMPY, element="int32",
    )  # fmt: skip
    writer.maskless.add(link.name)
    return writer.layer(link, [counted], kind="Embedding", config=config, arrays=writer.weights(link, x))


def _zeros(writer: KerasWriter, link: LayerLink, x: KerasTensor) -> KerasTensor:
    """Integer zeros in the shape of a tensor."""
    return writer.helper(
        f"{link.name}_zeros", "ZerosLike", [x], x.shape, x.order, module=OPS_NUMPY, element="int32", dtype="int32"
    )


def _row(
    writer: KerasWriter,
    link: LayerLink,
    x: KerasTensor,
    state: str,
    array: Any,
    shape: tuple[int, ...],
    order: tuple[int, ...],
) -> KerasTensor:
    """A state of the layer, repeated for each sample of `x`: (N, *shape); `array` has that shape."""
    if getattr(link.fields, f"{state}_constraint", None) is not None:
        raise UnsupportedFeature("Keras stores this array as a row, to which the constraint would apply as a whole")
    if x.shape:
        parts = [slice(None), *[slice(0, 1)] * len(x.shape)]
        x = writer.helper(
            f"{link.name}_first", "GetItem", [x, parts], (1,) * len(x.shape), x.order, module=OPS_NUMPY, element=x.dtype
        )
    numbers, told = prod(shape), writer.config(link)
    config: dict[str, Any] = {
        key: told[key] for key in ("name", "dtype", "trainable", "activity_regularizer") if key in told
    }
    config |= {"input_dim": 1, "output_dim": numbers}
    config |= {
        f"embeddings_{what}": told[f"{state}_{what}"]
        for what in ("initializer", "regularizer")
        if f"{state}_{what}" in told
    }
    arrays = {} if array is None else {"vars/0": array.reshape(1, numbers)}
    made = writer.layer(link, [_zeros(writer, link, x)], kind="Embedding", config=config, arrays=arrays)[0]
    return writer.helper(f"{link.name}_{state}", "Reshape", [made], shape, order, target_shape=list(shape))

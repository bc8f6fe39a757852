"""How layers are written for Keras: most are the same there, and differ in how their input lies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from netspec.exchange.keras_export.laying import channels_last, clean, flattened, in_order, row_order
from netspec.exchange.keras_export.model import OPS_NN, OPS_NUMPY, Tensor
from netspec.exchange.keras_export.values import Unwritable, configured, data_format, function_fields, inside
from netspec.exchange.keras_export.writer import Rule, Writer
from netspec.exchange.keras_names import DATA_FORMAT, SPATIAL_WITHOUT_FORMAT
from netspec.layers.activations import ActivationSpec, OverAxis
from netspec.layers.base import LayerSpec
from netspec.schema.kinds import LayerFields
from netspec.schema.links import LayerLink

Write: TypeAlias = "Callable[[Writer, LayerLink, list[Tensor]], Sequence[Tensor]]"

RULES: dict[str, Rule] = {}
"""By the type of the layer."""


def rule(
    *types: str,
    channel: Callable[[LayerFields], int | None] = lambda _: None,
    passes: bool = False,
    neutral: bool = False,
) -> Callable[[Write], Write]:
    """Register how layers of these types are written."""

    def register(write: Write) -> Write:
        RULES.update(dict.fromkeys(types, Rule(write, channel, passes, neutral)))
        return write

    return register


def type_of(fields: object) -> str:
    """The type of a layer."""
    return str(getattr(fields, "type", ""))


@rule(
    "EinsumDense", "Embedding", "Masking", "RepeatVector", "Dot",
    "SimpleRNN", "LSTM", "GRU", "RNN",
)  # fmt: skip
def same(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """A layer that reads what is there as it lies in the net; further inputs are first states."""
    fields = link.fields
    if type_of(fields) == "Masking" and len(inputs) > 1:
        raise Unwritable("Keras has no layer that gives its input another mask")
    x, *states = [net.plain(one) for one in inputs]
    args: list[Any] = [[x, *states]] if type_of(fields) == "Dot" else [x]
    kwargs = {"initial_state": states} if states and len(args) == 1 and args[0] is x else {}
    config = net.config(link)
    shape = config.get("output_shape")
    if isinstance(shape, int):
        config["output_shape"] = [shape]
    return net.layer(link, args, config=config, kwargs=kwargs, arrays=net.weights(link, x))


@rule("ReversibleEmbedding")
def reversible(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Which way it goes is said when it is called."""
    import numpy as np

    x, fields = net.plain(inputs[0]), cast("Any", link.fields)
    kwargs = {"reverse": True} if fields.reverse else {}
    sizes = [(fields.input_dim, fields.output_dim), (fields.output_dim, fields.input_dim)]
    names = ["embeddings", "reverse_embeddings"][: 1 if fields.tie_weights else 2]
    given = [(name, size, net.state(link, name)) for name, size in zip(names, sizes, strict=False)]
    arrays = {
        f"vars/{index}": np.zeros(size, "float32") if array is None else array  # the way that the net does not go
        for index, (_, size, array) in enumerate(given)
    }
    return net.layer(link, [x], config=net.config(link, "reverse"), kwargs=kwargs, arrays=arrays if net.arrays else {})


@rule("Attention", "AdditiveAttention", "MultiHeadAttention", "GroupQueryAttention")
def attention(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Query, value, key and mask; whether it looks ahead is said when it is called."""
    found = [net.plain(one) for one in inputs]
    found += found[:1] * (2 - len(found))  # attention to itself
    config = net.config(link, "use_causal_mask")
    if type_of(link.fields) == "GroupQueryAttention" and len({one.shape[-1] for one in found[:3]}) > 1:
        raise Unwritable("query, key and value have as many features there")
    kwargs: dict[str, Any] = {"use_causal_mask": True} if getattr(link.fields, "use_causal_mask", False) else {}
    args: list[Any] = [found]
    if type_of(link.fields) in ("MultiHeadAttention", "GroupQueryAttention"):
        args = [*found[:3]]
        kwargs |= {"attention_mask": found[3]} if len(found) > 3 else {}
        if isinstance(config.get("output_shape"), int):
            config["output_shape"] = [config["output_shape"]]
    return net.layer(link, args, config=config, kwargs=kwargs, arrays=net.weights(link, found[0]))


@rule("Dense")
def dense(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """On the last axis of the net; behind a Flatten its rows take the order that numbers have in Keras."""
    (x,) = inputs
    alone = link.fields.share is None and not any(other.fields.share == link.name for other in net.links)
    keeps = x.rows is not None and alone
    x = x if keeps else net.plain(x)
    arrays = net.weights(link, x)
    if keeps and "vars/0" in arrays:
        arrays["vars/0"] = arrays["vars/0"][row_order(x)]
    return finished(net, link, [x], arrays=arrays)


def finished(
    net: Writer,
    link: LayerLink,
    args: list[Any],
    *without: str,
    orders: Sequence[tuple[int, ...]] | None = None,
    arrays: Any = None,
    **more: Any,
) -> Sequence[Tensor]:
    """The layer; a function with numbers of its own, which Keras's layers do not take, is a layer behind it."""
    function: ActivationSpec | None = getattr(link.fields, "activation", None)
    apart = function is not None and bool(function_fields(function))
    config = net.config(link, *without, *(["activation"] if apart else []), **more)
    made = net.layer(link, args, orders=orders, config=config, arrays=arrays)
    if not apart or function is None:
        return made
    (y,) = made
    axis = 1 if y.order[-1] == 1 or len(y.order) == 2 else len(y.order) - 1  # of the features
    return [applied(net, f"{y.layer}_{type_of(function)}", function, y, axis)]


PARAMETRIZED = {"relu": "ReLU", "leaky_relu": "LeakyReLU", "elu": "ELU"}
"""Functions that are layers with fields there."""
OPERATIONS = {
    "gelu": "Gelu", "celu": "Celu", "hard_shrink": "HardShrink", "soft_shrink": "SoftShrink", "threshold": "Threshold",
    "squareplus": "Squareplus", "glu": "Glu",
}  # fmt: skip
"""Functions that are operations with fields there."""


def applied(net: Writer, name: str, function: ActivationSpec, x: Tensor, axis: int) -> Tensor:
    """A function of a tensor whose features lie along an axis of the net, as layers and operations of their own."""
    type_, shape = type_of(function), x.shape
    if isinstance(function, OverAxis):
        axis = (axis if function.axis is None else function.axis) % len(x.order)
        x = net.straight(x)
        if type_ == "softmax":
            return net.helper(name, "Softmax", [x], shape, x.order, axis=x.axis(axis))
        raise Unwritable(f"Keras's `{type_}` has no `axis`")
    told = {key: getattr(function, key) for key in type(function).model_fields if key != "type"}
    if type_ in PARAMETRIZED:
        return net.helper(name, PARAMETRIZED[type_], [x], shape, x.order, rows=x.rows, **told)
    if type_ == "swish":
        inner = net.helper(
            f"{name}_factor", "Multiply", [x, told["beta"]], shape, x.order, module=OPS_NUMPY, rows=x.rows
        )
        gate = net.helper(f"{name}_gate", "Sigmoid", [inner], shape, x.order, module=OPS_NN, rows=x.rows)
        return net.helper(name, "Multiply", [x, gate], shape, x.order, module=OPS_NUMPY, rows=x.rows)
    if type_ == "hard_sigmoid":
        made = x
        for kind, key in (("Multiply", "alpha"), ("Add", "beta")):
            made = net.helper(f"{name}_{key}", kind, [made, told[key]], shape, x.order, module=OPS_NUMPY, rows=x.rows)
        return net.helper(name, "Clip", [made], shape, x.order, module=OPS_NUMPY, rows=x.rows, x_min=0.0, x_max=1.0)
    if type_ not in OPERATIONS:
        raise Unwritable(f"Keras's `{type_}` has no {', '.join(f'`{key}`' for key in told)}")
    return net.helper(name, OPERATIONS[type_], [x], shape, x.order, module=OPS_NN, rows=x.rows, **told)


# Layers of images, and of what else has channels


AROUND = {"TimeDistributed": 1, "SpectralNormalization": 0, "Bidirectional": 0}
"""Layers around another, and how many axes more their input has."""


def of_images(fields: LayerFields) -> int | None:
    """The axis of the channels, for layers that want it last."""
    type_, layer = type_of(fields), getattr(fields, "layer", None)
    if type_ in AROUND and layer is not None:
        axis = of_images(layer)
        return axis if axis is None else axis + AROUND[type_]
    if type_.startswith("ConvLSTM"):
        return 2
    spatial = (type_ != "Flatten" and DATA_FORMAT.fullmatch(type_)) or type_ in SPATIAL_WITHOUT_FORMAT
    return 1 if spatial else None


def channels_of(fields: LayerFields) -> int | None:
    """The axis of the channels of its output, for layers that have it last."""
    type_, layer = type_of(fields), getattr(fields, "layer", None)
    if type_ in AROUND and layer is not None:
        axis = channels_of(layer)
        return axis if axis is None else axis + AROUND[type_]
    if type_.startswith("ConvLSTM"):
        return 2 if getattr(fields, "return_sequences", False) else 1
    return of_images(fields)


@rule("Bidirectional", channel=of_images)
def both_ways(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """As the recurrent layer inside, of vectors or of images."""
    return same(net, link, inputs) if of_images(link.fields) is None else recurrent_images(net, link, inputs)


@rule(
    *(f"ConvLSTM{rank}D" for rank in (1, 2, 3)),
    channel=of_images,
)  # fmt: skip
def recurrent_images(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """(N, T, C, …) → (N, C, …), or (N, T, C, …) with `return_sequences`; states are (N, C, …)."""
    fields = link.fields
    if not isinstance(getattr(fields, "padding", ""), str):
        raise Unwritable("Keras has no explicit padding there")
    x, states = net.last(inputs[0], 2), [net.last(one) for one in inputs[1:]]
    orders = [
        channels_last(net.types[name].rank, (channels_of(fields) or 1) if index == 0 else 1)
        for index, name in enumerate(link.outputs)
    ]
    config = net.config(link, **data_format(fields))
    kwargs = {"initial_state": states} if states else {}
    return net.layer(link, [x], orders=orders, config=config, kwargs=kwargs, arrays=net.weights(link, x))


@rule("TimeDistributed", "SpectralNormalization", channel=of_images)
def around(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """A layer around another, which wants what that wants."""
    fields: Any = link.fields
    inner, channel = fields.layer, of_images(link.fields)
    if type_of(inner) not in RULES:
        raise Unwritable(f"Keras has no layer `{type_of(inner)}`, which is inside")
    if type_of(inner) == "SpectralNormalization":
        raise Unwritable("Keras does not load the weights of a SpectralNormalization there")
    if type_of(inner) in ("LayerNormalization", "RMSNormalization") and tuple(getattr(inner, "axis", (-1,))) != (-1,):
        raise Unwritable("with PyTorch, Keras takes the axes for the last ones")
    if len(inputs) > 1:
        raise Unwritable("a layer around another has one input there")
    if channel is not None:
        _need_plain(inner)
    x = net.plain(inputs[0]) if channel is None else net.last(inputs[0], channel)
    if len(link.outputs) > 1:
        return step_by_step(net, link, inner, x)
    rank, made = net.types[link.outputs[0]].rank, channels_of(link.fields)
    order = in_order(rank) if made is None or rank <= made + 1 else channels_last(rank, made)
    config = net.config(link, "layer", layer=inside(inner, "inner"))
    return net.layer(link, [x], orders=[order], config=config, arrays=net.weights(link, x))


def _need_plain(layer: LayerFields) -> None:
    """Raise `Unwritable` unless a layer of images in a field is one layer in Keras, with nothing beside it."""
    if type_of(layer) in AROUND:
        return _need_plain(cast("Any", layer).layer)
    padding = getattr(layer, "padding", "valid")
    if not isinstance(padding, str):
        raise Unwritable("Keras has no explicit padding there")
    if padding != "valid" and re.fullmatch("AveragePooling.D|Conv.DTranspose", type_of(layer)):
        raise Unwritable(f"Keras's `padding: {padding}` is another one")
    return None


def step_by_step(net: Writer, link: LayerLink, inner: LayerSpec, x: Tensor) -> Sequence[Tensor]:
    """The layer inside, called with each step, and its outputs stacked: Keras's TimeDistributed has one output."""
    if of_images(inner) is not None:
        raise Unwritable("a layer around another has one output there")
    steps, *shape = x.shape
    parts = [
        net.helper(f"{link.name}_step_{step}", "GetItem", [x, [slice(None), step]], tuple(shape),
                   in_order(len(x.order) - 1), module=OPS_NUMPY)
        for step in range(steps)
    ]  # fmt: skip
    config = configured(inner, clean(link.name), {})
    arrays = {path.removeprefix("layer/"): array for path, array in net.weights(link, x).items()}
    made = net.layer(link, parts[:1], kind=type_of(inner), config=config, arrays=arrays)
    called, first = net.model.layers[made[0].layer], made[0].call
    called.calls.extend(([part], {}) for part in parts[1:])
    found = []
    for one in made:
        states = [
            replace(one, call=first + step, shape=one.shape[1:], order=in_order(len(one.shape)))
            for step in range(steps)
        ]
        found.append(
            net.helper(f"{link.name}_stacked", "Stack", [states], one.shape, one.order, module=OPS_NUMPY, axis=1)
        )
    return found


@rule("Flatten", neutral=True)
def flatten(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """As the numbers lie in Keras; what reads the row is told in which order they are."""
    (x,) = inputs
    (made,) = net.layer(link, [x], config=net.config(link, data_format="channels_last"))
    if x.rows is not None:
        return [replace(made, rows=x.rows)]
    return [made if x.plain else flattened(x, made)]


@rule("Reshape", "Squeeze", "ExpandDims", neutral=True)
def reshape(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """The same numbers in another shape, in the net's order."""
    shape = list(net.types[link.outputs[0]].shape[1:])
    x = net.plain(inputs[0])
    return net.layer(link, [x], kind="Reshape", config=net.config(link, "axis", target_shape=shape))


@rule("Permute", "Transpose")
def permute(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """The axes in another order: at once in that which the next layer wants, where it is one with channels."""
    fields: Any = link.fields
    x = net.straight(inputs[0])
    if type_of(fields) == "Permute":
        moved = (0, *fields.dims)
    else:
        rank = len(x.order)
        moved = tuple(range(rank))[::-1] if fields.axes is None else tuple(axis % rank for axis in fields.axes)
    if moved[0] != 0:
        raise Unwritable("the batch is the first axis there")
    order = net.wanted(link.outputs[0])
    places = [x.order.index(moved[axis]) for axis in order]
    if places == list(range(len(places))):
        return net.layer(link, [x], kind="Identity", orders=[order], config=net.config(link, "dims", "axes"))
    config = net.config(link, "dims", "axes", dims=places[1:])
    return net.layer(link, [x], kind="Permute", orders=[order], config=config)


def kept(net: Writer, link: LayerLink, x: Tensor, made: Iterable[Tensor]) -> list[Tensor]:
    """The outputs of a layer that treats each number alike: they are in the order that the input is in."""
    return [replace(one, rows=x.rows) for one in made]

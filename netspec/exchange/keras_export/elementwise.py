"""Layers that treat places alike, or number their axes: what they read may lie in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netspec.exchange.keras_export.laying import channels_last, in_order
from netspec.exchange.keras_export.model import OPS_NUMPY, Tensor
from netspec.exchange.keras_export.rules import applied, kept, rule, type_of
from netspec.exchange.keras_export.values import Unwritable, called, function_fields
from netspec.exchange.keras_export.writer import Writer
from netspec.layers.activations import OverAxis
from netspec.schema.links import LayerLink


@rule(
    "ReLU", "LeakyReLU", "ELU", "Identity", "ActivityRegularization", "Dropout", "AlphaDropout", "GaussianDropout",
    "GaussianNoise", passes=True,
)  # fmt: skip
def each(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Each number by itself."""
    (x,) = inputs
    more: dict[str, Any] = {}
    noise = getattr(link.fields, "noise_shape", None)
    if noise is not None:
        x = net.straight(x)
        more["noise_shape"] = [noise[axis] for axis in x.order]
    return kept(net, link, x, net.layer(link, [x], orders=[x.order], config=net.config(link, **more)))


@rule("Activation", passes=True)
def activation(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """A function: of each number, or along an axis, which lies last in Keras if it is not a softmax."""
    (x,), fields = inputs, link.fields
    function: Any = getattr(fields, "activation", None)
    if isinstance(function, OverAxis):
        x = net.straight(x)
        rank = len(x.order)
        axis = (getattr(fields, "axis", -1) if function.axis is None else function.axis) % rank
        if type_of(function) == "softmax":
            config = net.config(link, "activation", "axis", axis=x.axis(axis))
            return net.layer(link, [x], kind="Softmax", orders=[x.order], config=config)
        x = net.ordered(x, axis_last(x, axis))
        config = net.config(link, "axis", "activation", activation=called(function))
        return net.layer(link, [x], orders=[x.order], config=config)
    if function_fields(function):
        y = applied(net, f"{link.name}_{type_of(function)}", function, x, 1)
        made = net.layer(link, [y], kind="Identity", orders=[x.order], config=net.config(link, "activation", "axis"))
        return kept(net, link, x, made)
    return kept(net, link, x, net.layer(link, [x], orders=[x.order], config=net.config(link, "axis")))


def axis_last(x: Tensor, axis: int) -> tuple[int, ...]:
    """The order of axes nearest to the tensor's in which an axis of the net is the last."""
    return x.order if x.order[-1] == axis else channels_last(len(x.order), axis)


@rule("Swish", "BNLL", passes=True)
def named_function(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Layers that are functions there."""
    (x,), fields = inputs, link.fields
    if getattr(fields, "beta", 1.0) != 1.0:
        raise Unwritable("Keras's `silu` has no `beta`")
    name = "silu" if type_of(fields) == "Swish" else "softplus"
    config = net.config(link, "beta", activation=name)
    return kept(net, link, x, net.layer(link, [x], kind="Activation", orders=[x.order], config=config))


@rule("Softmax", "UnitNormalization", passes=True)
def along(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Along some axes, without weights."""
    x, *mask = [net.straight(one) for one in inputs]
    axes = sorted(x.axis(axis) for axis in getattr(link.fields, "axis", (-1,)))
    config = net.config(link, axis=axes[0] if len(axes) == 1 else axes)
    kwargs = {"mask": net.ordered(mask[0], x.order)} if mask else {}
    return net.layer(link, [x], orders=[x.order], config=config, kwargs=kwargs)


@rule("LayerNormalization", "RMSNormalization", passes=True)
def over_axes(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Along some axes, with weights that have those axes: in Keras they are in the order in which the axes lie."""
    x, fields = net.straight(inputs[0]), link.fields
    axes = sorted(axis % len(x.order) for axis in getattr(fields, "axis", (-1,)))
    lie = sorted(axes, key=x.axis)
    if sorted(map(x.axis, axes)) != list(range(len(x.order) - len(axes), len(x.order))):
        # With PyTorch, Keras takes axes that lie side by side for the last ones: let them be the last.
        x = net.ordered(x, (*(axis for axis in x.order if axis not in axes), *axes))
        lie = axes
    arrays = {path: array.transpose([axes.index(axis) for axis in lie]) for path, array in net.weights(link, x).items()}
    places = [x.axis(axis) for axis in lie]
    config = net.config(link, axis=places[0] if len(places) == 1 else places)
    return net.layer(link, [x], orders=[x.order], config=config, arrays=arrays)


@rule("BatchNormalization", "GroupNormalization", "InstanceNormalization", passes=True)
def of_channels(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """With weights for each channel."""
    x = net.straight(inputs[0])
    fields: Any = link.fields
    kind, more = type_of(fields), {"axis": x.axis(fields.axis)}
    if kind == "InstanceNormalization":
        kind, more["groups"] = "GroupNormalization", x.shape[x.axis(fields.axis) - 1]
    arrays = net.weights(link, x)
    return net.layer(link, [x], kind=kind, orders=[x.order], config=net.config(link, **more), arrays=arrays)


@rule("PReLU", passes=True)
def slopes(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """With weights for each place, some of them shared."""
    x, shared = net.straight(inputs[0]), getattr(link.fields, "shared_axes", None)
    config = net.config(link, shared_axes=None if shared is None else sorted(x.axis(axis) for axis in shared))
    return net.layer(link, [x], orders=[x.order], config=config, arrays=net.weights(link, x))


@rule("Normalization", passes=True)
def normalization(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """By figures that are known, or kept as weights: then Keras wants to know of how many samples they are."""
    import numpy as np

    x = net.straight(inputs[0])
    fields: Any = link.fields
    more: dict[str, Any] = {}
    arrays = net.weights(link, x)
    if fields.axis is None:
        more["axis"], size = None, 1
        arrays = {path: array.reshape(()) for path, array in arrays.items()}
    else:
        axis = fields.axis % len(x.order)
        x = net.ordered(x, axis_last(x, axis))
        more["axis"], size = -1, x.shape[-1]
    for name in ("mean", "variance"):
        given = getattr(fields, name)
        if given is not None:
            whole = list(given) * (size if len(given) == 1 else 1)
            more[name] = whole[0] if fields.axis is None else whole
    if arrays:
        arrays["vars/2"] = np.zeros((), "int32")
    return net.layer(link, [x], orders=[x.order], config=net.config(link, **more), arrays=arrays)


@rule("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", passes=True)
def merge(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Inputs number by number: all lie as the first that is not as in the net."""
    rows = {None if one.rows is None else (one.rows.shape, one.rows.order) for one in inputs}
    if len(rows) == 1 and inputs[0].rows is not None:
        return kept(net, link, inputs[0], net.layer(link, [inputs], config=net.config(link)))
    found = _alike(net, inputs)
    rank = net.types[link.outputs[0]].rank
    order = found[0].order if len(found[0].order) == rank else in_order(rank)
    return net.layer(link, [found], orders=[order], config=net.config(link))


@rule("Concatenate", passes=True)
def concatenate(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """One behind the other, along an axis."""
    found = _alike(net, inputs)
    order = found[0].order
    config = net.config(link, axis=found[0].axis(getattr(link.fields, "axis", 1)))
    return net.layer(link, [found], orders=[order], config=config)


def _alike(net: Writer, inputs: list[Tensor]) -> list[Tensor]:
    straight = [net.straight(one) for one in inputs]
    turned = [one.order for one in straight if not one.plain]
    same_rank = len({len(one.order) for one in straight}) == 1
    order = turned[0] if turned and same_rank else None
    return [net.ordered(one, order or in_order(len(one.order))) for one in straight]


@rule("Pad", passes=True)
def pad(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """An operation there, of constants and of mirrored data."""
    x = net.straight(inputs[0])
    fields: Any = link.fields
    if fields.mode not in ("constant", "reflect"):
        raise Unwritable(f"Keras has no mode `{fields.mode}`")
    if min(map(min, fields.padding)) < 0:
        raise Unwritable("Keras's padding cuts nothing off")
    sides = [(0, 0), *fields.padding]
    config = {"pad_width": [list(sides[axis]) for axis in x.order], "mode": fields.mode}
    kwargs = {"constant_values": fields.value} if fields.mode == "constant" else {}
    return net.layer(link, [x], kind="Pad", module=OPS_NUMPY, orders=[x.order], config=config, kwargs=kwargs)


@rule("Power", passes=True)
def power(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """A factor and a shift are a Rescaling there."""
    (x,) = inputs
    fields: Any = link.fields
    if fields.power != 1:
        raise Unwritable("Keras has no layer for powers")
    config = net.config(link, "power", "shift", offset=fields.shift)
    return kept(net, link, x, net.layer(link, [x], kind="Rescaling", orders=[x.order], config=config))


@rule("Exp", passes=True)
def exponential(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Of base e it is a function there."""
    (x,) = inputs
    fields: Any = link.fields
    if (fields.scale, fields.shift, fields.base) != (1.0, 0.0, None):
        raise Unwritable("Keras's `exponential` has no scale, shift or base")
    config = net.config(link, "scale", "shift", "base", activation="exponential")
    return kept(net, link, x, net.layer(link, [x], kind="Activation", orders=[x.order], config=config))

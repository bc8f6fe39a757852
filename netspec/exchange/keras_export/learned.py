"""Layers of a few numbers that are learned, which Keras has not: written as its layers that hold such numbers.

What is multiplied along axes is an EinsumDense whose equation sums nothing; what is added, or there by itself, the one
row of an Embedding that every sample looks up. Both are trained in Keras, and their optimizer's states are those here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from string import ascii_lowercase
from typing import Any

from netspec.exchange.keras_export.laying import in_order
from netspec.exchange.keras_export.model import OPS_NUMPY, Tensor
from netspec.exchange.keras_export.rules import rule
from netspec.exchange.keras_export.values import Unwritable
from netspec.exchange.keras_export.writer import Writer
from netspec.layers.scaling import AlongAxes
from netspec.schema.links import LayerLink


@rule("Scale", passes=True)
def scale(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Learned factors, with what is added behind them."""
    x, fields = net.straight(inputs[0]), link.fields
    assert isinstance(fields, AlongAxes)
    if len(inputs) > 1:
        raise Unwritable("Keras has no layer that multiplies along axes and adds what is learned")
    if fields.num_axes > 1:
        x = net.plain(x)
    first = fields.axis % len(x.order)
    axes = range(first, first + fields.num_axes)
    letters = ascii_lowercase[: len(x.order)]
    along = "".join(letters[x.axis(axis)] for axis in axes)
    arrays = net.weights(link, x)
    told = net.config(link, "axis", "num_axes", "use_bias")
    config = {name.replace("scale_", "kernel_"): value for name, value in told.items()}
    config |= {"equation": f"{letters},{along}->{letters}", "output_shape": list(x.shape), "activation": None}
    if getattr(fields, "use_bias", False):
        config["bias_axes"] = along
        if "vars/1" in arrays:  # Keras has it with sizes of 1 for the axes behind
            behind = len(x.order) - 1 - x.axis(axes[-1])
            arrays["vars/1"] = arrays["vars/1"].reshape(*arrays["vars/1"].shape, *[1] * behind)
    net.maskless.add(link.name)
    return net.layer(link, [x], kind="EinsumDense", orders=[x.order], config=config, arrays=arrays)


@rule("Bias", passes=True)
def bias(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Learned numbers, added along axes."""
    x, fields = net.straight(inputs[0]), link.fields
    assert isinstance(fields, AlongAxes)
    if len(inputs) > 1:
        raise Unwritable("Keras has no layer that adds along axes")
    first = fields.axis % len(x.order)
    array = net.state(link, "bias")
    if array is not None:
        kept = [axis for axis in x.order if first <= axis < first + fields.num_axes]
        array = array.transpose([axis - first for axis in kept])
    sizes = [
        size if first <= axis < first + fields.num_axes else 1 for axis, size in zip(x.order[1:], x.shape, strict=True)
    ]
    added = _row(net, link, x, "bias", array, tuple(sizes), x.order)
    net.maskless.add(link.name)
    return [net.helper(f"{link.name}_added", "Add", [[x, added]], x.shape, x.order)]


@rule("Parameter")
def parameter(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """Learned numbers that are the same for each sample."""
    fields: Any = link.fields
    if fields.dtype != "float32":
        raise Unwritable("Keras has whole numbers as constants alone, of at most 1,000,000")
    x = net.straight(inputs[0])
    net.maskless.add(link.name)
    return [_row(net, link, x, "value", net.state(link, "value"), fields.shape, in_order(len(fields.shape) + 1))]


@rule("PositionEmbedding")
def positions(net: Writer, link: LayerLink, inputs: list[Tensor]) -> Sequence[Tensor]:
    """A vector for each place, which is counted in the numbers of each sample."""
    import numpy as np

    x = net.plain(inputs[0])
    *places, features = x.shape
    first = net.helper(
        f"{link.name}_first", "GetItem", [x, [*[slice(None)] * len(x.shape), 0]], tuple(places),
        in_order(len(x.shape)), module=OPS_NUMPY,
    )  # fmt: skip
    zeros = _zeros(net, link, first)
    told = net.config(link, "sequence_length", "initializer", input_dim=0, output_dim=features)
    config = {**told, "input_dim": getattr(link.fields, "sequence_length", 0)}
    config["embeddings_initializer"] = net.config(link)["initializer"]
    counted = net.helper(
        f"{link.name}_places", "Add", [zeros, np.arange(places[-1], dtype="int32")], tuple(places), zeros.order,
        module=OPS_NUMPY, element="int32",
    )  # fmt: skip
    net.maskless.add(link.name)
    return net.layer(link, [counted], kind="Embedding", config=config, arrays=net.weights(link, x))


def _zeros(net: Writer, link: LayerLink, x: Tensor) -> Tensor:
    """Zeros as whole numbers, in the shape of a tensor."""
    return net.helper(
        f"{link.name}_zeros", "ZerosLike", [x], x.shape, x.order, module=OPS_NUMPY, element="int32", dtype="int32"
    )


def _row(
    net: Writer, link: LayerLink, x: Tensor, state: str, array: Any, shape: tuple[int, ...], order: tuple[int, ...]
) -> Tensor:
    """A state of the layer for each sample that `x` has: (N, *shape), where `array` lies as `shape` does."""
    if getattr(link.fields, f"{state}_constraint", None) is not None:
        raise Unwritable("Keras has these numbers as a row, and a constraint of them would be one of the row")
    if x.shape:
        parts = [slice(None), *[slice(0, 1)] * len(x.shape)]
        x = net.helper(
            f"{link.name}_first", "GetItem", [x, parts], (1,) * len(x.shape), x.order, module=OPS_NUMPY, element=x.dtype
        )
    numbers, told = prod(shape), net.config(link)
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
    made = net.layer(link, [_zeros(net, link, x)], kind="Embedding", config=config, arrays=arrays)[0]
    return net.helper(f"{link.name}_{state}", "Reshape", [made], shape, order, target_shape=list(shape))

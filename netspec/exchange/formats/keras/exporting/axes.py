"""The order of axes of tensors in Keras, and the names of Keras layers."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.exporting.model import KerasTensor


def clean(name: str) -> str:
    """A name with only the characters that all of Keras's backends accept in names of layers."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def net_order(rank: int) -> tuple[int, ...]:
    """The net's own order of axes."""
    return tuple(range(rank))


def channels_last(rank: int, channel: int = 1) -> tuple[int, ...]:
    """The order of axes in which the channels, axis `channel` of the net, come last."""
    return (*(axis for axis in range(rank) if axis != channel), channel)


def with_renamed_layer(value: Any, old: str, new: str) -> Any:
    """Nested tensors, with the layer `old` renamed to `new`."""
    if isinstance(value, KerasTensor):
        return replace(value, layer=new) if value.layer == old else value
    if isinstance(value, dict):
        return {key: with_renamed_layer(item, old, new) for key, item in value.items()}
    return (
        type(value)(with_renamed_layer(item, old, new) for item in value) if isinstance(value, (list, tuple)) else value
    )


def feature_order(x: KerasTensor) -> list[int]:
    """For each feature of a tensor that Keras flattened, its index in the tensor that the net flattened."""
    assert x.flattened_from is not None
    order = x.flattened_from.order
    sizes = [0] * (len(order) - 1)
    for index, axis in enumerate(order[1:]):
        sizes[axis - 1] = x.flattened_from.shape[index]
    indices = np.arange(prod(sizes)).reshape(sizes).transpose([axis - 1 for axis in order[1:]])
    return [int(position) for position in indices.ravel()]


def with_feature_order(x: KerasTensor, result: KerasTensor) -> KerasTensor:
    """`result`, the flattened `x`; it refers to `x` if the order of its features differs from the net's."""
    reordered = replace(result, flattened_from=x)
    return result if feature_order(reordered) == sorted(feature_order(reordered)) else reordered

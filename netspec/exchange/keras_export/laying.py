"""How the axes of tensors lie in Keras, and what tensors and layers are called there."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import Any

from netspec.exchange.keras_export.model import Tensor


def clean(name: str) -> str:
    """A name of the characters that names of layers may have with each of Keras's backends."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def in_order(rank: int) -> tuple[int, ...]:
    """The net's own order of axes."""
    return tuple(range(rank))


def channels_last(rank: int, channel: int = 1) -> tuple[int, ...]:
    """The order of axes in which the channels, axis `channel` of the net, come last."""
    return (*(axis for axis in range(rank) if axis != channel), channel)


def renamed(value: Any, old: str, new: str) -> Any:
    """Tensors, in lists and arguments, of which those of one layer are called otherwise."""
    if isinstance(value, Tensor):
        return replace(value, layer=new) if value.layer == old else value
    if isinstance(value, dict):
        return {key: renamed(one, old, new) for key, one in value.items()}
    return type(value)(renamed(one, old, new) for one in value) if isinstance(value, (list, tuple)) else value


def row_order(x: Tensor) -> list[int]:
    """For each number of a row that a tensor was flattened to in Keras, where it is in the net's row."""
    import numpy as np

    assert x.rows is not None
    order = x.rows.order
    sizes = [0] * (len(order) - 1)
    for place, axis in enumerate(order[1:]):
        sizes[axis - 1] = x.rows.shape[place]
    places = np.arange(prod(sizes)).reshape(sizes).transpose([axis - 1 for axis in order[1:]])
    return [int(one) for one in places.ravel()]


def flattened(x: Tensor, made: Tensor) -> Tensor:
    """`made`, which is `x` laid out in rows, remembering in which order they are if it is not the net's."""
    kept = replace(made, rows=x)
    return made if row_order(kept) == sorted(row_order(kept)) else kept

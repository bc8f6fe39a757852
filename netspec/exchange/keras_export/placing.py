"""Arrays of the parameters that Keras trains, as its variables are: how they lie there, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netspec.exchange.keras_export.model import KerasLayer
from netspec.exchange.keras_export.writer import Writer

if TYPE_CHECKING:
    from numpy.typing import NDArray


def laid(own: Mapping[str, NDArray[Any]], net: Writer) -> list[NDArray[Any]]:
    """Arrays of all parameters as Keras has those, in the order of its trainable variables."""
    return [array for _, array in _in_order(own, net)]


def placed(net: Writer) -> list[tuple[str, KerasLayer, tuple[int, ...]]]:
    """In that order the parameters, the layers that have them in Keras, and their shapes there."""
    import numpy as np

    trained = net.trained()
    names = list(trained)
    marks = {name: np.full(trained[name], index, np.float32) for index, name in enumerate(names)}
    return [(names[int(array.flat[0])], layer, array.shape) for layer, array in _in_order(marks, net)]


def _in_order(own: Mapping[str, NDArray[Any]], net: Writer) -> list[tuple[KerasLayer, NDArray[Any]]]:
    """The arrays of the net's parameters, each once, with the layers."""
    arrays = {name: own[name] for name in net.trained()}
    found: dict[int, tuple[KerasLayer, NDArray[Any]]] = {}
    for layer in replace(net, arrays=arrays, problems=[], notes={}).write().ordered():
        for array in layer.arrays.values():
            found.setdefault(id(array), (layer, array))
    return list(found.values())

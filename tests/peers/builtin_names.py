"""All names that Keras defines for losses, metrics, layers and others, with their classes or functions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

MODULES = ("losses", "metrics", "activations", "initializers", "regularizers", "constraints")


def record(keras: Any) -> dict[str, np.ndarray]:
    """For each module, rows of an exported name and the `__name__` of its class or function."""
    layers = {name: layer for name, layer in vars(keras.layers).items() if isinstance(layer, type)}
    recorded = {"layers": np.array(sorted({*layers, *(layer.__name__ for layer in layers.values())}))}
    for module in MODULES:
        objects = import_module(f"keras.src.{module}").ALL_OBJECTS_DICT
        recorded[module] = np.array([[name, objects[name].__name__] for name in sorted(objects)])
    return recorded

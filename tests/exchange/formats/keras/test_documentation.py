"""Every class and function of Keras that the documentation lists has a counterpart in netspec."""

from __future__ import annotations

from typing import Any

from netspec.exchange.formats.keras import names as keras_names
from netspec.schema.specs.kinds import (
    ACTIVATIONS,
    CELLS,
    CONSTRAINTS,
    INITIALIZERS,
    LAYERS,
    LOSSES,
    METRICS,
    REGULARIZERS,
)
from netspec.schema.specs.spec import Registry


def test_every_name_is_one_of_netspec() -> None:
    """Every listed name has a class in netspec, or a rule."""
    registries: dict[str, Registry[Any]] = {
        "layer": LAYERS, "cell": CELLS, "activation": ACTIVATIONS, "initializer": INITIALIZERS,
        "regularizer": REGULARIZERS, "constraint": CONSTRAINTS,
    }  # fmt: skip
    for kind, registry in registries.items():
        assert set(keras_names.types(kind)) <= set(registry.names())
    assert set(LOSSES.names()) >= keras_names.LOSSES
    assert set(METRICS.names()) >= keras_names.METRICS

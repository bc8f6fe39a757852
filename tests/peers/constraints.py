"""Keras's training steps with constrained weights, which `record.py` records."""

from __future__ import annotations

from typing import Any

import numpy as np

CONSTRAINTS: dict[str, dict[str, Any]] = {
    "non_neg": {"type": "NonNeg"},
    "max_norm": {"type": "MaxNorm", "max_value": 0.7},
    "unit_norm": {"type": "UnitNorm", "axis": 1},
    "min_max_norm": {"type": "MinMaxNorm", "min_value": 0.9, "max_value": 1.1, "rate": 0.3},
}
STEPS, RATE, MOMENTUM, BATCH, FEATURES, UNITS = 3, 0.1, 0.9, 5, 4, 3


def given() -> dict[str, np.ndarray]:
    """Inputs, targets, and initial weights."""
    random = np.random.default_rng(11)
    return {
        "x": random.normal(size=(BATCH, FEATURES)),
        "y": random.normal(size=(BATCH, UNITS)),
        "kernel": random.normal(size=(FEATURES, UNITS)),
        "bias": random.normal(size=UNITS),
    }


def record(keras: Any) -> dict[str, np.ndarray]:
    """Return the weights after some steps of Keras's `fit` with momentum, for each constraint."""
    recorded = given()
    for name, fields in CONSTRAINTS.items():
        output = getattr(keras.constraints, fields["type"])(**{key: v for key, v in fields.items() if key != "type"})
        dense = keras.layers.Dense(UNITS, kernel_constraint=output, bias_constraint="non_neg")
        model = keras.Sequential([keras.layers.Input((FEATURES,)), dense])
        dense.set_weights([recorded["kernel"], recorded["bias"]])
        model.compile(keras.optimizers.SGD(RATE, momentum=MOMENTUM), "mse")
        model.fit(recorded["x"], recorded["y"], batch_size=BATCH, epochs=STEPS, shuffle=False, verbose=0)
        recorded[f"{name}/kernel"], recorded[f"{name}/bias"] = dense.get_weights()
    return recorded

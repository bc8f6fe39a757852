"""Keras's training steps with accumulated gradients and with a scaled loss, which `record.py` records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.peers.solvers import exactly

BATCH, FEATURES, UNITS, STEPS = 4, 5, 3, 10
ACCUMULATE = 4
RATE = 0.125
"""Learning rate. It is exact in float32, in which Keras stores it, and so is the share of one batch."""
SOLVERS: dict[str, dict[str, Any]] = {
    "sgd": {"type": "SGD", "momentum": 0.75, "global_clipnorm": 0.5},
    "adam": {"type": "Adam", "beta_1": 0.75, "clipvalue": 0.1, "epsilon": 1e-3},
    "adamw": {"type": "AdamW", "weight_decay": 0.0625, "clipnorm": 0.25, "epsilon": 1e-3, "ema": {"decay": 0.5}},
}
INITIAL_SCALE, GROWTH, FACTOR = 2.0**126, 3, 8.0
"""Initial scale of the loss, steps until it grows, and a further factor of the loss with which gradients overflow."""


def given(steps: int) -> dict[str, np.ndarray]:
    """Inputs, targets, and initial weights."""
    random = np.random.default_rng(5)
    return {
        "x": random.normal(size=(steps, BATCH, FEATURES)),
        "y": random.normal(size=(steps, BATCH, UNITS)),
        "kernel": random.normal(size=(FEATURES, UNITS)),
        "bias": random.normal(size=UNITS),
    }


def _stepped(
    keras: Any, optimizer: Any, data: dict[str, np.ndarray], dtype: str, factor: float = 1.0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return kernel and bias after each call of an optimizer of Keras; PyTorch computes the products."""
    weights = [keras.Variable(data[name].astype(dtype), dtype=dtype) for name in ("kernel", "bias")]
    optimizer.build(weights)
    for x, y in zip(data["x"].astype(dtype), data["y"].astype(dtype), strict=True):
        predictions = keras.ops.convert_to_tensor(x) @ weights[0].value + weights[1].value
        loss = ((predictions - keras.ops.convert_to_tensor(y)) ** 2).mean() * factor
        optimizer.scale_loss(loss).backward()
        optimizer.apply([weight.value.grad for weight in weights], weights)
        for weight in weights:
            weight.value.grad = None
        kernel, bias = (weight.value.detach().numpy().copy() for weight in weights)
        yield kernel, bias


def record(keras: Any) -> dict[str, np.ndarray]:
    """Return weights after updates by gradients of several batches, and by those of a scaled loss, with the scale."""
    recorded: dict[str, np.ndarray] = {}
    for name, fields in SOLVERS.items():
        more = {key: value for key, value in fields.items() if key not in ("type", "ema")}
        optimizer = getattr(keras.optimizers, fields["type"])(RATE, gradient_accumulation_steps=ACCUMULATE, **more)
        with exactly():
            every = list(_stepped(keras, optimizer, given(ACCUMULATE * STEPS), "float64"))
        after = every[ACCUMULATE - 1 :: ACCUMULATE]
        recorded[f"{name}/kernel"], recorded[f"{name}/bias"] = map(np.array, zip(*after, strict=True))
    keras.config.set_floatx("float32")
    inner = keras.optimizers.SGD(RATE, momentum=0.75)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=INITIAL_SCALE, dynamic_growth_steps=GROWTH)
    after, scales = [], []
    for kernel, bias in _stepped(keras, optimizer, given(STEPS), "float32", FACTOR):
        after.append((kernel, bias))
        scales.append(float(optimizer.dynamic_scale))
    keras.config.set_floatx("float64")
    kernels, biases = map(np.array, zip(*after, strict=True))
    return {**recorded, "scaled/kernel": kernels, "scaled/bias": biases, "scaled/scale": np.array(scales)}

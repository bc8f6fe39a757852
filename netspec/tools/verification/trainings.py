"""Small trainings on a device, whose losses are compared with those of the reference kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import isclose
from typing import Any

import numpy as np

from netspec.backends.device import Device
from netspec.backends.device_registry import open_device
from netspec.backends.kernel_check import WrongResult
from netspec.backends.program import Program
from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.graph.ops.random import RNG_INPUT
from netspec.graph.types import Precision
from netspec.schema.load import load_net
from netspec.solvers.sgd import SGD

CLASSES, BATCH, STEPS = 4, 8, 6
TOLERANCE = {
    Precision.FLOAT32: 1e-4,
    Precision.TF32: 2**-8,
    Precision.BFLOAT16: 2**-6,
    Precision.FLOAT16: 2**-8,
}
"""Relative difference of a loss: sums in another order; for narrow types the rounding of a few operands."""

_LOSS = {
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
    "outputs": ["logits"],
}
NETS: dict[str, dict[str, Any]] = {
    "convolutional net": {
        "netspec": 1,
        "inputs": {"image": {"shape": [3, 12, 12]}, "label": {"shape": [], "dtype": "int32"}},
        "layers": [
            {"name": "conv", "type": "Conv2D", "filters": 8, "kernel_size": 3},
            {"name": "norm", "type": "BatchNormalization"},
            {"name": "relu", "type": "Activation", "activation": "relu"},
            {"name": "pool", "type": "MaxPooling2D", "pool_size": 2},
            {"name": "flat", "type": "Flatten"},
            {"name": "hidden", "type": "Dense", "units": 16, "activation": "relu"},
            {"name": "drop", "type": "Dropout", "rate": 0.2},
            {"name": "logits", "type": "Dense", "units": CLASSES},
        ],
        **_LOSS,
    },
    "sequence net": {
        "netspec": 1,
        "inputs": {"text": {"shape": [6], "dtype": "int32"}, "label": {"shape": [], "dtype": "int32"}},
        "layers": [
            {"name": "embedding", "type": "Embedding", "input_dim": CLASSES, "output_dim": 16},
            {"name": "attention", "type": "MultiHeadAttention", "num_heads": 2, "key_dim": 8},
            {"name": "sum", "type": "Add", "from": ["embedding", "attention"]},
            {"name": "norm", "type": "LayerNormalization"},
            {"name": "memory", "type": "LSTM", "units": 8},
            {"name": "logits", "type": "Dense", "units": CLASSES},
        ],
        **_LOSS,
    },
}


def check_training(device: Device, net: str, precision: Precision) -> None:
    """Train one of `NETS` for a few steps; raise `WrongResult` if a loss is not that of the reference in float32."""
    expected = _expected(net)
    actual = _losses(device, net, precision)
    for step, (loss, right) in enumerate(zip(actual, expected, strict=True), 1):
        if not isclose(loss, right, rel_tol=TOLERANCE[precision]):
            raise WrongResult(f"the loss of step {step} is {loss:.6g}, but {right:.6g} with the reference kernels")


def precisions(device: Device) -> Sequence[Precision]:
    """The precisions that a device can train in."""
    tf32 = [Precision.TF32] if device.has_tf32 else []
    return [Precision.FLOAT32, *tf32, *map(Precision, device.low_precision_dtypes)]


@cache
def _expected(net: str) -> list[float]:
    return _losses(open_device("reference"), net, Precision.FLOAT32)


def _losses(device: Device, net: str, precision: Precision) -> list[float]:
    solver = SGD.model_validate({"type": "SGD", "momentum": 0.9})
    compiler = Compiler(load_net(NETS[net]), solver=solver, dtype=precision, device=device, seed=5)
    return losses_of(compiler.program(ProgramKind.TRAIN, BATCH), STEPS, 2.0**-5, CLASSES)


def losses_of(program: Program, steps: int, rate: float, classes: int) -> list[float]:
    """The losses of a training program; samples are drawn for each step, integers below `classes`."""
    random, losses = np.random.default_rng(1), []
    for step in range(steps):
        feeds: dict[str, Any] = {
            LEARNING_RATE: np.array(rate), STEP: np.array(step + 1.0), RNG_INPUT: np.array([5, step, 0])
        }  # fmt: skip
        for name, value in program.inputs.items():
            if value.dtype.is_float and name not in feeds:
                feeds[name] = random.random(value.shape, np.float32)
            elif name not in feeds:
                feeds[name] = random.integers(0, classes, value.shape)
        program(feeds)
        losses.append(program.guard)
    return losses

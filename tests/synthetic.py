"""A training run on synthetic samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from netspec.backends.program import Program
from netspec.compile import LEARNING_RATE, STEP
from netspec.graph.ops.random import RNG_INPUT


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

"""Learning rates of Keras's and PyTorch's schedules: recorded by `record.py`, compared by `test_scheduling.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

STEPS = 40
RATE = 0.1

Peer = Callable[[Any, Any], list[float]]


def keras_schedule(name: str, **fields: Any) -> Peer:
    """One of Keras's, a function of the step."""

    def rates(keras: Any, _: Any) -> list[float]:
        made = getattr(keras.optimizers.schedules, name)(**fields)
        return [float(made(keras.ops.convert_to_tensor(float(step), "float64"))) for step in range(STEPS)]

    return rates


def torch_schedule(make: Callable[[Any, Any], Any], steps: int = STEPS) -> Peer:
    """One of PyTorch's, which changes the rate of an optimizer at every step."""

    def rates(_: Any, torch: Any) -> list[float]:
        optimizer = torch.optim.SGD([torch.zeros(1, dtype=torch.float64, requires_grad=True)], RATE)
        schedule = make(torch.optim.lr_scheduler, optimizer)
        found = []
        for step in range(steps):
            found.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if step + 1 < steps:
                schedule.step()
        return found

    return rates


SCHEDULES: dict[str, tuple[dict[str, Any], Peer]] = {
    "keras_exponential": (
        {"type": "ExponentialDecay", "initial": RATE, "decay_rate": 0.7, "decay_steps": 5},
        keras_schedule("ExponentialDecay", initial_learning_rate=RATE, decay_rate=0.7, decay_steps=5),
    ),
    "keras_exponential_staircase": (
        {"type": "ExponentialDecay", "initial": RATE, "decay_rate": 0.7, "decay_steps": 5, "staircase": True},
        keras_schedule("ExponentialDecay", initial_learning_rate=RATE, decay_rate=0.7, decay_steps=5, staircase=True),
    ),
    "torch_exponential": (
        {"type": "ExponentialDecay", "initial": RATE, "decay_rate": 0.9, "decay_steps": 1},
        torch_schedule(lambda kinds, optimizer: kinds.ExponentialLR(optimizer, 0.9)),
    ),
    "keras_inverse_time": (
        {"type": "InverseTimeDecay", "initial": RATE, "decay_rate": 0.5, "decay_steps": 3},
        keras_schedule("InverseTimeDecay", initial_learning_rate=RATE, decay_rate=0.5, decay_steps=3),
    ),
    "keras_inverse_time_staircase": (
        {"type": "InverseTimeDecay", "initial": RATE, "decay_rate": 0.5, "decay_steps": 3, "staircase": True},
        keras_schedule("InverseTimeDecay", initial_learning_rate=RATE, decay_rate=0.5, decay_steps=3, staircase=True),
    ),
    "keras_polynomial": (
        {"type": "PolynomialDecay", "initial": RATE, "decay_steps": 12, "end": 0.01, "power": 2},
        keras_schedule(
            "PolynomialDecay", initial_learning_rate=RATE, decay_steps=12, end_learning_rate=0.01, power=2.0
        ),
    ),
    "keras_polynomial_cycle": (
        {"type": "PolynomialDecay", "initial": RATE, "decay_steps": 12, "end": 0.01, "cycle": True},
        keras_schedule(
            "PolynomialDecay", initial_learning_rate=RATE, decay_steps=12, end_learning_rate=0.01, cycle=True
        ),
    ),
    "torch_polynomial": (
        {"type": "PolynomialDecay", "initial": RATE, "decay_steps": 30, "end": 0, "power": 0.9},
        torch_schedule(lambda kinds, optimizer: kinds.PolynomialLR(optimizer, 30, power=0.9)),
    ),
    "keras_piecewise": (
        {"type": "PiecewiseConstantDecay", "boundaries": [3, 10], "values": [0.1, 0.05, 0.01]},
        keras_schedule("PiecewiseConstantDecay", boundaries=[3, 10], values=[0.1, 0.05, 0.01]),
    ),
    "torch_step": (
        {"type": "StepDecay", "initial": RATE, "step_size": 7, "gamma": 0.5},
        torch_schedule(lambda kinds, optimizer: kinds.StepLR(optimizer, 7, 0.5)),
    ),
    "torch_multistep": (
        {"type": "MultiStepDecay", "initial": RATE, "milestones": [3, 10, 11], "gamma": 0.3},
        torch_schedule(lambda kinds, optimizer: kinds.MultiStepLR(optimizer, [3, 10, 11], 0.3)),
    ),
    "keras_cosine": (
        {"type": "CosineDecay", "initial": RATE, "decay_steps": 25, "alpha": 0.1},
        keras_schedule("CosineDecay", initial_learning_rate=RATE, decay_steps=25, alpha=0.1),
    ),
    "keras_cosine_warmup": (
        {
            "type": "Warmup", "steps": 6, "initial": 0.02,
            "then": {"type": "CosineDecay", "initial": 0.2, "decay_steps": 25, "alpha": 0.1},
        },
        keras_schedule(
            "CosineDecay", initial_learning_rate=0.02, decay_steps=25, alpha=0.1, warmup_target=0.2, warmup_steps=6
        ),
    ),
    "keras_restarts": (
        {"type": "CosineDecayRestarts", "initial": RATE, "first_decay_steps": 5, "m_mul": 0.8, "alpha": 0.05},
        keras_schedule(
            "CosineDecayRestarts", initial_learning_rate=RATE, first_decay_steps=5, t_mul=2.0, m_mul=0.8, alpha=0.05
        ),
    ),
    "keras_restarts_of_one_length": (
        {"type": "CosineDecayRestarts", "initial": RATE, "first_decay_steps": 6, "t_mul": 1.0, "m_mul": 0.8},
        keras_schedule("CosineDecayRestarts", initial_learning_rate=RATE, first_decay_steps=6, t_mul=1.0, m_mul=0.8),
    ),
    "torch_restarts": (
        {"type": "CosineDecayRestarts", "initial": RATE, "first_decay_steps": 3, "t_mul": 3, "alpha": 0.1},
        torch_schedule(lambda kinds, optimizer: kinds.CosineAnnealingWarmRestarts(optimizer, 3, 3, eta_min=0.01)),
    ),
    "torch_one_cycle": (
        {"type": "OneCycle", "peak": RATE},
        torch_schedule(lambda kinds, optimizer: kinds.OneCycleLR(optimizer, RATE, STEPS)),
    ),
    "torch_one_cycle_linear": (
        {
            "type": "OneCycle", "peak": RATE, "pct_start": 0.45, "anneal_strategy": "linear", "div_factor": 10,
            "final_div_factor": 50, "three_phase": True,
        },
        torch_schedule(
            lambda kinds, optimizer: kinds.OneCycleLR(
                optimizer, RATE, STEPS, pct_start=0.45, anneal_strategy="linear", div_factor=10.0,
                final_div_factor=50.0, three_phase=True,
            )
        ),
    ),
    "torch_sequence": (
        {
            "type": "Sequence",
            "parts": [
                {"steps": 7, "schedule": {"type": "PolynomialDecay", "initial": 0.01, "end": RATE}},
                {"steps": 11, "schedule": RATE},
                {"schedule": {"type": "ExponentialDecay", "initial": RATE, "decay_rate": 0.8, "decay_steps": 1}},
            ],
        },
        torch_schedule(
            lambda kinds, optimizer: kinds.SequentialLR(
                optimizer,
                [
                    kinds.LinearLR(optimizer, 0.1, 1.0, 7),
                    kinds.ConstantLR(optimizer, 1.0, 11),
                    kinds.ExponentialLR(optimizer, 0.8),
                ],
                [7, 18],
            )
        ),
    ),
}  # fmt: skip
"""What the schedule is here, and the peer's."""

FIGURES = [
    3.0,
    2.0,
    2.0,
    1.9999,
    2.1,
    1.0,
    1.0,
    1.0,
    1.0,
    1.0,
    0.99,
    1.0,
    1.2,
    1.0,
    1.0,
    1.0,
    1.0,
    1.0,
    0.5,
    1.0,
    1.0,
    1.0,
]
"""What one evaluation after the other finds."""


def keras_plateau(**fields: Any) -> Peer:
    """The rate after each evaluation, as Keras's callback sets it."""

    def rates(keras: Any, _: Any) -> list[float]:
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(RATE), "mse")
        callback = keras.callbacks.ReduceLROnPlateau(monitor="loss", **fields)
        callback.set_model(model)
        callback.on_train_begin()
        found = []
        for epoch, figure in enumerate(FIGURES):
            callback.on_epoch_end(epoch, {"loss": figure})
            found.append(float(model.optimizer.learning_rate))
        return found

    return rates


def torch_plateau(**fields: Any) -> Peer:
    """The rate after each evaluation, as PyTorch's schedule sets it."""

    def rates(_: Any, torch: Any) -> list[float]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], RATE)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **fields)
        found = []
        for figure in FIGURES:
            schedule.step(figure)
            found.append(float(optimizer.param_groups[0]["lr"]))
        return found

    return rates


PLATEAUS: dict[str, tuple[dict[str, Any], Peer]] = {
    "keras_plateau": (
        {"patience": 2, "factor": 0.5, "min": 0.02},
        keras_plateau(patience=2, factor=0.5, min_lr=0.02),
    ),
    "keras_plateau_cooldown": (
        {"patience": 1, "factor": 0.5, "cooldown": 3, "threshold": 0.005},
        keras_plateau(patience=1, factor=0.5, cooldown=3, min_delta=0.005),
    ),
    "torch_plateau": (
        {"patience": 2, "factor": 0.5, "cooldown": 3, "relative": True},
        torch_plateau(patience=1, factor=0.5, cooldown=2),
    ),
}
"""What the plateau is here, and the peer's."""


def scheduled(keras: Any, torch: Any) -> dict[str, np.ndarray]:
    """The peers' rates, by the name of the case."""
    return {name: np.array(peer(keras, torch)) for name, (_, peer) in (SCHEDULES | PLATEAUS).items()}

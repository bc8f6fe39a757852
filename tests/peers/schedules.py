"""Schedules of Keras and PyTorch, and trainings in which PyTorch cycles the momentum, which `record.py` records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.solvers.problem import Quadratic

STEPS = 40
RATE = 0.1

Peer = Callable[[Any, Any], list[float]]


def keras_schedule(name: str, **fields: Any) -> Peer:
    """Return a schedule of Keras, a function of the step."""

    def rates(keras: Any, _: Any) -> list[float]:
        schedule = getattr(keras.optimizers.schedules, name)(**fields)
        return [float(schedule(keras.ops.convert_to_tensor(float(step), "float64"))) for step in range(STEPS)]

    return rates


def torch_schedule(make: Callable[[Any, Any], Any], steps: int = STEPS) -> Peer:
    """Return a schedule of PyTorch, which changes the rate of an optimizer at every step."""

    def rates(_: Any, torch: Any) -> list[float]:
        optimizer = torch.optim.SGD([torch.zeros(1, dtype=torch.float64, requires_grad=True)], RATE)
        schedule = make(torch.optim.lr_scheduler, optimizer)
        learning_rates = []
        for step in range(steps):
            learning_rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            if step + 1 < steps:
                schedule.step()
        return learning_rates

    return rates


def torch_cyclic(kinds: Any, optimizer: Any, mode: str, down: int | None) -> Any:
    """PyTorch's CyclicLR between 0.01 and the rate."""
    return kinds.CyclicLR(optimizer, 0.01, RATE, 6, down, mode, 0.97, cycle_momentum=False)


def torch_one_cycle(kinds: Any, optimizer: Any, strategy: str, three: bool) -> Any:
    """PyTorch's OneCycleLR over all steps."""
    return kinds.OneCycleLR(
        optimizer, RATE, STEPS, pct_start=0.35, anneal_strategy=strategy, three_phase=three, cycle_momentum=False
    )


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
    **{
        f"torch_cyclic_{mode}{down or ''}": (
            {
                "type": "CyclicLR", "initial": 0.01, "peak": RATE, "step_size_up": 6, "mode": mode, "gamma": 0.97,
                **({"step_size_down": down} if down else {}),
            },
            torch_schedule(partial(torch_cyclic, mode=mode, down=down)),
        )
        for mode in ("triangular", "triangular2", "exp_range")
        for down in (None, 3)
    },
    **{
        f"torch_one_cycle_{strategy}{'_three_phase' if three else ''}": (
            {
                "type": "OneCycle", "peak": RATE, "pct_start": 0.35, "anneal_strategy": strategy, "three_phase": three,
            },
            torch_schedule(partial(torch_one_cycle, strategy=strategy, three=three)),
        )
        for strategy in ("cos", "linear")
        for three in (False, True)
    },
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
"""The schedule in netspec, and the peer's."""

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
"""Results of the evaluations, in order."""


def keras_plateau(**fields: Any) -> Peer:
    """Return the rates after each evaluation, as Keras's callback sets them."""

    def rates(keras: Any, _: Any) -> list[float]:
        model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(RATE), "mse")
        callback = keras.callbacks.ReduceLROnPlateau(monitor="loss", **fields)
        callback.set_model(model)
        callback.on_train_begin()
        learning_rates = []
        for epoch, figure in enumerate(FIGURES):
            callback.on_epoch_end(epoch, {"loss": figure})
            learning_rates.append(float(model.optimizer.learning_rate))
        return learning_rates

    return rates


def torch_plateau(**fields: Any) -> Peer:
    """Return the rates after each evaluation, as PyTorch's schedule sets them."""

    def rates(_: Any, torch: Any) -> list[float]:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], RATE)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **fields)
        learning_rates = []
        for figure in FIGURES:
            schedule.step(figure)
            learning_rates.append(float(optimizer.param_groups[0]["lr"]))
        return learning_rates

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
"""The plateau schedule in netspec, and the peer's."""


CYCLE = {"max_momentum": 0.94, "base_momentum": 0.83}
"""Arguments of PyTorch's schedules with `cycle_momentum` that differ from the defaults."""


def cyclic_fields(first: float, peak: float, mode: str) -> dict[str, Any]:
    """Fields of CyclicLR that correspond to `cyclic_peer`."""
    return {
        "type": "CyclicLR", "initial": first, "peak": peak, "step_size_up": 6, "step_size_down": 3, "mode": mode,
        "gamma": 0.97,
    }  # fmt: skip


def cyclic_peer(kinds: Any, optimizer: Any, mode: str) -> Any:
    """PyTorch's CyclicLR, which cycles the momentum too."""
    return kinds.CyclicLR(optimizer, 0.01, RATE, 6, 3, mode, 0.97, cycle_momentum=True, **CYCLE)


def one_cycle_peer(kinds: Any, optimizer: Any, strategy: str = "cos", three: bool = False) -> Any:
    """PyTorch's OneCycleLR, which cycles the momentum too."""
    return kinds.OneCycleLR(
        optimizer,
        RATE,
        STEPS,
        pct_start=0.35,
        anneal_strategy=strategy,
        three_phase=three,
        cycle_momentum=True,
        **CYCLE,
    )


def one_cycle_fields(strategy: str = "cos", three: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Schedules of rate and momentum that correspond to `one_cycle_peer`."""
    shape = {"type": "OneCycle", "pct_start": 0.35, "anneal_strategy": strategy, "three_phase": three}
    high, low = CYCLE["max_momentum"], CYCLE["base_momentum"]
    return {**shape, "peak": RATE}, {**shape, "initial": high, "peak": low, "end": high}


def of_solver(type_: str, field: str = "beta_1", **fields: Any) -> dict[str, Any]:
    """A solver whose rate and momentum follow one cycle."""
    rate, momentum = one_cycle_fields()
    return {"type": type_, "learning_rate": rate, field: momentum, **fields}


CYCLES: dict[str, tuple[dict[str, Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    **{
        f"sgd_one_cycle_{strategy}{'_three_phase' if three else ''}": (
            {
                "type": "SGD", "rate_in_velocity": False,
                **dict(zip(("learning_rate", "momentum"), one_cycle_fields(strategy, three), strict=True)),
            },
            lambda optim, params: optim.SGD(params, RATE, momentum=0.9),
            partial(one_cycle_peer, strategy=strategy, three=three),
        )
        for strategy in ("cos", "linear")
        for three in (False, True)
    },
    **{
        f"sgd_cyclic_{mode}": (
            {
                "type": "SGD", "rate_in_velocity": False, "nesterov": mode == "triangular2",
                "learning_rate": cyclic_fields(0.01, RATE, mode),
                "momentum": cyclic_fields(CYCLE["max_momentum"], CYCLE["base_momentum"], mode),
            },
            partial(lambda optim, params, nesterov: optim.SGD(params, RATE, momentum=0.9, nesterov=nesterov),
                    nesterov=mode == "triangular2"),
            partial(cyclic_peer, mode=mode),
        )
        for mode in ("triangular", "triangular2", "exp_range")
    },
    "adam_one_cycle": (
        of_solver("Adam", epsilon=1e-8, epsilon_mode="bias_corrected"),
        lambda optim, params: optim.Adam(params, RATE),
        one_cycle_peer,
    ),
    "adamw_one_cycle": (
        of_solver("AdamW", weight_decay=0.01, epsilon=1e-8, epsilon_mode="bias_corrected"),
        lambda optim, params: optim.AdamW(params, RATE),
        one_cycle_peer,
    ),
    "nadam_one_cycle": (
        of_solver("Nadam", momentum_decay=0.004, epsilon=1e-8),
        lambda optim, params: optim.NAdam(params, RATE),
        one_cycle_peer,
    ),
    "radam_one_cycle": (of_solver("RAdam"), lambda optim, params: optim.RAdam(params, RATE), one_cycle_peer),
    "adamax_one_cycle": (
        of_solver("Adamax", epsilon=1e-8, epsilon_in_maximum=True),
        lambda optim, params: optim.Adamax(params, RATE),
        one_cycle_peer,
    ),
    "rmsprop_one_cycle": (
        of_solver("RMSprop", "momentum", rho=0.99, epsilon=1e-8, epsilon_in_root=False, rate_in_velocity=False),
        lambda optim, params: optim.RMSprop(params, RATE, momentum=0.9),
        one_cycle_peer,
    ),
}  # fmt: skip
"""A solver, and the equivalent optimizer and schedule of PyTorch, which sets rate and momentum at every step."""


def cycled(torch: Any, name: str) -> dict[str, np.ndarray]:
    """PyTorch's weights after each step on the problem of `tests.solvers`, and the momentum of each step."""
    _, optimizer_of, schedule_of = CYCLES[name]
    problem = Quadratic.random()
    weights = {key: torch.tensor(array, requires_grad=True) for key, array in problem.start.items()}
    optimizer = optimizer_of(torch.optim, list(weights.values()))
    schedule = schedule_of(torch.optim.lr_scheduler, optimizer)
    after: dict[str, list[np.ndarray]] = {key: [] for key in weights}
    momenta = []
    for step in range(STEPS):
        group = optimizer.param_groups[0]
        momenta.append(float(group["betas"][0] if "betas" in group else group["momentum"]))
        for key, weight in weights.items():
            weight.grad = torch.tensor(problem.gradient(key, weight.detach().numpy()))
        optimizer.step()
        for key, weight in weights.items():
            after[key].append(weight.detach().numpy().copy())
        if step + 1 < STEPS:
            schedule.step()
    recorded = {f"{name}/{key}": np.array(arrays) for key, arrays in after.items()}
    return {**recorded, f"{name}/momenta": np.array(momenta)}


def record(keras: Any, torch: Any) -> dict[str, np.ndarray]:
    """The peers' rates by the name of the case, and the weights of trainings that cycle the momentum."""
    rates = {name: np.array(peer(keras, torch)) for name, (_, peer) in (SCHEDULES | PLATEAUS).items()}
    return rates | {key: array for name in CYCLES for key, array in cycled(torch, name).items()}

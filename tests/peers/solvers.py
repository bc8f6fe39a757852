"""Training steps of Keras's and PyTorch's solvers on a small net, which `record.py` records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np

STEPS, BATCH, FEATURES, HIDDEN, UNITS = 10, 8, 5, 6, 3
ACCUMULATE = 4
"""Number of batches of a step with accumulation; together they are the batch of a step without it."""
RATE = 2.0**-5
"""Keras stores some numbers in float32. This one is exact there, like any sum of few powers of 2."""
DTYPES = ("float64", "float32")
NAMES = ("hidden/kernel", "hidden/bias", "out/kernel", "out/bias")
DECAY, EMA = 2.0**-4, 0.75


@dataclass(frozen=True)
class SolverCase:
    """A solver in netspec and in another program."""

    type: str
    fields: dict[str, Any]
    """Its fields in netspec, without the learning rate."""
    peer: str = "keras"
    called: str = ""
    """Its class in the peer, if the name differs."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of the peer's class, if they differ from the fields."""
    decays: bool = True
    """Whether its weight decay is that of the peer: Keras's is decoupled, PyTorch's is not."""
    averages: bool = False
    """Whether it averages the weights itself, and so has no `ema`."""

    @property
    def name(self) -> str:
        options = "".join(f" {name}={value}" for name, value in self.fields.items())
        return f"{self.peer} {self.type}{options}"


CASES = (
    SolverCase("SGD", {}),
    SolverCase("SGD", {"momentum": 0.9, "nesterov": True}),
    SolverCase("SGD", {"momentum": 0.9}, "torch"),
    SolverCase("SGD", {"momentum": 0.9, "nesterov": True}, "torch"),
    SolverCase("Adam", {"epsilon": 1e-3}),
    SolverCase("Adam", {"beta_1": 0.8, "beta_2": 0.9, "amsgrad": True}),
    SolverCase("AdamW", {}),
    SolverCase("Adamax", {"beta_2": 0.9}),
    SolverCase("Nadam", {}),
    SolverCase("Nadam", {"momentum_decay": 0.004}, "torch", "NAdam", {"momentum_decay": 0.004, "eps": 1e-7}),
    SolverCase("RAdam", {"beta_2": 0.9}, "torch", arguments={"betas": (0.9, 0.9)}),
    SolverCase("RAdam", {"epsilon": 1e-4}, "torch", arguments={"eps": 1e-4}),
    SolverCase("RMSprop", {"epsilon": 1e-3}),
    SolverCase("RMSprop", {"momentum": 0.5, "centered": True, "epsilon": 1e-3}),
    SolverCase("Adagrad", {}),
    SolverCase("Adadelta", {}),
    SolverCase("Adadelta", {"rho": 0.8, "epsilon": 1e-4}, "torch", arguments={"rho": 0.8, "eps": 1e-4}),
    SolverCase("Ftrl", {}),
    SolverCase("Ftrl", {"learning_rate_power": -0.75, "l1_regularization_strength": 0.01,
                     "l2_regularization_strength": 0.1, "l2_shrinkage_regularization_strength": 0.05,
                     "beta": 0.1}),
    SolverCase("Lion", {}),
    SolverCase("Lamb", {}),
    SolverCase("Adafactor", {}),
    SolverCase("Muon", {}),
    SolverCase("Muon", {"exclude": "out/*", "nesterov": False, "rms_rate": None, "ns_steps": 3, "adam_lr_ratio": 0.5},
            arguments={"exclude_layers": ["out"], "nesterov": False, "rms_rate": None, "ns_steps": 3,
                       "adam_lr_ratio": 0.5}),
    SolverCase("ScheduleFreeAdamW", {}, "schedulefree", "AdamWScheduleFree", {"eps": 1e-8}, averages=True),
    SolverCase("ScheduleFreeAdamW", {"beta_1": 0.8, "beta_2": 0.9, "r": 0.5, "weight_lr_power": 1.5, "epsilon": 1e-4},
            "schedulefree", "AdamWScheduleFree",
            {"betas": (0.8, 0.9), "r": 0.5, "weight_lr_power": 1.5, "eps": 1e-4}, averages=True),
    # PyTorch decays the weights after measuring their norm.
    SolverCase("Adafactor", {}, "torch", decays=False),
    SolverCase("SGD", {"momentum": 0.9, "dampening": 0.25, "rate_in_velocity": False}, "torch",
            arguments={"momentum": 0.9, "dampening": 0.25}),
    SolverCase("SGD", {"momentum": 0.9, "dampening": 0.25}, "torch"),
    SolverCase("Adam", {"epsilon": 1e-3, "epsilon_mode": "bias_corrected"}, "torch", arguments={"eps": 1e-3}),
    SolverCase("Adam", {"beta_2": 0.9, "epsilon": 1e-2, "amsgrad": True, "epsilon_mode": "bias_corrected"}, "torch",
            arguments={"betas": (0.9, 0.9), "eps": 1e-2, "amsgrad": True}),
    SolverCase("AdamW", {"weight_decay": 0.01, "epsilon": 1e-3, "epsilon_mode": "bias_corrected"}, "torch",
            arguments={"weight_decay": 0.01, "eps": 1e-3}),
    SolverCase("Adamax", {"epsilon": 1e-2, "epsilon_in_maximum": True}, "torch", arguments={"eps": 1e-2}),
    SolverCase("RMSprop", {"epsilon": 1e-3, "epsilon_in_root": False, "momentum": 0.5, "rate_in_velocity": False,
                        "centered": True}, "torch",
            arguments={"alpha": 0.9, "eps": 1e-3, "momentum": 0.5, "centered": True}),
    SolverCase("Adagrad", {"initial_accumulator_value": 0.0, "epsilon": 1e-3, "epsilon_in_root": False}, "torch",
            arguments={"eps": 1e-3}),
    SolverCase("Rprop", {}, "torch", decays=False),
    SolverCase("Rprop", {"eta_minus": 0.25, "eta_plus": 1.5, "step_size_max": 0.0625}, "torch",
            arguments={"etas": (0.25, 1.5), "step_sizes": (1e-6, 0.0625)}, decays=False),
    SolverCase("ASGD", {"lambd": 0.5, "t0": 3}, "torch", averages=True),
    SolverCase("ASGD", {}, "torch", averages=True),
)  # fmt: skip


def variants(case: SolverCase) -> Iterator[dict[str, Any]]:
    """Yield the options of a solver: each one alone, and all of them."""
    clipping: list[dict[str, Any]] = [{"clipnorm": 2.0**-4}, {"clipvalue": 2.0**-6}, {"global_clipnorm": 2.0**-3}]
    decay = {"weight_decay": DECAY} if case.decays else {}
    ema = {} if case.averages else {"ema": EMA}
    several = {"accumulate": ACCUMULATE}
    everything = {**clipping[-1], **decay, **ema}
    variants_ = [{}, *clipping, decay, ema, everything, several, {**everything, **several}]
    yield from {str(variant): variant for variant in variants_}.values()


def key(case: SolverCase, variant: dict[str, Any], dtype: str) -> str:
    """Return the name of a recorded result."""
    return f"{case.name}/{' '.join(f'{name}={value}' for name, value in variant.items())}/{dtype}"


def given() -> dict[str, np.ndarray]:
    """Inputs, targets, and initial weights, which are exact in float32."""
    random = np.random.default_rng(23)
    shapes = {"x": (BATCH, FEATURES), "y": (BATCH, UNITS), "hidden/kernel": (FEATURES, HIDDEN),
              "hidden/bias": (HIDDEN,), "out/kernel": (HIDDEN, UNITS), "out/bias": (UNITS,)}  # fmt: skip
    return {name: random.normal(size=shape).astype("float32").astype("float64") for name, shape in shapes.items()}


def exactly() -> AbstractContextManager[Any]:
    """Patch Keras operations that round to float32 on PyTorch even in float64."""
    ops, torch = import_module("keras.src.ops"), import_module("torch")
    tensor = ops.convert_to_tensor

    def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return torch.mean(tensor(x), dim=axis, keepdim=keepdims)

    def norm(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return torch.linalg.norm(tensor(x), dim=axis, keepdim=keepdims)

    def larger(a: Any, b: Any) -> Any:
        return torch.maximum(*(tensor(x, dtype="float64") for x in (a, b)))

    def smaller(a: Any, b: Any) -> Any:
        return torch.minimum(*(tensor(x, dtype="float64") for x in (a, b)))

    return patch.multiple(ops, mean=mean, norm=norm, maximum=larger, minimum=smaller)


def record(keras: Any) -> dict[str, np.ndarray]:
    """Record the weights after some steps, and their averages, for every case, variant and type: `recorded`."""
    recorded, torch = given(), import_module("torch")
    for dtype in DTYPES:
        keras.config.set_floatx(dtype)
        torch.set_default_dtype(getattr(torch, dtype))  # PyTorch uses the default type for scalars
        for case in CASES:
            for variant in variants(case):
                steps = of_keras if case.peer == "keras" else of_torch
                with exactly() if dtype == "float64" else nullcontext():
                    recorded[key(case, variant, dtype)] = steps(keras, case, variant, dtype)
    keras.config.set_floatx("float64")  # the setting of `record.py`
    torch.set_default_dtype(torch.float32)
    return recorded


def parts(variant: dict[str, Any]) -> list[slice]:
    """Return the samples of each batch of a step."""
    size = BATCH // variant.get("accumulate", 1)
    return [slice(start, start + size) for start in range(0, BATCH, size)]


def gradients(weights: list[Any], dtype: str, part: slice) -> list[Any]:
    """Return the gradients of the net's loss on some of the samples."""
    torch = import_module("torch")
    x, y = (torch.tensor(given()[name][part], dtype=getattr(torch, dtype)) for name in ("x", "y"))
    kernel, bias, last, end = weights
    loss = ((torch.tanh(x @ kernel + bias) @ last + end - y) ** 2).mean()
    return list(torch.autograd.grad(loss, weights))


def recorded(weights: list[Any], averages: list[Any]) -> np.ndarray:
    """Return weights and averages as one vector."""
    return np.concatenate([average.detach().numpy().ravel() for average in [*weights, *averages]])


def followed(averages: list[Any], weights: list[Any], variant: dict[str, Any]) -> list[Any]:
    """Return the averages of the weights after an update, by PyTorch's formula."""
    if "ema" not in variant:
        return []
    mean = import_module("torch").optim.swa_utils.get_ema_avg_fn(variant["ema"])
    now = [weight.detach().clone() for weight in weights]
    return [mean(old, new, None) for old, new in zip(averages, now, strict=True)] if averages else now


def of_keras(keras: Any, case: SolverCase, variant: dict[str, Any], dtype: str) -> np.ndarray:
    """Take the steps with a solver of Keras."""
    arguments = {**(case.arguments or case.fields), **variant}
    has_averages = "ema" in variant and "accumulate" not in variant
    if has_averages:
        arguments |= {"use_ema": True, "ema_momentum": variant["ema"]}
    if "accumulate" in variant:
        arguments["gradient_accumulation_steps"] = variant["accumulate"]
    arguments = {name: value for name, value in arguments.items() if name not in ("ema", "accumulate")}
    if "weight_decay" not in arguments:  # AdamW's default decay is the same in netspec
        arguments |= {} if case.type in ("AdamW", "Muon") else {"weight_decay": None}
    elif case.type == "Muon":
        arguments["adam_weight_decay"] = arguments["weight_decay"]
    optimizer = getattr(keras.optimizers, case.called or case.type)(RATE, **arguments)
    weights = [keras.Variable(given()[name], dtype=dtype, name=name.split("/")[1]) for name in NAMES]
    for weight, name in zip(weights, NAMES, strict=True):
        weight._path = name
    averages: list[Any] = []
    for _ in range(STEPS):
        for part in parts(variant):
            optimizer.apply(gradients([weight.value for weight in weights], dtype, part), weights)
        if has_averages:
            averages = [variable.value for variable in optimizer._model_variables_moving_average]
        # Keras averages the weights at every batch, even if they have not changed.
        else:
            averages = followed(averages, [weight.value for weight in weights], variant)
    return recorded([weight.value for weight in weights], averages)


def of_torch(keras: Any, case: SolverCase, variant: dict[str, Any], dtype: str) -> np.ndarray:
    """Take the steps with a solver of PyTorch or a similar package.

    Gradients are clipped like in Keras, since PyTorch adds 1e-6 to a norm.
    """
    torch = import_module("torch")
    clipping = {name: value for name, value in variant.items() if name.startswith(("clip", "global"))}
    weights = [torch.tensor(given()[name], dtype=getattr(torch, dtype), requires_grad=True) for name in NAMES]
    arguments = {"lr": RATE, **(case.arguments or case.fields)}
    arguments |= {name: value for name, value in variant.items() if name == "weight_decay"}
    module = torch.optim if case.peer == "torch" else import_module(case.peer)
    optimizer = getattr(module, case.called or case.type)(weights, **arguments)
    if case.peer == "schedulefree":
        optimizer.train()
    averages: list[Any] = []
    for _ in range(STEPS):
        summed = zip(*(gradients(weights, dtype, part) for part in parts(variant)), strict=True)
        means = [sum(several) / len(several) for several in summed]
        clipped = keras.optimizers.SGD(**clipping)._clip_gradients(means)
        for weight, gradient in zip(weights, clipped, strict=True):
            weight.grad = gradient
        optimizer.step()
        averages = followed(averages, weights, variant)
    if case.type == "ASGD":
        averages = [optimizer.state[weight]["ax"] for weight in weights]
    if case.peer == "schedulefree":
        trained = [weight.detach().clone() for weight in weights]
        optimizer.eval()
        return recorded(trained, weights)
    return recorded(weights, averages)

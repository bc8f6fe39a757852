"""PyTorch trainings that netspec resumes, which `record.py` records.

Each optimizer takes some steps and is saved by the function in docs/formats.md; then it takes further steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

BEFORE, AFTER = 70, 50
"""Steps until the state is saved, and steps after that."""
SAMPLES, BATCH = 24, 8
NET: dict[str, Any] = {
    "netspec": 1,
    "inputs": {"x": {"shape": [1, 6, 6]}, "y": {"shape": [4]}},
    "layers": [
        {"name": "body/conv", "type": "Conv2D", "filters": 3, "kernel_size": 3, "from": "x", "padding": "valid",
         "activation": "tanh"},
        {"name": "flat", "type": "Flatten"},
        {"name": "head", "type": "Dense", "units": 4},
    ],
    "outputs": ["head"],
    "losses": [{"type": "MeanSquaredError", "from": ["head", "y"]}],
}  # fmt: skip
CORRECTED = {"epsilon_mode": "bias_corrected"}


def halving(kinds: Any, optimizer: Any) -> Any:
    """A rate that falls before and after the state is saved."""
    return kinds.StepLR(optimizer, 30, 0.5)


@dataclass(frozen=True)
class ResumeCase:
    """An optimizer of PyTorch, and the equivalent solver."""

    optimizer: str
    arguments: dict[str, Any]
    solver: dict[str, Any]
    """Fields of the solver without the learning rate."""
    rate: float = 0.05
    schedule: Callable[[Any, Any], Any] | None = None
    learning_rate: Any = None
    """The solver's schedule; None: the constant `rate`."""
    decayed: float | None = field(default=None)
    """Weight decay of all parameters but the biases, in two parameter groups."""

    @property
    def fields(self) -> dict[str, Any]:
        """The solver as a spec has it."""
        return {**self.solver, "learning_rate": self.rate if self.learning_rate is None else self.learning_rate}


HALVING: dict[str, Any] = {
    "schedule": halving,
    "learning_rate": {"type": "StepDecay", "initial": 0.05, "step_size": 30, "gamma": 0.5},
}
CASES: dict[str, ResumeCase] = {
    "sgd": ResumeCase("SGD", {}, {"type": "SGD"}, **HALVING),
    "sgd_momentum": ResumeCase(
        "SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01},
        {"type": "SGD", "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01, "rate_in_velocity": False}, **HALVING,
    ),
    "sgd_nesterov": ResumeCase(
        "SGD", {"momentum": 0.9, "nesterov": True},
        {"type": "SGD", "momentum": 0.9, "nesterov": True, "rate_in_velocity": False}, **HALVING,
    ),
    "adam": ResumeCase(
        "Adam", {"eps": 1e-3, "weight_decay": 0.01},
        {"type": "Adam", "epsilon": 1e-3, "weight_decay": 0.01, **CORRECTED}, **HALVING,
    ),
    "adam_amsgrad": ResumeCase(
        "Adam", {"amsgrad": True, "betas": (0.8, 0.95)},
        {"type": "Adam", "amsgrad": True, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-8, **CORRECTED},
    ),
    "adamw": ResumeCase("AdamW", {}, {"type": "AdamW", "weight_decay": 0.01, "epsilon": 1e-8, **CORRECTED}, **HALVING),
    "adamw_groups": ResumeCase(
        "AdamW", {},
        {"type": "AdamW", "weight_decay": 0.1, "epsilon": 1e-8, **CORRECTED,
         "groups": [{"match": "*/bias", "weight_decay": 0}]},
        decayed=0.1,
    ),
    "adam_decoupled": ResumeCase(
        "Adam", {"weight_decay": 0.1, "decoupled_weight_decay": True},
        {"type": "Adam", "weight_decay": 0.1, "decoupled_weight_decay": True, "epsilon": 1e-8, **CORRECTED},
    ),
    "nadam": ResumeCase("NAdam", {}, {"type": "Nadam", "epsilon": 1e-8, "momentum_decay": 0.004}, **HALVING),
    "nadam_decoupled": ResumeCase(
        "NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.01},
        {"type": "Nadam", "epsilon": 1e-8, "momentum_decay": 0.01, "weight_decay": 0.1,
         "decoupled_weight_decay": True},
    ),
    "radam": ResumeCase("RAdam", {}, {"type": "RAdam"}, **HALVING),
    "radam_short": ResumeCase("RAdam", {"betas": (0.9, 0.6)}, {"type": "RAdam", "beta_2": 0.6}),
    "adamax": ResumeCase(
        "Adamax", {"eps": 1e-2}, {"type": "Adamax", "epsilon": 1e-2, "epsilon_in_maximum": True}, **HALVING
    ),
    "rmsprop": ResumeCase(
        "RMSprop", {"momentum": 0.5, "centered": True, "eps": 1e-3},
        {"type": "RMSprop", "rho": 0.99, "momentum": 0.5, "centered": True, "epsilon": 1e-3,
         "epsilon_in_root": False, "rate_in_velocity": False}, **HALVING,
    ),
    "adagrad": ResumeCase(
        "Adagrad", {"lr_decay": 0.01},
        {"type": "Adagrad", "initial_accumulator_value": 0.0, "epsilon": 1e-10, "epsilon_in_root": False},
        learning_rate={"type": "InverseTimeDecay", "initial": 0.05, "decay_rate": 0.01},
    ),
    "adadelta": ResumeCase("Adadelta", {}, {"type": "Adadelta", "rho": 0.9, "epsilon": 1e-6}, rate=1.0),
    "rprop": ResumeCase("Rprop", {}, {"type": "Rprop"}, rate=0.01),
    "asgd": ResumeCase("ASGD", {"lambd": 0.01, "t0": 60}, {"type": "ASGD", "lambd": 0.01, "t0": 60}),
}  # fmt: skip


def given() -> dict[str, np.ndarray]:
    """Inputs and targets."""
    random = np.random.default_rng(31)
    return {"x": random.normal(size=(SAMPLES, 1, 6, 6)), "y": random.normal(size=(SAMPLES, 4))}


def documented() -> Callable[..., None]:
    """`save_training` from docs/formats.md."""
    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import json\n.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # an example from this repository's documentation
    actual: Callable[..., None] = names["save_training"]
    return actual


def record(torch: Any) -> dict[str, np.ndarray]:
    """For each case the bytes of its file, and the weights after all steps by PyTorch's names."""
    save, recorded = documented(), {}
    torch.set_default_dtype(torch.float64)  # also the type of ASGD's rate
    for name, case in CASES.items():
        with TemporaryDirectory() as folder:
            path = Path(folder) / "training.safetensors"
            model = trained(torch, case, lambda *saved, path=path: save(path, *saved))
            recorded[f"{name}/file"] = np.frombuffer(path.read_bytes(), np.uint8)
        for key, tensor in model.state_dict().items():
            recorded[f"{name}/{key}"] = tensor.numpy()
    torch.set_default_dtype(torch.float32)
    return recorded


def trained(torch: Any, case: ResumeCase, save: Callable[[Any, Any, int], None]) -> Any:
    """Return the model after all steps; `save` is called in between, with the model, the optimizer and the step."""
    nn = torch.nn
    torch.manual_seed(3)
    model = nn.ModuleDict({"body": nn.ModuleDict({"conv": nn.Conv2d(1, 3, 3)}), "head": nn.Linear(48, 4)}).double()
    groups: Any = model.parameters()
    if case.decayed is not None:
        named = list(model.named_parameters())
        groups = [
            {
                "params": [parameter for name, parameter in named if name.endswith("weight")],
                "weight_decay": case.decayed,
            },
            {"params": [parameter for name, parameter in named if name.endswith("bias")], "weight_decay": 0.0},
        ]
    optimizer = getattr(torch.optim, case.optimizer)(groups, case.rate, **case.arguments)
    schedule = case.schedule and case.schedule(torch.optim.lr_scheduler, optimizer)
    data = {name: torch.tensor(array) for name, array in given().items()}
    for step in range(BEFORE + AFTER):
        if step == BEFORE:
            save(model, optimizer, step)
        part = slice(step * BATCH % SAMPLES, step * BATCH % SAMPLES + BATCH)
        optimizer.zero_grad()
        prediction = model["head"](torch.tanh(model["body"]["conv"](data["x"][part])).flatten(1))
        ((prediction - data["y"][part]) ** 2).mean().backward()
        optimizer.step()
        if schedule:
            schedule.step()
    if case.optimizer == "ASGD":  # netspec evaluates its average
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(optimizer.state[parameter]["ax"])
    return model

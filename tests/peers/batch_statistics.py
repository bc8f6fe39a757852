"""Trainings of PyTorch with each kind of running statistics, which `record.py` records.

`test_batch_statistics.py` compares them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS, SAMPLES, BATCH = 12, 24, 6
RATE = 2.0**-6
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "momentum": ({"momentum": 0.9, "unbiased_moving_variance": True}, {"momentum": 0.1}),
    "cumulative": ({"momentum": None, "unbiased_moving_variance": True}, {"momentum": None}),
    "of the batch": ({"track_running_stats": False}, {"track_running_stats": False}),
}
"""Fields of BatchNormalization, and arguments of BatchNorm2d."""


def net(fields: dict[str, Any]) -> dict[str, Any]:
    """The net as a spec."""
    return {
        "netspec": 1,
        "inputs": {"x": {"shape": [2, 3, 3]}, "y": {"shape": [4]}},
        "layers": [
            {"name": "norm", "type": "BatchNormalization", "epsilon": 1e-5, "from": "x", **fields},
            {"name": "flat", "type": "Flatten"},
            {"name": "head", "type": "Dense", "units": 4},
        ],
        "outputs": ["head"],
        "losses": [{"type": "MeanSquaredError", "from": ["head", "y"]}],
    }


def given() -> dict[str, np.ndarray]:
    """Inputs and targets, and the initial weights of the last layer by PyTorch's names."""
    random = np.random.default_rng(17)
    return {
        "x": 1.5 + 2 * random.normal(size=(SAMPLES, 2, 3, 3)), "y": random.normal(size=(SAMPLES, 4)),
        "head.weight": random.normal(size=(4, 18)), "head.bias": random.normal(size=4),
    }  # fmt: skip


def record(torch: Any) -> dict[str, np.ndarray]:
    """Return, for each case, the state dict after all steps and the output for the first batch in inference."""
    recorded: dict[str, np.ndarray] = {}
    data = {name: torch.tensor(array) for name, array in given().items()}
    for name, (_, arguments) in CASES.items():
        model = torch.nn.ModuleDict({"norm": torch.nn.BatchNorm2d(2, **arguments), "head": torch.nn.Linear(18, 4)})
        model.double().load_state_dict({key: data[key] for key in ("head.weight", "head.bias")}, strict=False)
        optimizer = torch.optim.SGD(model.parameters(), RATE)
        for step in range(STEPS):
            part = slice(step * BATCH % SAMPLES, step * BATCH % SAMPLES + BATCH)
            optimizer.zero_grad()
            output = model["head"](model["norm"](data["x"][part]).flatten(1))
            ((output - data["y"][part]) ** 2).mean().backward()
            optimizer.step()
        recorded |= {f"{name}/{key}": tensor.numpy() for key, tensor in model.state_dict().items()}
        model.eval()
        with torch.no_grad():
            recorded[f"{name}/predicted"] = model["head"](model["norm"](data["x"][:BATCH]).flatten(1)).numpy()
    return recorded

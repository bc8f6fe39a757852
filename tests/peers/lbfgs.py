"""Steps of PyTorch's L-BFGS, which `record.py` records."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

SAMPLES, FEATURES, UNITS, STEPS = 12, 3, 4, 10
DTYPES = ("float64", "float32")
CASES: dict[str, dict[str, Any]] = {
    "wolfe": {"line_search": "strong_wolfe", "history_size": 10, "learning_rate": 1.0},
    "wolfe, short memory": {"line_search": "strong_wolfe", "history_size": 3, "learning_rate": 1.0},
    "wolfe, far": {"line_search": "strong_wolfe", "history_size": 5, "learning_rate": 20.0},
    "fixed": {"line_search": None, "history_size": 4, "learning_rate": 0.25},
}


def given() -> dict[str, np.ndarray]:
    """Inputs, targets, and initial weights."""
    random = np.random.default_rng(3)
    shapes = {"x": (SAMPLES, FEATURES), "y": (SAMPLES, 1), "hidden/kernel": (FEATURES, UNITS), "hidden/bias": (UNITS,)}
    shapes |= {"out/kernel": (UNITS, 1), "out/bias": (1,)}
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


def record(torch: Any) -> dict[str, np.ndarray]:
    """Return losses and weights at each step of PyTorch, with one iteration each, for a net of two layers."""
    recorded: dict[str, np.ndarray] = {}
    for (case, fields), dtype in product(CASES.items(), DTYPES):
        data = {name: torch.tensor(array, dtype=getattr(torch, dtype)) for name, array in given().items()}
        weights = {name: value.requires_grad_() for name, value in data.items() if "/" in name}
        optimizer = torch.optim.LBFGS(
            list(weights.values()), lr=fields["learning_rate"], max_iter=1, max_eval=100,
            history_size=fields["history_size"], line_search_fn=fields["line_search"],
        )  # fmt: skip

        def closure(data: Any = data, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            hidden = torch.tanh(data["x"] @ data["hidden/kernel"] + data["hidden/bias"])
            loss = ((hidden @ data["out/kernel"] + data["out/bias"] - data["y"]) ** 2).mean()
            loss.backward()
            return loss

        losses, after = [], []
        for _ in range(STEPS):
            losses.append(float(optimizer.step(closure)))
            after.append(np.concatenate([value.detach().numpy().reshape(-1) for value in weights.values()]))
        recorded[f"{case}/{dtype}/losses"], recorded[f"{case}/{dtype}/weights"] = np.array(losses), np.array(after)
    return recorded

"""A small, fast training: a net with every kind of state distinguishes three classes of points."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NET: dict[str, Any] = {
    "netspec": 1,
    "name": "small",
    "inputs": {"x": {"shape": [6]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {
            "name": "fc1",
            "type": "Dense",
            "units": 16,
            "activation": "relu",
            "kernel_regularizer": {"type": "L2", "l2": 1e-4},
        },
        {"name": "norm", "type": "BatchNormalization"},
        {"name": "drop", "type": "Dropout", "rate": 0.2},
        {"name": "logits", "type": "Dense", "units": 3},
    ],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
    "metrics": [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": ["logits", "label"]}],
}


@pytest.fixture
def points(tmp_path: Path) -> Path:
    """A folder with train.npz (230 samples) and test.npz (57 samples)."""
    random = np.random.default_rng(0)
    centers = random.normal(size=(3, 6)) * 2
    for name, count in (("train", 230), ("test", 57)):
        label = random.integers(0, 3, count).astype(np.int32)
        x = (centers[label] + random.normal(size=(count, 6))).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x, label=label)
    return tmp_path


@pytest.fixture
def spec(points: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that returns the small training; keywords go into its `train` block."""

    def make(**loop: Any) -> dict[str, Any]:
        splits = {
            name: {"source": "npz", "path": str(points / f"{name}.npz"), "batch_size": size, "shuffle": name == "train"}
            for name, size in (("train", 32), ("test", 25))
        }
        return {
            "netspec": 1,
            "net": NET,
            "data": splits,
            "solver": {
                "type": "Adam",
                "learning_rate": {"type": "CosineDecay", "initial": 0.01},
                "global_clipnorm": 5.0,
            },
            "train": {"max_steps": 40, "log_every": 10, "seed": 3, **loop},
        }

    return make

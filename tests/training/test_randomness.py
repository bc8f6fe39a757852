"""Random values of a step depend on the seed and the step, also in `loss_and_gradients`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec

Make = Callable[..., dict[str, Any]]


def losses_of(folder: Path) -> list[float]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [event["loss"] for event in map(json.loads, lines) if event["event"] == "log"]


def test_every_step_draws_its_own_dropout_mask(spec: Make, points: Path, tmp_path: Path) -> None:
    """With constant weights and a repeated batch, only the dropout mask changes the losses."""
    arrays = {name: array[:32] for name, array in np.load(points / "train.npz").items()}
    np.savez(points / "train.npz", **arrays)
    still = spec(log_every=1, max_steps=6, test_every=0)
    still["solver"] = {"type": "SGD", "learning_rate": 1e-30}
    still["data"]["train"]["shuffle"] = False
    run = netspec.train(still, run_dir=tmp_path / "run")
    losses = losses_of(run.run_dir)
    assert len(set(losses)) == 6
    model = netspec.load(still["net"], run.weights, seed=3)
    expected = [sum(model.loss_and_gradients(arrays, seed=3, step=step)[0].values()) for step in range(6)]
    # The same float32 sums; other masks would change the loss by percents.
    assert losses == pytest.approx(expected, rel=1e-6)
    still["net"] = json.loads(json.dumps(still["net"]))
    still["net"]["layers"][2]["rate"] = 0.0
    calm = netspec.train(still, run_dir=tmp_path / "calm")
    assert len(set(losses_of(calm.run_dir))) == 1

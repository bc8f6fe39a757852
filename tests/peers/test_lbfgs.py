"""L-BFGS: ten steps of netspec against recorded steps of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.exchange.formats.native.hdf5 import read_weights, write_weights
from tests.peers import lbfgs
from tests.peers.recordings import load_answers

NET = {
    "netspec": 1,
    "inputs": {"x": {"shape": [lbfgs.FEATURES]}, "y": {"shape": [1]}},
    "layers": [
        {"name": "hidden", "type": "Dense", "from": "x", "units": lbfgs.UNITS, "activation": "tanh"},
        {"name": "out", "type": "Dense", "units": 1},
    ],
    "losses": [{"type": "MeanSquaredError", "from": ["out", "y"]}],
}


def spec(folder: Path, solver: dict[str, Any], **loop: Any) -> dict[str, Any]:
    return {
        "netspec": 1,
        "net": NET,
        "data": {"train": {"source": "npz", "path": str(folder / "data.npz"), "batch_size": 5}},
        "solver": {"type": "LBFGS", "tolerance_grad": 0.0, **solver},
        "train": {"accumulate": 3, "log_every": 1, **loop},
    }


TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", lbfgs.DTYPES)
@pytest.mark.parametrize("case", lbfgs.CASES)
def test_steps_equal_pytorch(case, dtype, tmp_path):
    """In three batches, the last of which is smaller, and in two runs, the second of which continues the first."""
    data = lbfgs.given()
    stored = load_answers("lbfgs")
    losses, weights = stored[f"{case}/{dtype}/losses"], stored[f"{case}/{dtype}/weights"]
    np.savez(tmp_path / "data.npz", x=data["x"], y=data["y"])
    names = [name for name in data if "/" in name]
    write_weights(tmp_path / "start.h5", {name: data[name] for name in names})
    recorded: list[float] = []

    def listen(event):
        if event["event"] == "log":
            recorded.append(event["loss"])

    for steps in (4, lbfgs.STEPS):
        training = spec(tmp_path, lbfgs.CASES[case], max_steps=steps, precision=dtype)
        training["init_from"] = {"file": str(tmp_path / "start.h5")}
        run = netspec.train(training, run_dir=tmp_path / "run", resume=steps > 4, listeners=[listen])
    np.testing.assert_allclose(recorded, losses, rtol=TOLERANCE[dtype])
    arrays = read_weights(run.last_weights).arrays
    last = np.concatenate([arrays[name].reshape(-1) for name in names])
    assert np.abs(last - weights[-1]).max() <= TOLERANCE[dtype] * np.abs(weights[-1]).max()

"""Bias of a single sample, whose shape has one axis less than the product: no other memory is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.exchange.formats.native.hdf5 import write_weights
from netspec.training.inference.model import load
from tests.exchange.nets import Net, net_data

CONV = {"type": "Conv2D", "name": "first", "filters": 3, "kernel_size": 3}


@pytest.mark.parametrize("behind", ["Bias", "Scale"])
def test_values_at_all_positions_of_a_sample(behind: str, tmp_path: Path, engine: object) -> None:
    data = net_data(CONV, {"type": behind, "name": "behind", "num_axes": 3}, {"type": "ReLU", "name": "last"})
    net = Net.of(data)
    x = np.random.default_rng(2).uniform(-1, 1, (1, 2, 8, 8)).astype(np.float32)
    (tmp_path / "net.yaml").write_text(str(data))
    weights = {name: array.astype(np.float32) for name, array in net.states.items()}
    write_weights(tmp_path / "weights.h5", weights, net=str(data), name="net")
    model = load(tmp_path / "net.yaml", tmp_path / "weights.h5", device="cpu")
    (actual,) = dict(model.predict({"image": x})).values()
    (expected,) = Net.of(data, weights).predict({"image": x}).values()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)

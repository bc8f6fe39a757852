"""Caffe files on the command line: an imported solver continues as Caffe would, and its net is exported again."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest

from netspec.exchange.formats.native.hdf5 import read_weights
from tests.exchange.formats.caffe.solver_formulas import Caffe

NET = """
name: "line"
layer { name: "d" type: "HDF5Data" top: "x" top: "y" hdf5_data_param { source: "data/list.txt" batch_size: 6 } }
layer {
  name: "fc" type: "InnerProduct" bottom: "x" top: "fc" param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } }
}
layer { name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "y" top: "loss" }
"""
RULES = {
    "SGD": 'type: "SGD" momentum: 0.9',
    "Nesterov": 'type: "Nesterov" momentum: 0.9',
    "AdaGrad": 'type: "AdaGrad" delta: 0.001',
    "RMSProp": 'type: "RMSProp" rms_decay: 0.9 delta: 0.001',
    "AdaDelta": 'type: "AdaDelta" momentum: 0.9 delta: 0.001',
    "Adam": 'type: "Adam" momentum: 0.9 delta: 0.001',
}
RATE = 'base_lr: 0.1 lr_policy: "inv" gamma: 0.1 power: 0.75 weight_decay: 0.01 max_iter: 6 display: 1\n'
BEFORE, STEPS = 3, 6


def fields_of(type_: str) -> dict[str, object]:
    fields: dict[str, object] = {
        "base_lr": 0.1, "lr_policy": "inv", "gamma": 0.1, "power": 0.75, "weight_decay": 0.01, "type": type_,
    }  # fmt: skip
    words = RULES[type_].split()
    return fields | {name[:-1]: float(value) for name, value in zip(words[2::2], words[3::2], strict=True)}


@pytest.fixture
def files(current_folder):
    random = np.random.default_rng(5)
    x, y = random.normal(size=(6, 3)).astype(np.float32), random.normal(size=(6, 2)).astype(np.float32)
    (current_folder / "data").mkdir()
    with h5py.File("data/train.h5", "w") as file:
        file["x"], file["y"] = x, y
    (current_folder / "data/list.txt").write_text("train.h5\n")
    (current_folder / "net.prototxt").write_text(NET)
    return current_folder, x, y


def test_an_import_without_weights_has_no_weights(netspec, files):
    """The suggested command works: it names weights, which an export needs."""
    result = netspec.ok("import", "net.prototxt", "--output", "made", "--shape", "x=3")
    assert "the net has no weights" in result.out
    assert "plan made/net.yaml" in result.out
    assert "export" not in result.out


@pytest.mark.parametrize("type_", RULES)
@pytest.mark.slow
def test_a_training_of_caffe_resumes(netspec, files, type_):
    folder, x, y = files
    caffe = Caffe(fields_of(type_), {"fc/0": (1, 1), "fc/1": (2, 0)})
    random = np.random.default_rng(6)
    weights = {"fc/0": random.normal(size=(2, 3)), "fc/1": random.normal(size=2)}

    def step(weights: dict[str, Any]) -> dict[str, Any]:
        away = (x @ weights["fc/0"].T + weights["fc/1"] - y) / len(x)
        return caffe.step(weights, {"fc/0": away.T @ x, "fc/1": away.sum(axis=0)})

    for _ in range(BEFORE):
        weights = step(weights)
    with h5py.File("line_iter_3.caffemodel.h5", "w") as file:
        for name, array in weights.items():
            file[f"data/{name}"] = array.astype(np.float32)
    with h5py.File("line_iter_3.solverstate.h5", "w") as file:
        file["iter"], file["current_step"] = [BEFORE], [0]
        file["learned_net"] = "snapshots/line_iter_3.caffemodel.h5"
        for index, array in enumerate([*caffe.history.values(), *caffe.second.values()]):
            file[f"history/{index}"] = array.astype(np.float32)
    (folder / "solver.prototxt").write_text(f'net: "net.prototxt"\n{RATE}{RULES[type_]}')

    result = netspec.ok("import", "solver.prototxt", "--weights", "line_iter_3.solverstate.h5", "--output", "line")
    assert "train line/train.yaml --resume line/checkpoint.h5" in result.out
    netspec.ok("train", "line/train.yaml", "--resume", "line/checkpoint.h5", "--run-dir", "run")
    for _ in range(BEFORE, STEPS):
        weights = step(weights)
    arrays = read_weights("run/weights.h5").arrays
    # float32 errors of three steps, on values near 1
    np.testing.assert_allclose(arrays["fc/kernel"].T, weights["fc/0"], atol=2e-6)
    np.testing.assert_allclose(arrays["fc/bias"], weights["fc/1"], atol=2e-6)


def test_a_trained_net_is_written_and_read_again(netspec, files):
    folder, *_ = files
    (folder / "solver.prototxt").write_text(f'net: "net.prototxt"\n{RATE}{RULES["Nesterov"]}')
    netspec.ok("import", "solver.prototxt", "--output", "line")
    netspec.ok("train", "line/train.yaml", "--run-dir", "run")
    words = ("line/train.yaml", "--weights", "run/weights.h5", "--output", "line.caffemodel")
    result = netspec.ok("export", *words)
    assert "the file, read back, gives the same results" in result.out
    assert {"line.caffemodel", "line.prototxt"} <= {path.name for path in folder.iterdir()}
    netspec.ok("import", "line.prototxt", "--weights", "line.caffemodel", "--output", "again")
    before, after = (read_weights(name).arrays for name in ("run/weights.h5", "again/weights.h5"))
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


def test_layers_that_caffe_lacks_are_reported_before_training(netspec, files):
    folder, *_ = files
    (folder / "net.yaml").write_text(
        "netspec: 1\ninputs: {x: {shape: [3, 4]}}\nlayers:\n  - {name: turned, type: Permute, dims: [2, 1]}\n"
    )
    result = netspec("check", "net.yaml", "--export", "caffe")
    assert result.status == 2
    assert "`turned` (Permute) cannot be written for Caffe: Caffe has no layer of type Permute" in result.err

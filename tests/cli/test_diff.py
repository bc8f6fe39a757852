"""`netspec diff`: layers, settings, weights and results of two nets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from netspec.exchange.hdf5 import read_weights, write_weights

RUN = ("diff", "run")


def test_nothing_differs_between_a_run_and_its_weights(netspec, trained):
    found = netspec(*RUN, "run/best.h5", "--exit-code")
    assert (found.status, found.err) == (0, "")
    assert found.out.endswith("no difference\n")


def test_a_model_that_came_back_computes_the_same(netspec, trained):
    assert netspec("export", "net.yaml", "--weights", "run/best.h5", "--output", "model.onnx").status == 0
    found = netspec(*RUN, "model.onnx", "--json").json
    assert all(one["loadable"] for one in found["weights"])
    assert max(found["outputs"].values()) < 1e-4  # float32 through a few products


def test_weights_that_differ_are_named_with_how_far(netspec, trained):
    stored = read_weights("run/best.h5")
    name = next(iter(stored.arrays))
    arrays = {**stored.arrays, name: stored.arrays[name] + np.float32(0.5)}
    write_weights("other.h5", arrays, net=stored.net)
    found = netspec(*RUN, "other.h5", "--exit-code")
    assert found.status == 1
    assert f"  {name}: 0.5\n" in found.out
    assert "largest difference" in found.out


def test_layers_and_settings(netspec, trained):
    text = Path("net.yaml").read_text()
    Path("wide.yaml").write_text(text.replace("{width: 4}", "{width: 5}"))
    found = netspec("diff", "net.yaml", "wide.yaml")
    assert found.status == 0
    assert "units: 4 → 5" in found.out
    assert "weights that do not fit:" in found.out
    assert "outputs were not compared: A, B have no weights" in found.out
    both = netspec("diff", "train.yaml", "train.yaml", "--json").json
    assert both["same"]
    other = Path("train.yaml").read_text() + "\nname: other\n"
    Path("faster.yaml").write_text(other.replace("learning_rate: ", "learning_rate: 1"))
    assert "solver.learning_rate" in netspec("diff", "train.yaml", "faster.yaml").out


def test_mistakes_of_both_sides_are_told_at_once(netspec, trained):
    found = netspec("diff", "nothing.onnx", "run/spec.yam")
    assert found.status == 2
    assert "nothing.onnx" in found.err
    assert "run/spec.yam" in found.err
    Path("empty").mkdir()
    assert "a folder without a spec" in netspec("diff", "empty", "net.yaml").err

"""`netspec convert`, and `netspec export` into formats that are read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.exchange.formats.native.hdf5 import read_checkpoint
from netspec.exchange.formats.registry import FORMATS
from netspec.exchange.numeric_diff import Gap, OutputComparison
from netspec.tools.exporting import export
from netspec.training.inference.model import load


@pytest.mark.parametrize("name", ["model.onnx", "model.npz", "model.safetensors", "other.h5"])
def test_round_trip(netspec, trained, name):
    result = netspec("convert", "run", name)
    assert (result.status, result.err) == (0, "")
    assert "the same results: largest difference" in result.out
    back = netspec.ok("convert", name, "back.h5", "--json")
    assert back.json["files"] == ["back.h5"]
    netspec.ok("import", "back.h5", "--output", "back")
    ours, theirs = load("net.yaml", "run/best.h5").parameters, load("back/net.yaml", "back/weights.h5").parameters
    assert all(np.array_equal(theirs[key], array) for key, array in ours.items())


def test_a_checkpoint_and_a_spec_with_weights(netspec, trained):
    (checkpoint,) = list(Path("run/checkpoints").glob("*.h5"))[-1:]
    netspec.ok("convert", checkpoint, "one.npz")
    netspec.ok("convert", "train.yaml", "two.npz", "--weights", checkpoint)
    with np.load("one.npz") as first, np.load("two.npz") as two:
        assert set(first.files) == set(two.files)
        assert all(np.array_equal(first[name], two[name]) for name in first.files if name != "netspec.net")


def test_a_run_continues_in_keras_and_back_in_netspec(netspec, trained):
    checkpoint = max(Path("run/checkpoints").glob("*.h5"))
    netspec.ok("convert", checkpoint, "model.keras")
    netspec.ok("import", "model.keras", "--output", "back")
    before, after = read_checkpoint(checkpoint), read_checkpoint("back/checkpoint.h5")
    assert after.progress["step"] == before.progress["step"] == 12
    ours = {name: array for name, array in before.states.items() if before.roles[name] == "slot"}
    assert len(ours) == 4
    assert all(np.array_equal(after.states[name], array) for name, array in ours.items())
    assert "solver: {type: SGD, learning_rate: 0.5, momentum: 0.9}" in Path("back/train.yaml").read_text()


def test_a_model_that_reads_back_differently_is_not_written(netspec, trained, monkeypatch):
    Path("model.npz").write_text("what was there")

    other = OutputComparison({"logits": Gap(2, 3.0, 3.0)})
    monkeypatch.setattr(export, "compare_models", lambda value, two: (other, ""))
    result = netspec("export", "net.yaml", "--weights", "run/best.h5", "--output", "model.npz")
    assert result.status == 1
    assert "its results differ from the net's" in result.err
    assert Path("model.npz").read_text() == "what was there"
    assert not list(Path().glob(".model*"))


def test_weights_must_be_known(netspec, trained):
    result = netspec("convert", "net.yaml", "model.onnx")
    assert (result.status, "has no weights" in result.err) == (2, True)
    result = netspec("convert", "run", "model.keras2")
    assert (result.status, "its name says no format that is written" in result.err) == (2, True)


@pytest.mark.parametrize("command", ["export", "convert"])
def test_help_names_every_suffix_that_is_written(netspec, command):
    output = " ".join(netspec(command, "--help").out.split())
    assert all(suffix in output for file_format in FORMATS if file_format.write for suffix in file_format.suffixes)

"""MNIST from spec to ONNX Runtime, as in the README, on part of the data and through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import netspec
from netspec.cli import main
from netspec.data.readers.idx import read_idx
from netspec.schema.bundled import zoo_root
from netspec.schema.language.provenance import spec_sha256

TRAIN = zoo_root() / "lenet_mnist" / "train.yaml"
# The last of 501 samples is a batch by itself.
SLICE = ("data.train.limit=3000", "data.test.limit=501", "train.max_epochs=2")


def netspec_command(*words: str | Path) -> str:
    process = subprocess.run(
        [sys.executable, "-m", "netspec", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode == 0, process.stderr
    assert "Traceback" not in process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of LeNet on 3,000 images."""
    folder = tmp_path_factory.mktemp("lenet") / "run"
    lines = netspec_command("train", TRAIN, *SLICE, "--run-dir", folder, "--json").splitlines()
    last = json.loads(lines[-1])
    assert last["event"] == "done"
    assert last["run_dir"] == str(folder)
    assert last["steps"] == 2 * 47
    assert last["test"]["samples"] == 501
    assert last["test"]["metrics"]["accuracy"] > 0.9
    assert last["seconds"] > 0
    return folder


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process; return its output."""

    def call(*words: str | Path) -> str:
        capfd.readouterr()
        status = main([str(word) for word in words])
        captured = capfd.readouterr()
        assert status == 0, captured.err
        assert "Traceback" not in captured.err
        return captured.out

    return call


@pytest.mark.slow
def test_testing_the_weights_repeats_the_metrics_of_the_training(run: Path) -> None:
    logged = json.loads((run / "log.jsonl").read_text().splitlines()[-1])["test"]
    tested = json.loads(netspec_command("test", run / "spec.yaml", "--weights", run / "weights.h5", "--json"))
    assert tested == logged


@pytest.mark.slow
def test_the_exported_net_gives_the_same_logits_and_accuracy_in_onnxruntime(
    run: Path, tmp_path: Path, command: Callable[..., str]
) -> None:
    images = read_idx(zoo_root() / "data" / "mnist" / "t10k-images-idx3-ubyte.gz")[0][:501, None]
    labels = read_idx(zoo_root() / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz")[0][:501]
    x = images.astype(np.float32) * np.float32(0.00390625)
    np.savez(tmp_path / "in.npz", image=x)
    net, weights = run / "spec.yaml", run / "weights.h5"
    command("export", net, "--weights", weights, "--output", tmp_path / "net.onnx", "--without-preprocessing")
    command("predict", net, "--weights", weights, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    ours = np.load(tmp_path / "out.npz")["logits"]
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["netspec_spec_sha256"] == spec_sha256(netspec.load(net).spec)
    assert float(metadata["verified_max_abs_difference"]) <= 1e-4
    (theirs,) = session.run(["logits"], {"image": x})
    assert np.abs(ours - theirs).max() <= 1e-4  # float32 sums in another order
    logged = json.loads((run / "log.jsonl").read_text().splitlines()[-1])["test"]["metrics"]["accuracy"]
    assert (theirs.argmax(1) == labels).mean() == logged
    assert (ours.argmax(1) == labels).mean() == logged


@pytest.mark.slow
def test_an_imported_export_is_the_same_net(run: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    net, weights = run / "spec.yaml", run / "weights.h5"
    command("export", net, "--weights", weights, "--output", tmp_path / "net.onnx", "--without-preprocessing")
    command("import", tmp_path / "net.onnx", "--output", tmp_path / "imported")
    x = np.random.default_rng(0).random((7, 1, 28, 28), np.float32)
    first = netspec.load(run / "spec.yaml", run / "weights.h5").predict({"image": x})["logits"]
    again = netspec.load(tmp_path / "imported" / "net.yaml", tmp_path / "imported" / "weights.h5").predict({"image": x})
    np.testing.assert_allclose(again["logits"], first, rtol=1e-6, atol=1e-6)  # the same kernels on the same weights

"""`netspec check --run`: expectations of nets and trainings, and reports of those that are not met."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from netspec.cli import main
from netspec.training.diagnostics import step_checks

NET = """\
netspec: 1
inputs: {features: {shape: [3]}, label: {shape: [], dtype: int32}}
layers:
  - {name: hidden, type: Dense, units: 8, activation: relu}
  - {name: logits, type: Dense, units: 2}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
expect: {outputs: {hidden: [8], logits: 2}, parameters: 50, max_flops: 200}
"""
TRAIN = """\
netspec: 1
net: net.yaml
data: {train: {source: npz, path: blobs.npz, batch_size: 4}}
solver: {type: SGD, learning_rate: 0.5, momentum: 0.9}
train: {max_steps: 12, seed: 3}
expect:
  first_loss: {value: 0.69, within: 0.6}
  overfits: {samples: 6, steps: 60, loss: 0.1}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    label = random.integers(0, 2, 20).astype(np.int32)
    features = (label[:, None] + random.normal(size=(20, 3))).astype(np.float32)
    np.savez(tmp_path / "blobs.npz", features=features, label=label)
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "train.yaml").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_met_expectations_are_reported(folder, capsys):
    assert main(["check", "train.yaml", "--run"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "OK: train.yaml (2 layers, 50 parameters)"
    assert output[1].startswith("train.yaml: one training step with a batch of 4 samples: loss ")
    assert output[2].startswith("train.yaml: kernels of cpu in float32: loss and ")
    assert output[3].startswith("train.yaml: a step takes ")
    assert output[4].startswith("train.yaml: the first loss is 0.")
    assert output[5].startswith("train.yaml: 6 samples in 60 steps reach a loss of ")
    assert {path.name for path in Path().iterdir()} == {"blobs.npz", "net.yaml", "train.yaml"}  # nothing is written


def problems(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, tuple[str, str]]:
    """Return the expected and the actual value of each error of `netspec check`, by path."""
    assert main(["check", *arguments, "--json"]) == 2
    reported = json.loads(capsys.readouterr().out)
    return {each["path"]: (each["expected"], each["got"]) for each in reported if each["severity"] == "error"}


def test_unmet_expectations_of_a_net_are_reported_without_running(folder, capsys):
    reported = problems(
        capsys, "net.yaml", "expect.parameters=51", "expect.max_flops=10", "expect.outputs.logits=[2, 2]"
    )
    assert reported["expect.parameters"] == ("51", "50")
    assert reported["expect.outputs.logits"] == ("[2, 2]", "[2]")
    expected, flops = reported["expect.max_flops"]
    # FLOPs of two matrix products, and at most two more per output: bias and activation
    assert expected == "at most 10"
    assert 2 * (3 * 8 + 8 * 2) <= int(flops) <= 2 * (3 * 8 + 8 * 2) + 2 * (8 + 2)


def test_unmet_expectations_of_a_training_are_reported_after_running(folder, capsys):
    changes = ("expect.first_loss.value=9", "expect.overfits.loss=-1")
    assert main(["check", "train.yaml", *changes]) == 0
    capsys.readouterr()
    reported = problems(capsys, "train.yaml", *changes, "--run")
    assert reported["expect.first_loss"][0] == "9 ± 0.6"
    assert reported["expect.overfits"][0] == "a loss of -1 or less"


def test_a_non_finite_loss_is_reported_as_infinite(folder, capsys):
    reported = problems(capsys, "train.yaml", "--run", "solver.learning_rate=1e30", "solver.momentum=0")
    assert list(reported) == ["expect.overfits"]
    assert reported["expect.overfits"][1].startswith("inf")


def test_one_step_is_run_without_expectations(folder, capsys):
    text = (folder / "train.yaml").read_text()
    (folder / "train.yaml").write_text(text[: text.index("expect:")])
    assert main(["check", "train.yaml", "--run", "--device", "reference"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.startswith("train.yaml: one training step with a batch of 4 samples: loss ")
    assert line.endswith("; an untrained net has about 0.6931 (ln 2)")


def test_a_first_step_without_a_finite_loss_is_an_error(folder, capsys):
    text = (folder / "train.yaml").read_text()
    (folder / "train.yaml").write_text(text[: text.index("expect:")])
    arrays = dict(np.load(folder / "blobs.npz"))
    np.savez(folder / "blobs.npz", features=np.full_like(arrays["features"], 3e38), label=arrays["label"])
    assert main(["check", "train.yaml", "--run", "--device", "reference"]) == 2
    assert "the loss of the first step is not finite" in capsys.readouterr().err


def test_a_net_file_runs_no_step(folder, capsys):
    assert main(["check", "net.yaml", "--run"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "net.yaml: no step is run: a net file has no data to train on"


@pytest.fixture
def plain(folder):
    """The training without `expect`."""
    text = (folder / "train.yaml").read_text()
    (folder / "train.yaml").write_text(text[: text.index("expect:")])
    return folder


def test_a_kernel_that_differs_from_the_reference_is_an_error(plain, capsys, monkeypatch):
    gradients, calls = step_checks._gradients, count()

    def spoiled(*arguments):
        results = dict(gradients(*arguments))
        if next(calls) == 1:  # the device's; the first call is the reference's
            results["gradient/hidden/kernel"] *= 1.02
        return results

    monkeypatch.setattr(step_checks, "_gradients", spoiled)
    assert main(["check", "train.yaml", "--run", "--device", "reference"]) == 2
    error = capsys.readouterr().err
    assert "the gradient of hidden/kernel differs from the reference kernels" in error
    assert "got: 0.02" in error


def test_a_parameter_without_a_gradient_is_a_warning(plain, capsys):
    changes = ["net.layers.hidden.kernel_initializer=Zeros"]
    assert main(["check", "train.yaml", "--run", "--device", "reference", *changes]) == 0
    captured = capsys.readouterr()
    assert "2 parameters without a gradient" not in captured.out
    assert "the gradient of 3 parameters is 0: hidden/bias, hidden/kernel, logits/kernel" in captured.err
    assert main(["check", "train.yaml", "--run", "--strict", "--device", "reference", *changes]) == 2


def test_a_gradient_that_is_not_finite_is_an_error(plain, capsys):
    net = (plain / "net.yaml").read_text().replace(
        "units: 8, activation: relu}", "units: 8, kernel_initializer: Zeros}\n  - {type: Expression, expr: sqrt(x * x)}"
    ).partition("expect:")[0]  # fmt: skip
    (plain / "net.yaml").write_text(net)
    assert main(["check", "train.yaml", "--run", "--device", "reference"]) == 2
    assert "the gradient of 2 parameters is not finite: hidden/bias, hidden/kernel" in capsys.readouterr().err


def test_a_first_loss_far_from_chance_is_a_warning(plain, capsys):
    arrays = dict(np.load("blobs.npz"))
    np.savez("blobs.npz", features=arrays["features"] * 1000, label=arrays["label"])
    assert main(["check", "train.yaml", "--run", "--device", "reference"]) == 0
    error = capsys.readouterr().err
    assert "warning: the first loss is far from that of an untrained net" in error
    assert "expected: about 0.6931 (ln 2)" in error
    assert "inputs are not scaled" in error


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gradient_that_is_zero_but_for_rounding_is_no_failure(plain, capsys, precision):
    net = NET.partition("expect:")[0].replace("- {name: logits", "- {type: BatchNormalization}\n  - {name: logits")
    (plain / "net.yaml").write_text(net.replace(", activation: relu", ""))
    assert main(["check", "train.yaml", "--run", f"train.precision={precision}"]) == 0
    assert "loss and gradients differ from the reference by up to" in capsys.readouterr().out

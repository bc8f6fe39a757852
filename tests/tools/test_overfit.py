"""`netspec train --overfit`: whether a net can memorize a few samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.cli import main
from netspec.data.batches import Batch
from netspec.errors import InputError
from netspec.tools.specs import load_train
from netspec.training.compiler import open_training_loader, training_compiler
from netspec.training.diagnostics.overfitting import limit_to_first
from netspec.training.stepper import Stepper

FLIP = {"type": "RandomFlip", "mode": "horizontal"}


@pytest.fixture
def training(current_folder: Path) -> dict[str, Any]:
    """A classifier of noise, which it can only memorize."""
    random, path = np.random.default_rng(0), str(current_folder / "noise.npz")
    np.savez(path, x=random.normal(size=(40, 6)).astype("f"), label=random.integers(0, 3, 40).astype("i4"))
    return {
        "netspec": 1,
        "net": {
            "netspec": 1, "name": "noise", "inputs": {"x": {"shape": [6]}, "label": {"shape": [], "dtype": "int32"}},
            "layers": [
                {"name": "fc1", "type": "Dense", "units": 24, "activation": "relu",
                 "kernel_regularizer": {"type": "L2", "l2": 0.01}},
                {"name": "drop", "type": "Dropout", "rate": 0.0},
                {"name": "logits", "type": "Dense", "units": 3},
            ],
            "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
            "metrics": [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": ["logits", "label"]}],
        },
        "data": {"train": {"source": "npz", "path": path, "batch_size": 8, "shuffle": True}},
        "solver": {"type": "Adam", "learning_rate": 0.02}, "train": {"max_epochs": 3, "accumulate": 2, "seed": 3},
    }  # fmt: skip


def test_a_net_that_fits_learns_the_samples_and_writes_nothing(training: dict[str, Any], tmp_path: Path) -> None:
    result = netspec.overfit(training, 12, device="reference")
    assert result.learned
    assert result.accuracy == 1.0
    assert result.samples == 12
    assert result.losses[-1] < result.losses[0] / 2
    assert result.losses[0] == pytest.approx(np.log(3), abs=0.6), "without the penalty on weights"
    assert [path.name for path in tmp_path.iterdir()] == ["noise.npz"]


def test_contradicting_samples_are_counted(training: dict[str, Any]) -> None:
    arrays = dict(np.load("noise.npz"))
    arrays["x"][:8] = 1
    arrays["label"][:8] = [0, 0, 1, 1, 2, 2, 0, 1]
    np.savez("noise.npz", **arrays)
    result = netspec.overfit(training, 8, steps=60, device="reference")
    assert not result.learned
    assert result.causes[0] == "5 samples with the same inputs as another one, but other targets"


@pytest.mark.parametrize(("rate", "cause"), [(1e-7, "the loss does not fall"), (1e30, "the learning rate is too high")])
def test_a_wrong_learning_rate_is_the_likely_reason(training: dict[str, Any], rate: float, cause: str) -> None:
    training["solver"] = {"type": "SGD", "learning_rate": rate}
    training["net"]["layers"][1]["rate"] = 0.5
    result = netspec.overfit(training, 8, steps=20, device="reference")
    assert not result.learned
    assert any(cause in each for each in result.causes)
    assert any("dropout hinders memorizing: set `rate` to 0 for this test in drop" in each for each in result.causes)


def test_the_command_exits_with_the_result(training: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.json").write_text(json.dumps(training))
    assert main(["train", "train.json", "--overfit", "8", "--device", "reference"]) == 0
    output = capsys.readouterr().out
    assert "noise learned 8 samples in " in output
    assert "netspec train train.json" in output
    change = "solver.learning_rate=1e30"
    assert main(["train", "train.json", change, "--overfit", "8", "--device", "reference", "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert not printed["learned"]
    assert printed["causes"]
    assert main(["train", "train.json", "--overfit", "0"]) == 2
    assert main(["train", "train.json", "--overfit", "4", "--find-lr"]) == 2
    assert "--overfit and --find-lr cannot be combined" in capsys.readouterr().err


def test_samples_are_the_same_in_each_epoch(training: dict[str, Any], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (40, 1, 4, 4)).astype(np.uint8)
    np.savez("images.npz", x=image, label=random.integers(0, 3, 40).astype("i4"))
    training["net"]["inputs"]["x"]["shape"] = [1, 2, 2]
    training["net"]["layers"].insert(0, {"type": "Flatten"})
    crop = {"type": "RandomCrop", "height": 2, "width": 2}
    training["data"]["train"] |= {"path": str(tmp_path / "images.npz"), "transforms": [FLIP, crop]}
    few = limit_to_first(load_train(training), 8)
    with open_training_loader(few, training_compiler(few, "reference")) as loader:
        epochs = [batch.inputs["x"] for batch, _ in zip(loader, range(2), strict=False)]
    np.testing.assert_array_equal(epochs[0], epochs[1])
    np.testing.assert_array_equal(epochs[0], image[:8, :, 1:3, 1:3])


def test_a_solver_without_batches_is_refused(training: dict[str, Any]) -> None:
    training["solver"] = {"type": "LBFGS"}
    training["train"] = {"max_epochs": 2}
    training["net"]["layers"].pop(1)
    with pytest.raises(InputError, match="LBFGS reads all samples in each step"):
        netspec.overfit(training, 8)


def test_at_most_the_given_steps_are_trained(training: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = list[int](), Stepper.run

    def recorded(self: Stepper, batch: Batch, step: int, *rest: Any) -> Any:
        calls.append(step)
        return run(self, batch, step, *rest)

    monkeypatch.setattr(Stepper, "run", recorded)
    training["solver"] = {"type": "SGD", "learning_rate": 1e-7}
    training["data"]["train"]["batch_size"] = 3
    result = netspec.overfit(training, 12, steps=11, device="reference")
    assert calls == list(range(8)), "two passes of four batches: the third would not be complete"
    assert len(result.losses) == 2
    with pytest.raises(InputError, match="7 steps are fewer than two passes over 12 samples"):
        netspec.overfit(training, 12, steps=7, device="reference")


def test_a_loss_that_is_not_finite_from_the_start_is_no_matter_of_the_learning_rate(training: dict[str, Any]) -> None:
    arrays = dict(np.load("noise.npz"))
    np.savez("noise.npz", x=np.full_like(arrays["x"], 3e38), label=arrays["label"])
    result = netspec.overfit(training, 8, device="reference")
    assert any("not finite before the first update" in cause for cause in result.causes)
    assert not any("learning rate" in cause for cause in result.causes)

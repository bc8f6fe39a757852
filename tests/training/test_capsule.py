"""Losses and gradients that are not finite: the layer that is named, the capsule that is written, and its replay."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.backends.device_registry import CpuDevice
from netspec.cli import main
from netspec.errors import InputError, Problem, RunError
from netspec.exchange.formats.native.hdf5 import read_capsule, read_checkpoint, read_weights
from netspec.training.diagnostics import call_record
from netspec.training.loop import TrainingLoop

NET = {
    "netspec": 1, "name": "roots",
    "inputs": {"x": {"shape": [4]}, "y": {"shape": [1]}},
    "layers": [
        {"name": "fc1", "type": "Dense", "units": 8, "use_bias": False},
        {"name": "root", "type": "Expression", "expr": "sqrt(x * x)"},
        {"name": "drop", "type": "Dropout", "rate": 0.1},
        {"name": "out", "type": "Dense", "units": 1},
    ],
    "losses": [{"type": "MeanSquaredError", "from": ["out", "y"]}],
}  # fmt: skip
BAD_SAMPLE = 21
"""All of its features are 0, where the derivative of the root is infinite."""


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A training without shuffling, whose third batch has a finite loss and a gradient that is not finite."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(64, 4)).astype(np.float32), random.normal(size=(64, 1)).astype(np.float32)
    x[BAD_SAMPLE] = 0
    np.savez("roots.npz", x=x, y=y)
    return {
        "netspec": 1, "net": copy.deepcopy(NET),
        "data": {"train": {"source": "npz", "path": str(tmp_path / "roots.npz"), "batch_size": 8}},
        "solver": {"type": "SGD", "learning_rate": 0.01, "momentum": 0.9}, "train": {"max_steps": 6, "seed": 3},
    }  # fmt: skip


def failure(training: dict[str, Any], run_dir: str = "run", **options: Any) -> Problem:
    """Return the problem that ends a run with exit status 1."""
    with pytest.raises(RunError) as caught:
        netspec.train(training, run_dir=run_dir, device="reference", **options)
    (problem,) = caught.value.problems
    return problem


def test_a_gradient_that_is_not_finite_stops_the_run_at_its_own_step(training: dict[str, Any]) -> None:
    problem = failure(training)
    expected = (
        "the gradient of `fc1/kernel` is not finite at step 3: first in the gradient of layer `root` (Expression)"
    )
    assert problem.message == expected
    assert problem.got == "nan in 1 and inf in 7 of 64 elements"
    assert problem.hint == "the derivative of a square root is infinite at 0: add a small constant inside the root"
    assert problem.notes[2].startswith("first result: Div of layer `root`"), problem.notes
    assert "of 64" in problem.notes[2]
    (path,) = Path("run/checkpoints").iterdir()
    training["train"]["max_steps"] = 2
    before = netspec.train(training, run_dir="before", device="reference")
    states = read_checkpoint(path).states
    assert all(states[name].tobytes() == array.tobytes() for name, array in read_weights(before.weights).arrays.items())


def test_a_replay_has_the_bits_of_the_run_and_names_the_operation(training: dict[str, Any]) -> None:
    failure(training)
    replay = netspec.replay("run/capsule-00000003.h5")
    assert replay.identical
    assert not replay.differences
    assert replay.results > 10
    assert BAD_SAMPLE in replay.samples
    assert np.isfinite(replay.loss or np.nan)
    assert replay.bad is not None
    assert (replay.bad.node.op.name, replay.bad.scope.layer, replay.bad.scope.phase) == ("Div", "root", "backward")
    numerator, denominator = replay.bad.operands
    assert (denominator.min, denominator.nan, denominator.inf) == (0.0, 0, 0)
    assert numerator.elements == 64


def test_results_that_differ_are_reported(
    training: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failure(training)
    path = "run/capsule-00000003.h5"
    assert main(["replay", path]) == 0
    assert "bit-identical to the run" in capsys.readouterr().out
    capsule = read_capsule(path)
    capsule.states["out/bias"][0] += 1e-3
    monkeypatch.setattr("netspec.tools.reproducibility.replay.read_capsule", lambda path: capsule)
    assert main(["replay", path]) == 1
    assert "not bit-identical to the run" in capsys.readouterr().out
    capsule.facts["environment"]["numpy"] = "1.0"
    assert main(["replay", path, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["differences"]["numpy"]["run"] == "1.0"
    assert printed["first"]["layer"] == "root"
    assert not printed["identical"]


def test_a_replay_uses_the_threads_of_the_run(training: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    failure(training)
    assert netspec.replay("run/capsule-00000003.h5").differences == {}
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert netspec.replay("run/capsule-00000003.h5").differences == {}
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert netspec.replay("run/capsule-00000003.h5").differences == {"threads": ("3", "1")}


def test_kernels_that_are_not_deterministic_excuse_different_results(
    training: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training["compile"] = {"deterministic": False}
    failure(training)
    path = "run/capsule-00000003.h5"
    replay = netspec.replay(path)
    assert replay.identical
    assert not replay.deterministic
    capsule = read_capsule(path)
    capsule.states["out/bias"][0] += 1e-3
    monkeypatch.setattr("netspec.tools.reproducibility.replay.read_capsule", lambda path: capsule)
    assert main(["replay", path]) == 0
    assert "allows kernels that add in another order each time" in capsys.readouterr().out


def test_the_last_step_is_checked_too(training: dict[str, Any]) -> None:
    training["train"]["max_steps"] = 3
    assert "is not finite at step 3" in failure(training).message
    assert not Path("run/weights.h5").exists()


def test_a_copy_of_the_states_may_be_steps_old(training: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for cost in (0.0, 1e9):  # a single copy; a copy before each step
        monkeypatch.setattr(call_record, "COST", cost or 1e-30)
        assert "is not finite at step 3" in failure(training, f"run-{cost:g}").message
        assert netspec.replay(f"run-{cost:g}/capsule-00000003.h5").identical


def test_steps_of_several_batches_name_the_batch(training: dict[str, Any]) -> None:
    training["train"]["accumulate"] = 2
    problem = failure(training)
    assert problem.message.startswith("the gradient of `fc1/kernel` is not finite at step 2")
    replay = netspec.replay("run/capsule-00000002.h5")
    assert replay.identical
    assert replay.samples == tuple(range(16, 24))
    (path,) = Path("run/checkpoints").iterdir()
    assert path.name == "step-00000001.h5"
    training["train"]["max_steps"] = 1
    before = netspec.train(training, run_dir="before", device="reference")
    states = read_checkpoint(path).states
    assert all(states[name].tobytes() == array.tobytes() for name, array in read_weights(before.weights).arrays.items())


@pytest.mark.parametrize("fault", ["gradient", "loss"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_deterministic_training_names_the_part_of_the_batch(
    training: dict[str, Any], fault: str, accumulate: int
) -> None:
    training["parallel"] = {"strategy": "all_reduce", "deterministic": True, "shards": 4}
    training["train"]["accumulate"] = accumulate
    if fault == "loss":
        training["net"]["layers"][1]["expr"] = "log(x * x)"
    step = 3 if accumulate == 1 else 2
    assert f"is not finite at step {step}: first in" in failure(training).message
    replay = netspec.replay(f"run/capsule-{step:08}.h5")
    assert replay.identical
    assert replay.samples == (20, 21)
    assert replay.bad is not None
    assert replay.bad.scope.layer == "root"
    (checkpoint,) = Path("run/checkpoints").iterdir()
    assert checkpoint.name == f"step-{step - 1:08}.h5"
    assert all(np.isfinite(array).all() for array in read_checkpoint(checkpoint).states.values())


def test_weights_that_a_callback_assigns_are_no_failed_step(training: dict[str, Any]) -> None:
    class Spoil(netspec.Callback):
        def on_step_end(self, training: TrainingLoop) -> None:
            if training.step == 1:
                training.parameters["out/bias"] = np.full(1, np.nan, np.float32)

    problem = failure(training, callbacks=[Spoil()])
    assert "`out/bias` was already not finite before it" in problem.message
    assert not [*Path("run").glob("checkpoints/*")], "these weights are of no use"


def test_a_loss_names_the_layer_and_the_likely_reason(training: dict[str, Any]) -> None:
    training["net"]["layers"][1]["expr"] = "log(x * x)"
    problem = failure(training)
    assert problem.message == "the loss is not finite at step 3: first in layer `root` (Expression)"
    assert "logarithm of 0" in (problem.hint or "")
    replay = netspec.replay("run/capsule-00000003.h5")
    assert replay.identical
    assert replay.bad is not None
    assert (replay.bad.node.op.name, replay.bad.results[0].inf) == ("Log", 8)


def test_images_in_bytes_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CpuDevice, "accepts_uint8", True)
    random = np.random.default_rng(0)
    np.savez(
        "images.npz", image=random.integers(0, 256, (12, 1, 4, 4)).astype(np.uint8), y=np.ones((12, 1), np.float32)
    )
    crop = {"type": "RandomCrop", "height": 4, "width": 4, "padding": 1}
    split = {
        "source": "npz",
        "path": "images.npz",
        "batch_size": 4,
        "transforms": [crop, {"type": "Rescaling", "scale": 0.1}],
    }
    net = {
        "netspec": 1, "inputs": {"image": {"shape": [1, 4, 4]}, "y": {"shape": [1]}},
        "layers": [{"type": "Flatten"}, {"type": "Dense", "units": 1}],
        "losses": [{"type": "MeanSquaredError", "from": ["dense", "y"]}],
    }  # fmt: skip
    spec = {
        "netspec": 1, "net": net, "data": {"train": split}, "train": {"max_steps": 9},
        "solver": {"type": "SGD", "learning_rate": 1e30},
    }  # fmt: skip
    with pytest.raises(RunError, match="not finite at step"):
        netspec.train(spec, run_dir="run", device="reference")
    (path,) = Path("run").glob("capsule-*.h5")
    assert read_capsule(path).inputs["image"].dtype == np.uint8
    assert netspec.replay(path).identical


def test_other_and_damaged_files_are_refused(training: dict[str, Any], tmp_path: Path) -> None:
    failure(training)
    with pytest.raises(InputError, match="is a checkpoint file, not a capsule"):
        netspec.replay("run/checkpoints/step-00000002.h5")
    with pytest.raises(InputError, match="is a capsule of a failed step, not a weights file"):
        read_weights("run/capsule-00000003.h5")
    content = bytearray(Path("run/capsule-00000003.h5").read_bytes())
    content[len(content) // 2] ^= 1
    Path("damaged.h5").write_bytes(content)
    with pytest.raises(InputError, match="its checksum is wrong"):
        netspec.replay("damaged.h5")
    Path("text.h5").write_text("no capsule")
    with pytest.raises(InputError, match="is not an HDF5 file that netspec wrote"):
        netspec.replay("text.h5")


def test_a_failed_run_resumes_after_the_batch(training: dict[str, Any]) -> None:
    failure(training)
    run = netspec.train(training, run_dir="run", resume=True, device="reference")
    assert run.steps == 6
    assert all(np.isfinite(array).all() for array in read_weights(run.weights).arrays.values())


def test_a_gradient_of_lbfgs_names_the_batch(training: dict[str, Any]) -> None:
    training["solver"], training["train"]["accumulate"] = {"type": "LBFGS"}, 8
    training["net"]["layers"].pop(2)
    problem = failure(training)
    assert problem.message.startswith("the gradient of `fc1/kernel` is not finite at step 1: first in the gradient of")
    assert not Path("run/weights.h5").exists()
    replay = netspec.replay("run/capsule-00000001.h5")
    assert replay.identical
    assert replay.samples == tuple(range(16, 24))
    assert replay.bad is not None
    assert (replay.bad.node.op.name, replay.bad.scope.phase) == ("Div", "backward")


def test_a_loss_of_lbfgs_names_the_batch(training: dict[str, Any]) -> None:
    training["solver"], training["train"]["accumulate"] = {"type": "LBFGS"}, 8
    training["net"]["layers"].pop(2)
    training["net"]["layers"][1]["expr"] = "log(x * x)"
    assert failure(training).message == "the loss is not finite at step 1: first in layer `root` (Expression)"
    replay = netspec.replay("run/capsule-00000001.h5")
    assert replay.identical
    assert replay.samples == tuple(range(16, 24))


def test_a_full_disk_has_no_capsule(training: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100))
    problem = failure(training)
    assert "is not finite at step 3" in problem.message
    assert any("no capsule of this step was written" in note and "100 B left" in note for note in problem.notes)
    assert not [*Path("run").glob("capsule-*")]


def test_states_are_copied_up_to_a_part_of_the_memory(
    training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_record, "machine_memory", lambda: 0)
    problem = failure(training)
    assert "already not finite before it" in problem.message
    assert any("no capsule" in note and "more than 12.5% of this host's memory" in note for note in problem.notes)
    assert not [*Path("run").glob("checkpoints/*")], "these weights are of no use"


def test_a_device_that_runs_ahead_says_how_to_get_a_capsule(
    training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "runs_ahead", True)
    problem = failure(training)
    assert "already not finite before it" in problem.message
    assert any(
        "no capsule" in note and "`--resume --device cpu` repeats the step and writes one" in note
        for note in problem.notes
    )

"""Continue trainings that PyTorch began, and compare the results with PyTorch's, recorded by `torch_resume.py`."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.exchange.formats.native.safetensors import read_safetensors, write_safetensors
from netspec.exchange.formats.pytorch.optimizers import RULES
from netspec.exchange.formats.pytorch.state_dicts import to_state_dict
from tests.peers import torch_resume
from tests.peers.recordings import load_answers
from tests.peers.torch_resume import AFTER, BEFORE, CASES

ANSWERS = load_answers("torch_resume")

TOLERANCE = 1e-10
"""Largest difference, relative to the largest weight: 50 steps with sums in a different order than PyTorch's."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = torch_resume.given()
    np.savez(tmp_path / "data.npz", x=data["x"], y=data["y"])
    return tmp_path


def spec(folder: Path, solver: dict[str, Any]) -> dict[str, Any]:
    source = {"source": "npz", "path": str(folder / "data.npz"), "batch_size": torch_resume.BATCH, "shuffle": False}
    return {
        "netspec": 1, "net": deepcopy(torch_resume.NET), "data": {"train": source}, "solver": solver,
        "train": {"max_steps": BEFORE + AFTER, "precision": "float64"},
    }  # fmt: skip


def saved(folder: Path, name: str) -> Path:
    """Return the file that PyTorch's training was saved to."""
    path = folder / "training.safetensors"
    path.write_bytes(ANSWERS[f"{name}/file"].tobytes())
    return path


FAST = {("adam", "reference"), ("sgd_momentum", "reference")}
RUNS = [*((name, "reference") for name in CASES), ("sgd_momentum", "cpu"), ("adamw", "cpu")]


@pytest.mark.parametrize(
    ("name", "device"), [pytest.param(*run, marks=() if run in FAST else pytest.mark.slow) for run in RUNS]
)
def test_steps_of_both_are_the_steps_of_pytorch(name: str, device: str, folder: Path) -> None:
    run = netspec.train(
        spec(folder, CASES[name].fields), run_dir=folder / "run", resume=saved(folder, name), device=device
    )
    assert run.steps == BEFORE + AFTER
    actual = to_state_dict(read_weights(run.run_dir / "weights.h5").arrays)
    before, _ = read_safetensors(folder / "training.safetensors")
    for key, array in actual.items():
        expected = ANSWERS[f"{name}/{key}"]
        assert np.abs(array - expected).max() <= TOLERANCE * np.abs(expected).max(), key
        assert np.abs(before[key] - expected).max() > 1e-4 * np.abs(expected).max(), "nothing was left to learn"


def test_every_rule_is_resumed() -> None:
    assert {case.optimizer for case in CASES.values()} == set(RULES)


def changed(folder: Path, name: str, change: Any) -> Path:
    """Return the file after `change(arrays, optimizer)`, which may alter both."""
    path = saved(folder, name)
    arrays, metadata = read_safetensors(path)
    optimizer = json.loads(metadata["optimizer"])
    change(arrays, optimizer)
    write_safetensors(path, arrays, {"optimizer": json.dumps(optimizer)})
    return path


def refused(folder: Path, path: Path, solver: dict[str, Any], **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        netspec.train(spec(folder, solver) | more, run_dir=folder / "run", resume=path, device="reference")
    return caught.value


@pytest.mark.parametrize(
    ("name", "fields", "path"),
    [
        ("adam", {"type": "Adam", "epsilon_mode": "uncorrected"}, "solver.epsilon_mode"),
        ("adam", {"type": "AdamW", "epsilon_mode": "bias_corrected"}, "solver.weight_decay"),
        ("adam", {"type": "SGD"}, "solver.type"),
        ("sgd_momentum", {"rate_in_velocity": True}, "solver.rate_in_velocity"),
        ("rmsprop", {"epsilon_in_root": True}, "solver.epsilon_in_root"),
        ("adamax", {"epsilon_in_maximum": False}, "solver.epsilon_in_maximum"),
        ("adagrad", {"learning_rate": 0.05}, "solver.learning_rate"),
    ],
)
def test_a_rule_that_differs_is_refused(name: str, fields: dict[str, Any], path: str, folder: Path) -> None:
    solver = fields if fields.get("type", "") not in ("", CASES[name].solver["type"]) else CASES[name].fields | fields
    error = refused(folder, saved(folder, name), solver)
    (problem,) = error.problems
    assert problem.path == path
    assert "differs from PyTorch's" in str(error)


def test_an_optimizer_that_no_solver_implements_is_refused(folder: Path) -> None:
    path = changed(folder, "adam", lambda arrays, optimizer: optimizer.update(type="SparseAdam"))
    assert "SparseAdam, which no solver implements" in str(refused(folder, path, CASES["adam"].fields))


def test_an_optimizer_that_maximizes_is_refused(folder: Path) -> None:
    path = changed(folder, "adam", lambda arrays, optimizer: optimizer["param_groups"][0].update(maximize=True))
    assert "`maximize`" in str(refused(folder, path, CASES["adam"].fields))


@pytest.mark.parametrize("count", [np.array(3.0), np.full(2, 70.0)])
def test_parameters_of_different_counts_are_refused(count: np.ndarray, folder: Path) -> None:
    path = changed(folder, "adam", lambda arrays, _: arrays.update({"optimizer.state.head.bias.step": count}))
    assert f"`head.bias` was updated {count} times" in str(refused(folder, path, CASES["adam"].fields))


def test_missing_entries_are_named(folder: Path) -> None:
    path = changed(folder, "adam", lambda arrays, _: arrays.pop("optimizer.state.head.bias.exp_avg"))
    error = str(refused(folder, path, CASES["adam"].fields))
    assert "`optimizer.state.head.bias.exp_avg` is missing" in error


def test_an_average_that_pytorch_does_not_have_is_refused(folder: Path) -> None:
    error = str(refused(folder, saved(folder, "adam"), CASES["adam"].fields | {"ema": 0.9}))
    assert "no state that the solver's `average` can be taken from" in error


def test_an_entry_of_another_shape_is_refused(folder: Path) -> None:
    name = "optimizer.state.head.bias.exp_avg"
    path = changed(folder, "adam", lambda arrays, _: arrays.update({name: np.zeros(3)}))
    assert f"`{name}` has the shape [3], not [4]" in str(refused(folder, path, CASES["adam"].fields))


def test_weights_without_optimizer_state_are_rejected(folder: Path) -> None:
    path = saved(folder, "adam")
    write_safetensors(path, read_safetensors(path)[0], {})
    assert "has no optimizer state" in str(refused(folder, path, CASES["adam"].fields))


@pytest.mark.parametrize(
    "text", ["[", "[]", "{}", '{"type": "Adam", "step": -1, "param_groups": []}', '{"type": "Adam", "step": "1"}']
)
def test_damaged_metadata_is_refused(text: str, folder: Path) -> None:
    path = saved(folder, "adam")
    write_safetensors(path, read_safetensors(path)[0], {"optimizer": text})
    assert "training.safetensors" in str(refused(folder, path, CASES["adam"].fields))


def test_biases_that_pytorch_trains_apart_are_refused(folder: Path) -> None:
    """An LSTM has two biases in PyTorch, and their sum in netspec."""
    net = {
        "netspec": 1, "inputs": {"x": {"shape": [6, 6]}, "y": {"shape": [4]}},
        "layers": [{"name": "rnn", "type": "LSTM", "units": 4, "from": "x"}], "outputs": ["rnn"],
        "losses": [{"type": "MeanSquaredError", "from": ["rnn", "y"]}],
    }  # fmt: skip
    np.savez(folder / "data.npz", x=np.zeros((8, 6, 6)), y=np.zeros((8, 4)))
    shapes = {
        "rnn.weight_ih_l0": (16, 6),
        "rnn.weight_hh_l0": (16, 4),
        "rnn.bias_ih_l0": (16,),
        "rnn.bias_hh_l0": (16,),
    }
    arrays = {name: np.zeros(shape) for name, shape in shapes.items()}
    optimizer = {"type": "SGD", "step": 2, "param_groups": [{"lr": 0.1, "momentum": 0.9}]}
    entries = {f"optimizer.state.{name}.momentum_buffer": array for name, array in arrays.items()}
    path = folder / "training.safetensors"
    write_safetensors(path, arrays | entries, {"optimizer": json.dumps(optimizer)})
    solver = {"type": "SGD", "learning_rate": 0.1, "momentum": 0.9, "rate_in_velocity": False}
    error = refused(folder, path, solver, net=net)
    assert "`rnn/bias` is the sum of several parameters that PyTorch trains one by one" in str(error)
    assert len(error.problems) == 1


def test_other_hyperparameters_are_reported(folder: Path) -> None:
    warnings: list[str] = []

    def listen(event: Any) -> None:
        warnings.extend([event["message"]] if event["event"] == "warning" else [])

    solver = CASES["adam_amsgrad"].fields | {
        "beta_1": {"type": "OneCycle", "initial": 0.95, "peak": 0.85}, "beta_2": 0.9, "learning_rate": 0.01,
    }  # fmt: skip
    netspec.train(
        spec(folder, solver), run_dir=folder / "run", resume=saved(folder, "adam_amsgrad"), device="reference",
        listeners=[listen],
    )  # fmt: skip
    assert "`beta_2` is 0.9 now and 0.95 in PyTorch's optimizer" in " ".join(warnings)
    assert "`learning_rate` is 0.01 now and 0.05 in PyTorch's optimizer" in " ".join(warnings)
    assert "`beta_1`" not in " ".join(warnings)


def test_such_a_file_serves_as_weights(folder: Path) -> None:
    model = netspec.load(torch_resume.NET, saved(folder, "adam"))
    arrays, _ = read_safetensors(folder / "training.safetensors")
    np.testing.assert_array_equal(model.parameters["head/kernel"], arrays["head.weight"].T.astype(np.float32))

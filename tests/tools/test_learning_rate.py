"""The learning rate range test: `netspec.find_learning_rate`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.cli import main
from netspec.schema.bundled import zoo_root
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from netspec.tools.learning_rate import smooth
from netspec.tools.specs import load_train


def training(folder: Path, **solver: Any) -> dict[str, Any]:
    """A linear regression of 512 samples, which diverges with a high rate."""
    random = np.random.default_rng(0)
    x = random.standard_normal((512, 8)).astype(np.float32)
    y = (x @ random.standard_normal((8, 1)) + 0.1 * random.standard_normal((512, 1))).astype(np.float32)
    np.savez(folder / "line.npz", x=x, y=y)
    return {
        "netspec": 1,
        "net": {
            "netspec": 1, "name": "line", "inputs": {"x": {"shape": [8]}, "y": {"shape": [1]}},
            "layers": [{"type": "Dense", "name": "fit", "units": 1}],
            "losses": [{"type": "MeanSquaredError", "from": ["fit", "y"]}],
        },
        "data": {"train": {"source": "npz", "path": str(folder / "line.npz"), "batch_size": 32, "shuffle": True}},
        "solver": {"type": "SGD", "learning_rate": 0.05, **solver},
        "train": {"max_steps": 60, "log_every": 1},
    }  # fmt: skip


def test_the_suggested_rate_is_safe_and_much_better_than_a_tenth_of_it(current_folder):
    spec = training(current_folder)
    before = sorted(current_folder.iterdir())
    search = netspec.find_learning_rate(spec, device="reference")
    assert sorted(current_folder.iterdir()) == before, "no run directory"
    assert (search.current, search.field) == (0.05, "solver.learning_rate")
    assert search.suggested is not None
    assert search.steepest is not None
    assert search.lowest is not None
    assert search.steepest <= search.lowest < (search.diverged_at or 0)
    assert search.suggested <= search.lowest / 9
    # gradient descent on a quadratic with curvature 2 (unit variance) diverges from a rate of 1 on
    assert 0.3 < (search.diverged_at or 0) < 30
    losses = {}
    for rate in (search.suggested / 10, search.suggested, search.diverged_at):
        try:
            run = netspec.train(spec, device="reference", **{"solver.learning_rate": rate})
            losses[rate] = float(np.mean([event["loss"] for event in run.history[-10:]]))
        except netspec.RunError:
            losses[rate] = float("inf")
    assert losses[search.suggested] < 0.7 * losses[search.suggested / 10]
    assert losses[search.diverged_at] > 10 * losses[search.suggested]


def points(folder: Path, layers: list[dict[str, Any]], **solver: Any) -> dict[str, Any]:
    """A training that tells three classes of points apart."""
    random = np.random.default_rng(0)
    centers, label = random.normal(size=(3, 6)) * 2, random.integers(0, 3, 512).astype(np.int32)
    x = (centers[label] + random.normal(size=(512, 6))).astype(np.float32)
    np.savez(folder / "points.npz", x=x, label=label)
    spec = training(folder, **solver)
    spec["data"]["train"]["path"] = str(folder / "points.npz")
    loss = {"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}
    inputs = {"x": {"shape": [6]}, "label": {"shape": [], "dtype": "int32"}}
    return {**spec, "net": {"netspec": 1, "inputs": inputs, "layers": layers, "losses": [loss]}}


SMALL = {"kernel_initializer": {"type": "RandomNormal", "stddev": 0.05}}
NOISY = [{"type": "Dense", "units": 16, "activation": "relu"}, {"type": "Dense", "name": "logits", "units": 3}]
"""Batches differ by more than low rates change the loss."""
FLAT = [
    *({"type": "Dense", "units": 16, "activation": "sigmoid", **SMALL} for _ in range(2)),
    {"type": "Dense", "name": "logits", "units": 3, **SMALL},
]
"""The loss is flat up to high rates."""
ADAM = {"type": "Adam", "learning_rate": 0.001}


@pytest.mark.parametrize(
    ("layers", "solver", "low", "high"),
    [
        (NOISY, {"momentum": 0.9}, 5e-4, 0.02), (NOISY, ADAM, 5e-4, 0.02),
        (FLAT, {"momentum": 0.9}, 0.1, 2), (FLAT, ADAM, 0.005, 0.1),
    ],
)  # fmt: skip
def test_a_flat_start_suggests_no_low_rate(tmp_path, layers, solver, low, high):
    spec = points(tmp_path, layers, **solver)
    search = netspec.find_learning_rate(spec, device="reference")
    assert search.suggested is not None
    assert low <= search.suggested <= high
    settings = {"train.log_every": 150, "train.max_steps": 150}
    losses = [
        netspec.train(
            spec, device="reference", run_dir=tmp_path / str(index), **settings, **{"solver.learning_rate": rate}
        ).history[-1]["loss"]
        for index, rate in enumerate((search.suggested, search.suggested / 100))
    ]
    assert losses[0] < 0.8 * losses[1]


@pytest.mark.slow
def test_lenet_gets_a_rate_near_that_of_its_training_file():
    search = netspec.find_learning_rate(zoo_root() / "lenet_mnist" / "train.yaml")
    assert search.suggested is not None
    assert 0.003 <= search.suggested <= 0.05


def test_rates_grow_exponentially_and_each_loss_follows_its_step(tmp_path):
    search = netspec.find_learning_rate(training(tmp_path), lowest=1e-4, highest=1e-2, steps=21, device="reference")
    assert len(search.learning_rates) == len(search.losses) == 21
    assert search.learning_rates[10] == pytest.approx(1e-3)
    assert search.diverged_at is None
    shuffled = training(tmp_path)
    constant = netspec.find_learning_rate(shuffled, lowest=1e-9, highest=1.1e-9, steps=21, device="reference")
    assert constant.first_loss == search.first_loss
    assert constant.suggested is constant.lowest is None, "the loss does not fall"


@pytest.mark.parametrize("name", sorted(set(SOLVERS.names()) - {"LBFGS"}))
def test_every_solver_of_batches_can_be_tested(tmp_path, name):
    kind = SOLVERS[name]
    assert issubclass(kind, SolverSpec)
    spec = training(tmp_path) | {"solver": {"type": name, **kind.samples[0]}}
    search = netspec.find_learning_rate(spec, steps=12, device="reference")
    assert search.learning_rates[0] == pytest.approx(kind.usual_learning_rates[0] / 10)
    assert len(search.losses) > 1


def test_a_full_batch_solver_has_no_rate_to_test(tmp_path):
    spec = training(tmp_path) | {"solver": {"type": "LBFGS"}}
    with pytest.raises(netspec.InputError, match="LBFGS reads all samples in each step"):
        netspec.find_learning_rate(spec, device="reference")


def test_rates_of_groups_grow_in_proportion_and_steps_may_have_several_batches(tmp_path):
    options: dict[str, Any] = {"lowest": 1e-3, "highest": 1e-2, "steps": 10, "device": "reference"}
    plain = netspec.find_learning_rate(training(tmp_path), **options)
    frozen = {"groups": [{"match": "*", "learning_rate": 0.05 / 1000}]}
    slow = netspec.find_learning_rate(training(tmp_path, **frozen), **options)
    as_slow = {**options, "lowest": 1e-6, "highest": 1e-5}
    assert slow.losses == pytest.approx(netspec.find_learning_rate(training(tmp_path), **as_slow).losses, rel=1e-5)
    assert slow.losses[-1] > plain.losses[-1]
    both = training(tmp_path)
    both["train"]["accumulate"] = 2
    assert len(netspec.find_learning_rate(both, **options).losses) == 10


def test_the_field_of_the_rate_is_found_in_schedules(tmp_path):
    schedules: dict[str, Any] = {
        "solver.learning_rate": 0.1,
        "solver.learning_rate.initial": {"type": "CosineDecay", "initial": 0.1},
        "solver.learning_rate.then": {"type": "Warmup", "steps": 3, "then": 0.1},
        "solver.learning_rate.peak": {"type": "OneCycle", "peak": 0.1},
    }
    for field, schedule in schedules.items():
        spec = training(tmp_path, learning_rate=schedule)
        search = netspec.find_learning_rate(spec, steps=10, device="reference")
        assert search.field == field
        assert search.current == pytest.approx(0.1, rel=0.01)
        load_train(spec, [f"{field}=0.2"])


def test_wrong_ranges_are_reported(tmp_path):
    for wrong in ({"lowest": 0.1, "highest": 0.01}, {"steps": 3}, {"lowest": 0.0}, {"highest": float("inf")}):
        with pytest.raises(netspec.InputError, match=r"range|`steps` must be"):
            netspec.find_learning_rate(training(tmp_path), device="reference", **wrong)


@pytest.mark.parametrize("batch", [0, 1])
def test_an_infinite_gradient_is_no_matter_of_the_rate(current_folder, capsys, batch):
    spec = training(current_folder)
    axes = {"type": "Dense", "name": "axes", "units": 8, "use_bias": False}
    spec["net"]["layers"] = [axes, {"type": "Expression", "expr": "sqrt(x * x)"}, *spec["net"]["layers"]]
    arrays = dict(np.load("line.npz"))
    arrays["x"][32 * batch] = 0
    np.savez("line.npz", **arrays)
    spec["data"]["train"]["shuffle"] = False
    Path("train.json").write_text(json.dumps(spec))
    assert main(["train", "train.json", "--find-lr", "--device", "reference"]) == 0
    output = capsys.readouterr().out
    assert "the loss or a gradient is not finite: `netspec train train.json` names the first operation" in output
    assert "diverged" not in output
    assert "check the data" not in output
    search = netspec.find_learning_rate(spec, lowest=0.06, highest=1, device="reference")
    assert search.not_finite == (batch == 0), "at a rate above that of the file, the rate may be the cause"


def test_smoothing_has_no_delay():
    step = [1.0] * 40 + [0.0] * 40
    smoothed = smooth(step)
    assert smoothed[39] + smoothed[40] == pytest.approx(1.0)
    assert all(before >= after - 1e-12 for before, after in pairwise(smoothed))

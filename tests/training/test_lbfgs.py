"""L-BFGS in a run: its options, and settings that contradict it. Its steps are compared in `tests/peers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.schema.load import load_train
from netspec.training.line_search import LineSearch, Point

LAYERS = [
    {"name": "hidden", "type": "Dense", "from": "x", "units": 4, "activation": "tanh"},
    {"name": "out", "type": "Dense", "units": 1},
]


def spec(folder: Path, layers: list[dict[str, Any]], **loop: Any) -> dict[str, Any]:
    random = np.random.default_rng(4)
    x = random.normal(size=(12, 3)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=np.tanh(x @ random.normal(size=(3, 1)).astype(np.float32)))
    inputs = {"x": {"shape": [3]}, "y": {"shape": [1]}}
    return {
        "netspec": 1,
        "net": {
            "netspec": 1, "inputs": inputs, "layers": layers,
            "losses": [{"type": "MeanSquaredError", "from": ["out", "y"]}],
        },
        "data": {"train": {"source": "npz", "path": str(folder / "data.npz"), "batch_size": 5, "shuffle": True}},
        "solver": "LBFGS",
        "train": {"max_epochs": 20, "accumulate": 100, "log_every": 1, **loop},
    }  # fmt: skip


def test_a_small_net_is_fitted_in_twenty_steps(tmp_path):
    """A step is an epoch; `accumulate` may exceed the batches of an epoch."""
    losses: list[float] = []

    def listen(event: dict[str, Any]) -> None:
        losses.extend([event["loss"]] if event["event"] == "log" else [])

    run = netspec.train(spec(tmp_path, LAYERS), run_dir=tmp_path / "run", listeners=[listen])
    assert run.steps == len(losses) == 20
    assert losses == sorted(losses, reverse=True), "a line search never goes up"
    assert losses[-1] < 1e-3 * losses[0]


def test_a_batch_smaller_than_the_data_is_refused(tmp_path):
    with pytest.raises(InputError, match="LBFGS must read the whole training set in each step") as caught:
        netspec.train(spec(tmp_path, LAYERS, accumulate=2), run_dir=tmp_path / "run")
    (problem,) = caught.value.problems
    assert problem.expected == "`train.accumulate: 3`, or larger batches"


@pytest.mark.parametrize(
    ("source", "limit", "batches"),
    [
        ("source: mnist, split: train", None, 75),
        ("source: mnist, split: train", 1601, 3),
        ("source: cifar10, split: test", None, 13),
        ("source: synthetic, samples: 2000, fields: {image: {}, label: {classes: 2}}", 1500, 2),
    ],
)
def test_a_batch_smaller_than_the_data_is_refused_before_the_data_is_read(tmp_path, source, limit, batches):
    split = f"{source}, batch_size: 800" + (f", limit: {limit}" if limit else "")
    text = f"""\
netspec: 1
net: {{netspec: 1, inputs: {{image: {{shape: []}}}}, layers: [{{type: Dense, units: 1}}]}}
data: {{train: {{{split}}}}}
solver: LBFGS
train: {{max_epochs: 1, accumulate: ACCUMULATE}}
"""
    (tmp_path / "train.yaml").write_text(text.replace("ACCUMULATE", f"{batches - 1}"))
    with pytest.raises(InputError, match="LBFGS must read the whole training set") as caught:
        load_train(tmp_path / "train.yaml")
    problem = next(problem for problem in caught.value.problems if problem.message.startswith("LBFGS"))
    assert str(problem.location).endswith("train.yaml:5:36")
    assert problem.expected == f"`train.accumulate: {batches}`, or larger batches"
    (tmp_path / "train.yaml").write_text(text.replace("ACCUMULATE", f"{batches}"))
    assert load_train(tmp_path / "train.yaml").train.accumulate == batches


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        ({"type": "Dropout", "rate": 0.5}, "draws random numbers"),
        ({"type": "BatchNormalization"}, "changes with every batch"),
        ({"type": "Dense", "units": 2, "kernel_constraint": "NonNeg"}, "constrains its parameters"),
        ({"type": "Dense", "units": 2, "learning_rate_multiplier": 2.0}, "has a learning rate multiplier"),
    ],
)
def test_a_loss_that_is_not_reproducible_is_refused(layer, why, tmp_path):
    layers = [LAYERS[0], {"name": "odd", **layer}, LAYERS[1]]
    with pytest.raises(InputError, match=f"layer `odd` {why}"):
        netspec.train(spec(tmp_path, layers), run_dir=tmp_path / "run")


@pytest.mark.parametrize("first", [1e-3, 0.4, 5.0, 1e3])
def test_the_line_search_satisfies_the_wolfe_conditions(first):
    """loss = t⁴ / 4 - t, starting at 0, with its minimum at 1."""

    def at(t: float) -> Point:
        return Point(t, t**4 / 4 - t, t**3 - 1)

    start = at(0.0)
    point = LineSearch(at, start, 25, 1e-9).run(first)
    assert point.loss <= start.loss + 1e-4 * point.t * start.slope
    assert abs(point.slope) <= 0.9


def test_the_line_search_recovers_from_non_finite_losses():
    def at(t: float) -> Point:
        return Point(t, (t - 1) ** 2, 2 * (t - 1)) if t < 3 else Point(t, float("inf"), float("inf"))

    assert abs(LineSearch(at, at(0.0), 25, 1e-9).run(100.0).t - 1) < 1

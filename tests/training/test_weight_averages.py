"""Averages of weights in a run: which weights are evaluated and saved, and that a resumed run is bit-identical."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights, write_checkpoint

Make = Callable[..., dict[str, Any]]


def averaged(spec: Make, **loop: Any) -> dict[str, Any]:
    """The small training with an average of the weights."""
    train_spec = spec(**loop)
    train_spec["solver"] |= {"type": "Adam", "ema": 0.9, "groups": [{"match": "*/bias", "learning_rate": 0.02}]}
    return train_spec


def test_the_saved_weights_are_the_evaluated_averages(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(averaged(spec, max_steps=20), run_dir=tmp_path / "run")
    checkpoint = read_checkpoint(run.run_dir / "checkpoints" / "step-00000020.h5")
    saved = read_weights(run.last_weights).arrays
    for name in ("fc1/kernel", "logits/bias"):
        np.testing.assert_array_equal(saved[name], checkpoint.states[f"solver/{name}/average"])
        assert (saved[name] != checkpoint.states[name]).any()
    for file in (run.last_weights, run.run_dir / "checkpoints" / "step-00000020.h5"):
        reloaded = netspec.load(averaged(spec), file).evaluate(averaged(spec))
        assert reloaded == run.test
    np.testing.assert_array_equal(read_weights(run.run_dir / "best.h5").arrays["fc1/kernel"], saved["fc1/kernel"])


def test_logged_evaluations_and_the_best_weights_are_those_of_the_average(spec: Make, tmp_path: Path) -> None:
    train_spec = averaged(spec, max_steps=24, test_every=4, monitor="accuracy", mode="min")
    train_spec["data"]["validation"] = train_spec["data"]["test"]
    train_spec["train"] |= {"checkpoint_every": 4, "keep_checkpoints": 6}
    run = netspec.train(train_spec, run_dir=tmp_path / "run")
    events = [json.loads(line) for line in (run.run_dir / "log.jsonl").read_text().splitlines()]
    logged = {
        (event["split"], event["step"]): (event["loss"], event["metrics"])
        for event in events if event["event"] == "test"
    }  # fmt: skip
    step = run.weights_step
    assert step is not None
    assert step < 24, "the best weights are not those of the last step"
    checkpoint = read_checkpoint(run.run_dir / "checkpoints" / f"step-{step:08d}.h5")
    best = read_weights(run.run_dir / "best.h5").arrays
    for name in ("fc1/kernel", "logits/bias"):
        np.testing.assert_array_equal(best[name], checkpoint.states[f"solver/{name}/average"])
        assert (best[name] != checkpoint.states[name]).any()
    for split in ("validation", "test"):
        evaluation = netspec.test(run.run_dir, split=split)
        assert (evaluation.loss, evaluation.metrics) == logged[split, step]


@pytest.mark.slow
def test_a_saved_spec_with_averages_can_be_loaded(spec: Make, tmp_path: Path) -> None:
    """`spec.yaml` contains every field, including those that a solver within a group can't have."""
    train_spec = averaged(spec, max_steps=6)
    train_spec["solver"]["groups"] = [{"match": "fc1/*", "solver": {"type": "Muon", "learning_rate": 0.01}}]
    run = netspec.train(train_spec, run_dir=tmp_path / "run")
    written = run.run_dir / "spec.yaml"
    assert netspec.load(written, run.weights).evaluate(written) == run.test
    assert netspec.train(written, run_dir=run.run_dir, resume=True).steps == 6


def test_the_average_starts_at_the_initial_weights(spec: Make, tmp_path: Path) -> None:
    first = netspec.train(spec(max_steps=5), run_dir=tmp_path / "first")
    train_spec = averaged(spec, max_steps=1)
    train_spec["solver"] |= {"learning_rate": 1e-9, "groups": []}
    run = netspec.train(train_spec, run_dir=tmp_path / "run", weights=first.weights)
    saved, initial = read_weights(run.last_weights).arrays, read_weights(first.weights).arrays
    np.testing.assert_allclose(saved["fc1/kernel"], initial["fc1/kernel"], rtol=0, atol=1e-7)


def test_a_resumed_run_is_bit_identical(spec: Make, tmp_path: Path) -> None:
    def train(folder: str, steps: int, **more: Any) -> dict[str, Any]:
        train_spec = averaged(spec, max_steps=steps)
        train_spec["solver"]["learning_rate"] = 0.01
        run = netspec.train(train_spec, run_dir=tmp_path / folder, **more)
        return {name: array.tobytes() for name, array in read_weights(run.last_weights).arrays.items()}

    uninterrupted = train("whole", 16)
    train("parts", 7)
    assert train("parts", 16, resume=True) == uninterrupted


def test_a_checkpoint_without_an_average_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "made.h5"
    states = {"w": np.zeros(3), "solver/w/average": np.zeros(2)}
    roles = {"w": "parameter", "solver/w/average": "slot"}
    for other in ("solver/w/average", "nothing"):
        write_checkpoint(path, states, roles, {"step": 1}, "", evaluated={"w": other})
        with pytest.raises(InputError, match="no state like `w` stands for it"):
            read_weights(path)

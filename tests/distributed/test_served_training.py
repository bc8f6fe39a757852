"""Trainings with parameter servers: their results, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.distributed.parameter_server.protocol import request_record
from netspec.exchange.formats.native.hdf5 import read_checkpoint
from tests.distributed.conftest import trainings
from tests.distributed.once import once
from tests.distributed.test_training import LATE, NORMALIZED, assert_close, folder, log, training, weights

pytestmark = pytest.mark.exhaustive

__all__ = ["folder"]

SOLVER = {"type": "SGD", "learning_rate": 0.1, "global_clipnorm": 0.5, "ema": 0.9,
          "momentum": {"type": "CyclicLR", "initial": 0.9, "peak": 0.7, "step_size_up": 7}}  # fmt: skip
"""A solver for which processes need values of others: no server has the norm of all gradients, no worker has the
averaged weights that are evaluated, and workers send the momentum."""
LOOP: dict[str, Any] = {"accumulate": 3, "loss_scale": 1024.0}
PLAIN = {"type": "SGD", "learning_rate": 0.1}


def served(**fields: Any) -> dict[str, Any]:
    return {"strategy": "parameter_server", **fields}


@pytest.fixture
def trained(folder: Path, jobs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all trainings on four ranks, once; return their folder."""
    return once(tmp_path_factory, "served", lambda runs: train_all(folder, jobs, runs))[0]


def train_all(folder: Path, jobs: Any, runs: Path) -> None:
    two: dict[str, Any] = {"solver": SOLVER, "parallel": served(servers=2)}
    uninterrupted = training(folder, **two, train=LOOP)
    specs: dict[str, dict[str, Any]] = {
        "two": uninterrupted,
        "halves": training(folder, **two, train={**LOOP, "max_steps": LATE}),
        "late": training(folder, NORMALIZED, parallel=served(backup_workers=1)),
        "downpour": training(folder, solver=PLAIN, parallel=served(mode="asynchronous", fetch_every=3, push_every=2)),
        "stale": training(folder, NORMALIZED, solver=PLAIN, parallel=served(mode="stale_synchronous", staleness=2)),
        "damaged": training(folder, data="damaged_", parallel=served()),
    }
    listed: list[dict[str, Any]] = [{"spec": spec, "run_dir": str(runs / name)} for name, spec in specs.items()]
    listed.append({"spec": uninterrupted, "run_dir": str(runs / "halves"), "resume": True})
    half = str(runs / "two" / "checkpoints" / f"step-{LATE:08}.h5")
    reduced = training(folder, solver=SOLVER, train={**LOOP, "checkpoint_every": 6})
    listed.append({"spec": reduced, "run_dir": str(runs / "reduced"), "resume": half})
    half = str(runs / "reduced" / "checkpoints" / f"step-{LATE + 12:08}.h5")
    listed.append({"spec": {**uninterrupted, "parallel": served()}, "run_dir": str(runs / "served"), "resume": half})
    assert trainings(jobs, 4, listed, runs) == {}


def test_two_servers_and_two_workers_reach_the_result_of_one(trained: Path, folder: Path, tmp_path: Path) -> None:
    netspec.train(training(folder, solver=SOLVER, train=LOOP), run_dir=tmp_path / "alone")
    expected = weights(tmp_path / "alone")
    # In one run; resumed; resumed by another strategy; and from that, by servers again.
    for name in ("two", "halves", "reduced", "served"):
        assert_close(weights(trained / name), expected, 1e-11)
    losses, expected_last = (
        [line["loss"] for line in log(folder, "log")] for folder in (trained / "two", tmp_path / "alone")
    )
    np.testing.assert_allclose(losses, expected_last, rtol=1e-11)
    actual, expected_last = (log(folder, "done")[0]["test"] for folder in (trained / "two", tmp_path / "alone"))
    assert actual["loss"] == pytest.approx(expected_last["loss"], rel=1e-11)
    assert actual["metrics"] == expected_last["metrics"]
    for name, array in weights(trained / "two").items():
        assert np.array_equal(array, weights(trained / "halves")[name]), name
    reported, expected = (
        log(trained / name, "log")[-1] for name in ("halves", "two")
    )  # the mean loss of steps 31 to 40
    assert (reported["step"], reported["loss"]) == (expected["step"], expected["loss"])


def test_a_checkpoint_contains_full_arrays_under_plain_names(trained: Path, tmp_path: Path, folder: Path) -> None:
    netspec.train(training(folder, solver=SOLVER, train={"max_steps": 1}), run_dir=tmp_path / "alone")
    (checkpoint,) = (tmp_path / "alone" / "checkpoints").iterdir()
    expected, actual = (
        read_checkpoint(checkpoint),
        read_checkpoint(trained / "two" / "checkpoints" / "step-00000040.h5"),
    )
    assert {name: array.shape for name, array in actual.states.items()} == {
        name: array.shape for name, array in expected.states.items()
    }
    assert (actual.roles, actual.evaluated) == (expected.roles, expected.evaluated)
    assert any(name.endswith("/average") for name in actual.states)


@pytest.mark.parametrize("name", ["late", "downpour", "stale", "damaged"])
def test_every_mode_learns(name: str, trained: Path) -> None:
    first, *_, last = log(trained / name, "log")
    assert last["step"] == 40
    assert last["loss"] < 0.6 * first["loss"]
    (last_event,) = log(trained / name, "done")
    assert last_event["test"]["metrics"]["accuracy"] > 0.8
    assert last_event["test"]["samples"] == (54 if name == "damaged" else 57)
    assert all(np.isfinite(array).all() for array in weights(trained / name).values())
    assert ("late_gradients" in last_event) == (name == "late")
    (start,) = log(trained / name, "start")
    assert (start["workers"], start["servers"], start["split"]) == (4, 1, [10, 11, 11])


def test_bytes_match_the_expectation(trained: Path) -> None:
    for name, scheduled, push, fetch in (("two", 2, 1, 1), ("downpour", 1, 2, 3)):
        message = request_record(scheduled).nbytes  # with each push and each fetch
        (last_event,) = log(trained / name, "done")
        count = sum(array.size for array in weights(trained / name).values())
        sent = 40 // push * (8 * count + message) + 40 // fetch * message
        assert last_event["bytes_per_step"] == dict.fromkeys(("expected", "measured"), round(sent / 40))

"""Trainings on several real workers: same results as one worker, resumed runs, uneven batches, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.exchange.formats.native.hdf5 import read_weights
from tests.distributed.conftest import trainings
from tests.distributed.once import once

pytestmark = pytest.mark.slow
THREE = pytest.param(3, marks=pytest.mark.exhaustive)
"""A job of three workers, which differs from the others only in the uneven shares."""

SAMPLES = 225
"""Number of samples of the training set: the last batch of 32 has a single sample, so most workers have none of it."""

SMOOTH: dict[str, Any] = {
    "netspec": 1,
    "name": "smooth",
    "inputs": {"x": {"shape": [6]}, "label": {"shape": [], "dtype": "int32"}},
    "layers": [
        {"name": "fc1", "type": "Dense", "units": 16, "activation": "tanh"},
        {"name": "drop", "type": "Dropout", "rate": 0.2},
        {"name": "logits", "type": "Dense", "units": 3, "kernel_regularizer": {"type": "L2", "l2": 1e-3}},
    ],
    "losses": [{"type": "SparseCategoricalCrossentropy", "from": ["logits", "label"], "from_logits": True}],
    "metrics": [{"type": "SparseCategoricalAccuracy", "name": "accuracy", "from": ["logits", "label"]}],
}
"""A net that does not amplify roundings: it has no ReLU, whose input could be positive in one order of summation and
negative in another."""
NORMALIZED = {**SMOOTH, "layers": [{"name": "norm", "type": "BatchNormalization", "momentum": None}, *SMOOTH["layers"]]}
EXACT = {"strategy": "all_reduce", "deterministic": True}
TOGETHER = {
    **SMOOTH,
    "layers": [
        {
            "name": "norm", "type": "BatchNormalization", "synchronized": True, "momentum": 0.9,
            "unbiased_moving_variance": True,
        },
        *SMOOTH["layers"],
    ],
}  # fmt: skip
FACTORS = {"strategy": "sufficient_factors", "layers": "all"}
SERVED = {"strategy": "parameter_server", "servers": 1}
CUT = {
    **SMOOTH,
    "layers": [
        {"name": "fc1", "type": "Dense", "units": 12, "activation": "tanh"},
        {"name": "drop", "type": "Dropout", "rate": 0.2},
        {"name": "fc2", "type": "Dense", "units": 18, "activation": "tanh"},
        {"name": "drop2", "type": "Dropout", "rate": 0.2},
        {
            "name": "fc3", "type": "Dense", "units": 12, "use_bias": False,
            "kernel_regularizer": {"type": "L2", "l2": 1e-3},
        },
        {"name": "norm", "type": "BatchNormalization", "synchronized": True, "momentum": None},
        {"name": "logits", "type": "Dense", "units": 3},
    ],
}  # fmt: skip
"""A net for `MODEL`: columns after columns, rows after columns, and rows after rows."""
MODEL = {"strategy": "model", "layers": {"fc1": "columns", "fc2": "columns", "fc3": "rows", "logits": "rows"}}
LATE = 24
"""The step of the checkpoint that runs are resumed from."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "points", make_points)[0]


def make_points(result: Path) -> None:
    random = np.random.default_rng(0)
    centers = random.normal(size=(3, 6)) * 2
    for name, count in (("train", SAMPLES), ("test", 57)):
        label = random.integers(0, 3, count).astype(np.int32)
        x = (centers[label] + random.normal(size=(count, 6))).astype(np.float32)
        np.savez(result / f"{name}.npz", x=x, label=label)
        x[[3, 40, 41]] = np.nan
        np.savez(result / f"damaged_{name}.npz", x=x, label=label)


def training(folder: Path, net: dict[str, Any] = SMOOTH, data: str = "", **spec: Any) -> dict[str, Any]:
    splits = {
        name: {
            "source": "npz", "path": str(folder / f"{data}{name}.npz"), "batch_size": size, "shuffle": name == "train",
            "on_error": "skip" if data == "damaged_" else "error",
        }
        for name, size in (("train", 32), ("test", 25))
    }  # fmt: skip
    loop = {
        "max_steps": 40, "log_every": 10, "test_every": 20, "checkpoint_every": LATE, "seed": 3, "precision": "float64",
    }  # fmt: skip
    return {
        "netspec": 1, "net": net, "data": splits, "solver": {"type": "Adam", "learning_rate": 0.01},
        "train": {**loop, **spec.pop("train", {})}, **spec,
    }  # fmt: skip


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    """Trainings by name."""
    plain = {"type": "SGD", "learning_rate": 0.1}
    return {
        "adam": training(folder),
        "buckets": training(folder, parallel={"strategy": "all_reduce", "bucket": 100, "first_bucket": 20}),
        "accumulate": training(folder, train={"accumulate": 3}),
        "scaled": training(folder, train={"loss_scale": "dynamic", "precision": "float32"}),
        "rarely": training(folder, NORMALIZED, parallel={"strategy": "local_sgd", "every": 5}),
        "exact": training(folder, NORMALIZED, parallel=EXACT, train={"precision": "float32"}),
        "exactly": training(folder, NORMALIZED, parallel={**EXACT, "shards": 5}, train={"accumulate": 3}),
        "normalized": training(folder, NORMALIZED),
        "together": training(folder, TOGETHER),
        "served": training(folder, solver={**plain, "momentum": 0.9, "global_clipnorm": 0.5}, parallel=SERVED),
        "factors": training(folder, TOGETHER, parallel=FACTORS, train={"loss_scale": 1024.0}),
        "factored": training(folder, parallel=FACTORS, train={"accumulate": 3, "loss_scale": "dynamic"}),
        "model": training(
            folder,
            CUT,
            parallel=MODEL,
            solver={"type": "Adam", "learning_rate": 0.01, "global_clipnorm": 0.5, "ema": {"decay": 0.9}},
        ),
        "modelled": training(folder, CUT, parallel=MODEL, train={"accumulate": 3, "loss_scale": "dynamic"}),
        "damaged": training(folder, data="damaged_"),
    }


REACH = "adam", "buckets", "accumulate", "scaled", "together", "factors", "factored", "served", "model", "modelled"
REACH_ON_THREE = "buckets", "together", "factored", "served", "modelled"
"""One training of each strategy; the others run the same code for an uneven split of a batch."""
BITS = "exact", "exactly"
RESUMED = "adam", "normalized", "accumulate", "rarely", "model"
RESUMED_BY_OTHERS = "adam", "model"


def device_of(name: str, workers: int = 1) -> str:
    """Return the device of a training: compiling kernels takes seconds, so two workers do that for one net only."""
    return "auto" if name == "model" or (workers == 3 and name not in BITS) else "reference"


def meetings(folder: Path) -> dict[str, dict[str, Any]]:
    """Return trainings whose workers reduce gradients, or average weights after every step.

    Both leave out incomplete batches, and all workers have equal shares.
    """
    spec = training(folder, solver={"type": "SGD", "learning_rate": 0.1}, train={"max_steps": 20})
    spec["data"]["train"] |= {"limit": 180, "batch_size": 30}
    return {"added": spec, "averaged": {**spec, "parallel": {"strategy": "local_sgd", "every": 1}}}


def rank_problems(folder: Path) -> dict[str, dict[str, Any]]:
    """Return trainings that fail on two workers because of their specs."""
    small = training(folder)
    small["data"]["train"]["batch_size"] = 1
    apart = training(folder, TOGETHER, parallel={"strategy": "local_sgd"})
    uninterrupted = training(folder, solver={"type": "LBFGS"}, train={"accumulate": 8, "checkpoint_every": 1})
    return {"small": small, "whole": uninterrupted, "apart": apart}


def diverging(folder: Path) -> dict[str, Any]:
    """A training that fails in its steps, while sums of several kinds are under way."""
    plain, parallel = {"type": "SGD", "learning_rate": 1e38}, {"strategy": "all_reduce", "reduce_in": "bfloat16"}
    return training(folder, solver=plain, train={"precision": "float32"}, parallel={**parallel, "first_bucket": 20})


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, dict[str, str]]]:
    """Return a function that runs all trainings on N workers in one job, once.

    It returns their folder, and the errors of those that failed.
    """
    base_specs = cases(folder)

    def run(workers: int, jobs: Any) -> tuple[Path, dict[str, str]]:
        return once(tmp_path_factory, f"trained_on_{workers}", lambda runs: make(workers, jobs, runs))

    def make(workers: int, jobs: Any, runs: Path) -> dict[str, str]:
        of: Path = runs
        resumed: tuple[str, ...] = ()
        match workers:
            case 2:
                specs = {**base_specs, **meetings(folder), **rank_problems(folder)}
                del specs["damaged"]
                resumed = RESUMED
            case 3:
                specs = {name: base_specs[name] for name in (*REACH_ON_THREE, *BITS, "damaged")} | meetings(folder)
                of, resumed = run(2, jobs)[0], RESUMED_BY_OTHERS
            case _:
                specs = {name: base_specs[name] for name in BITS}
        if workers == 2:  # runs first: messages that it leaves unfinished must not disturb the others
            specs = {"huge": diverging(folder), **specs}
        listed: list[dict[str, Any]] = [
            {"spec": spec, "run_dir": str(runs / name), "device": device_of(name, workers)}
            for name, spec in specs.items()
        ]
        listed += (
            {
                "spec": base_specs[name],
                "run_dir": str(runs / "again" / name),
                "resume": True,
                "of": str(of / name),
                "device": device_of(name, workers),
            }
            for name in resumed
        )
        return trainings(jobs, workers, listed, runs)

    return run


def weights(run: Path) -> dict[str, Any]:
    return read_weights(run / "weights.h5").arrays


def log(run: Path, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def assert_close(actual: dict[str, Any], expected: dict[str, Any], relative: float) -> None:
    """Compare with a tolerance relative to the largest element of each array, since sums are in another order."""
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=relative * np.abs(array).max(), err_msg=name)


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Run the training on one worker."""

    def make(name: str, result: Path) -> None:
        netspec.train(cases(folder)[name], run_dir=result / "run", device=device_of(name))

    def run(name: str) -> Path:
        return once(tmp_path_factory, f"alone_{name}", partial(make, name))[0] / "run"

    return run


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        *((name, 2) for name in REACH),
        *(pytest.param(name, 3, marks=pytest.mark.exhaustive) for name in REACH_ON_THREE),
    ],
)
def test_several_workers_reach_the_result_of_one(name: str, workers: int, trained, alone, jobs) -> None:
    runs, errors = trained(workers, jobs)
    assert name not in errors
    # 40 steps in float64 (ε 1e-16) or float32 (6e-8); errors grow by a small factor per epoch
    assert_close(weights(runs / name), weights(alone(name)), 1e-4 if name == "scaled" else 1e-11)
    (last,), (expected_last,) = log(runs / name, "done"), log(alone(name), "done")
    assert last["test"]["samples"] == expected_last["test"]["samples"] == 57
    assert last["test"]["metrics"] == expected_last["test"]["metrics"]
    assert last["test"]["loss"] == pytest.approx(expected_last["test"]["loss"], rel=1e-4 if name == "scaled" else 1e-11)
    losses, expected = ([line["loss"] for line in log(folder, "log")] for folder in (runs / name, alone(name)))
    np.testing.assert_allclose(losses, expected, rtol=1e-4 if name == "scaled" else 1e-11)


@pytest.mark.parametrize("workers", [2, THREE])
def test_averaging_every_sgd_step_equals_the_mean_gradient(workers: int, trained, jobs) -> None:
    runs, _ = trained(workers, jobs)
    assert_close(weights(runs / "averaged"), weights(runs / "added"), 1e-12)


@pytest.mark.parametrize("workers", [2, THREE, pytest.param(4, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", BITS)
def test_deterministic_training_is_bit_identical_on_any_worker_count(
    name: str, workers: int, trained, alone, jobs
) -> None:
    run = trained(workers, jobs)[0] / name
    expected = weights(alone(name))
    assert "norm/moving_mean" in expected
    for state, array in weights(run).items():
        assert np.array_equal(array, expected[state]), state
    assert log(run, "done")[0]["test"] == log(alone(name), "done")[0]["test"]


def test_workers_that_rarely_synchronize_learn(trained, jobs) -> None:
    runs, _ = trained(2, jobs)
    first, *_, last = log(runs / "rarely", "log")
    assert last["loss"] < 0.6 * first["loss"]
    assert log(runs / "rarely", "done")[0]["test"]["metrics"]["accuracy"] > 0.8


@pytest.mark.parametrize("name", RESUMED)
def test_resume_on_equal_worker_count_is_bit_identical(name: str, trained, jobs) -> None:
    runs, errors = trained(2, jobs)
    assert name not in errors
    resumed = runs / "again" / name
    reported, expected = ([(line["step"], line["loss"]) for line in log(run, "log")] for run in (resumed, runs / name))
    assert [step for step, _ in reported][-2:] == [30, 40]
    assert reported[-2:] == expected[-2:]
    for state, array in weights(runs / name).items():
        assert np.array_equal(weights(resumed)[state], array), state


@pytest.mark.parametrize("name", RESUMED_BY_OTHERS)
@pytest.mark.exhaustive
def test_resume_on_more_workers(name: str, trained, alone, jobs) -> None:
    runs, errors = trained(3, jobs)
    assert name not in errors
    assert_close(weights(runs / "again" / name), weights(alone(name)), 1e-11)


@pytest.mark.parametrize("name", RESUMED_BY_OTHERS)
def test_resume_on_one_worker(name: str, folder: Path, tmp_path: Path, trained, alone, jobs) -> None:
    runs, _ = trained(2, jobs)
    checkpoint = runs / name / "checkpoints" / f"step-{LATE:08}.h5"
    netspec.train(cases(folder)[name], run_dir=tmp_path / name, resume=checkpoint)
    assert_close(weights(tmp_path / name), weights(alone(name)), 1e-11)


@pytest.mark.exhaustive
def test_damaged_samples_are_counted_over_all_workers(trained, jobs) -> None:
    runs, errors = trained(3, jobs)
    assert "damaged" not in errors
    events = log(runs / "damaged", "skipped")
    assert [event["samples"] for event in events if event["split"] == "train"] == [3], (
        "each damaged sample counts once, not in every epoch"
    )
    assert all(np.isfinite(array).all() for array in weights(runs / "damaged").values())
    assert log(runs / "damaged", "done")[0]["test"]["samples"] == 54


def test_non_finite_loss_is_reported_with_its_worker(trained, jobs) -> None:
    runs, errors = trained(2, jobs)
    assert "the loss is not finite at step 2: first in loss `sparse_categorical_crossentropy`" in errors["huge"]
    assert "(worker 0)" in errors["huge"]
    assert "repeats this step of worker 0" in errors["huge"]
    (capsule,) = (runs / "huge").glob("capsule-*.h5")
    assert capsule.name == "capsule-00000002-worker-0.h5"
    replay = netspec.replay(capsule)
    assert replay.identical
    assert "at step 2: first in loss `sparse_categorical_crossentropy`" in replay.message


@pytest.mark.exhaustive
def test_the_log_reports_how_a_batch_is_split(trained, jobs) -> None:
    runs, _ = trained(3, jobs)
    (start,) = log(runs / "buckets", "start")
    assert (start["workers"], start["split"]) == (3, [10, 11, 11])
    assert start["parallel"]["bucket"] == 100
    assert "batch 32 = 10 + 11 + 11 on 3 workers" in (runs / "buckets" / "log.txt").read_text()


def test_worker_problems_are_reported(trained, jobs) -> None:
    _, errors = trained(2, jobs)
    assert "a batch has fewer samples than there are workers" in errors["small"]
    assert "data.train.batch_size" in errors["small"]
    assert "LBFGS trains on one worker" in errors["whole"]
    assert "layer `norm` cannot be synchronized: the workers do not compute a batch at the same time" in errors["apart"]

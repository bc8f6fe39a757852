"""Trainings on several real workers: what one worker finds, resumed runs, uneven batches, what goes wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.exchange.hdf5 import read_weights

SAMPLES = 225
"""Of the training set: in batches of 32 the last one has a single sample, and most workers none of it."""

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
"""Nothing in it amplifies a rounding: no ReLU that is passed on one side by one sum and on the other by another."""
NORMALIZED = {**SMOOTH, "layers": [{"name": "norm", "type": "BatchNormalization"}, *SMOOTH["layers"]]}
EXACT = {"strategy": "all_reduce", "deterministic": True}
TOGETHER = {
    **SMOOTH,
    "layers": [
        {"name": "norm", "type": "BatchNormalization", "synchronized": True, "momentum": 0.9},
        *SMOOTH["layers"],
    ],
}
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
        {"name": "norm", "type": "BatchNormalization", "synchronized": True, "momentum": 0.9},
        {"name": "logits", "type": "Dense", "units": 3},
    ],
}  # fmt: skip
"""Columns to columns, columns to rows, rows by themselves."""
MODEL = {"strategy": "model", "layers": {"fc1": "columns", "fc2": "columns", "fc3": "rows", "logits": "rows"}}
LATE = 24
"""The step of the checkpoint that runs are resumed from."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("points")
    random = np.random.default_rng(0)
    centers = random.normal(size=(3, 6)) * 2
    for name, count in (("train", SAMPLES), ("test", 57)):
        label = random.integers(0, 3, count).astype(np.int32)
        x = (centers[label] + random.normal(size=(count, 6))).astype(np.float32)
        np.savez(made / f"{name}.npz", x=x, label=label)
        x[[3, 40, 41]] = np.nan
        np.savez(made / f"damaged_{name}.npz", x=x, label=label)
    return made


def training(folder: Path, net: dict[str, Any] = SMOOTH, data: str = "", **given: Any) -> dict[str, Any]:
    splits = {
        name: {
            "source": "npz", "path": str(folder / f"{data}{name}.npz"), "batch_size": size, "shuffle": name == "train",
            "on_error": "skip" if data == "damaged_" else "error",
        }
        for name, size in (("train", 32), ("test", 25))
    }  # fmt: skip
    loop = {"max_steps": 40, "log_every": 10, "checkpoint_every": LATE, "seed": 3, "precision": "float64"}
    return {
        "netspec": 1, "net": net, "data": splits, "solver": {"type": "Adam", "learning_rate": 0.01},
        "train": {**loop, **given.pop("train", {})}, **given,
    }  # fmt: skip


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    """Trainings by name."""
    plain = {"type": "SGD", "learning_rate": 0.1}
    return {
        "adam": training(folder),
        "buckets": training(folder, parallel={"strategy": "all_reduce", "bucket": 100, "first_bucket": 20}),
        "accumulate": training(folder, train={"accumulate": 3}),
        "scaled": training(folder, train={"loss_scale": "dynamic", "precision": "float32"}),
        "local": training(folder, solver=plain, parallel={"strategy": "local_sgd", "every": 1}),
        "rarely": training(folder, NORMALIZED, parallel={"strategy": "local_sgd", "every": 5}),
        "exact": training(folder, NORMALIZED, parallel=EXACT, train={"precision": "float32"}),
        "exactly": training(folder, NORMALIZED, parallel={**EXACT, "shards": 5}, train={"accumulate": 3}),
        "normalized": training(folder, NORMALIZED),
        "together": training(folder, TOGETHER),
        "served": training(folder, solver={**plain, "momentum": 0.9, "global_clipnorm": 0.5}, parallel=SERVED),
        "factors": training(folder, TOGETHER, parallel=FACTORS, train={"loss_scale": 1024.0}),
        "model": training(
            folder,
            CUT,
            parallel=MODEL,
            solver={"type": "Adam", "learning_rate": 0.01, "global_clipnorm": 0.5, "ema": {"decay": 0.9}},
        ),
        "modelled": training(folder, CUT, parallel=MODEL, train={"accumulate": 3, "loss_scale": "dynamic"}),
        "damaged": training(folder, data="damaged_"),
        "huge": training(folder, solver={**plain, "learning_rate": 1e38}, train={"precision": "float32"}),
    }


Trainer = Callable[[int], Path]


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, dict[str, str]]]:
    """Runs all trainings on so many workers, once: where, and the errors of those that failed."""
    done: dict[int, tuple[Path, dict[str, str]]] = {}

    def run(workers: int, jobs: Any) -> tuple[Path, dict[str, str]]:
        if workers not in done:
            runs = tmp_path_factory.mktemp(f"on{workers}")
            listed = [{"spec": spec, "run_dir": str(runs / name)} for name, spec in cases(folder).items()]
            done[workers] = runs, trainings(jobs, workers, listed, runs)
        return done[workers]

    return run


def trainings(jobs: Any, workers: int, listed: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    """The errors of those that failed, by name."""
    told = folder / "list.json"
    told.write_text(json.dumps(listed))
    job = jobs(workers, "trainings.py", str(told), by="mpiexec")
    assert job.end() == 0, job.err
    lines = [json.loads(line) for line in job.out.splitlines()]
    return {Path(line["run"]).name: line["error"] for line in lines}


def weights(run: Path) -> dict[str, Any]:
    return read_weights(run / "weights.h5").arrays


def log(run: Path, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def assert_close(found: dict[str, Any], expected: dict[str, Any], relative: float) -> None:
    """Errors are those of sums in another order: measured against the largest number of each array."""
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=relative * np.abs(array).max(), err_msg=name)


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The same training on one worker."""
    runs = tmp_path_factory.mktemp("alone")

    def run(name: str) -> Path:
        if not (runs / name).exists():
            netspec.train(cases(folder)[name], run_dir=runs / name)
        return runs / name

    return run


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize(
    "name", ["adam", "buckets", "accumulate", "scaled", "together", "factors", "served", "model", "modelled"]
)
def test_several_workers_reach_what_one_reaches(name: str, workers: int, trained, alone, jobs) -> None:
    runs, errors = trained(workers, jobs)
    assert name not in errors
    # 40 steps of float64 (ε 1e-16) and of float32 (6e-8) whose errors grow by a few times each epoch
    assert_close(weights(runs / name), weights(alone(name)), 1e-4 if name == "scaled" else 1e-11)
    (last,), (there,) = log(runs / name, "done"), log(alone(name), "done")
    assert last["test"]["samples"] == there["test"]["samples"] == 57
    assert last["test"]["metrics"] == there["test"]["metrics"]
    assert last["test"]["loss"] == pytest.approx(there["test"]["loss"], rel=1e-4 if name == "scaled" else 1e-11)
    losses, expected = ([line["loss"] for line in log(one, "log")] for one in (runs / name, alone(name)))
    np.testing.assert_allclose(losses, expected, rtol=1e-4 if name == "scaled" else 1e-11)


@pytest.mark.parametrize("workers", [2, 3])
def test_averaging_after_every_plain_step_is_following_the_mean_gradient(
    workers: int, folder: Path, tmp_path: Path, jobs
) -> None:
    """But for the last batch of an epoch, which is left out here, and for shares of one size."""
    spec = training(folder, solver={"type": "SGD", "learning_rate": 0.1}, train={"max_steps": 20})
    spec["data"]["train"] |= {"limit": 180, "batch_size": 30}
    together = {**spec, "parallel": {"strategy": "local_sgd", "every": 1}}
    listed = [{"spec": one, "run_dir": str(tmp_path / str(n))} for n, one in enumerate((spec, together))]
    assert trainings(jobs, workers, listed, tmp_path) == {}
    assert_close(weights(tmp_path / "1"), weights(tmp_path / "0"), 1e-12)


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("name", ["exact", "exactly"])
def test_deterministic_trainings_find_the_same_bits_on_any_number_of_workers(
    name: str, workers: int, folder: Path, tmp_path: Path, trained, alone, jobs
) -> None:
    if workers == 4:
        assert trainings(jobs, 4, [{"spec": cases(folder)[name], "run_dir": str(tmp_path / name)}], tmp_path) == {}
    run = tmp_path / name if workers == 4 else trained(workers, jobs)[0] / name
    expected = weights(alone(name))
    assert "norm/moving_mean" in expected
    for state, array in weights(run).items():
        assert np.array_equal(array, expected[state]), state
    assert log(run, "done")[0]["test"] == log(alone(name), "done")[0]["test"]


def test_workers_that_rarely_meet_learn(trained, jobs) -> None:
    runs, _ = trained(2, jobs)
    first, *_, last = log(runs / "rarely", "log")
    assert last["loss"] < 0.6 * first["loss"]
    assert log(runs / "rarely", "done")[0]["test"]["metrics"]["accuracy"] > 0.8


@pytest.mark.parametrize("name", ["adam", "normalized", "accumulate", "rarely", "model"])
def test_resumed_on_as_many_workers_it_reaches_the_same_bits(name: str, folder, tmp_path, trained, jobs) -> None:
    runs, _ = trained(2, jobs)
    again = tmp_path / name
    shutil.copytree(runs / name, again)
    (again / "weights.h5").unlink()
    (again / "checkpoints" / "step-00000040.h5").unlink()
    listed = [{"spec": cases(folder)[name], "run_dir": str(again), "resume": True}]
    assert trainings(jobs, 2, listed, tmp_path) == {}
    assert [line["step"] for line in log(again, "log")][-2:] == [30, 40]
    for state, array in weights(runs / name).items():
        assert np.array_equal(weights(again)[state], array), state


@pytest.mark.parametrize("workers", [1, 3])
def test_resumed_on_another_number_of_workers_it_goes_on(
    workers: int, folder: Path, tmp_path: Path, trained, alone, jobs
) -> None:
    runs, _ = trained(2, jobs)
    listed: list[dict[str, Any]] = []
    for name in ("adam", "model"):
        again = tmp_path / name
        shutil.copytree(runs / name, again)
        (again / "weights.h5").unlink()
        (again / "checkpoints" / "step-00000040.h5").unlink()
        listed.append({"spec": cases(folder)[name], "run_dir": str(again), "resume": True})
    if workers == 1:
        for one in listed:
            netspec.train(one.pop("spec"), **one)
    else:
        assert trainings(jobs, workers, listed, tmp_path) == {}
    for name in ("adam", "model"):
        assert_close(weights(tmp_path / name), weights(alone(name)), 1e-11)


def test_damaged_samples_are_counted_over_all_workers(trained, jobs) -> None:
    runs, errors = trained(3, jobs)
    assert "damaged" not in errors
    told = log(runs / "damaged", "skipped")
    assert [one["samples"] for one in told if one["split"] == "train"] == [3] * 5
    assert all(np.isfinite(array).all() for array in weights(runs / "damaged").values())
    assert log(runs / "damaged", "done")[0]["test"]["samples"] == 54


def test_a_loss_that_is_not_finite_is_told_with_the_worker_that_found_it(trained, jobs) -> None:
    _, errors = trained(2, jobs)
    assert "the loss is not finite at step 2: first in layer `sparse_categorical_crossentropy`" in errors["huge"]
    assert "(worker 0)" in errors["huge"]


def test_the_log_says_how_a_batch_is_split(trained, jobs) -> None:
    runs, _ = trained(3, jobs)
    (start,) = log(runs / "buckets", "start")
    assert (start["workers"], start["split"]) == (3, [10, 11, 11])
    assert start["parallel"]["bucket"] == 100
    assert "batch 32 = 10 + 11 + 11 on 3 workers" in (runs / "buckets" / "log.txt").read_text()


def test_what_does_not_fit_the_workers_is_told(folder: Path, tmp_path: Path, jobs) -> None:
    small = training(folder)
    small["data"]["train"]["batch_size"] = 1
    apart = training(folder, TOGETHER, parallel={"strategy": "local_sgd"})
    whole = training(folder, solver={"type": "LBFGS"}, train={"accumulate": 8, "checkpoint_every": 1})
    listed = [{"spec": one, "run_dir": str(tmp_path / str(n))} for n, one in enumerate((small, whole, apart))]
    errors = trainings(jobs, 2, listed, tmp_path)
    assert "a batch has fewer samples than there are workers" in errors["0"]
    assert "data.train.batch_size" in errors["0"]
    assert "LBFGS trains on one worker" in errors["1"]
    assert "layer `norm` is synchronized, and the workers do not compute a batch at the same time" in errors["2"]

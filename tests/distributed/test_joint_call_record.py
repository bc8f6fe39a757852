"""A gradient that is not finite on two workers: the worker that is named, its capsule, and the replay of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.compile import Compiler, ProgramKind
from netspec.distributed import joint_call_record
from netspec.distributed.joint_call_record import JointCallRecord, calls_between_copies
from netspec.exchange.formats.native.hdf5 import read_capsule, read_checkpoint
from netspec.schema.load import load_train
from netspec.solvers.base import SolverSpec
from netspec.training.compiler import open_training_loader
from netspec.training.diagnostics.call_record import ProgramCall
from netspec.training.stepper import Stepper, run_steps, scheduled_rates
from tests.distributed.conftest import trainings
from tests.training.test_capsule import BAD_SAMPLE, NET


@pytest.fixture
def training(tmp_path: Path) -> dict[str, Any]:
    """A training without shuffling; in its third batch, the second half has a gradient that is not finite."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(64, 4)).astype(np.float32), random.normal(size=(64, 1)).astype(np.float32)
    x[BAD_SAMPLE] = 0
    np.savez(tmp_path / "roots.npz", x=x, y=y)
    return {
        "netspec": 1, "net": copy.deepcopy(NET),
        "data": {"train": {"source": "npz", "path": str(tmp_path / "roots.npz"), "batch_size": 8}},
        "solver": {"type": "SGD", "learning_rate": 0.01, "momentum": 0.9}, "train": {"max_steps": 6, "seed": 3},
    }  # fmt: skip


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_is_reported_with_its_worker(
    training: dict[str, Any], tmp_path: Path, jobs: Callable[..., Any]
) -> None:
    errors = trainings(jobs, 2, [{"spec": training, "run_dir": str(tmp_path / "run")}], tmp_path)
    first = "first in the gradient of layer `root` (Expression) (worker 1)"
    assert f"the gradient of `fc1/kernel` is not finite at step 3: {first}" in errors["run"]
    assert "repeats this step of worker 1" in errors["run"]
    assert "division by 0" in errors["run"]
    (capsule,) = (tmp_path / "run").glob("capsule-*.h5")
    assert capsule.name == "capsule-00000003-worker-1.h5"
    replay = netspec.replay(capsule)
    assert replay.identical
    assert BAD_SAMPLE in replay.samples
    assert len(replay.samples) == 4
    assert replay.bad is not None
    assert (replay.bad.node.op.name, replay.bad.scope.layer, replay.bad.scope.phase) == ("Div", "root", "backward")
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert checkpoint.name == "step-00000002.h5"
    assert all(np.isfinite(array).all() for array in read_checkpoint(checkpoint).states.values())


JOINT: dict[str, dict[str, Any]] = {
    "fixed": {"strategy": "all_reduce", "deterministic": True},
    "sharded": {"strategy": "sharded_optimizer"},
    "split": {"strategy": "model", "layers": {"fc1": "columns"}},
    "first_stage": {"strategy": "pipeline", "micro_batches": 2, "cuts": ["drop"]},
    "second_stage": {"strategy": "pipeline", "micro_batches": 2, "cuts": ["root"]},
}
"""Strategies whose workers compute each step together."""
SERVER = {"strategy": "parameter_server", "servers": 1}


def with_fault(training: dict[str, Any], fault: str, strategy: dict[str, Any], accumulate: int = 1) -> dict[str, Any]:
    """Return a training whose third batch has a loss or a gradient that is not finite."""
    changed = copy.deepcopy(training) | {"parallel": strategy}
    changed["train"]["accumulate"] = accumulate
    if fault == "loss":
        changed["net"]["layers"][1]["expr"] = "log(x * x)"
    return changed


def check_capsule(run: Path, error: str, step: int, *, loss: bool) -> None:
    """Check the message, the checkpoint, and that the only capsule is replayed with the same bits."""
    tensor = "the loss" if loss else "the gradient of `fc1/kernel`"
    assert f"{tensor} is not finite at step {step}: first in" in error
    (path,) = run.glob("capsule-*.h5")
    assert f"replay {path}` repeats this step" in error
    replay = netspec.replay(path)
    assert replay.identical
    assert not replay.differences
    assert replay.step == step
    assert BAD_SAMPLE in replay.samples
    assert replay.bad is not None
    assert (replay.bad.node.op.name, replay.bad.scope.layer) == ("Log" if loss else "Div", "root")
    for checkpoint in (run / "checkpoints").iterdir():
        assert all(np.isfinite(array).all() for array in read_checkpoint(checkpoint).states.values())


@pytest.mark.slow
def test_workers_that_compute_steps_together_write_a_capsule(
    training: dict[str, Any], tmp_path: Path, jobs: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    runs = {
        f"{name}-{fault}-{accumulate}": (with_fault(training, fault, strategy, accumulate), 4 - accumulate)
        for name, strategy in {**JOINT, "reduce": {"strategy": "all_reduce"}}.items()
        for fault in ("loss", "gradient") for accumulate in (1, 2) if accumulate == 1 or "stage" not in name
    }  # fmt: skip
    listed = [
        {"spec": spec, "run_dir": str(tmp_path / name), "device": "reference"} for name, (spec, _) in runs.items()
    ]
    errors = trainings(jobs, 2, listed, tmp_path)
    for name, (_, step) in runs.items():
        check_capsule(tmp_path / name, errors[name], step, loss="loss" in name)
        assert (tmp_path / name / f"checkpoints/step-{step - 1:08}.h5").is_file()
    capsule = read_capsule(tmp_path / "second_stage-gradient-1" / "capsule-00000003.h5")
    alone = read_capsule(tmp_path / "sharded-gradient-1" / "capsule-00000003-worker-1.h5")
    for name in ("fc1/kernel", "out/kernel", "out/bias"):
        assert np.allclose(capsule.states[name], alone.states[name], atol=1e-5), "the parameters of all stages"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "accumulate"),
    [
        pytest.param(
            strategy, accumulate, marks=pytest.mark.exhaustive if accumulate != usual else (), id=f"{name}-{accumulate}"
        )
        for name, usual, strategy in (
            ("local_sgd", 1, {"strategy": "local_sgd", "every": 3}),
            ("elastic_averaging", 2, {"strategy": "elastic_averaging", "every": 2}),
            ("synchronous_server", 2, SERVER),
            ("asynchronous_server", 1, {**SERVER, "mode": "asynchronous", "push_every": 2, "fetch_every": 2}),
        )
        for accumulate in (1, 2)
    ],
)
def test_workers_with_steps_of_their_own_write_a_capsule(
    training: dict[str, Any], tmp_path: Path, jobs: Any, monkeypatch: pytest.MonkeyPatch,
    strategy: dict[str, Any], accumulate: int,
) -> None:  # fmt: skip
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    spec = with_fault(training, "gradient", strategy, accumulate)
    (tmp_path / "train.yaml").write_text(json.dumps(spec))
    run = tmp_path / "run"
    job = jobs.train(tmp_path / "train.yaml", "--run-dir", run, "--device", "reference", "--workers", 2)
    assert job.end() == 1
    check_capsule(run, job.err, 4 - accumulate, loss=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "ranks", "accumulate", "sample"),
    [
        ({"strategy": "local_sgd", "every": 4}, 2, 1, 17), ({"strategy": "elastic_averaging", "every": 4}, 2, 1, 17),
        ({"strategy": "parameter_server", "servers": 1}, 3, 1, BAD_SAMPLE),
        ({"strategy": "parameter_server", "servers": 1}, 3, 2, 29), ({"strategy": "all_reduce"}, 2, 2, 29),
    ],
    ids=["local_sgd", "elastic_averaging", "server", "server_accumulate", "all_reduce_accumulate"],
)  # fmt: skip
def test_a_resumed_run_continues_after_a_batch_that_is_not_finite(
    training: dict[str, Any], tmp_path: Path, jobs: Any, strategy: dict[str, Any], ranks: int, accumulate: int,
    sample: int,
) -> None:  # fmt: skip
    """The bad sample is one of worker 0, or of worker 1 and of the second batch of a step."""
    arrays = dict(np.load(tmp_path / "roots.npz"))
    arrays["x"][[BAD_SAMPLE, sample]] = arrays["x"][[sample, BAD_SAMPLE]]
    np.savez(tmp_path / "roots.npz", **arrays)
    spec = with_fault(training, "loss", strategy, accumulate)
    spec["train"]["max_steps"] = 6 // accumulate  # within the first epoch
    (tmp_path / "train.yaml").write_text(json.dumps(spec))
    options = ["--run-dir", tmp_path / "run", "--device", "reference", "--workers", ranks]
    job = jobs.train(tmp_path / "train.yaml", *options)
    assert job.end() == 1
    assert job.err.count(" error: the loss is not finite") == 1
    resumed = jobs.train(tmp_path / "train.yaml", *options, "--resume")
    assert resumed.end() == 0, resumed.err


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["local_sgd", "elastic_averaging"])
def test_a_worker_that_fails_alone_ends_the_job_with_a_checkpoint(
    training: dict[str, Any], tmp_path: Path, jobs: Any, strategy: str
) -> None:
    training["data"]["train"]["limit"] = 16  # without the bad sample
    training["parallel"] = {"strategy": strategy, "every": 4}
    (tmp_path / "train.yaml").write_text(json.dumps(training))
    run = tmp_path / "run"
    job = jobs(2, "failing_callback.py", str(tmp_path / "train.yaml"), str(run))
    assert job.end() == 1
    assert job.err.startswith("rank 1 (")
    assert "error: the callback `FailingCallback` failed in `on_step_end`" in job.err
    assert "got: ValueError: the service does not answer" in job.err
    assert job.err.count("error:") == 1
    assert f"to continue: netspec train {run / 'spec.yaml'} --resume --workers 2" in job.err
    assert [*(run / "checkpoints").iterdir()]
    resumed = jobs.train(tmp_path / "train.yaml", "--run-dir", run, "--workers", 2, "--resume", "--device", "reference")
    assert resumed.end() == 0, resumed.err


@pytest.mark.slow
def test_workers_with_weights_in_shared_memory_say_why_there_is_no_capsule(
    training: dict[str, Any], tmp_path: Path, jobs: Any
) -> None:
    (tmp_path / "train.yaml").write_text(json.dumps(with_fault(training, "gradient", {"strategy": "hogwild"})))
    run = tmp_path / "run"
    job = jobs.train(tmp_path / "train.yaml", "--run-dir", run, "--device", "reference", "--workers", 2)
    assert job.end() == 1
    assert "no capsule of this step was written: workers of `hogwild` change each other's weights" in job.err
    assert not [*run.glob("checkpoints/*")], "these weights are of no use"


@pytest.mark.slow
def test_an_update_that_overflows_says_why_there_is_no_capsule(
    training: dict[str, Any], tmp_path: Path, jobs: Callable[..., Any]
) -> None:
    training["solver"] = {"type": "SGD", "learning_rate": 1e38}
    training["data"]["train"]["path"] = str(tmp_path / "large.npz")
    random = np.random.default_rng(0)
    x, y = random.normal(size=(64, 4)).astype(np.float32), np.full((64, 1), 1e3, np.float32)
    np.savez(tmp_path / "large.npz", x=x, y=y)
    errors = trainings(jobs, 2, [{"spec": training, "run_dir": str(tmp_path / "run")}], tmp_path)
    assert "is not finite after the update of step 1" in errors["run"]
    assert "one process can't repeat an update by the gradients of several workers" in errors["run"]
    assert not [*(tmp_path / "run").glob("capsule-*")]


def test_copies_are_made_after_the_same_number_of_calls(
    training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_call_record, "CALLS_PER_COPY", 2)
    spec = load_train(training)
    assert isinstance(spec.solver, SolverSpec)
    compiler = Compiler(spec.net, solver=spec.solver, device="reference")
    group: Any = SimpleNamespace(size=2, host_size=2, all_gather_objects=lambda value: [value, value])
    with open_training_loader(spec, compiler) as loader:
        stepper = Stepper(spec, compiler, loader)
        stepper.calls = record = JointCallRecord(compiler, group)
        recorded = []
        for _, loss in islice(run_steps(stepper, loader, scheduled_rates(spec, 3)), 3):
            loss()
            recorded.append([call.step for call in record._calls])
    assert recorded == [[0], [0, 1], [2]]


def test_large_batches_are_copied_more_often() -> None:
    inputs = {"x": np.zeros((10, 2**20), np.uint8), "rng": np.zeros(3, np.int64)}
    call = ProgramCall(ProgramKind.TRAIN, 10, None, 32, inputs, 0)
    assert calls_between_copies(call, 3) == 64 // 11
    assert calls_between_copies(ProgramCall(ProgramKind.TRAIN, 10, None, 32, {}, 0), 3) == 50

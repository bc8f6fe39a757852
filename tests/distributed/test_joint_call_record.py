"""A gradient that is not finite on two workers: the reported worker, its capsule, and the replay."""

from __future__ import annotations

import copy
import json
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
from tests.distributed.once import once
from tests.training.test_capsule import BAD_SAMPLE, NET


def make_training(folder: Path) -> dict[str, Any]:
    """Return a training without shuffling; the second half of its third batch has a gradient that is not finite."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(64, 4)).astype(np.float32), random.normal(size=(64, 1)).astype(np.float32)
    x[BAD_SAMPLE] = 0
    np.savez(folder / "roots.npz", x=x, y=y)
    return {
        "netspec": 1, "net": copy.deepcopy(NET),
        "data": {"train": {"source": "npz", "path": str(folder / "roots.npz"), "batch_size": 8}},
        "solver": {"type": "SGD", "learning_rate": 0.01, "momentum": 0.9}, "train": {"max_steps": 6, "seed": 3},
    }  # fmt: skip


@pytest.fixture
def training(tmp_path: Path) -> dict[str, Any]:
    return make_training(tmp_path)


LOCAL = {"strategy": "local_sgd", "every": 4}
ELASTIC = {"strategy": "elastic_averaging", "every": 4}
SERVER = {"strategy": "parameter_server", "servers": 1}
JOINT: dict[str, dict[str, Any]] = {
    "fixed": {"strategy": "all_reduce", "deterministic": True},
    "sharded": {"strategy": "sharded_optimizer"},
    "split": {"strategy": "model", "layers": {"fc1": "columns"}},
    "first_stage": {"strategy": "pipeline", "micro_batches": 2, "cuts": ["drop"]},
    "second_stage": {"strategy": "pipeline", "micro_batches": 2, "cuts": ["root"]},
    "reduce": {"strategy": "all_reduce"},
}
"""Strategies whose workers compute each step together."""
TOGETHER = [
    (name, fault, accumulate)
    for name in JOINT for fault in ("loss", "gradient") for accumulate in (1, 2)
    if accumulate == 1 or "stage" not in name
]  # fmt: skip
APART = {"local_sgd": {**LOCAL, "every": 3}, "elastic_averaging": {**ELASTIC, "every": 2}}
"""Strategies whose workers have steps of their own."""
RESUMED: dict[str, tuple[dict[str, Any], int, int]] = {
    "local_sgd": (LOCAL, 1, 17), "elastic_averaging": (ELASTIC, 1, 17), "all_reduce": (JOINT["reduce"], 2, 29),
}  # fmt: skip
"""Strategy, batches of a step, and the bad sample: one of worker 0, or of worker 1 in the second batch of a step."""

CALLBACK = {"local_sgd-callback": LOCAL, "elastic_averaging-callback": ELASTIC}


def with_fault(
    training: dict[str, Any], fault: str, strategy: dict[str, Any], accumulate: int = 1, sample: int = BAD_SAMPLE
) -> dict[str, Any]:
    """Return a training with a sample whose loss or gradient is not finite; it ends within the first epoch."""
    changed = copy.deepcopy(training) | {"parallel": strategy}
    changed["train"] |= {"accumulate": accumulate, "max_steps": 6 // accumulate}
    if fault == "loss":
        changed["net"]["layers"][1]["expr"] = "log(x * x)"
    if sample != BAD_SAMPLE:
        data = changed["data"]["train"]
        arrays = dict(np.load(data["path"]))
        arrays["x"][[BAD_SAMPLE, sample]] = arrays["x"][[sample, BAD_SAMPLE]]
        data["path"] = data["path"].replace("roots", f"bad_{sample}")
        np.savez(data["path"], **arrays)
    return changed


def overflowing(training: dict[str, Any]) -> dict[str, Any]:
    """Return a training whose first update makes the parameters infinite."""
    changed = copy.deepcopy(training) | {"solver": {"type": "SGD", "learning_rate": 1e38}}
    data = changed["data"]["train"]
    arrays = dict(np.load(data["path"]))
    arrays["x"][BAD_SAMPLE], arrays["y"][:] = 1, 1e3
    data["path"] = data["path"].replace("roots", "large")
    np.savez(data["path"], **arrays)
    return changed


def listed_trainings(folder: Path) -> list[dict[str, Any]]:
    """Return all trainings on two workers, each of which fails, and those that resume some of them."""
    training = make_training(folder)
    specs = {
        f"{name}-{fault}-{accumulate}": with_fault(training, fault, JOINT[name], accumulate)
        for name, fault, accumulate in TOGETHER
    }
    specs |= {
        f"{name}-apart-{accumulate}": with_fault(training, "gradient", strategy, accumulate)
        for name, strategy in APART.items() for accumulate in (1, 2)
    }  # fmt: skip
    specs |= {f"{name}-resumed": with_fault(training, "loss", *case) for name, case in RESUMED.items()}
    specs |= {"hogwild": with_fault(training, "gradient", {"strategy": "hogwild"}), "overflow": overflowing(training)}
    listed: list[dict[str, Any]] = [{"spec": spec, "run_dir": str(folder / name)} for name, spec in specs.items()]
    good = copy.deepcopy(training)
    good["data"]["train"]["limit"] = 16  # without the bad sample
    listed += (
        {"spec": good | {"parallel": strategy}, "run_dir": str(folder / name), "fails": {"rank": 1, "step": 3}}
        for name, strategy in CALLBACK.items()
    )
    for name in (*(f"{name}-resumed" for name in RESUMED), *CALLBACK):
        listed.append({"spec": str(folder / name / "spec.yaml"), "run_dir": str(folder / name), "resume": True})
    return listed


@pytest.fixture
def failed(jobs: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Run all trainings on two workers in one job, once; return their folder, and the errors by training."""

    def make(folder: Path) -> dict[str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("OMP_NUM_THREADS", raising=False)
            return trainings(jobs, 2, listed_trainings(folder), folder)

    return once(tmp_path_factory, "not_finite_on_two", make)


def check_resumed(run: Path, steps: int) -> None:
    """Check that the run continued after its first step, and ended successfully with all steps."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    first, *resumed = (event["step"] for event in events if event["event"] == "start")
    assert first == 0 < min(resumed)
    assert [event["steps"] for event in events if event["event"] == "done"] == [steps]


def check_capsule(run: Path, error: str, step: int, *, loss: bool, sample: int = BAD_SAMPLE) -> None:
    """Check the message, the checkpoint, and that the only capsule is replayed with the same bits."""
    tensor = "the loss" if loss else "the gradient of `fc1/kernel`"
    assert f"{tensor} is not finite at step {step}: first in" in error
    (path,) = run.glob("capsule-*.h5")
    assert f"replay {path}` repeats this step" in error
    replay = netspec.replay(path)
    assert replay.identical
    assert not replay.differences
    assert replay.step == step
    assert sample in replay.samples
    assert replay.bad is not None
    assert (replay.bad.node.op.name, replay.bad.scope.layer) == ("Log" if loss else "Div", "root")
    for checkpoint in (run / "checkpoints").iterdir():
        assert all(np.isfinite(array).all() for array in read_checkpoint(checkpoint).states.values())


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_is_reported_with_its_worker(failed: tuple[Path, dict[str, str]]) -> None:
    run, error = failed[0] / "reduce-gradient-1", failed[1]["reduce-gradient-1"]
    first = "first in the gradient of layer `root` (Expression) (worker 1)"
    assert f"the gradient of `fc1/kernel` is not finite at step 3: {first}" in error
    assert "repeats this step of worker 1" in error
    assert "the derivative of a square root is infinite at 0" in error
    (capsule,) = run.glob("capsule-*.h5")
    assert capsule.name == "capsule-00000003-worker-1.h5"
    replay = netspec.replay(capsule)
    assert len(replay.samples) == 4
    assert replay.bad is not None
    assert replay.bad.scope.phase == "backward"
    (checkpoint,) = (run / "checkpoints").iterdir()
    assert checkpoint.name == "step-00000002.h5"


@pytest.mark.slow
def test_workers_that_compute_steps_together_write_a_capsule(failed: tuple[Path, dict[str, str]]) -> None:
    folder, errors = failed
    for name, fault, accumulate in TOGETHER:
        run = f"{name}-{fault}-{accumulate}"
        step = 4 - accumulate
        check_capsule(folder / run, errors[run], step, loss=fault == "loss")
        assert (folder / run / f"checkpoints/step-{step - 1:08}.h5").is_file()
    capsule = read_capsule(folder / "second_stage-gradient-1" / "capsule-00000003.h5")
    alone = read_capsule(folder / "sharded-gradient-1" / "capsule-00000003-worker-1.h5")
    for name in ("fc1/kernel", "out/kernel", "out/bias"):
        assert np.allclose(capsule.states[name], alone.states[name], atol=1e-5), "the parameters of all stages"


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name", APART)
def test_workers_with_steps_of_their_own_write_a_capsule(
    failed: tuple[Path, dict[str, str]], name: str, accumulate: int
) -> None:
    folder, errors = failed
    run = f"{name}-apart-{accumulate}"
    check_capsule(folder / run, errors[run], 4 - accumulate, loss=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_continues_after_a_batch_that_is_not_finite(
    failed: tuple[Path, dict[str, str]], name: str
) -> None:
    folder, errors = failed
    _, accumulate, sample = RESUMED[name]
    step = sample // 8 // accumulate + 1
    check_capsule(folder / f"{name}-resumed", errors[f"{name}-resumed"], step, loss=True, sample=sample)
    check_resumed(folder / f"{name}-resumed", 6 // accumulate)


@pytest.mark.slow
@pytest.mark.parametrize(("accumulate", "sample"), [(2, 29), pytest.param(1, BAD_SAMPLE, marks=pytest.mark.exhaustive)])
def test_a_run_with_a_server_writes_a_capsule_and_continues_when_resumed(
    training: dict[str, Any], tmp_path: Path, jobs: Any, accumulate: int, sample: int
) -> None:
    """One of two workers fails."""
    spec = with_fault(training, "loss", SERVER, accumulate, sample)
    (tmp_path / "train.yaml").write_text(json.dumps(spec))
    run = tmp_path / "run"
    job = jobs.train(tmp_path / "train.yaml", "--run-dir", run, "--device", "reference", "--workers", 3)
    assert job.end() == 1
    assert job.err.count(" error: the loss is not finite") == 1
    check_capsule(run, job.err, sample // 8 // accumulate + 1, loss=True, sample=sample)
    listed = [{"spec": str(run / "spec.yaml"), "run_dir": str(run), "resume": True}]
    assert trainings(jobs, 3, listed, tmp_path) == {}
    check_resumed(run, 6 // accumulate)


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_a_worker_of_an_asynchronous_server_writes_a_capsule(
    training: dict[str, Any], tmp_path: Path, jobs: Any, accumulate: int
) -> None:
    strategy = {**SERVER, "mode": "asynchronous", "push_every": 2, "fetch_every": 2}
    (tmp_path / "train.yaml").write_text(json.dumps(with_fault(training, "gradient", strategy, accumulate)))
    run = tmp_path / "run"
    job = jobs.train(tmp_path / "train.yaml", "--run-dir", run, "--device", "reference", "--workers", 2)
    assert job.end() == 1
    check_capsule(run, job.err, 4 - accumulate, loss=False)


@pytest.mark.slow
def test_a_worker_that_fails_alone_ends_the_job_with_a_checkpoint(
    training: dict[str, Any], tmp_path: Path, jobs: Any
) -> None:
    training["data"]["train"]["limit"] = 16  # without the bad sample
    training["parallel"] = LOCAL
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


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLBACK)
def test_a_run_resumes_after_one_worker_has_failed(failed: tuple[Path, dict[str, str]], name: str) -> None:
    folder, errors = failed
    assert "the callback `FailAt` failed in `on_step_end`" in errors[name]
    check_resumed(folder / name, 6)


@pytest.mark.slow
def test_workers_with_weights_in_shared_memory_say_why_there_is_no_capsule(
    failed: tuple[Path, dict[str, str]],
) -> None:
    folder, errors = failed
    message = "no capsule of this step was written: workers of `hogwild` change each other's weights"
    assert message in errors["hogwild"]
    assert not [*(folder / "hogwild").glob("checkpoints/*")], "these weights are of no use"


@pytest.mark.slow
def test_an_update_that_overflows_says_why_there_is_no_capsule(failed: tuple[Path, dict[str, str]]) -> None:
    folder, errors = failed
    assert "is not finite after the update of step 1" in errors["overflow"]
    assert "one process can't repeat an update by the gradients of several workers" in errors["overflow"]
    assert not [*(folder / "overflow").glob("capsule-*")]


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

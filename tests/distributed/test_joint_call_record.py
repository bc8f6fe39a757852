"""A gradient that is not finite on two workers: the worker that is named, its capsule, and the replay of it."""

from __future__ import annotations

import copy
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
from netspec.exchange.formats.native.hdf5 import read_checkpoint
from netspec.schema.load import load_train
from netspec.solvers.base import SolverSpec
from netspec.training.call_record import ProgramCall
from netspec.training.compiler import open_training_loader
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

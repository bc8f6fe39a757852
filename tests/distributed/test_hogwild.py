"""Hogwild: workers that write to shared memory without locks."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.backends.device_registry import NullDevice
from netspec.backends.states import States
from netspec.distributed import Communicator
from netspec.distributed.communicators.shared_memory import check_space
from netspec.distributed.session import WorkerSession
from netspec.distributed.strategies.base import Strategy
from netspec.distributed.worker_checks import check_workers
from netspec.distributed.world import acting_as
from netspec.errors import InputError, RunError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from netspec.graph.types import DType, TensorType
from netspec.schema.load import load_train
from netspec.training.compiler import training_compiler
from tests.distributed.conftest import trainings
from tests.distributed.test_training import log
from tests.distributed.test_training_jobs import until, workers_of
from tests.training.conftest import points, spec

pytestmark = pytest.mark.slow

__all__ = ["points", "spec"]

HOGWILD = {"strategy": "hogwild", "every": 7}
STRAIGHT: dict[str, Any] = {
    "netspec": 1,
    "inputs": {"x": {"shape": [4]}, "y": {"shape": [1]}},
    "layers": [{"name": "sum", "type": "Dense", "units": 1}],
    "losses": [{"type": "MeanAbsoluteError", "from": ["sum", "y"]}],
}
"""A net whose gradient is the mean of x for any weights, if the targets are far below all outputs."""


def straight(folder: Path, **spec: Any) -> dict[str, Any]:
    random = np.random.default_rng(2)
    np.savez(folder / "far.npz", x=random.random((181, 4), np.float32), y=np.full((181, 1), -1e6, np.float32))
    return {
        "netspec": 1, "net": STRAIGHT,
        "data": {"train": {"source": "npz", "path": str(folder / "far.npz"), "batch_size": 30, "shuffle": True}},
        "solver": {"type": "SGD", "learning_rate": 0.5, "momentum": 0.9},
        "train": {"max_steps": 21, "log_every": 5, "checkpoint_every": 0, "precision": "float64"}, **spec,
    }  # fmt: skip


def test_workers_write_to_the_same_weights(jobs, spec, tmp_path: Path) -> None:
    learns = spec()
    learns["train"] |= {"max_steps": 60, "test_every": 10, "checkpoint_every": 10, "keep_checkpoints": 6}
    learns["parallel"] = HOGWILD
    runs = {
        "straight": straight(tmp_path, parallel=HOGWILD),
        "parts": straight(tmp_path, parallel=HOGWILD) | {"train": {"max_steps": 20, "accumulate": 2}},
        "learns": learns,
        "unfit": learns | {"solver": {"type": "ScheduleFreeAdamW"}},
    }
    listed = [{"spec": run, "run_dir": str(tmp_path / name)} for name, run in runs.items()]
    errors = trainings(jobs, 3, listed, tmp_path)
    assert list(errors) == ["unfit"]
    assert "ScheduleFreeAdamW computes the weights from other states" in errors["unfit"]

    # All updates together lead to the same weights as one worker, in any order: 60 updates at a third of the rate, of
    # which a race may lose one or two. In the last step of an epoch, which has one sample, two workers have none.
    single = netspec.train(
        straight(tmp_path, train={**runs["straight"]["train"], "max_steps": 20}), run_dir=tmp_path / "a"
    )
    end, start = read_weights(single.weights).arrays, training_compiler(load_train(runs["straight"]), "cpu").states
    actual = read_weights(tmp_path / "straight" / "weights.h5").arrays
    for name, array in end.items():
        np.testing.assert_allclose(actual[name] - start[name], array - start[name], rtol=0.1)
    assert np.isfinite(read_weights(tmp_path / "parts" / "weights.h5").arrays["sum/kernel"]).all()

    first, *_, last = log(tmp_path / "learns", "log")
    assert last["loss"] < 0.5 * first["loss"]
    (last_event,), (note, *_) = log(tmp_path / "learns", "done"), log(tmp_path / "learns", "note")
    assert last_event["bytes_per_step"] == dict.fromkeys(
        ("expected", "measured"), pytest.approx(2 * 8 * 2 / 3 / 7, abs=0.6)
    )
    assert note["message"] == (
        "hogwild: each of 3 workers updates the weights with 1/3 of the learning rate; "
        "training is not reproducible: each run computes different weights"
    )
    # No worker writes during a checkpoint and an evaluation, so both have the same weights.
    best = read_weights(tmp_path / "learns" / "best.h5")
    saved = read_checkpoint(tmp_path / "learns" / "checkpoints" / f"step-{best.meta['step']:08}.h5")
    assert not saved.own
    for name, array in best.arrays.items():
        assert np.array_equal(saved.states[name], array), name


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found by /proc")
@pytest.mark.exhaustive
def test_training_resumes_after_a_worker_was_killed(jobs, spec, tmp_path: Path) -> None:
    train_spec = spec() | {"parallel": HOGWILD}
    train_spec["train"] |= {"max_steps": 2000, "checkpoint_every": 50, "log_every": 50}
    path, run = tmp_path / "spec.json", tmp_path / "run"
    path.write_text(json.dumps(train_spec))
    job = jobs.train(path, "--workers", 2, "--run-dir", run, "--json")
    saved = until(job, "checkpoint")["step"]
    job.pids = workers_of(job)
    os.kill(job.pids[1], signal.SIGKILL)
    assert job.end() == 1
    assert f"(pid {job.pids[1]}) was ended by SIGKILL" in job.err
    resumed = jobs.train(run / "spec.yaml", "--workers", 3, "--resume", "--json")
    step = until(resumed, "start")["step"]
    assert saved <= step < 2000
    until(resumed, "log")
    resumed.process.send_signal(signal.SIGINT)
    assert resumed.end() == 130, resumed.err
    last = json.loads(resumed.out.splitlines()[-1])
    assert (last["event"], last["step"] % 7) == ("interrupted", 0)
    single = netspec.train(run / "spec.yaml", resume=True, train={"max_steps": last["step"] + 3})
    assert single.steps == last["step"] + 3


def test_workers_on_several_hosts_are_reported(spec) -> None:
    train_spec = load_train(spec() | {"parallel": HOGWILD})
    check_workers(train_spec, 4)
    with pytest.raises(InputError, match="the workers of hogwild share memory, so they must be on one host"):
        check_workers(train_spec, 4, one_host=False)


class Two(Communicator):
    """Worker 0 of two on one host, which keeps the shared memory."""

    size = host_size = 2

    def share_memory(self, nbytes: int) -> Any:
        """Return memory of this process."""
        self.memory = super().share_memory(nbytes)
        return self.memory


def test_only_parameters_are_shared(spec) -> None:
    train_spec = load_train(spec() | {"parallel": HOGWILD, "solver": {"type": "Adam"}})
    strategy = train_spec.parallel
    assert isinstance(strategy, Strategy)
    with acting_as(Two()) as group:
        assert isinstance(group, Two)
        compiler = training_compiler(train_spec, "reference", WorkerSession(group, strategy))
    inside = {n for n in compiler.info if np.shares_memory(compiler.states.array(n), group.memory)}
    assert inside == set(compiler.names("parameter"))
    assert compiler.states.nbytes == training_compiler(train_spec, "reference").states.nbytes


def test_device_without_shared_memory_reports_it(monkeypatch) -> None:
    kinds = {"w": TensorType((3,), DType.FLOAT32)}
    assert States(kinds, NullDevice(), ["w"]).nbytes == 64
    monkeypatch.delattr(NullDevice, "share")
    with pytest.raises(InputError, match="workers can't share the memory of the device `null`"):
        States(kinds, NullDevice(), ["w"])


def test_too_little_shared_memory_is_reported(tmp_path: Path) -> None:
    check_space(1, tmp_path)
    check_space(1 << 62, tmp_path / "missing")
    with pytest.raises(RunError, match="there is not enough shared memory"):
        check_space(1 << 62, tmp_path)

"""Trainings with stages on several workers: same results as one worker; killed, stopped and resumed in any stage."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.exchange.formats.native.hdf5 import read_weights
from tests.distributed.conftest import trainings
from tests.distributed.test_training_jobs import PLAIN, spec, until, weights, workers_of

pytestmark = pytest.mark.slow

__all__ = ["spec"]  # re-exports the fixture

STAGES = """\
stages:
  - {name: head, max_steps: 20, freeze: hidden, learning_rate: 0.05}
  - {max_steps: 500, learning_rate_multipliers: {hidden: 0.1}}
"""
WAYS: dict[str, dict[str, Any]] = {
    "deterministic": {"strategy": "all_reduce", "deterministic": True, "shards": 3},
    "servers": {"strategy": "parameter_server"},
}


@pytest.fixture
def staged(spec: Path) -> dict[str, Path]:
    """A training file with stages for each of `WAYS`, by name."""
    evaluation = f"  test: {{source: npz, path: {spec.parent / 'blobs.npz'}, batch_size: 20}}\n"
    data = f"data:\n  train: {{source: npz, path: {spec.parent / 'blobs.npz'}, batch_size: 6, shuffle: true}}\n"
    text = "".join(line for line in spec.read_text().splitlines(keepends=True) if not line.startswith("data:"))
    paths = {}
    for name, parallel in WAYS.items():
        paths[name] = spec.parent / f"{name}.yaml"
        paths[name].write_text(f"{text}{data}{evaluation}{STAGES}parallel: {json.dumps(parallel)}\n")
    return paths


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [event for event in logged if event["event"] == kind]


def test_workers_train_the_stages_of_one_worker(jobs, staged: dict[str, Path], tmp_path: Path) -> None:
    """A deterministic training has the same weights on any number of workers."""
    path, changes = staged["deterministic"], {"stages.1.max_steps": 30, "train.log_every": 5}
    job = jobs.train(
        path, *(f"{name}={value}" for name, value in changes.items()), "--run-dir", tmp_path / "two", "--workers", 2
    )
    assert job.end() == 0, job.err
    one = netspec.train(path, **{"run_dir": tmp_path / "one", **changes})
    for name in ("weights.h5", "best.h5", "stage-1/weights.h5"):
        actual, expected = (read_weights(tmp_path / run / name).arrays for run in ("two", "one"))
        assert actual.keys() == expected.keys()
        assert all(np.array_equal(actual[key], expected[key]) for key in expected)
    frozen = netspec.load(path, seed=3).parameters["hidden/kernel"]
    assert np.array_equal(read_weights(tmp_path / "two/stage-1/weights.h5").arrays["hidden/kernel"], frozen)
    steps, losses = zip(*((event["step"], event["loss"]) for event in events(tmp_path / "two", "log")), strict=True)
    assert steps == (1, *range(5, 21, 5), 21, *range(25, 51, 5))
    assert losses == pytest.approx([event["loss"] for event in one.history if event["event"] == "log"], rel=1e-5)
    (done,) = events(tmp_path / "two", "done")
    assert (done["steps"], done["run_dir"]) == (50, str(tmp_path / "two"))


@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found by /proc")
def test_runs_killed_in_a_later_stage_resume_to_the_same_weights(jobs, staged: dict[str, Path], tmp_path: Path) -> None:
    listed = [{"spec": str(path), "run_dir": str(tmp_path / name / "whole")} for name, path in staged.items()]
    assert trainings(jobs, 2, listed, tmp_path) == {}
    for name, path in staged.items():
        killed = tmp_path / name / "killed"
        job = jobs.train(path, "--workers", 2, "--run-dir", killed, "--json", *PLAIN)
        while until(job, "checkpoint")["stage"] != 2:
            pass
        job.pids = workers_of(job)
        os.kill(job.pids[1], signal.SIGKILL)
        assert job.end() == 1
        assert f"netspec train {killed / 'spec.yaml'} --resume --workers 2\n" in job.err  # not the spec of the stage
        assert json.loads(job.out.splitlines()[-1])["event"] == "error"
    resumed = [
        {"spec": str(tmp_path / name / "killed" / "spec.yaml"), "run_dir": str(tmp_path / name / "killed"),
         "resume": True}
        for name in staged
    ]  # fmt: skip
    assert trainings(jobs, 2, resumed, tmp_path) == {}
    for name in staged:
        assert weights(tmp_path / name / "killed") == weights(tmp_path / name / "whole"), name
        starts = [event["stage"] for event in events(tmp_path / name / "killed", "start")]
        assert starts == [1, 2, 2]  # a finished stage is not repeated


def test_a_stop_in_the_last_step_of_a_stage_reaches_all_workers(jobs, staged: dict[str, Path], tmp_path: Path) -> None:
    """One worker is asked to stop when the others have finished the vote of the step."""
    path, run_dir = staged["deterministic"], tmp_path / "run"
    arguments = {"spec": str(path), "run_dir": str(run_dir), "stages.1.max_steps": 10, "device": "reference"}
    message = tmp_path / "list.json"
    message.write_text(json.dumps([{**arguments, "stops": {"rank": 1, "step": 20}}, {**arguments, "resume": True}]))
    job = jobs(2, "trainings.py", str(message), by="mpiexec")
    assert job.end() == 0, job.err
    assert json.loads(job.out) == {"run": str(run_dir), "stopped": 20, "reason": "the test"}
    assert [event["stage"] for event in events(run_dir, "start")] == [1, 2], "the stop came before the second stage"
    assert events(run_dir, "done")[0]["steps"] == 30


def test_a_run_that_cannot_begin_leaves_nothing(jobs, staged: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "blobs.npz").unlink()
    job = jobs.train(staged["servers"], "--workers", 2, "--run-dir", tmp_path / "runs" / "run", *PLAIN)
    assert job.end() == 2
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", [pytest.param("deterministic", marks=pytest.mark.exhaustive), "servers"])
def test_all_workers_refuse_changed_settings_of_a_finished_stage(
    jobs, staged: dict[str, Path], tmp_path: Path, name: str
) -> None:
    listed = [{"spec": str(staged[name]), "run_dir": str(tmp_path / "run"), "stages.1.max_steps": 10}]
    assert trainings(jobs, 2, listed, tmp_path) == {}
    spec = tmp_path / "run" / "spec.yaml"
    before = spec.read_text()
    job = jobs.train(spec, "train.test_every=7", "--resume", "--workers", 2, *PLAIN)
    assert job.end() == 2
    assert job.err.count("stage 1 has ended, so its settings cannot change: train.test_every") == 1, job.err
    assert "rank" not in job.err
    assert spec.read_text() == before

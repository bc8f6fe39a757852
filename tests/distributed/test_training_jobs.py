"""`netspec train --workers`: trainings that finish, are killed, stopped, resumed; and errors before the start."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import netspec
from netspec.cli import main
from netspec.distributed.launcher.mpi_discovery import Mpiexec, how_to_install
from netspec.errors import install_command
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from tests.distributed.conftest import ROOT, Job, trainings

pytestmark = pytest.mark.slow

NET = """\
netspec: 1
inputs: {features: {shape: [3]}, label: {shape: [], dtype: int32}}
layers: [{name: hidden, type: Dense, units: 8, activation: relu}, {name: logits, type: Dense, units: 2}]
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""
TRAIN = """\
netspec: 1
net: net.yaml
data: {train: {source: npz, path: blobs.npz, batch_size: 6, shuffle: true}}
solver: {type: SGD, learning_rate: 0.01, momentum: 0.9}
train: {max_steps: 500, checkpoint_every: 50, log_every: 50, seed: 3}
"""


PLAIN = "--device", "reference"
"""Options of trainings whose subject is not the kernels: compiling them takes seconds."""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    noise = np.random.default_rng(0)
    labels = noise.integers(0, 2, 50).astype(np.int32)
    features = (noise.normal(size=(50, 3)) + labels[:, None]).astype(np.float32)
    np.savez(tmp_path / "blobs.npz", features=features, label=labels)
    (tmp_path / "net.yaml").write_text(NET)
    (tmp_path / "train.yaml").write_text(TRAIN)
    return tmp_path / "train.yaml"


def until(job: Job, event: str) -> dict:
    """Return the next event of this type that the training prints."""
    while (line := job.line()) and json.loads(line)["event"] != event:
        pass
    assert line, job.process.communicate()[1]
    data: dict = json.loads(line)
    return data


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process."""
    below = [int(part) for part in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*below, *(descendant for child in below for descendant in descendants(child))]


def workers_of(job: Job, count: int = 2) -> list[int]:
    """Return the workers that a command has started, without their reader processes."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in descendants(job.process.pid)}
    data = [pid for pid, command in commands.items() if b"netspec" in command and b"_server.py" not in command]
    data = [pid for pid in data if "PMI_RANK=" in Path(f"/proc/{pid}/environ").read_text()]
    assert len(data) == count
    return data


def weights(folder: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in read_weights(folder / "weights.h5").arrays.items()}


WAYS: tuple[dict[str, Any], ...] = (
    {"strategy": "all_reduce"},
    {"strategy": "sufficient_factors", "layers": "all"},
    {"strategy": "model", "layers": {"hidden": "columns", "logits": "rows"}},
    {"strategy": "parameter_server"},
    {"strategy": "sharded_optimizer", "heartbeat": 3},
)
"""In trainings with `heartbeat` a worker is stopped, in the others one is killed."""


def test_many_trainings_use_no_more_communicators_than_one(jobs, spec: Path, tmp_path: Path) -> None:
    """MPI supports about two thousand communicators, and shared memory is not freed before the job ends."""
    strategies: tuple[dict[str, Any], ...] = ({"strategy": "parameter_server"}, {"strategy": "hogwild"})
    base_spec = yaml.safe_load(spec.read_text()) | {"net": str(spec.parent / "net.yaml"), "train": {"max_steps": 2}}
    base_spec["data"]["train"]["path"] = str(spec.parent / "blobs.npz")
    listed = [
        {"spec": base_spec | {"parallel": parallel}, "run_dir": str(tmp_path / parallel["strategy"])}
        for parallel in strategies
    ]
    (tmp_path / "list.json").write_text(json.dumps(listed))
    job = jobs(2, "many.py", str(tmp_path / "list.json"), by="mpiexec")
    assert job.end() == 0, job.err
    data = json.loads(job.out)
    assert data["made"] == ["a communicator", "memory"]
    assert data["counts"][1] == data["counts"][0]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found by /proc")
@pytest.mark.parametrize(
    "ways", [WAYS[::4], pytest.param(WAYS[1:4], marks=pytest.mark.exhaustive)], ids=["two ways", "other ways"]
)
def test_runs_with_killed_workers_resume_to_the_same_weights(
    jobs, spec: Path, tmp_path: Path, ways: Sequence[dict[str, Any]]
) -> None:
    """The uninterrupted runs share a job with the resumed ones."""
    runs = {}
    for parallel in ways:
        path = tmp_path / f"{parallel['strategy']}.yaml"
        path.write_text(f"{spec.read_text()}parallel: {json.dumps(parallel)}\n")
        runs[path] = tmp_path / parallel["strategy"]
    full = [{"spec": str(path), "run_dir": str(run / "whole")} for path, run in runs.items()]
    for path, run in runs.items():
        job = jobs.train(path, "--workers", 2, "--run-dir", run / "killed", "--device", "reference", "--json")
        saved = until(job, "checkpoint")["step"]
        assert saved < 500
        job.pids = workers_of(job)
        chosen, stops = random.choice(job.pids), "heartbeat" in path.read_text()
        os.kill(chosen, signal.SIGSTOP if stops else signal.SIGKILL)
        assert job.end() == 1
        ending = r"; .*\) has not answered for 3 s" if stops else r"\) was ended by SIGKILL"
        assert re.search(rf"pid {chosen}{ending}", job.err), job.err
        assert f"python -m netspec train {run / 'killed' / 'spec.yaml'} --resume" in job.err
        assert json.loads(job.out.splitlines()[-1])["event"] == "error"
    resumed = [
        {"spec": str(run / "killed" / "spec.yaml"), "run_dir": str(run / "killed"), "resume": True}
        for run in runs.values()
    ]
    assert trainings(jobs, 2, [*full, *resumed], tmp_path) == {}
    for run in runs.values():
        assert weights(run / "killed") == weights(run / "whole"), run


def test_server_training_is_saved_stopped_and_resumed(jobs, spec: Path, tmp_path: Path) -> None:
    """The workers do not wait for each other."""
    spec.write_text(f"{spec.read_text()}parallel: {{strategy: parameter_server, mode: asynchronous}}\n")
    changes = "train.max_steps=100000", "train.log_every=1"
    job = jobs.train(spec, "--workers", 3, "--run-dir", tmp_path / "run", "--json", *changes, *PLAIN)
    until(job, "log")
    job.process.send_signal(signal.SIGUSR1)
    while (saved := until(job, "checkpoint")["step"]) % 50 == 0:
        assert saved < 50000, "it is asked for between those that are due"
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130
    last = json.loads(job.out.splitlines()[-1])
    assert last["event"] == "interrupted"
    assert job.err.splitlines()[0] == "finishing this step, then saving; Ctrl-C again stops now"
    assert job.err.count("\n") == 2
    resumed = jobs.train(tmp_path / "run" / "spec.yaml", "--resume", "--workers", 3, "--json", *PLAIN)
    assert until(resumed, "start")["step"] == last["step"]
    until(resumed, "checkpoint")
    resumed.pids = workers_of(resumed, 3)
    server = next(pid for pid in resumed.pids if "PMI_RANK=2" in Path(f"/proc/{pid}/environ").read_text())
    os.kill(server, signal.SIGKILL)
    assert resumed.end() == 1
    assert f"(pid {server}) was ended by SIGKILL" in resumed.err
    assert f"python -m netspec train {tmp_path / 'run' / 'spec.yaml'} --resume --workers 3\n" in resumed.err


@pytest.mark.parametrize(
    "parallel",
    [
        "{strategy: all_reduce}",
        pytest.param("{strategy: parameter_server, mode: asynchronous}", marks=pytest.mark.exhaustive),
    ],
)
def test_closed_output_ends_the_job_quietly_with_a_checkpoint(jobs, spec: Path, tmp_path: Path, parallel: str) -> None:
    changes = "train.max_steps=100000000", "train.log_every=1", "train.checkpoint_every=0", f"parallel={parallel}"
    job = jobs.train(spec, "--workers", 2, "--run-dir", tmp_path / "run", "--json", *changes, *PLAIN)
    read = until(job, "log")["step"]
    job.process.stdout.close()
    assert (job.end(), job.err) == (1, "")  # as with a single worker
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert read_checkpoint(saved).progress["step"] > read


def test_interrupted_training_resumes_with_other_worker_count(jobs, spec: Path, tmp_path: Path) -> None:
    job = jobs.train(spec, "--workers", 2, "--run-dir", tmp_path / "run", "--json", *PLAIN)
    until(job, "log")
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130
    last = json.loads(job.out.splitlines()[-1])
    assert last["event"] == "interrupted"
    assert job.err.splitlines()[0] == "finishing this step, then saving; Ctrl-C again stops now"
    assert job.err.count("\n") == 2  # printed once: that line, and the command to resume
    assert job.err.endswith(f" train {tmp_path / 'run' / 'spec.yaml'} --resume --workers 2\n")
    changes = [f"train.max_steps={last['step'] + 5}"]
    resumed = jobs.train(tmp_path / "run" / "spec.yaml", "--resume", "--json", *changes, *PLAIN)
    assert until(resumed, "start")["step"] == last["step"]
    assert resumed.end() == 0, resumed.err


def test_errors_are_reported_before_workers_start(jobs, spec: Path) -> None:
    job = jobs.train(spec, "--workers", 7)
    assert job.end() == 2
    assert job.err.startswith(f"{spec}:3:58: error: a batch has fewer samples than there are workers\n")


def test_a_job_is_shown_once_with_its_hosts(jobs) -> None:
    job = jobs.start(jobs.by_mpiexec(2, ["-m", "netspec", "devices"]))
    assert job.end() == 0, job.err
    (line,) = (line for line in job.out.splitlines() if line.startswith("this job"))
    assert line.split(maxsplit=2)[2].startswith("2 workers: ranks 0, 1 on ")


def test_debug_reaches_workers(jobs, spec: Path, tmp_path: Path) -> None:
    (tmp_path / "blobs.npz").write_bytes(b"no zip")
    job = jobs.train(spec, "--workers", 2, "--debug", "--run-dir", tmp_path / "run", *PLAIN)
    assert job.end() == 2
    assert job.err.count("Traceback (most recent call last)") == 1  # all workers fail in the same way, and one reports


def test_a_launcher_and_workers_must_agree(jobs, spec: Path) -> None:
    job = jobs.train(spec, "--workers", 3, by=2)
    assert job.end() == 2
    assert job.err.startswith("error: --workers 3 contradicts the MPI launcher, which started 2 processes\n")


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch) -> None:
    """An mpi4py that cannot be imported, as if its MPI library were missing."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "mpi4py.py").write_text("raise ImportError('no library of that name')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'hidden'}{os.pathsep}{ROOT}")


@pytest.mark.parametrize("command", ["train", "time", "verify-parallel"])
def test_broken_mpi4py_is_reported_before_anything_starts(
    command: str, spec: Path, hidden: None, monkeypatch, capfd
) -> None:
    monkeypatch.setattr(
        "netspec.distributed.launcher.mpi_discovery.find_mpiexec", lambda: Mpiexec("/bin/mpiexec", "other", "")
    )
    assert main([command, str(spec), "--workers", "2"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err == (
        "error: --workers needs mpi4py, not usable here\n"
        f"  got: mpi4py: ImportError: no library of that name\n  hint: {how_to_install()}\n"
    )


def test_missing_mpi_is_reported_with_the_install_command(spec: Path, hidden: None, monkeypatch, capfd) -> None:
    monkeypatch.setattr("netspec.distributed.launcher.mpi_discovery.find_mpiexec", lambda: None)
    assert main(["train", str(spec), "--workers", "2"]) == 2
    output = capfd.readouterr().err
    assert output.startswith("error: --workers needs mpi4py and mpiexec, not usable here\n")
    assert install_command("mpi") in output


@pytest.mark.parametrize(("rank", "message"), [("0", 1), ("1", 0)])
def test_failure_to_join_is_reported_once_per_host(rank: str, message: int, spec: Path, monkeypatch, capfd) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "netspec.distributed.communicators.mpi", raising=False)
    monkeypatch.setattr("netspec.cli.workers.REPORT_SECONDS", 0)
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "2")
    monkeypatch.setenv("MPI_LOCALRANKID", rank)
    assert main(["train", str(spec), "--json"]) == 2
    out, err = capfd.readouterr()
    assert (out.count("mpi4py can't be imported"), err.count("error:")) == (message, message)


def test_time_as_one_of_a_job_that_cannot_be_joined_does_not_time_one_worker(spec: Path, hidden: None) -> None:
    command = [sys.executable, "-m", "netspec", "time", str(spec), "--steps", "1"]
    process = subprocess.run(command, env={**os.environ, "PMI_SIZE": "2"}, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert "mpi4py can't be imported" in process.stderr


BY_SERVERS = [
    "parallel={strategy: parameter_server}",
    "train.accumulate=2",
    "net.layers.0={name: hidden, type: BatchNormalization, momentum: 0.9}",
]
"""Overrides with which an aborted step has changed moving averages."""


@pytest.mark.parametrize(
    ("split", "steps", "ranks", "more"),
    [
        ("train", 7, 2, []),
        pytest.param("test", 7, 2, [], marks=pytest.mark.exhaustive),
        pytest.param("train", 3, 3, BY_SERVERS, marks=pytest.mark.exhaustive),
    ],
)
def test_data_error_on_one_worker_keeps_the_checkpoint_of_all(
    jobs, spec: Path, tmp_path: Path, split: str, steps: int, ranks: int, more: list[str]
) -> None:
    actual = dict(np.load(tmp_path / "blobs.npz"))
    actual["features"][46] = np.nan  # in the second half of the 8th batch of 6, which is worker 1's part
    np.savez(tmp_path / "damaged.npz", **actual)
    full, failed = tmp_path / "whole", tmp_path / "failed"
    changes = [*PLAIN, "data.train.shuffle=false", "train.checkpoint_every=4", f"train.max_steps={steps}", *more]
    assert jobs.train(spec, *changes, "--run-dir", full, by=ranks).end() == 0
    if split == "train":
        changes += [f"data.train.path={tmp_path / 'damaged.npz'}", "train.max_steps=500"]
    else:
        changes += [f"data.test={{source: npz, path: {tmp_path / 'damaged.npz'}, batch_size: 6}}"]
    job = jobs.train(spec, *changes, "--run-dir", failed, by=ranks)
    assert job.end() == 2, job.err
    assert job.err.startswith("rank 1 (")
    assert "a value for `features` is not a finite float32" in job.err
    assert job.err.endswith(f"  hint: to continue: python -m netspec train {failed / 'spec.yaml'} --resume\n")
    assert job.err.count(": error: ") == 1
    saved, expected = (read_checkpoint(folder / "checkpoints" / f"step-{steps:08}.h5") for folder in (failed, full))
    assert {name: state.tobytes() for name, state in saved.states.items()} == {
        name: state.tobytes() for name, state in expected.states.items()
    }
    position = ("epoch", "position", "step")
    assert [saved.progress["loader"][key] for key in position] == [expected.progress["loader"][key] for key in position]


@pytest.mark.parametrize("more", [[], pytest.param(BY_SERVERS, marks=pytest.mark.exhaustive)], ids=["", "servers"])
def test_workers_evaluate_validation_data_in_training_and_test_data_once(
    jobs, spec: Path, tmp_path: Path, more: list[str]
) -> None:
    split = f"source: npz, path: {tmp_path / 'blobs.npz'}, batch_size: 6"
    changes = [f"data.validation={{{split}, limit: 25}}", f"data.test={{{split}}}", "train.max_steps=10", *more]
    folder = tmp_path / "run"
    job = jobs.train(spec, *changes, "train.test_every=5", "--run-dir", folder, *PLAIN, by=3 if more else 2)
    assert job.end() == 0, job.err
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    tests = [(event["step"], event["split"], event["samples"]) for event in events if event["event"] == "test"]
    assert tests[:2] == [(5, "validation", 25), (10, "validation", 25)]
    losses = {event["step"]: event["loss"] for event in events if event.get("split") == "validation"}
    best = min(losses, key=losses.__getitem__)  # updates race, so either evaluation may be the best
    assert tests[2:] == [(best, "test", 50)]
    for name in ("validation", "test"):
        single = netspec.test(folder / "spec.yaml", weights=folder / "best.h5", split=name, device="reference")
        assert single.loss == pytest.approx(
            events[-1][name]["loss"],
            rel=1e-6,
            # other batch sizes round differently
        )


def test_too_many_workers_are_rejected(spec: Path, capfd) -> None:
    assert main(["train", str(spec), "data.train.batch_size=100000000", "--workers", "10000000"]) == 2
    assert "--workers starts processes on this machine" in capfd.readouterr().err

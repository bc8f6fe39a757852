"""`netspec verify-resume`: a training that is killed and resumed must be bit-identical to an uninterrupted one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.cli import main
from netspec.errors import InputError, RunError
from netspec.exchange.formats.native.hdf5 import (
    CheckpointFile,
    find_latest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from netspec.schema.load import load_train
from netspec.tools.reproducibility import verify_resume
from netspec.tools.reproducibility.bit_comparison import compare_runs_bitwise
from netspec.tools.reproducibility.verify_resume import verified_settings
from tests.training.conftest import points, spec

__all__ = ["points", "spec"]  # re-exports the fixtures

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def runs(spec: Make, tmp_path: Path) -> tuple[Path, Path]:
    """A run and its copy."""
    run = netspec.train(spec(max_steps=8, log_every=2, test_every=4), run_dir=tmp_path / "run", device="reference")
    shutil.copytree(run.run_dir, tmp_path / "other")
    return run.run_dir, tmp_path / "other"


def change_checkpoint(run: Path, change: Callable[[CheckpointFile], CheckpointFile]) -> None:
    path = find_latest_checkpoint(run / "checkpoints").path
    assert path is not None
    changed = change(read_checkpoint(path))
    write_checkpoint(path, changed.states, changed.roles, changed.progress, changed.spec, evaluated=changed.evaluated)


def test_equal_runs_are_identical_even_if_steps_are_logged_again(runs: tuple[Path, Path]) -> None:
    run, other = runs
    lines = (other / "log.jsonl").read_text().splitlines()
    repeated = [json.loads(line) for line in lines if '"log"' in line]
    again = [json.dumps({**event, "elapsed": 9, "samples_per_second": 1}) for event in repeated]
    (other / "log.jsonl").write_text("\n".join([*lines, *again, '{"torn']))
    comparison = compare_runs_bitwise(run, other)
    assert comparison.differences == ()
    assert comparison.log_lines == 5 + 2
    states = read_checkpoint(run / "checkpoints" / "step-00000008.h5").states
    assert comparison.arrays == len(states) + 2 * 8  # two files of six parameters and two moving statistics


def test_one_bit_of_a_state_is_reported_by_name(runs: tuple[Path, Path]) -> None:
    run, other = runs

    def flip(checkpoint: CheckpointFile) -> CheckpointFile:
        kernel = checkpoint.states["fc1/kernel"].copy()
        kernel.view("uint32")[2, 5] ^= 1
        return replace(checkpoint, states={**checkpoint.states, "fc1/kernel": kernel})

    change_checkpoint(other, flip)
    (difference,) = compare_runs_bitwise(run, other).differences
    assert (difference.where, difference.name) == ("step-00000008.h5", "fc1/kernel")
    assert difference.description.startswith("1 of 96 elements, first at [2, 5]: ")


def test_differences_of_progress_logs_and_weights_are_reported(runs: tuple[Path, Path]) -> None:
    run, other = runs
    change_checkpoint(other, lambda file: replace(file, progress={**file.progress, "best_step": 4}))
    lines = [json.loads(line) for line in (other / "log.jsonl").read_text().splitlines()]
    first = next(event for event in lines if event["event"] == "log" and event["step"] == 4)
    lines.append({**first, "loss": float(np.nextafter(first["loss"], 1e9))})
    (other / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (other / "best.h5").unlink()
    differences = compare_runs_bitwise(run, other).differences
    assert (differences[0].where, differences[0].name) == ("log.jsonl, step 4, train data", "loss")
    assert differences[0].description == f"{first['loss']} ≠ {np.nextafter(first['loss'], 1e9)}"
    named = {(difference.where, difference.name) for difference in differences[1:]}
    assert {("step-00000008.h5", "best_step"), ("best.h5", "fc1/kernel"), ("best.h5", "step")} <= named


def test_a_run_without_an_intact_checkpoint_cannot_be_compared(runs: tuple[Path, Path]) -> None:
    run, other = runs
    shutil.rmtree(other / "checkpoints")
    with pytest.raises(InputError, match="there is no intact checkpoint in"):
        compare_runs_bitwise(run, other)


@pytest.mark.parametrize(("every", "expected"), [(None, 4), (2, 2), (0, 4), (30, 4)])
def test_checkpoints_are_written_between_kills(spec: Make, every: int | None, expected: int) -> None:
    training = spec(checkpoint_every=every)
    changed = load_train(training, verified_settings(load_train(training), 50, 5)).train
    assert (changed.max_steps, changed.checkpoint_every, changed.log_every) == (50, expected, 1)


def test_stages_share_the_steps(spec: Make) -> None:
    training = spec(max_steps=9) | {"stages": [{"max_steps": 500}, {"max_epochs": 3, "learning_rate": 0.01}, {}]}
    changed = load_train(training, verified_settings(load_train(training), 20, 2))
    assert [(stage.max_steps, stage.max_epochs) for stage in changed.stages] == [(6, None), (7, None), (7, None)]


def test_stages_are_compared_and_too_few_steps_for_them_refused(spec: Make, tmp_path: Path, capfd: Any) -> None:
    training = spec(max_steps=2, log_every=1) | {"stages": [{"learning_rate": 0.1}, {"max_steps": 3}]}
    for name in ("run", "other"):
        netspec.train(training, run_dir=tmp_path / name, device="reference")
    run, other = tmp_path / "run", tmp_path / "other"
    comparison = compare_runs_bitwise(run, other)
    assert (comparison.differences, comparison.log_lines) == ((), 2 + 3 + 2)
    change_checkpoint(other / "stage-1", lambda file: replace(file, progress={**file.progress, "best_step": 77}))
    (difference,) = compare_runs_bitwise(run, other).differences
    assert (difference.where, difference.name) == ("stage-1/step-00000002.h5", "best_step")
    (tmp_path / "train.yaml").write_text(json.dumps(training))
    assert main(["verify-resume", str(tmp_path / "train.yaml"), "--steps", "1"]) == 2
    assert "--steps must be at least the number of stages\n  expected: at least 2\n  got: 1" in capfd.readouterr().err


def test_the_log_tells_with_which_step_a_resumed_stage_began(tmp_path: Path) -> None:
    lines = [{"event": "start", "step": 0, "stage": 1}, {"event": "log", "step": 10, "stage": 1}]
    second = [{"event": "start", "step": 0, "stage": 2}, {"event": "log", "step": 11, "stage": 2}]
    third = [{"event": "start", "step": 10, "stage": 2}, {"event": "log", "step": 12, "stage": 2}]
    path, steps = tmp_path / "log.jsonl", list[tuple[int | None, int]]()
    for part in (lines, second, [*second, *third]):
        with verify_resume._Log(path) as log, path.open("a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in part)
            file.flush()
            log.update()
            steps.append((log.resumed_from, log.step))
    assert steps == [(0, 10), (10, 11), (10, 12)]


def test_strategies_whose_runs_differ_are_refused(spec: Make, tmp_path: Path, capfd: Any) -> None:
    path = tmp_path / "train.yaml"
    for strategy in ("{strategy: hogwild}", "{strategy: parameter_server, mode: asynchronous}"):
        path.write_text(json.dumps(spec()))
        assert main(["verify-resume", str(path), "--workers", "2", f"parallel={strategy}"]) == 2
        assert "can't be verified: each run computes different weights" in capfd.readouterr().err


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three processes that do nothing: a launcher and its workers."""
    command = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    processes = [subprocess.Popen(command) for _ in range(3)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="macOS has no /proc, and always has ps")
def test_workers_are_found_without_ps(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {process.pid for process in sleepers} <= set(verify_resume._descendants(os.getpid()))


def test_a_launcher_that_survives_its_worker_is_an_error(
    sleepers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_resume, "TIMEOUT_AFTER_KILL", 0.01)
    launcher, *workers = sleepers
    training: Any = SimpleNamespace(kills=[None], _workers=2, _random=np.random.default_rng(0))
    started = [launcher.pid, *(worker.pid for worker in workers)]
    with pytest.raises(RunError, match="the run did not end after one of its workers was killed"):
        verify_resume._KilledTraining._kill(training, launcher, started, SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    "stages",
    [pytest.param([], id=""), pytest.param([{"learning_rate": 0.1}, {}], id="stages", marks=pytest.mark.exhaustive)],
)
def test_a_training_that_is_killed_twice_is_bit_identical(
    spec: Make, tmp_path: Path, capfd: Any, stages: list[dict[str, Any]]
) -> None:
    (tmp_path / "train.yaml").write_text(json.dumps(spec(test_every=5) | {"stages": stages}))
    words = ["verify-resume", str(tmp_path / "train.yaml"), "--steps", "20", "--kills", "2", "--device", "reference"]
    assert main([*words, "--json"]) == 0
    check = json.loads(capfd.readouterr().out)
    assert check["identical"]
    assert check["log_lines"] == 20 + 4
    assert len(check["kills"]) == 2
    assert {path.suffix for path in tmp_path.iterdir()} == {".yaml", ".npz"}

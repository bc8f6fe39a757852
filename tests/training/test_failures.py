"""Runs that fail record the reason; runs without a step leave nothing; `resume="auto"` continues an existing run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError, RunError
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.training.loop import TrainingLoop

Make = Callable[..., dict[str, Any]]


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


class FailAt(netspec.Callback):
    """Raises an error at the end of a step."""

    def __init__(self, step: int, error: BaseException) -> None:
        self.step, self.error = step, error

    def on_step_end(self, training: TrainingLoop) -> None:
        if training.step == self.step:
            raise self.error


def in_order(spec: Make, points: Path, bad_sample: int) -> dict[str, Any]:
    """A training whose sample `bad_sample` has a value that is not finite."""
    arrays = dict(np.load(points / "train.npz"))
    arrays["x"][bad_sample] = np.nan
    np.savez(points / "train.npz", x=arrays["x"], label=arrays["label"])
    training = spec()
    training["data"]["train"]["shuffle"] = False
    return training


def test_a_failure_is_recorded_in_both_logs(spec: Make, points: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sample 100"):
        netspec.train(in_order(spec, points, 100), run_dir=tmp_path / "run")
    error = events(tmp_path / "run")[-1]
    assert (error["event"], error["step"], error["exit_status"]) == ("error", 3, 2)
    [problem] = error["problems"]
    assert "sample 100" in problem["message"] + str(problem["got"])
    last = (tmp_path / "run" / "log.txt").read_text().splitlines()[-1]
    assert "error: " in last
    assert problem["message"] in last
    assert last.endswith("(exit status 2)")


def test_a_failure_of_netspec_itself_is_recorded(spec: Make, tmp_path: Path) -> None:
    with pytest.raises(RunError):
        netspec.train(spec(), run_dir=tmp_path / "run", callbacks=[FailAt(5, ZeroDivisionError("no luck"))])
    error = events(tmp_path / "run")[-1]
    assert (error["event"], error["step"], error["exit_status"]) == ("error", 5, 1)
    assert "ZeroDivisionError: no luck" in error["problems"][0]["got"]


def test_a_loss_that_is_not_finite_is_recorded_with_its_location(spec: Make, tmp_path: Path) -> None:
    training = spec()
    training["solver"] = {"type": "SGD", "learning_rate": 1e30}
    with pytest.raises(RunError, match="not finite"):
        netspec.train(training, run_dir=tmp_path / "run")
    error = events(tmp_path / "run")[-1]
    assert "the loss is not finite at step" in error["problems"][0]["message"]


def test_a_stopped_run_is_recorded(spec: Make, tmp_path: Path) -> None:
    class Stop(netspec.Callback):
        def on_step_end(self, training: TrainingLoop) -> None:
            if training.step == 6:
                training.request_stop("the test")

    with pytest.raises(netspec.Interrupted, match="stopped after step 6: the test") as caught:
        netspec.train(spec(), run_dir=tmp_path / "run", callbacks=[Stop()])
    assert caught.value.reason == "the test"
    last = events(tmp_path / "run")[-1]
    assert (last["event"], last["step"], last["reason"]) == ("stopped", 6, "the test")
    assert (tmp_path / "run" / "log.txt").read_text().splitlines()[-1] == "stopped after step 6: the test"


@pytest.mark.parametrize("folder", ["run", "new/run", None])
def test_a_run_that_fails_before_its_first_step_leaves_nothing(
    spec: Make, points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="sample 3"):
        netspec.train(in_order(spec, points, 3), run_dir=folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_files_of_others_stay(spec: Make, points: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="sample 3"):
        netspec.train(in_order(spec, points, 3), run_dir=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


def test_a_run_that_is_stopped_before_its_first_step_leaves_nothing(spec: Make, tmp_path: Path) -> None:
    class AtOnce(netspec.Callback):
        def on_train_start(self, training: TrainingLoop) -> None:
            raise KeyboardInterrupt

    with pytest.raises(netspec.Interrupted):
        netspec.train(spec(), run_dir=tmp_path / "run", callbacks=[AtOnce()])
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_auto_starts_a_run_and_continues_it(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    uninterrupted = netspec.train(spec(), run_dir=tmp_path / "whole")
    for folder in (tmp_path / "run", None):
        with pytest.raises(RunError):
            netspec.train(spec(), run_dir=folder, resume="auto", callbacks=[FailAt(9, RuntimeError("stop"))])
        run = netspec.train(spec(), run_dir=folder, resume="auto")
        assert run.run_dir == (folder or Path("runs/small"))
        assert [event["step"] for event in events(run.run_dir) if event["event"] == "start"] == [0, 9]
        arrays, expected = (read_weights(finished.last_weights).arrays for finished in (run, uninterrupted))
        assert all(arrays[name].tobytes() == array.tobytes() for name, array in expected.items())
        resumed = netspec.train(spec(), run_dir=folder, resume="auto")
        assert (resumed.run_dir, resumed.steps) == (run.run_dir, 40)
    assert [path.name for path in Path("runs").iterdir()] == ["small"]


def test_auto_takes_weights_for_a_new_run_only(spec: Make, tmp_path: Path) -> None:
    first = netspec.train(spec(max_steps=3), run_dir=tmp_path / "first")
    for steps in (2, 4):
        run = netspec.train(spec(max_steps=steps), run_dir=tmp_path / "run", resume="auto", weights=first.last_weights)
    assert [event["step"] for event in events(run.run_dir) if event["event"] == "start"] == [0, 2]
    with pytest.raises(InputError, match="cannot be combined"):
        netspec.train(spec(), run_dir=tmp_path / "run", resume=True, weights=first.last_weights)

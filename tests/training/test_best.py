"""Evaluations choose the best weights, also after failures and with losses that are not finite."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError, RunError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from netspec.schema.plain_json import json_text
from netspec.training import Callback, TrainingLoop, loop
from netspec.training.callbacks import weights
from netspec.training.evaluation import Evaluation
from netspec.training.events import Event

Make = Callable[..., dict[str, Any]]


def told_losses(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> list[bytes]:
    """Replace evaluations by these losses, one after the other; the returned list collects the evaluated weights."""
    best_files: list[bytes] = []

    def evaluate(compiler: Any, loader: Any, session: Any) -> Evaluation:
        best_files.append(compiler.states["logits/kernel"].tobytes())
        return Evaluation(57, losses[len(best_files) - 1], {"accuracy": 0.5})

    monkeypatch.setattr(loop, "evaluate", evaluate)
    return best_files


def strict(folder: Path) -> list[Event]:
    """Return the events of the log as strict JSON, without NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("losses", "best"),
    [([3, 1, 2, 4, 5], 1), ([1, 2, 3, 4, 5], 0), ([5, 4, 3, 2, 1], 4), ([2, 1, 1, 1, 1], 1),
     ([nan, 3, 2, nan, 4], 2), ([-inf, inf, 3, nan, 4], 2)],
)  # fmt: skip
def test_the_best_weights_have_the_lowest_finite_loss(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: list[float], best: int
) -> None:
    best_files = told_losses(monkeypatch, losses)
    run = netspec.train(spec(test_every=8, checkpoint_every=40), run_dir=tmp_path / "run")
    assert len(best_files) == 5
    best_weights = read_weights(run.run_dir / "best.h5")
    assert best_weights.meta["step"] == 8 * (best + 1)
    assert best_weights.arrays["logits/kernel"].tobytes() == best_files[best]
    progress = read_checkpoint(run.run_dir / "checkpoints" / "step-00000040.h5").progress
    assert (progress["best_value"], progress["best_step"]) == (losses[best], 8 * (best + 1))


@pytest.mark.parametrize(("losses", "noted"), [([3, 2, 1], True), ([3, 1, 2], False), ([1], False)])
def test_a_run_notes_that_its_last_evaluation_is_the_best(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: list[float], noted: bool
) -> None:
    told_losses(monkeypatch, losses)
    solver = {"type": "SGD", "learning_rate": 0.1}
    netspec.train({**spec(max_steps=8 * len(losses), test_every=8), "solver": solver}, run_dir=tmp_path / "run")
    notes = [event["message"] for event in strict(tmp_path / "run") if event["event"] == "note"]
    expected = "the last evaluation has the lowest test loss: more steps may improve it (train.max_steps)"
    assert notes == [expected] * noted


def test_a_decayed_learning_rate_explains_that_the_last_evaluation_is_the_best(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_losses(monkeypatch, [3, 2, 1])
    # The rate decays to 0, so there is no note.
    netspec.train(spec(max_steps=24, test_every=8), run_dir=tmp_path / "run")
    assert not any(event["event"] == "note" for event in strict(tmp_path / "run"))


def test_a_run_that_is_ended_early_needs_no_more_steps(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class End(Callback):
        def on_evaluation_end(self, training: TrainingLoop, evaluation: Evaluation) -> None:
            self.stop_training = training.step == 16

    told_losses(monkeypatch, [3, 2, 1])
    netspec.train(spec(test_every=8), run_dir=tmp_path / "run", callbacks=[End()])
    assert not any(event["event"] == "note" for event in strict(tmp_path / "run"))


@pytest.mark.slow
def test_a_resumed_run_remembers_the_best_loss(spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told_losses(monkeypatch, [2.0, 1.0, 3.0])
    netspec.train(spec(max_steps=24, test_every=8), run_dir=tmp_path / "run")
    told_losses(monkeypatch, [1.5, 1.25])
    netspec.train(spec(test_every=8), run_dir=tmp_path / "run", resume=True)
    assert read_weights(tmp_path / "run" / "best.h5").meta["step"] == 16


def test_losses_that_are_never_finite_save_no_best_weights(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told_losses(monkeypatch, [nan])
    run = netspec.train(spec(test_every=0), run_dir=tmp_path / "run")
    assert not (run.run_dir / "best.h5").exists()
    *_, test, warning, _checkpoint, done_event = strict(run.run_dir)
    assert test == {
        "event": "test", "step": 40, "split": "test", "samples": 57, "loss": None, "metrics": {"accuracy": 0.5},
        "non_finite": ["loss"], "seconds": test["seconds"], "time": test["time"], "elapsed": test["elapsed"],
    }  # fmt: skip
    assert warning["event"] == "warning"
    assert warning["message"] == "not finite (nan or infinite) on the test data: loss"
    assert done_event["test"]["loss"] is None
    assert "test loss nan accuracy 0.50000 over 57 samples (not finite)" in (run.run_dir / "log.txt").read_text()
    resumed = netspec.train(spec(test_every=0), run_dir=tmp_path / "run", resume=True)  # in JSON, the loss is null
    assert resumed.test is not None
    assert resumed.test.non_finite == ["loss"]


@pytest.mark.parametrize("checkpoint_every", [0, pytest.param(8, marks=pytest.mark.slow)])
def test_a_damaged_test_sample_loses_no_step_of_the_epoch(
    spec: Make, points: Path, tmp_path: Path, checkpoint_every: int
) -> None:
    timing = {"test_every": 8, "checkpoint_every": checkpoint_every}
    uninterrupted = netspec.train(spec(**timing), run_dir=tmp_path / "whole")
    arrays = dict(np.load(points / "test.npz"))
    bad = arrays["x"].copy()
    bad[40] = np.nan
    np.savez(points / "test.npz", x=bad, label=arrays["label"])
    with pytest.raises(InputError, match="sample 40"):
        netspec.train(spec(**timing), run_dir=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000008.h5"]
    np.savez(points / "test.npz", **arrays)
    resumed = netspec.train(spec(**timing), run_dir=tmp_path / "run", resume=True)
    assert resumed.test == uninterrupted.test
    tests = [[event for event in strict(run.run_dir) if event["event"] == "test"] for run in (uninterrupted, resumed)]
    figures = [[(event["step"], event["loss"], event["metrics"]) for event in of_run] for of_run in tests]
    assert figures[0] == figures[1]  # the resumed run repeats the evaluation that failed
    for name in ("weights.h5", "best.h5"):
        event, other = (read_weights(run.run_dir / name) for run in (uninterrupted, resumed))
        assert {key: array.tobytes() for key, array in event.arrays.items()} == {
            key: array.tobytes() for key, array in other.arrays.items()
        }
        assert event.meta["step"] == other.meta["step"]


def test_a_damaged_training_sample_loses_no_earlier_step(spec: Make, points: Path, tmp_path: Path) -> None:
    arrays = dict(np.load(points / "train.npz"))
    arrays["x"][100] = np.nan
    np.savez(points / "train.npz", x=arrays["x"], label=arrays["label"])
    in_order = spec(checkpoint_every=0)
    in_order["data"]["train"]["shuffle"] = False
    with pytest.raises(InputError, match="sample 100"):
        netspec.train(in_order, run_dir=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000003.h5"]


def test_a_checkpoint_that_cannot_be_written_is_the_reported_error(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise RunError("cannot write it", got="No space left on device")

    monkeypatch.setattr(weights, "write_checkpoint", full)
    with pytest.raises(RunError, match="cannot write it"):
        netspec.train(spec(checkpoint_every=8), run_dir=tmp_path / "run")


def test_evaluations_survive_json() -> None:
    evaluation = Evaluation(3, nan, {"a": inf, "b": 0.5})
    read_back = Evaluation.from_json(json.loads(json_text(evaluation.as_json())))
    assert read_back.non_finite == evaluation.non_finite == ["loss", "a"]
    assert Evaluation.from_json(Evaluation(3, None, {"b": 0.5}).as_json()) == Evaluation(3, None, {"b": 0.5})

"""Trainings with stages: frozen layers and rates of each stage, transferred weights, and resuming in any stage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.training.run import Interrupted

Make = Callable[..., dict[str, Any]]
FREEZE = ["fc1", "norm"]
STAGES: list[dict[str, Any]] = [
    {"name": "head", "max_steps": 10, "freeze": FREEZE, "learning_rate": 0.05},
    {"max_steps": 15, "learning_rate": {"type": "CosineDecay", "initial": 0.01},
     "learning_rate_multipliers": {"fc*": 0.1}, "early_stopping": {"patience": 3}},
]  # fmt: skip


@pytest.fixture
def staged(spec: Make) -> dict[str, Any]:
    staged_spec = spec(checkpoint_every=4, log_every=1, test_every=5)
    staged_spec["stages"] = STAGES
    return staged_spec


def weights(path: Path) -> dict[str, Any]:
    return dict(read_weights(path).arrays)


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


class StopAfter(netspec.Callback):
    """Asks the training to stop after some of its calls."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def on_step_end(self, training: Any) -> None:
        self.calls -= 1
        if self.calls == 0:
            training.request_stop("the test")


def test_each_stage_trains_its_layers_with_its_rates(staged: dict[str, Any], tmp_path: Path) -> None:
    run = netspec.train(staged, run_dir=tmp_path / "run")
    first, second = (tmp_path / "run" / f"stage-{number}" for number in (1, 2))
    checkpoint = first / "checkpoints" / "step-00000004.h5"
    assert checkpoint.exists() or (first / "checkpoints" / "step-00000008.h5").exists()
    fresh = netspec.load(staged["net"], seed=staged["train"]["seed"]).parameters
    after_first = weights(first / "weights.h5")
    assert all(np.array_equal(after_first[f"fc1/{name}"], fresh[f"fc1/{name}"]) for name in ("kernel", "bias"))
    # Moving statistics are frozen, too.
    assert np.array_equal(after_first["norm/moving_mean"], fresh["norm/moving_mean"])
    assert not np.array_equal(after_first["logits/kernel"], fresh["logits/kernel"])
    assert not np.array_equal(weights(second / "weights.h5")["fc1/kernel"], fresh["fc1/kernel"])
    assert same(weights(run.last_weights), weights(second / "weights.h5"))
    assert run.run_dir == tmp_path / "run"
    assert run.steps == 25
    assert netspec.test(run.run_dir).loss == pytest.approx(run.test.loss if run.test else 0)
    rates = {event["step"]: event["learning_rate"] for event in run.history if event["event"] == "log"}
    assert sorted(rates) == list(range(1, 26))  # steps are counted over all stages
    assert rates[1] == rates[10] == 0.05
    assert rates[11] == pytest.approx(0.01)  # the schedule begins with the stage
    assert rates[25] < 0.001


def test_a_later_stage_starts_with_the_best_weights(staged: dict[str, Any], tmp_path: Path) -> None:
    """The second stage is the run that starts with the final weights of the first."""
    run = netspec.train(staged, run_dir=tmp_path / "run")
    alone = {**staged, "stages": [STAGES[1]]}
    first = tmp_path / "run" / "stage-1"
    expected = netspec.train(alone, run_dir=tmp_path / "alone", weights=first / "best.h5")
    assert same(weights(run.last_weights), weights(expected.last_weights))


@pytest.mark.parametrize("stops", [(13,), pytest.param((3, 10, 22), marks=pytest.mark.slow)], ids=str)
def test_a_resumed_training_is_bit_identical(staged: dict[str, Any], tmp_path: Path, stops: tuple[int, ...]) -> None:
    expected = netspec.train(staged, run_dir=tmp_path / "whole")
    for steps in stops:
        folder = tmp_path / f"stopped-at-{steps}"
        with pytest.raises(Interrupted) as stopped:
            netspec.train(staged, run_dir=folder, callbacks=[StopAfter(steps)])
        assert stopped.value.run_dir == folder
        assert stopped.value.step == steps
        run = netspec.train(folder / "spec.yaml", resume=True)
        assert run.run_dir == folder
        for name in ("weights.h5", "best.h5"):
            assert same(weights(run.run_dir / name), weights(expected.run_dir / name))
        assert (run.weights_step, run.test) == (expected.weights_step, expected.test)
        resumed = netspec.train(staged, run_dir=folder, resume="auto")  # the run is complete
        assert resumed.test == run.test


def test_a_stage_that_was_killed_before_its_first_checkpoint_keeps_its_weights(
    staged: dict[str, Any], tmp_path: Path
) -> None:
    straight = netspec.train(staged, run_dir=tmp_path / "straight")
    with pytest.raises(Interrupted):
        netspec.train(staged, run_dir=tmp_path / "run", callbacks=[StopAfter(12)])
    stage = tmp_path / "run" / "stage-2"  # as if it had been killed before its first step
    shutil.rmtree(stage / "checkpoints")
    lines = (stage / "log.jsonl").read_text().splitlines(keepends=True)
    (stage / "log.jsonl").write_text("".join(line for line in lines if json.loads(line)["event"] in ("note", "start")))
    resumed = netspec.train(staged, run_dir=tmp_path / "run", resume=True)
    assert same(weights(resumed.last_weights), weights(straight.last_weights))


def test_the_log_has_the_stages(staged: dict[str, Any], tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    run = netspec.train(staged, run_dir=tmp_path / "run", listeners=[events.append])
    logged = [json.loads(line) for line in run.log.read_text().splitlines()]
    assert [event for event in events if event["event"] != "progress"] == logged
    notes = [event["message"] for event in logged if event["event"] == "note"]
    assert "stage 1 of 2 (head): 10 steps, frozen: fc1, norm" in notes
    assert "stage 2 of 2: 15 steps" in notes
    assert [event["event"] for event in logged].count("done") == 1
    done = logged[-1]
    assert (done["event"], done["steps"], done["run_dir"]) == ("done", 25, str(tmp_path / "run"))
    assert {event["stage"] for event in logged if event["event"] == "log"} == {1, 2}
    elapsed = [event["elapsed"] for event in logged if event["event"] == "log"]
    assert elapsed == sorted(elapsed)


def test_settings_of_a_stage_that_has_ended_cannot_change(staged: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        netspec.train(staged, run_dir=tmp_path / "run", callbacks=[StopAfter(12)])
    saved = tmp_path / "run" / "spec.yaml"
    before = saved.read_text()
    for field, value in (("max_steps", 11), ("learning_rate", 0.02), ("freeze", ["fc1"])):
        other = {**staged, "stages": [{**STAGES[0], field: value}, STAGES[1]]}
        with pytest.raises(InputError):
            netspec.train(other, run_dir=tmp_path / "run", resume=True)
    with pytest.raises(InputError, match=r"`train\.accumulate` has changed") as refused:
        netspec.train(staged, run_dir=tmp_path / "run", resume=True, **{"train.accumulate": 2})
    assert f"train {saved} --resume` continues with the values" in (refused.value.problems[0].hint or "")
    assert saved.read_text() == before, "a refused resume changes nothing"
    longer = {**staged, "stages": [STAGES[0], {**STAGES[1], "max_steps": 20}]}
    assert netspec.train(longer, run_dir=tmp_path / "run", resume=True).steps == 30


def test_mistakes_point_at_the_stage(staged: dict[str, Any], tmp_path: Path) -> None:
    def problems(stage: dict[str, Any], **others: Any) -> list[tuple[str, str]]:
        with pytest.raises(InputError) as caught:
            netspec.check({**staged, **others, "stages": [STAGES[0], stage]}, data=False)
        return [(problem.path, problem.message) for problem in caught.value.problems]

    assert problems({"freeze": "fc9"}) == [("stages.1.freeze", "`fc9` matches no layer of the net")]
    assert problems({"learning_rate_multipliers": {"x*": 2}}) == [
        ("stages.1.learning_rate_multipliers", "`x*` matches no layer of the net")
    ]
    assert problems({"learning_rate": 0})[0][0] == "stages.1.learning_rate"
    assert problems({"max_steps": 1, "max_epochs": 1})[0] == (
        "stages.1.max_epochs", "`max_steps` and `max_epochs` cannot be combined"
    )  # fmt: skip
    assert problems({"learning_rate": {"type": "ReduceLROnPlateau", "schedule": 0.1, "monitor": "acuracy"}})
    (tmp_path / "w.h5").write_bytes(b"")
    init_from = {"file": str(tmp_path / "w.h5"), "freeze": "fc1"}
    assert ("init_from.freeze", "`init_from.freeze` would hold for all stages") in problems({}, init_from=init_from)
    with pytest.raises(InputError, match="cannot start from a checkpoint"):
        netspec.train(staged, run_dir=tmp_path / "new", resume=tmp_path / "w.h5")
    assert not (tmp_path / "new").exists()


def test_a_stage_that_trains_nothing_points_at_its_freeze(points: Path, staged: dict[str, Any]) -> None:
    (points / "net.json").write_text(json.dumps(staged["net"]))
    text = json.dumps({**staged, "stages": []}, indent=1)
    lines = ['"stages": [{"max_steps": 2},', '  {"freeze": ["fc1", "norm",', '  "logits"]}]']
    (points / "train.yaml").write_text(text.replace('"stages": []', "\n".join(lines)))
    with pytest.raises(InputError) as caught:
        netspec.check(points / "train.yaml")
    (problem,) = caught.value.problems
    assert "every layer is frozen" in problem.message
    assert problem.location is not None
    assert '"freeze"' in problem.location.text


def test_a_run_that_cannot_begin_leaves_nothing(staged: dict[str, Any], tmp_path: Path) -> None:
    staged["data"]["train"]["path"] = str(tmp_path / "nothing.npz")
    with pytest.raises(InputError):
        netspec.train(staged, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()

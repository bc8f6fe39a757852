"""`netspec.search`: trials, their values and folders, and what interrupts them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec import InputError, Interrupted, RunError
from netspec.schema.language.provenance import canonical_yaml
from netspec.tools.search.study import Pruner
from netspec.tools.search.trials import ProcessTrainer

Make = Callable[..., dict[str, Any]]
RATE = "solver.learning_rate"


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Returns a linear regression of 96 samples with a search: three epochs of three steps."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x = random.standard_normal((96, 4)).astype(np.float32)
    np.savez("line.npz", x=x, y=x @ random.standard_normal((4, 1)).astype(np.float32))
    source = {"source": "npz", "path": str(tmp_path / "line.npz"), "batch_size": 32}

    def make(fields: dict[str, Any], data: dict[str, Any] | None = None, **search: Any) -> dict[str, Any]:
        return {
            "netspec": 1,
            "net": {
                "netspec": 1, "name": "line", "inputs": {"x": {"shape": [4]}, "y": {"shape": [1]}},
                "layers": [{"type": "Dense", "name": "fit", "units": 1}],
                "losses": [{"type": "MeanSquaredError", "from": ["fit", "y"]}],
            },
            "data": data or {"train": source, "validation": source},
            "solver": {"type": "SGD", "learning_rate": 0.05},
            "train": {"max_epochs": 3},
            "search": {"fields": fields, **search},
        }  # fmt: skip

    return make


def run(spec: dict[str, Any], **arguments: Any) -> Any:
    return netspec.search(spec, device="reference", **arguments)


def test_the_best_trial_is_the_one_with_the_lowest_loss(training: Make) -> None:
    reported: list[tuple[int, int]] = []
    spec = training({RATE: {"low": 1e-4, "high": 0.3, "log": True}}, trials=5, pruner="none")
    result = run(spec, report=lambda trial, best: reported.append((trial.number, best.number)))
    assert result.folder == Path("runs/line-search")
    assert (result.monitor, result.mode, result.warning) == ("validation/loss", "min", None)
    assert [trial.number for trial in result.trials] == [0, 1, 2, 3, 4]
    assert all(1e-4 <= trial.fields[RATE] <= 0.3 for trial in result.trials)
    values = [trial.value for trial in result.trials]
    assert result.best.value == min(values)
    assert len(set(values)) == 5
    assert reported == [(index, int(np.argmin(values[: index + 1]))) for index in range(5)]
    again = netspec.train(str(result.best_spec), device="reference", run_dir="again")
    assert again.validation is not None
    assert again.validation.loss == result.best.value, "its values are in best.yaml"
    page = netspec.report(result.folder, output="page.html").read_text()
    assert f"Trial {result.best.number}, in {result.best.run_dir}" in page
    assert not list(result.folder.glob("*/checkpoints")), "they are large, and a trial that has ended needs none"
    assert netspec.load(result.best.run_dir, device="reference").predict({"x": np.ones((1, 4), np.float32)})


def test_a_grid_tries_all_combinations_that_conditions_allow(training: Make) -> None:
    fields = {
        "solver": {"choices": [{"type": "SGD", "learning_rate": 0.1}, {"type": "Adam", "learning_rate": 0.01}]},
        "data.train.batch_size": {"low": 16, "high": 48, "step": 16},
        "train.loss_scale": {"choices": [2, 4], "when": {"data.train.batch_size": [16, 32]}},
    }
    result = run(training(fields, sampler="grid", pruner="none"))
    found = {
        (trial.fields["solver"]["type"], trial.fields["data.train.batch_size"], trial.fields.get("train.loss_scale"))
        for trial in result.trials
    }
    sizes = [(16, 2), (16, 4), (32, 2), (32, 4), (48, None)]
    assert found == {(solver, *size) for solver in ("SGD", "Adam") for size in sizes}
    assert len(result.trials) == 10


def test_a_field_that_one_choice_has_is_searched_with_it(training: Make) -> None:
    fields = {
        "solver.type": {"choices": ["Adam", "SGD"]},
        "solver.momentum": {"choices": [0.5, 0.9], "when": {"solver.type": "SGD"}},
    }
    spec = training(fields, sampler="grid")
    fields["solver.nesterov"] = {"choices": [True], "when": {"solver.momentum": 0.9}}
    spec["solver"] = {"type": "Adam", "learning_rate": 0.05}  # Adam has no `momentum`
    assert netspec.check(spec).kind == "training"
    assert {(trial.state, *trial.fields.values()) for trial in run(spec).trials} == {
        ("complete", "Adam"), ("complete", "SGD", 0.5), ("complete", "SGD", 0.9, True),
    }  # fmt: skip


def test_a_training_writes_its_spec_as_text_once(training: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    def counted(spec: Any) -> str:
        written.append(spec)
        return canonical_yaml(spec)

    monkeypatch.setattr("netspec.training.callbacks.weights.canonical_yaml", counted)
    monkeypatch.setattr("netspec.compile.compiler.canonical_yaml", counted)
    run(training({RATE: {"choices": [0.1]}}, trials=1))
    assert len(written) == 2, "the training's for three checkpoints, and the net's for four files of weights"


def test_a_failed_trial_is_reported_and_the_search_continues(training: Make) -> None:
    result = run(training({RATE: {"choices": [0.1, 1e30]}}, sampler="grid"))
    (failed,) = (trial for trial in result.trials if trial.state == "failed")
    assert failed.value is None
    assert "not finite" in failed.message
    assert result.best.fields == {RATE: 0.1}
    with pytest.raises(RunError, match="no trial of the search succeeded") as caught:
        run(training({RATE: {"choices": [1e30]}}, sampler="grid"), run_dir="failing")
    assert "not finite" in str(caught.value)


def test_trials_that_are_worse_than_the_median_end_early(training: Make) -> None:
    result = run(training({RATE: {"low": 1e-4, "high": 0.3, "log": True}}, trials=14))
    pruned = [trial for trial in result.trials if trial.state == "pruned"]
    assert pruned
    complete = [trial.value for trial in result.trials if trial.state == "complete"]
    assert min(trial.value for trial in pruned) > np.median(complete)
    assert result.best.state == "complete"
    assert {trial.state for trial in result.ranked()[-len(pruned) :]} == {"pruned"}


def test_an_interrupted_trial_continues_to_the_same_result(training: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = training({RATE: {"choices": [0.1]}}, trials=1, pruner="none")
    spec["solver"] = {"type": "Adam", "learning_rate": 0.1}
    whole = run(spec, run_dir="whole")
    ends = Pruner.should_prune

    def interrupted(self: Pruner, value: float, evaluation: int) -> bool:
        if evaluation == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return ends(self, value, evaluation)

    with monkeypatch.context() as patch:
        patch.setattr(Pruner, "should_prune", interrupted)
        with pytest.raises(Interrupted):
            run(spec, run_dir="parts")
    result = run(spec, run_dir="parts", resume=True)
    assert [trial.value for trial in result.trials] == [whole.best.value]
    assert sorted(path.name for path in result.folder.iterdir()) == ["best.yaml", "study.log", "trial-0000"]


def test_a_search_is_continued_with_more_trials_and_not_overwritten(training: Make) -> None:
    spec = training({RATE: {"low": 1e-3, "high": 0.1}}, sampler="random")
    first = run(spec, trials=2)
    assert len(first.trials) == 2
    with pytest.raises(InputError, match="there is a search in"):
        run(spec, trials=2)
    more = run(spec, trials=4, resume=True)
    assert [trial.value for trial in more.trials[:2]] == [trial.value for trial in first.trials]
    assert len({trial.fields[RATE] for trial in more.trials}) == 4, "a resumed search draws other values"
    spec["train"]["max_epochs"] = 2
    with pytest.raises(InputError, match="has changed since the search"):
        run(spec, trials=5, resume=True)
    with pytest.raises(InputError, match="there is no search"):
        run(spec, run_dir="other", resume=True)


def test_no_trial_starts_after_the_time_limit(training: Make) -> None:
    spec = training({RATE: {"low": 1e-3, "high": 0.1}})
    with pytest.raises(RunError, match="no trial was started before the time limit"):
        run(spec, minutes=0)
    with pytest.raises(InputError, match="`trials` must be 1 or more"):
        run(spec, trials=0)


def test_a_search_ends_in_time_and_keeps_what_the_last_trial_learned(training: Make) -> None:
    spec = training({RATE: {"low": 1e-3, "high": 0.1}})
    spec["train"]["max_epochs"] = 100_000
    (trial,) = run(spec, minutes=0.01).trials
    assert (trial.state, trial.message) == ("complete", "stopped at the time limit")
    assert netspec.load(trial.run_dir, device="reference").predict({"x": np.ones((1, 4), np.float32)})


def test_no_trial_starts_that_would_not_end_in_time(training: Make) -> None:
    spec = training({RATE: {"low": 1e-3, "high": 0.1}})
    run(spec, trials=1)
    assert len(run(spec, minutes=1e-6, resume=True).trials) == 1
    assert len(run(spec, minutes=1, trials=2, resume=True).trials) == 2


def test_the_first_trial_has_the_values_in_the_file(training: Make) -> None:
    fields = {
        RATE: {"low": 1e-3, "high": 0.1},
        "data.train.batch_size": {"choices": [16, 32]},
        "solver.momentum": {"low": 0.0, "high": 0.9, "when": {"data.train.batch_size": 32}},
        "solver.nesterov": {"choices": [True, False], "when": {"data.train.batch_size": 16}},
    }
    spec = training(fields, baseline=True)
    spec["solver"]["momentum"] = 0.5
    result = run(spec, trials=2)
    assert result.baseline == result.trials[0]
    assert result.baseline.fields == {RATE: 0.05, "data.train.batch_size": 32, "solver.momentum": 0.5}
    trained = netspec.train(spec, device="reference", run_dir="alone")
    assert trained.validation is not None
    assert result.baseline.value == trained.validation.loss
    assert [trial.baseline for trial in run(spec, trials=3, resume=True).trials] == [True, False, False]


def test_the_first_trial_is_not_pruned(training: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optuna.Trial.should_prune", lambda trial: True)
    result = run(training({RATE: {"low": 1e-3, "high": 0.1}}, baseline=True), trials=2)
    assert [trial.state for trial in result.trials] == ["complete", "pruned"]


def test_a_resumed_search_has_the_same_values(training: Make) -> None:
    run(training({RATE: {"choices": [0.01, 0.1]}}, sampler="grid"))
    more = training({RATE: {"choices": [0.01, 0.1, 1.0]}}, sampler="grid")
    with pytest.raises(InputError, match=r"the values of `solver\.learning_rate` have changed"):
        run(more, resume=True)


def test_multiples_of_a_step_are_exact(training: Make) -> None:
    fields = {
        "solver.momentum": {"low": 0.1, "high": 0.3, "step": 0.1},
        RATE: {"choices": [0.01], "when": {"solver.momentum": 0.3}},
    }
    result = run(training(fields, sampler="grid", pruner="none"))
    assert {(trial.fields["solver.momentum"], trial.fields.get(RATE)) for trial in result.trials} == {
        (0.1, None), (0.2, None), (0.3, 0.01),
    }  # fmt: skip


def test_values_that_the_file_cannot_take_are_reported_before_any_training(training: Make, tmp_path: Path) -> None:
    spec = training(
        {"solver.learning_rat": {"low": 0.1, "high": 1.0}, "data.train.batch_size": {"low": 0, "high": 8},
         "solver.type": {"choices": ["SGD", "Adamm"]}}
    )  # fmt: skip
    for function in (run, netspec.check):
        with pytest.raises(InputError) as caught:
            function(spec)
        messages = [problem.message for problem in caught.value.problems]
        assert len(messages) == 3
        assert any("learning_rat" in message for message in messages)
        assert any("batch_size" in message for message in messages)
        assert any("Adamm" in message for message in messages)
    assert not (tmp_path / "runs").exists()
    with pytest.raises(InputError, match="has no `search`"):
        run(spec, overrides=["~search"])


def test_a_choice_by_the_test_data_is_noted(training: Make, tmp_path: Path) -> None:
    source = {"source": "npz", "path": str(tmp_path / "line.npz"), "batch_size": 32}
    result = run(training({RATE: {"choices": [0.1]}}, data={"train": source, "test": source}, trials=1))
    assert result.monitor == "test/loss"
    assert "optimistic" in result.warning


@pytest.mark.slow
def test_several_processes_give_the_results_of_one(training: Make) -> None:
    spec = training({RATE: {"choices": [0.01, 0.03, 0.1]}}, sampler="grid", pruner="none")
    one, two = (run(spec, jobs=jobs, run_dir=f"on-{jobs}") for jobs in (1, 2))
    values = [{trial.fields[RATE]: trial.value for trial in result.trials} for result in (one, two)]
    assert values[0] == values[1]
    assert len(values[0]) == 3


@pytest.mark.slow
def test_a_trial_whose_process_is_killed_has_failed(training: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = ProcessTrainer.submit
    killed: list[int] = []

    def kill_the_first(self: ProcessTrainer, task: Any) -> None:
        submit(self, task)
        if not killed:
            self._processes[0][0].kill()
            killed.append(task.trial.number)

    spec = training({RATE: {"choices": [0.01, 0.03, 0.1]}}, sampler="grid", pruner="none")
    monkeypatch.setattr(ProcessTrainer, "submit", kill_the_first)
    result = run(spec, jobs=2)
    assert [trial.state for trial in sorted(result.trials, key=lambda trial: trial.number not in killed)] == [
        "failed", "complete", "complete",
    ]  # fmt: skip
    (failed,) = (trial for trial in result.trials if trial.state == "failed")
    assert "was killed" in str(failed.message)

"""`netspec.search`: trials, their values and folders, and what interrupts them."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec import InputError, Interrupted, RunError
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.schema.language.provenance import canonical_yaml
from netspec.schema.load import load_train
from netspec.schema.yaml.reader import parse_yaml
from netspec.tools.search import read_search
from netspec.tools.search.study import Pruner
from netspec.tools.search.trials import ProcessTrainer, Trainer, TrialOutcome, TrialTask, _serve_tasks
from netspec.training.events import read_log
from netspec.training.lockstep import Lockstep

Make = Callable[..., dict[str, Any]]
RATE = "solver.learning_rate"


@pytest.fixture
def training(current_folder: Path) -> Make:
    """Return a function that writes a linear regression of 96 samples with a search: three epochs of three steps."""
    random = np.random.default_rng(0)
    x = random.standard_normal((96, 4)).astype(np.float32)
    np.savez("line.npz", x=x, y=x @ random.standard_normal((4, 1)).astype(np.float32))
    source = {"source": "npz", "path": str(current_folder / "line.npz"), "batch_size": 32}

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


def test_a_run_of_a_file_with_a_baseline_resumes(training: Make) -> None:
    spec = training({RATE: {"low": 1e-4, "high": 0.3}}, baseline=True)
    for epochs in (1, 2):
        spec["train"]["max_epochs"] = epochs
        trained = netspec.train(spec, run_dir="run", device="reference", resume=epochs == 2)
    assert trained.steps == 6


def test_a_resolved_spec_with_a_search_loads_again(training: Make) -> None:
    spec = load_train(training({RATE: {"choices": [0.1, 0.2]}, "train.seed": {"low": 0, "high": 3}}))
    text = canonical_yaml(spec)
    assert canonical_yaml(load_train(parse_yaml(text, "spec.yaml"))) == text


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
    result = run(training({RATE: {"low": 1e-4, "high": 0.3, "log": True}}, trials=14, sampler="random"))
    pruned = [trial for trial in result.trials if trial.state == "pruned"]
    assert pruned
    complete = [trial.value for trial in result.trials if trial.state == "complete"]
    assert min(trial.value for trial in pruned) > np.median(complete)
    assert any(
        set(trial.batch) & set(other.batch)
        for trial in pruned
        for other in result.trials
        if other.value is not None and other.state == "complete"
    ), "others of its batch continue"
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
        run(spec, trials=2, run_dir=first.folder)
    more = run(spec, trials=4, resume=True)
    assert more.idle_reason is None
    assert [trial.value for trial in more.trials[:2]] == [trial.value for trial in first.trials]
    assert len({trial.fields[RATE] for trial in more.trials}) == 4, "a resumed search draws other values"
    with pytest.raises(InputError, match="no search"):
        run(spec, run_dir="other", resume=True)


def test_a_search_with_nothing_left_to_do_says_so(training: Make) -> None:
    run(training({RATE: {"choices": [0.01, 0.1]}}), trials=2, run_dir="random")
    again = run(training({RATE: {"choices": [0.01, 0.1]}}), trials=2, run_dir="random", resume=True)
    assert again.idle_reason == "all 2 trials have ended; add `--trials 22` to run 20 more"
    assert again.as_json()["idle_reason"] == again.idle_reason
    short = run(training({RATE: {"choices": [0.01, 0.1]}}), minutes=1e-9, run_dir="random", resume=True)
    assert short.idle_reason is not None
    assert re.fullmatch(
        r"too little time for another trial \(the fastest needed .+ s\); raise `--minutes`", short.idle_reason
    )
    grid = training({RATE: {"choices": [0.01, 0.1]}}, sampler="grid")
    assert run(grid, run_dir="grid").idle_reason is None
    assert run(grid, run_dir="grid", resume=True).idle_reason == "all combinations of the grid have been tried"


def test_searches_of_two_files_have_two_folders(training: Make) -> None:
    spec = training({RATE: {"choices": [0.01, 0.1]}}, sampler="random")
    Path("other").mkdir()
    for folder in (".", "other"):
        Path(folder, "train.yaml").write_text(json.dumps(spec))
    folders = [netspec.search(f"{folder}/train.yaml", trials=1, device="reference").folder for folder in (".", "other")]
    assert folders == [Path("runs/line-search"), Path("runs/line-search-2")]
    for file, expected in (("train.yaml", folders[0]), ("other/train.yaml", folders[1])):
        assert netspec.search(file, trials=1, resume=True, device="reference").folder == expected
    assert run(spec, trials=1, resume=True).folder == folders[1], "the newest"
    Path("third").mkdir()
    Path("third/train.yaml").write_text(json.dumps(spec))
    with pytest.raises(InputError, match=r"no search of third/train\.yaml in runs/") as caught:
        netspec.search("third/train.yaml", trials=2, resume=True, device="reference")
    assert caught.value.problems[0].hint == (
        "`--run-dir runs/line-search-2` continues the search of other/train.yaml; "
        "`--run-dir runs/line-search` continues the search of train.yaml"
    )
    with pytest.raises(InputError, match=r"no search of new in runs/"):
        run({**spec, "name": "new"}, resume=True)


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


CHANGES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "a range": ({"search.fields": {RATE: {"high": 0.3}}}, f"search.fields.{RATE}.high", "0.1", "0.3"),
    "a further field": (
        {"search.fields": {"train.seed": {"low": 1, "high": 9}}}, "search.fields.train.seed",
        "not set", "{low: 1, high: 9}",
    ),
    "no field": (
        {"search.fields": {"solver.momentum": None}}, "search.fields.solver.momentum",
        "{choices: [0.0, 0.9]}", "not set",
    ),
    "another metric": ({"train.monitor": "error"}, "train.monitor", "loss", "error"),
    "another direction": ({"train.mode": "max"}, "train.mode", "min", "max"),
    "more epochs": ({"train.max_epochs": 9}, "train.max_epochs", "3", "9"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_resumed_search_compares_like_with_like(training: Make, change: str) -> None:
    spec = training({RATE: {"low": 0.01, "high": 0.1}, "solver.momentum": {"choices": [0.0, 0.9]}}, sampler="random")
    spec["net"]["metrics"] = [{"type": "MeanAbsoluteError", "name": "error", "from": ["fit", "y"]}]
    run(spec, trials=1)
    changes, path, before, after = CHANGES[change]
    for name, value in changes.items():
        section, field = name.split(".")
        if isinstance(value, dict):
            fields = spec[section][field]
            value = {key: {**fields.get(key, {}), **item} for key, item in {**fields, **value}.items() if item}
        spec[section][field] = value
    with pytest.raises(InputError) as caught:
        run(spec, trials=2, resume=True)
    problems = {problem.path: problem for problem in caught.value.problems}
    assert (problems[path].expected, problems[path].got) == (before, after)
    assert f"`{path}` has changed since the search in runs/line-search began" in str(caught.value)
    assert "restore the earlier value, or start a new search: leave out `resume`" in str(caught.value)
    assert problems[path].location is not None


def test_a_resumed_search_may_choose_values_in_another_way(training: Make) -> None:
    fields = {RATE: {"low": 0.01, "high": 0.1, "step": 0.01}}
    run(training(fields, sampler="random"), trials=1)
    spec = training(fields, sampler="tpe", pruner="none", batch=1, seed=3, baseline=True)
    trials = run(spec, trials=3, resume=True).trials
    assert [trial.baseline for trial in trials] == [False, True, False]


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


def test_test_data_chooses_nothing_and_shows_the_result(training: Make, tmp_path: Path) -> None:
    with np.load("line.npz") as arrays:
        # The test data has the opposite sign of the training and validation data.
        np.savez("other.npz", x=arrays["x"][:40], y=-arrays["y"][:40])
    source = {"source": "npz", "path": str(tmp_path / "line.npz"), "batch_size": 32}
    other = source | {"path": str(tmp_path / "other.npz")}
    data = {"train": source, "validation": source, "test": other}
    spec = training({RATE: {"choices": [1e-4, 0.1]}}, data=data, baseline=True, sampler="grid")
    spec["solver"]["learning_rate"] = 1e-4
    result = run(spec)
    assert (result.monitor, result.warning) == ("validation/loss", None)
    assert (result.best.fields, result.baseline.fields) == ({RATE: 0.1}, {RATE: 1e-4})
    best, before = (netspec.test(trial.run_dir, device="reference").loss for trial in (result.best, result.baseline))
    assert best is not None
    assert before is not None
    assert best > before
    assert result.is_confirmed is False
    read = read_search(result.folder)
    assert read.as_json()["test"] == {
        "best": {"values": {"test/loss": best}, "samples": 40},
        "baseline": {"values": {"test/loss": before}, "samples": 40},
    }
    page = netspec.report(result.folder, output="page.html").read_text()
    assert f"With the values in the file (trial 0): validation/loss {result.baseline.value:.6g}, test/loss" in page
    assert "The test data has 40 samples, which chose neither the weights nor the trial" in page


def test_a_choice_by_the_test_data_is_noted(training: Make, tmp_path: Path) -> None:
    source = {"source": "npz", "path": str(tmp_path / "line.npz"), "batch_size": 32}
    result = run(training({RATE: {"choices": [0.1]}}, data={"train": source, "test": source}, trials=1))
    assert result.monitor == "test/loss"
    assert "optimistic" in result.warning
    assert result.test_result(result.best) is None
    assert result.is_confirmed is None


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

    def kill_the_first(self: ProcessTrainer, tasks: Any) -> None:
        submit(self, tasks)
        if not killed:
            self._processes[0][0].kill()
            killed.extend(task.trial.number for task in tasks)

    spec = training({RATE: {"choices": [0.01, 0.03, 0.1]}}, sampler="grid", pruner="none")
    monkeypatch.setattr(ProcessTrainer, "submit", kill_the_first)
    result = run(spec, jobs=2)
    assert len(killed) == 2, "a batch"
    assert [trial.state for trial in sorted(result.trials, key=lambda trial: trial.number not in killed)] == [
        "failed", "failed", "complete",
    ]  # fmt: skip
    assert all("was killed" in str(trial.message) for trial in result.trials if trial.state == "failed")


def weights(trial: Any) -> dict[str, Any]:
    """The weights of the best and of the last step, under different names."""
    files = {name: read_weights(trial.run_dir / name).arrays for name in ("best.h5", "weights.h5")}
    return {f"{file}/{name}": array for file, arrays in files.items() for name, array in arrays.items()}


def losses(trial: Any) -> list[tuple[int, float]]:
    """The losses in the log."""
    return [(event["step"], event["loss"]) for event in read_log(trial.run_dir / "log.jsonl") if "loss" in event]


def assert_alike(alone: Any, batched: Any) -> None:
    """Trials with the same values have bit-identical losses and weights."""
    assert alone.fields == batched.fields
    assert (alone.value, alone.state) == (batched.value, batched.state)
    assert losses(alone) == losses(batched)
    expected, found = weights(alone), weights(batched)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "momentum": (
        {RATE: {"low": 0.01, "high": 0.1}, "solver.momentum": {"low": 0.1, "high": 0.9},
         "solver.weight_decay": {"low": 1e-4, "high": 0.1, "log": True}},
        {"type": "SGD", "learning_rate": 0.1, "momentum": 0.5},
    ),
    "adamw": (
        {"solver.beta_1": {"low": 0.1, "high": 0.9}, "solver.epsilon": {"low": 1e-8, "high": 1e-3, "log": True},
         "solver.weight_decay": {"low": 0.01, "high": 0.1}, "solver.global_clipnorm": {"low": 0.1, "high": 1.0},
         "solver.ema.decay": {"low": 0.5, "high": 0.9}},
        {"type": "AdamW", "learning_rate": 0.1, "ema": {"decay": 0.9}},
    ),
    "seed": ({"train.seed": {"low": 1, "high": 1000}}, {"type": "Adam", "learning_rate": 0.1}),
    "rates of layers": (
        {"net.layers.drop.rate": {"low": 0.1, "high": 0.6},
         "net.layers.fit.kernel_regularizer.l2": {"low": 1e-4, "high": 1e-2}},
        {"type": "RMSprop", "learning_rate": 0.01},
    ),
}  # fmt: skip


def of_case(training: Make, name: str) -> dict[str, Any]:
    """A search over the numbers of a case, in a net with dropout and running statistics, on shuffled samples."""
    fields, solver = CASES[name]
    spec = training(fields, sampler="random", pruner="none", trials=3)
    spec["solver"] = solver
    spec["data"] = {split: {**source, "shuffle": True} for split, source in spec["data"].items()}
    spec["data"]["train"]["batch_size"] = 40
    spec["net"]["layers"] = [
        {"type": "BatchNormalization"},
        {"type": "Dropout", "name": "drop", "rate": 0.2},
        {"type": "Dense", "name": "fit", "units": 1, "kernel_regularizer": {"type": "L2", "l2": 0.001}},
    ]
    return spec


@pytest.mark.parametrize("case", ["adamw", "seed", "momentum"])  # a slow test trains with rates of layers
def test_trials_of_a_batch_compute_what_they_compute_alone(training: Make, case: str) -> None:
    spec = of_case(training, case)
    alone, batched = (run(spec, run_dir=f"{size}", overrides=[f"search.batch={size}"]) for size in (1, 3))
    assert [trial.batch for trial in alone.trials] == [()] * 3
    assert [trial.batch for trial in batched.trials] == [(0, 1, 2)] * 3
    for one, other in zip(alone.trials, batched.trials, strict=True):
        assert_alike(one, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["adamw", "seed", "rates of layers", pytest.param("momentum", marks=pytest.mark.exhaustive)]
)
def test_compiled_kernels_compute_the_same_with_numbers_from_states(training: Make, case: str) -> None:
    spec = of_case(training, case)
    spec["search"]["trials"] = 2
    alone, batched = (netspec.search(spec, [f"search.batch={size}"], run_dir=f"{size}") for size in (1, 2))
    for one, other in zip(alone.trials, batched.trials, strict=True):
        assert_alike(one, other)


def test_trials_that_differ_in_more_than_numbers_run_their_own_programs(training: Make) -> None:
    fields = {"solver.type": {"choices": ["SGD", "Adam"]}, RATE: {"choices": [0.01, 0.1]}}
    spec = training(fields, sampler="grid", pruner="none")
    result = run(spec)
    batches = {trial.fields["solver.type"]: set[int]() for trial in result.trials}
    for trial in result.trials:
        batches[trial.fields["solver.type"]].add(trial.number)
    assert all(set(trial.batch) == batches[trial.fields["solver.type"]] for trial in result.trials)
    for trial in result.trials:
        again = netspec.train(spec, device="reference", run_dir=f"again-{trial.number}", **trial.fields)
        assert again.validation is not None
        assert again.validation.loss == trial.value


def test_a_trial_that_fails_does_not_disturb_those_of_its_batch(training: Make) -> None:
    spec = training({RATE: {"choices": [0.1, 1e30, 0.01]}}, sampler="grid", pruner="none")
    alone, batched = (run(spec, run_dir=f"{size}", overrides=[f"search.batch={size}"]) for size in (1, 3))
    for one, other in zip(*(sorted(result.trials, key=lambda t: t.number) for result in (alone, batched)), strict=True):
        assert other.batch == (0, 1, 2)
        if one.state == "complete":
            assert_alike(one, other)
        else:
            assert (one.message, one.state) == (other.message, other.state)


def test_an_interrupted_batch_keeps_what_has_ended_and_continues(
    training: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = training({RATE: {"choices": [0.1, 1e30, 0.01]}}, sampler="grid", pruner="none")
    whole = run(spec, run_dir="whole")
    ends, evaluations = Pruner.should_prune, 0

    def interrupted(self: Pruner, value: float, evaluation: int) -> bool:
        nonlocal evaluations
        evaluations += 1
        if evaluations == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return ends(self, value, evaluation)

    with monkeypatch.context() as patch:
        patch.setattr(Pruner, "should_prune", interrupted)
        with pytest.raises(Interrupted):
            run(spec, run_dir="parts")
    result = run(spec, run_dir="parts", resume=True)
    by_rate = [{trial.fields[RATE]: trial for trial in each.trials} for each in (whole, result)]
    assert by_rate[0].keys() == by_rate[1].keys()
    for rate in (0.1, 0.01):
        assert_alike(by_rate[0][rate], by_rate[1][rate])
    assert by_rate[1][1e30].batch == (0, 1, 2), "it had failed before the interruption"


def signal_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Send a signal to this process after the first evaluation of trial 0."""

    def signaled(self: Pruner, value: float, evaluation: int) -> bool:
        if evaluation == 1 and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        return False

    sent: list[int] = []
    monkeypatch.setattr(Pruner, "should_prune", signaled)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the trials of a batch one after the other, as on a GPU, or for large nets."""
    monkeypatch.setattr(Lockstep, "has_room", lambda self, count: False)


@pytest.mark.usefixtures("one_at_a_time")
def test_no_trial_of_a_batch_starts_after_an_interruption(training: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = training({RATE: {"choices": [0.1, 0.03, 0.01]}}, sampler="grid", pruner="none")
    with monkeypatch.context() as patch:
        signal_at(patch, signal.SIGINT)
        with pytest.raises(Interrupted):
            run(spec, run_dir="parts")
    assert [path.name for path in Path("parts").glob("trial-*")] == ["trial-0000"]
    assert [trial.state for trial in run(spec, run_dir="parts", resume=True).trials] == ["complete"] * 3


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("stages", [{}, {"stages": [{"name": "whole", "max_epochs": 3}]}], ids=["", "stages"])
def test_a_process_that_is_asked_to_stop_returns_all_trials_of_its_batch(
    training: Make, monkeypatch: pytest.MonkeyPatch, stages: dict[str, Any]
) -> None:
    submitted: list[TrialTask] = []
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "submit", lambda self, tasks: submitted.extend(tasks))
        spec = training({RATE: {"choices": [0.1, 0.03, 0.01]}}, sampler="grid", pruner="none") | stages
        with pytest.raises(RunError, match="no trial was started"):
            run(spec, run_dir="parts")

    class ParentConnection:
        """Deliver the batch once, and record what the process returns."""

        def __init__(self) -> None:
            self.batches, self.outcomes = [submitted], dict[int, TrialOutcome]()

        def recv(self) -> list[TrialTask]:
            if not self.batches:
                raise EOFError
            return self.batches.pop()

        def send(self, ended: tuple[int, TrialOutcome]) -> None:
            self.outcomes.update([ended])

    monkeypatch.delattr(os, "setsid", raising=False)
    signal_at(monkeypatch, signal.SIGTERM)
    connection: Any = ParentConnection()
    _serve_tasks(connection)
    assert {number: outcome.interrupted for number, outcome in connection.outcomes.items()} == {
        0: True, 1: True, 2: True,
    }  # fmt: skip
    assert [path.name for path in Path("parts").glob("trial-*")] == ["trial-0000"]


def test_a_failed_report_stops_the_other_trials_of_the_batch(training: Make) -> None:
    def fail(trial: Any, best: Any) -> None:
        raise BrokenPipeError

    spec = training({RATE: {"choices": [0.1, 1e30, 0.01]}}, sampler="grid", pruner="none")
    with pytest.raises(BrokenPipeError):
        run(spec, run_dir="parts", report=fail)
    ends = {path.parent.name: list(read_log(path))[-1]["event"] for path in Path("parts").glob("*/log.jsonl")}
    assert sorted(ends.values()) == ["error", "stopped", "stopped"]
    states = {trial.fields[RATE]: trial.state for trial in run(spec, run_dir="parts", resume=True).trials}
    assert states == {0.1: "complete", 1e30: "failed", 0.01: "complete"}

"""Further sets in `data.evaluate`: evaluated with the validation data, logged by name, and monitored on request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.cli import main
from netspec.errors import InputError
from netspec.schema.load import load_train
from netspec.training.run import Interrupted

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def with_sets(spec: Make, points: Path) -> Make:
    """Return a function that returns the small training with validation data and the sets `night` and `day`.

    `night` has 20 samples and is noisy, `day` has 30.
    """
    arrays = dict(np.load(points / "test.npz"))
    noise = np.random.default_rng(5).normal(size=arrays["x"].shape).astype(np.float32)
    for name, x, count in (
        ("validation", arrays["x"], 40), ("night", arrays["x"] + 2 * noise, 20), ("day", arrays["x"] - 0.1, 30),
    ):  # fmt: skip
        np.savez(points / f"{name}.npz", x=x[:count], label=arrays["label"][:count])

    def make(**loop: Any) -> dict[str, Any]:
        training = spec(**{"test_every": 16, **loop})
        splits = {
            name: {**training["data"]["test"], "path": str(points / f"{name}.npz")}
            for name in ("validation", "night", "day")
        }
        validation = splits.pop("validation")
        return {**training, "data": {**training["data"], "validation": validation, "evaluate": splits}}

    return make


def evaluations(folder: Path) -> list[tuple[int, str, int]]:
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(event["step"], event["split"], event["samples"]) for event in events if event["event"] == "test"]


def test_further_sets_are_evaluated_with_the_validation_data_and_decide_nothing(
    with_sets: Make, tmp_path: Path
) -> None:
    run = netspec.train(with_sets(), run_dir=tmp_path / "run")
    training = with_sets()
    del training["data"]["evaluate"]
    plain = netspec.train(training, run_dir=tmp_path / "plain")
    at_once = [("validation", 40), ("night", 20), ("day", 30)]
    expected = [(step, *each) for step in (16, 32, 40) for each in at_once]
    assert evaluations(run.run_dir) == [*expected, (run.weights_step, "test", 57)]
    assert run.best == plain.best
    assert run.weights.read_bytes() == plain.weights.read_bytes()
    assert run.validation is not None
    assert {name: other.samples for name, other in run.validation.others.items()} == {"night": 20, "day": 30}
    evaluated = netspec.test(run.run_dir / "spec.yaml", weights=run.weights, split="night")
    assert evaluated.values() == run.validation.others["night"].values()
    text = (run.run_dir / "log.txt").read_text()
    assert "step 16 night loss " in text
    assert ", night loss " in text.splitlines()[-1]


def test_a_further_set_can_decide(with_sets: Make, tmp_path: Path) -> None:
    early = {"patience": 1, "start_after": 1}
    spec = with_sets(test_every=4, monitor="night/accuracy", early_stopping=early)
    run = netspec.train(spec, run_dir=tmp_path / "run")
    assert load_train(run.run_dir / "spec.yaml").train.mode == "max"
    nights = {event["step"]: event["metrics"]["accuracy"] for event in run.history if event.get("split") == "night"}
    best = max(nights.values())
    assert run.best == {"split": "night", "monitor": "accuracy", "mode": "max", "value": best}
    assert run.weights_step == min(step for step, value in nights.items() if value == best)
    assert run.steps < 40
    (listed,) = netspec.runs(tmp_path / "run")
    assert (listed.monitor, listed.best, listed.best_step) == ("night/accuracy", best, run.weights_step)
    assert "(highest night accuracy)" in (run.run_dir / "log.txt").read_text().splitlines()[-1]


@pytest.mark.slow
def test_a_resumed_run_continues_with_the_sets(with_sets: Make, tmp_path: Path) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event["event"] == "test" and (event["step"], event["split"]) == (16, "night"):
            raise InputError("stop here")

    whole = netspec.train(with_sets(monitor="night/loss"), run_dir=tmp_path / "whole")
    with pytest.raises((InputError, Interrupted)):
        netspec.train(with_sets(monitor="night/loss"), run_dir=tmp_path / "parts", listeners=[interrupt])
    rest = netspec.train(with_sets(monitor="night/loss"), run_dir=tmp_path / "parts", resume=True)
    assert rest.best == whole.best
    assert rest.weights.read_bytes() == whole.weights.read_bytes()
    again = netspec.train(with_sets(monitor="night/loss"), run_dir=tmp_path / "parts", resume=True)
    assert again.best == whole.best


def test_commands_show_the_sets(with_sets: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rate in (("a", 0.01), ("b", 0.02)):
        spec = with_sets()
        spec["solver"]["learning_rate"]["initial"] = rate
        netspec.train(spec, run_dir=tmp_path / name)
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert all("night/accuracy" in run["metrics"] for run in json.loads(capsys.readouterr().out))
    assert main(["plot", str(tmp_path / "a"), "--metric", "loss", "--json"]) == 0
    (chart,) = json.loads(capsys.readouterr().out)
    assert [curve["name"] for curve in chart["curves"]] == ["training", "validation", "test", "night", "day"]
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "night/accuracy: " in capsys.readouterr().out
    assert main(["test", str(tmp_path / "a"), "--split", "night", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 20
    assert main(["test", str(tmp_path / "a"), "--split", "nigth"]) == 2
    assert "did you mean `night`" in capsys.readouterr().err


def test_samples_in_python_have_the_name_of_the_set(with_sets: Make, points: Path, tmp_path: Path) -> None:
    spec = with_sets()
    spec["data"]["evaluate"]["night"] = {"source": "python", "batch_size": 10}
    arrays = np.load(points / "day.npz")
    samples = [{"x": x, "label": label} for x, label in zip(arrays["x"][:7], arrays["label"][:7], strict=True)]
    run = netspec.train(spec, run_dir=tmp_path / "run", samples={"night": samples})
    assert run.validation is not None
    assert run.validation.others["night"].samples == 7


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"evaluate": {"test": "same"}}, "`test` cannot be the name of a further set"),
        ({"validation": None, "test": None}, "`evaluate` lists further sets, and there is no first one"),
        ({"evaluate": {"night": "balanced"}}, "`data.evaluate.night` is evaluated in full, each sample once"),
        ({"evaluate": {"night/1": "same"}}, "night/1"),
    ],
)
def test_wrong_sets_are_located(with_sets: Make, data: dict[str, Any], message: str) -> None:
    spec = with_sets()
    test = spec["data"]["test"]
    kinds = {"same": test, "balanced": {**test, "sampler": "balanced"}}
    for name, value in data.items():
        spec["data"][name] = {key: kinds[kind] for key, kind in value.items()} if isinstance(value, dict) else value
    spec["data"] = {name: value for name, value in spec["data"].items() if value is not None}
    with pytest.raises(InputError) as error:
        load_train(spec)
    assert message in str(error.value)


def test_an_unknown_monitored_value_lists_those_of_the_sets(with_sets: Make) -> None:
    with pytest.raises(InputError, match="there is no loss or metric `night/acuracy`") as error:
        load_train(with_sets(monitor="night/acuracy"))
    assert "did you mean `night/accuracy`" in str(error.value)

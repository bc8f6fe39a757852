"""`train.monitor` decides the best weights, early stopping, and the weights that a run ends with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from netspec.schema.load import load_train
from netspec.schema.specs.monitor import Monitor
from netspec.training import loop
from netspec.training.evaluation import Evaluation
from netspec.training.progress import Progress

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[tuple[float, float]]], list[bytes]]:
    """Replace evaluations during the training by pairs of loss and accuracy; return the list of evaluated weights."""

    def replace(evaluations: list[tuple[float, float]]) -> list[bytes]:
        values: Iterator[tuple[float, float]] = iter(evaluations)
        evaluated: list[bytes] = []

        def evaluate(compiler: Any, loader: Any, session: Any) -> Evaluation:
            evaluated.append(np.array(compiler.weights()["logits/kernel"]).tobytes())
            loss, accuracy = next(values)
            return Evaluation(57, loss, {"accuracy": accuracy})

        monkeypatch.setattr(loop, "evaluate", evaluate)
        return evaluated

    return replace


def kernel(path: Path) -> bytes:
    return bytes(read_weights(path).arrays["logits/kernel"].tobytes())


FALLING = [(5.0, 0.2), (4.0, 0.9), (3.0, 0.5), (2.0, 0.4), (1.0, 0.3)]
"""The loss falls; the accuracy is highest at the second evaluation."""


def test_the_monitored_metric_selects_the_best_weights(spec: Make, tmp_path: Path, evaluations: Any) -> None:
    evaluated = evaluations(FALLING)
    run = netspec.train(spec(test_every=8, monitor="accuracy"), run_dir=tmp_path / "run")
    best = read_weights(run.run_dir / "best.h5")
    assert best.meta["step"] == 16
    assert best.meta["best"] == {"split": "test", "monitor": "accuracy", "mode": "max", "value": 0.9}
    assert kernel(run.run_dir / "best.h5") == evaluated[1]
    assert (run.weights, run.best_weights, run.weights_step) == (run.run_dir / "best.h5", run.weights, 16)
    assert run.test == Evaluation(57, 4.0, {"accuracy": 0.9})
    assert kernel(run.last_weights) == evaluated[4]
    progress = read_checkpoint(run.run_dir / "checkpoints" / "step-00000040.h5").progress
    assert (progress["best_value"], progress["best_step"]) == (0.9, 16)
    assert "done: 40 steps" in (text := (run.run_dir / "log.txt").read_text())
    assert "best at step 16 (highest test accuracy), test loss 4.00000 accuracy 0.90000" in text


def test_a_mode_overrides_the_direction_of_a_metric(spec: Make, tmp_path: Path, evaluations: Any) -> None:
    evaluations(FALLING)
    run = netspec.train(spec(test_every=8, monitor="accuracy", mode="min"), run_dir=tmp_path / "run")
    assert run.weights_step == 8


def test_without_restore_best_a_run_ends_with_its_last_weights(spec: Make, tmp_path: Path, evaluations: Any) -> None:
    evaluations(FALLING)
    run = netspec.train(spec(test_every=8, monitor="accuracy", restore_best=False), run_dir=tmp_path / "run")
    assert (run.weights, run.weights_step) == (run.run_dir / "weights.h5", 40)
    assert run.test == Evaluation(57, 1.0, {"accuracy": 0.3})
    assert read_weights(run.run_dir / "best.h5").meta["step"] == 16


@pytest.mark.parametrize(("restore_best", "file"), [(True, "best.h5"), (False, "weights.h5")])
def test_a_run_directory_stands_for_the_weights_that_the_run_ended_with(
    spec: Make, tmp_path: Path, restore_best: bool, file: str
) -> None:
    training = spec(test_every=4, monitor="accuracy", mode="min", restore_best=restore_best)
    run = netspec.train(training, run_dir=tmp_path / "run")
    assert run.weights == run.run_dir / file
    assert kernel(run.run_dir / "best.h5") != kernel(run.run_dir / "weights.h5")
    assert netspec.load(run.run_dir).parameters["logits/kernel"].tobytes() == kernel(run.weights)
    evaluated = netspec.test(run.run_dir)
    assert run.test is not None
    assert (evaluated.loss, evaluated.metrics) == (run.test.loss, run.test.metrics)
    exported = netspec.export(run.run_dir, tmp_path / "model.npz")
    with np.load(exported.files[0]) as arrays:
        assert arrays["logits/kernel"].tobytes() == kernel(run.weights)


@pytest.mark.parametrize("ema", [False, True])
def test_test_data_is_evaluated_with_the_best_weights_and_states_stay(
    spec: Make, points: Path, tmp_path: Path, ema: bool
) -> None:
    training = spec(test_every=4, monitor="accuracy", mode="min")
    training["data"]["validation"] = training["data"]["test"]
    training["solver"] |= {"ema": {"decay": 0.9}} if ema else {}
    run = netspec.train(training, run_dir=tmp_path / "run")
    assert run.weights_step is not None
    assert run.weights_step < 40
    assert (run.test, kernel(run.weights)) == (run.validation, kernel(run.run_dir / "best.h5"))
    plain = netspec.train(training | {"train": training["train"] | {"restore_best": False}}, run_dir=tmp_path / "last")
    states = [
        read_checkpoint(finished.run_dir / "checkpoints" / "step-00000040.h5").states for finished in (run, plain)
    ]
    assert {name: array.tobytes() for name, array in states[0].items()} == {
        name: array.tobytes() for name, array in states[1].items()
    }
    assert kernel(run.last_weights) == kernel(plain.last_weights)


def test_early_stopping_follows_the_monitor(spec: Make, tmp_path: Path, evaluations: Any) -> None:
    evaluations(FALLING)
    stopping = {"early_stopping": {"patience": 2}, "monitor": "accuracy"}
    run = netspec.train(spec(test_every=8, **stopping), run_dir=tmp_path / "run")
    assert (run.steps, run.weights_step) == (32, 16)
    message = "early stopping after step 32: accuracy has not improved in 2 evaluations"
    assert message in (run.run_dir / "log.txt").read_text()


@pytest.mark.parametrize(("start_after", "steps"), [(0, 24), (2, 40)])
def test_early_stopping_leaves_out_the_first_evaluations(
    spec: Make, tmp_path: Path, evaluations: Any, start_after: int, steps: int
) -> None:
    evaluations([(1.0, 0.9), (3.0, 0.1), (2.0, 0.2), (1.9, 0.3), (1.8, 0.4)])
    stopping = {"patience": 2, "start_after": start_after}
    run = netspec.train(spec(test_every=8, early_stopping=stopping), run_dir=tmp_path / "run")
    assert run.steps == steps


def test_a_resumed_run_stops_at_the_same_step(spec: Make, tmp_path: Path, evaluations: Any) -> None:
    stopping = {"early_stopping": {"patience": 2, "start_after": 1}, "monitor": "accuracy", "test_every": 8}
    values = [(1.0, 0.9), (1.0, 0.5), (1.0, 0.4), (1.0, 0.3), (1.0, 0.2)]
    evaluations(values)
    uninterrupted = netspec.train(spec(**stopping), run_dir=tmp_path / "whole")

    class Stop(netspec.Callback):
        def on_step_end(self, training: loop.TrainingLoop) -> None:
            if training.step == 20:
                training.request_stop("the test")

    evaluations(values[:2])
    with pytest.raises(netspec.Interrupted):
        netspec.train(spec(**stopping), run_dir=tmp_path / "run", callbacks=[Stop()])
    evaluations(values[2:])
    resumed = netspec.train(spec(**stopping), run_dir=tmp_path / "run", resume=True)
    assert (
        (resumed.steps, resumed.weights_step, resumed.test)
        == (uninterrupted.steps, uninterrupted.weights_step, uninterrupted.test)
        == (32, 8, uninterrupted.test)
    )
    assert kernel(resumed.last_weights) == kernel(uninterrupted.last_weights)
    assert kernel(resumed.weights) == kernel(uninterrupted.weights)


def test_another_monitor_starts_the_search_for_the_best_again(spec: Make, tmp_path: Path, evaluations: Any) -> None:
    evaluations(FALLING)
    first = netspec.train(spec(test_every=8, max_steps=24), run_dir=tmp_path / "run")
    assert first.weights_step == 24
    evaluations([(2.0, 0.1), (9.0, 0.8), (8.0, 0.5)])
    second = netspec.train(spec(test_every=8, monitor="accuracy"), run_dir=tmp_path / "run", resume=True)
    assert (second.weights_step, second.best) == (
        32, {"split": "test", "monitor": "accuracy", "mode": "max", "value": 0.8}
    )  # fmt: skip


def test_missing_best_weights_are_found_again(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(test_every=8), run_dir=tmp_path / "run")
    (run.run_dir / "best.h5").unlink()
    resumed = netspec.train(spec(test_every=8), run_dir=tmp_path / "run", resume=True)
    assert (resumed.weights, resumed.weights_step) == (run.run_dir / "best.h5", 40)
    assert "best.h5 is missing: the best evaluation so far does not count" in (run.run_dir / "log.txt").read_text()


def test_a_checkpoint_with_only_the_lowest_loss_can_be_read() -> None:
    """Checkpoints of version 0.2 and earlier look like this."""
    progress = Progress.from_json({"step": 3, "best_loss": 0.5, "best_step": 2})
    assert (progress.best_value, progress.best_step, progress.best_evaluation) == (0.5, 2, None)


def test_modes_come_from_the_metrics_of_the_net(spec: Make) -> None:
    plateau = {"type": "ReduceLROnPlateau", "schedule": 0.01, "monitor": "accuracy"}
    training = spec(monitor="accuracy") | {
        "solver": {"type": "SGD", "learning_rate": plateau},
        "callbacks": [{"type": "EarlyStopping", "monitor": "accuracy"}, {"type": "EarlyStopping"}],
    }
    loaded: Any = load_train(training)
    parts = [loaded.train, loaded.solver.learning_rate, *loaded.callbacks]
    assert [part.mode for part in parts] == ["max", "max", "max", "min"]


def test_a_metric_without_a_direction_needs_a_mode(spec: Make) -> None:
    training = spec(monitor="size")
    training["net"] = training["net"] | {"metrics": [{"type": "Sum", "name": "size", "from": "logits"}]}
    with pytest.raises(InputError, match="`mode` is required for `size`"):
        load_train(training)
    training["train"]["mode"] = "min"
    assert load_train(training).train.mode == "min"


def test_a_monitor_that_does_not_exist_is_refused(spec: Make) -> None:
    with pytest.raises(InputError, match=r"no loss or metric `acuracy`[\s\S]*did you mean `accuracy`"):
        load_train(spec(monitor="acuracy"))
    with pytest.raises(InputError, match="`early_stopping` needs evaluations during training"):
        load_train(spec(early_stopping={}, test_every=0))


@pytest.mark.parametrize(
    ("mode", "value", "best", "margin", "improves"),
    [
        ("min", 1.0, None, 0.0, True), ("min", 1.0, 1.0, 0.0, False), ("min", 0.5, 1.0, 0.5, False),
        ("max", 1.5, 1.0, 0.4, True), ("max", 1.0, 1.5, 0.0, False), ("max", float("nan"), None, 0.0, False),
        ("max", float("nan"), 1.0, 0.0, False),
    ],
)  # fmt: skip
def test_improvement(mode: Any, value: float, best: float | None, margin: float, improves: bool) -> None:
    assert Monitor(monitor="m", mode=mode).improves(value, best, margin) is improves


def test_the_command_names_the_weights_and_their_evaluation(
    spec: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from netspec.cli.app import run as main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(json.dumps(spec(test_every=4, monitor="accuracy", mode="min")))
    assert main(["train", "train.yaml", "--run-dir", "run"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "weights: run/best.h5" in lines
    assert lines[lines.index("next:") + 1 :] == [
        "  netspec test run --report",
        "  netspec export run --output run/model.onnx",
    ]
    [done] = [line for line in lines if line.startswith("done: ")]
    step = read_weights(tmp_path / "run" / "best.h5").meta["step"]
    assert f", best at step {step} (lowest test accuracy), test loss " in done
    assert main(["test", "run"]) == 0
    note = f"note: using the weights in run/best.h5, best at step {step} (lowest test accuracy)\n"
    assert note in capfd.readouterr().err

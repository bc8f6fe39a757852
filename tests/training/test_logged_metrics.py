"""Metrics of the training batches and gradient norms in the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.compile import ProgramKind
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.training.loop import TrainingLoop
from tests.training.conftest import NET

Make = Callable[..., dict[str, Any]]
PLAIN = {**NET, "layers": [NET["layers"][0], NET["layers"][3]]}
"""The net without dropout and batch statistics: the same in training and evaluation."""


def logged(run: netspec.Run) -> list[dict[str, Any]]:
    return [event for event in run.history if event["event"] == "log"]


def test_metrics_of_an_epoch_equal_an_evaluation_with_the_same_weights(spec: Make, tmp_path: Path) -> None:
    training = spec(max_steps=None, max_epochs=2, log_every=8) | {"net": PLAIN}
    training["solver"] = {"type": "SGD", "learning_rate": 1e-30}
    training["data"]["test"] = {**training["data"]["train"], "shuffle": False}
    run = netspec.train(training, run_dir=tmp_path / "run", device="reference")
    assert run.test is not None
    first, remaining, second = logged(run)  # steps 1, 2 to 8, and 9 to 16
    assert second["metrics"] == run.test.metrics
    samples = {"first": 32, "rest": 230 - 32}
    together = (
        first["metrics"]["accuracy"] * samples["first"] + remaining["metrics"]["accuracy"] * samples["rest"]
    ) / 230
    assert together == pytest.approx(run.test.metrics["accuracy"], abs=1e-12)
    assert "accuracy 0." in (run.run_dir / "log.txt").read_text().splitlines()[1]


def test_logging_metrics_and_norms_does_not_change_the_weights(spec: Make, tmp_path: Path) -> None:
    stored = []
    for name, on in (("a", True), ("b", False)):
        training = spec(log_metrics=on, log_gradient_norm=on, restore_best=False)
        run = netspec.train(training, run_dir=tmp_path / name)
        stored.append(read_weights(run.weights).arrays)
        assert all(("metrics" in event, "gradient_norm" in event) == (on, on) for event in logged(run))
    assert all(np.array_equal(array, stored[1][name]) for name, array in stored[0].items())


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.slow
def test_a_resumed_run_logs_the_same_metrics(spec: Make, tmp_path: Path, accumulate: int) -> None:
    class Stop(netspec.Callback):
        def on_step_end(self, training: TrainingLoop) -> None:
            if training.step == 7:
                training.request_stop("the test")

    whole = netspec.train(spec(max_steps=20, accumulate=accumulate), run_dir=tmp_path / "whole")
    with pytest.raises(netspec.Interrupted):
        netspec.train(spec(max_steps=20, accumulate=accumulate), run_dir=tmp_path / "parts", callbacks=[Stop()])
    resumed = netspec.train(spec(max_steps=20, accumulate=accumulate), run_dir=tmp_path / "parts", resume=True)
    names = "step", "loss", "metrics", "gradient_norm"
    expected, actual = ([{name: event[name] for name in names} for event in logged(run)] for run in (whole, resumed))
    assert [event["step"] for event in expected] == [1, 10, 20]
    assert actual == expected


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("solver", [{"global_clipnorm": 1e-3}, {}])
def test_the_gradient_norm_covers_all_gradients_before_clipping(
    spec: Make, tmp_path: Path, accumulate: int, solver: dict[str, Any]
) -> None:
    norms = []

    class Norms(netspec.Callback):
        def on_train_start(self, training: TrainingLoop) -> None:
            batches = [batch for batch, _ in zip(training.loader, range(accumulate), strict=False)]
            total: dict[str, Any] = {}
            for batch in batches:
                program = training.compiler.program(ProgramKind.GRADIENTS, len(batch))
                results = program({**batch.inputs, "$rng": np.array([0, 0, 0])})
                for name, value in results.items():
                    if name.startswith("gradient/"):
                        total[name] = total.get(name, 0) + value / accumulate
            norms.append(np.sqrt(sum(float((value.astype(np.float64) ** 2).sum()) for value in total.values())))
            training.loader.seek(*training.position)

    training = spec(max_steps=1, accumulate=accumulate, log_gradient_norm=True) | {"net": PLAIN}
    training["solver"] = {"type": "SGD", "learning_rate": 0.1, **solver}
    run = netspec.train(training, run_dir=tmp_path / "run", callbacks=[Norms()], device="reference")
    assert logged(run)[0]["gradient_norm"] == pytest.approx(norms[0], rel=1e-5)


def test_the_norm_is_logged_by_default_if_clipping_computes_it(spec: Make, tmp_path: Path) -> None:
    clipped = netspec.train(spec(max_steps=2), run_dir=tmp_path / "a")
    assert all("gradient_norm" in event for event in logged(clipped))
    plain = spec(max_steps=2) | {"solver": {"type": "SGD", "learning_rate": 0.1}}
    assert all("gradient_norm" not in event for event in logged(netspec.train(plain, run_dir=tmp_path / "b")))


def test_only_metrics_that_are_means_are_logged(spec: Make, tmp_path: Path) -> None:
    metrics = [*PLAIN["metrics"], {"type": "ConfusionMatrix", "name": "table", "from": ["logits", "label"]}]
    training = spec(max_steps=2) | {"net": {**PLAIN, "metrics": metrics}}
    run = netspec.train(training, run_dir=tmp_path / "run")
    assert [list(event["metrics"]) for event in logged(run)] == [["accuracy"], ["accuracy"]]


def test_a_full_batch_solver_logs_what_its_steps_start_from(spec: Make, tmp_path: Path) -> None:
    full = spec(max_steps=None, max_epochs=2, accumulate=8, log_gradient_norm=True, log_every=1, restore_best=False)
    full |= {"net": PLAIN, "solver": {"type": "LBFGS"}}
    full["data"]["test"] = {**full["data"]["train"], "shuffle": False}
    run = netspec.train(full, run_dir=tmp_path / "run", device="reference")
    first, second = logged(run)
    tested = [event for event in run.history if event["event"] == "test"]
    assert second["metrics"]["accuracy"] == pytest.approx(tested[0]["metrics"]["accuracy"], abs=1e-12)
    assert first["metrics"]["accuracy"] != second["metrics"]["accuracy"]
    plain = full | {"solver": {"type": "SGD", "learning_rate": 0.1}}
    step = netspec.train(plain, run_dir=tmp_path / "plain", device="reference")
    assert first["gradient_norm"] == pytest.approx(logged(step)[0]["gradient_norm"], rel=1e-4)


def test_metrics_that_change_on_resume_start_again(spec: Make, tmp_path: Path) -> None:
    training = spec(max_steps=5, log_every=100) | {"net": PLAIN}
    netspec.train(training, run_dir=tmp_path / "run")
    other = [{"type": "SparseTopKCategoricalAccuracy", "k": 2, "name": "top2", "from": ["logits", "label"]}]
    changed = spec(max_steps=9, log_every=100) | {"net": {**PLAIN, "metrics": other}}
    run = netspec.train(changed, run_dir=tmp_path / "run", resume=True)
    assert list(logged(run)[-1]["metrics"]) == ["top2"]

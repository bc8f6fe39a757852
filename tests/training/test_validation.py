"""Validation data is evaluated during the training, and selects weights; test data is evaluated once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.cli import main
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from netspec.schema.load import load_train
from netspec.tools.comparing.run_curves import read_run_log, run_charts
from netspec.training.loop import TrainingLoop
from netspec.training.plotting.charts import AxisScale

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def with_validation(spec: Make, points: Path) -> Make:
    """Return a function that returns the small training with 40 validation samples, a quarter of them mislabeled."""
    arrays = dict(np.load(points / "test.npz"))
    labels = np.where(np.arange(40) % 4 == 0, (arrays["label"][:40] + 1) % 3, arrays["label"][:40])
    np.savez(points / "validation.npz", x=arrays["x"][:40] + 0.25, label=labels)

    def make(**loop: Any) -> dict[str, Any]:
        training = spec(**loop)
        split = {**training["data"]["test"], "path": str(points / "validation.npz")}
        return {**training, "data": {**training["data"], "validation": split}}

    return make


def evaluations(folder: Path) -> list[tuple[int, str, int]]:
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(event["step"], event["split"], event["samples"]) for event in events if event["event"] == "test"]


def arrays(path: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in read_weights(path).arrays.items()}


def test_validation_data_is_evaluated_during_the_training_and_test_data_once(
    with_validation: Make, tmp_path: Path
) -> None:
    run = netspec.train(with_validation(test_every=16), run_dir=tmp_path / "run")
    assert evaluations(run.run_dir) == [
        (16, "validation", 40), (32, "validation", 40), (40, "validation", 40), (16, "test", 57)
    ]  # fmt: skip
    assert run.validation is not None
    assert run.test is not None
    assert (run.validation.samples, run.test.samples) == (40, 57)
    assert [event.get("split") for event in run.history if event["step"] == 40] == [None, "validation"]
    spec_file = run.run_dir / "spec.yaml"
    evaluated = netspec.test(spec_file, weights=run.weights, split="validation")
    assert (evaluated.loss, evaluated.metrics) == (run.validation.loss, run.validation.metrics)
    assert netspec.test(spec_file, weights=run.weights).metrics == run.test.metrics
    text = (run.run_dir / "log.txt").read_text()
    assert "step 16 validation loss " in text
    assert "step 16 (best weights) test loss " in text


def test_the_last_checkpoint_holds_both_evaluations(with_validation: Make, tmp_path: Path) -> None:
    run = netspec.train(with_validation(), run_dir=tmp_path / "run")
    progress = read_checkpoint(run.run_dir / "checkpoints" / "step-00000040.h5").progress
    assert (progress["validated_step"], progress["tested_step"]) == (40, 40)
    assert run.test is not None
    assert progress["last_test"]["loss"] == run.test.loss != progress["last_validation"]["loss"]


def test_validation_data_decides_the_best_weights(with_validation: Make, tmp_path: Path) -> None:
    run = netspec.train(with_validation(test_every=4), run_dir=tmp_path / "run")
    losses = {
        event["step"]: event["loss"]
        for event in run.history
        if event["event"] == "test" and event["split"] == "validation"
    }
    assert read_weights(run.run_dir / "best.h5").meta["step"] == min(losses, key=lambda step: losses[step])


def test_only_validation_data_reaches_callbacks_early_stopping_and_schedules(
    with_validation: Make, tmp_path: Path
) -> None:
    class Recorder(netspec.Callback):
        def __init__(self) -> None:
            self.samples: list[int] = []

        def on_evaluation_end(self, training: TrainingLoop, evaluation: Any) -> None:
            self.samples.append(evaluation.samples)

    recorder = Recorder()
    training = with_validation(test_every=4, max_steps=400)
    training["callbacks"] = [{"type": "EarlyStopping", "monitor": "accuracy", "mode": "max", "min_delta": 0.9}]
    del training["data"]["test"]
    stopped = netspec.train(training, run_dir=tmp_path / "stopped", callbacks=[recorder])
    assert (stopped.steps, recorder.samples, stopped.test) == (16, [40] * 4, None)
    training = with_validation(test_every=8)
    training["solver"] = {"type": "Adam", "learning_rate": {
        "type": "ReduceLROnPlateau", "schedule": 0.01, "monitor": "accuracy", "mode": "max", "threshold": 1.0,
        "patience": 2,
    }}  # fmt: skip
    progress = read_checkpoint(
        netspec.train(training, run_dir=tmp_path / "plateau").run_dir / "checkpoints" / "step-00000040.h5"
    ).progress
    [state] = progress["seen"].values()
    # The first of five evaluations is the best, so the next four cause two reductions; the test does not count.
    assert (state["reductions"], state["waited"]) == (2, 0)


@pytest.mark.slow
def test_a_resumed_run_evaluates_the_same(with_validation: Make, tmp_path: Path) -> None:
    class Stop(netspec.Callback):
        def on_step_end(self, training: TrainingLoop) -> None:
            if training.step == 20:
                training.request_stop("the test")

    uninterrupted = netspec.train(with_validation(test_every=8), run_dir=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        netspec.train(with_validation(test_every=8), run_dir=tmp_path / "parts", callbacks=[Stop()])
    assert "test" not in [split for _, split, _ in evaluations(tmp_path / "parts")]
    parts = netspec.train(with_validation(test_every=8), run_dir=tmp_path / "parts", resume=True)
    assert evaluations(parts.run_dir) == evaluations(uninterrupted.run_dir)
    assert (parts.test, parts.validation) == (uninterrupted.test, uninterrupted.validation)
    for name in ("weights.h5", "best.h5"):
        assert arrays(parts.run_dir / name) == arrays(uninterrupted.run_dir / name)
    before = len(evaluations(parts.run_dir))
    complete = netspec.train(with_validation(test_every=8), run_dir=tmp_path / "parts", resume=True)
    assert len(evaluations(complete.run_dir)) == before
    assert complete.test == uninterrupted.test


def test_validation_data_may_change_in_a_resumed_run(with_validation: Make, tmp_path: Path) -> None:
    netspec.train(with_validation(), run_dir=tmp_path / "run")
    training = with_validation()
    training["data"]["validation"]["limit"] = 9
    run = netspec.train(training, run_dir=tmp_path / "run", resume=True)
    assert evaluations(run.run_dir)[-2:] == [(40, "validation", 9), (40, "test", 57)]


def test_charts_show_both_curves(with_validation: Make, tmp_path: Path) -> None:
    run = netspec.train(with_validation(test_every=8), run_dir=tmp_path / "run")
    loss, accuracy = run_charts([read_run_log(run.run_dir)], AxisScale())
    assert [(curve.name, len(curve.xs)) for curve in loss.curves] == [("training", 5), ("validation", 5), ("test", 1)]
    assert [curve.name for curve in accuracy.curves] == ["training", "validation", "test"]


@pytest.mark.parametrize("name", ["val", "valid", "eval", "dev"])
def test_names_of_other_tools_are_hinted(spec: Make, name: str) -> None:
    training = spec()
    training["data"][name] = training["data"]["test"]
    with pytest.raises(InputError, match="use `validation`"):
        load_train(training)


def test_a_missing_split_is_named(spec: Make, tmp_path: Path) -> None:
    run = netspec.train(spec(max_steps=1), run_dir=tmp_path / "run")
    with pytest.raises(InputError, match="there is no validation data"):
        netspec.test(run.run_dir, split="validation")
    with pytest.raises(InputError, match="there is no such split"):
        netspec.test(run.run_dir, split="tset")


def held_out(training: dict[str, Any], **split: Any) -> dict[str, Any]:
    """Return the training with validation and test data held out from the training data."""
    return {**training, "data": {"train": {**training["data"]["train"], "split": split}}}


def test_a_divided_source_trains_and_resumes_bit_identically(spec: Make, tmp_path: Path) -> None:
    split = {"validation": 0.2, "test": 0.1, "stratify": "label"}
    uninterrupted = netspec.train(held_out(spec(test_every=8), **split), run_dir=tmp_path / "whole")
    assert evaluations(uninterrupted.run_dir)[-2:] == [(40, "validation", 46), (40, "test", 23)]
    netspec.train(held_out(spec(test_every=8, max_steps=20), **split), run_dir=tmp_path / "parts")
    parts = netspec.train(tmp_path / "parts" / "spec.yaml", resume=True, **{"train.max_steps": 40})
    assert arrays(tmp_path / "parts" / "best.h5").keys() == arrays(tmp_path / "whole" / "best.h5").keys()
    assert parts.steps == 40
    assert netspec.test(parts.run_dir / "spec.yaml", weights=parts.weights).samples == 23
    changed = held_out(spec(test_every=8), **split, seed=2)
    with pytest.raises(InputError, match=r"data\.train\.split\.seed` has changed"):
        netspec.train(changed, run_dir=tmp_path / "whole", resume=True)


def test_an_interrupted_run_of_a_divided_source_ends_with_the_same_weights(spec: Make, tmp_path: Path) -> None:
    class Stop(netspec.Callback):
        def on_step_end(self, training: TrainingLoop) -> None:
            if training.step == 20:
                training.request_stop("the test")

    training = held_out(spec(test_every=8), folds=4, fold=1)
    uninterrupted = netspec.train(training, run_dir=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        netspec.train(training, run_dir=tmp_path / "parts", callbacks=[Stop()])
    parts = netspec.train(training, run_dir=tmp_path / "parts", resume=True)
    assert arrays(parts.weights) == arrays(uninterrupted.weights)
    assert parts.validation == uninterrupted.validation


def test_a_balanced_training_logs_its_counts_and_evaluates_as_before(spec: Make, tmp_path: Path) -> None:
    training = held_out(spec(), test=0.1)
    training["data"]["train"]["sampler"] = "balanced"
    run = netspec.train(training, run_dir=tmp_path / "run")
    text = (run.run_dir / "log.txt").read_text()
    assert text.count("note: sampler: balanced: 69 draws of each class per epoch") == 1
    assert run.test is not None
    assert run.test.samples == 23


def test_a_sampler_is_for_training_data_only(spec: Make) -> None:
    training = spec()
    training["data"]["test"]["sampler"] = "balanced"
    with pytest.raises(InputError, match="each sample once"):
        load_train(training)
    training = spec()
    training["data"]["train"] |= {"sampler": "balanced", "shuffle": {"window": 8}}
    with pytest.raises(InputError, match="cannot be combined"):
        load_train(training)


@pytest.mark.parametrize("kind", ["csv", "image_folder"])
def test_a_test_warns_if_the_divided_data_has_changed(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(start: int, stop: int) -> None:
        for n in range(start, stop):
            if kind == "csv":
                with (tmp_path / "a.csv").open("a") as file:
                    file.write(f"{n}.5,{n % 2}\n")
            else:
                path = tmp_path / "a.csv" / str(n % 2) / f"{n:03}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("L", (2, 2), n).save(path)

    shape, field = ([1, 2, 2], "image") if kind == "image_folder" else ([1], "features")
    net = {
        "netspec": 1, "inputs": {field: {"shape": shape}, "label": {"shape": [], "dtype": "int32"}},
        "layers": [{"type": "Flatten"}, {"type": "Dense", "units": 2}],
        "losses": [{"type": "SparseCategoricalCrossentropy", "from_logits": True}],
    }  # fmt: skip
    form = {"size": [2, 2], "channels": 1} if kind == "image_folder" else {"header": True, "label": "y"}
    split = {"source": kind, "path": "a.csv", **form, "split": {"test": 0.25}, "batch_size": 4}
    train_spec = {
        "netspec": 1, "net": net, "data": {"train": split}, "train": {"max_epochs": 1},
        "solver": {"type": "SGD", "learning_rate": 0.001},
    }  # fmt: skip
    (tmp_path / "train.yaml").write_text(json.dumps(train_spec))
    if kind == "csv":
        (tmp_path / "a.csv").write_text("x,y\n")
    add(0, 40)
    run = netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run")
    capsys.readouterr()
    assert main(["test", str(run.run_dir)]) == 0
    assert "changed" not in capsys.readouterr().err
    add(40, 60)
    assert main(["test", str(run.run_dir), "--json"]) == 0
    output = capsys.readouterr()
    change = (
        "the data has changed since the run (10 test samples then, 15 now): if `split` divides it differently, "
        "these samples include training samples"
    )
    assert f"warning: {change}\n" in output.err
    assert json.loads(output.out)["data_change"] == change
    assert netspec.load(run.run_dir).evaluate(run.run_dir / "spec.yaml").data_change == change

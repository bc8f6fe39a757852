"""Trainings that leave damaged samples out: counted in the log, and the same after a resume."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.cli import main
from netspec.errors import InputError
from netspec.training.events import Event
from netspec.training.run import Interrupted

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def damaged(spec: Make, points: Path) -> Make:
    """The small training, with 12 values of training samples and one of a test sample that are not finite."""
    for name, rows in (("train", [5, 6, 7, 40, 41, 99, 100, 101, 102, 200, 228, 229]), ("test", [3])):
        with np.load(points / f"{name}.npz") as arrays:
            x, label = arrays["x"], arrays["label"]
        x[rows, 2] = np.nan
        np.savez(points / f"{name}.npz", x=x, label=label)

    def make(on_error: str = "skip", **loop: Any) -> dict[str, Any]:
        train_spec = spec(**loop)
        for split in train_spec["data"].values():
            split["on_error"] = on_error
        return train_spec

    return make


def events(folder: Path, *kinds: str) -> list[Event]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] in kinds]


def test_damaged_samples_are_skipped_and_counted(damaged: Make, tmp_path: Path) -> None:
    run = netspec.train(damaged(max_steps=None, max_epochs=3), run_dir=tmp_path / "run")
    assert run.steps == 3 * 7  # 218 intact samples in batches of 32; 230 would be 8 batches
    assert run.skipped == 12  # the same samples in each epoch
    assert run.test is not None
    assert (run.test.samples, run.test.skipped) == (56, 1)
    of_training = [event for event in events(run.run_dir, "skipped") if event["split"] == "train"]
    assert [(event["epoch"], event["samples"]) for event in of_training] == [(1, 12)]
    assert [len(event["examples"]) for event in of_training] == [3]
    of_test = [event for event in events(run.run_dir, "skipped") if event["split"] == "test"]
    assert [(event["samples"], event["examples"]) for event in of_test] == [
        (1, ["a value for `x` is not a finite float32: nan in test.npz, sample 3"])
    ]
    assert [event["step"] for event in events(run.run_dir, "test")] == [7, 14, 21]
    assert [event["skipped"] for event in events(run.run_dir, "test")] == [1, 1, 1]
    assert [event["skipped"] for event in events(run.run_dir, "done")] == [12]
    text = (run.run_dir / "log.txt").read_text()
    assert "skipped: 12 damaged samples of the training data left out in epoch 1 (a value for `x` is not" in text
    assert "over 56 samples, 1 left out" in text
    assert "12 damaged samples of the training data left out" in text.splitlines()[-1]


@pytest.mark.parametrize("stop", [7, 10])
@pytest.mark.slow
def test_a_resumed_run_skips_and_counts_the_same_samples(damaged: Make, tmp_path: Path, stop: int) -> None:
    def interrupt(event: Event) -> None:
        if event["event"] == "log" and event["step"] == stop:
            signal.raise_signal(signal.SIGINT)

    def three_epochs() -> dict[str, Any]:
        return damaged(max_steps=None, max_epochs=3, log_every=1)

    uninterrupted = netspec.train(three_epochs(), run_dir=tmp_path / "whole")
    with pytest.raises(Interrupted):
        netspec.train(three_epochs(), run_dir=tmp_path / "parts", listeners=[interrupt])
    resumed = netspec.train(three_epochs(), run_dir=tmp_path / "parts", resume=True)
    assert resumed.steps == uninterrupted.steps == 21
    assert uninterrupted.last_weights.read_bytes() == resumed.last_weights.read_bytes()
    counts = [
        [
            (event.get("epoch"), event.get("samples"), event.get("skipped"))
            for event in events(folder, "skipped", "done")
        ]
        for folder in (uninterrupted.run_dir, resumed.run_dir)
    ]
    assert counts[0] == counts[1]


def test_without_skipping_the_first_damaged_sample_ends_the_run(damaged: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a value for `x` is not a finite float32") as error:
        netspec.train(damaged("error", max_epochs=3, max_steps=None), run_dir=tmp_path / "run")
    assert "train.npz, sample" in str(error.value.problems[0].got)
    assert error.value.problems[-1].hint == "`on_error: skip` leaves out damaged samples"


def test_the_last_line_counts_skipped_samples(
    damaged: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.yaml").write_text(json.dumps(damaged(max_steps=None, max_epochs=1)))
    assert main(["train", str(tmp_path / "train.yaml"), "--run-dir", str(tmp_path / "run")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("done: ")]
    assert line.endswith(", 12 damaged samples of the training data left out")
    weights = str(tmp_path / "run" / "weights.h5")
    assert main(["test", str(tmp_path / "train.yaml"), "--weights", weights]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "left out 1" in [" ".join(line.split()) for line in printed]
    assert printed[-1] == "left out: a value for `x` is not a finite float32: nan in test.npz, sample 3"


def test_samples_skipped_on_opening_are_counted(tmp_path: Path) -> None:
    rows = [f"{n}.5,{n % 2}" for n in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(["x,label", *rows, "word,1", "3,0,7", "1e39,1"]))
    net = {
        "netspec": 1, "inputs": {"features": {"shape": [1]}, "label": {"shape": [], "dtype": "int32"}},
        "layers": [{"type": "Dense", "units": 2}],
        "losses": [{"type": "SparseCategoricalCrossentropy", "from_logits": True}],
    }  # fmt: skip
    split = {"source": "csv", "path": "a.csv", "header": True, "label": "label", "batch_size": 4, "on_error": "skip"}
    train_spec = {
        "netspec": 1, "net": net, "data": {"train": split}, "train": {"max_epochs": 1},
        "solver": {"type": "SGD", "learning_rate": 0.001},
    }  # fmt: skip
    (tmp_path / "train.yaml").write_text(json.dumps(train_spec))
    run = netspec.train(tmp_path / "train.yaml", run_dir=tmp_path / "run")
    assert run.skipped == 3
    assert [event["skipped"] for event in events(run.run_dir, "done")] == [3]

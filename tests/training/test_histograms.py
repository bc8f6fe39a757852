"""The callback `Histograms`: what it records, and that it does not change the training."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import netspec
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.training.callbacks.histograms import MAX_ELEMENTS, SHARES, histogram, read_histograms

Make = Callable[..., dict[str, Any]]


def test_each_evaluation_has_a_histogram_of_each_parameter(spec: Make, tmp_path: Path) -> None:
    plain = netspec.train(spec(max_steps=4, test_every=2), run_dir=tmp_path / "plain", device="reference")
    assert read_histograms(plain.run_dir) == {}
    training = {**spec(max_steps=4, test_every=2), "callbacks": [{"type": "Histograms", "bins": 7}]}
    run = netspec.train(training, run_dir=tmp_path / "run", device="reference")
    recorded = read_histograms(run.run_dir)
    assert list(recorded) == [2, 4]
    assert list(recorded[2]) == ["fc1/kernel", "fc1/bias", "norm/gamma", "norm/beta", "logits/kernel", "logits/bias"]
    weights = read_weights(run.run_dir / "weights.h5").arrays
    for name, entry in recorded[4].items():
        assert sum(entry["counts"]) == entry["elements"] == weights[name].size
        np.testing.assert_allclose(entry["quantiles"], np.quantile(weights[name], SHARES), rtol=1e-5)
        np.testing.assert_array_equal(weights[name], read_weights(plain.run_dir / "weights.h5").arrays[name])


def test_a_resumed_run_continues_the_file(spec: Make, tmp_path: Path) -> None:
    callbacks = {"callbacks": [{"type": "Histograms"}]}
    netspec.train({**spec(max_steps=2, test_every=2), **callbacks}, run_dir=tmp_path / "run", device="reference")
    with (tmp_path / "run" / "histograms.jsonl").open("a") as file:
        file.write('{"step": 4, "parameters"')  # the process was killed
    training = {**spec(max_steps=6, test_every=2), **callbacks}
    netspec.train(training, run_dir=tmp_path / "run", resume=True, device="reference")
    assert list(read_histograms(tmp_path / "run")) == [2, 4, 6]


def test_elements_that_are_not_finite_are_counted_apart() -> None:
    entry = histogram(np.array([[1.0, np.nan], [3.0, np.inf]], np.float32), 2)
    assert (entry["elements"], entry["not_finite"], entry["counts"]) == (4, 2, [1, 1])
    assert histogram(np.full(3, np.nan), 2) == {"elements": 3, "not_finite": 3}
    assert histogram(np.zeros(5), 4)["counts"] == [0, 0, 5, 0]


def test_large_parameters_are_sampled() -> None:
    entry = histogram(np.arange(MAX_ELEMENTS * 3 + 1), 4)
    assert entry["elements"] == MAX_ELEMENTS * 3 + 1
    assert MAX_ELEMENTS / 2 < sum(entry["counts"]) <= MAX_ELEMENTS
    assert max(entry["counts"]) - min(entry["counts"]) <= 1


def test_lines_of_another_form_are_left_out(tmp_path: Path) -> None:
    lines = [{"step": 1}, [], {"step": 2, "parameters": {"w": {"counts": [1]}}}, {"step": None, "parameters": {}}]
    (tmp_path / "histograms.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\nno JSON\n")
    assert read_histograms(tmp_path) == {2: {"w": {"counts": [1]}}}

"""Statistics that layers compute from the training data before the first step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.layers.normalization.fixed import Moments
from netspec.schema.load import load_train
from netspec.training.diagnostics.expectation_checks import run_expectations

Make = Callable[..., dict[str, Any]]


def with_layers(spec: Make, *layers: dict[str, Any], **loop: Any) -> dict[str, Any]:
    """Return the small training with these layers before its own."""
    train_spec = spec(**{"max_steps": 1, **loop})
    return {**train_spec, "net": {**train_spec["net"], "layers": [*layers, *train_spec["net"]["layers"]]}}


def weights_of(training: dict[str, Any], folder: Path, **more: Any) -> dict[str, np.ndarray]:
    return read_weights(netspec.train(training, run_dir=folder, **more).last_weights).arrays


def test_mean_and_variance_come_from_the_training_data(spec: Make, points: Path, tmp_path: Path) -> None:
    data = np.load(points / "train.npz")["x"].astype(float)  # 230 samples: the last batch is smaller
    weights = weights_of(with_layers(spec, {"name": "scaled", "type": "Normalization"}), tmp_path / "run")
    # rounded once to float32; sums over the 32 samples of a batch are float32, too
    np.testing.assert_allclose(weights["scaled/mean"], data.mean(0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(weights["scaled/variance"], data.var(0), rtol=1e-6)


def test_later_layers_adapt_to_the_output_of_earlier_ones(spec: Make, points: Path, tmp_path: Path) -> None:
    data = np.load(points / "train.npz")["x"].astype(float)
    first = {"name": "first", "type": "Normalization", "axis": None}
    square = {"name": "square", "type": "Expression", "expr": "x * x"}
    weights = weights_of(
        with_layers(spec, first, square, {"name": "second", "type": "Normalization"}), tmp_path / "run"
    )
    np.testing.assert_allclose(weights["first/mean"], [data.mean()], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights["first/variance"], [data.var()], rtol=1e-6)
    behind = ((data - data.mean()) / data.std()) ** 2
    np.testing.assert_allclose(weights["second/mean"], behind.mean(0), rtol=1e-5)
    np.testing.assert_allclose(weights["second/variance"], behind.var(0), rtol=1e-5)


def test_resumed_runs_and_loaded_weights_keep_their_statistics(spec: Make, points: Path, tmp_path: Path) -> None:
    training = with_layers(spec, {"name": "scaled", "type": "Normalization"}, checkpoint_every=1)
    first = weights_of(training, tmp_path / "run")
    other = np.load(points / "train.npz")
    np.savez(points / "more.npz", x=other["x"] + 5, label=other["label"])
    moved = {**training, "data": {**training["data"]}}
    moved["data"]["train"] = {**moved["data"]["train"], "path": str(points / "more.npz")}
    tuned_again = weights_of(moved, tmp_path / "tuned", weights=tmp_path / "run" / "weights.h5")
    np.testing.assert_array_equal(tuned_again["scaled/mean"], first["scaled/mean"])
    fresh = weights_of(moved, tmp_path / "fresh")
    np.testing.assert_allclose(fresh["scaled/mean"], first["scaled/mean"] + 5, rtol=1e-5)
    longer = {**training, "train": {**training["train"], "max_steps": 2}}
    events: list[Any] = []
    on = netspec.train(longer, run_dir=tmp_path / "run", resume=True, listeners=[events.append])
    assert not [event for event in events if "computed from the training data" in str(event)]
    np.testing.assert_array_equal(read_weights(on.last_weights).arrays["scaled/mean"], first["scaled/mean"])


def test_non_finite_statistics_are_reported_with_the_layer(spec: Make, tmp_path: Path) -> None:
    layers = {"name": "logs", "type": "Log"}, {"name": "scaled", "type": "Normalization"}
    with pytest.raises(InputError, match="`scaled`: the statistics of the training data are not finite"):
        netspec.train(with_layers(spec, *layers), run_dir=tmp_path / "run")


def test_moments_merge_without_losing_precision() -> None:
    """The mean is a million times the standard deviation, so sums of squares would lose most digits of the variance."""
    data = np.random.default_rng(1).normal(1e6, 1.0, (1000, 3))
    merged = None
    for part in np.split(data, [1, 10, 400]):
        mean = part.mean(0)
        moments = Moments.of(len(part), mean, ((part - mean) ** 2).sum(0))
        merged = moments if merged is None else merged.merged(moments)
    assert merged is not None
    for actual, expected in zip(merged.values(), (data.mean(0), data.var(0)), strict=True):
        # A mean of 1e6 is rounded to 1e-10, and so are the deviations from it, which are about 1.
        np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_the_expected_first_loss_is_computed_after_adaptation(spec: Make, points: Path) -> None:
    training = spec(max_steps=1)
    scaled, weighed = (
        {"name": "scaled", "type": "Normalization"},
        {"name": "weighed", "type": "Scale"},
    )  # initially by 1
    net = {
        "netspec": 1,
        "inputs": {"x": {"shape": [6]}},
        "layers": [scaled, weighed],
        "losses": [{"type": "MeanSquaredError", "from": ["weighed", "x"]}],
    }
    splits = {"train": {**training["data"]["train"], "batch_size": 230}}
    data = np.load(points / "train.npz")["x"].astype(float)
    loss = float(np.mean(((data - data.mean(0)) / data.std(0) - data) ** 2))
    expect = {"first_loss": {"value": loss, "within": 1e-4}}
    (expectation,) = run_expectations(load_train({**training, "net": net, "data": splits, "expect": expect}))
    assert expectation.problem is None, expectation.summary

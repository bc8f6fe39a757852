"""Runs with steps of several batches, and scaled losses: counts, logs, resuming."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_checkpoint, read_weights
from netspec.training.events import Event
from netspec.training.stepper import Stepper
from tests.training.conftest import NET

Make = Callable[..., dict[str, Any]]


def weights(run: Any) -> dict[str, np.ndarray]:
    return dict(read_weights(run.last_weights).arrays)


def plain_net(train_spec: dict[str, Any]) -> dict[str, Any]:
    """Return the training with a net without batch statistics."""
    net: dict[str, Any] = {**NET}
    net["layers"] = [layer for layer in net["layers"] if layer["type"] != "BatchNormalization"]
    return {**train_spec, "net": net}


@pytest.mark.slow
def test_two_batches_per_step_equal_batches_of_twice_the_size(spec: Make, tmp_path: Path) -> None:
    """With 230 samples, two batches of 16 per step equal steps of 32 and one of 6 per epoch, including dropout."""
    runs, logs = [], []
    for size, count in ((32, 1), (16, 2)):
        train_spec = plain_net(spec(accumulate=count, max_steps=None, max_epochs=2, log_every=1, precision="float64"))
        train_spec["train"] = {key: value for key, value in train_spec["train"].items() if value is not None}
        train_spec["data"]["train"]["batch_size"] = size
        log_events: list[Event] = []
        folder = tmp_path / f"run{size}"
        runs.append(netspec.train(train_spec, run_dir=folder, listeners=[log_events.append], device="reference"))
        logs.append(log_events)
    assert runs[0].steps == runs[1].steps == 16
    first, second = (
        [(event["step"], event["epoch"]) for event in log if event["event"] == "log"] for log in logs
    )  # fmt: skip
    assert first == second
    losses = [[event["loss"] for event in log if event["event"] == "log"] for log in logs]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-12)
    for name, array in weights(runs[0]).items():
        np.testing.assert_allclose(array, weights(runs[1])[name], rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.slow
def test_a_run_resumes_between_steps_of_several_batches(spec: Make, tmp_path: Path) -> None:
    scaling = {"initial": 1024.0, "growth_steps": 5}

    def train_spec(**loop: Any) -> dict[str, Any]:
        return {**spec(accumulate=3, loss_scale=scaling, **loop), "solver": {"type": "Adam", "ema": 0.5}}

    uninterrupted = netspec.train(train_spec(), run_dir=tmp_path / "whole")
    netspec.train(train_spec(max_steps=17), run_dir=tmp_path / "parts")
    checkpoint = read_checkpoint(tmp_path / "parts" / "checkpoints" / "step-00000017.h5")
    assert not [name for name in checkpoint.states if name.startswith("gradient/")], "no sums between steps"
    parts = netspec.train(train_spec(), run_dir=tmp_path / "parts", resume=True)
    first, second = weights(uninterrupted), weights(parts)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_a_run_that_fails_within_a_step_repeats_that_step(spec: Make, tmp_path: Path) -> None:
    """If a run fails between two batches of a step, it repeats the step when it is resumed."""
    train_spec = spec(accumulate=3, max_steps=12, log_every=1, test_every=0)
    uninterrupted = netspec.train(train_spec, run_dir=tmp_path / "whole")
    steps_taken, take = 0, Stepper.run

    def failing(self: Any, *arguments: Any) -> Any:
        nonlocal steps_taken
        steps_taken += 1
        if steps_taken == 8:  # the second batch of the third step
            raise InputError("this sample is damaged")
        return take(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stepper, "run", failing)
        with pytest.raises(InputError, match="damaged"):
            netspec.train(train_spec, run_dir=tmp_path / "parts")
    checkpoint = read_checkpoint(tmp_path / "parts" / "checkpoints" / "step-00000002.h5")
    assert checkpoint.progress["part"]["batches"] == 1
    assert [name for name in checkpoint.states if name.startswith("gradient/")]
    assert uninterrupted.steps == netspec.train(train_spec, run_dir=tmp_path / "parts", resume=True).steps


def test_accumulate_cannot_change_on_resume(spec: Make, tmp_path: Path) -> None:
    netspec.train(spec(max_steps=4), run_dir=tmp_path / "run")
    with pytest.raises(InputError) as caught:
        netspec.train(spec(accumulate=2, loss_scale=8.0), run_dir=tmp_path / "run", resume=True)
    assert {problem.path for problem in caught.value.problems} == {"train.accumulate", "train.loss_scale"}


@pytest.mark.slow
def test_skipped_steps_are_in_the_log(spec: Make, tmp_path: Path) -> None:
    log_events: list[Event] = []
    scaling = {"initial": 2.0**127, "growth_steps": 1000}
    train_spec = spec(loss_scale=scaling, max_steps=20, log_every=20)
    net: dict[str, Any] = {**NET}
    train_spec["net"] = {**net, "losses": [{**net["losses"][0], "weight": 100.0}]}
    netspec.train(train_spec, run_dir=tmp_path / "run", listeners=[log_events.append])
    last = [event for event in log_events if event["event"] == "log"][-1]
    assert last["skipped_steps"] > 0
    assert last["loss_scale"] == 2.0 ** (127 - last["skipped_steps"])


def test_the_loss_scale_does_not_grow_to_infinity(spec: Make, tmp_path: Path) -> None:
    """With gradients too small to overflow, an unlimited scale would be doubled until every step is skipped."""
    log_events: list[Event] = []
    train_spec = spec(loss_scale={"initial": 2.0**120, "growth_steps": 1}, max_steps=12, log_every=12)
    net: dict[str, Any] = {**NET}
    train_spec["net"] = {**net, "losses": [{**net["losses"][0], "weight": 1e-20}]}
    netspec.train(train_spec, run_dir=tmp_path / "run", listeners=[log_events.append])
    last = [event for event in log_events if event["event"] == "log"][-1]
    assert (last["loss_scale"], last["skipped_steps"]) == (2.0**127, 0)

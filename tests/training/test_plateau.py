"""A learning rate that is reduced when evaluations no longer improve, in a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import netspec
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.training.events import Event

Make = Callable[..., dict[str, Any]]


def watched(spec: Make, **loop: Any) -> dict[str, Any]:
    """Return a training that halves the rate after two evaluations without an improvement of 0.1."""
    train_spec = spec(test_every=3, log_every=1, **loop)
    plateau = {"type": "ReduceLROnPlateau", "schedule": 0.01, "factor": 0.5, "patience": 2, "threshold": 0.1}
    return {**train_spec, "solver": {**train_spec["solver"], "learning_rate": plateau}}


def rates(events: list[Event]) -> dict[int, float]:
    return {event["step"]: event["learning_rate"] for event in events if event["event"] == "log"}


@pytest.mark.slow
def test_a_resumed_run_reduces_the_rate_at_the_same_steps(spec: Make, tmp_path: Path) -> None:
    log_events: list[Event] = []
    uninterrupted = netspec.train(watched(spec), run_dir=tmp_path / "whole", listeners=[log_events.append])
    rate_by_step = rates(log_events)
    assert len(set(rate_by_step.values())) >= 3, "two reductions"
    changes = [step for step in rate_by_step if step > 1 and rate_by_step[step] != rate_by_step[step - 1]]
    assert all(step % 3 == 1 for step in changes), "the first step after an evaluation"
    parts: list[Event] = []
    for stop in (changes[0] - 2, changes[0] + 1, 40):  # before a reduction, between two evaluations, and the end
        run = netspec.train(
            watched(spec, max_steps=stop), run_dir=tmp_path / "parts", resume=stop != changes[0] - 2,
            listeners=[parts.append],
        )  # fmt: skip
    assert rates(parts) == rate_by_step
    first, second = read_weights(uninterrupted.last_weights).arrays, read_weights(run.weights).arrays
    assert all((first[name] == second[name]).all() for name in first)

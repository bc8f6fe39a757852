"""Schedules, and trainings with cycled momenta, against those of Keras and PyTorch, recorded by `record.py`."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.schema.specs.kinds import SCHEDULES
from netspec.solvers.schedules.base import ScheduleSpec
from tests.peers import schedules
from tests.peers.recordings import load_answers
from tests.solvers.problem import SHAPES, training
from tests.solvers.test_every_solver import solver


def answer(name: str) -> np.ndarray:
    return load_answers("schedules")[name]


def schedule(fields: dict) -> ScheduleSpec:
    parsed = SCHEDULES.parse(fields)
    assert isinstance(parsed, ScheduleSpec)
    return parsed


@pytest.mark.parametrize("name", schedules.SCHEDULES)
def test_rates_equal_the_peer(name):
    tested = schedule(schedules.SCHEDULES[name][0])
    results = [tested.value(step, schedules.STEPS) for step in range(schedules.STEPS)]
    np.testing.assert_allclose(results, answer(name), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", schedules.PLATEAUS)
def test_reductions_equal_the_peer(name):
    fields = {"type": "ReduceLROnPlateau", "schedule": schedules.RATE, **schedules.PLATEAUS[name][0]}
    tested, results = schedule(fields), []
    state = tested.start()
    for figure in schedules.FIGURES:
        state = tested.observed(state, {"loss": figure})
        results.append(tested.rate(0, 1, state))
    # Keras stores the rate of its optimizer in float32, with a relative error of 6e-8.
    np.testing.assert_allclose(results, answer(name), rtol=1e-6 if name.startswith("keras") else 1e-10)
    assert len(set(results)) > 2, "the case has no two reductions"


@pytest.mark.parametrize("name", schedules.CYCLES)
def test_weights_with_a_cycled_momentum_equal_pytorch(name):
    """40 steps in float64, in which PyTorch's schedule changes rate and momentum."""
    tested = solver(**{"type_" if key == "type" else key: value for key, value in schedules.CYCLES[name][0].items()})
    steps = range(schedules.STEPS)
    (momentum,) = tested.momenta()
    momenta = [momentum.value(step, schedules.STEPS) for step in steps]
    np.testing.assert_allclose(momenta, answer(f"{name}/momenta"), rtol=1e-12)
    assert max(momenta) - min(momenta) > 0.05
    rates = [tested.learning_rate.value(step, schedules.STEPS) for step in steps]
    for step, states in enumerate(training(tested).steps(rates)):
        for key in SHAPES:
            np.testing.assert_allclose(states[key], answer(f"{name}/{key}")[step], rtol=1e-10, atol=1e-10)

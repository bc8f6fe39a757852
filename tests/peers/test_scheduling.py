"""Schedules against those of Keras and PyTorch, as `record.py` wrote their rates down."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.schema.kinds import SCHEDULES
from netspec.solvers.schedules.base import ScheduleSpec
from tests.peers import scheduling
from tests.peers.test_answers import ANSWERS


def answer(name: str) -> np.ndarray:
    with np.load(ANSWERS / "scheduling.npz") as stored:
        return np.array(stored[name])


def schedule(fields: dict) -> ScheduleSpec:
    made = SCHEDULES.parse(fields)
    assert isinstance(made, ScheduleSpec)
    return made


@pytest.mark.parametrize("name", scheduling.SCHEDULES)
def test_rates_are_those_of_the_peer(name):
    made = schedule(scheduling.SCHEDULES[name][0])
    found = [made.value(step, scheduling.STEPS) for step in range(scheduling.STEPS)]
    np.testing.assert_allclose(found, answer(name), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", scheduling.PLATEAUS)
def test_reductions_are_those_of_the_peer(name):
    fields = {"type": "ReduceLROnPlateau", "schedule": scheduling.RATE, **scheduling.PLATEAUS[name][0]}
    made, found = schedule(fields), []
    seen = made.start()
    for figure in scheduling.FIGURES:
        seen = made.observed(seen, {"loss": figure})
        found.append(made.rate(0, 1, seen))
    # Keras keeps the rate of its optimizer in float32: 6e-8 of it.
    np.testing.assert_allclose(found, answer(name), rtol=1e-6 if name.startswith("keras") else 1e-10)
    assert len(set(found)) > 2, "the case has no two reductions"

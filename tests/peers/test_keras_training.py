"""Keras on PyTorch goes on with a training that is written for it, as `keras_training.py` recorded it."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.exchange.formats.keras.names import LOSSES, METRICS
from tests.peers.keras_training import Training, compared, digest, stepped, trainings
from tests.peers.recordings import load_answers


@pytest.mark.parametrize("one", trainings(), ids=lambda one: one.name)
def test_the_next_step_is_that_of_keras(one: Training) -> None:
    """Weights, moving averages, the states of the solver and the number of the step."""
    stored = load_answers("keras_training")
    prefix = f"{one.name}/"
    found = {key.removeprefix(prefix): stored[key] for key in stored if key.startswith(prefix)}
    assert str(found.pop("of", "")) == digest(one), "record the peers' answers: tests/peers/record.py keras_training"
    ours = stepped(one)
    assert found.keys() == ours.keys()
    for path, array in ours.items():
        # Both in float32, adding some hundred terms in different orders.
        np.testing.assert_allclose(found[path], array, rtol=1e-5, atol=1e-5, err_msg=path)


def test_keras_knows_the_losses_and_metrics_that_are_written() -> None:
    stored = load_answers("keras_training")
    found = {key.removeprefix("compared/"): str(stored[key]) for key in stored if key.startswith("compared/")}
    assert found == compared(), "record the peers' answers: tests/peers/record.py keras_training"
    types = {tuple(name.split("-")[:2]) for name in found}
    assert types == {("loss", one) for one in LOSSES} | {("metric", one) for one in METRICS}

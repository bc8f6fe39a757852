"""Keras on PyTorch continues an exported training with the same step, recorded by `keras_training.py`."""

from __future__ import annotations

import numpy as np
import pytest

from netspec.exchange.formats.keras.names import LOSSES, METRICS
from tests.peers.keras_training import Training, compared, digest, stepped, trainings
from tests.peers.recordings import load_answers


@pytest.mark.parametrize("case", trainings(), ids=lambda value: value.name)
def test_the_next_step_equals_keras(case: Training) -> None:
    """Compares weights, moving averages, states of the solver and the number of the step."""
    stored = load_answers("keras_training")
    prefix = f"{case.name}/"
    recorded = {key.removeprefix(prefix): stored[key] for key in stored if key.startswith(prefix)}
    assert str(recorded.pop("of", "")) == digest(case), (
        "record the peers' answers: tests/peers/record.py keras_training"
    )
    predictions = stepped(case)
    assert recorded.keys() == predictions.keys()
    for path, array in predictions.items():
        # Both compute in float32, and add some hundred terms in different orders.
        np.testing.assert_allclose(recorded[path], array, rtol=1e-5, atol=1e-5, err_msg=path)


def test_keras_has_the_losses_and_metrics_that_are_written() -> None:
    stored = load_answers("keras_training")
    recorded = {key.removeprefix("compared/"): str(stored[key]) for key in stored if key.startswith("compared/")}
    assert recorded == compared(), "record the peers' answers: tests/peers/record.py keras_training"
    types = {tuple(name.split("-")[:2]) for name in recorded}
    assert types == {("loss", case) for case in LOSSES} | {("metric", case) for case in METRICS}

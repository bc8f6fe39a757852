"""Keras on PyTorch loads what is written for it, and predicts the same, as `keras_files.py` recorded it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.exchange.keras_nets import Written, nets, samples
from tests.peers.test_answers import ANSWERS


@pytest.mark.parametrize("one", [*nets(), *samples()], ids=lambda one: one.name)
def test_keras_predicts_the_same(one: Written) -> None:
    with np.load(ANSWERS / "keras_files.npz") as stored:
        found = {
            key.removeprefix(f"{one.name}/"): stored[key] for key in stored.files if key.startswith(f"{one.name}/")
        }
    assert str(found.pop("of", "")) == one.digest, "record the peers' answers: tests/peers/record.py keras_files"
    if "unlike" in found:
        pytest.skip(f"Keras can't run it: {found['unlike']}")
    ours = one.net.predict(one.inputs)
    assert len(ours) == len(found)
    for index, (name, array) in enumerate(ours.items()):
        # Both in float32, adding some hundred terms in different orders.
        np.testing.assert_allclose(found[str(index)], array, rtol=1e-5, atol=1e-5, err_msg=name)

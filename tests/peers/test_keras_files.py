"""Keras on PyTorch loads what is written for it, and predicts the same, as `keras_files.py` recorded it."""

from __future__ import annotations

import numpy as np
import pytest

import netspec.exchange.formats.keras.importing.layers  # noqa: F401  # which registers the operations
from netspec.exchange.formats.keras.importing.operations import REFUSED, is_imported
from netspec.exchange.formats.keras.names import keras_snake
from tests.exchange.formats.keras.nets import Written, nets, samples
from tests.peers.recordings import RECORD_AGAIN, load_answers

AGAIN = RECORD_AGAIN.format(names="keras_files")


def answers() -> dict[str, dict[str, np.ndarray]]:
    """What Keras predicted, or why it can't, by the name of what was written."""
    recorded: dict[str, dict[str, np.ndarray]] = {}
    for key, array in load_answers("keras_files").items():
        name, _, what = key.rpartition("/")
        recorded.setdefault(name, {})[what] = array
    return recorded


RECORDED = answers()
ALL = [*nets(), *samples()]
UNLIKE = {name for name, found in RECORDED.items() if "unlike" in found}


def test_where_keras_can_run_nothing_it_says_why() -> None:
    for case in ALL:
        if case.name in UNLIKE:
            assert str(RECORDED[case.name]["of"]) == case.digest, AGAIN
            assert str(RECORDED[case.name]["unlike"]), case.name


def test_every_operation_of_keras_is_read_or_refused_by_name() -> None:
    names = [keras_snake(str(case)) for case in RECORDED[""]["operations"]]
    assert len(names) > 300
    assert [name for name in names if not is_imported(name) and name not in REFUSED] == []
    assert [case for case in REFUSED if is_imported(case) or case not in names] == []


@pytest.mark.parametrize("case", [one for one in ALL if one.name not in UNLIKE], ids=lambda one: one.name)
def test_keras_predicts_the_same(case: Written) -> None:
    recorded = dict(RECORDED.get(case.name, {}))
    assert str(recorded.pop("of", "")) == case.digest, AGAIN
    predictions = case.net.predict(case.inputs)
    assert len(predictions) == len(recorded)
    for index, (name, array) in enumerate(predictions.items()):
        # Both in float32, adding some hundred terms in different orders.
        np.testing.assert_allclose(recorded[str(index)], array, rtol=1e-5, atol=1e-5, err_msg=name)

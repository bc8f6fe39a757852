"""Keras on PyTorch loads exported files and predicts the same; its results are recorded by `keras_files.py`."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

import netspec.exchange.formats.keras.importing.layers  # noqa: F401  # which registers the operations
from netspec.exchange.formats.keras.importing.operations import REFUSED, is_imported
from netspec.exchange.formats.keras.names import keras_snake
from tests.exchange.formats.keras.nets import NETS, SAMPLES, names_of_nets, written
from tests.peers import keras_files
from tests.peers.recordings import RECORD_AGAIN, load_answers

AGAIN = RECORD_AGAIN.format(names="keras_files")


def answers() -> dict[str, dict[str, np.ndarray]]:
    """Return Keras's predictions, or the reason why there are none, by the name of the file."""
    recorded: dict[str, dict[str, np.ndarray]] = {}
    for key, array in load_answers("keras_files").items():
        name, _, kind = key.rpartition("/")
        recorded.setdefault(name, {})[kind] = array
    return recorded


RECORDED = answers()
UNLIKE = {name for name, arrays in RECORDED.items() if "unlike" in arrays}


def test_cases_that_keras_cannot_run_have_a_recorded_reason() -> None:
    for name in UNLIKE & {*NETS, *SAMPLES}:
        assert str(RECORDED[name]["of"]) == written(name).digest, AGAIN
        assert str(RECORDED[name]["unlike"]), name


def test_every_operation_of_keras_is_read_or_refused_by_name() -> None:
    names = [keras_snake(str(case)) for case in RECORDED[""]["operations"]]
    assert len(names) > 300
    assert [name for name in names if not is_imported(name) and name not in REFUSED] == []
    assert [case for case in REFUSED if is_imported(case) or case not in names] == []


def test_answers_for_unchanged_files_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    before = load_answers("keras_files")
    monkeypatch.setattr(keras_files, "all_written", lambda: [written(name) for name in [*SAMPLES][:5]])
    monkeypatch.setattr(keras_files, "operations", set)
    keras = Mock()
    keras.models.load_model.side_effect = AssertionError("Keras has answered this file")
    kept = keras_files.record(keras, before)
    assert len(kept) > 5
    for key in kept.keys() - {"operations"}:
        np.testing.assert_array_equal(kept[key], before[key])
    with pytest.raises(AssertionError, match="has answered"):
        keras_files.record(keras, {})


@pytest.mark.parametrize("name", names_of_nets(UNLIKE))
def test_keras_predicts_the_same(name: str) -> None:
    case = written(name)
    recorded = dict(RECORDED.get(name, {}))
    assert str(recorded.pop("of", "")) == case.digest, AGAIN
    predictions = case.net.predict(case.inputs)
    assert len(predictions) == len(recorded)
    for index, (output, array) in enumerate(predictions.items()):
        # Both compute in float32, and add some hundred terms in different orders.
        np.testing.assert_allclose(recorded[str(index)], array, rtol=1e-5, atol=1e-5, err_msg=output)

"""Net → Keras file → net gives the same results for every layer that Keras has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.keras.exporting import keras_model, write_keras
from netspec.exchange.importing import import_model
from netspec.schema.load import load_net
from tests.exchange.formats.keras.nets import NETS, SAMPLES, Written, names_of_nets, written
from tests.exchange.nets import Arrays, Net


@pytest.mark.slow
def test_every_sample_is_written() -> None:
    """Every sample of every layer can be exported; other tests read the files again, here and in Keras."""
    assert [name for name in SAMPLES if not written(name).model.layers] == []


def again(case: Written, folder: Path) -> Net:
    """Return the net after a round trip."""
    write_keras(folder / "model.keras", case.exportable)
    imported = import_model(folder / "model.keras")
    (folder / "net.yaml").write_text(imported.net)
    return Net(load_net(folder / "net.yaml"), imported.arrays)


def fed(case: Written, after: Net) -> Iterator[Arrays]:
    """Yield the inputs in each form that fits the imported net: with netspec's axes, or with Keras's.

    Unless a layer shows that an input is an image, both are possible.
    """
    ways: list[list[np.ndarray]] = []
    names = [name for name in case.net.spec.inputs if name in case.net.graph(1).inputs()]
    for name, source, keras_input in zip(names, after.spec.inputs.values(), case.keras_inputs, strict=True):
        possible = (
            case.inputs[name],
            keras_input,
            np.moveaxis(keras_input, -1, 1) if keras_input.ndim > 1 else keras_input,
        )
        fitting = [array for array in possible if array.shape[1:] == tuple(source.shape)]
        ways.append([array.astype(source.dtype) for array in fitting])
    for arrays in product(*ways):
        yield dict(zip(after.spec.inputs, arrays, strict=True))


def agrees(case: Written, after: Net, inputs: Arrays) -> bool:
    """Return whether all outputs are equal, in the net's order of axes or in Keras's."""
    expected, actual = list(case.net.predict(case.inputs).values()), list(after.predict(inputs).values())

    def same(expected_output: np.ndarray, theirs: np.ndarray, order: tuple[int, ...]) -> bool:
        # float32, some hundred terms in another order
        keras_output = expected_output.transpose(order)
        return any(
            array.shape == theirs.shape and np.allclose(theirs, array, rtol=1e-5, atol=1e-5)
            for array in (
                expected_output,
                keras_output,
                np.moveaxis(keras_output, -1, 1) if expected_output.ndim > 1 else expected_output,
            )
        )

    assert len(expected) == len(actual)
    orders = [output.order for output in case.model.outputs]
    return all(map(same, expected, actual, orders))


@pytest.mark.parametrize("name", names_of_nets())
def test_written_nets_are_read_again(name: str, tmp_path: Path) -> None:
    case = written(name)
    try:
        after = again(case, tmp_path)
    except InputError as refused:  # the layer combines samples of a batch, which layers cannot express
        assert "it reduces the batch axis" in str(refused)  # noqa: PT017  # one of two outcomes
        return
    assert any(agrees(case, after, inputs) for inputs in fed(case, after))
    keras_model(Written(case.name, after, {}).exportable)  # the imported net can be exported again


@pytest.mark.parametrize("name", NETS)
def test_read_nets_are_written_again(name: str, tmp_path: Path) -> None:
    case = written(name)
    after = again(case, tmp_path)
    inputs = next(inputs for inputs in fed(case, after) if agrees(case, after, inputs))
    second = Written(case.name, after, inputs)
    last = again(second, tmp_path)
    assert any(agrees(second, last, feeds) for feeds in fed(second, last))

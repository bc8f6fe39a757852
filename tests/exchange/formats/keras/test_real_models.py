"""Real models of other authors give the results of Keras, and the same accuracy on MNIST's test images."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from netspec.exchange.importing import import_model
from netspec.schema.bundled import zoo_root
from tests.exchange.formats.keras.recorded import opened

FOLDER = os.environ.get("NETSPEC_MODELS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="NETSPEC_MODELS names no folder of real models")

MODELS = Path(FOLDER) / "keras"
FILES = ("images-idx3", "labels-idx1")


@pytest.mark.parametrize("name", ["emotion_model.hdf5", "sudoku_digits_cnn.h5", "mnist_cnn.keras"])
def test_answers_as_keras_did(name: str, tmp_path: Path) -> None:
    reference = np.load(MODELS / f"{name}.reference.npz")
    model = opened(import_model(MODELS / name), tmp_path, "cpu")
    name_of_input = next(iter(model.spec.inputs))  # the other input is the target of the loss
    (actual,) = dict(model.predict({name_of_input: np.moveaxis(reference["in_0"], -1, 1)})).values()
    np.testing.assert_allclose(actual, reference["out_0"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "right"), [("sudoku_digits_cnn.h5", 9868), ("mnist_cnn.keras", 9918)])
def test_imported_model_has_the_same_accuracy_on_mnist(name: str, right: int, tmp_path: Path) -> None:
    """The number of correct answers for 10,000 images equals Keras's."""
    folder = zoo_root() / "data/mnist"
    images, labels = (gzip.decompress((folder / f"t10k-{name}-ubyte.gz").read_bytes()) for name in FILES)
    x = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28).astype(np.float32) / 255
    model = opened(import_model(MODELS / name), tmp_path, "cpu")
    name_of_input = next(iter(model.spec.inputs))  # the other input is the target of the loss
    (actual,) = dict(model.predict({name_of_input: x})).values()
    assert int((actual.argmax(axis=1) == np.frombuffer(labels, np.uint8, offset=8)).sum()) == right

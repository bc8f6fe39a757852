"""Imported Keras models in each file layout give Keras's results: every layer, and combinations of layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.importing import import_model
from tests.exchange.formats.keras.recorded import FILES, answers, opened
from tests.peers.recordings import load_answers

MODELS = sorted(
    path.name for path in FILES.glob("*") if path.suffix in (".keras", ".h5") and ".weights" not in path.name
)


@pytest.mark.parametrize("name", MODELS)
def test_answers_as_in_keras(name: str, tmp_path: Path) -> None:
    imported = import_model(FILES / name)
    model = opened(imported, tmp_path)
    compared = answers(model, imported, load_answers(f"keras/{name.partition('.')[0]}"))
    assert compared
    for output, (actual, expected) in compared.items():
        # float32 on both sides; sums run in another order
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5, err_msg=output)


@pytest.mark.parametrize("name", ["images", "nested", "sequences"])
def test_every_layout_gives_the_same_net(name: str) -> None:
    new, old = (import_model(FILES / f"{name}.{suffix}") for suffix in ("keras", "h5"))
    assert new.net.splitlines()[1:] == old.net.splitlines()[1:]  # except the first line, which names the file
    assert new.arrays.keys() == old.arrays.keys()
    for key, array in new.arrays.items():
        np.testing.assert_array_equal(array, old.arrays[key], err_msg=key)


def test_reads_as_if_a_person_had_written_it() -> None:
    net = import_model(FILES / "first.keras").net
    assert net.splitlines()[1:] == [
        "netspec: 1",
        "name: first",
        "inputs:",
        "  image: {shape: [3, 6, 4]}",
        "layers:",
        "  - {name: conv2d, type: Conv2D, filters: 4, kernel_size: 3, padding: same}",
        "  - {name: batch_normalization, type: BatchNormalization}",
        "  - {name: max_pooling2d, type: MaxPooling2D}",
        # Keras moves the channels last before it flattens; this is folded into the weights of `dense`
        "  - {name: flatten, type: Flatten}",
        "  - {name: dense, type: Dense, units: 3}",
        "outputs: [dense]",
    ]


def test_shared_layers_share_and_frozen_ones_are_frozen() -> None:
    lines = import_model(FILES / "nested.keras").net.splitlines()
    (frozen,) = [line for line in lines if "name: frozen" in line]
    assert "trainable: false" in frozen
    # `shared` is called twice in a model that is called twice; one output of the last call is not read.
    assert sum("share: tower/shared" in line for line in lines) == 2
    assert sum("share: head/" in line for line in lines) == 2  # Dense and BatchNormalization


def test_layouts_of_inputs_and_outputs_are_noted() -> None:
    notes = import_model(FILES / "images.keras").notes
    assert "the input `image` is [3, 8, 6], channels first; in Keras it was [8, 6, 3]" in notes
    assert "the output `masks` is [4, 8, 6], channels first; in Keras it was [8, 6, 4]" in notes


def test_weights_without_a_model_need_a_net() -> None:
    with pytest.raises(InputError, match=r"weights without the model they belong to"):
        import_model(FILES / "images.weights.h5")

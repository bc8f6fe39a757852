"""Weights of Keras onto a net that is there already."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.importing import import_model
from netspec.train.model import load
from tests.exchange.keras.recorded import FILES


def written(folder: Path, text: str) -> Path:
    (folder / "net.yaml").write_text(text, encoding="utf-8")
    return folder / "net.yaml"


@pytest.mark.parametrize("suffix", ["weights.h5", "h5", "keras"])
@pytest.mark.parametrize("name", ["images", "nested", "sequences"])
def test_every_layout_is_laid_onto_the_net(name: str, suffix: str, tmp_path: Path) -> None:
    """The same arrays as where the file says the net: kernels turned, rows of a Dense put in order."""
    found = import_model(FILES / f"{name}.keras")
    model = load(written(tmp_path, found.net), FILES / f"{name}.{suffix}")
    assert set(model.parameters) == set(found.arrays)
    for key, array in found.arrays.items():
        np.testing.assert_array_equal(model.parameters[key], array, err_msg=key)


@pytest.mark.parametrize(("name", "slots"), [("adafactor", "columns"), ("muon", "momentum")])
def test_what_an_optimizer_remembers_lies_beside_the_weights(name: str, slots: str, tmp_path: Path) -> None:
    """A file of weights of a compiled model, as Keras writes it: its slots are no weights of any layer."""
    path = FILES / f"trained_{name}.weights.h5"
    with h5py.File(path) as file:
        assert len(file["optimizer/vars"]) > len(import_model(FILES / f"trained_{name}.keras").arrays)
    found = import_model(FILES / f"trained_{name}.keras")
    assert any(key.endswith(slots) for key in found.slots)
    model = load(written(tmp_path, found.net), path)
    assert set(model.parameters) == set(found.arrays)
    for key, array in found.arrays.items():
        np.testing.assert_array_equal(model.parameters[key], array, err_msg=key)


@pytest.mark.parametrize("suffix", ["weights.h5", "h5"])
def test_layers_of_other_names_are_found_by_their_order(suffix: str, tmp_path: Path) -> None:
    found = import_model(FILES / "sequences.keras")
    text = found.net.replace("embedding", "words_").replace("lstm", "memory").replace("last", "end")
    model = load(written(tmp_path, text), FILES / f"sequences.{suffix}")
    np.testing.assert_array_equal(model.parameters["end/kernel"], found.arrays["last/kernel"])
    np.testing.assert_array_equal(model.parameters["words_/embeddings"], found.arrays["embedding/embeddings"])


def test_what_does_not_fit_is_told_by_name(tmp_path: Path) -> None:
    text = (
        import_model(FILES / "images.keras").net.replace("units: 5", "units: 6").replace("name: norm,", "name: mine,")
    )
    with pytest.raises(InputError) as caught:
        load(written(tmp_path, text), FILES / "images.weights.h5")
    message = str(caught.value)
    assert "`classes/kernel` has another shape" in message
    assert "`classes/bias` has another shape" in message


def test_a_net_with_a_layer_more_misses_its_weights(tmp_path: Path) -> None:
    text = import_model(FILES / "images.keras").net.replace(
        "outputs:", "  - {name: more, type: Dense, from: classes, units: 2}\noutputs:"
    )
    with pytest.raises(InputError, match=r"`more/kernel` is missing"):
        load(written(tmp_path, text), FILES / "images.weights.h5")

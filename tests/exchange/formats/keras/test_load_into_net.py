"""Keras weights for an existing net."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.importing import import_model
from netspec.training.inference.model import load
from tests.exchange.formats.keras.recorded import FILES


def written(folder: Path, text: str) -> Path:
    (folder / "net.yaml").write_text(text, encoding="utf-8")
    return folder / "net.yaml"


@pytest.mark.parametrize("suffix", ["weights.h5", "h5", "keras"])
@pytest.mark.parametrize("name", ["images", "nested", "sequences"])
def test_weights_of_every_layout_load_into_the_net(name: str, suffix: str, tmp_path: Path) -> None:
    """The arrays equal those of an import with the net: transposed kernels, permuted rows of Dense."""
    arrays = import_model(FILES / f"{name}.keras")
    model = load(written(tmp_path, arrays.net), FILES / f"{name}.{suffix}")
    assert set(model.parameters) == set(arrays.arrays)
    for key, array in arrays.arrays.items():
        np.testing.assert_array_equal(model.parameters[key], array, err_msg=key)


@pytest.mark.parametrize(("name", "slots"), [("adafactor", "columns"), ("muon", "momentum")])
def test_states_of_an_optimizer_are_stored_next_to_the_weights(name: str, slots: str, tmp_path: Path) -> None:
    """A weights file of a compiled model as Keras writes it: optimizer slots are not weights of a layer."""
    path = FILES / f"trained_{name}.weights.h5"
    with h5py.File(path) as file:
        assert len(file["optimizer/vars"]) > len(import_model(FILES / f"trained_{name}.keras").arrays)
    arrays = import_model(FILES / f"trained_{name}.keras")
    assert any(key.endswith(slots) for key in arrays.slots)
    model = load(written(tmp_path, arrays.net), path)
    assert set(model.parameters) == set(arrays.arrays)
    for key, array in arrays.arrays.items():
        np.testing.assert_array_equal(model.parameters[key], array, err_msg=key)


@pytest.mark.parametrize("suffix", ["weights.h5", "h5"])
def test_layers_of_other_names_are_found_by_their_order(suffix: str, tmp_path: Path) -> None:
    arrays = import_model(FILES / "sequences.keras")
    text = arrays.net.replace("embedding", "words_").replace("lstm", "memory").replace("last", "end")
    model = load(written(tmp_path, text), FILES / f"sequences.{suffix}")
    np.testing.assert_array_equal(model.parameters["end/kernel"], arrays.arrays["last/kernel"])
    np.testing.assert_array_equal(model.parameters["words_/embeddings"], arrays.arrays["embedding/embeddings"])


def test_arrays_that_do_not_fit_are_reported_by_name(tmp_path: Path) -> None:
    text = (
        import_model(FILES / "images.keras").net.replace("units: 5", "units: 6").replace("name: norm,", "name: mine,")
    )
    with pytest.raises(InputError) as caught:
        load(written(tmp_path, text), FILES / "images.weights.h5")
    message = str(caught.value)
    assert "`classes/kernel` has the wrong shape" in message
    assert "`classes/bias` has the wrong shape" in message


def test_weights_of_an_additional_layer_are_missing(tmp_path: Path) -> None:
    text = import_model(FILES / "images.keras").net.replace(
        "outputs:", "  - {name: more, type: Dense, from: classes, units: 2}\noutputs:"
    )
    with pytest.raises(InputError, match=r"`more/kernel` is missing"):
        load(written(tmp_path, text), FILES / "images.weights.h5")


@pytest.mark.parametrize(
    ("input_shape", "first", "expected"),
    [
        ([4, 5, 5], "{name: each, type: TimeDistributed, layer: {type: MaxPooling1D, pool_size: 1}}", (0, 2, 1)),
        ([5, 4, 5], "{name: each, type: MaxPooling2D, pool_size: 1}", (1, 2, 0)),
        ([5, 4, 5], "{name: each, type: Clip, min: 0.0}", (1, 2, 0)),
    ],
)
def test_weights_of_images_follow_the_readers(
    input_shape: list[int], first: str, expected: tuple[int, ...], tmp_path: Path
) -> None:
    """The first layer accepts any axis order, and equal sizes do not identify the axes."""
    net = written(
        tmp_path,
        f"netspec: 1\nname: m\ninputs:\n  x: {{shape: {input_shape}}}\nlayers:\n"
        f"  - {{name: drop, type: Dropout, rate: 0.5}}\n  - {first}\n  - {{name: slopes, type: PReLU}}\n"
        "outputs: [slopes]\n",
    )
    keras_array = np.arange(100, dtype=np.float32).reshape(np.array(input_shape)[list(expected)])
    with h5py.File(tmp_path / "m.weights.h5", "w") as file:
        file["layers/p_re_lu/vars/0"] = keras_array
    model = load(net, tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(model.parameters["slopes/alpha"], keras_array.transpose(np.argsort(expected)))

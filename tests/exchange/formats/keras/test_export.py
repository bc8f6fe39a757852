"""Export to Keras: idiomatic models, the same bytes each time, and notes on everything that cannot be exported."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import h5py
import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.keras.exporting import keras_model, preflight_keras, write_keras, write_keras_weights
from netspec.exchange.formats.keras.exporting.model import KerasLayer, KerasModel, KerasTensor
from netspec.exchange.formats.registry import Exportable, ExportOptions, Lost, format_to_write
from tests.exchange.formats.keras.nets import CONV, IMAGE, NETS, Written, drawn
from tests.exchange.nets import Net, net_data


def written(*layers: dict[str, Any], inputs: dict[str, Any] = IMAGE, **more: Any) -> Written:
    net = Net.of(net_data(*layers, inputs=inputs, **more))
    return Written("net", net, drawn("net", net))


def named(name: str) -> Written:
    inputs, layers, more = NETS[name]
    return written(*layers, inputs=inputs, **more)


def bare(case: Written) -> Exportable:
    """The net before it has weights."""
    return replace(case.exportable, arrays={})


def kinds(case: Written) -> list[str]:
    return [layer.class_name for layer in case.model.layers_in_order()]


def test_images_have_their_channels_last_and_nothing_is_turned_on_the_way() -> None:
    case = named("branches of images")
    assert case.model.inputs[0].shape == (7, 6, 2)
    assert "Permute" not in kinds(case)
    assert case.model.outputs[0].order == (0, 2, 3, 1)
    kernel, states = case.model.layers["a"].arrays["vars/0"], case.net.states
    np.testing.assert_array_equal(kernel, states["a/kernel"].transpose(2, 3, 1, 0))


def test_a_dense_after_an_image_has_rows_in_keras_order() -> None:
    case = named("dense behind an image")
    assert kinds(case) == ["InputLayer", "Conv2D", "Flatten", "Dense"]
    ours = case.net.states["dense/kernel"].reshape(4, 5, 4, 3)  # channels, height, width, units
    np.testing.assert_array_equal(
        case.model.layers["dense"].arrays["vars/0"], ours.transpose(1, 2, 0, 3).reshape(80, 3)
    )


def test_a_permute_is_combined_with_the_order_that_readers_need() -> None:
    assert kinds(named("convolutions of a sequence")) == [
        "InputLayer", "Identity", "Conv1D", "MaxPooling1D", "Identity", "LSTM"
    ]  # fmt: skip


def test_the_same_net_gives_the_same_bytes(tmp_path: Path) -> None:
    case = named("branches of images")
    for name, write in {"a.keras": write_keras, "b.keras": write_keras, "a.weights.h5": write_keras_weights}.items():
        assert write(tmp_path / name, case.exportable) == ("the input `x` is (N, …, channels) in Keras, channels last",)
    assert (tmp_path / "a.keras").read_bytes() == (tmp_path / "b.keras").read_bytes()
    with ZipFile(tmp_path / "a.keras") as archive:
        members = archive.infolist()
        assert [member.filename for member in members] == ["metadata.json", "config.json", "model.weights.h5"]
        assert {(member.date_time, member.compress_type) for member in members} == {((1980, 1, 1, 0, 0, 0), ZIP_STORED)}
        assert archive.read("model.weights.h5") == (tmp_path / "a.weights.h5").read_bytes()


def test_weights_are_below_the_layers_in_the_order_of_the_configuration(tmp_path: Path) -> None:
    case = named("rows that are added")
    write_keras(tmp_path / "m.keras", case.exportable)
    with ZipFile(tmp_path / "m.keras") as archive:
        config = json.loads(archive.read("config.json"))["config"]
        file = h5py.File(io.BytesIO(archive.read("model.weights.h5")))
    counts: dict[str, int] = {}
    for layer in config["layers"]:
        kind = {"InputLayer": "input_layer", "Conv2D": "conv2d"}.get(layer["class_name"], layer["class_name"].lower())
        number = counts[kind] = counts.get(kind, -1) + 1
        group = file[f"layers/{kind}_{number}" if number else f"layers/{kind}"]
        assert group["vars"].attrs["name"] == layer["name"]
    np.testing.assert_array_equal(file["layers/conv2d_1/vars/1"][...], case.net.states["b/bias"])


def test_layers_are_ordered_by_their_distance_from_the_outputs() -> None:
    """Keras's own files have this order: a short branch is late even if it is declared first."""
    model = KerasModel("m")
    tensors: dict[str, KerasTensor] = {}
    edges = {"x": "", "short": "x", "a": "x", "b": "a", "c": "b", "end": "c short"}
    for name, sources in ((name, message.split()) for name, message in edges.items()):
        layer = model.layers[name] = KerasLayer(name, "Identity", {})
        if sources:
            layer.calls.append(([[tensors[source] for source in sources]], {}))
        tensors[name] = KerasTensor(name, 0, 0, (2,), "float32", (0, 1))
    model.inputs, model.outputs = [tensors["x"]], [tensors["end"]]
    assert [layer.name for layer in model.layers_in_order()] == ["x", "a", "b", "c", "short", "end"]


def test_names_are_valid_in_keras_and_changes_are_noted() -> None:
    case = named("names of all kinds")
    assert list(case.model.layers) == ["in_put", "block_1_fc", "block_1_fc_1", "block_1_fc_2"]
    assert keras_model(case.exportable)[1] == (
        "the layer `block.1/fc` is called `block_1_fc` in Keras",
        "the layer `block_1_fc` is called `block_1_fc_1` in Keras",
        "the layer `block.1:fc` is called `block_1_fc_2` in Keras",
    )


def test_all_layers_that_keras_lacks_are_reported_at_once(tmp_path: Path) -> None:
    layers: list[dict[str, Any]] = [
        {"type": "ArgMaxPooling2D", "name": "places", "pool_size": [1, 200], "from": "image"},
        {"type": "Parameter", "name": "table", "shape": [1000, 1001], "dtype": "int32", "from": "image"},
        {"type": "Masking", "name": "kept", "from": "steps"},
        {"type": "Clip", "name": "cut", "max": 1.0},
        {"type": "LSTM", "name": "last", "units": 2},
        {"type": "Col2Im", "name": "volume", "output_size": [2, 2, 2], "kernel_size": 1, "from": "windows"},
    ]
    inputs = {"image": {"shape": [1, 2, 300]}, "steps": {"shape": [4, 3]}, "windows": {"shape": [1, 8]}}
    case = written(*layers, inputs=inputs, outputs=["places", "table", "last", "volume"])
    with pytest.raises(InputError) as error:
        write_keras(tmp_path / "m.keras", case.exportable)
    message = [(problem.path, problem.got) for problem in error.value.problems]
    assert message == [
        ("layers.places", "its window has more than 128 elements, each of which needs operations in Keras"),
        ("layers.table", "Keras stores integers only as constants, with at most 1,000,000 elements"),
        ("layers.volume", "Keras folds windows over at most two axes"),
        ("layers.last", "it uses a mask, which `cut` does not pass on in Keras"),
    ]
    assert preflight_keras(bare(case), ExportOptions()) == Lost(error.value.problems)
    assert not list(tmp_path.iterdir())
    steps = named("steps of images")
    assert preflight_keras(bare(steps), ExportOptions()) == Lost(notes=keras_model(steps.exportable)[1])


def test_a_layer_that_shares_parameters_and_computes_otherwise_has_them_as_constants() -> None:
    layers: list[dict[str, Any]] = [{**CONV, "name": "a", "padding": "same"}, {**CONV, "from": "x", "share": "a"}]
    case = written(*layers, outputs=["a", "conv2d"])
    assert "the weights of `conv2d` are constants in Keras, which are not trained there" in case.notes
    assert case.model.layers["a"].arrays.keys() == {"vars/0", "vars/1"}


@pytest.mark.parametrize(
    "inner",
    [
        {"type": "SpectralNormalization", "layer": {"type": "Conv2D", "filters": 2, "kernel_size": 2}},
        {"type": "LayerNormalization", "axis": 1},
        {"type": "AveragePooling2D", "padding": "same"},
        {"type": "MaxPooling2D", "ceil_mode": True},
    ],
)
def test_layers_that_keras_wraps_differently_become_operations(inner: Any) -> None:
    """Keras on PyTorch cannot load such layers in a TimeDistributed, or computes something else."""
    net = Net.of(net_data({"type": "TimeDistributed", "layer": inner}, inputs={"x": {"shape": [2, 3, 5, 4]}}))
    operations = kinds(Written("y", net, {}))
    assert len(operations) > 3
    assert "TimeDistributed" not in operations


def test_the_suffix_selects_the_format() -> None:
    assert format_to_write("a/b.weights.h5").name == "keras_weights"
    assert format_to_write("b.keras").name == "keras"

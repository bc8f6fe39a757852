"""BatchNormalization with PyTorch's kinds of running statistics, recorded by `batch_statistics.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

import netspec
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_weights, write_weights
from netspec.exchange.formats.native.safetensors import write_safetensors
from netspec.exchange.formats.pytorch.state_dicts import from_state_dict, to_state_dict
from netspec.exchange.formats.registry import format_to_write
from tests.exchange.formats.keras.nets import IMAGE, Written
from tests.exchange.nets import Net, net_data
from tests.peers.batch_statistics import BATCH, CASES, RATE, STEPS, given, net
from tests.peers.recordings import load_answers

ANSWERS = load_answers("batch_statistics")


def spec(folder: Path, fields: dict[str, Any]) -> dict[str, Any]:
    data = given()
    np.savez(folder / "data.npz", x=data["x"], y=data["y"])
    source = {"source": "npz", "path": str(folder / "data.npz"), "batch_size": BATCH, "shuffle": False}
    return {
        "netspec": 1, "net": net(fields), "data": {"train": source},
        "solver": {"type": "SGD", "learning_rate": RATE}, "train": {"max_steps": STEPS, "precision": "float64"},
    }  # fmt: skip


def trained(folder: Path, name: str, **more: Any) -> Path:
    """Return the weights after all steps."""
    first = {"head/kernel": given()["head.weight"].T, "head/bias": given()["head.bias"]}
    write_weights(folder / "first.h5", first)
    run = netspec.train(spec(folder, CASES[name][0]), run_dir=folder / "run", weights=folder / "first.h5", **more)
    return run.run_dir / "weights.h5"


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_a_run_ends_with_the_weights_of_pytorch(name: str, device: str, tmp_path: Path) -> None:
    path = trained(tmp_path, name, device=device)
    arrays = to_state_dict(read_weights(path).arrays)
    expected = {key.removeprefix(f"{name}/"): array for key, array in ANSWERS.items() if key.startswith(f"{name}/")}
    predicted = expected.pop("predicted")
    if name == "momentum":  # PyTorch counts batches even if it does not use the count
        expected["norm.num_batches_tracked"] = np.zeros((), "int64")
    assert arrays.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_allclose(arrays[key], array, rtol=1e-10, atol=1e-12, err_msg=key)
    model = netspec.load(net(CASES[name][0]), path, device=device)
    # In float32, in which models predict.
    np.testing.assert_allclose(
        model.predict({"x": given()["x"][:BATCH].astype(np.float32)})["head"], predicted, rtol=1e-5, atol=1e-5
    )


def test_the_number_of_batches_comes_from_a_state_dict_and_goes_into_one(tmp_path: Path) -> None:
    fields, _ = CASES["cumulative"]
    theirs = {key.removeprefix("cumulative/"): array for key, array in ANSWERS.items() if key.startswith("cumulative/")}
    del theirs["predicted"]
    write_safetensors(tmp_path / "net.safetensors", theirs, {})
    model = netspec.load(net(fields), tmp_path / "net.safetensors")
    assert model.parameters["norm/num_batches_tracked"] == STEPS
    written = to_state_dict(dict(model.parameters))
    assert written["norm.num_batches_tracked"] == STEPS
    assert written.keys() == theirs.keys()
    shapes = {name: array.shape for name, array in model.parameters.items() if "tracked" not in name}
    assert from_state_dict(theirs, shapes).keys() == shapes.keys()  # a layer with a momentum does not use it


def test_a_resumed_run_continues_counting(tmp_path: Path) -> None:
    """The statistics are bit-identical to those of a run that was not interrupted."""
    uninterrupted = read_weights(trained(tmp_path, "cumulative"))
    data = spec(tmp_path, CASES["cumulative"][0])
    data["train"]["max_steps"] = 5
    netspec.train(data, run_dir=tmp_path / "parts", weights=tmp_path / "first.h5")
    data["train"]["max_steps"] = STEPS
    run = netspec.train(data, run_dir=tmp_path / "parts", resume=True)
    arrays = read_weights(run.run_dir / "weights.h5")
    for name, array in uninterrupted.arrays.items():
        np.testing.assert_array_equal(arrays.arrays[name], array)


def written(fields: dict[str, Any], path: Path) -> tuple[str, ...]:
    """Export a net for another program; return the notes."""
    net = Written("net", Net.of(net_data({"type": "BatchNormalization", "name": "norm", **fields}, inputs=IMAGE)), {})
    return format_to_write(path).writes(path, net.exportable)


def test_caffe_without_statistics_of_batches_refuses_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="uses moving averages in inference"):
        written({"track_running_stats": False}, tmp_path / "net.prototxt")


def test_keras_export_notes_differences_in_training(tmp_path: Path) -> None:
    notes = written({"momentum": None, "unbiased_moving_variance": True}, tmp_path / "net.keras")
    assert {"`unbiased_moving_variance`", "`momentum: null`"} <= {note.partition(" of ")[0] for note in notes}
    with ZipFile(tmp_path / "net.keras") as file:
        (config,) = [
            layer["config"]
            for layer in json.loads(file.read("config.json"))["config"]["layers"]
            if layer["class_name"] == "BatchNormalization"
        ]
    assert not {"momentum", "unbiased_moving_variance", "track_running_stats"} & config.keys()


def test_onnx_computes_the_statistics_of_the_batch(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    net = Net.of(
        net_data(
            {"type": "BatchNormalization", "track_running_stats": False, "scale": False, "center": False}, inputs=IMAGE
        )
    )
    x = np.random.default_rng(1).normal(size=(5, *net.spec.inputs["x"].shape)).astype(np.float32)
    format_to_write(tmp_path / "net.onnx").writes(tmp_path / "net.onnx", Written("net", net, {}).exportable)
    (actual,) = onnxruntime.InferenceSession(tmp_path / "net.onnx").run(None, {"x": x})
    mean, variance = x.mean(axis=(0, 2, 3), keepdims=True), x.var(axis=(0, 2, 3), keepdims=True)
    np.testing.assert_allclose(actual, (x - mean) / np.sqrt(variance + 1e-3), rtol=1e-4, atol=1e-5)

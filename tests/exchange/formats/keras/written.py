"""Files of Keras 1, 2 and 3, some of them damaged, written by hand."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

NUMPY, CORE = "keras.src.ops.numpy", "keras.src.ops.core"


def old_file(
    path: Path,
    model: Mapping[str, Any],
    weights: Mapping[str, Mapping[str, np.ndarray]],
    version: str,
    **attributes: Any,
) -> Path:
    """Write an HDF5 file of a complete model, with weights by layer and name."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = version
        file.attrs["backend"] = attributes.pop("backend", "tensorflow")
        file.attrs["model_config"] = json.dumps(model)
        for key, value in attributes.items():
            file.attrs[key] = json.dumps(value)
        fill(file.create_group("model_weights"), weights)
    return path


def fill(group: h5py.Group, weights: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    group.attrs["layer_names"] = [name.encode() for name in weights]
    for layer, arrays in weights.items():
        layer_group = group.create_group(layer)
        layer_group.attrs["weight_names"] = np.array([f"{layer}/{name}".encode() for name in arrays], "S64")
        for name, array in arrays.items():
            layer_group[f"{layer}/{name}"] = array


def sequential(*layers: Mapping[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": list(layers)}


def layer(class_name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": class_name, "config": config}


def archive(path: Path, config: Any, weights: bytes | None = b"", **members: bytes) -> Path:
    """Write a `.keras` file with any content."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", '{"keras_version": "3.5.0"}')
        file.writestr("config.json", config if isinstance(config, (str, bytes)) else json.dumps(config))
        if weights is not None:
            file.writestr("model.weights.h5", weights or tree({}))
        for name, data in members.items():
            file.writestr(name, data)
    return path


def tree(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Write a `.weights.h5` file with these arrays by path."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.create_group("vars")
        for name, array in arrays.items():
            file[name] = array
    return buffer.getvalue()


def new_model(*layers: Mapping[str, Any], shape: Sequence[int | None] = (4,)) -> dict[str, Any]:
    """Return the configuration of a sequential model of Keras 3."""
    first = {"module": "keras.layers", **layer("InputLayer", batch_shape=[None, *shape], dtype="float32", name="x")}
    config = {"name": "net", "trainable": True, "layers": [first, *layers]}
    return {"module": "keras", "class_name": "Sequential", "config": config, "registered_name": "Sequential"}


def new(class_name: str, **config: Any) -> dict[str, Any]:
    """Return a layer of Keras 3."""
    return {"module": "keras.layers", "registered_name": None, **layer(class_name, trainable=True, **config)}


def op(kind: str, name: str, *args: Any, module: str = NUMPY, **config: Any) -> dict[str, Any]:
    """Return an operation of Keras 3. Strings among its arguments, also in lists, name the layers that it reads."""
    return {
        "module": module, "class_name": kind, "name": name, "registered_name": kind, "config": {"name": name, **config},
        "inbound_nodes": [{"args": [_tensors(argument) for argument in args], "kwargs": {}}],
    }  # fmt: skip


def _tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [_tensors(item) for item in value]
    if not isinstance(value, str):
        return value
    return {
        "class_name": "__keras_tensor__",
        "config": {"shape": [], "dtype": "float32", "keras_history": [value, 0, 0]},
    }


def given(name: str, *shape: int) -> dict[str, Any]:
    """Return an input of a functional model."""
    config = {"name": name, "batch_shape": [None, *shape], "dtype": "float32"}
    return {"module": "keras.layers", "class_name": "InputLayer", "name": name, "config": config, "inbound_nodes": []}


def functional(path: Path, *layers: dict[str, Any]) -> Path:
    """Write a `.keras` file of a functional model, whose output is the last of the layers."""
    inputs = [[layer["name"], 0, 0] for layer in layers if layer["class_name"] == "InputLayer"]
    config = {"name": "net", "trainable": True, "layers": list(layers), "input_layers": inputs,
              "output_layers": [[layers[-1]["name"], 0, 0]]}  # fmt: skip
    return archive(path, {"module": "keras.src.models.functional", "class_name": "Functional", "config": config})

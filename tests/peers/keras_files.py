"""Keras's predictions for exported files, which `record.py` records."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.exporting import write_keras, write_keras_weights
from tests.exchange.formats.keras.nets import NETS, SAMPLES, Written, written

UNABLE = {
    "not supported by the PyTorch backend": "Keras has it on TensorFlow and JAX alone",
    "to view Short as Int": "PyTorch's uint16 is int32 in Keras",
}
"""Messages of Keras on PyTorch about nets that it can't run, and their meaning."""


def all_written() -> list[Written]:
    """All nets that are written."""
    return [written(name) for name in (*NETS, *SAMPLES)]


def record(keras: Any, before: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Record each file's digest (`of`), and Keras's outputs in netspec's layout, or why Keras can't run it.

    The results in `before` are kept for files that have not changed.
    """
    keras.config.set_floatx("float32")
    keras.config.set_image_data_format("channels_last")
    recorded: dict[str, np.ndarray] = {"operations": np.array(sorted(operations()))}
    with TemporaryDirectory() as folder:
        for case in all_written():
            recorded[f"{case.name}/of"] = np.array(case.digest)
            if str(before.get(f"{case.name}/of", "")) == case.digest:
                recorded |= {key: array for key, array in before.items() if key.rpartition("/")[0] == case.name}
                continue
            outputs = _outputs(keras, case, Path(folder) / "model.keras")
            if isinstance(outputs, str):
                recorded[f"{case.name}/unlike"] = np.array(outputs)
                continue
            for index, array in enumerate(case.in_order(outputs)):
                recorded[f"{case.name}/{index}"] = array
    return recorded


def operations() -> set[str]:
    """Return the classes of all operations of Keras."""
    module_names = ("core", "einops", "image", "linalg", "math", "nn", "numpy")
    base = import_module("keras").Operation
    modules = [import_module(f"keras.src.ops.{module_name}") for module_name in module_names]
    classes = [(value, module) for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {
        value.__name__ for value, module in classes if issubclass(value, base) and value.__module__ == module.__name__
    }


def _outputs(keras: Any, case: Written, path: Path) -> list[np.ndarray] | str:
    write_keras(path, case.exportable)
    model = keras.models.load_model(path)
    if [layer.name for layer in model.layers] != [layer.name for layer in case.model.groups().values()]:
        raise AssertionError(f"{case.name}: layers are in another order")
    weights = path.with_name("other.weights.h5")
    write_keras_weights(weights, case.exportable)
    model.load_weights(weights)
    try:
        outputs = model(case.keras_inputs if len(case.keras_inputs) > 1 else case.keras_inputs[0], training=False)
    except (ValueError, RuntimeError) as refused:
        for message, reason in UNABLE.items():
            if message in str(refused):
                return reason
        raise
    return [keras.ops.convert_to_numpy(y) for y in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]

"""What Keras makes of the files that are written for it: `record.py` has it load each, and predict."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from netspec.exchange.formats.keras.exporting import write_keras, write_keras_weights
from tests.exchange.formats.keras.nets import Written, nets, samples

UNABLE = {
    "not supported by the PyTorch backend": "Keras has it on TensorFlow and JAX alone",
    "to view Short as Int": "PyTorch's uint16 is int32 in Keras",
}
"""What Keras on PyTorch says of what it can't run, and what that means."""


def written() -> list[Written]:
    """All that is written."""
    return [*nets(), *samples()]


def record(keras: Any) -> dict[str, np.ndarray]:
    """For each file: of what it is (`of`), and the outputs as they lie here; or why Keras can't run it."""
    keras.config.set_floatx("float32")
    keras.config.set_image_data_format("channels_last")
    found: dict[str, np.ndarray] = {"operations": np.array(sorted(operations()))}
    with TemporaryDirectory() as folder:
        for one in written():
            found[f"{one.name}/of"] = np.array(one.digest)
            outputs = _outputs(keras, one, Path(folder) / "model.keras")
            if isinstance(outputs, str):
                found[f"{one.name}/unlike"] = np.array(outputs)
                continue
            for index, array in enumerate(one.in_order(outputs)):
                found[f"{one.name}/{index}"] = array
    return found


def operations() -> set[str]:
    """The classes of all operations that Keras has."""
    rooms = ("core", "einops", "image", "linalg", "math", "nn", "numpy")
    base = import_module("keras").Operation
    modules = [import_module(f"keras.src.ops.{room}") for room in rooms]
    classes = [(one, module) for module in modules for one in vars(module).values() if isinstance(one, type)]
    return {one.__name__ for one, module in classes if issubclass(one, base) and one.__module__ == module.__name__}


def _outputs(keras: Any, one: Written, path: Path) -> list[np.ndarray] | str:
    write_keras(path, one.exportable)
    model = keras.models.load_model(path)
    if [layer.name for layer in model.layers] != [layer.name for layer in one.model.groups().values()]:
        raise AssertionError(f"{one.name}: layers are in another order")
    weights = path.with_name("other.weights.h5")
    write_keras_weights(weights, one.exportable)
    model.load_weights(weights)
    try:
        made = model(one.keras_inputs if len(one.keras_inputs) > 1 else one.keras_inputs[0], training=False)
    except (ValueError, RuntimeError) as refused:
        for what, why in UNABLE.items():
            if what in str(refused):
                return why
        raise
    return [keras.ops.convert_to_numpy(y) for y in (made if isinstance(made, (list, tuple)) else [made])]

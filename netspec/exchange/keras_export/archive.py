"""A Keras model as files: `.keras`, a zip of JSON and HDF5, and `.weights.h5`. The same model gives the same bytes."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from netspec.exchange.files import write_atomically
from netspec.exchange.keras_export.model import KerasModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

KERAS = "3.0.0"
"""The version of Keras whose files these are: later ones read them."""
SAVED = "1980-01-01@00:00:00"
"""When a file says that it was saved: the same content gives the same bytes, whenever it is written."""


def write_model(path: Path, model: KerasModel) -> None:
    """Write a `.keras` file, whole or not at all."""
    members = {
        "metadata.json": json.dumps({"keras_version": KERAS, "date_saved": SAVED}).encode(),
        "config.json": json.dumps(model.described()).encode(),
        "model.weights.h5": weights(model),
    }

    def write(temporary: Path) -> None:
        with ZipFile(temporary, "w", ZIP_STORED) as archive:
            for name, content in members.items():
                archive.writestr(ZipInfo(name), content)

    write_atomically(path, write)


def write_weights(path: Path, model: KerasModel) -> None:
    """Write a `.weights.h5` file, whole or not at all."""
    content = weights(model)

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    write_atomically(path, write)


def weights(model: KerasModel) -> bytes:
    """The HDF5 file of a model's weights."""
    import h5py
    import numpy as np

    buffer = BytesIO()
    with h5py.File(buffer, "w", libver=("earliest", "v110")) as file:
        file.create_group("vars").attrs["name"] = model.name

        def put(group: Any, path: str, array: NDArray[Any]) -> None:
            data = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
            group.create_dataset(path, data=data, track_times=False)

        layers = file.create_group("layers")
        for name, layer in model.groups().items():
            group = layers.create_group(name)
            group.create_group("vars").attrs["name"] = layer.name
            for path, array in sorted(layer.arrays.items()):
                put(group, path, array)
        if model.optimizer:
            group = file.create_group("optimizer/vars")
            group.attrs["name"] = model.compiled["optimizer"]["config"]["name"]
            for index, array in enumerate(model.optimizer):
                put(group, str(index), array)
    return buffer.getvalue()

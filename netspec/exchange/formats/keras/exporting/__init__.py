"""Write nets as `.keras` and `.weights.h5` files that Keras 3 loads and that predict the same.

Images are channels-last there: inputs and outputs (N, C, H, W) become (N, H, W, C).
"""

from __future__ import annotations

from pathlib import Path

from netspec.errors import InputError
from netspec.exchange.formats.keras.exporting.layers import RULES
from netspec.exchange.formats.keras.exporting.model import KerasModel, write_model, write_weights
from netspec.exchange.formats.keras.exporting.operators import write_as_operations
from netspec.exchange.formats.keras.exporting.training import write_training
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.formats.registry import Exportable, ExportOptions, Lost
from netspec.exchange.notes import Note


def write_keras(path: Path, exportable: Exportable) -> tuple[str, ...]:
    """Write a `.keras` file. Raises `InputError` with every layer that Keras does not have."""
    model, notes = keras_model(exportable)
    write_model(path, model)
    return notes


def write_keras_weights(path: Path, exportable: Exportable) -> tuple[str, ...]:
    """Write the `.weights.h5` of the model that `write_keras` would write."""
    model, notes = keras_model(exportable)
    write_weights(path, model)
    return notes


def preflight_keras(exportable: Exportable, options: ExportOptions) -> Lost:
    """Every layer that Keras does not have, and the parts of the training that are left out."""
    try:
        _, notes = keras_model(exportable)
    except InputError as error:
        return Lost(error.problems)
    return Lost(notes=notes)


def keras_model(exportable: Exportable) -> tuple[KerasModel, tuple[str, ...]]:
    """The net as a Keras model, and notes for the user."""
    writer = KerasWriter(exportable.net, exportable.graph_for, exportable.arrays, RULES.all(), write_as_operations)
    model = writer.write()
    write_training(exportable, writer)
    images = [
        Note(
            f"the input `{name}` is (N, …, channels) in Keras, channels last",
            "{count} inputs are (N, …, channels) in Keras, channels last",
            f"`{name}`",
        )
        for name, source in zip(writer.graph.inputs(), model.inputs, strict=True)
        if not source.plain
    ]
    return model, (*images, *writer.notes)

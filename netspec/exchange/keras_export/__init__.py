"""Nets as Keras files: `.keras` and `.weights.h5`, that Keras 3 loads and that predict the same.

Images are channels-last there: of an input (N, C, H, W) Keras's is (N, H, W, C), and so are outputs that are images.
"""

from __future__ import annotations

from pathlib import Path

import netspec.exchange.keras_export.elementwise
import netspec.exchange.keras_export.learned
import netspec.exchange.keras_export.moving
import netspec.exchange.keras_export.operators
import netspec.exchange.keras_export.spatial
import netspec.exchange.keras_export.windowed  # noqa: F401  # these register their rules
from netspec.errors import InputError
from netspec.exchange.formats import Exportable, ExportOptions, Lost
from netspec.exchange.keras_export.archive import write_model, write_weights
from netspec.exchange.keras_export.lowering import lowered
from netspec.exchange.keras_export.model import KerasModel
from netspec.exchange.keras_export.rules import RULES
from netspec.exchange.keras_export.training import write_training
from netspec.exchange.keras_export.writer import Writer


def write_keras(path: Path, made: Exportable) -> tuple[str, ...]:
    """Write a `.keras` file. Raises `InputError` with every layer that Keras has no words for."""
    model, notes = keras_model(made)
    write_model(path, model)
    return notes


def write_keras_weights(path: Path, made: Exportable) -> tuple[str, ...]:
    """Write the `.weights.h5` of the model that `write_keras` would write."""
    model, notes = keras_model(made)
    write_weights(path, model)
    return notes


def preflight_keras(made: Exportable, options: ExportOptions) -> Lost:
    """Every layer that Keras has no words for, and what of the training is left out."""
    try:
        _, notes = keras_model(made)
    except InputError as error:
        return Lost(error.problems)
    return Lost(notes=notes)


def keras_model(made: Exportable) -> tuple[KerasModel, tuple[str, ...]]:
    """The net as a Keras model, and what its user should know."""
    writer = Writer(made.net, made.graph_for, made.arrays, RULES, lowered)
    model = writer.write()
    write_training(made, writer)
    images = [f"`{name}`" for name, one in zip(writer.graph.inputs(), model.inputs, strict=True) if not one.plain]
    last = f"channels are last in Keras: {', '.join(images)} is to be given as (N, …, channels)" if images else ""
    return model, (*([last] if last else []), *writer.notes)

"""Nets as Keras files: `.keras` and `.weights.h5`, that Keras 3 loads and that predict the same.

Images are channels-last there: of an input (N, C, H, W) Keras's is (N, H, W, C), and so are outputs that are images.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import netspec.exchange.keras_export.elementwise
import netspec.exchange.keras_export.learned
import netspec.exchange.keras_export.moving
import netspec.exchange.keras_export.operators
import netspec.exchange.keras_export.spatial
import netspec.exchange.keras_export.windowed  # noqa: F401  # these register their rules
from netspec.errors import InputError, Problem
from netspec.exchange.formats import Exportable, ExportOptions
from netspec.exchange.keras_export.archive import write_model, write_weights
from netspec.exchange.keras_export.lowering import lowered
from netspec.exchange.keras_export.model import KerasModel
from netspec.exchange.keras_export.rules import RULES
from netspec.exchange.keras_export.training import write_training
from netspec.exchange.keras_export.writer import Writer
from netspec.graph.graph import Graph

if TYPE_CHECKING:
    from netspec.schema.net import NetSpec


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


def preflight_keras(net: NetSpec, graph_for: Callable[[int], Graph], options: ExportOptions) -> list[Problem]:
    """Every layer that Keras has no words for."""
    try:
        Writer(net, graph_for, {}, RULES, lowered).write()
    except InputError as error:
        return list(error.problems)
    return []


def keras_model(made: Exportable) -> tuple[KerasModel, tuple[str, ...]]:
    """The net as a Keras model, and what its user should know."""
    writer = Writer(made.net, made.graph_for, made.arrays, RULES, lowered)
    model = writer.write()
    write_training(made, writer)
    images = [f"`{name}`" for name, one in zip(writer.graph.inputs(), model.inputs, strict=True) if not one.plain]
    last = f"channels are last in Keras: {', '.join(images)} is to be given as (N, …, channels)" if images else ""
    return model, (*([last] if last else []), *writer.notes)

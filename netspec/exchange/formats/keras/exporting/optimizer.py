"""The states of a solver → the variables of a Keras optimizer, in its order.

A slot has the shape of its parameter, and Keras stores it like the parameter: slots are written as if they were
weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import listing
from netspec.exchange.formats.keras.exporting.model import KerasLayer
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.formats.keras.optimizers import (
    FIELDS,
    MOMENTUM_PRODUCT,
    averages_along,
    distinct_elements,
    has_slot,
    is_negated,
    second_moment,
    slot_groups,
)
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.notes import Notes
from netspec.graph.types import factored_axes


def in_keras_order(arrays: Mapping[str, NDArray[Any]], writer: KerasWriter) -> list[NDArray[Any]]:
    """Arrays of all parameters in Keras's layout, in the order of its trainable variables."""
    return [array for _, array in _keras_arrays(arrays, writer)]


def keras_parameters(writer: KerasWriter) -> list[tuple[str, KerasLayer, tuple[int, ...]]]:
    """The parameters in that order, with their layers and shapes in Keras."""
    shapes = writer.trained()
    names = list(shapes)
    numbered_arrays = {name: np.full(shapes[name], index, np.float32) for index, name in enumerate(names)}
    return [(names[int(array.flat[0])], layer, array.shape) for layer, array in _keras_arrays(numbered_arrays, writer)]


def _keras_arrays(values: Mapping[str, NDArray[Any]], writer: KerasWriter) -> list[tuple[KerasLayer, NDArray[Any]]]:
    """The arrays of the net's parameters, each once, with their layers."""
    arrays = {name: values[name] for name in writer.trained()}
    by_identity: dict[int, tuple[KerasLayer, NDArray[Any]]] = {}
    for layer in replace(writer, arrays=arrays, problems=[], notes=Notes()).write().layers_in_order():
        for array in layer.arrays.values():
            by_identity.setdefault(id(array), (layer, array))
    return list(by_identity.values())


MATRIX_RANK = 2
"""Rank of a matrix."""


def muon_fields(solver: Any, writer: KerasWriter) -> dict[str, Any]:
    """The fields of Muon: expressions for paths of variables. Notes name parameters that Keras updates differently."""
    trained, matrices = writer.trained(), parameters_with_matrix_update(solver, writer)
    unlike = [name for name, shape in trained.items() if solver.is_matrix(name, shape) != (name in matrices)]
    if unlike:
        writer.notes.add(
            f"Keras's Muon updates {', '.join(f'`{name}`' for name in unlike)} by AdamW, whose states start from zero: "
            "only variables with two axes are matrices there, and variables of one name in a layer are updated alike"
        )
    return {"exclude_embeddings": False, "exclude_layers": list(_by_expression(solver, writer)[1])}


def parameters_with_matrix_update(solver: Any, writer: KerasWriter) -> set[str]:
    """Names of the parameters that Keras updates as matrices."""
    expressions, excluded_expressions = _by_expression(solver, writer)
    return {name for name, expression in expressions.items() if expression not in excluded_expressions}


def _by_expression(solver: Any, writer: KerasWriter) -> tuple[dict[str, str], dict[str, None]]:
    """Return a regular expression for each 2-D parameter's path, and the expressions of parameters that AdamW updates.

    An expression matches the layer if all its parameters are updated alike, else also the parameter's last name:
    parameters of one name, such as both kernels of a Bidirectional, are updated alike.
    """
    shapes = writer.trained()
    by_layer: dict[str, dict[str, bool]] = {}
    for name, layer, shape in keras_parameters(writer):
        if len(shape) == MATRIX_RANK:
            has_same_axes = sorted(shape) == sorted(shapes[name])  # a Parameter is stored as a single row
            by_layer.setdefault(layer.name, {})[name] = has_same_axes and solver.is_matrix(name, shapes[name])
    expressions: dict[str, str] = {}
    excluded_expressions: dict[str, None] = {}
    for layer_name, is_matrix_by_name in by_layer.items():
        path = f"^{re.escape(layer_name)}/"
        for name, is_matrix in is_matrix_by_name.items():
            last_part = name.rpartition("/")[2]
            expressions[name] = path if len(set(is_matrix_by_name.values())) == 1 else f"{path}(.*/)?{last_part}$"
            excluded_expressions |= {} if is_matrix else {expressions[name]: None}
    return expressions, excluded_expressions


LEFT_OUT = "the states of the solver are left out"


def variables(exportable: Exportable, rate: Any, writer: KerasWriter) -> list[NDArray[Any]]:
    """The optimizer's variables in Keras's order; empty, with a note, if the states do not match."""
    solver: Any = exportable.train.solver if exportable.train is not None else None
    optimizer_variables = [np.array(exportable.step, np.int32)]
    if not isinstance(rate, dict):
        optimizer_variables.append(np.array(rate, np.float32))
    slots = _by_parameter(exportable.slots)
    states: list[NDArray[Any]] | None
    if getattr(solver, "momentum", 0) and not getattr(solver, "rate_in_velocity", True):
        writer.notes.add(f"{LEFT_OUT}: Keras's velocity contains the rate (`rate_in_velocity: true`)")
        return []
    if solver.type == "Adafactor":
        states = _adafactor_slots(slots, writer)
    elif solver.type == "Muon":
        states = _muon_slots(solver, slots, writer)
    else:
        states = _uniform_slots(solver, slots, writer)
    if states is None:
        writer.notes.add(f"{LEFT_OUT}: they do not match all weights that Keras trains")
        return []
    optimizer_variables += [array.astype(np.float32) for array in states]
    if solver.type == "Nadam":
        if MOMENTUM_PRODUCT not in exportable.slots:
            writer.notes.add(f"{LEFT_OUT}: their product of momenta is not in the checkpoint")
            return []
        optimizer_variables.append(np.asarray(exportable.slots[MOMENTUM_PRODUCT], np.float32))
    return optimizer_variables


def _by_parameter(slots: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """The slots by name, then by parameter."""
    by_slot: dict[str, dict[str, NDArray[Any]]] = {}
    for key, array in slots.items():
        parameter, _, name = key.removeprefix("solver/").rpartition("/")
        by_slot.setdefault(name, {})[parameter] = array
    return by_slot


def _uniform_slots(
    solver: Any, slots: Mapping[str, Mapping[str, NDArray[Any]]], writer: KerasWriter
) -> list[NDArray[Any]] | None:
    """Slots of solvers that have the same ones for all parameters, with the parameters' shapes."""
    ordered: list[NDArray[Any]] = []
    for group in slot_groups(solver.type, {key: getattr(solver, key) for key in FIELDS[solver.type]}):
        arrays_by_slot = []
        for name in group:
            arrays = {
                key: -array if is_negated(solver.type, name) else array for key, array in slots.get(name, {}).items()
            }
            if not arrays.keys() >= writer.trained().keys():
                return None
            arrays_by_slot.append(in_keras_order(arrays, writer))
        ordered += [array for slots_of_parameter in zip(*arrays_by_slot, strict=True) for array in slots_of_parameter]
    return ordered


def _adafactor_slots(slots: Mapping[str, Mapping[str, NDArray[Any]]], writer: KerasWriter) -> list[NDArray[Any]] | None:
    """Slots of Adafactor: rows and columns along the last two axes, zeros for vectors, and second moments."""
    rows, columns, second = (dict(slots.get(name, {})) for name in ("rows", "columns", "second_moment"))
    if not {*rows, *second} >= writer.trained().keys() or rows.keys() != columns.keys():
        return None
    indices: list[dict[str, NDArray[Any]]] = [{}, {}]
    for name in rows:
        shape = np.broadcast_shapes(rows[name].shape, columns[name].shape)
        axes = factored_axes(shape)
        assert axes is not None  # because the parameter has rows
        second[name] = second_moment(rows[name], columns[name], axes[0])
        for numbered_averages, averages in zip(indices, (rows, columns), strict=True):
            numbered_averages[name] = np.broadcast_to(distinct_elements(averages[name]), shape)
            averages[name] = np.broadcast_to(averages[name], shape)
    vectors = {name: array for name, array in second.items() if name not in rows}
    laid_out = [rows | vectors, columns | vectors, second]
    laid_out += [
        numbered_averages | {name: distinct_elements(array) for name, array in vectors.items()}
        for numbered_averages in indices
    ]
    ordered: list[NDArray[Any]] = []
    zero, unlike = np.zeros((), np.float32), []
    names = [name for name, _, _ in keras_parameters(writer)]
    for name, *arrays in zip(names, *(in_keras_order(kind, writer) for kind in laid_out), strict=True):
        moment = arrays[2]
        if moment.ndim < MATRIX_RANK:
            ordered += [zero, zero, moment]
            continue
        row, column, is_exact = averages_along(arrays[:2], moment, arrays[3:], (moment.ndim - 2, moment.ndim - 1))
        ordered += [row[..., 0], column[..., 0, :], moment]
        unlike += [] if is_exact else [name]
    if unlike:
        named = listing([f"`{name}`" for name in unlike])
        writer.notes.add(
            f"Keras's Adafactor averages along the last two axes, which differ for {named}: "
            f"they continue from their second moments, and steps differ from those here"
        )
    return ordered


def _muon_slots(
    solver: Any, slots: Mapping[str, Mapping[str, NDArray[Any]]], writer: KerasWriter
) -> list[NDArray[Any]] | None:
    """Slots of Muon: momentum of matrices, two moments of others; zeros if Keras's update of a parameter differs."""
    arrays_by_parameter = {name: dict(slots.get(name, {})) for name in slot_groups("Muon", {})[0]}
    for name, shape in writer.trained().items():
        for slot, arrays in arrays_by_parameter.items():
            if name not in arrays and has_slot("Muon", slot, matrix=solver.is_matrix(name, shape)):
                return None
            arrays.setdefault(name, np.zeros(shape, np.float32))
    matrices = parameters_with_matrix_update(solver, writer)
    arrays_by_slot = {slot: in_keras_order(arrays, writer) for slot, arrays in arrays_by_parameter.items()}
    return [
        arrays_by_slot[slot][index]
        for index, (name, _, _) in enumerate(keras_parameters(writer))
        for slot in arrays_by_slot
        if has_slot("Muon", slot, matrix=name in matrices)
    ]

"""The states of a solver → the variables of a Keras optimizer, in its order.

A slot has the shape of its parameter, and Keras stores it like the parameter: slots are written as if they were
weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats.keras.exporting.model import KerasLayer
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.formats.keras.optimizers import (
    FIELDS,
    MOMENTUM_PRODUCT,
    is_kept,
    is_turned,
    numbered,
    refactored,
    second_moment,
    slot_groups,
)
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.notes import Notes
from netspec.graph.types import factored_axes

if TYPE_CHECKING:
    from numpy.typing import NDArray


def laid(own: Mapping[str, NDArray[Any]], writer: KerasWriter) -> list[NDArray[Any]]:
    """Arrays of all parameters in Keras's layout, in the order of its trainable variables."""
    return [array for _, array in _in_order(own, writer)]


def placed(writer: KerasWriter) -> list[tuple[str, KerasLayer, tuple[int, ...]]]:
    """The parameters in that order, with their layers and shapes in Keras."""
    import numpy as np

    trained = writer.trained()
    names = list(trained)
    marks = {name: np.full(trained[name], index, np.float32) for index, name in enumerate(names)}
    return [(names[int(array.flat[0])], layer, array.shape) for layer, array in _in_order(marks, writer)]


def _in_order(own: Mapping[str, NDArray[Any]], writer: KerasWriter) -> list[tuple[KerasLayer, NDArray[Any]]]:
    """The arrays of the net's parameters, each once, with their layers."""
    arrays = {name: own[name] for name in writer.trained()}
    found: dict[int, tuple[KerasLayer, NDArray[Any]]] = {}
    for layer in replace(writer, arrays=arrays, problems=[], notes=Notes()).write().ordered():
        for array in layer.arrays.values():
            found.setdefault(id(array), (layer, array))
    return list(found.values())


MATRIX = 2
"""Rank of a matrix."""


def excluded(solver: Any, writer: KerasWriter) -> dict[str, Any]:
    """The fields of Muon: expressions for paths of variables. Parameters that Keras updates differently are noted."""
    trained, matrices = writer.trained(), matrices_of(solver, writer)
    others = [name for name, shape in trained.items() if solver.is_matrix(name, shape) != (name in matrices)]
    if others:
        writer.note(
            f"Keras's Muon updates {', '.join(f'`{name}`' for name in others)} by AdamW, whose states start from zero: "
            "only variables with two axes are matrices there, and variables of one name in a layer are updated alike"
        )
    return {"exclude_embeddings": False, "exclude_layers": list(_by_expression(solver, writer)[1])}


def matrices_of(solver: Any, writer: KerasWriter) -> set[str]:
    """Names of the parameters that Keras updates as matrices."""
    expressions, moved = _by_expression(solver, writer)
    return {name for name, expression in expressions.items() if expression not in moved}


def _by_expression(solver: Any, writer: KerasWriter) -> tuple[dict[str, str], dict[str, None]]:
    """An expression for the path of each parameter with two axes in Keras, and those of the ones that AdamW updates.

    It names the layer if all its parameters are updated alike, else also the last name in it; those of one name, such
    as both kernels of a Bidirectional, are updated alike.
    """
    shapes = writer.trained()
    moves: dict[str, dict[str, bool]] = {}
    for name, layer, shape in placed(writer):
        if len(shape) == MATRIX:
            alike = sorted(shape) == sorted(shapes[name])  # a Parameter is a single row there
            moves.setdefault(layer.name, {})[name] = alike and solver.is_matrix(name, shapes[name])
    found: dict[str, str] = {}
    moved: dict[str, None] = {}
    for layer_name, own in moves.items():
        path = f"^{re.escape(layer_name)}/"
        for name, is_matrix in own.items():
            last = name.rpartition("/")[2]
            found[name] = path if len(set(own.values())) == 1 else f"{path}(.*/)?{last}$"
            moved |= {} if is_matrix else {found[name]: None}
    return found, moved


LEFT = "the states of the solver are left out"


def variables(made: Exportable, rate: Any, writer: KerasWriter) -> list[NDArray[Any]]:
    """The optimizer's variables in Keras's order; empty, with a note, if the states do not match."""
    import numpy as np

    solver: Any = made.train.solver if made.train is not None else None
    found = [np.array(made.step, np.int32)]
    if not isinstance(rate, dict):
        found.append(np.array(rate, np.float32))
    slots = _by_parameter(made.slots)
    states: list[NDArray[Any]] | None
    if getattr(solver, "momentum", 0) and not getattr(solver, "rate_in_velocity", True):
        writer.note(f"{LEFT}: Keras's velocity contains the rate (`rate_in_velocity: true`)")
        return []
    if solver.type == "Adafactor":
        states = _of_factors(slots, writer)
    elif solver.type == "Muon":
        states = _of_matrices(solver, slots, writer)
    else:
        states = _alike(solver, slots, writer)
    if states is None:
        writer.note(f"{LEFT}: they do not match all weights that Keras trains")
        return []
    found += [array.astype(np.float32) for array in states]
    if solver.type == "Nadam":
        if MOMENTUM_PRODUCT not in made.slots:
            writer.note(f"{LEFT}: their product of momenta is not in the checkpoint")
            return []
        found.append(np.asarray(made.slots[MOMENTUM_PRODUCT], np.float32))
    return found


def _by_parameter(slots: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """The slots by name, then by parameter."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for key, array in slots.items():
        parameter, _, name = key.removeprefix("solver/").rpartition("/")
        found.setdefault(name, {})[parameter] = array
    return found


def _alike(
    solver: Any, slots: Mapping[str, Mapping[str, NDArray[Any]]], writer: KerasWriter
) -> list[NDArray[Any]] | None:
    """Slots of solvers that have the same ones for all parameters, with the parameters' shapes."""
    found: list[NDArray[Any]] = []
    for group in slot_groups(solver.type, {key: getattr(solver, key) for key in FIELDS[solver.type]}):
        kinds = []
        for name in group:
            own = {key: -one if is_turned(solver.type, name) else one for key, one in slots.get(name, {}).items()}
            if not own.keys() >= writer.trained().keys():
                return None
            kinds.append(laid(own, writer))
        found += [array for several in zip(*kinds, strict=True) for array in several]
    return found


def _of_factors(slots: Mapping[str, Mapping[str, NDArray[Any]]], writer: KerasWriter) -> list[NDArray[Any]] | None:
    """Slots of Adafactor: rows and columns along the last two axes, zeros for vectors, and second moments."""
    import numpy as np

    rows, columns, second = (dict(slots.get(name, {})) for name in ("rows", "columns", "second_moment"))
    if not {*rows, *second} >= writer.trained().keys() or rows.keys() != columns.keys():
        return None
    places: list[dict[str, NDArray[Any]]] = [{}, {}]
    for name in rows:
        shape = np.broadcast_shapes(rows[name].shape, columns[name].shape)
        axes = factored_axes(shape)
        assert axes is not None  # since it has rows
        second[name] = second_moment(rows[name], columns[name], axes[0])
        for own, of in zip(places, (rows, columns), strict=True):
            own[name] = np.broadcast_to(numbered(of[name]), shape)
            of[name] = np.broadcast_to(of[name], shape)
    vectors = {name: array for name, array in second.items() if name not in rows}
    kinds = [rows | vectors, columns | vectors, second]
    kinds += [own | {name: numbered(array) for name, array in vectors.items()} for own in places]
    found: list[NDArray[Any]] = []
    zero, others = np.zeros((), np.float32), []
    names = [name for name, _, _ in placed(writer)]
    for name, *several in zip(names, *(laid(kind, writer) for kind in kinds), strict=True):
        moment = several[2]
        if moment.ndim < MATRIX:
            found += [zero, zero, moment]
            continue
        row, column, same = refactored(several[:2], moment, several[3:], (moment.ndim - 2, moment.ndim - 1))
        found += [row[..., 0], column[..., 0, :], moment]
        others += [] if same else [name]
    if others:
        writer.note(
            f"Keras's Adafactor averages along the last two axes, which differ for {_named(others)}: "
            f"they continue from their second moments, and steps differ from those here"
        )
    return found


def _named(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _of_matrices(
    solver: Any, slots: Mapping[str, Mapping[str, NDArray[Any]]], writer: KerasWriter
) -> list[NDArray[Any]] | None:
    """Slots of Muon: momentum of matrices, two moments of others; zeros if Keras's update of a parameter differs."""
    import numpy as np

    has = {name: dict(slots.get(name, {})) for name in slot_groups("Muon", {})[0]}
    for name, shape in writer.trained().items():
        for slot, own in has.items():
            if name not in own and is_kept("Muon", slot, matrix=solver.is_matrix(name, shape)):
                return None
            own.setdefault(name, np.zeros(shape, np.float32))
    matrices = matrices_of(solver, writer)
    kinds = {slot: laid(own, writer) for slot, own in has.items()}
    return [
        kinds[slot][index]
        for index, (name, _, _) in enumerate(placed(writer))
        for slot in kinds
        if is_kept("Muon", slot, matrix=name in matrices)
    ]

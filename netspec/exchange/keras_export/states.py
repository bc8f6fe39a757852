"""The states of a solver → the variables of a Keras optimizer, in its order.

A slot has the shape of its parameter, and Keras has it as it has that: slots are written as if they were the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats import Exportable
from netspec.exchange.keras_export.orthogonal import MATRIX, matrices_of
from netspec.exchange.keras_export.placing import laid, placed
from netspec.exchange.keras_export.writer import Writer
from netspec.exchange.keras_factors import numbered, refactored, second_moment
from netspec.exchange.keras_solvers import FIELDS, MOMENTUM_PRODUCT, is_kept, is_turned, slot_groups
from netspec.graph.factoring import factored

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEFT = "the states of the solver were left out"


def variables(made: Exportable, rate: Any, net: Writer) -> list[NDArray[Any]]:
    """The optimizer's variables in Keras's order; none, with a note, where the states are not those that it wants."""
    import numpy as np

    solver: Any = made.train.solver if made.train is not None else None
    found = [np.array(made.step, np.int32)]
    if not isinstance(rate, dict):
        found.append(np.array(rate, np.float32))
    slots = _by_parameter(made.slots)
    states: list[NDArray[Any]] | None
    if solver.type == "Adafactor":
        states = _of_factors(slots, net)
    elif solver.type == "Muon":
        states = _of_matrices(solver, slots, net)
    else:
        states = _alike(solver, slots, net)
    if states is None:
        net.note(f"{LEFT}: they are not those of all weights that Keras trains")
        return []
    found += [array.astype(np.float32) for array in states]
    if solver.type == "Nadam":
        if MOMENTUM_PRODUCT not in made.slots:
            net.note(f"{LEFT}: their product of momenta is not in the checkpoint")
            return []
        found.append(np.asarray(made.slots[MOMENTUM_PRODUCT], np.float32))
    return found


def _by_parameter(slots: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, NDArray[Any]]]:
    """The slots by their names, and by the names of their parameters."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    for key, array in slots.items():
        parameter, _, name = key.removeprefix("solver/").rpartition("/")
        found.setdefault(name, {})[parameter] = array
    return found


def _alike(solver: Any, slots: Mapping[str, Mapping[str, NDArray[Any]]], net: Writer) -> list[NDArray[Any]] | None:
    """Where all parameters have the same slots, each of its parameter's shape."""
    found: list[NDArray[Any]] = []
    for group in slot_groups(solver.type, {key: getattr(solver, key) for key in FIELDS[solver.type]}):
        kinds = []
        for name in group:
            own = {key: -one if is_turned(solver.type, name) else one for key, one in slots.get(name, {}).items()}
            if not own.keys() >= net.trained().keys():
                return None
            kinds.append(laid(own, net))
        found += [array for several in zip(*kinds, strict=True) for array in several]
    return found


def _of_factors(slots: Mapping[str, Mapping[str, NDArray[Any]]], net: Writer) -> list[NDArray[Any]] | None:
    """Adafactor's: rows and columns along the last two axes and what they stand for; zeros for those of vectors."""
    import numpy as np

    rows, columns, second = (dict(slots.get(name, {})) for name in ("rows", "columns", "second_moment"))
    if not {*rows, *second} >= net.trained().keys() or rows.keys() != columns.keys():
        return None
    places: list[dict[str, NDArray[Any]]] = [{}, {}]
    for name in rows:
        shape = np.broadcast_shapes(rows[name].shape, columns[name].shape)
        axes = factored(shape)
        assert axes is not None  # or it had no rows
        second[name] = second_moment(rows[name], columns[name], axes[0])
        for own, of in zip(places, (rows, columns), strict=True):
            own[name] = np.broadcast_to(numbered(of[name]), shape)
            of[name] = np.broadcast_to(of[name], shape)
    vectors = {name: array for name, array in second.items() if name not in rows}
    kinds = [rows | vectors, columns | vectors, second]
    kinds += [own | {name: numbered(array) for name, array in vectors.items()} for own in places]
    found: list[NDArray[Any]] = []
    zero, others = np.zeros((), np.float32), []
    names = [name for name, _, _ in placed(net)]
    for name, *several in zip(names, *(laid(one, net) for one in kinds), strict=True):
        moment = several[2]
        if moment.ndim < MATRIX:
            found += [zero, zero, moment]
            continue
        row, column, same = refactored(several[:2], moment, several[3:], (moment.ndim - 2, moment.ndim - 1))
        found += [row[..., 0], column[..., 0, :], moment]
        others += [] if same else [name]
    if others:
        net.note(
            f"Keras's Adafactor keeps averages along the last two axes, which are other ones for {_named(others)}: "
            f"they go on from the second moments that these stand for, and steps differ from those here"
        )
    return found


def _named(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _of_matrices(
    solver: Any, slots: Mapping[str, Mapping[str, NDArray[Any]]], net: Writer
) -> list[NDArray[Any]] | None:
    """Muon's: the momentum of matrices, and the two moments of what AdamW moves; zeros where Keras moves otherwise."""
    import numpy as np

    has = {name: dict(slots.get(name, {})) for name in slot_groups("Muon", {})[0]}
    for name, shape in net.trained().items():
        for slot, own in has.items():
            if name not in own and is_kept("Muon", slot, matrix=solver.is_matrix(name, shape)):
                return None
            own.setdefault(name, np.zeros(shape, np.float32))
    matrices = matrices_of(solver, net)
    kinds = {slot: laid(own, net) for slot, own in has.items()}
    return [
        kinds[slot][index]
        for index, (name, _, _) in enumerate(placed(net))
        for slot in kinds
        if is_kept("Muon", slot, matrix=name in matrices)
    ]

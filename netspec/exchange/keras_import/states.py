"""The variables of a Keras optimizer → the states of the solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import product
from typing import TYPE_CHECKING, Any

from netspec.exchange import keras_solvers
from netspec.exchange.hdf5_foreign import Hdf5
from netspec.exchange.keras_factors import numbered, refactored
from netspec.exchange.keras_import.archive import KerasFile
from netspec.exchange.keras_import.orthogonal import MATRIX, Parameters, matrices_there, name_of
from netspec.exchange.keras_import.translate import Translator, Wanted
from netspec.exchange.keras_import.weights import fitted, flat_order
from netspec.exchange.keras_names import Variable
from netspec.graph.factoring import factored

if TYPE_CHECKING:
    from numpy.typing import NDArray


def trained_in_order(net: Translator) -> list[tuple[Wanted, Variable]]:
    """The parameters that Keras trains, in its order."""
    turn = {layer: place for place, layer in enumerate(net.graph.layers)}
    ordered = sorted(net.wanted, key=lambda one: turn[one.layer])
    return [(one, v) for one, v in flat_order(ordered) if v is not None and v.trainable and not one.layer.frozen]


def slots_of(file: KerasFile, net: Translator, solver: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], int]:
    """The states of the solver, and how many steps it had taken; none where the file's do not fit the net."""
    weights = file.weights
    found = [] if weights is None else _stored(weights)
    if weights is None or not found or weights.shape(found[0]) != ():
        return {}, 0
    step = int(weights.array(found[0]).item())
    rest = [weights.array(path) for path in found[1:]]
    type_ = str(solver["type"])
    products = [rest.pop()] if type_ == "Nadam" and rest and rest[-1].shape == () and len(rest) > 1 else []
    if not isinstance(solver["learning_rate"], dict) and rest and rest[0].shape == () and file.major > 2:
        rest = rest[1:]
    trained = trained_in_order(net)
    by_name = sorted(trained, key=lambda pair: pair[0].stored.get(pair[1].state, ""))
    parameters = [by_name, trained] if file.version.startswith(("1.", "2.0.")) else [trained]  # which sorted them
    matrices = set(matrices_there(file, trained, net.reading)) if type_ == "Muon" else set()
    averages = len(trained) if solver.get("ema") else 0
    spread = _spread(rest, trained, averages) if type_ == "Adafactor" else rest
    for groups, several in product(_orders(type_, solver, file.major), parameters):
        slots = _laid(type_, groups, several, spread, matrices)
        if slots is not None:
            slots = {
                key: -one if keras_solvers.is_turned(type_, key.rpartition("/")[2]) else one
                for key, one in slots.items()
            }
            if type_ == "Adafactor":
                places = _laid(type_, groups, several, _spread([*map(numbered, rest)], trained, averages), matrices)
                slots = _factored(slots, places or {}, net)
            if products:
                slots[keras_solvers.MOMENTUM_PRODUCT] = products[0].astype("float32")
            return slots, step
    net.reading.note("the states of the optimizer do not fit the net and were left out")
    return {}, 0


def _stored(weights: Hdf5) -> list[str]:
    """Paths of the optimizer's variables, in its order."""
    if weights.attribute("optimizer_weights", "weight_names"):
        names = weights.attribute("optimizer_weights", "weight_names")
        return [path for name in names if weights.holds(path := f"optimizer_weights/{name}")]
    group = "optimizer/inner_optimizer/vars" if "optimizer/inner_optimizer/vars" in weights else "optimizer/vars"
    numbers = sorted(int(name) for name in weights.below(group) if name.isdigit())
    return [f"{group}/{number}" for number in numbers]


def _orders(type_: str, solver: Mapping[str, Any], major: int) -> list[list[list[str]]]:
    """The ways in which files of this optimizer may have its variables, the likeliest first."""
    groups = keras_solvers.slot_groups(type_, solver)
    if solver.get("ema"):
        groups.insert(0, ["average"])
    apart = [[name] for group in groups for name in group]  # all of one kind, then all of the next
    return [groups, apart] if major > 2 else [apart, groups]


def _laid(
    type_: str,
    groups: Sequence[Sequence[str]],
    trained: Parameters,
    arrays: Sequence[NDArray[Any]],
    matrices: Set[str],
) -> dict[str, NDArray[Any]] | None:
    """The slots by name, if there are as many arrays, of the shapes of the parameters."""
    expected = [
        (one, variable, name)
        for group in groups
        for one, variable in trained
        for name in group
        if keras_solvers.is_kept(type_, name, matrix=name_of(one, variable) in matrices)
    ]
    if len(arrays) < len(expected) or any(array.size > 1 for array in arrays[len(expected) :]):
        return None
    found: dict[str, NDArray[Any]] = {}
    for (one, variable, name), array in zip(expected, arrays, strict=False):
        made = fitted(array, variable, one)
        if made is None or made.shape != one.shapes[one.prefix + variable.state]:
            return None
        found[f"solver/{name_of(one, variable)}/{name}"] = made
    return found


def _spread(arrays: Sequence[NDArray[Any]], trained: Parameters, first: int) -> list[NDArray[Any]]:
    """Variables of Adafactor, its rows and columns repeated to the shapes of the parameters that they are of.

    `first` are those before; a vector, which has zeros for rows and columns, has its second moments there too.
    """
    import numpy as np

    found = list(arrays)
    for place in range(first, min(first + 3 * len(trained), len(found) - 2), 3):
        row, column, second = found[place : place + 3]
        if second.ndim < MATRIX:
            found[place : place + 2] = [second, second]
        elif row.shape == second.shape[:-1] and column.shape == (*second.shape[:-2], second.shape[-1]):
            found[place] = np.broadcast_to(row[..., None], second.shape)
            found[place + 1] = np.broadcast_to(column[..., None, :], second.shape)
    return found


def _factored(
    slots: Mapping[str, NDArray[Any]], places: Mapping[str, NDArray[Any]], net: Translator
) -> dict[str, NDArray[Any]]:
    """Adafactor's slots of the axes that are factored here, of those that are spread; `places` as `refactored` has."""
    found = dict(slots)
    others = []
    for key, second in slots.items():
        state, _, name = key.rpartition("/")
        axes = factored(second.shape)
        if name != "second_moment":
            continue
        keys = [f"{state}/rows", f"{state}/columns"]
        factors = [found.pop(one) for one in keys]
        if axes is not None:
            del found[key]
            *averages, same = refactored(factors, second, [places[one] for one in keys], axes)
            found |= zip(keys, averages, strict=True)
            others += [] if same else [state.removeprefix("solver/")]
    if others:
        net.reading.note(
            f"Adafactor keeps averages along the two largest axes, which are other ones than Keras's last two for "
            f"{', '.join(f'`{name}`' for name in others)}: they go on from the second moments that these stand for, "
            f"and steps differ from Keras's"
        )
    return found

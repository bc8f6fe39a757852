"""`.solverstate` and `.solverstate.h5`: states of a solver of Caffe → slots of the same solver here.

The history has one array for each of the net's parameters, in their order; for AdaDelta and Adam, a second array for
each follows after all first ones. Caffe subtracts the history of a momentum from the weights, netspec adds the
velocity; both include the rate, so that only the sign differs (ADR 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netspec.errors import InputError
from netspec.exchange.containers.hdf5 import open_hdf5
from netspec.exchange.files import HEAD_BYTES, reading
from netspec.exchange.formats.caffe.blobs import BadBlob, blob_array
from netspec.exchange.formats.caffe.proto.binary import read_binary
from netspec.exchange.formats.caffe.reading import NetDraft
from netspec.exchange.formats.caffe.recognizing import is_solver_state
from netspec.files.hdf5 import SIGNATURE

STATE = "the state of a solver of Caffe's (.solverstate or .solverstate.h5)"
_MAX_ARRAYS = 100_000
SLOTS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "SGD": (("velocity", -1.0),),
    "Adagrad": (("accumulator", 1.0),),
    "RMSprop": (("second_moment", 1.0),),
    "Adadelta": (("accumulator", 1.0), ("delta_accumulator", 1.0)),
    "Adam": (("first_moment", 1.0), ("second_moment", 1.0)),
}
"""The slots of each solver that the parts of the history become, and the factor between the two."""


@dataclass(frozen=True)
class SolverState:
    """The step and the history of a solver."""

    path: Path
    step: int
    learned_net: str
    """The file of the weights, as the solver named it."""
    history: Sequence[NDArray[Any]]


def is_state(path: Path) -> bool:
    """Whether a file is the state of a solver. Raises `InputError` if there is no file."""
    with reading(path, "weights, or " + STATE) as (file, _):
        return is_solver_state(file.read(HEAD_BYTES), path)


def read_state(path: Path) -> SolverState:
    """Read the state in a file of either kind. Raises `InputError`."""
    with reading(path, STATE) as (file, _):
        head = file.read(len(SIGNATURE))
    if head == SIGNATURE:
        return _read_hdf5(path)
    message = read_binary(path, "SolverState", STATE)
    try:
        history = [blob_array(blob) for blob in message["history"]]
    except BadBlob as error:
        raise InputError(f"{path}: an array of the history is damaged: {error}", expected=STATE) from None
    return _checked(SolverState(path, message["iter"], message["learned_net"], history))


def _read_hdf5(path: Path) -> SolverState:
    """`/iter`, `/learned_net` and `/history/0, 1, …`."""
    file = open_hdf5(path, STATE)
    names = file.below("history")
    if len(names) > _MAX_ARRAYS or set(names) != {str(index) for index in range(len(names))}:
        raise InputError(f"{path} is not {STATE}", expected="`history/0, 1, …`", got=f"{len(names)} entries")
    step = file.array("iter") if file.holds("iter") else None
    if step is None or step.size != 1 or step.dtype.kind not in "iu":
        raise InputError(f"{path} is not {STATE}", expected="`iter`, an integer")
    learned = file.text("learned_net") if file.holds("learned_net") else ""
    history = [file.floats(f"history/{index}") for index in range(len(names))]
    return _checked(SolverState(path, int(step.item()), learned, history))


def _checked(state: SolverState) -> SolverState:
    if state.step < 0:
        raise InputError(f"{state.path} is not {STATE}", expected="an iteration of 0 or more", got=str(state.step))
    return state


def slots_of(state: SolverState, solver: Mapping[str, Any], draft: NetDraft) -> dict[str, NDArray[Any]]:
    """The slots of a solver (the field of a training file) by their names in a checkpoint.

    Raises `InputError` if the history is that of another net or solver.
    """
    solver_slots = SLOTS[solver["type"]]
    learned = draft.learned
    if len(state.history) != len(solver_slots) * len(learned):
        raise InputError(
            f"{state.path} is the state of another net or solver",
            expected=f"{len(solver_slots)} × {len(learned)} arrays, as {solver['type']} has for this net",
            got=f"{len(state.history)} arrays",
        )
    if solver["type"] == "SGD" and not solver.get("momentum"):
        return {}
    arrays, frozen = draft.draft.arrays(), _frozen(draft)
    slots: dict[str, NDArray[Any]] = {}
    for part, (slot, factor) in enumerate(solver_slots):
        for index, parameter in enumerate(learned):
            if not parameter.state or parameter.state in frozen:
                continue
            array = state.history[part * len(learned) + index]
            if array.size != arrays[parameter.state].size:
                raise InputError(
                    f"{state.path} is the state of another net", expected=f"{list(arrays[parameter.state].shape)}",
                    got=f"{list(array.shape)} for {parameter.state}",
                )  # fmt: skip
            converted = array if parameter.convert is None else parameter.convert(array)
            slots[f"solver/{parameter.state}/{slot}"] = np.ascontiguousarray(
                factor * converted.reshape(arrays[parameter.state].shape), np.float32
            )
    return slots


def _frozen(draft: NetDraft) -> set[str]:
    """Parameters that are not trained, for which no solver here has slots."""
    frozen = set()
    for layer in draft.draft.layers:
        rate = layer.fields.get("learning_rate_multiplier", 1)
        for key in layer.arrays:
            multiplier = rate.get(key, 1) if isinstance(rate, Mapping) else rate
            if not multiplier or not layer.fields.get("trainable", True):
                frozen.add(f"{layer.name}/{key}")
    return frozen

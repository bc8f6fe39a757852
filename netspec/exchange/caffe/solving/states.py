"""`.solverstate` and `.solverstate.h5`: what a solver of Caffe's remembers → slots of the same solver here.

The history is in the order of the net's parameters, one array for each; of AdaDelta and Adam a second one for each
follows all the first. Caffe's history of a momentum is what is taken off the weights, rate included: the velocity here
is what is added, rate included too, so the sign alone differs (ADR 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec.errors import InputError
from netspec.exchange.caffe.blobs import BadBlob, blob_array
from netspec.exchange.caffe.nets import NetDraft
from netspec.exchange.caffe.proto.wire import read_binary
from netspec.exchange.caffe.recognizing import HDF5, is_solver_state
from netspec.exchange.files import HEAD_BYTES, reading

if TYPE_CHECKING:
    from numpy.typing import NDArray

STATE = "the state of a solver of Caffe's (.solverstate or .solverstate.h5)"
_MOST = 100_000
KEPT: Mapping[str, tuple[tuple[str, float], ...]] = {
    "SGD": (("velocity", -1.0),),
    "Adagrad": (("accumulator", 1.0),),
    "RMSprop": (("second_moment", 1.0),),
    "Adadelta": (("accumulator", 1.0), ("delta_accumulator", 1.0)),
    "Adam": (("first_moment", 1.0), ("second_moment", 1.0)),
}
"""The slots of each solver that stand for the parts of the history, and the factor between the two."""


@dataclass(frozen=True)
class SolverState:
    """How far a solver had come."""

    path: Path
    step: int
    learned_net: str
    """The file of the weights, as the solver called it."""
    history: Sequence[NDArray[Any]]


def is_state(path: Path) -> bool:
    """Whether a file is the state of a solver. Raises `InputError` where there is none."""
    with reading(path, "weights, or " + STATE) as (file, _):
        return is_solver_state(file.read(HEAD_BYTES), path)


def read_state(path: Path) -> SolverState:
    """The state in a file of either kind. Raises `InputError`."""
    with reading(path, STATE) as (file, _):
        head = file.read(len(HDF5))
    if head == HDF5:
        return _read_hdf5(path)
    message = read_binary(path, "SolverState", STATE)
    try:
        history = [blob_array(blob) for blob in message["history"]]
    except BadBlob as error:
        raise InputError(f"{path}: an array of the history is none: {error}", expected=STATE) from None
    return _checked(SolverState(path, message["iter"], message["learned_net"], history))


def _read_hdf5(path: Path) -> SolverState:
    """`/iter`, `/learned_net` and `/history/0, 1, …`."""
    import h5py

    with reading(path, STATE) as (file, size):
        try:
            with h5py.File(file, "r") as opened:
                return _checked(_of_hdf5(path, opened, size))
        except (OSError, KeyError, RuntimeError, ValueError, TypeError, RecursionError, MemoryError) as error:
            raise InputError(f"{path} is damaged", expected=STATE, got=str(error)) from error


def _of_hdf5(path: Path, file: Any, size: int) -> SolverState:
    history = _item(path, file, "history")
    names = [str(index) for index in range(len(history))]
    if len(history) > _MOST or set(history) != set(names):
        raise InputError(f"{path} is not {STATE}", expected="`history/0, 1, …`", got=f"{len(history)} entries")
    arrays, taken = [], 0
    for name in names:
        array = _item(path, history, name)
        taken += array.id.get_storage_size()
        if array.dtype.kind != "f" or array.size * array.dtype.itemsize > array.id.get_storage_size() or taken > size:
            raise InputError(f"{path} is refused: `history/{name}` declares more than it stores", expected="float32")
        arrays.append(array[()])
    step, learned = _item(path, file, "iter"), _item(path, file, "learned_net") if "learned_net" in file else None
    if step.size != 1 or step.dtype.kind not in "iu":
        raise InputError(f"{path} is not {STATE}", expected="`iter`, a whole number")
    text = "" if learned is None or learned.size != 1 else learned[()]
    text = text.item() if hasattr(text, "item") else text
    return SolverState(path, int(step[()].item()), text.decode() if isinstance(text, bytes) else str(text), arrays)


def _item(path: Path, group: Any, name: str) -> Any:
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise InputError(f"{path} is refused: `{name}` is not in the file itself", expected=STATE)
    found = group[name]
    if isinstance(found, h5py.Dataset):
        plist = found.id.get_create_plist()
        if plist.get_external_count() or plist.get_layout() not in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT):
            raise InputError(f"{path} is refused: `{name}` is not stored as Caffe stores arrays", expected=STATE)
    return found


def _checked(state: SolverState) -> SolverState:
    if state.step < 0:
        raise InputError(f"{state.path} is not {STATE}", expected="an iteration of 0 or more", got=str(state.step))
    return state


def slots_of(state: SolverState, solver: Mapping[str, Any], draft: NetDraft) -> dict[str, NDArray[Any]]:
    """The slots of a solver (the field of a training file) by their names in a checkpoint.

    Raises `InputError` where the history is that of another net or solver.
    """
    import numpy as np

    kept = KEPT[solver["type"]]
    learned = draft.learned
    if len(state.history) != len(kept) * len(learned):
        raise InputError(
            f"{state.path} is the state of another net or solver",
            expected=f"{len(kept)} × {len(learned)} arrays, as {solver['type']} has for this net",
            got=f"{len(state.history)} arrays",
        )
    if solver["type"] == "SGD" and not solver.get("momentum"):
        return {}
    arrays, frozen = draft.draft.arrays(), _frozen(draft)
    found: dict[str, NDArray[Any]] = {}
    for part, (slot, factor) in enumerate(kept):
        for index, one in enumerate(learned):
            if not one.state or one.state in frozen:
                continue
            array = state.history[part * len(learned) + index]
            if array.size != arrays[one.state].size:
                raise InputError(
                    f"{state.path} is the state of another net", expected=f"{list(arrays[one.state].shape)}",
                    got=f"{list(array.shape)} for {one.state}",
                )  # fmt: skip
            turned = array if one.convert is None else one.convert(array)
            found[f"solver/{one.state}/{slot}"] = np.ascontiguousarray(
                factor * turned.reshape(arrays[one.state].shape), np.float32
            )
    return found


def _frozen(draft: NetDraft) -> set[str]:
    """Parameters that are not trained, of which no solver here keeps anything."""
    found = set()
    for layer in draft.draft.layers:
        rate = layer.fields.get("learning_rate_multiplier", 1)
        for key in layer.arrays:
            own = rate.get(key, 1) if isinstance(rate, Mapping) else rate
            if not own or not layer.fields.get("trainable", True):
                found.add(f"{layer.name}/{key}")
    return found

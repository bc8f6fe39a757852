"""What a solver remembers → `.solverstate` and `.solverstate.h5`, as `solving/states.py` reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netspec.exchange.caffe.blobs import array_blob, blob_array
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.solving.states import KEPT
from netspec.exchange.caffe.writing.training import trained
from netspec.exchange.formats import Exportable

if TYPE_CHECKING:
    from numpy.typing import NDArray


def state_message(made: Exportable, solver: Message, learned: str) -> Message:
    """The state of a training that stands in a checkpoint, for the solver written of it; `learned` holds its weights.

    `current_step` counts the places of `multistep` that were passed: Caffe moves on before a step, not after it.
    """
    passed = sum(value < made.step for value in solver["stepvalue"])
    state = Message("SolverState", iter=made.step, learned_net=learned)
    for array in _history(made):
        state.add("history", array_blob(array))
    state["current_step"] = passed
    return state


def _history(made: Exportable) -> Iterator[NDArray[Any]]:
    """Arrays of all parameters in the order of the net for training; a solver's second ones behind all first ones.

    Each slot takes its parameter's place in a net written once more, so that it is turned as the parameter is.
    """
    import numpy as np

    train: Any = made.train
    for slot, factor in KEPT[train.solver.type]:
        prefix, suffix = "solver/", f"/{slot}"
        kept = {
            name.removeprefix(prefix).removesuffix(suffix): factor * array
            for name, array in made.slots.items()
            if name.startswith(prefix) and name.endswith(suffix)
        }
        for blob in trained(replace(made, arrays={**made.arrays, **kept}), "").owned():
            yield np.asarray(blob.values if blob.state in kept else np.zeros(blob.values.shape), np.float32, order="C")


def hdf5_state(state: Message) -> memoryview:
    """`/iter`, `/learned_net`, `/current_step` and `/history/0, 1, …`, as Caffe's HDF5 has them.

    Caffe reads numbers as arrays of one, and a text as so many bytes of which the last is 0.
    """
    from io import BytesIO

    import h5py
    import numpy as np

    buffer = BytesIO()
    with h5py.File(buffer, "w", libver=("earliest", "v110")) as file:
        for name in ("iter", "current_step"):
            file.create_dataset(name, data=np.array([state[name]], np.int32), track_times=False)
        learned = state["learned_net"].encode()
        file.create_dataset("learned_net", data=np.array(learned, f"S{len(learned) + 1}"), track_times=False)
        history = file.create_group("history")
        for index, blob in enumerate(state["history"]):
            history.create_dataset(str(index), data=blob_array(blob), track_times=False)
    return buffer.getbuffer()

"""`netspec export --output NAME.prototxt`, `.caffemodel` or `.caffemodel.h5`: a net, its weights and its training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from netspec import __version__
from netspec.errors import InputError, Problem
from netspec.exchange.caffe.proto.encoding import encode
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.proto.printing import to_text
from netspec.exchange.caffe.writing.model import CaffeNet, deployed
from netspec.exchange.caffe.writing.states import hdf5_state, state_message
from netspec.exchange.caffe.writing.training import solver_of, trained
from netspec.exchange.caffe.writing.writer import NoForm
from netspec.exchange.files import check_writable, write_atomically
from netspec.exchange.formats import Exportable, ExportOptions, Lost

TEXT, BINARY, HDF5 = ".prototxt", ".caffemodel", ".caffemodel.h5"
TRAINED, SOLVER = "_train_val.prototxt", "_solver.prototxt"
STATE, STATE_HDF5 = ".solverstate", ".solverstate.h5"


def write_caffe(path: Path, made: Exportable) -> tuple[str, ...]:
    """Write a net and its weights, in the file named and one beside it; of a training also net, solver and its state.

    What the user should know of it. Raises `InputError` with every layer that has no form in Caffe.
    """
    net, stem, weights = deployed(made), _stem(path.name), parts_of(path)[1].name
    files: dict[str, bytes | memoryview] = {
        stem + TEXT: _text(net.message, made),
        weights: hdf5_of(net) if weights.endswith(HDF5) else encode(net.with_arrays()),
    }
    notes = list(net.notes)
    if made.train is not None:
        files |= _training(made, stem, weights, notes)
    targets = {path.with_name(name): content for name, content in files.items()}
    for target in targets:
        check_writable(target)
    for target, content in targets.items():
        write_atomically(target, _writing(content))
    return tuple(dict.fromkeys(notes))


def parts_of(path: Path) -> tuple[Path, Path]:
    """The files of the net and of its weights, of which `path` is one."""
    stem = _stem(path.name)
    return path.with_name(stem + TEXT), path if path.name != stem + TEXT else path.with_name(stem + BINARY)


def preflight_caffe(made: Exportable, options: ExportOptions) -> Lost:
    """Every layer that has no form in Caffe, whatever the weights, and what of the training has none."""
    import numpy as np

    states = made.graph_for(1).states()
    made = replace(made, arrays={name: np.zeros(value.shape, np.float32) for name, value in states.items()})
    problems: Sequence[Problem] = ()
    notes: list[str] = []
    try:
        notes += deployed(made).notes
    except InputError as error:
        problems = error.problems
    if made.train is not None:
        _trained(made, made.net.name, notes, problems)
    return Lost(problems, tuple(dict.fromkeys(notes)))


def _text(message: Message, made: Exportable) -> bytes:
    return f"# {made.net.name}, written by netspec {__version__}\n{to_text(message)}".encode()


def _training(made: Exportable, stem: str, weights: str, notes: list[str]) -> dict[str, bytes | memoryview]:
    """The net for training, the solver, and of a checkpoint its state; where one has no form, a note of it."""
    files: dict[str, bytes | memoryview] = {}
    net, solver = _trained(made, stem, notes)
    if net is None:
        return files
    files[stem + TRAINED] = _text(net.message, made)
    files |= {name: encode(message) for name, message in net.files.items()}
    if solver is None:
        return files
    files[stem + SOLVER] = _text(solver, made)
    if made.step:
        state = state_message(made, solver, weights)
        in_hdf5 = weights.endswith(HDF5)
        files[stem + (STATE_HDF5 if in_hdf5 else STATE)] = hdf5_state(state) if in_hdf5 else encode(state)
    return files


def _trained(
    made: Exportable, stem: str, notes: list[str], told: Collection[Problem] = ()
) -> tuple[CaffeNet | None, Message | None]:
    """The net for training and the solver; None with a note for what has no form, of problems that are not yet told."""
    net = solver = None
    try:
        net = trained(made, stem)
        notes += net.notes
    except InputError as error:
        new = [problem for problem in error.problems if problem not in told]
        if new:
            notes.append(f"{stem}{TRAINED} is not written: {InputError(new).summary}")
    try:
        solver = solver_of(made, stem + TRAINED, stem, notes)
    except NoForm as reason:
        notes.append(f"{stem}{SOLVER} is not written: {reason}")
    return net, solver


def _writing(content: bytes | memoryview) -> Callable[[Path], None]:
    def write(temporary: Path) -> None:
        temporary.write_bytes(content)

    return write


def _stem(name: str) -> str:
    """The name without its end."""
    for suffix in (HDF5, BINARY, TEXT):
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def hdf5_of(net: CaffeNet) -> memoryview:
    """`/data/<layer>/0, 1, …` of all layers, those without arrays too; shared arrays where they first are."""
    from io import BytesIO

    import h5py
    import numpy as np

    buffer, owned = BytesIO(), set()
    with h5py.File(buffer, "w", libver=("earliest", "v110")) as file:
        data = file.create_group("data")
        for made in net.layers:
            group = data.require_group(made.message["name"])
            for index, blob in enumerate(made.blobs):
                if blob.state and blob.state in owned:
                    continue
                owned.add(blob.state)
                group.create_dataset(str(index), data=np.asarray(blob.values, np.float32), track_times=False)
    return buffer.getbuffer()

"""`netspec export --output NAME.prototxt`, `.caffemodel` or `.caffemodel.h5`: a net, its weights and its training."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netspec import __version__
from netspec.errors import InputError, Problem
from netspec.exchange.files import check_writable, write_atomically
from netspec.exchange.formats.caffe.proto.binary import encode
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import to_text
from netspec.exchange.formats.caffe.solver.states import hdf5_datasets
from netspec.exchange.formats.caffe.writing.solver import solver_message, state_message
from netspec.exchange.formats.caffe.writing.training import trained
from netspec.exchange.formats.caffe.writing.writer import CaffeWriter, deployed
from netspec.exchange.formats.registry import Exportable, ExportOptions, Lost
from netspec.exchange.unsupported import UnsupportedFeature

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXT, BINARY, HDF5 = ".prototxt", ".caffemodel", ".caffemodel.h5"
TRAINED, SOLVER = "_train_val.prototxt", "_solver.prototxt"


def write_caffe(path: Path, exported: Exportable) -> tuple[str, ...]:
    """Write a net and its weights, for a training also its net and solver, for a checkpoint the solver's states.

    Returns notes for the user. Raises `InputError` with every layer that Caffe does not have.
    """
    net, stem, weights = deployed(exported), _stem(path.name), parts_of(path)[1].name
    in_hdf5, notes = weights.endswith(HDF5), list(net.notes)
    files: dict[str, bytes | memoryview] = {stem + TEXT: _text(net.message(), exported)}
    if in_hdf5:
        arrays = {f"data/{layer}/{index}": weight.values for layer, index, weight in net.parameters()}
        files[weights] = _hdf5(arrays, [layer.message["name"] for layer in net.layers])
    else:
        files[weights] = encode(net.message(with_arrays=True))
    if exported.train is not None:
        training, solver = _trained(exported, stem, notes)
        if training is not None:
            files[stem + TRAINED] = _text(training.message(), exported)
            files |= {name: encode(message) for name, message in training.files.items()}
        if training is not None and solver is not None:
            files[stem + SOLVER] = _text(solver, exported)
            if exported.step:
                state = state_message(exported, solver, weights)
                name = stem + (".solverstate.h5" if in_hdf5 else ".solverstate")
                files[name] = _hdf5(hdf5_datasets(state)) if in_hdf5 else encode(state)
    targets = {path.with_name(name): content for name, content in files.items()}
    for target in targets:
        check_writable(target)
    for target, content in targets.items():
        write_atomically(target, partial(Path.write_bytes, data=content))
    return tuple(dict.fromkeys(notes))


def parts_of(path: Path) -> tuple[Path, Path]:
    """The files of the net and of its weights, one of which is `path`."""
    stem = _stem(path.name)
    return path.with_name(stem + TEXT), path if path.name != stem + TEXT else path.with_name(stem + BINARY)


def _stem(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in (HDF5, BINARY, TEXT) if name.endswith(suffix)), name)


def preflight_caffe(exported: Exportable, options: ExportOptions) -> Lost:
    """Every layer and every part of the training that Caffe does not have, whatever the weights."""
    import numpy as np

    states = exported.graph_for(1).states()
    exported = replace(exported, arrays={name: np.zeros(value.shape, np.float32) for name, value in states.items()})
    problems: Sequence[Problem] = ()
    notes: list[str] = []
    try:
        notes += deployed(exported).notes
    except InputError as error:
        problems = error.problems
    if exported.train is not None:
        _trained(exported, exported.net.name, notes, problems)
    return Lost(problems, tuple(dict.fromkeys(notes)))


def _text(message: Message, exported: Exportable) -> bytes:
    return f"# {exported.net.name}, written by netspec {__version__}\n{to_text(message)}".encode()


def _trained(
    exported: Exportable, stem: str, notes: list[str], reported: Collection[Problem] = ()
) -> tuple[CaffeWriter | None, Message | None]:
    """The net for training and the solver; None, and a note with what is not yet reported, if Caffe lacks something."""
    net = solver = None
    try:
        net = trained(exported, stem)
        notes += net.notes
    except InputError as error:
        if new := [problem for problem in error.problems if problem not in reported]:
            notes.append(f"{stem}{TRAINED} is not written: {InputError(new).summary}")
    try:
        solver = solver_message(exported.train, stem + TRAINED, stem, notes)
    except UnsupportedFeature as reason:
        notes.append(f"{stem}{SOLVER} is not written: {reason}")
    return net, solver


def _hdf5(arrays: Mapping[str, NDArray[Any]], layers: Sequence[str] = ()) -> memoryview:
    """An HDF5 file with these datasets, and a group for every layer, also for those without arrays."""
    import h5py

    buffer = BytesIO()
    with h5py.File(buffer, "w", libver=("earliest", "v110")) as file:
        for layer in layers:
            file.require_group(f"data/{layer}")
        for name, array in arrays.items():
            file.create_dataset(name, data=array, track_times=False)
    return buffer.getbuffer()

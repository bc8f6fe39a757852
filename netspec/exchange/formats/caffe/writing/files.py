"""`netspec export --output NAME.prototxt`, `.caffemodel` or `.caffemodel.h5`: a net and its weights."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np

from netspec import __version__
from netspec.errors import InputError
from netspec.exchange.files import check_writable, write_atomically
from netspec.exchange.formats.caffe.proto.binary import encode
from netspec.exchange.formats.caffe.proto.text import to_text
from netspec.exchange.formats.caffe.writing.writer import CaffeWriter, deployed
from netspec.exchange.formats.registry import Exportable, ExportOptions, Lost

TEXT, BINARY, HDF5 = ".prototxt", ".caffemodel", ".caffemodel.h5"


def write_caffe(path: Path, exported: Exportable) -> tuple[str, ...]:
    """Write a net and its weights, and return notes for the user.

    Raises `InputError` with every layer that Caffe does not have.
    """
    net, stem, weights = deployed(exported), _stem(path.name), parts_of(path)[1].name
    text = f"# {exported.net.name}, written by netspec {__version__}\n{to_text(net.message())}"
    targets: dict[Path, bytes | memoryview] = {
        path.with_name(stem + TEXT): text.encode(),
        path.with_name(weights): _hdf5(net) if weights.endswith(HDF5) else encode(net.message(with_arrays=True)),
    }
    for target in targets:
        check_writable(target)
    for target, content in targets.items():
        write_atomically(target, partial(Path.write_bytes, data=content))
    return tuple(net.notes)


def parts_of(path: Path) -> tuple[Path, Path]:
    """The files of the net and of its weights, one of which is `path`."""
    stem = _stem(path.name)
    return path.with_name(stem + TEXT), path if path.name != stem + TEXT else path.with_name(stem + BINARY)


def _stem(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in (HDF5, BINARY, TEXT) if name.endswith(suffix)), name)


def preflight_caffe(exported: Exportable, options: ExportOptions) -> Lost:
    """Every layer that Caffe does not have, whatever the weights."""
    states = exported.graph_for(1).states()
    exported = replace(exported, arrays={name: np.zeros(value.shape, np.float32) for name, value in states.items()})
    try:
        return Lost(notes=tuple(deployed(exported).notes))
    except InputError as error:
        return Lost(error.problems)


def _hdf5(net: CaffeWriter) -> memoryview:
    """An HDF5 file with the arrays, and a group for every layer, also for those without arrays."""
    import h5py

    buffer = BytesIO()
    with h5py.File(buffer, "w", libver=("earliest", "v110")) as file:
        for layer in net.layers:
            file.require_group(f"data/{layer.message['name']}")
        for layer_name, index, weight in net.parameters():
            file.create_dataset(f"data/{layer_name}/{index}", data=weight.values, track_times=False)
    return buffer.getbuffer()

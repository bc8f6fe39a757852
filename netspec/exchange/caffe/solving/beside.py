"""Shapes of inputs that a training net leaves to its data: out of HDF5 files, or a net for deployment beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from netspec.errors import InputError
from netspec.exchange.caffe.inputs import known_inputs
from netspec.exchange.caffe.phases import State
from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.proto.text import read_text
from netspec.exchange.caffe.solving.places import Finder
from netspec.exchange.caffe.solving.remarks import Remarks
from netspec.exchange.caffe.upgrade import upgraded
from netspec.exchange.caffe.wiring import wire

MOST_FILES = 50
MOST_BYTES = 1 << 24
"""Of a list of files."""
LEARNED = ("Convolution", "InnerProduct", "Deconvolution", "Embed")
"""Types of layers by which two forms of a net are told to be the same."""


def shapes_beside(
    net: Message, finder: Finder, given: Mapping[str, tuple[int, ...]], states: Sequence[State], remarks: Remarks
) -> dict[str, tuple[int, ...]]:  # fmt: skip
    """The shapes given, those of data that is there, and those that the first file beside says for the same layers."""
    folder = finder.path.parent
    stored = {name: shape for layer in net["layer"] for name, shape in _stored(layer, finder).items()}
    shapes = {**stored, **given}
    missing = [
        name for name, known in known_inputs(wire(net["layer"], states), shapes, folder).items()
        if known.shape is None and name not in shapes
    ]  # fmt: skip
    own = _layers(net)
    if not missing or not own:
        return shapes
    for path in sorted(folder.glob("*.prototxt"))[:MOST_FILES]:
        found = _declared(path, own)
        for name in missing:
            if name in found and name not in shapes:
                shapes[name] = found[name]
                sizes = ", ".join(map(str, found[name]))
                remarks.note(f"the shape of `{name}`, [{sizes}], is that of {path.name} beside the net")
    return shapes


def _stored(layer: Message, finder: Finder) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in the first file of an HDF5Data layer, if it is there."""
    source = layer["hdf5_data_param"]["source"]
    names = finder.find(source) if layer["type"] == "HDF5Data" and source else None
    if names is None or not names.is_file() or names.stat().st_size > MOST_BYTES:
        return {}
    first = names.read_text(encoding="utf-8", errors="replace").split("\n", 1)[0].strip()
    found = Finder(names).find(first) if first else None
    if found is None or not found.is_file():
        return {}
    import h5py

    shapes: dict[str, tuple[int, ...]] = {}
    with suppress(OSError, KeyError, RuntimeError, ValueError), h5py.File(found, "r") as file:
        for top in layer["top"]:
            if isinstance(file.get(top, getlink=True), h5py.HardLink) and isinstance(file[top], h5py.Dataset):
                sizes = tuple(map(int, file[top].shape or ()))[1:]
                shapes |= {top: sizes} if sizes else {}
    return shapes


def _declared(path: Path, own: dict[str, str]) -> dict[str, tuple[int, ...]]:
    """The inputs that a net declares which has all layers of one that it serves, or nearly all."""
    try:
        net = upgraded(read_text(path, "NetParameter", "a net of Caffe's"))
    except InputError:  # solvers, damaged files: they are not asked for
        return {}
    those = _layers(net)
    same = sum(own.get(name) == kind for name, kind in those.items())
    if not those or same < len(those) or 2 * same < len(own):
        return {}
    return {
        top: tuple(map(int, shape["dim"][1:]))
        for layer in net["layer"]
        if layer["type"] == "Input"
        for top, shape in zip(layer["top"], layer["input_param"]["shape"], strict=False)
    }


def _layers(net: Message) -> dict[str, str]:
    """Layers that have weights, by name."""
    return {one["name"]: one["type"] for one in net["layer"] if one["type"] in LEARNED}

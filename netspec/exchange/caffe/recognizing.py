"""Whether a file is one of Caffe's, by its first bytes, and by a look into it where they do not tell."""

from __future__ import annotations

import re
from pathlib import Path

from netspec.exchange.caffe.proto.fields import kinds

HDF5 = b"\x89HDF\r\n\x1a\n"
_FIRST = re.compile(r"\ufeff?(?:[\s,;]++|#[^\n]*+(?:\n|\Z))*+(?:([A-Za-z_]\w*)\s*([:{<])|\Z)")
_LAYERS = {b"\xa2\x06": 100, b"\x12": 2}
"""Tags of `layer` and `layers`, as a net with its weights may begin."""

_ITERATION, _LEARNED, _HISTORY = b"\x08", b"\x12", b"\x1a"
"""Tags of the fields of the state of a solver."""
_LONGEST = 300
"""Bytes that the name of the weights may take there."""


def is_net(head: bytes, path: Path) -> bool:
    """Whether a text begins with a field of a net."""
    return _first_field(head, path) in set(kinds()["NetParameter"].fields) - {"debug_info"}


def is_solver(head: bytes, path: Path) -> bool:
    """Whether a text begins with a field of a solver."""
    return _first_field(head, path) in kinds()["SolverParameter"].fields


def is_weights(head: bytes, path: Path) -> bool:
    """Whether a file is a net with its weights: it begins with its name, or with a layer."""
    if head.startswith(b"\x0a") and len(head) > 2 and head[1] < 128:  # the name
        head = head[2 + head[1] :]
    return head.startswith(tuple(_LAYERS)) and b"\0" not in head[:1]


def is_mean(head: bytes, path: Path) -> bool:
    """Whether a file is one blob, as Caffe's tools write means: number, channels, height and width come first."""
    return head.startswith(b"\x08\x01\x10") or path.suffix == ".binaryproto"


def is_hdf5_weights(head: bytes, path: Path) -> bool:
    """Whether an HDF5 file has the group that Caffe keeps weights in."""
    if not head.startswith(HDF5):
        return False
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return "data" in file and file.get("data", getclass=True) is h5py.Group and not file.attrs.keys()
    except (OSError, KeyError, RuntimeError, ValueError):
        return False


def is_solver_state(head: bytes, path: Path) -> bool:
    """Whether a file is the state of a solver: it begins with the iteration, or is HDF5 with a history."""
    if not head.startswith(HDF5):
        place = 1
        while place < len(head) and head[place] & 0x80:
            place += 1
        rest = head[place + 1 :]
        learned = rest.startswith(_LEARNED) and b".caffemodel" in rest[:_LONGEST]
        return head.startswith(_ITERATION) and (learned or rest.startswith(_HISTORY))
    import h5py

    try:
        with h5py.File(path, "r") as file:
            kinds_of = {"iter": h5py.Dataset, "history": h5py.Group}
            return all(file.get(name, getclass=True) is kind for name, kind in kinds_of.items())
    except (OSError, KeyError, RuntimeError, ValueError):
        return False


def _first_field(head: bytes, path: Path) -> str:
    """The name of the first field of a text; of one that begins with nothing but comments, further on."""
    if b"\0" in head:
        return ""
    match = _FIRST.match(head.decode("utf-8", errors="replace"))
    if match is not None and match[1] is None and len(head) >= 256 and path.is_file():
        with path.open("rb") as file:
            match = _FIRST.match(file.read(1 << 16).decode("utf-8", errors="replace"))
    return str(match[1] or "") if match is not None else ""

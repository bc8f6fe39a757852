"""Recognize Caffe's files: by the fields of a message, the first field of a prototxt, or the groups of an HDF5 file."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from netspec.errors import InputError
from netspec.exchange.containers.hdf5 import DEEPEST, MAX_ITEMS
from netspec.exchange.containers.protobuf import caffe_fields
from netspec.exchange.formats.caffe.proto.fields import FLOATS, INTEGERS, MessageField, kinds
from netspec.files.hdf5 import SIGNATURE, Hdf5File

_FIRST = re.compile(r"\ufeff?(?:[\s,;]++|#[^\n]*+(?:\n|\Z))*+(?:([A-Za-z_]\w*)\s*([:{<]\s*\S?)|\Z)")
_NUMBERS, _TEXTS, _MESSAGES = r":\s*[-+.\d\[]", r":\s*[\"'\[]", r"[{<]|:\s*[{<\[]"
_WORDS = r":\s*[\w\[]"
_NAMED = re.compile(r"\d+")
"""Name of an array of a layer in HDF5: its index."""


def is_net(head: bytes, path: Path) -> bool:
    """Whether a text begins with a field of a net."""
    return _begins_with(head, path, "NetParameter") not in ("", "debug_info")


def is_solver(head: bytes, path: Path) -> bool:
    """Whether a text begins with a field of a solver."""
    return _begins_with(head, path, "SolverParameter") != ""


def is_weights(head: bytes, path: Path) -> bool:
    """Whether a file is a net with its weights: a message that has layers."""
    return not {2, 100}.isdisjoint(caffe_fields(path, "NetParameter"))


def is_mean(head: bytes, path: Path) -> bool:
    """Whether a file is a single blob, such as a mean image: it has values, and a shape in one of two forms."""
    numbers = caffe_fields(path, "BlobProto")
    sizes = numbers & {1, 2, 3, 4, 7}
    return sizes in ({1, 2, 3, 4}, {7}) and not numbers.isdisjoint({5, 8})


def is_hdf5_weights(head: bytes, path: Path) -> bool:
    """Whether an HDF5 file has the groups of Caffe's weights, with arrays that are named by their index."""
    if not head.startswith(SIGNATURE):
        return False
    with suppress(InputError):
        file = Hdf5File(str(path), path, "an HDF5 file")
        top = _kinds(file)
        if ("data", "group") not in top or file.attributes("") or not {"data", "diff"} >= {name for name, _ in top}:
            return False
        entries = file.walk("data", deepest=DEEPEST, most=MAX_ITEMS)
        arrays = (entry for entry in entries if entry.kind in ("dataset", "other"))
        return all(_NAMED.fullmatch(entry.path.rpartition("/")[2]) for entry in arrays)
    return False


def is_solver_state(head: bytes, path: Path) -> bool:
    """Whether a file is the state of a solver: a message, or HDF5, that has the iteration and a history or weights."""
    if not head.startswith(SIGNATURE):
        numbers = caffe_fields(path, "SolverState")
        return 1 in numbers and not numbers.isdisjoint({2, 3}) and numbers <= {1, 2, 3, 4}
    with suppress(InputError):
        return {("iter", "dataset"), ("history", "group")} <= _kinds(Hdf5File(str(path), path, "an HDF5 file"))
    return False


def _kinds(file: Hdf5File) -> set[tuple[str, str]]:
    """Name and kind of each entry at the top level of a file."""
    return {(entry.path, entry.kind) for entry in file.walk()}


def _begins_with(head: bytes, path: Path, kind: str) -> str:
    """The first field of a prototxt, if the message has it and the value fits its type; otherwise an empty string."""
    if b"\0" in head:
        return ""
    match = _FIRST.match(head.decode("utf-8", errors="replace"))
    if match is not None and match[1] is None and len(head) >= 256 and path.is_file():  # only comments so far
        with path.open("rb") as file:
            match = _FIRST.match(file.read(1 << 16).decode("utf-8", errors="replace"))
    field = kinds()[kind].fields.get(match[1]) if match is not None else None
    return field.name if field is not None and match is not None and re.match(_value(field), match[2]) else ""


def _value(field: MessageField) -> str:
    """Pattern of the beginning of a field's value in a prototxt."""
    if field.type == "string":
        return _TEXTS
    if field.type in INTEGERS or field.type in FLOATS:
        return _NUMBERS
    return _MESSAGES if field.is_message else _WORDS

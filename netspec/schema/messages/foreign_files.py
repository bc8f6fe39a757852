"""Errors for files of other programs in place of a spec, with a hint how to use them."""

from __future__ import annotations

import re
from pathlib import PurePath

from netspec.errors import InputError

_IMPORT = "`netspec import {} --output DIR` converts it to a net file and weights"
_TORCH = "files of PyTorch cannot be imported: export the model to ONNX, and import that with `netspec import`"
_OTHERS = {
    ".prototxt": ("a net or solver of Caffe (prototxt)", _IMPORT),
    ".caffemodel": ("weights of Caffe", _IMPORT),
    ".solverstate": (
        "a snapshot of Caffe",
        "`netspec import SOLVER.prototxt --weights {} --output DIR` continues from it",
    ),
    ".onnx": ("an ONNX model", _IMPORT),
    ".h5": ("an HDF5 file", "pass weights with `--weights`, together with their spec; " + _IMPORT),
    ".hdf5": ("an HDF5 file", "pass weights with `--weights`, together with their spec; " + _IMPORT),
    ".keras": ("a model of Keras", _IMPORT),
    ".pt": ("a model of PyTorch", _TORCH),
    ".pth": ("a model of PyTorch", _TORCH),
    ".py": ("Python code, which is never run", "describe the net in a YAML file"),
    ".npz": ("arrays of NumPy", "name it in a training file: `{{source: npz, path: {}, batch_size: 64}}`"),
    ".csv": ("a table", "name it in a training file: `{{source: csv, path: {}, header: true, batch_size: 64}}`"),
}
_PROTOTXT = re.compile(r"^(layers?|train_param|test_param|net_param)\s*:?\s*\{\s*(#.*)?$", re.MULTILINE)
"""The start of a message in protobuf's text format; in YAML a brace follows `: `."""


def refuse_by_name(path: str) -> None:
    """Raise `InputError` for a file whose suffix a spec cannot have."""
    description = _OTHERS.get(PurePath(path).suffix.lower())
    if description is not None:
        raise _other(path, *description)


def refuse_prototxt(path: str, text: str) -> None:
    """Raise `InputError` if text that is not YAML is a prototxt with another suffix."""
    if _PROTOTXT.search(text):
        raise _other(path, *_OTHERS[".prototxt"])


def _other(path: str, description: str, hint: str) -> InputError:
    return InputError(f"{path} is {description}", expected="a net or training file in YAML", hint=hint.format(path))

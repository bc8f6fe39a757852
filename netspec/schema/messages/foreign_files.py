"""Files of other programs, given where a spec is wanted: what they are, and what can be done with them."""

from __future__ import annotations

import re
from pathlib import PurePath

from netspec.errors import InputError

_IMPORT = "`netspec import {} --output FOLDER` makes a net file and weights of it"
_TORCH = "PyTorch's files can't be imported: export the model to ONNX, then `netspec import` takes it"
_OTHERS = {
    ".prototxt": ("a net or solver of Caffe (prototxt)", _IMPORT),
    ".caffemodel": ("weights of Caffe", _IMPORT),
    ".solverstate": (
        "a snapshot of Caffe",
        "`netspec import SOLVER.prototxt --weights {} --output FOLDER` continues from it",
    ),
    ".onnx": ("an ONNX model", _IMPORT),
    ".h5": ("an HDF5 file", "pass weights with `--weights`, together with their spec; " + _IMPORT),
    ".hdf5": ("an HDF5 file", "pass weights with `--weights`, together with their spec; " + _IMPORT),
    ".keras": ("a model of Keras", _IMPORT),
    ".pt": ("a model of PyTorch", _TORCH),
    ".pth": ("a model of PyTorch", _TORCH),
    ".py": ("Python code, which is never run", "what a net is goes into a YAML file"),
    ".npz": ("arrays of NumPy", "a train file names it: `{{source: npz, path: {}, batch_size: 64}}`"),
    ".csv": ("a table", "a train file names it: `{{source: csv, path: {}, header: true, batch_size: 64}}`"),
}
_PROTOTXT = re.compile(r"^(layers?|train_param|test_param|net_param)\s*:?\s*\{\s*(#.*)?$", re.MULTILINE)
"""A message of protobuf's text format that opens at the start of a line; YAML has its brackets after a `: `."""


def refuse_by_name(path: str) -> None:
    """Raise `InputError` for a file whose suffix is not that of a spec."""
    found = _OTHERS.get(PurePath(path).suffix.lower())
    if found is not None:
        raise _other(path, *found)


def refuse_prototxt(path: str, text: str) -> None:
    """Raise `InputError` if text that is not YAML is a prototxt with another suffix."""
    if _PROTOTXT.search(text):
        raise _other(path, *_OTHERS[".prototxt"])


def _other(path: str, what: str, hint: str) -> InputError:
    return InputError(f"{path} is {what}", expected="a net or train file in YAML", hint=hint.format(path))

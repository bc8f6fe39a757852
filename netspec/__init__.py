"""netspec: declarative neural networks, from YAML to a compiled training step.

The Python interface is small: `load` gives a `Model`, `train` runs a training file, `OnnxBackend` runs ONNX models as
nets. Importing the package loads nothing else; each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspec.train import train as train
    from netspec.train.model import Model as Model
    from netspec.train.model import load as load
    from netspec.train.onnx_backend import OnnxBackend as OnnxBackend
    from netspec.train.run import Run as Run

__all__ = ["Model", "OnnxBackend", "Run", "__version__", "load", "train"]
__version__ = "0.1.0"

_HOMES = {
    "Model": "netspec.train.model",
    "OnnxBackend": "netspec.train.onnx_backend",
    "Run": "netspec.train.run",
    "load": "netspec.train.model",
}


def __getattr__(name: str) -> Any:
    if name == "train":
        return import_module("netspec.train")  # the package can be called
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'netspec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)

"""netspec: declarative neural networks, from YAML to a compiled training step.

Train a net as a file says, and use it:

    >>> import netspec
    >>> run = netspec.train("train.yaml", **{"train.max_epochs": 2})
    >>> model = netspec.load(run.run_dir)
    >>> model.predict({"image": images})

Before a training:

- `check` finds mistakes in net and training files; `plan` shows shapes, parameters, memory and kernels; `time` measures
  a step; `dry_run` checks everything that a training needs; `zoo` lists the models that netspec ships.

Training and using a net:

- `train` trains and returns a `Run`; `test` evaluates weights; `predict` computes outputs for a file; `load` gives a
  `Model` from a run directory, a spec or a model file of any known format.

Exchange with other programs:

- `export` writes ONNX, Keras, Caffe and other formats; `import_model` reads them; `convert` does both; `diff` compares
  two nets; `OnnxBackend` runs ONNX models as nets.

A `Callback` acts between the steps of a training.

Specs are paths of YAML files or mappings with the same content. What the caller can correct raises `InputError`, a run
that fails `RunError`, and a training stopped by Ctrl-C `Interrupted`. Importing the package loads nothing else; each
name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspec.errors import InputError as InputError
    from netspec.errors import NetspecError as NetspecError
    from netspec.errors import RunError as RunError
    from netspec.tools.check import check as check
    from netspec.tools.diff import diff as diff
    from netspec.tools.dry_run import dry_run as dry_run
    from netspec.tools.export import convert as convert
    from netspec.tools.export import export as export
    from netspec.tools.import_model import import_model as import_model
    from netspec.tools.model_inputs import load as load
    from netspec.tools.plan import plan as plan
    from netspec.tools.predict import predict as predict
    from netspec.tools.predict import test as test
    from netspec.tools.timing import time as time
    from netspec.tools.zoo import zoo as zoo
    from netspec.training import train as train
    from netspec.training.callbacks.base import Callback as Callback
    from netspec.training.callbacks.base import CallbackSpec as CallbackSpec
    from netspec.training.model import Model as Model
    from netspec.training.onnx_backend import OnnxBackend as OnnxBackend
    from netspec.training.run import Interrupted as Interrupted
    from netspec.training.run import Run as Run

_MODULES = {
    "Callback": "netspec.training.callbacks.base",
    "CallbackSpec": "netspec.training.callbacks.base",
    "InputError": "netspec.errors",
    "Interrupted": "netspec.training.run",
    "Model": "netspec.training.model",
    "NetspecError": "netspec.errors",
    "OnnxBackend": "netspec.training.onnx_backend",
    "Run": "netspec.training.run",
    "RunError": "netspec.errors",
    "check": "netspec.tools.check",
    "convert": "netspec.tools.export",
    "diff": "netspec.tools.diff",
    "dry_run": "netspec.tools.dry_run",
    "export": "netspec.tools.export",
    "import_model": "netspec.tools.import_model",
    "load": "netspec.tools.model_inputs",
    "plan": "netspec.tools.plan",
    "predict": "netspec.tools.predict",
    "test": "netspec.tools.predict",
    "time": "netspec.tools.timing",
    "train": "netspec.training",
    "zoo": "netspec.tools.zoo",
}
"""The module of each public name."""
__all__ = [
    "Callback",
    "CallbackSpec",
    "InputError",
    "Interrupted",
    "Model",
    "NetspecError",
    "OnnxBackend",
    "Run",
    "RunError",
    "__version__",
    "check",
    "convert",
    "diff",
    "dry_run",
    "export",
    "import_model",
    "load",
    "plan",
    "predict",
    "test",
    "time",
    "train",
    "zoo",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'netspec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)

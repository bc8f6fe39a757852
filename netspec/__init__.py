"""netspec: declarative neural networks, from YAML to a compiled training step.

Train a net as a file says, and use it:

    >>> import netspec
    >>> run = netspec.train("train.yaml", **{"train.max_epochs": 2})
    >>> run.test.metrics
    >>> model = netspec.load(run.run_dir)
    >>> model.predict({"image": images})["logits"]

Before a training:

- `check` finds mistakes in net and training files, `check_expectations` runs the steps that `expect` describes;
- `plan` shows shapes, parameters, memory and kernels; `time` measures a step; `scale` predicts it on many workers;
- `inspect_data` shows what a training reads; `datasets`, `get_dataset` and `unpack_dataset` provide known datasets;
- `dry_run` checks everything that a training needs, `verify_parallel` that several workers train the same weights.

Training and using a net:

- `train` trains and returns a `Run`; `test` evaluates weights; `predict` computes outputs for a file;
- `load` gives a `Model` from a run directory, a spec or a model file of any known format;
- `plot` charts losses, metrics and learning rates.

Exchange with other programs:

- `export` writes ONNX, Keras, Caffe and other formats, `import_model` reads them, `convert` does both;
- `diff` compares two nets; `OnnxBackend` runs ONNX models as nets.

What there is: `zoo` and `zoo_model` for the models that netspec ships, `devices` for this machine, `data_sources` for
the kinds of data, `json_schema` for editors.

Specs are paths of YAML files, or mappings with the same content; `overrides` change them: `["train.max_epochs=2"]` or
`{"train.max_epochs": 2}`. What the caller can correct raises `InputError`, a run that fails `RunError`, and a training
stopped by Ctrl-C `Interrupted`. A `Callback` acts between the steps of a training. Each name is imported when it is
first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspec.errors import InputError as InputError
    from netspec.errors import NetspecError as NetspecError
    from netspec.errors import RunError as RunError
    from netspec.tools.check import check as check
    from netspec.tools.check import check_expectations as check_expectations
    from netspec.tools.curves import plot as plot
    from netspec.tools.data_report import inspect_data as inspect_data
    from netspec.tools.datasets import data_sources as data_sources
    from netspec.tools.datasets import datasets as datasets
    from netspec.tools.datasets import get_dataset as get_dataset
    from netspec.tools.datasets import unpack_dataset as unpack_dataset
    from netspec.tools.devices import devices as devices
    from netspec.tools.diff import diff as diff
    from netspec.tools.dry_run import dry_run as dry_run
    from netspec.tools.export import convert as convert
    from netspec.tools.export import export as export
    from netspec.tools.import_model import import_model as import_model
    from netspec.tools.json_schema import json_schema as json_schema
    from netspec.tools.model_inputs import load as load
    from netspec.tools.plan import plan as plan
    from netspec.tools.predict import predict as predict
    from netspec.tools.predict import test as test
    from netspec.tools.scale import scale as scale
    from netspec.tools.timing import time as time
    from netspec.tools.verify_parallel import verify_parallel as verify_parallel
    from netspec.tools.zoo import zoo as zoo
    from netspec.tools.zoo import zoo_model as zoo_model
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
    "check_expectations": "netspec.tools.check",
    "convert": "netspec.tools.export",
    "data_sources": "netspec.tools.datasets",
    "datasets": "netspec.tools.datasets",
    "devices": "netspec.tools.devices",
    "diff": "netspec.tools.diff",
    "dry_run": "netspec.tools.dry_run",
    "export": "netspec.tools.export",
    "get_dataset": "netspec.tools.datasets",
    "import_model": "netspec.tools.import_model",
    "inspect_data": "netspec.tools.data_report",
    "json_schema": "netspec.tools.json_schema",
    "load": "netspec.tools.model_inputs",
    "plan": "netspec.tools.plan",
    "plot": "netspec.tools.curves",
    "predict": "netspec.tools.predict",
    "scale": "netspec.tools.scale",
    "test": "netspec.tools.predict",
    "time": "netspec.tools.timing",
    "train": "netspec.training",
    "unpack_dataset": "netspec.tools.datasets",
    "verify_parallel": "netspec.tools.verify_parallel",
    "zoo": "netspec.tools.zoo",
    "zoo_model": "netspec.tools.zoo",
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
    "check_expectations",
    "convert",
    "data_sources",
    "datasets",
    "devices",
    "diff",
    "dry_run",
    "export",
    "get_dataset",
    "import_model",
    "inspect_data",
    "json_schema",
    "load",
    "plan",
    "plot",
    "predict",
    "scale",
    "test",
    "time",
    "train",
    "unpack_dataset",
    "verify_parallel",
    "zoo",
    "zoo_model",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'netspec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)

"""netspec: declarative neural networks, from YAML to a compiled training step.

Train a net from a training file, and use it:

    >>> import netspec
    >>> run = netspec.train("train.yaml", **{"train.max_epochs": 2})
    >>> run.test.metrics
    >>> model = netspec.load(run.run_dir)
    >>> model.predict({"image": images})["logits"]

Before a training:

    check               find mistakes in a net or training file
    check_expectations  run the steps that a training file's `expect` describes
    draw                the layers of a net as SVG, PNG or Mermaid
    plan                shapes, parameters, memory and kernels
    time                time of a step, by layer and by operation
    profile             a trace of training steps: operations, threads, data loading, communication
    scale               predicted time of a step on many workers
    gradcheck           compare the gradients of a net with finite differences
    overfit             train on a few samples until the net has memorized them
    find_learning_rate  suggest a learning rate after a short training with growing rates
    search              tune hyperparameters: try many values, and keep the best
    auto_search         find a net for data: write the files that `init` writes, and tune them until a time limit
    dry_run             check everything that a training needs, data and workers included
    verify_parallel     check that several workers train bit-identical weights
    verify_resume       check that a killed run resumes bit-identically

Train a net and use it:

    train               train, and return a `Run`
    test                evaluate weights on the test data
    predict             answers and outputs for arrays, or for files with images, sounds, texts or rows
    predict_stream      the same batch by batch, in constant memory
    explain_image       parts of an image that a prediction depends on; likewise `explain_text`, `explain_audio`,
                        `explain_row`; `explain_columns`: importance of the columns of a table
    serve               answer requests over HTTP
    generate            text from a prompt: its continuation, or its translation; also `generate_stream`
    load                a `Model` from a run directory, a spec or a model file of any known format
    open_run            a `Run` from its folder, after the training
    runs                runs below a folder: states, results, and the settings that differ
    replay              repeat a training step that failed, and find its first bad operation
    plot                charts of losses, metrics and learning rates
    report              one HTML page about a run
    board               follow all runs below a folder in a browser
    Callback            base class of objects that are called between training steps
    CallbackSpec        base class of callbacks that a training file can name

Exchange models with other programs:

    export              write ONNX, Keras, Caffe and other formats
    import_model        read them, as a net file with weights
    convert             read one format and write another
    diff                compare two nets: layers, settings, weights and results
    OnnxBackend         run ONNX models, as ONNX's own tests do

Data, models and devices:

    inspect_data        statistics and samples of what a training reads
    data_sources        kinds of data that can be read
    datasets            datasets that can be fetched by name; also `get_dataset`, `unpack_dataset`
    zoo                 models that netspec ships; `zoo_model` returns one
    devices             devices of this machine, and the MPI that starts several workers
    verify_device       check the kernels of a device, and small trainings on it
    json_schema         schema of net and training files, for editors

A spec is the path of a YAML file, or a mapping with the same content. `overrides` change it: `["train.max_epochs=2"]`
or `{"train.max_epochs": 2}`.

Errors: `InputError` if an argument, a spec or a file is wrong, `RunError` if a run fails; both are a `NetspecError`.
Ctrl-C ends a training with `Interrupted`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netspec.errors import InputError as InputError
    from netspec.errors import NetspecError as NetspecError
    from netspec.errors import RunError as RunError
    from netspec.tools.checking.check import check as check
    from netspec.tools.checking.check import check_expectations as check_expectations
    from netspec.tools.checking.dry_run import dry_run as dry_run
    from netspec.tools.checking.gradient_check import gradcheck as gradcheck
    from netspec.tools.checking.overfit import overfit as overfit
    from netspec.tools.comparing.curves import plot as plot
    from netspec.tools.comparing.diff import diff as diff
    from netspec.tools.comparing.runs import runs as runs
    from netspec.tools.data_report import inspect_data as inspect_data
    from netspec.tools.datasets import data_sources as data_sources
    from netspec.tools.datasets import datasets as datasets
    from netspec.tools.datasets import get_dataset as get_dataset
    from netspec.tools.datasets import unpack_dataset as unpack_dataset
    from netspec.tools.devices import devices as devices
    from netspec.tools.devices import verify_device as verify_device
    from netspec.tools.drawing.draw import draw as draw
    from netspec.tools.exporting.export import convert as convert
    from netspec.tools.exporting.export import export as export
    from netspec.tools.finished_run import open_run as open_run
    from netspec.tools.import_model import import_model as import_model
    from netspec.tools.inference.explain import explain_audio as explain_audio
    from netspec.tools.inference.explain import explain_columns as explain_columns
    from netspec.tools.inference.explain import explain_image as explain_image
    from netspec.tools.inference.explain import explain_row as explain_row
    from netspec.tools.inference.explain import explain_text as explain_text
    from netspec.tools.inference.generate import generate as generate
    from netspec.tools.inference.generate import generate_stream as generate_stream
    from netspec.tools.inference.predict import predict as predict
    from netspec.tools.inference.predict import predict_stream as predict_stream
    from netspec.tools.inference.predict import test as test
    from netspec.tools.init import init as init
    from netspec.tools.json_schema import json_schema as json_schema
    from netspec.tools.learning_rate import find_learning_rate as find_learning_rate
    from netspec.tools.measuring.profiling import profile as profile
    from netspec.tools.measuring.timing import time as time
    from netspec.tools.model_inputs import load as load
    from netspec.tools.planning.plan import plan as plan
    from netspec.tools.planning.scale import scale as scale
    from netspec.tools.report.board import board as board
    from netspec.tools.report.page import report as report
    from netspec.tools.reproducibility.replay import replay as replay
    from netspec.tools.reproducibility.verify_parallel import verify_parallel as verify_parallel
    from netspec.tools.reproducibility.verify_resume import verify_resume as verify_resume
    from netspec.tools.search import search as search
    from netspec.tools.search.auto import auto_search as auto_search
    from netspec.tools.serving.server import serve as serve
    from netspec.tools.zoo import zoo as zoo
    from netspec.tools.zoo import zoo_model as zoo_model
    from netspec.training import train as train
    from netspec.training.callbacks.base import Callback as Callback
    from netspec.training.callbacks.base import CallbackSpec as CallbackSpec
    from netspec.training.inference.model import Model as Model
    from netspec.training.inference.onnx_backend import OnnxBackend as OnnxBackend
    from netspec.training.run import Interrupted as Interrupted
    from netspec.training.run import Run as Run

_NAMES = {
    "netspec": "__version__",
    "netspec.errors": "InputError NetspecError RunError",
    "netspec.tools.checking.check": "check check_expectations",
    "netspec.tools.comparing.curves": "plot",
    "netspec.tools.data_report": "inspect_data",
    "netspec.tools.datasets": "data_sources datasets get_dataset unpack_dataset",
    "netspec.tools.devices": "devices verify_device",
    "netspec.tools.comparing.diff": "diff",
    "netspec.tools.drawing.draw": "draw",
    "netspec.tools.checking.dry_run": "dry_run",
    "netspec.tools.inference.explain": "explain_audio explain_columns explain_image explain_row explain_text",
    "netspec.tools.exporting.export": "convert export",
    "netspec.tools.finished_run": "open_run",
    "netspec.tools.inference.generate": "generate generate_stream",
    "netspec.tools.checking.gradient_check": "gradcheck",
    "netspec.tools.import_model": "import_model",
    "netspec.tools.init": "init",
    "netspec.tools.json_schema": "json_schema",
    "netspec.tools.learning_rate": "find_learning_rate",
    "netspec.tools.model_inputs": "load",
    "netspec.tools.checking.overfit": "overfit",
    "netspec.tools.planning.plan": "plan",
    "netspec.tools.inference.predict": "predict predict_stream test",
    "netspec.tools.measuring.profiling": "profile",
    "netspec.tools.reproducibility.replay": "replay",
    "netspec.tools.report.board": "board",
    "netspec.tools.report.page": "report",
    "netspec.tools.comparing.runs": "runs",
    "netspec.tools.planning.scale": "scale",
    "netspec.tools.search": "search",
    "netspec.tools.search.auto": "auto_search",
    "netspec.tools.serving.server": "serve",
    "netspec.tools.measuring.timing": "time",
    "netspec.tools.reproducibility.verify_parallel": "verify_parallel",
    "netspec.tools.reproducibility.verify_resume": "verify_resume",
    "netspec.tools.zoo": "zoo zoo_model",
    "netspec.training": "train",
    "netspec.training.callbacks.base": "Callback CallbackSpec",
    "netspec.training.inference.model": "Model",
    "netspec.training.inference.onnx_backend": "OnnxBackend",
    "netspec.training.run": "Interrupted Run",
}
"""Names by the module that defines them, which is imported when one of them is first used."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
if not TYPE_CHECKING:
    __all__ = list(_MODULES)
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'netspec' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(_MODULES)

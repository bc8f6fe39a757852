"""A step of a training that Keras continues, from files that netspec writes with the states of the solver.

`record.py` lets Keras load each file and take a step; `test_keras_training.py` takes the same step in netspec.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import netspec.data.sources
import netspec.solvers  # noqa: F401  # these two register what a training file may say
from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.exchange.formats.keras.exporting import keras_model, write_keras
from netspec.exchange.formats.keras.exporting.layers import RULES
from netspec.exchange.formats.keras.exporting.model import KerasModel
from netspec.exchange.formats.keras.exporting.operators import write_as_operations
from netspec.exchange.formats.keras.exporting.training import losses_and_metrics
from netspec.exchange.formats.keras.exporting.writer import KerasWriter
from netspec.exchange.formats.registry import Exportable
from netspec.schema.load import load_train
from netspec.schema.specs.train import TrainSpec
from netspec.tools.verification.cases import cases
from tests.exchange.nets import Arrays, Net, net_data

BATCH, DONE = 4, 3
"""Number of samples of a step, and of steps that were done before."""
JUDGES = {"from": ["classes", "target"]}
IMAGES = net_data(
    {"type": "Conv2D", "filters": 3, "kernel_size": 3, "activation": "tanh"},
    {"type": "BatchNormalization"},
    {"type": "PReLU"},
    {"type": "LayerNormalization", "axis": [1, 2, 3]},
    {"type": "Flatten"},
    {"type": "Dense", "name": "classes", "units": 4},
    inputs={"image": {"shape": [2, 5, 4]}, "target": {"shape": [], "dtype": "int32"}},
    losses=[{"type": "SparseCategoricalCrossentropy", "from_logits": True, **JUDGES}],
    metrics=[
        {"type": "SparseCategoricalAccuracy", **JUDGES}, {"type": "SparseTopKCategoricalAccuracy", "k": 2, **JUDGES},
    ],
)  # fmt: skip
SEQUENCES = net_data(
    {"type": "Dense", "name": "first", "units": 4, "from": "x"},
    {"type": "Dense", "name": "again", "units": 4, "share": "first"},
    {"type": "Dense", "name": "still", "units": 4, "trainable": False},
    {"type": "MultiHeadAttention", "num_heads": 2, "key_dim": 3},
    {"type": "Bidirectional", "layer": {"type": "GRU", "units": 2, "return_sequences": True}},
    {"type": "Permute", "dims": [2, 1]},
    {"type": "DepthwiseConv1D", "kernel_size": 2, "depth_multiplier": 2},
    {"type": "GlobalAveragePooling1D", "name": "means"},
    {"type": "LSTM", "name": "last", "units": 3, "from": "again"},
    inputs={"x": {"shape": [5, 4]}, "a": {"shape": [8]}, "b": {"shape": [3]}},
    outputs=["means", "last"],
    losses=[
        {"type": "Huber", "delta": 0.5, "from": ["last", "b"]},
        {"type": "MeanSquaredError", "weight": 0.25, "from": ["means", "a"]},
    ],
    metrics=[{"type": "MeanAbsoluteError", "from": ["last", "b"]}],
)
LEARNED = net_data(
    {"type": "Permute", "name": "turned", "dims": [2, 1], "from": "x"},
    {"type": "PositionEmbedding", "name": "places", "sequence_length": 5},
    {"type": "Add", "name": "placed", "from": ["turned", "places"]},
    {"type": "Scale", "use_bias": True, "axis": 1, "num_axes": 2},
    {"type": "Scale", "name": "gain", "axis": 2},
    {"type": "Bias"},
    {"type": "Parameter", "name": "own", "shape": [3, 4], "from": "x"},
    {"type": "Multiply", "name": "y", "from": ["bias", "own"]},
    inputs={"x": {"shape": [4, 3]}, "a": {"shape": [3, 4]}},
    outputs=["y"],
    losses=[{"type": "MeanSquaredError", "from": ["y", "a"]}],
)
"""A net of layers with few parameters, which are different layers in Keras."""
MATRICES = net_data(
    {"type": "Conv2D", "filters": 6, "kernel_size": 2, "activation": "tanh"},
    {"type": "Reshape", "target_shape": [6, 12]},
    {"type": "Permute", "dims": [2, 1]},
    {"type": "GRU", "units": 4},
    {"type": "Dense", "name": "hidden", "units": 5, "activation": "tanh"},
    {"type": "Dense", "name": "classes", "units": 4},
    inputs={"image": {"shape": [4, 5, 4]}, "target": {"shape": [], "dtype": "int32"}},
    losses=[{"type": "SparseCategoricalCrossentropy", "from_logits": True, **JUDGES}],
)
"""A net whose kernels have their two largest axes where Keras has them: behind all others."""
SOLVERS: dict[str, dict[str, Any]] = {
    "sgd": {"type": "SGD", "learning_rate": 0.1},
    "sgd with momentum": {"type": "SGD", "learning_rate": {"type": "CosineDecay", "initial": 0.1}, "momentum": 0.9,
                          "nesterov": True, "clipnorm": 0.5},
    "rmsprop": {"type": "RMSprop", "learning_rate": 0.01, "momentum": 0.5, "centered": True, "global_clipnorm": 1.0},
    "adam": {"type": "Adam", "learning_rate": 0.01, "amsgrad": True, "clipvalue": 0.1},
    "adamw": {"type": "AdamW", "learning_rate": {"type": "Warmup", "steps": 5, "then": {"type": "CosineDecay",
              "initial": 0.05}}, "weight_decay": 0.1},
    "adamax": {"type": "Adamax", "learning_rate": {"type": "PiecewiseConstantDecay", "boundaries": [2],
               "values": [0.5, 0.01]}},
    "nadam": {"type": "Nadam", "learning_rate": 0.01, "weight_decay": 0.02, "decoupled_weight_decay": True},
    "adadelta": {"type": "Adadelta", "learning_rate": 0.5, "rho": 0.8},
    "adagrad": {"type": "Adagrad", "learning_rate": {"type": "ExponentialDecay", "initial": 0.05, "decay_rate": 0.5,
                "decay_steps": 2, "staircase": True}},
    "ftrl": {"type": "Ftrl", "learning_rate": 0.05, "l1_regularization_strength": 0.01, "beta": 0.1},
    "lion": {"type": "Lion", "learning_rate": 0.01, "weight_decay": 0.1},
    "lamb": {"type": "Lamb", "learning_rate": 0.01},
}  # fmt: skip


@dataclass(frozen=True)
class Training:
    """A training at some step, with random weights and states."""

    name: str
    net: dict[str, Any]
    solver: dict[str, Any]

    @cached_property
    def spec(self) -> TrainSpec:
        data = {"train": {"source": "python", "fields": list(self.net["inputs"]), "batch_size": BATCH}}
        return load_train(
            {"netspec": 1, "net": self.net, "data": data, "solver": self.solver, "train": {"max_steps": 20}}
        )

    @cached_property
    def compiler(self) -> Compiler:
        solver: Any = self.spec.solver
        compiled = Compiler(self.spec.net, solver=solver, device="reference", loop=self.spec.train)
        random = np.random.default_rng(3)
        for name in compiled.names("parameter", "statistic", "slot"):
            shape, last = compiled.info[name].value.shape, name.rpartition("/")[2]
            positive = any(word in last for word in ("variance", "second", "norm", "accumulator", "product"))
            array = random.uniform(0.5, 0.9, shape) if positive else random.uniform(-0.4, 0.4, shape)
            # Both must be means of the same squares.
            if last in ("rows", "columns"):
                of = compiled.info[name.removeprefix("solver/").removesuffix(f"/{last}")].value.shape
                reduced_axes = tuple(axis for axis, size in enumerate(of) if size != shape[axis])
                array = np.random.default_rng(5).uniform(0.5, 0.9, of).mean(axis=reduced_axes, keepdims=True)
            compiled.states.assign(name, array.astype(np.float32))
        return compiled

    def _states(self, *roles: str) -> Arrays:
        return {name: np.array(self.compiler.states[name]) for name in self.compiler.names(*roles)}

    def exportable(self, step: int = DONE) -> Exportable:
        """Return the model in the form that writers take."""
        return Exportable(
            self.spec.net, self._states("parameter", "statistic"),
            lambda size: self.compiler.graph(ProgramKind.PREDICT, size), self.spec, self._states("slot"), step,
        )  # fmt: skip

    @cached_property
    def batch(self) -> Arrays:
        """A batch with netspec's axes."""
        random = np.random.default_rng(9)
        return {
            name: (
                random.normal(size=(BATCH, *model_input.shape)).astype(np.float32)
                if model_input.dtype == "float32"
                else random.integers(0, 4, (BATCH, *model_input.shape)).astype(np.int32)
            )
            for name, model_input in self.spec.net.inputs.items()
        }

    def advance(self) -> None:
        """Take a step."""
        solver: Any = self.spec.solver
        rate = np.array(solver.learning_rate.value(DONE, 20), np.float32)
        program = self.compiler.program(ProgramKind.TRAIN, BATCH)
        program({**self.batch, LEARNING_RATE: rate, STEP: np.array(DONE + 1.0)})


def trainings() -> list[Training]:
    """All trainings: one for each solver, and a net in which the order of many layers' variables matters."""
    of_images = [Training(name, IMAGES, solver) for name, solver in SOLVERS.items()]
    adam = {"type": "Adam", "learning_rate": 0.01}
    muon = {"type": "Muon", "learning_rate": 0.1, "exclude": ["gru/recurrent_kernel", "classes/kernel"],
            "momentum": 0.8, "adam_weight_decay": 0.1, "ns_steps": 3, "ns_coefficients": [2.0, -1.5, 0.5]}  # fmt: skip
    adafactor = {"type": "Adafactor", "learning_rate": 0.5, "clip_threshold": 0.5, "weight_decay": 0.1}
    of_images += [Training("muon", MATRICES, muon), Training("adafactor", MATRICES, adafactor)]
    return [*of_images, Training("two outputs", SEQUENCES, adam), Training("learned numbers", LEARNED, adam)]


def arrays_in(model: KerasModel) -> Arrays:
    """Return all arrays of a model by their paths in its weights file."""
    arrays = {
        f"layers/{group}/{path}": array
        for group, layer in model.groups().items()
        for path, array in layer.arrays.items()
    }
    return arrays | {f"optimizer/vars/{index}": array for index, array in enumerate(model.optimizer)}


def digest(layer: Training) -> str:
    """Return a digest of the file for Keras, and of the batch."""
    model, _ = keras_model(layer.exportable())
    digest_ = hashlib.sha256(json.dumps(model.to_json(), sort_keys=True).encode())
    for path, array in sorted({**arrays_in(model), **layer.batch}.items()):
        digest_.update(f"{path} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest_.hexdigest()


def compared() -> dict[str, str]:
    """Return the configuration of each exported sample of a loss or metric, as JSON."""
    arrays = {}
    for case in cases("loss", "metric"):
        section = "losses" if case.kind == "loss" else "metrics"
        sample = case.sample
        if len(sample.shapes) != 2:
            continue
        inputs = {
            name: {"shape": list(shape[1:]), "dtype": dtype}
            for name, shape, dtype in zip(("x", "target"), sample.shapes, sample.dtypes, strict=True)
        }
        fields = {key: list(value) if isinstance(value, tuple) else value for key, value in case.fields.items()}
        of: dict[str, Any] = {"from": ["y", "target"]}
        judges = {"losses": [{"type": "MeanSquaredError", "name": "mean", **of}]}
        judges |= {section: [{**fields, "type": case.type, "name": "judge", "sample_weight": None, **of}]}
        net = net_data({"type": "Identity", "name": "y", "from": "x"}, inputs=inputs, **judges)
        net_ = Net.of(net)
        writer = KerasWriter(net_.spec, net_.graph, net_.states, RULES.all(), write_as_operations)
        writer.write()
        written = losses_and_metrics(writer)
        if not any("left out" in note for note in writer.notes) and written:
            (config,) = [written["loss"]] if section == "losses" else written["metrics"]
            arrays[case.id] = json.dumps(config)
    return arrays


def record(keras: Any) -> Arrays:
    """Return all arrays of Keras's files after another step, and the losses and metrics that Keras can load."""
    import h5py

    keras.config.set_floatx("float32")
    keras.config.set_image_data_format("channels_last")
    recorded: Arrays = {}
    for name, text in compared().items():
        keras.saving.deserialize_keras_object(json.loads(text))  # raises if Keras does not know it
        recorded[f"compared/{name}"] = np.array(text)
    for training in trainings():
        recorded[f"{training.name}/of"] = np.array(digest(training))
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.keras"
            write_keras(path, training.exportable())
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # an error, since Keras only warns about variables that it does not load
                model = keras.models.load_model(path)
            x, *targets = training.batch.values()
            x = np.moveaxis(x, 1, -1) if x.ndim > 3 else x
            model.train_on_batch(x, targets if len(targets) > 1 else targets[0])
            after = path.with_name("after.weights.h5")
            model.save_weights(after)
            with h5py.File(after) as file:
                file.visititems(
                    lambda name, item, of=training.name: (
                        recorded.update({f"{of}/{name}": item[()]}) if isinstance(item, h5py.Dataset) else None
                    )
                )
    return recorded


def stepped(training: Training) -> Arrays:
    """Return all arrays of netspec's file after another step."""
    training.advance()
    model, _ = keras_model(training.exportable(DONE + 1))
    return arrays_in(model)

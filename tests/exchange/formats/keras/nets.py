"""Nets that tests export to Keras: every sample of every layer that Keras has, and combinations of layers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from netspec.backends.op_call import generator
from netspec.exchange.formats.keras.exporting import keras_model
from netspec.exchange.formats.keras.exporting.model import KerasModel
from netspec.exchange.formats.registry import Exportable
from netspec.tools.verification.cases import SampleCase, cases
from tests.exchange.nets import Arrays, Net, net_data
from tests.registry.fast_samples import first_is_fast

CONV: dict[str, Any] = {"type": "Conv2D", "filters": 4, "kernel_size": 3}
CONV_LSTM: dict[str, Any] = {"type": "ConvLSTM2D", "filters": 2, "kernel_size": 2}
IMAGE = {"x": {"shape": [2, 7, 6]}}
SEQUENCE = {"x": {"shape": [5, 3]}}
WORDS = {"x": {"shape": [5], "dtype": "int32"}}

NETS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "recurrent images in each step": (
        {"x": {"shape": [2, 3, 2, 5, 4]}},
        [
            {"type": "TimeDistributed", "layer": {**CONV_LSTM, "return_sequences": True}},
            {"type": "TimeDistributed", "layer": {"type": "TimeDistributed", "layer": {**CONV, "kernel_size": 2}}},
            {"type": "TimeDistributed", "layer": {"type": "TimeDistributed", "layer": {"type": "PReLU"}}},
            {"type": "TimeDistributed", "layer": {"type": "Bidirectional", "layer": CONV_LSTM}},
        ],
        {},
    ),
    "images in each step": (
        {"x": {"shape": [2, 2, 7, 6]}},
        [
            {"type": "TimeDistributed", "layer": CONV},
            {"type": "TimeDistributed", "layer": {"type": "MaxPooling2D"}},
            {"type": "Bidirectional", "layer": {**CONV_LSTM, "kernel_size": 1}},
        ],
        {},
    ),
    "dense behind an image": (IMAGE, [CONV, {"type": "Flatten"}, {"type": "Dense", "units": 3}], {}),
    "dense behind a row that was changed": (
        IMAGE,
        [CONV, {"type": "Flatten"}, {"type": "Dropout", "rate": 0.5}, {"type": "ReLU"}, {"type": "Dense", "units": 3}],
        {},
    ),
    "a row as output": (IMAGE, [CONV, {"type": "Flatten", "name": "row"}], {}),
    "a row that is normalized": (IMAGE, [CONV, {"type": "Flatten"}, {"type": "BatchNormalization"}], {}),
    "rows that are added": (
        IMAGE,
        [
            {**CONV, "name": "a"}, {**CONV, "name": "b", "from": "x"}, {"type": "Flatten", "name": "fa", "from": "a"},
            {"type": "Flatten", "name": "fb", "from": "b"}, {"type": "Add", "from": ["fa", "fb"]},
            {"type": "Dense", "units": 2},
        ],
        {},
    ),
    "rows that are put together": (
        IMAGE,
        [
            {**CONV, "name": "a"}, {"type": "Flatten", "name": "fa"}, {"type": "Flatten", "name": "fx", "from": "x"},
            {"type": "Concatenate", "from": ["fa", "fx"]}, {"type": "Dense", "units": 2},
        ],
        {},
    ),
    "branches of images": (
        IMAGE,
        [
            {**CONV, "name": "a", "padding": "same"}, {**CONV, "name": "b", "from": "x", "padding": [1, 1]},
            {"type": "Concatenate", "from": ["a", "b", "x"]}, {"type": "LayerNormalization", "axis": 1},
            {"type": "LayerNormalization", "axis": [1, 2, 3]}, {"type": "PReLU", "shared_axes": [2]},
            {"type": "GroupNormalization", "groups": 5}, {"type": "Softmax", "axis": 1},
        ],
        {},
    ),
    "an image of a vector": (
        {"x": {"shape": [12]}},
        [{"type": "Reshape", "target_shape": [2, 3, 2]}, {**CONV, "kernel_size": 2}, {"type": "Softmax", "axis": -1}],
        {},
    ),
    "convolutions of a sequence": (
        SEQUENCE,
        [
            {"type": "Permute", "dims": [2, 1]}, {"type": "Conv1D", "filters": 4, "kernel_size": 2},
            {"type": "MaxPooling1D"}, {"type": "Permute", "dims": [2, 1]}, {"type": "LSTM", "units": 3},
        ],
        {},
    ),
    "padding of many kinds": (
        IMAGE,
        [
            {**CONV, "padding": [[0, 1], [2, 1]], "activation": {"type": "leaky_relu", "negative_slope": 0.1}},
            {"type": "MaxPooling2D", "pool_size": 3, "strides": 2, "padding": 1},
            {"type": "AveragePooling2D", "strides": 1, "padding": 1, "count_include_pad": True},
            {"type": "MaxPooling2D", "pool_size": 2, "strides": 2, "ceil_mode": True},
            {"type": "AveragePooling2D", "pool_size": 2, "padding": "same", "count_include_pad": True},
        ],
        {},
    ),
    "a layer in two places": (
        {"x": {"shape": [4]}, "y": {"shape": [4]}},
        [
            {"type": "Dense", "name": "a", "units": 4, "activation": "tanh"},
            {"type": "Dense", "name": "b", "units": 4, "activation": "tanh", "from": "y", "share": "a"},
            {"type": "Dense", "name": "c", "units": 4, "activation": "tanh", "from": "b", "share": "a"},
            {"type": "Subtract", "from": ["a", "c"]},
        ],
        {},
    ),
    "states from one layer to another": (
        SEQUENCE,
        [
            {"type": "LSTM", "name": "encoder", "units": 3, "return_state": True},
            {"type": "LSTM", "name": "decoder", "units": 3, "return_sequences": True,
             "from": ["x", "encoder.state_h", "encoder.state_c"]},
            {"type": "Bidirectional", "merge_mode": "sum", "layer": {"type": "GRU", "units": 2}},
        ],
        {"outputs": ["encoder.state_c", "decoder", "bidirectional"]},
    ),
    "words of which some do not count": (
        WORDS,
        [
            {"type": "Embedding", "input_dim": 6, "output_dim": 4, "mask_zero": True},
            {"type": "GRU", "units": 3, "return_sequences": True}, {"type": "Dropout", "rate": 0.1},
            {"type": "SimpleRNN", "units": 2},
        ],
        {},
    ),
    "words that are written again": (
        WORDS,
        [
            {"type": "ReversibleEmbedding", "name": "in", "input_dim": 6, "output_dim": 4},
            {"type": "MultiHeadAttention", "num_heads": 2, "key_dim": 3, "use_causal_mask": True},
            {"type": "ReversibleEmbedding", "name": "out", "input_dim": 6, "output_dim": 4, "reverse": True,
             "share": "in"},
        ],
        {},
    ),
    "steps of images": (
        {"x": {"shape": [3, 2, 5, 4]}},
        [
            {"type": "TimeDistributed", "layer": CONV},
            {"type": "ConvLSTM2D", "filters": 2, "kernel_size": 2, "return_sequences": True},
            {"type": "TimeDistributed", "layer": {"type": "Flatten"}}, {"type": "LSTM", "units": 2},
        ],
        {},
    ),
    "steps of sequences": (
        {"x": {"shape": [3, 2, 6]}},
        [
            {"type": "TimeDistributed", "layer": {"type": "Conv1D", "filters": 4, "kernel_size": 2}},
            {"type": "TimeDistributed", "layer": {"type": "GlobalMaxPooling1D"}}, {"type": "GRU", "units": 2},
        ],
        {},
    ),
    "states of each step": (
        {"x": {"shape": [2, 4, 3]}},
        [
            {"type": "TimeDistributed", "name": "t",
             "layer": {"type": "LSTM", "units": 2, "return_sequences": True, "return_state": True}},
        ],
        {"outputs": ["t.output", "t.state_h", "t.state_c"]},
    ),
    "what is no layer there": (
        IMAGE,
        [
            {**CONV, "name": "a", "padding": "same"}, {"type": "LocalResponseNormalization"},
            {"type": "Expression", "expr": "x * sigmoid(x) if x > 0 else exp(x) - 1"}, {"type": "Clip", "min": -1.0},
            {"type": "Split", "name": "parts", "sections": [1, 3]},
            {"type": "Scale", "from": "parts.1", "use_bias": True}, {"type": "Power", "power": 2.0, "shift": 0.5},
            {"type": "Reduction", "operation": "logsumexp", "axes": [2, 3], "keepdims": True}, {"type": "Flatten"},
            {"type": "Activation", "activation": {"type": "hard_sigmoid", "alpha": 0.5, "beta": 0.1}},
            {"type": "Dense", "units": 3, "activation": {"type": "hard_sigmoid", "alpha": 0.3, "beta": 0.4}},
        ],
        {},
    ),
    "names of all kinds": (
        {"in/put": {"shape": [3]}},
        [
            {"type": "Dense", "name": "block.1/fc", "units": 3}, {"type": "Dense", "name": "block_1_fc", "units": 3},
            {"type": "Dense", "name": "block.1:fc", "units": 3, "use_bias": False, "activation": "swish"},
        ],
        {},
    ),
    "functions with numbers of their own": (
        IMAGE,
        [
            {**CONV, "activation": {"type": "gelu", "approximate": True}},
            {"type": "Activation", "activation": {"type": "swish", "beta": 1.5}},
            {"type": "Activation", "activation": {"type": "softmax", "axis": 1}},
            {**CONV, "activation": "softmax"}, {"type": "Activation", "activation": "log_softmax"},
            {"type": "Swish"}, {"type": "BNLL"}, {"type": "Power", "scale": 2.0, "shift": 1.0},
        ],
        {},
    ),
    "penalties and constraints": (
        IMAGE,
        [
            {**CONV, "kernel_regularizer": {"type": "L2", "l2": 0.1}, "kernel_constraint": "MaxNorm",
             "bias_constraint": "NonNeg", "activity_regularizer": {"type": "L1"}, "trainable": False,
             "kernel_initializer": "Bilinear"},
            {"type": "Flatten"},
            {"type": "Dense", "units": 2, "kernel_constraint": {"type": "UnitNorm"}, "kernel_initializer": "HeNormal"},
        ],
        {},
    ),
}  # fmt: skip
"""Inputs, layers and other fields of the file of each net."""


@dataclass(frozen=True)
class Written:
    """A net, and inputs for it."""

    name: str
    net: Net
    inputs: Arrays

    @cached_property
    def made(self) -> tuple[KerasModel, tuple[str, ...]]:
        return keras_model(self.exportable)

    @property
    def model(self) -> KerasModel:
        """The exported model."""
        return self.made[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes of the export."""
        return self.made[1]

    @property
    def exportable(self) -> Exportable:
        return Exportable(self.net.spec, self.net.states, self.net.graph)

    @property
    def digest(self) -> str:
        """Digest of the contents of a file: recorded results of Keras are out of date if it changes."""
        digest = hashlib.sha256(json.dumps(self.model.to_json(), sort_keys=True).encode())
        for name, layer in self.model.groups().items():
            for path, array in sorted(layer.arrays.items()):
                digest.update(f"{name}/{path} {array.dtype} {array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    @property
    def keras_inputs(self) -> list[np.ndarray]:
        """The inputs with axes in Keras's order."""
        names = self.net.graph(1).inputs()
        return [
            self.inputs[name].transpose(tensor.order) for name, tensor in zip(names, self.model.inputs, strict=True)
        ]

    def in_order(self, outputs: list[np.ndarray]) -> list[np.ndarray]:
        """Transpose Keras's result to netspec's order of axes."""
        return [
            np.transpose(array, np.argsort(tensor.order))
            for array, tensor in zip(outputs, self.model.outputs, strict=True)
        ]  # fmt: skip


SAMPLES = {case.id: case for case in cases("layer") if not case.sample.masks}  # masks come from layers
"""Samples of layers, each a net."""


@cache
def written(name: str) -> Written:
    """Return the net of `NETS` or `SAMPLES` with this name."""
    if name in SAMPLES:
        return _written_sample(SAMPLES[name])
    inputs, layers, more = NETS[name]
    net = Net.of(net_data(*layers, inputs=inputs, **more))
    return Written(name, net, drawn(name, net))


def _written_sample(case: SampleCase) -> Written:
    sample = case.sample
    inputs = {
        f"x{index}": {"shape": list(shape[1:]), "dtype": dtype}
        for index, (shape, dtype) in enumerate(zip(sample.shapes, sample.dtypes, strict=True))
    }
    fields = {key: list(value) if isinstance(value, tuple) else value for key, value in case.fields.items()}
    net = Net.of(net_data({**fields, "from": list(inputs)}, inputs=inputs))
    ranges = dict(zip(inputs, sample.ranges, strict=False))
    return Written(case.id, net, drawn(case.id, net, sample.shapes[0][0], sample.high, ranges))


def names_of_nets(excluded: Collection[str] = ()) -> list[Any]:
    """Parameters of a test of all nets: all but the first sample of each layer are slow."""
    import pytest  # this module does not exist where Keras's answers are recorded

    cases = [case for name, case in SAMPLES.items() if name not in excluded]
    samples = [pytest.param(param.values[0].id, marks=param.marks, id=param.id) for param in first_is_fast(cases)]
    return [*(name for name in NETS if name not in excluded), *samples]


def drawn(
    name: str, net: Net, size: int = 3, high: int = 5, ranges: dict[str, tuple[float, float] | None] | None = None
) -> Arrays:
    """Random inputs."""
    random, inputs = generator(name), {}
    for key, source in net.spec.inputs.items():
        shape = (ranges or {}).get(key)
        if source.dtype != "float32":
            array: Any = random.integers(0, high, (size, *source.shape))
        elif shape is not None:
            array = random.uniform(*shape, (size, *source.shape))
        else:
            array = random.normal(size=(size, *source.shape))
        inputs[key] = array.astype(source.dtype)
    return inputs

"""Record the results of Keras (on PyTorch), or of PyTorch, for the samples of all layers, losses and metrics they have.

    KERAS_BACKEND=torch .venv-peers/bin/python -m tests.peers.record [--output DIRECTORY] [--changed] [CLASS …]

In float64, as far as Keras keeps it. For each sample: values of all inputs and weights, the output, and the gradients
of the sum of the output times fixed numbers. netspec only provides the random numbers; it computes nothing here.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from netspec.tools.verification.cases import WEIGHT, SampleCase, built, cases
from tests.peers import (
    batch_statistics,
    builtin_names,
    constraints,
    fractional_pooling,
    gradient_accumulation,
    keras_files,
    keras_training,
    lbfgs,
    mel_spectrograms,
    schedules,
    solvers,
    state_dicts,
    torch_layers,
    torch_losses,
    torch_resume,
)
from tests.peers.recordings import RECORDED, load_answers, save_answers

DEFAULTS: dict[str, dict[str, Any]] = {
    **{f"AveragePooling{rank}D": {"pool_size": 2} for rank in (1, 2, 3)},  # Keras has a default only for MaxPooling
    "GroupNormalization": {"axis": 1},
    "Normalization": {"axis": 1},
    "BatchNormalization": {"axis": 1},  # Keras's default is for channels-last data, even with channels-first data
    "Concatenate": {"axis": 1},
    "Flatten": {"data_format": "channels_last"},  # Keras would transpose channels-first data
}
"""Fields whose default differs from Keras's."""

OF_CALLS = ("use_causal_mask", "reverse", "return_attention_scores")
"""Fields that are arguments of the call in Keras."""
OPERANDS = {
    **dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), ("query", "value", "key", "attention_mask")),
    "Softmax": ("inputs", "mask"),
}
"""Names of the inputs of layers that, in Keras, take them as separate arguments, not as a list."""


PARTS = ("layer", "backward_layer", "cell", "cells")
"""Fields that contain layers or cells, whose weights are in the same order in Keras and netspec."""
TOLD = ("BatchNormalization", "Dropout", "SpectralNormalization")
"""Layers whose call has the argument `training`."""
INITIAL_STATE = ("SimpleRNN", "LSTM", "GRU", "RNN", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")
"""Layers whose further inputs are initial states, which Keras takes as a named argument."""

CHANNELS_LAST = ("UpSampling1D", "Cropping1D", "SpatialDropout1D")
"""Layers of Keras that accept sequences only as (batch, length, channels)."""


class Unlike(Exception):
    """Keras does not have this; the message is the reason."""


def keras() -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    try:
        module = import_module("keras")
    except ModuleNotFoundError:
        raise SystemExit("Keras is not installed here: run `make peers`, then .venv-peers/bin/python") from None
    module.config.set_image_data_format("channels_first")
    module.config.set_floatx("float64")
    return module


def described(case: SampleCase) -> str:
    """Describe the subject of a recording, which is out of date if this changes."""
    sample = case.sample
    description = [case.fields, sample.shapes, sample.dtypes, sample.high, sample.ranges]
    more = [item for item in (sample.masks, sample.weight, sample.low) if item]
    return json.dumps([*description, *more], default=list)


def tensor(array: np.ndarray) -> Any:
    """Return a leaf tensor that collects its gradient if it is of floats."""
    leaf = import_module("torch").tensor(array)
    return leaf.requires_grad_(leaf.is_floating_point())


def make(module: Any, fields: dict[str, Any], **more: Any) -> Any:
    """Return Keras's object with the same type and fields."""
    arguments = {key: value for key, value in fields.items() if key not in ("type", "name")}
    for key, value in arguments.items():
        if isinstance(value, dict):
            of = keras().layers if key in PARTS else keras().regularizers
            arguments[key] = function(value) if key == "activation" else make(of, value)
        if key in PARTS and isinstance(value, list):
            arguments[key] = [make(keras().layers, item) for item in value]
        if key == "noise_shape":
            arguments[key] = tuple(value)
        if key == "target_shape" and isinstance(value, int):
            arguments[key] = (value,)
    return getattr(module, fields["type"])(**(arguments | more))


def function(fields: dict[str, Any]) -> Any:
    """Return Keras's activation function with these fields."""
    arguments = {key: value for key, value in fields.items() if key != "type"}
    if fields["type"] in ("swish", "hard_sigmoid") and arguments:
        raise Unlike(f"Keras's {fields['type']} has no factor")
    return partial(getattr(keras().activations, fields["type"]), **arguments)


def is_kernel(case: SampleCase, name: str) -> bool:
    """Whether a weight is a kernel of a convolution."""
    return ("Conv" in case.type or re.search(r"/\w*conv", name) is not None) and name.endswith("kernel")


def is_depthwise(case: SampleCase, name: str) -> bool:
    return "/depthwise_" in name or (case.type.startswith("Depthwise") and name == "sample/kernel")


def to_keras(case: SampleCase, name: str, value: np.ndarray) -> np.ndarray:
    """Transpose a weight to Keras's axes: (window…, in, out), depthwise (window…, channels, multiplier)."""
    if not is_kernel(case, name):
        return value
    if is_depthwise(case, name):
        value = value.reshape(case.sample.shapes[0][1], -1, *value.shape[2:]).swapaxes(0, 1)
    return value.transpose(*range(2, value.ndim), 1, 0)


def from_keras(case: SampleCase, name: str, value: np.ndarray) -> np.ndarray:
    """Transpose a weight to netspec's axes: (out, in, window…), depthwise (out, 1, window…)."""
    if not is_kernel(case, name):
        return value
    value = value.transpose(value.ndim - 1, value.ndim - 2, *range(value.ndim - 2))
    return value.swapaxes(0, 1).reshape(-1, 1, *value.shape[2:]) if is_depthwise(case, name) else value


def padded(fields: dict[str, Any], x: Any) -> tuple[dict[str, Any], Any]:
    """Apply explicit padding, which Keras does not have, to the input."""
    padding = fields.get("padding", "valid")
    if fields["type"].startswith("ZeroPadding"):
        return fields, x
    if fields["type"].startswith("AveragePooling") and padding != "valid":
        raise Unlike("on PyTorch padding is averaged: copies of the border, unlike on TensorFlow")
    if padding == "causal" and fields["type"] != "Conv1D":  # in Keras, only Conv1D has it
        padding = [(fields["kernel_size"] - 1) * fields.get("dilation_rate", 1), 0]
    if isinstance(padding, str):
        return fields, x
    if fields["type"].endswith("Transpose"):
        raise Unlike("Keras has no explicit padding, which here cuts off")
    sides = [padding] if isinstance(padding[0], int) else padding
    fill = -np.inf if fields["type"].startswith("MaxPooling") else 0.0
    x = import_module("torch").nn.functional.pad(
        x, [side for before_and_after in sides[::-1] for side in before_and_after], value=fill
    )
    return {**fields, "padding": "valid"}, x


def refuse_unlike(case: SampleCase, fields: dict[str, Any], training: bool) -> None:
    """Raise `Unlike` if Keras has no such layer, or computes something else with these fields."""
    if not hasattr(keras().layers, case.type):
        raise Unlike("Keras has no such layer")
    noisy = case.type.endswith(("Dropout", "Dropout1D", "Dropout2D", "Dropout3D", "Noise"))
    if noisy and training and fields.get("rate", fields.get("stddev")):
        raise Unlike("other random numbers")
    if case.type == "Masking" and len(case.sample.shapes) > 1:
        raise Unlike("Keras's Masking does not take a mask as an input")
    if case.type == "SpectralNormalization" and case.sample.dtypes[0].startswith("int"):
        raise Unlike("what comes out is rounded to whole numbers, because what comes in are some")
    if case.type == "Activation" and "axis" in fields:
        raise Unlike("an activation over another axis than the last")
    if case.type == "Activation" and "sparsemax" in str(fields["activation"]):
        raise Unlike("it adds up sums of sums: what comes out does not sum to 1")
    if (
        case.type in ("LayerNormalization", "RMSNormalization")
        and fields.get("axis", -1) == 1
        and len(case.sample.shapes[0]) > 2
    ):
        raise Unlike("on PyTorch axes side by side are taken for the last ones, and the shapes then do not fit")
    if {"unbiased_moving_variance", "track_running_stats"} & fields.keys() or fields.get("momentum", 0) is None:
        raise Unlike("Keras averages biased variances, always with a momentum")
    if {"ceil_mode", "count_include_pad"} & fields.keys():
        raise Unlike("Keras rounds down, and has no padding to count")
    for name in sorted(torch_layers.NOT_OF_KERAS & fields.keys()):
        raise Unlike(f"Keras has no `{name}`, and PyTorch not all else of the sample")
    if "Pooling" in fields["type"] and "dilation_rate" in fields:
        raise Unlike("Keras's windows of poolings have no gaps")


def layer(case: SampleCase, training: bool) -> dict[str, np.ndarray]:
    if torch_layers.answers(case):
        return torch_layers.answered(case, training)
    net, fields = built(case, training), dict(case.fields)
    refuse_unlike(case, fields, training)
    for name, value in DEFAULTS.get(case.type, {}).items():
        fields.setdefault(name, value)
    inputs = {name: tensor(net.feeds[name]) for name in net.feeds if name.startswith("x")}
    operands = list(inputs.values())
    fields, operands[0] = padded(fields, operands[0])
    if len(operands) > 1:
        operands = [x.double() for x in operands]  # integers are added to floats as floats
    if case.type.endswith("Transpose") and "groups" in fields:
        raise Unlike("Keras has no groups in a transposed convolution")
    if str(fields.get("interpolation")).startswith("lanczos"):
        raise Unlike("Keras has it on TensorFlow and JAX alone")
    if case.type == "Resizing":  # Resizing needs its data format
        fields["data_format"] = "channels_first"
    if re.search(r"dropout': 0\.[1-9]|'Dropout'", str(fields | {"type": ""})) and training:
        raise Unlike("other random numbers")
    if isinstance(fields.get("output_shape"), int):
        fields["output_shape"] = (fields["output_shape"],)
    arguments = {name: fields.pop(name) for name in OF_CALLS if name in fields}
    if case.type in CHANNELS_LAST:
        operands[0] = operands[0].movedim(1, -1)
    instance = make(keras().layers, fields)
    if case.type in INITIAL_STATE and len(operands) > 1:
        operands, arguments["initial_state"] = operands[:1], operands[1:]
    shapes = [tuple(x.shape) for x in operands]
    named: dict[str, Any] = {}
    if case.type in OPERANDS:
        least = sum("mask" not in name for name in OPERANDS[case.type][:2])
        operands += operands[:1] * (least - len(operands))  # self-attention
        named = dict(zip(OPERANDS[case.type], operands, strict=False))
        instance.build(*(tuple(x.shape) for name, x in named.items() if "mask" not in name))
    else:
        instance.build(shapes if len(shapes) > 1 else shapes[0])
    # The weights of a recurrent layer are in a cell.
    by_path = {re.sub(r"^\w+_cell/", "", weight.path.partition("/")[2]): weight for weight in instance.weights}
    if any(name in fields for name in PARTS):
        weights = dict(zip(net.builder.states, instance.weights, strict=True))
    else:
        weights = {name: by_path[name.removeprefix("sample/")] for name in net.builder.states}
    for name, weight in weights.items():
        weight.assign(to_keras(case, name, net.feeds[name]))
    if hasattr(instance, "finalize_state"):  # use the adapted statistics
        instance.finalize_state()
    arguments |= {"training": training} if case.type in TOLD else {}
    for index, x in enumerate(operands):
        if f"mask{index}" in net.feeds:
            import_module("keras.src.backend").set_keras_mask(
                x, import_module("torch").tensor(net.feeds[f"mask{index}"])
            )
    y = (
        instance(**named, **arguments)
        if named
        else instance(operands if len(operands) > 1 else operands[0], **arguments)
    )
    if case.type in CHANNELS_LAST:
        y = y.movedim(-1, 1)
    penalties = instance.losses if training else ()
    return results_of(case, net, keras().tree.flatten(y), penalties, inputs, weights)


def results_of(
    case: SampleCase,
    net: Any,
    outputs: list[Any],
    penalties: Iterable[Any],
    inputs: dict[str, Any],
    weights: dict[str, Any],
) -> dict[str, np.ndarray]:
    """The outputs, the gradients of their weighted sum and of penalties, and the updated weights."""
    total = sum((y * tensor(net.feeds[f"weights/{index}"])).sum() for index, y in enumerate(outputs))
    for penalty in penalties:
        total = total + penalty
    if total.requires_grad:
        total.backward()
    results = {f"output{index or ''}": y.detach().numpy() for index, y in enumerate(outputs)}
    results |= {f"gradient/{name}": x.grad.numpy() for name, x in inputs.items() if x.grad is not None}
    for name, weight in weights.items():
        if weight.value.grad is not None:
            results[f"gradient/{name}"] = from_keras(case, name, weight.value.grad.numpy())
        if name in net.builder.updates:
            results[f"update/{name}"] = from_keras(case, name, weight.value.detach().numpy())
    return results


OF_FIT = (WEIGHT, "class_weight")
"""Fields of losses that are arguments of `fit` in Keras, which converts them to weights of samples."""


def weights_of(case: SampleCase, feeds: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the sample weights that a loss is called with."""
    class_weight = case.sample.fields.get("class_weight")
    if class_weight is None:
        return feeds.get(WEIGHT)
    target = feeds["x1"]
    classes = target.argmax(axis=-1) if target.ndim > 1 and target.shape[-1] > 1 else target.reshape(-1)
    table = dict(enumerate(class_weight)) if isinstance(class_weight, list) else class_weight
    return np.array([table.get(int(class_index), 1.0) for class_index in classes])


def judge(module: Any, case: SampleCase, **more: Any) -> Any:
    """Return Keras's loss or metric. Raises `Unlike` if Keras has none, or none with these fields."""
    instance = getattr(module, case.type, None)
    if instance is None:
        raise Unlike("Keras has no such thing")
    fields = {name: value for name, value in case.fields.items() if name not in OF_FIT}
    parameters = inspect.signature(instance.__init__).parameters
    for name in fields:
        if name not in parameters and name != "type":
            raise Unlike(f"Keras has no `{name}` there")
    if fields.get("reduction") in {"batch_size", "full"}:
        raise Unlike("Keras has no such reduction")
    return make(module, fields, **more)


def loss(case: SampleCase, training: bool) -> dict[str, np.ndarray]:
    if torch_losses.answers(case):
        return torch_losses.answered(case)
    net = built(case, training)
    weight = weights_of(case, net.feeds)
    if weight is not None and weight.ndim > 1 and weight.shape == case.sample.shapes[0] and weight.shape[-1] > 1:
        raise Unlike("Keras has no weights of single numbers")
    if len(case.sample.shapes) != 2:
        raise Unlike("Keras takes a prediction and a target alone")
    prediction, target = tensor(net.feeds["x0"]), tensor(net.feeds["x1"])
    value = judge(keras().losses, case)(target, prediction, sample_weight=weight)
    value.backward()
    return {"output": value.detach().numpy(), "gradient/x0": prediction.grad.numpy()}


LAST_AXIS_ALONE = ("Accuracy", "TopK")
"""Metrics that reduce the last axis in Keras and have an `axis` in netspec."""


def metric(case: SampleCase, training: bool) -> dict[str, np.ndarray]:
    net = built(case, training)
    operands = [net.feeds[name] for name in net.feeds if name.startswith("x")]
    axis, rank = case.fields.get("axis", -1), operands[0].ndim
    if axis != -1 and any(word in case.type for word in LAST_AXIS_ALONE):
        operands = [np.moveaxis(x, axis, -1) if x.ndim == rank else x for x in operands]
        fields = {name: value for name, value in case.sample.fields.items() if name != "axis"}
        case = replace(case, sample=replace(case.sample, fields=fields))
    instance = judge(keras().metrics, case, dtype="float64")
    if case.type == "SparseCategoricalCrossentropy" and "ignore_class" in case.fields:
        raise Unlike("what is ignored counts as 0 there, unless samples are weighted")
    try:
        instance.update_state(*operands[::-1], sample_weight=net.feeds.get(WEIGHT))
    except ValueError as refused:
        raise Unlike(str(refused)) from None
    return {"output": np.asarray(instance.result().detach(), "float64")}


KINDS: dict[str, Callable[[SampleCase, bool], dict[str, np.ndarray]]] = {"layer": layer, "loss": loss, "metric": metric}


def answers(*classes: str) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield name and content of each file: one for each class, by default for all."""
    files: dict[str, dict[str, np.ndarray]] = {}
    for case in cases(*KINDS):
        if classes and case.type not in classes:
            continue
        for training in (True, False) if case.kind == "layer" else (False,):
            prefix = f"{case.number}/{'training' if training else 'inference'}"
            content = files.setdefault(f"{case.kind}_{case.type}", {})
            content[f"{prefix}/of"] = np.array(described(case))
            try:
                answer = KINDS[case.kind](case, training)
            except Unlike as reason:
                content[f"{prefix}/unlike"] = np.array(str(reason))
                continue
            for name, array in built(case, training).feeds.items():
                if not name.startswith(("$", "second/")):
                    content[f"{prefix}/feed/{name}"] = array
            content |= {f"{prefix}/{name}": array for name, array in answer.items()}
    yield from files.items()


COMPARISONS: dict[str, Callable[[], dict[str, np.ndarray]]] = {
    "batch_statistics": lambda: batch_statistics.record(import_module("torch")),
    "builtin_names": lambda: builtin_names.record(keras()),
    "constraints": lambda: constraints.record(keras()),
    "fractional_pooling": fractional_pooling.record,
    "gradient_accumulation": lambda: gradient_accumulation.record(keras()),
    "keras_files": lambda: keras_files.record(keras(), {}),
    "keras_training": lambda: keras_training.record(keras()),
    "lbfgs": lambda: lbfgs.record(import_module("torch")),
    "mel_spectrograms": lambda: mel_spectrograms.record(keras()),
    "schedules": lambda: schedules.record(keras(), import_module("torch")),
    "solvers": lambda: solvers.record(keras()),
    "state_dicts": state_dicts.record,
    "torch_resume": lambda: torch_resume.record(import_module("torch")),
}
"""Answers that belong to no single class, a file for each."""


def main() -> None:
    """Write a file for each class and comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORDED)
    parser.add_argument(
        "names", nargs="*", help=f"layers, losses and metrics, or {', '.join(COMPARISONS)} [all of them]"
    )
    parser.add_argument(
        "--changed", action="store_true", help="keep the recorded answers of keras_files for files that are the same"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - COMPARISONS.keys() - {case.type for case in cases(*KINDS)}:
        parser.error(f"unknown layers, losses, metrics or comparisons: {', '.join(sorted(unknown))}")
    comparisons = dict(COMPARISONS)
    if arguments.changed:
        comparisons["keras_files"] = lambda: keras_files.record(keras(), load_answers("keras_files"))
    for name, record in comparisons.items():
        if not arguments.names or name in arguments.names:
            save_answers(arguments.output, name, record())
    for name, arrays in answers(*arguments.names):
        save_answers(arguments.output, name, arrays)


if __name__ == "__main__":
    main()

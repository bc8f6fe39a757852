"""Files of Keras 2.15 differ from those of Keras 3: keys of base classes, and calls of TensorFlow functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.importing import import_model
from tests.exchange.formats.keras.recorded import opened
from tests.exchange.formats.keras.written import archive, layer, new, new_model, old_file, tree

X = np.random.default_rng(5).uniform(-1, 1, (2, 6, 4, 3)).astype(np.float32)


def f32(numbers: Any) -> np.ndarray:
    return np.asarray(numbers, np.float32)


GLOROT = {"module": "keras.initializers", "class_name": "GlorotUniform", "config": {"seed": None}}
ANY, ALL = {"start": None, "stop": None, "step": None}, {"class_name": "__ellipsis__"}


def of_calls(path: Path, *calls: tuple[str, list[Any]], shape: tuple[int, ...] = X.shape[1:]) -> Path:
    """Write a functional model of operations: each is a TensorFlow function with its call; the last is the output."""
    entry = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, *shape], "dtype": "float32",
             "name": "x"}, "name": "x", "inbound_nodes": []}  # fmt: skip
    entries = []
    for index, (function, node) in enumerate(calls):
        kind = "SlicingOpLambda" if function.endswith("getitem") else "TFOpLambda"
        config = {"name": f"f{index}", "trainable": True, "dtype": "float32", "function": function}
        entries.append({"class_name": kind, "config": config, "name": f"f{index}", "inbound_nodes": [node]})
    config = {"name": "m", "layers": [entry, *entries], "input_layers": [["x", 0, 0]],
              "output_layers": [[f"f{len(calls) - 1}", 0, 0]]}  # fmt: skip
    return old_file(path, {"class_name": "Functional", "config": config}, {"x": {}}, "2.15.0")


def one_call(function: str, **arguments: Any) -> tuple[str, list[Any]]:
    return function, ["x", 0, 0, arguments]


def part(start: float | None = None, stop: int | None = None, step: int | None = None) -> dict[str, Any]:
    return {"start": start, "stop": stop, "step": step}


CALLS: Mapping[str, tuple[dict[str, Any], Callable[[np.ndarray], np.ndarray]]] = {
    "__operators__.getitem parts": ({"slice_spec": [ANY, part(1, -1), part(None, None, 2), ALL]},
                                    lambda x: x[:, 1:-1, ::2]),
    "__operators__.getitem place": ({"slice_spec": [ANY, 2]}, lambda x: x[:, 2]),
    "__operators__.getitem last": ({"slice_spec": [ALL, -1]}, lambda x: x[..., -1]),
    "__operators__.getitem new": ({"slice_spec": [ANY, ANY, None]}, lambda x: x[:, :, None]),
    "__operators__.getitem back": ({"slice_spec": [ALL, part(None, None, -1)]}, lambda x: x[..., ::-1]),
    "__operators__.getitem some back": ({"slice_spec": [ANY, part(4, 0, -2)]}, lambda x: x[:, 4:0:-2]),
    "slice": ({"begin": [0, 1, 0, 0], "size": [-1, 4, -1, 2]}, lambda x: x[:, 1:5, :, :2]),
    "compat.v1.pad": ({"paddings": [[0, 0], [1, 2], [0, 1], [0, 0]], "mode": "CONSTANT", "constant_values": 2},
                      lambda x: np.pad(x, [(0, 0), (1, 2), (0, 1), (0, 0)], constant_values=2)),
    "image.resize": ({"size": [12, 8], "method": "nearest"}, lambda x: x.repeat(2, 1).repeat(2, 2)),
    "compat.v1.gather": ({"indices": [0, 2, 2], "axis": 2, "batch_dims": 0, "validate_indices": None},
                         lambda x: x[:, :, [0, 2, 2]]),
    "reverse": ({"axis": [1]}, lambda x: x[:, ::-1]),
    "image.flip_left_right": ({}, lambda x: x[:, :, ::-1]),
    "nn.max_pool2d": ({"ksize": [1, 2, 2, 1], "strides": 2, "padding": "SAME", "data_format": "NHWC"},
                      lambda x: x.reshape(2, 3, 2, 2, 2, 3).max((2, 4))),
    "nn.bias_add": ({"bias": [1.0, 2.0, 3.0]}, lambda x: x + f32([1, 2, 3])),
    "compat.v1.nn.conv2d": ({"filter": [[[[1.0], [2.0], [3.0]]]], "strides": [1, 1, 1, 1], "padding": "SAME",
                             "use_cudnn_on_gpu": True, "dilations": [1, 1, 1, 1]},
                            lambda x: x @ f32([[1], [2], [3]])),
    "compat.v1.floor_div": ({"y": 0.3}, lambda x: x // np.float32(0.3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_tensorflow(name: str, tmp_path: Path) -> None:
    arguments, computed = CALLS[name]
    imported = import_model(of_calls(tmp_path / "m.h5", one_call(name.partition(" ")[0], **arguments)))
    (actual,) = dict(opened(imported, tmp_path).predict({"x": X.transpose(0, 3, 1, 2)})).values()
    expected = computed(X)
    turned = any("the output" in note for note in imported.notes)
    np.testing.assert_allclose(actual, np.moveaxis(expected, -1, 1) if turned else expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        ("compat.v1.gather", {"indices": [[0], [1]], "axis": 1, "batch_dims": 1}, "`batch_dims` is not supported"),
        ("image.resize", {"size": [3, 3], "preserve_aspect_ratio": True}, "keeping the aspect ratio are not supported"),
        (
            "math.cumsum",
            {"axis": 1, "exclusive": True},
            "the argument `exclusive` of the operation 'cumsum' is not supported",
        ),
        ("__operators__.ne", {}, "the file does not contain its second operand"),
        ("__operators__.getitem", {"slice_spec": [ANY, part(0.5)]}, "only constant integers and slices are supported"),
    ],
)
def test_unsupported_arguments_of_operations_are_refused(
    function: str, arguments: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=reason):
        import_model(of_calls(tmp_path / "m.h5", one_call(function, **arguments)))


def test_keys_of_base_classes(tmp_path: Path) -> None:
    """SeparableConv2D and DepthwiseConv2D are convolutions in Keras 2, and their configurations say so."""
    base = {"groups": 1, "kernel_regularizer": None, "kernel_constraint": None, "kernel_size": [1, 1]}
    model = {"class_name": "Sequential", "config": {"name": "m", "layers": [
        layer("SeparableConv2D", name="s", filters=2, kernel_initializer=GLOROT, depthwise_initializer=GLOROT,
              trainable=True, batch_input_shape=[None, *X.shape[1:]], **base),
        layer("DepthwiseConv2D", name="d", depthwise_initializer=GLOROT, use_bias=False, trainable=True, **base),
    ]}}  # fmt: skip
    depth, point, bias, last = (f32(values) for values in ([1, 2, 3], [[1, 2], [3, 4], [5, 6]], [1, 2], [3, 5]))
    weights = {
        "s": {"depthwise_kernel:0": depth.reshape(1, 1, 3, 1), "pointwise_kernel:0": point.reshape(1, 1, 3, 2),
              "bias:0": bias},
        "d": {"depthwise_kernel:0": last.reshape(1, 1, 2, 1)},
    }  # fmt: skip
    imported = import_model(old_file(tmp_path / "m.h5", model, weights, "2.15.0"))
    (actual,) = dict(opened(imported, tmp_path).predict({"input": X.transpose(0, 3, 1, 2)})).values()
    np.testing.assert_allclose(actual, np.moveaxis(((X * depth) @ point + bias) * last, -1, 1), rtol=1e-5)


def test_attention_states_the_shapes_that_it_was_built_for(tmp_path: Path) -> None:
    shapes = {f"{layer}_shape": [None, 5, 4] for layer in ("query", "key", "value")}
    attention = new("MultiHeadAttention", name="a", num_heads=2, key_dim=2, value_dim=2, attention_axes=[1], **shapes)
    entry = {**new("InputLayer", name="x", batch_input_shape=[None, 5, 4], dtype="float32"), "name": "x",
             "inbound_nodes": []}  # fmt: skip
    config = {"name": "m", "layers": [entry, {**attention, "name": "a", "inbound_nodes": [
        [["x", 0, 0, {"value": ["x", 0, 0]}]]]}],
        "input_layers": [["x", 0, 0]], "output_layers": [["a", 0, 0]]}  # fmt: skip
    names = {f"{layer}/kernel:0": (4, 2, 2) for layer in ("query", "key", "value")} | {
        "attention_output/kernel:0": (2, 2, 4)
    }
    biases = {f"{layer}/bias:0": (2, 2) for layer in ("query", "key", "value")} | {"attention_output/bias:0": (4,)}
    order = [name for names_and_biases in zip(names, biases, strict=True) for name in names_and_biases]
    weights = {name: np.full((names | biases)[name], 0.5, np.float32) for name in order}
    imported = import_model(
        old_file(tmp_path / "m.h5", {"class_name": "Functional", "config": config}, {"x": {}, "a": weights}, "2.15.0")
    )
    x = X[:, :5, 0, :1].repeat(4, 2)
    (actual,) = dict(opened(imported, tmp_path).predict({"x": x})).values()
    value = x.sum(2, keepdims=True) * 0.5 + 0.5  # equal for all heads and positions
    scores = np.exp(value @ value.transpose(0, 2, 1) * 2 / np.sqrt(2))
    mixed = scores / scores.sum(2, keepdims=True) @ value
    np.testing.assert_allclose(actual, (4 * 0.5 * mixed + 0.5).repeat(4, 2), rtol=1e-5)


def test_layers_that_augment_data_are_left_out_with_a_note(tmp_path: Path) -> None:
    flip = new("RandomFlip", name="flip", mode="horizontal")
    dense = new("Dense", name="out", units=2)
    arrays = {"layers/dense/vars/0": np.ones((3, 2), np.float32), "layers/dense/vars/1": np.zeros(2, np.float32)}
    path = archive(tmp_path / "m.keras", new_model(flip, dense, shape=(3,)), tree(arrays))
    imported = import_model(path)
    assert any("`flip` (RandomFlip) changes samples in training only" in note for note in imported.notes)
    (actual,) = dict(opened(imported, tmp_path).predict({"x": X[:, 0, 0]})).values()
    np.testing.assert_allclose(actual, X[:, 0, 0].sum(1, keepdims=True).repeat(2, 1), rtol=1e-5)


def test_classes_of_keras_applications(tmp_path: Path) -> None:
    """ConvNeXt's LayerScale learns factors; InceptionResNetV2's CustomScaleLayer adds a part of its second input."""

    def calls(name: str) -> dict[str, Any]:
        return {"class_name": "__keras_tensor__", "config": {"keras_history": [name, 0, 0]}}

    def called(layer: Mapping[str, Any], *args: Any) -> dict[str, Any]:
        return {**layer, "name": layer["config"]["name"], "inbound_nodes": [{"args": list(args), "kwargs": {}}]}

    entry = {**new("InputLayer", name="x", batch_shape=[None, 6, 4, 3]), "name": "x", "inbound_nodes": []}
    scale = {**new("LayerScale", name="gamma", init_values=1e-6, projection_dim=3),
             "module": "keras.src.applications.convnext", "registered_name": "LayerScale"}  # fmt: skip
    added = {**new("CustomScaleLayer", name="sum", scale=0.25),
             "module": "keras.src.applications.inception_resnet_v2", "registered_name": "CustomScaleLayer"}  # fmt: skip
    config = {"name": "m", "layers": [entry, called(scale, calls("x")), called(added, [calls("x"), calls("gamma")])],
              "input_layers": [["x", 0, 0]], "output_layers": [["sum", 0, 0]]}  # fmt: skip
    model = {"module": "keras", "class_name": "Functional", "config": config, "registered_name": "Functional"}
    arrays = {"layers/layer_scale/vars/0": f32([1, 2, 4])}
    imported = import_model(archive(tmp_path / "m.keras", model, tree(arrays)))
    (actual,) = dict(opened(imported, tmp_path).predict({"x": X})).values()
    np.testing.assert_allclose(actual, X + 0.25 * X * f32([1, 2, 4]), rtol=1e-5)

"""Models of Keras 1 and 2, with other names, axis orders and layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from netspec.exchange.importing import import_model
from netspec.exchange.interface import ImportOptions
from tests.exchange.formats.keras.recorded import opened
from tests.exchange.formats.keras.written import fill, layer, old_file, sequential

RANDOM = np.random.default_rng(3)


def drawn(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def relu(x: np.ndarray) -> np.ndarray:
    return np.asarray(x * (x > 0))


def convolved(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """x: (N, H, W, C), kernel: (KH, KW, C, M), without padding → (N, H', W', M)."""
    views = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))  # (N, H', W', C, KH, KW)
    return np.asarray(np.einsum("nhwckl,klcm->nhwm", views, kernel))


@pytest.mark.parametrize("ordering", ["tf", "th"])
def test_keras_1(ordering: str, tmp_path: Path) -> None:
    """Convolution2D with `nb_filter` and `border_mode`; a Flatten before a Dense, in both axis orders."""
    shape = [None, 5, 4, 2] if ordering == "tf" else [None, 2, 5, 4]
    model = sequential(
        layer("Convolution2D", name="conv", nb_filter=3, nb_row=2, nb_col=3, border_mode="valid", subsample=[1, 1],
              dim_ordering=ordering, activation="relu", init="glorot_uniform", bias=True, W_regularizer=None,
              batch_input_shape=shape, trainable=True, input_dtype="float32"),
        layer("Dropout", name="drop", p=0.25, trainable=True),
        layer("Flatten", name="flat", trainable=True),
        layer("Dense", name="out", output_dim=2, init="uniform", activation="linear", bias=True, input_dim=None,
              W_regularizer={"name": "WeightRegularizer", "l1": 0.0, "l2": 0.5}, trainable=True),
    )  # fmt: skip
    kernel, bias, matrix, shift = drawn(2, 3, 2, 3), drawn(3), drawn(4 * 2 * 3, 2), drawn(2)
    stored = kernel if ordering == "tf" else kernel.transpose(3, 2, 0, 1)
    path = old_file(
        tmp_path / "old.h5", model,
        {"conv": {"conv_W": stored, "conv_b": bias}, "drop": {}, "flat": {}, "out": {"out_W": matrix, "out_b": shift}},
        "1.2.2",
    )  # fmt: skip
    imported = import_model(path)
    image = drawn(3, 5, 4, 2)
    features = relu(convolved(image, kernel) + bias)
    # Keras 1 flattened in memory order, so channels-first data remained channels-first
    flat = (features if ordering == "tf" else features.transpose(0, 3, 1, 2)).reshape(3, -1)
    (actual,) = dict(opened(imported, tmp_path).predict({"input": image.transpose(0, 3, 1, 2)})).values()
    np.testing.assert_allclose(actual, flat @ matrix + shift, rtol=1e-4, atol=1e-5)


def lstm_by_hand(x: np.ndarray, gates: dict[str, Any]) -> np.ndarray:
    """Keras 1's LSTM, gate by gate: hard sigmoids of slope 0.2."""

    def hard(z: np.ndarray) -> np.ndarray:
        return np.clip(0.2 * z + 0.5, 0, 1)

    h = c = np.zeros((len(x), gates["U_i"].shape[0]), np.float32)
    for step in range(x.shape[1]):
        i, f, o, g = (x[:, step] @ gates[f"W_{gate}"] + h @ gates[f"U_{gate}"] + gates[f"b_{gate}"] for gate in "ifoc")
        c = hard(f) * c + hard(i) * np.tanh(g)
        h = hard(o) * np.tanh(c)
    return h


def test_keras_1_has_a_matrix_for_each_gate(tmp_path: Path) -> None:
    model = sequential(
        layer("LSTM", name="memory", output_dim=3, inner_init="orthogonal", init="glorot_uniform", activation="tanh",
              inner_activation="hard_sigmoid", forget_bias_init="one", return_sequences=False, go_backwards=False,
              stateful=False, unroll=False, consume_less="cpu", dropout_W=0.0, dropout_U=0.0, trainable=True,
              batch_input_shape=[None, 4, 2], input_dim=2, input_length=4)
    )  # fmt: skip
    shapes = {"W": (2, 3), "U": (3, 3), "b": (3,)}
    gates = {f"{kind}_{gate}": drawn(*shape) for gate in "icfo" for kind, shape in shapes.items()}
    weights = {"memory": {f"memory_{name}": array for name, array in gates.items()}}
    imported = import_model(old_file(tmp_path / "old.h5", model, weights, "1.2.2"))
    assert "recurrent_activation: {type: hard_sigmoid, alpha: 0.2}" in imported.net
    x = drawn(3, 4, 2)
    (actual,) = dict(opened(imported, tmp_path).predict({"input": x})).values()
    np.testing.assert_allclose(actual, lstm_by_hand(x, gates), rtol=1e-4, atol=1e-5)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def cudnn(x: np.ndarray, w: np.ndarray, r: np.ndarray, bw: np.ndarray, br: np.ndarray) -> np.ndarray:
    """cuDNN's formulas for an LSTM (i, f, c, o) or a GRU (z, r, h), with w: (gates, units, features), and so on.

    https://docs.nvidia.com/deeplearning/cudnn/latest/api/cudnn-adv-library.html (cudnnRNNMode_t)
    """
    h = c = np.zeros((len(x), w.shape[1]), np.float32)
    for step in range(x.shape[1]):
        of_x = [x[:, step] @ w[gate].T + bw[gate] for gate in range(len(w))]
        of_h = [h @ r[gate].T + br[gate] for gate in range(len(w))]
        if len(w) == 4:
            i, f, new, o = (a + b for a, b in zip(of_x, of_h, strict=True))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
            h = sigmoid(o) * np.tanh(c)
        else:
            z, reset = (sigmoid(of_x[gate] + of_h[gate]) for gate in (0, 1))
            h = z * h + (1 - z) * np.tanh(of_x[2] + reset * of_h[2])
    return h


@pytest.mark.parametrize(("name", "gates"), [("CuDNNLSTM", 4), ("CuDNNGRU", 3)])
@pytest.mark.parametrize("both_ways", [False, True])
def test_layers_of_cudnn(name: str, gates: int, both_ways: bool, tmp_path: Path) -> None:
    """Keras 2 wrote cuDNN's matrices in their memory order, but with the shapes of Keras, and both biases concatenated.

    Source: `_convert_rnn_weights` in its `hdf5_format`, which converts them for LSTM and GRU.
    """
    fields: dict[str, Any] = {"name": "memory", "units": 3, "return_sequences": False, "trainable": True}
    shape = {"batch_input_shape": [None, 4, 2]}
    model = sequential(
        layer("Bidirectional", name="ways", merge_mode="concat", trainable=True, layer=layer(name, **fields), **shape)
        if both_ways
        else layer(name, **fields, **shape)
    )
    ways: list[tuple[np.ndarray, ...]] = []
    weights: dict[str, np.ndarray] = {}
    for way in ("forward", "backward") if both_ways else ("",):
        w, r, bw, br = drawn(gates, 3, 2), drawn(gates, 3, 3), drawn(gates, 3), drawn(gates, 3)
        ways.append((w, r, bw, br))
        weights |= {
            f"{way}kernel:0": np.concatenate([gate.reshape(2, 3) for gate in w], axis=1),
            f"{way}recurrent_kernel:0": np.concatenate(list(r), axis=1),
            f"{way}bias:0": np.concatenate([bw.ravel(), br.ravel()]),
        }
    path = old_file(tmp_path / "old.h5", model, {"ways" if both_ways else "memory": weights}, "2.2.4")
    x = drawn(5, 4, 2)
    (actual,) = dict(opened(import_model(path), tmp_path).predict({"input": x})).values()
    expected = [cudnn(x[:, ::-1] if index else x, *direction[:4]) for index, direction in enumerate(ways)]
    np.testing.assert_allclose(actual, np.concatenate(expected, axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ordering", ["tf", "th"])
def test_keras_1_broadcasts_numbers_over_windows(ordering: str, tmp_path: Path) -> None:
    """Deconvolution2D adds up each element times the kernel; kernels are (window, in, out), as in convolutions."""
    sizes = [None, 3, 2, 2] if ordering == "tf" else [None, 2, 3, 2]
    model = sequential(
        layer("Deconvolution2D", name="up", nb_filter=3, nb_row=2, nb_col=3, border_mode="valid", subsample=[2, 1],
              dim_ordering=ordering, activation="linear", init="glorot_uniform", bias=True, batch_input_shape=sizes,
              output_shape=[None, 6, 4, 3] if ordering == "tf" else [None, 3, 6, 4], trainable=True),
    )  # fmt: skip
    kernel, bias, image = drawn(2, 3, 2, 3), drawn(3), drawn(4, 3, 2, 2)
    stored = kernel if ordering == "tf" else kernel.transpose(3, 2, 0, 1)  # (out, in, window)
    imported = import_model(old_file(tmp_path / "old.h5", model, {"up": {"up_W": stored, "up_b": bias}}, "1.2.2"))
    expected = np.zeros((4, 6, 4, 3), np.float32) + bias
    for row in range(3):
        for column in range(2):
            expected[:, 2 * row : 2 * row + 2, column : column + 3] += np.einsum(
                "nc,klcm->nklm", image[:, row, column], kernel
            )
    (actual,) = dict(opened(imported, tmp_path).predict({"input": image.transpose(0, 3, 1, 2)})).values()
    np.testing.assert_allclose(actual, expected.transpose(0, 3, 1, 2), rtol=1e-4, atol=1e-5)


def test_keras_2_calls_functions_of_tensorflow(tmp_path: Path) -> None:
    """TFOpLambda with constants, a shared layer, and lists of calls that are not nested."""
    entry = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 3], "dtype": "float32", "name": "x"},
             "name": "x", "inbound_nodes": []}  # fmt: skip
    dense = {**layer("Dense", name="d", units=3, activation="linear", trainable=True), "name": "d",
             "inbound_nodes": [[["x", 0, 0, {}]], [["scaled", 0, 0, {}]]]}  # fmt: skip
    scaled = {"class_name": "TFOpLambda", "config": {"name": "scaled", "trainable": True, "function": "math.multiply"},
              "name": "scaled", "inbound_nodes": [["d", 0, 0, {"y": 2.0, "name": None}]]}  # fmt: skip
    total = {"class_name": "TFOpLambda", "config": {"name": "total", "trainable": True,
             "function": "__operators__.add"}, "name": "total",
             "inbound_nodes": [["d", 1, 0, {"y": ["x", 0, 0], "name": None}]]}  # fmt: skip
    config = {"name": "m", "layers": [entry, dense, scaled, total], "input_layers": [["x", 0, 0]],
              "output_layers": [["total", 0, 0]]}  # fmt: skip
    kernel, bias = drawn(3, 3), drawn(3)
    path = old_file(
        tmp_path / "tf.h5", {"class_name": "Functional", "config": config},
        {"x": {}, "d": {"kernel:0": kernel, "bias:0": bias}, "scaled": {}, "total": {}}, "2.9.0",
    )  # fmt: skip
    imported = import_model(path)
    x = drawn(4, 3)
    (actual,) = dict(opened(imported, tmp_path).predict({"x": x})).values()
    once = 2 * (x @ kernel + bias)
    np.testing.assert_allclose(actual, once @ kernel + bias + x, rtol=1e-4, atol=1e-5)


def test_a_model_in_a_model_of_keras_2(tmp_path: Path) -> None:
    """Calls of the inner model count from 1; its weights, of all layers, are under its name, moving averages last."""
    inner = {"class_name": "Sequential", "config": {"name": "inner", "layers": [
        layer("Dense", name="a", units=2, trainable=True, batch_input_shape=[None, 3]),
        layer("BatchNormalization", name="b", axis=[1], trainable=True),
        layer("Dense", name="c", units=2, trainable=True)]}, "name": "inner",
        "inbound_nodes": [[["x", 0, 0, {}]]]}  # fmt: skip
    entry = {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 3], "dtype": "float32", "name": "x"},
             "name": "x", "inbound_nodes": []}  # fmt: skip
    last = {**layer("Activation", name="end", activation="tanh", trainable=True), "name": "end",
            "inbound_nodes": [[["inner", 1, 0, {}]]]}  # fmt: skip
    config = {
        "name": "m",
        "layers": [entry, inner, last],
        "input_layers": [["x", 0, 0]],
        "output_layers": [["end", 0, 0]],
    }
    shapes = {"a/kernel:0": (3, 2), "a/bias:0": (2,), "b/gamma:0": (2,), "b/beta:0": (2,), "c/kernel:0": (2, 2),
              "c/bias:0": (2,), "b/moving_mean:0": (2,), "b/moving_variance:0": (2,)}  # fmt: skip
    arrays = {name: np.abs(drawn(*shape)) for name, shape in shapes.items()}
    path = old_file(
        tmp_path / "nested.h5",
        {"class_name": "Model", "config": config},
        {"x": {}, "inner": arrays, "end": {}},
        "2.3.1",
    )
    imported = import_model(path)
    for name, array in arrays.items():
        np.testing.assert_array_equal(imported.arrays[f"inner/{name.removesuffix(':0')}"], array)


def test_lists_of_names_may_be_in_parts(tmp_path: Path) -> None:
    """Keras splits attributes that are too long for one: `layer_names0`, `layer_names1`."""
    model = sequential(layer("Dense", name="one", units=2, trainable=True, batch_input_shape=[None, 3]),
                       layer("Dense", name="two", units=2, trainable=True))  # fmt: skip
    weights = {name: {"kernel:0": drawn(size, 2), "bias:0": drawn(2)} for name, size in (("one", 3), ("two", 2))}
    path = old_file(tmp_path / "parts.h5", model, weights, "2.4.0")
    with h5py.File(path, "a") as file:
        group = file["model_weights"]
        del group.attrs["layer_names"]
        group.attrs["layer_names0"], group.attrs["layer_names1"] = [b"one"], [b"two"]
    imported = import_model(path)
    np.testing.assert_array_equal(imported.arrays["two/kernel"], weights["two"]["kernel:0"])


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    model = sequential(layer("Dense", name="one", units=2, trainable=True, batch_input_shape=[None, 3]))
    kernel = drawn(3, 2).astype(np.float16)
    path = old_file(
        tmp_path / "half.h5", model, {"one": {"kernel:0": kernel, "bias:0": np.zeros(2, np.float16)}}, "2.4.0"
    )
    array = import_model(path).arrays["one/kernel"]
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, kernel.astype(np.float32))


def test_an_open_size_is_passed(tmp_path: Path) -> None:
    model = sequential(layer("LSTM", name="one", units=2, trainable=True, batch_input_shape=[None, None, 3]))
    arrays = {"kernel:0": drawn(3, 8), "recurrent_kernel:0": drawn(2, 8), "bias:0": drawn(8)}
    path = old_file(tmp_path / "open.h5", model, {"one": arrays}, "2.4.0")
    imported = import_model(path, ImportOptions(shapes={"input": (6, 3)}))
    assert "input: {shape: [6, 3]}" in imported.net


def test_weights_of_keras_2_load_by_position(tmp_path: Path) -> None:
    from netspec.training.inference.model import load

    (tmp_path / "net.yaml").write_text(
        "netspec: 1\ninputs: {x: {shape: [3]}}\nlayers:\n  - {name: a, type: Dense, units: 2}\n"
        "  - {name: b, type: Dense, units: 4}\n", encoding="utf-8",
    )  # fmt: skip
    weights = {
        "dense_7": {"kernel:0": drawn(3, 2), "bias:0": drawn(2)},
        "dense_8": {"kernel:0": drawn(2, 4), "bias:0": drawn(4)},
    }
    with h5py.File(tmp_path / "w.h5", "w") as file:
        fill(file, weights)
    model = load(tmp_path / "net.yaml", tmp_path / "w.h5")
    np.testing.assert_array_equal(model.parameters["b/kernel"], weights["dense_8"]["kernel:0"])

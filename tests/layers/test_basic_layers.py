"""Dense, Embedding, and layers that reshape and merge, each against a line of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.graph.value import ShapeMismatch
from netspec.layers.shape.reshape import Reshape
from tests.layers.apply import layer

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(2, 3, 4))


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (2, 3, 2, 4)])
def test_dense_multiplies_the_last_axis(shape):
    x, w, b = RANDOM.normal(size=shape), RANDOM.normal(size=(4, 6)), RANDOM.normal(size=6)
    applied = layer({"type": "Dense", "units": 6, "activation": "tanh"}, x, kernel=w, bias=b)
    np.testing.assert_allclose(applied.y, np.tanh(x @ w + b), rtol=1e-12)
    dy = RANDOM.normal(size=(*shape[:-1], 6))
    flow = dy * (1 - applied.y**2)
    dw, db = applied.gradient(dy, "kernel", "bias")
    np.testing.assert_allclose(dw, x.reshape(-1, 4).T @ flow.reshape(-1, 6), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(db, flow.reshape(-1, 6).sum(0), rtol=1e-10)
    np.testing.assert_allclose(applied.gradient(dy)[0], flow @ w.T, rtol=1e-10, atol=1e-13)


def test_dense_adds_its_penalty_in_training_only():
    fields = {"type": "Dense", "units": 2, "kernel_regularizer": {"type": "L1L2", "l1": 0.5, "l2": 0.25}}
    assert layer(fields, np.ones((1, 2))).net.penalties == []
    assert layer({**fields, "trainable": False}, np.ones((1, 2)), training=True).net.penalties == []
    applied = layer(fields, np.ones((1, 2)), training=True, kernel=[[1, -2], [3, -4]])
    applied.outputs = tuple(applied.net.penalties)
    assert applied.y == 0.5 * 10 + 0.25 * 30


def test_dense_converts_integers_to_float():
    y = layer({"type": "Dense", "units": 1}, np.array([[1, 2]], np.uint8), kernel=[[10.0], [100.0]]).y
    np.testing.assert_array_equal(y, [[210.0]])


def test_flatten_keeps_c_order():
    np.testing.assert_array_equal(layer("Flatten", X).y, X.reshape(2, 12))
    np.testing.assert_array_equal(layer("Flatten", X[:, 0, 0]).y, X[:, :1, 0])


@pytest.mark.parametrize(
    ("target", "shape"), [([4, 3], (2, 4, 3)), ([-1], (2, 12)), (12, (2, 12)), ([2, -1, 3], (2, 2, 2, 3))]
)
def test_reshape_keeps_c_order(target, shape):
    np.testing.assert_array_equal(layer({"type": "Reshape", "target_shape": target}, X).y, X.reshape(shape))


def test_add_broadcasts_axes_of_size_1():
    others = RANDOM.normal(size=(2, 1, 4)), RANDOM.normal(size=(2, 3, 1))
    np.testing.assert_allclose(layer("Add", X, *others).y, X + others[0] + others[1], rtol=1e-15)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_concatenate_joins_along_the_axis(axis):
    y = layer({"type": "Concatenate", "axis": axis}, X, X + 1, X + 2).y
    np.testing.assert_array_equal(y, np.concatenate([X, X + 1, X + 2], axis))


def test_concatenate_joins_channels_by_default():
    assert layer("Concatenate", np.zeros((2, 3, 4, 4)), np.zeros((2, 5, 4, 4))).y.shape == (2, 8, 4, 4)


def test_embedding_gathers_rows_and_sums_their_gradients():
    table, index = RANDOM.normal(size=(5, 3)), np.array([[1, 4, 1]], np.int32)
    applied = layer({"type": "Embedding", "input_dim": 5, "output_dim": 3}, index, embeddings=table)
    np.testing.assert_array_equal(applied.y, table[index])
    dy = RANDOM.normal(size=(1, 3, 3))
    expected = np.zeros((5, 3))
    expected[1], expected[4] = dy[0, 0] + dy[0, 2], dy[0, 1]
    np.testing.assert_allclose(applied.gradient(dy, "embeddings")[0], expected, rtol=1e-15)
    assert applied.net.domains["x0"].high == 5


@pytest.mark.parametrize(
    ("fields", "shapes", "message"),
    [
        ({"type": "Dense", "units": 2}, [(3,)], "the input has no features"),
        ({"type": "Reshape", "target_shape": [5]}, [(2, 12)], "12 elements per sample cannot be reshaped to"),
        ({"type": "Reshape", "target_shape": [5, -1]}, [(2, 12)], "12 elements per sample cannot be reshaped to"),
        ({"type": "Add"}, [(2, 3), (2, 4)], "inputs of different sizes cannot be added"),
        ({"type": "Add"}, [(2, 3), (2,)], "inputs of different sizes cannot be added"),
        ({"type": "Concatenate"}, [(2, 3), (2, 3, 1)], "inputs with different numbers of axes"),
        ({"type": "Concatenate"}, [(2,), (2,)], "no axis to concatenate along"),
        ({"type": "Concatenate", "axis": 0}, [(2, 3), (2, 3)], "no axis 0 to concatenate along"),
        ({"type": "Concatenate"}, [(2, 3, 4), (2, 3, 5)], "the inputs may differ in size only along axis 1"),
        ({"type": "Embedding", "input_dim": 2, "output_dim": 2}, [(2, 3)], "must be integers"),
    ],
)
def test_shape_mismatch_messages(fields, shapes, message):
    with pytest.raises(ShapeMismatch, match=message):
        layer(fields, *map(np.zeros, shapes))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        *((target, "has an invalid value") for target in ([0], [-2], "4", [2.5], [True])),
        ([2, -1, -1], "has -1 more than once"),
    ],
)
def test_target_shape_is_validated(target, message):
    with pytest.raises(ValidationError, match=message):
        Reshape.model_validate({"type": "Reshape", "target_shape": target})


A, B, C = np.random.default_rng(11).normal(size=(3, 2, 3, 4))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Multiply", A * B * C), ("Average", (A + B + C) / 3), ("Maximum", np.maximum(np.maximum(A, B), C)),
        ("Minimum", np.minimum(np.minimum(A, B), C)),
    ],
)  # fmt: skip
def test_merging_layers_work_elementwise(name, expected):
    np.testing.assert_allclose(layer(name, A, B, C).y, expected, rtol=1e-12)


def test_subtract_broadcasts_two_inputs():
    np.testing.assert_array_equal(layer("Subtract", A, B[:, :1]).y, A - B[:, :1])


@pytest.mark.parametrize(
    ("name", "participle"), [("Subtract", "subtracted"), ("Multiply", "multiplied"), ("Maximum", "compared")]
)
def test_merging_inputs_of_different_shapes_is_rejected(name, participle):
    with pytest.raises(ShapeMismatch, match=f"cannot be {participle}"):
        layer(name, A, B[:, :2])


def test_repeat_vector():
    np.testing.assert_array_equal(layer({"type": "RepeatVector", "n": 3}, A[:, 0]).y, np.stack([A[:, 0]] * 3, 1))
    with pytest.raises(ShapeMismatch, match="not a vector"):
        layer({"type": "RepeatVector", "n": 3}, A)

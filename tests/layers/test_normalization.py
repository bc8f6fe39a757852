from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.graph.autodiff import gradients
from netspec.graph.ops.normalization import BatchNormalization
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, in_scope
from netspec.layers.base import Builder
from netspec.schema.kinds import LAYERS
from tests.interpret import evaluate
from tests.layers.apply import layer

RANDOM = np.random.default_rng(6)
X = RANDOM.normal(2.0, 3.0, (4, 3, 2, 5))
VECTORS: dict[str, Any] = {
    "gamma": np.array([0.5, 1.0, 2.0]),
    "beta": np.array([-1.0, 0.0, 1.0]),
    "moving_mean": np.array([1.0, 2.0, 3.0]),
    "moving_variance": np.array([4.0, 9.0, 16.0]),
}


def column(vector: np.ndarray) -> np.ndarray:
    return vector[:, None, None]


def test_training_uses_the_batch_and_keeps_moving_averages_of_the_biased_variance():
    made = layer("BatchNormalization", X, training=True, **VECTORS)
    mean, variance = X.mean((0, 2, 3)), X.var((0, 2, 3))
    expected = column(VECTORS["gamma"]) * (X - column(mean)) / np.sqrt(column(variance) + 1e-3) + column(
        VECTORS["beta"]
    )
    np.testing.assert_allclose(made.y, expected, rtol=1e-10)
    np.testing.assert_allclose(made.updates["moving_mean"], 0.99 * VECTORS["moving_mean"] + 0.01 * mean, rtol=1e-12)
    moved = 0.99 * VECTORS["moving_variance"] + 0.01 * variance
    np.testing.assert_allclose(made.updates["moving_variance"], moved, rtol=1e-12)


@pytest.mark.parametrize("how", [{"training": False}, {"training": True, "frozen": True}])
def test_inference_and_frozen_layers_use_the_moving_averages(how):
    fields = {"type": "BatchNormalization", "trainable": not how.get("frozen", False), "epsilon": 0.01}
    made = layer(fields, X, training=how["training"], **VECTORS)
    scale = VECTORS["gamma"] / np.sqrt(VECTORS["moving_variance"] + 0.01)
    expected = (X - column(VECTORS["moving_mean"])) * column(scale) + column(VECTORS["beta"])
    np.testing.assert_allclose(made.y, expected, rtol=1e-12)
    assert made.updates == {}


def test_starts_as_the_identity_of_normal_numbers_with_keras_names():
    net = layer("BatchNormalization", X).net
    first = {
        name: state.initial.sample(0, name, state.value.shape, "float32").tolist() for name, state in net.states.items()
    }
    assert first == {
        "it/gamma": [1, 1, 1], "it/beta": [0, 0, 0], "it/moving_mean": [0, 0, 0], "it/moving_variance": [1, 1, 1],
    }  # fmt: skip
    assert {name for name, state in net.states.items() if state.trainable} == {"it/gamma", "it/beta"}


def test_gamma_and_beta_can_be_left_out():
    plain = layer({"type": "BatchNormalization", "center": False, "scale": False}, X, training=True)
    assert set(plain.net.states) == {"it/moving_mean", "it/moving_variance"}
    np.testing.assert_allclose(plain.y.mean((0, 2, 3)), 0, atol=1e-12)


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_any_axis_but_the_batch_may_hold_the_channels(axis):
    y = layer({"type": "BatchNormalization", "axis": axis, "epsilon": 1e-9}, X, training=True).y
    others = tuple(i for i in range(4) if i != axis % 4)
    np.testing.assert_allclose(y.mean(others), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(others), 1, rtol=1e-6)


def test_gradient_is_the_one_of_the_paper():
    """Ioffe and Szegedy 2015, section 3: the formulas as printed there."""
    x, dy, gamma, eps = RANDOM.normal(size=(6, 3)), RANDOM.normal(size=(6, 3)), VECTORS["gamma"], 1e-3
    made = layer("BatchNormalization", x, training=True, **VECTORS)
    m, mu, var = 6, x.mean(0), x.var(0)
    normal = (x - mu) / np.sqrt(var + eps)
    dnormal = dy * gamma
    dvar = (dnormal * (x - mu) * -0.5 * (var + eps) ** -1.5).sum(0)
    dmu = (dnormal * -1 / np.sqrt(var + eps)).sum(0) + dvar * (-2 * (x - mu)).sum(0) / m
    dx = dnormal / np.sqrt(var + eps) + dvar * 2 * (x - mu) / m + dmu / m
    np.testing.assert_allclose(made.gradient(dy)[0], dx, rtol=1e-9, atol=1e-12)
    dgamma, dbeta = made.gradient(dy, "gamma", "beta")
    np.testing.assert_allclose(dgamma, (dy * normal).sum(0), rtol=1e-10)
    np.testing.assert_allclose(dbeta, dy.sum(0), rtol=1e-12)


def test_mean_and_variance_of_the_batch_have_gradients_of_their_own():
    net = Builder(True, DType.FLOAT64)
    x = net.input("x", TensorType((6, 3), DType.FLOAT64))
    spec: Any = LAYERS.parse({"type": "BatchNormalization", "name": "it"})
    with in_scope(net.enter(spec, "it")):
        y = spec.build(net, x)
    _, mean, variance = y.node.outputs
    (dx,) = gradients(ReduceSum()(mean * mean) + ReduceSum()(variance), [x])
    array = RANDOM.normal(size=(6, 3))
    feeds = {"x": array, "it/gamma": VECTORS["gamma"], "it/beta": VECTORS["beta"]}
    expected = 2 * array.mean(0) / 6 + 2 * (array - array.mean(0)) / 6
    np.testing.assert_allclose(evaluate([dx], feeds)[0], expected, rtol=1e-12, atol=1e-15)


def test_layers_that_share_statistics_move_them_one_after_the_other():
    net = Builder(True, DType.FLOAT64)
    arrays = {"a": RANDOM.normal(size=(4, 2)), "b": RANDOM.normal(size=(4, 2))}
    for name, more in (("a", {}), ("b", {"share": "a"})):
        spec: Any = LAYERS.parse({"type": "BatchNormalization", "name": name, "momentum": 0.5, **more})
        with in_scope(net.enter(spec, name)):
            spec.build(net, net.input(name, TensorType((4, 2), DType.FLOAT64)))
    feeds = {**arrays, "a/gamma": np.ones(2), "a/beta": np.zeros(2), "a/moving_mean": np.ones(2)}
    (moved,) = evaluate([net.updates["a/moving_mean"]], feeds)
    np.testing.assert_allclose(moved, (1 / 2 + arrays["a"].mean(0) / 2) / 2 + arrays["b"].mean(0) / 2, rtol=1e-12)


@pytest.mark.parametrize(
    ("axis", "shape", "message"),
    [(1, (4,), "no axis of channels"), (0, (4, 3), "no axis 0 of"), (2, (4, 3), "no axis 2 of")],
)
def test_says_what_does_not_fit(axis, shape, message):
    with pytest.raises(ShapeMismatch, match=message):
        layer({"type": "BatchNormalization", "axis": axis}, np.zeros(shape))


def test_the_ops_flops_do_not_depend_on_the_number_of_vectors():
    x, c = TensorType((2, 3, 4), DType.FLOAT32), TensorType((3,), DType.FLOAT32)
    assert BatchNormalization().flops(x, c, c, c, c) == 3 * x.size


@pytest.mark.parametrize("axis", [-1, 1, [1, 2], [2, 3], [1, 2, 3], [3, 1]])
def test_layer_normalization_is_its_definition_over_any_axes(axis):
    over = tuple(sorted(one % 4 for one in ([axis] if isinstance(axis, int) else axis)))
    shape = tuple(X.shape[one] for one in over)
    gamma, beta = RANDOM.normal(size=shape), RANDOM.normal(size=shape)
    made = layer({"type": "LayerNormalization", "axis": axis, "epsilon": 0.01}, X, gamma=gamma, beta=beta)
    column = [X.shape[one] if one in over else 1 for one in range(4)]
    normal = (X - X.mean(over, keepdims=True)) / np.sqrt(X.var(over, keepdims=True) + 0.01)
    np.testing.assert_allclose(made.y, normal * gamma.reshape(column) + beta.reshape(column), rtol=1e-12, atol=1e-12)


def test_layer_normalization_does_the_same_in_training_and_keeps_nothing():
    made = layer("LayerNormalization", X, training=True)
    np.testing.assert_array_equal(made.y, layer("LayerNormalization", X).y)
    assert set(made.net.states) == {"it/gamma", "it/beta"}
    assert made.updates == {}


@pytest.mark.parametrize(
    ("axis", "shape", "message"),
    [(-1, (4,), "no axis to normalize"), (0, (4, 3), "no axis 0"), ([1, -1], (4, 3), "given twice")],
)
def test_layer_normalization_says_what_does_not_fit(axis, shape, message):
    with pytest.raises(ShapeMismatch, match=message):
        layer({"type": "LayerNormalization", "axis": axis}, np.zeros(shape))


@pytest.mark.parametrize("axis", [[], 1.5, True, "last", [1, True]])
def test_an_axis_is_a_whole_number_or_several(axis):
    with pytest.raises(ValidationError, match="not an axis"):
        LAYERS["LayerNormalization"].model_validate({"axis": axis})

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.graph.autodiff import gradients
from netspec.graph.ops.batch_normalization import BatchNormalization, BatchNormalizationTraining
from netspec.graph.ops.reduce import ReduceSum
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, in_scope
from netspec.layers.base import Builder
from netspec.schema.specs.kinds import LAYERS
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


def test_batch_normalization_training_updates_moving_averages():
    applied = layer("BatchNormalization", X, training=True, **VECTORS)
    mean, variance = X.mean((0, 2, 3)), X.var((0, 2, 3))
    expected = column(VECTORS["gamma"]) * (X - column(mean)) / np.sqrt(column(variance) + 1e-3) + column(
        VECTORS["beta"]
    )
    np.testing.assert_allclose(applied.y, expected, rtol=1e-10)
    np.testing.assert_allclose(applied.updates["moving_mean"], 0.99 * VECTORS["moving_mean"] + 0.01 * mean, rtol=1e-12)
    moved = 0.99 * VECTORS["moving_variance"] + 0.01 * variance
    np.testing.assert_allclose(applied.updates["moving_variance"], moved, rtol=1e-12)


@pytest.mark.parametrize("mode", [{"training": False}, {"training": True, "frozen": True}])
def test_batch_normalization_uses_moving_averages_in_inference_and_frozen_layers(mode):
    fields = {"type": "BatchNormalization", "trainable": not mode.get("frozen", False), "epsilon": 0.01}
    applied = layer(fields, X, training=mode["training"], **VECTORS)
    scale = VECTORS["gamma"] / np.sqrt(VECTORS["moving_variance"] + 0.01)
    expected = (X - column(VECTORS["moving_mean"])) * column(scale) + column(VECTORS["beta"])
    np.testing.assert_allclose(applied.y, expected, rtol=1e-12)
    assert applied.updates == {}


def test_batch_normalization_starts_as_identity_with_keras_names():
    net = layer("BatchNormalization", X).net
    first = {
        name: state.initial.sample(0, name, state.value.shape, "float32").tolist() for name, state in net.states.items()
    }
    assert first == {
        "it/gamma": [1, 1, 1], "it/beta": [0, 0, 0], "it/moving_mean": [0, 0, 0], "it/moving_variance": [1, 1, 1],
    }  # fmt: skip
    assert {name for name, state in net.states.items() if state.trainable} == {"it/gamma", "it/beta"}


def test_gamma_and_beta_can_be_disabled():
    plain = layer({"type": "BatchNormalization", "center": False, "scale": False}, X, training=True)
    assert set(plain.net.states) == {"it/moving_mean", "it/moving_variance"}
    np.testing.assert_allclose(plain.y.mean((0, 2, 3)), 0, atol=1e-12)


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_batch_normalization_along_any_axis(axis):
    y = layer({"type": "BatchNormalization", "axis": axis, "epsilon": 1e-9}, X, training=True).y
    others = tuple(i for i in range(4) if i != axis % 4)
    np.testing.assert_allclose(y.mean(others), 0, atol=1e-12)
    np.testing.assert_allclose(y.var(others), 1, rtol=1e-6)


def test_batch_normalization_gradient_matches_the_paper():
    """Ioffe and Szegedy 2015, section 3: the formulas as printed there."""
    x, dy, gamma, eps = RANDOM.normal(size=(6, 3)), RANDOM.normal(size=(6, 3)), VECTORS["gamma"], 1e-3
    applied = layer("BatchNormalization", x, training=True, **VECTORS)
    m, mu, var = 6, x.mean(0), x.var(0)
    normal = (x - mu) / np.sqrt(var + eps)
    dnormal = dy * gamma
    dvar = (dnormal * (x - mu) * -0.5 * (var + eps) ** -1.5).sum(0)
    dmu = (dnormal * -1 / np.sqrt(var + eps)).sum(0) + dvar * (-2 * (x - mu)).sum(0) / m
    dx = dnormal / np.sqrt(var + eps) + dvar * 2 * (x - mu) / m + dmu / m
    np.testing.assert_allclose(applied.gradient(dy)[0], dx, rtol=1e-9, atol=1e-12)
    dgamma, dbeta = applied.gradient(dy, "gamma", "beta")
    np.testing.assert_allclose(dgamma, (dy * normal).sum(0), rtol=1e-10)
    np.testing.assert_allclose(dbeta, dy.sum(0), rtol=1e-12)


def test_batch_mean_and_variance_have_gradients():
    x = Input("x", TensorType((6, 3), DType.FLOAT64))()
    gamma, beta = (Input(name, TensorType((3,), DType.FLOAT64))() for name in ("gamma", "beta"))
    _, mean, variance = BatchNormalizationTraining().call_multi(x, gamma, beta)
    (dx,) = gradients(ReduceSum()(mean * mean) + ReduceSum()(variance), [x])
    array = RANDOM.normal(size=(6, 3))
    feeds = {"x": array, "gamma": VECTORS["gamma"], "beta": VECTORS["beta"]}
    expected = 2 * array.mean(0) / 6 + 2 * (array - array.mean(0)) / 6
    np.testing.assert_allclose(evaluate([dx], feeds)[0], expected, rtol=1e-12, atol=1e-15)


def test_shared_moving_averages_are_updated_in_order():
    builder = Builder(True, DType.FLOAT64)
    arrays = {"a": RANDOM.normal(size=(4, 2)), "b": RANDOM.normal(size=(4, 2))}
    for name, more in (("a", {}), ("b", {"share": "a"})):
        spec: Any = LAYERS.parse({"type": "BatchNormalization", "name": name, "momentum": 0.5, **more})
        with in_scope(builder.enter(spec, name)):
            spec.build(builder, builder.input(name, TensorType((4, 2), DType.FLOAT64)))
    feeds = {**arrays, "a/gamma": np.ones(2), "a/beta": np.zeros(2)}
    feeds |= {"a/moving_mean": np.ones(2), "a/moving_variance": np.ones(2)}
    (moved,) = evaluate([builder.updates["a/moving_mean"]], feeds)
    np.testing.assert_allclose(moved, (1 / 2 + arrays["a"].mean(0) / 2) / 2 + arrays["b"].mean(0) / 2, rtol=1e-12)


@pytest.mark.parametrize(
    ("axis", "shape", "message"),
    [(1, (4,), "no axis for channels"), (0, (4, 3), "no axis 0 for"), (2, (4, 3), "no axis 2 for")],
)
def test_shape_mismatch_messages(axis, shape, message):
    with pytest.raises(ShapeMismatch, match=message):
        layer({"type": "BatchNormalization", "axis": axis}, np.zeros(shape))


def test_batch_normalization_counts_flops_per_element():
    x, c = TensorType((2, 3, 4), DType.FLOAT32), TensorType((3,), DType.FLOAT32)
    assert BatchNormalization().flops(x, c, c, c, c) == 3 * x.size


@pytest.mark.parametrize("axis", [-1, 1, [1, 2], [2, 3], [1, 2, 3], [3, 1]])
def test_layer_normalization_matches_its_definition(axis):
    over = tuple(sorted(item % 4 for item in ([axis] if isinstance(axis, int) else axis)))
    shape = tuple(X.shape[dimension] for dimension in over)
    gamma, beta = RANDOM.normal(size=shape), RANDOM.normal(size=shape)
    applied = layer({"type": "LayerNormalization", "axis": axis, "epsilon": 0.01}, X, gamma=gamma, beta=beta)
    column = [X.shape[index] if index in over else 1 for index in range(4)]
    normal = (X - X.mean(over, keepdims=True)) / np.sqrt(X.var(over, keepdims=True) + 0.01)
    np.testing.assert_allclose(applied.y, normal * gamma.reshape(column) + beta.reshape(column), rtol=1e-12, atol=1e-12)


def test_layer_normalization_has_no_state():
    applied = layer("LayerNormalization", X, training=True)
    np.testing.assert_array_equal(applied.y, layer("LayerNormalization", X).y)
    assert set(applied.net.states) == {"it/gamma", "it/beta"}
    assert applied.updates == {}


@pytest.mark.parametrize(
    ("axis", "shape", "message"),
    [(-1, (4,), "no axis to normalize"), (0, (4, 3), "no axis 0"), ([1, -1], (4, 3), "is repeated")],
)
def test_layer_normalization_error_messages(axis, shape, message):
    with pytest.raises(ShapeMismatch, match=message):
        layer({"type": "LayerNormalization", "axis": axis}, np.zeros(shape))


@pytest.mark.parametrize("axis", [[], 1.5, True, "last", [1, True]])
def test_normalization_axis_is_an_integer_or_a_list(axis):
    with pytest.raises(ValidationError, match="has an invalid value"):
        LAYERS["LayerNormalization"].model_validate({"axis": axis})


GROUPED: list[tuple[dict[str, Any], tuple[int, ...], int]] = [
    ({"type": "GroupNormalization", "groups": 3}, (2, 6, 3, 4), 3),
    ({"type": "GroupNormalization", "groups": 2}, (3, 8), 2),
    ({"type": "GroupNormalization", "groups": -1}, (2, 4, 7), 4),
    ({"type": "InstanceNormalization", "epsilon": 1e-3}, (2, 4, 2, 3, 2), 4),
]


@pytest.mark.parametrize(("fields", "shape", "groups"), GROUPED)
def test_group_normalization_matches_its_formula(fields, shape, groups):
    x, c = RANDOM.normal(2.0, 3.0, shape), shape[1]
    gamma, beta = RANDOM.normal(size=c), RANDOM.normal(size=c)
    rows = x.reshape(shape[0], groups, -1)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-3)
    wide = (-1, *(1,) * (len(shape) - 2))
    expected = normal.reshape(shape) * gamma.reshape(wide) + beta.reshape(wide)
    np.testing.assert_allclose(layer(fields, x, gamma=gamma, beta=beta).y, expected, rtol=1e-10, atol=1e-12)


def test_group_normalization_along_another_axis():
    x, gamma, beta = RANDOM.normal(size=(2, 3, 5, 4)), RANDOM.normal(size=4), RANDOM.normal(size=4)
    fields = {"type": "GroupNormalization", "groups": 2}
    first = layer(fields, np.moveaxis(x, -1, 1), gamma=gamma, beta=beta).y
    last = layer({**fields, "axis": -1}, x, gamma=gamma, beta=beta).y
    np.testing.assert_allclose(last, np.moveaxis(first, 1, -1), rtol=1e-12)


@pytest.mark.parametrize("axis", [-1, 1, [1, 2], [1, 2, 3]])
def test_rms_and_unit_normalization_match_their_formulas(axis):
    axes = tuple(axis) if isinstance(axis, list) else (axis,)
    scale = RANDOM.normal(size=tuple(X.shape[axis] for axis in axes))
    y = layer({"type": "RMSNormalization", "axis": axis, "epsilon": 0.5}, X, scale=scale).y
    wide = scale.reshape([size if index in {axis % 4 for axis in axes} else 1 for index, size in enumerate(X.shape)])
    np.testing.assert_allclose(y, X / np.sqrt((X**2).mean(axes, keepdims=True) + 0.5) * wide, rtol=1e-10)
    y = layer({"type": "UnitNormalization", "axis": axis}, X).y
    np.testing.assert_allclose(y, X / np.sqrt((X**2).sum(axes, keepdims=True)), rtol=1e-10)


def test_unit_normalization_of_zeros_has_a_finite_gradient():
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    applied = layer("UnitNormalization", x)
    np.testing.assert_allclose(applied.y, np.array([[0.0, 0.0], [0.6, 0.8]]), rtol=1e-12)
    assert np.isfinite(applied.gradient(np.ones_like(x))[0]).all()


@pytest.mark.parametrize("across", [False, True])
def test_mvn_matches_caffe(across):
    """mvn_layer.cpp: the mean is subtracted, and the rest divided by the deviation + ε."""
    axes = (1, 2, 3) if across else (2, 3)
    centered = X - X.mean(axes, keepdims=True)
    expected = centered / (X.std(axes, keepdims=True) + 1e-9)
    np.testing.assert_allclose(layer({"type": "MVN", "across_channels": across}, X).y, expected, rtol=1e-8)
    shifted = layer({"type": "MVN", "across_channels": across, "normalize_variance": False}, X).y
    np.testing.assert_allclose(shifted, centered, rtol=1e-9, atol=1e-12)


def test_mvn_of_a_constant_channel_is_zero():
    applied = layer("MVN", np.full((2, 3, 4), 5.0))
    np.testing.assert_array_equal(applied.y, np.zeros((2, 3, 4)))
    assert np.isfinite(applied.gradient(RANDOM.normal(size=(2, 3, 4)))[0]).all()


@pytest.mark.parametrize("axis", [1, -1])
def test_normalization_with_known_statistics_and_its_inverse(axis):
    size = X.shape[axis]
    mean, variance = np.arange(size) - 1.0, np.arange(size) * 0.5 + 1
    shape = [size if index == axis % 4 else 1 for index in range(4)]
    fields = {"type": "Normalization", "axis": axis, "mean": mean.tolist(), "variance": variance.tolist()}
    applied = layer(fields, X)
    expected = (X - mean.reshape(shape)) / np.sqrt(variance).reshape(shape)
    np.testing.assert_allclose(applied.y, expected, rtol=1e-12, atol=1e-14)
    assert applied.net.states == {}
    np.testing.assert_allclose(layer({**fields, "invert": True}, applied.y).y, X, rtol=1e-12, atol=1e-12)


def test_normalization_of_all_elements_and_of_integers():
    x = np.array([[0, 255], [51, 102]], np.uint8)
    fields = {"type": "Normalization", "axis": None, "mean": 51.0, "variance": 51.0**2}
    np.testing.assert_allclose(layer(fields, x).y, [[-1, 4], [0, 1]], rtol=1e-6, atol=1e-12)


def test_moving_averages_of_instances_need_two_elements_of_each_channel():
    fields = {"type": "InstanceNormalization", "track_running_stats": True}
    assert layer(fields, np.zeros((3, 2, 1))).y.shape == (3, 2, 1)  # inference uses the moving averages
    with pytest.raises(ShapeMismatch, match="has a single element"):
        layer(fields, np.zeros((3, 2, 1)), training=True)

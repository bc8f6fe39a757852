"""Caffe's arithmetic layers, Scale and Bias, products and reductions: the formulas, written in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.graph.value import ShapeMismatch
from tests.layers.apply import layer

X = np.random.default_rng(11).uniform(0.2, 2.0, (2, 3, 4))
Y = np.random.default_rng(12).uniform(-2.0, 2.0, (2, 3, 4))
Z = Y[:, :, :1]

FORMULAS: list[tuple[dict[str, Any], Any, tuple[np.ndarray, ...]]] = [
    ({"type": "Power", "power": 2.5, "scale": 0.5, "shift": 1.0}, (1.0 + 0.5 * X) ** 2.5, (X,)),
    ({"type": "Power", "scale": -2.0}, -2.0 * Y, (Y,)),
    ({"type": "Power", "power": -1.0}, 1 / X, (X,)),
    ({"type": "Exp"}, np.exp(Y), (Y,)),
    ({"type": "Exp", "base": 2.0, "scale": 3.0, "shift": -1.0}, 2.0 ** (-1.0 + 3.0 * Y), (Y,)),
    ({"type": "Log", "shift": 1.0}, np.log(1.0 + X), (X,)),
    ({"type": "Log", "base": 10.0, "scale": 2.0}, np.log10(2.0 * X), (X,)),
    ({"type": "Abs"}, np.abs(Y), (Y,)),
    ({"type": "Clip", "min": -1.0, "max": 0.5}, np.clip(Y, -1.0, 0.5), (Y,)),
    ({"type": "Clip", "min": 0.0}, np.maximum(Y, 0), (Y,)),
    ({"type": "Clip", "max": 0.0}, np.minimum(Y, 0), (Y,)),
    ({"type": "Threshold", "threshold": float(Y[0, 1, 2])}, (Y[0, 1, 2] < Y).astype(float), (Y,)),
    ({"type": "WeightedSum", "coefficients": [2, -0.5, 1]}, 2 * X - 0.5 * Y + Z, (X, Y, Z)),
    ({"type": "Scale"}, X * Y[:, :, 0][:, :, None], (X, Y[:, :, 0])),
    ({"type": "Scale", "axis": 2}, X * Y[:, 1][:, None], (X, Y[:, 1])),
    ({"type": "Bias", "axis": -1}, X + Y[:, 1][:, None], (X, Y[:, 1])),
    ({"type": "Bias"}, X + Y[:, 0, 0][:, None, None], (X, Y[:, 0, 0])),
    ({"type": "Dot", "axes": 1}, (X[:, 0] * Y[:, 0]).sum(1, keepdims=True), (X[:, 0], Y[:, 0])),
    ({"type": "Dot", "axes": [1, -2]}, np.einsum("nkb,nkd->nbd", X, Y), (X, Y)),
    ({"type": "Dot", "axes": [2, 1]}, np.einsum("nak,nk->na", X, Y[:, 0]), (X, Y[:, 0])),
    ({"type": "MatMul", "transpose_b": True}, np.einsum("nik,njk->nij", X, Y), (X, Y)),
    ({"type": "MatMul", "transpose_a": True}, np.einsum("nki,nkj->nij", X, Y), (X, Y)),
    ({"type": "Reduction"}, Y.sum((1, 2))[:, None], (Y,)),
    ({"type": "Reduction", "operation": "mean", "axes": 1}, Y.mean(1), (Y,)),
    ({"type": "Reduction", "operation": "max", "axes": [1, 2], "keepdims": True}, Y.max((1, 2), keepdims=True), (Y,)),
    ({"type": "Reduction", "operation": "min", "axes": -1}, Y.min(2), (Y,)),
    ({"type": "Reduction", "operation": "prod", "axes": 1}, Y.prod(1), (Y,)),
    ({"type": "Reduction", "operation": "asum"}, np.abs(Y).sum((1, 2))[:, None], (Y,)),
    ({"type": "Reduction", "operation": "sumsq", "axes": 2}, (Y**2).sum(2), (Y,)),
    ({"type": "ArgMax"}, Y.argmax(1), (Y,)),
    ({"type": "ArgMax", "axis": -1, "keepdims": True}, Y.argmax(2)[:, :, None], (Y,)),
]


@pytest.mark.parametrize(("fields", "expected", "inputs"), FORMULAS, ids=lambda value: str(value)[:60])
def test_formula(fields: dict[str, Any], expected: Any, inputs: tuple[np.ndarray, ...]) -> None:
    actual = layer(fields, *inputs).y
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_cosine_similarity() -> None:
    a, b = X[:, 0], Y[:, 0]
    actual = layer({"type": "Dot", "axes": 1, "normalize": True}, a, b).y[:, 0]
    np.testing.assert_allclose(
        actual, (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1), rtol=1e-12
    )
    assert layer({"type": "Dot", "axes": 1, "normalize": True}, 0 * a, b).y.tolist() == [[0.0], [0.0]]


def test_scale_and_bias_along_axes() -> None:
    scale, bias = np.array([2.0, 3.0, 4.0]), np.array([-1.0, 0.0, 1.0])
    actual = layer({"type": "Scale", "use_bias": True}, Y, scale=scale, bias=bias).y
    np.testing.assert_allclose(actual, Y * scale[:, None] + bias[:, None])
    fresh = layer({"type": "Scale", "axis": 1, "num_axes": 2, "use_bias": True}, Y)
    assert (fresh.y == Y).all()
    assert {name: info.value.shape for name, info in fresh.net.states.items()} == {
        "it/scale": (3, 4),
        "it/bias": (3, 4),
    }


def test_gradient_of_multiply_with_zero_factors() -> None:
    x = np.array([[2.0, 0.0, 3.0, -1.0, 5.0], [0.0, 4.0, 0.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    others = np.array([[np.delete(row, k).prod() for k in range(5)] for row in x])
    result = layer({"type": "Reduction", "operation": "prod"}, x)
    (dx,) = result.gradient(np.ones((3, 1)))
    np.testing.assert_allclose(dx, others)
    assert not np.isnan(dx).any()


def test_argmax_top_k_with_values() -> None:
    x = np.array([[1.0, 7.0, -np.inf, 7.0], [-np.inf, -np.inf, 2.0, -np.inf]])  # of equal elements, the first is first
    result = layer({"type": "ArgMax", "top_k": 3, "out_max_val": True}, x)
    assert result.spec.output_names() == ("places", "values")
    np.testing.assert_array_equal(result.all[0], [[1, 3, 0], [2, 0, 1]])
    np.testing.assert_array_equal(result.all[1], [[7, 7, 1], [2, -np.inf, -np.inf]])
    indices = layer({"type": "ArgMax", "top_k": 2, "axis": 1}, Y).y
    np.testing.assert_array_equal(indices, np.argsort(-Y, axis=1)[:, :2])
    greatest = layer({"type": "ArgMax", "axis": -1, "out_max_val": True}, Y).all
    np.testing.assert_array_equal(greatest[1], Y.max(-1))
    with pytest.raises(ShapeMismatch, match="axis 1 has fewer than 5 elements"):
        layer({"type": "ArgMax", "top_k": 5}, x)


def test_threshold_and_argmax_stop_gradients() -> None:
    for fields in ({"type": "Threshold"}, {"type": "ArgMax"}):
        result = layer(fields, Y)
        assert result.outputs[0].dtype.is_float == (fields["type"] == "Threshold")
    (dx,) = layer({"type": "Threshold"}, Y).gradient(np.ones_like(Y))
    assert not dx.any()

"""Each activation against its published formula, in plain Python numbers."""

from __future__ import annotations

from collections.abc import Callable
from math import e, erf, exp, log, log1p, sqrt, tanh
from typing import get_args

import numpy as np
import pytest

from netspec.layers.activations import ActivationName
from tests.layers.apply import layer

X = np.array([-1000.0, -20.0, -7.0, -3.0, -1.0, -0.1, -1e-9, 0.0, 1e-9, 0.1, 1.0, 2.9, 3.1, 5.9, 6.1, 20.0, 700.0])


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x)) if x > -700 else 0.0


def softplus(x: float) -> float:
    return max(x, 0) + log1p(exp(-abs(x)))


FORMULAS: dict[str, Callable[[float], float]] = {
    "linear": lambda x: x,
    "relu": lambda x: max(x, 0),
    "relu6": lambda x: min(max(x, 0), 6),
    "leaky_relu": lambda x: x if x >= 0 else 0.2 * x,
    "elu": lambda x: x if x > 0 else e**x - 1,
    "selu": lambda x: 1.05070098 * (x if x > 0 else 1.67326324 * (e**x - 1)),
    "gelu": lambda x: x * (1 + erf(x / sqrt(2))) / 2,
    "sigmoid": sigmoid,
    "hard_sigmoid": lambda x: 0 if x <= -3 else 1 if x >= 3 else x / 6 + 0.5,
    "tanh": tanh,
    "softplus": softplus,
    "softsign": lambda x: x / (abs(x) + 1),
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(x),
    "mish": lambda x: x * tanh(softplus(x)),
    "exponential": exp,
    "celu": lambda x: max(x, 0) + min(0, e**x - 1),
    "log_sigmoid": lambda x: -softplus(-x),
    "sparse_sigmoid": lambda x: 0 if x <= -1 else 1 if x >= 1 else (x + 1) / 2,
    "hard_tanh": lambda x: max(-1, min(1, x)),
    "tanh_shrink": lambda x: x - tanh(x),
    "sparse_plus": lambda x: 0 if x <= -1 else x if x >= 1 else (x + 1) ** 2 / 4,
    "squareplus": lambda x: (x + sqrt(x * x + 4)) / 2,
    "hard_silu": lambda x: x * max(0, min(1, x / 6 + 0.5)),
    "hard_swish": lambda x: x * max(0, min(1, x / 6 + 0.5)),
    "hard_shrink": lambda x: x if abs(x) > 0.5 else 0,
    "soft_shrink": lambda x: x - 0.5 if x > 0.5 else x + 0.5 if x < -0.5 else 0,
}
ALONG_AXIS = {"softmax", "log_softmax"}


def test_every_activation_has_a_formula_here():
    assert set(get_args(ActivationName)) == set(FORMULAS) | ALONG_AXIS


@pytest.mark.parametrize("name", FORMULAS)
def test_is_its_formula(name):
    y = layer({"type": "Activation", "activation": name}, X[None]).y[0]
    expected = [FORMULAS[name](x) for x in X]
    # selu's constants are published with nine digits; e**x - 1 of the formula loses some near 0.
    np.testing.assert_allclose(y, expected, rtol=1e-8 if name == "selu" else 1e-13, atol=2e-16 * 10)


@pytest.mark.parametrize("axis", [1, -1])
def test_softmax_and_its_logarithm(axis):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    expected = np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)
    y = layer({"type": "Activation", "activation": "softmax", "axis": axis}, x).y
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    y = layer({"type": "Activation", "activation": "log_softmax", "axis": axis}, x).y
    np.testing.assert_allclose(y, np.log(expected), rtol=1e-12)


def test_softmax_of_large_numbers_does_not_overflow():
    x = np.array([[1000.0, 1000.0 - log(3.0), -1000.0]])
    np.testing.assert_allclose(
        layer({"type": "Activation", "activation": "softmax"}, x).y, [[0.75, 0.25, 0]], rtol=1e-12
    )


@pytest.mark.parametrize("name", [name for name in FORMULAS if name != "exponential"])
def test_gradients_stay_finite_for_large_numbers(name):
    x = np.array([[-1e4, -100.0, 100.0, 1e4]], np.float32)
    made = layer({"type": "Activation", "activation": name}, x)
    assert np.isfinite(made.y).all()
    assert np.isfinite(made.gradient(np.ones_like(x))[0]).all()

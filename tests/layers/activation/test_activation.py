"""Each activation against its published formula, in plain Python numbers."""

from __future__ import annotations

from collections.abc import Callable
from math import e, erf, exp, log, log1p, pi, sqrt, tanh
from typing import Any

import numpy as np
import pytest

from netspec.graph.graph import Graph
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.passes.base import run_passes
from netspec.passes.constant_folding import FoldConstants
from netspec.passes.cse import CommonSubexpressions
from netspec.passes.elementwise_fusion import FuseElementwise
from netspec.schema.specs.kinds import ACTIVATIONS
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
    "threshold": lambda x: max(0, x),
}
WITH_FIELDS: list[tuple[dict[str, Any], Callable[[float], float]]] = [
    ({"type": "hard_sigmoid", "alpha": 0.2, "beta": 0.4}, lambda x: min(max(0.2 * x + 0.4, 0), 1)),
    ({"type": "relu", "max_value": 5.0}, lambda x: min(max(x, 0), 5)),
    ({"type": "relu", "threshold": 1.0}, lambda x: x if x > 1 else 0),
    (
        {"type": "relu", "negative_slope": 0.1, "threshold": 1.0, "max_value": 5.0},
        lambda x: min(x, 5) if x > 1 else 0.1 * (x - 1),
    ),
    ({"type": "leaky_relu", "negative_slope": 0.1}, lambda x: x if x > 0 else 0.1 * x),
    ({"type": "elu", "alpha": 0.5}, lambda x: x if x > 0 else (e**x - 1) / 2),
    ({"type": "celu", "alpha": 0.5}, lambda x: max(x, 0) + (0 if x > 0 else (e ** (2 * x) - 1) / 2)),
    (
        {"type": "gelu", "approximate": True},
        lambda x: x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2,
    ),
    ({"type": "squareplus", "b": 1.0}, lambda x: (x + sqrt(x * x + 1)) / 2),
    ({"type": "swish", "beta": 1.7}, lambda x: x * sigmoid(1.7 * x)),
    ({"type": "hard_shrink", "threshold": 1.0}, lambda x: x if abs(x) > 1 else 0),
    ({"type": "soft_shrink", "threshold": 1.0}, lambda x: x - max(-1, min(1, x))),
    ({"type": "threshold", "threshold": 0.5, "default_value": -2.0}, lambda x: x if x > 0.5 else -2),
]
ALONG_AXIS = {"softmax", "log_softmax", "sparsemax", "glu"}


def test_every_activation_has_a_formula_here():
    assert set(ACTIVATIONS.names()) == set(FORMULAS) | ALONG_AXIS


@pytest.mark.parametrize("name", FORMULAS)
def test_activation_matches_its_formula(name):
    y = layer({"type": "Activation", "activation": name}, X[None]).y[0]
    expected = [FORMULAS[name](x) for x in X]
    # selu's constants are published with nine digits; e**x - 1 loses digits near 0.
    np.testing.assert_allclose(y, expected, rtol=1e-8 if name == "selu" else 1e-13, atol=2e-16 * 10)


@pytest.mark.parametrize(
    ("fields", "formula"), WITH_FIELDS, ids=lambda value: str(value) if isinstance(value, dict) else ""
)
def test_activation_with_fields_matches_its_formula(fields, formula):
    y = layer({"type": "Activation", "activation": fields}, X[None]).y[0]
    # In these formulas, 1 - tanh² and e^(2x) - 1 lose digits near 0.
    np.testing.assert_allclose(y, [formula(x) for x in X], rtol=1e-13, atol=2e-16 * 10)


def test_every_field_is_tested_here():
    values = {(fields["type"], name) for fields, _ in WITH_FIELDS for name in fields}
    declared = {(name, field) for name in FORMULAS for field in ACTIVATIONS[name].model_fields if field != "type"}
    assert declared <= values


@pytest.mark.parametrize("name", [*FORMULAS, *sorted(ALONG_AXIS)])
def test_activations_keep_nan(name):
    """If a ReLU turned NaN into 0, the guard would not notice it."""
    with np.errstate(invalid="ignore"):
        y = layer({"type": "Activation", "activation": name}, np.array([[1.0, np.nan]])).y
    assert np.isnan(y[0, -1])


def test_activation_fields_are_accepted_in_every_layer():
    fields = {"type": "Dense", "units": 1, "activation": {"type": "leaky_relu", "negative_slope": 0.5}}
    assert layer(fields, np.array([[-1.0]]), kernel=[[4.0]], bias=[0.0]).y == -2


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_sparsemax_projects_onto_the_simplex(axis):
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 5))
    y = layer({"type": "Activation", "activation": "sparsemax", "axis": axis}, x).y
    low, high = x.max(axis, keepdims=True) - 1, x.max(axis, keepdims=True)
    for _ in range(60):  # bisection: the sum decreases as the threshold increases
        middle = (low + high) / 2
        above = np.maximum(x - middle, 0).sum(axis, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    np.testing.assert_allclose(y, np.maximum(x - low, 0), atol=1e-14)
    assert (y == 0).any()


def test_glu_gates_the_first_half_by_the_second():
    x = np.random.default_rng(1).normal(size=(2, 4, 3))
    y = layer({"type": "Activation", "activation": {"type": "glu", "axis": 1}}, x).y
    np.testing.assert_allclose(y, x[:, :2] / (1 + np.exp(-x[:, 2:])), rtol=1e-12)


def test_softmax_over_several_axes():
    x = np.random.default_rng(2).normal(size=(2, 3, 4, 5))
    expected = np.exp(x) / np.exp(x).sum(axis=(1, 3), keepdims=True)
    np.testing.assert_allclose(layer({"type": "Softmax", "axis": [3, 1]}, x).y, expected, rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in FORMULAS if name != "linear"])
def test_activation_fuses_with_its_neighbors(name):
    """By the traits of the ops, (x + 1), the function, and · 2 are fused to one node."""
    x = Input("x", TensorType((3, 5), DType.FLOAT32))()
    function: Any = ACTIVATIONS.parse(name)
    graph = run_passes(
        Graph({"y": function.apply(x + 1.0) * 2.0}),
        (FoldConstants(), CommonSubexpressions(), FuseElementwise(lambda *_: True)),
    )
    assert len([node for node in graph.nodes() if not node.op.traits.source]) == 1


@pytest.mark.parametrize("axis", [1, -1])
def test_log_softmax_is_the_logarithm_of_softmax(axis):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    expected = np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)
    y = layer({"type": "Activation", "activation": "softmax", "axis": axis}, x).y
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    y = layer({"type": "Activation", "activation": "log_softmax", "axis": axis}, x).y
    np.testing.assert_allclose(y, np.log(expected), rtol=1e-12)


def test_softmax_of_large_logits_is_finite():
    x = np.array([[1000.0, 1000.0 - log(3.0), -1000.0]])
    np.testing.assert_allclose(
        layer({"type": "Activation", "activation": "softmax"}, x).y, [[0.75, 0.25, 0]], rtol=1e-12
    )


@pytest.mark.parametrize("name", [name for name in FORMULAS if name != "exponential"])
def test_gradients_of_large_inputs_are_finite(name):
    x = np.array([[-1e4, -100.0, 100.0, 1e4]], np.float32)
    applied = layer({"type": "Activation", "activation": name}, x)
    assert np.isfinite(applied.y).all()
    assert np.isfinite(applied.gradient(np.ones_like(x))[0]).all()

"""Constraints: their formulas, that they follow the solver's update, and what they leave unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import netspec.layers  # noqa: F401  registers the classes
from netspec.compile import Compiler, ProgramKind
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.schema.specs.annotations import fields_by_name
from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.kinds import CONSTRAINTS, LAYERS
from tests.compile.nets import net, solver
from tests.interpret import evaluate

RANDOM = np.random.default_rng(3)
EPSILON = 1e-7


def projected(fields: str | dict[str, Any], weight: np.ndarray) -> Any:
    spec: Any = CONSTRAINTS.parse(fields)
    value = Input("w", TensorType(weight.shape, DType.FLOAT64))()
    return np.asarray(evaluate([spec.project(value)], {"w": weight})[0])


def lengths(weight: np.ndarray, axes: tuple[int, ...]) -> Any:
    return np.sqrt((weight**2).sum(axis=axes, keepdims=True))


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((4, 3), (0,)), ((5, 2, 3, 3), (1, 2, 3)), ((6,), (0,))]
"""A parameter's shape, and the axes of the weights of one output."""


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_norms_are_per_output(shape, axes):
    weight = RANDOM.normal(size=shape)
    norms = lengths(weight, axes)
    limit = float(np.median(norms))
    expected = weight * np.minimum(norms, limit) / (norms + EPSILON)
    np.testing.assert_allclose(projected({"type": "MaxNorm", "max_value": limit}, weight), expected, rtol=1e-12)
    np.testing.assert_allclose(projected("UnitNorm", weight), weight / (norms + EPSILON), rtol=1e-12)
    fields = {"type": "MinMaxNorm", "min_value": 0.9 * limit, "max_value": 1.1 * limit, "rate": 0.25}
    target_norms = 0.25 * np.clip(norms, 0.9 * limit, 1.1 * limit) + 0.75 * norms
    np.testing.assert_allclose(projected(fields, weight), weight * target_norms / (norms + EPSILON), rtol=1e-12)


def test_norm_constraint_along_given_axes():
    weight = RANDOM.normal(size=(4, 3))
    np.testing.assert_allclose(
        projected({"type": "UnitNorm", "axis": [0, -1]}, weight),
        weight / (lengths(weight, (0, 1)) + EPSILON),
        rtol=1e-12,
    )


def test_non_neg_keeps_nan():
    np.testing.assert_array_equal(projected("NonNeg", np.array([-1.0, 2.0, np.nan])), [0, 2, np.nan])


def test_norm_constraints_keep_zeros():
    for name in ("MaxNorm", "UnitNorm", "MinMaxNorm"):
        np.testing.assert_array_equal(projected(name, np.zeros((3, 2))), np.zeros((3, 2)))


@pytest.mark.parametrize("name", CONSTRAINTS.names())
def test_is_documented(name):
    cls = CONSTRAINTS[name]
    assert cls.__doc__
    assert fields_by_name(cls).keys() - field_docs(cls).keys() <= {"type"}


def test_every_regularizer_field_has_a_constraint_field():
    for cls in LAYERS:
        fields = set(cls.model_fields)
        penalized = {name.removesuffix("_regularizer") for name in fields if name.endswith("_regularizer")}
        constrained = {name.removesuffix("_constraint") for name in fields if name.endswith("_constraint")}
        assert penalized - {"activity"} == constrained, cls.__name__


TEXT = """
netspec: 1
inputs: {x: {shape: [3]}, y: {shape: [2]}}
layers:
  - {name: free, type: Dense, units: 4, from: x}
  - {name: bound, type: Dense, units: 2, %s}
losses: [{type: MeanSquaredError, from: [bound, y]}]
"""


@pytest.mark.parametrize("rule", [solver(momentum=0.9), solver("Adam")], ids=["sgd", "adam"])
def test_constraint_projects_the_updated_parameter_but_not_the_slots(rule, tmp_path):
    """Compares each step with that of an unconstrained net that starts it with the same parameters."""
    data = {"x": RANDOM.normal(size=(5, 3)), "y": RANDOM.normal(size=(5, 2)), "$learning_rate": 0.1, "$step": 1.0}
    feeds = {name: np.asarray(array, np.float64) for name, array in data.items()}
    results = []
    for number, fields in enumerate(("kernel_constraint: unit_norm, bias_constraint: non_neg", "use_bias: true")):
        folder = tmp_path / str(number)
        folder.mkdir()
        compiler = Compiler(net(TEXT % fields, folder), solver=rule, dtype=DType.FLOAT64, device="reference")
        compiler.program(ProgramKind.TRAIN, 5)(feeds)
        results.append(dict(compiler.states))
    bound, plain = results
    assert bound.keys() == plain.keys()
    kernel = plain["bound/kernel"]
    for name in plain:
        expected = plain[name]
        if name == "bound/kernel":
            expected = kernel / (lengths(kernel, (0,)) + EPSILON)
        elif name == "bound/bias":
            expected = np.maximum(plain[name], 0)
        np.testing.assert_allclose(bound[name], expected, rtol=1e-13, err_msg=name)


def test_constraint_leaves_frozen_parameters_unchanged(tmp_path):
    compiler = Compiler(
        net(TEXT % "kernel_constraint: unit_norm, trainable: false", tmp_path), solver=solver(), device="reference"
    )
    assert "bound/kernel" not in compiler.graph(ProgramKind.TRAIN, 5).updates

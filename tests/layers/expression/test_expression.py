"""The layer Expression against NumPy: values, gradient, fusion, and the locations of errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.errors import SpecError
from netspec.graph.graph import Graph
from netspec.graph.ops.source import Input
from netspec.graph.types import DType, TensorType
from netspec.graph.value import ShapeMismatch, in_scope
from netspec.layers.base import Builder
from netspec.passes.base import run_passes
from netspec.passes.constant_folding import FoldConstants
from netspec.passes.cse import CommonSubexpressions
from netspec.passes.elementwise_fusion import FuseElementwise
from netspec.schema.language.formula import ExpressionError
from netspec.schema.specs.kinds import LAYERS
from tests.interpret import evaluate
from tests.layers.apply import layer

RANDOM = np.random.default_rng(8)
X, Y = RANDOM.normal(size=(3, 4, 5)), RANDOM.normal(size=(3, 1, 5))


def sigmoid(x: np.ndarray) -> Any:
    return 1 / (1 + np.exp(-x))


FORMULAS: list[tuple[str, Any]] = [
    ("x * sigmoid(1.7 * x)", X * sigmoid(1.7 * X)),
    ("-x + 2 ** 3 - +y / 4", -X + 8 - Y / 4),
    ("x ** 2 + x ** -1 + 2 * pi * e", X**2 + 1 / X + 2 * np.pi * np.e),
    ("abs(x) ** 0.5 - sqrt(abs(y))", np.sqrt(abs(X)) - np.sqrt(abs(Y))),
    ("x if x > y else y", np.maximum(X, Y)),
    ("where(x <= 0.2, 1, y)", np.where(X <= 0.2, 1, Y)),
    ("1 if x == x else 0", np.ones_like(X)),
    ("1 if -0.5 < x <= 0.5 else 0", (X > -0.5) & (X <= 0.5)),
    ("1 if x > 0 and y > 0 or not x != y else 0", (X > 0) & (Y > 0)),
    ("y if not (x > 0 or y > 0) else 2", np.where((X > 0) | (Y > 0), 2, Y)),
    ("sin(x) + cos(2 * x) * tan(y) - atan(x) + sin(1)",
     np.sin(X) + np.cos(2 * X) * np.tan(Y) - np.arctan(X) + np.sin(1)),
    ("x + log(e ** 2) + max(1, 2)", X + 4),
    ("x - (1 if y < 0 else 2)", X - np.where(Y < 0, 1, 2)),
    ("min(x, y, 0.3) + max(x, -0.3)", np.minimum(np.minimum(X, Y), 0.3) + np.maximum(X, -0.3)),
    ("clip(x, -1, y)", np.minimum(np.maximum(X, -1), Y)),
    ("floor(x) - ceil(y) + round(2 * x)", np.floor(X) - np.ceil(Y) + np.rint(2 * X)),
    ("asin(x / 9) + acos(y / 9) * atanh(x / 9)", np.arcsin(X / 9) + np.arccos(Y / 9) * np.arctanh(X / 9)),
    ("sinh(x) + cosh(y) * asinh(x) - acosh(1 + y ** 2)",
     np.sinh(X) + np.cosh(Y) * np.arcsinh(X) - np.arccosh(1 + Y**2)),
    ("fmod(x, 0.3) + x % 0.7 + x // 0.7", np.fmod(X, 0.3) + X % 0.7 + X // 0.7),
    ("abs(x) ** y + 2 ** x", np.abs(X) ** Y + 2**X),
    ("1 if isnan(x) or isinf(x) or xor(x > 0, y > 0) else 0", (X > 0) ^ (Y > 0)),
    ("sign(x) * expm1(x) + log(exp(y))", np.sign(X) * np.expm1(X) + Y),
    ("relu(x) + leaky_relu(x) + softplus(y)", np.maximum(X, 0) + np.where(X > 0, X, 0.2 * X) + np.log1p(np.exp(Y))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), FORMULAS, ids=lambda value: value if isinstance(value, str) else "")
def test_expression_evaluates_the_formula(text, expected):
    np.testing.assert_allclose(layer({"type": "Expression", "expr": text}, X, Y).y, expected, rtol=1e-12, atol=1e-13)


def test_expression_with_named_inputs_and_parameters():
    fields = {
        "type": "Expression", "inputs": ["value", "gate"], "expr": "value * sigmoid(slope * gate) + shift",
        "parameters": {"slope": {}, "shift": {"shape": [4, 1], "initializer": "zeros"}},
    }  # fmt: skip
    shift = RANDOM.normal(size=(4, 1))
    applied = layer(fields, X, Y, slope=np.array(1.5), shift=shift)
    np.testing.assert_allclose(applied.y, X * sigmoid(1.5 * Y) + shift, rtol=1e-12)
    (slope,) = applied.gradient(np.ones_like(X), "slope")
    s = sigmoid(1.5 * Y)
    np.testing.assert_allclose(slope, (X * s * (1 - s) * Y).sum(), rtol=1e-10)


def test_expression_parameters_use_initializers_and_freezing():
    fields = {"type": "Expression", "expr": "x * beta", "parameters": {"beta": {"shape": [4, 1]}}, "trainable": False}
    states = layer(fields, X).net.states
    assert list(states) == ["it/beta"]
    assert not states["it/beta"].trainable
    np.testing.assert_array_equal(states["it/beta"].initial.sample(1, "it/beta", (4, 1), "float32"), np.ones((4, 1)))


def test_expression_converts_integers_to_float():
    y = layer({"type": "Expression", "expr": "x / 2 if x > 1 else 0"}, np.array([[1, 2, 3]], np.int32)).y
    np.testing.assert_array_equal(y, [[0, 1, 1.5]])


def test_expression_compiles_to_one_fused_node():
    spec: Any = LAYERS.parse(
        {"type": "Expression", "name": "it", "expr": "x * sigmoid(1.7 * x) + max(y, 0.1 * y) ** 2"}
    )
    builder = Builder(False, DType.FLOAT32)
    x, y = (Input(name, TensorType((3, 5), DType.FLOAT32))() for name in "xy")
    with in_scope(builder.enter(spec, "it")):
        result = spec.build(builder, x, y)
    passes = (FoldConstants(), CommonSubexpressions(), FuseElementwise(lambda *_: True))
    graph = run_passes(Graph({"y": result}), passes)
    assert len([node for node in graph.nodes() if not node.op.traits.source]) == 1


WRONG = [
    ("x +", 0, "invalid expression"),
    ("x * sigmod(x)", 4, "unknown function `sigmod`"),
    ("x * sigmoid(x, 2)", 4, "`sigmoid` takes 1 argument, got 2"),
    ("x * w", 4, "there is no input, parameter or constant `w`"),
    ("x * exp", 4, "`exp` is a function"),
    ("bit_and(x, 2)", 0, "`bit_and` needs an integer"),
    ("x * (x > 0)", 5, "this is a condition, not a number"),
    ("1 if x else 0", 5, "this is not a condition"),
    ("x if not x else 1", 9, "this is not a condition"),
    ("1 if x > 0 and y else 0", 15, "this is not a condition"),
    ("x and y", 0, "this is not a condition"),
    ("1 if x in y else 0", 5, "this comparison is not allowed here"),
    ("x[0]", 0, "`[…]` is not allowed here"),
    ("x + log(0)", 4, "log(0) is not a finite number"),
    ("sqrt(-1) * x", 0, "sqrt(-1) is not a finite number"),
    ("x * exp(1000)", 4, "exp(1000) is not a finite number"),
    ("x.__class__", 0, "`x.__class__` is not allowed in an expression"),
    ("__import__('os')", 11, "this is not a number"),
    ("x + 'a'", 4, "this is not a number"),
    ("x / (1 - 1) + 1 / 0", 14, "1 / 0 has no value"),
    ("x ^ 2", 0, "`^` is not allowed in an expression"),
]


@pytest.mark.parametrize(("text", "offset", "message"), WRONG, ids=[case[0] for case in WRONG])
def test_expression_errors_have_an_offset(text, offset, message):
    from netspec.layers.expression.formula import GraphFormula

    names = {name: Input(name, TensorType((), DType.FLOAT32))() for name in "xy"}
    with pytest.raises(ExpressionError) as caught:
        GraphFormula(text).walk(names)
    assert (caught.value.message, caught.value.offset) == (message, offset)


def test_number_of_inputs_must_match_names():
    with pytest.raises(ShapeMismatch, match="differs from the number of layers in `from`"):
        layer({"type": "Expression", "inputs": ["a", "b"], "expr": "a + b"}, X)
    with pytest.raises(ShapeMismatch, match="the formula uses `y`, which is not an input"):
        layer({"type": "Expression", "expr": "x + y"}, X)
    with pytest.raises(ShapeMismatch, match="more axes than the inputs"):
        layer({"type": "Expression", "expr": "x * b", "parameters": {"b": {"shape": [2, 1, 1, 1]}}}, X)


def kept(expr: str, *arrays: Any) -> Any:
    """Evaluate a formula that keeps types on arrays of any type."""
    inputs = [Input(f"x{i}", TensorType(a.shape, DType(str(a.dtype))))() for i, a in enumerate(arrays)]
    builder = Builder(training=False, dtype=DType.FLOAT32)
    spec: Any = LAYERS.parse({"type": "Expression", "expr": expr, "keep_types": True})
    (y,) = evaluate(
        [spec.build(builder, *inputs)],
        {f"x{i}": a for i, a in enumerate(arrays)},
    )
    return y


def test_integer_division_and_remainder_match_their_definitions():
    values = np.array([-7, -6, -1, 0, 1, 6, 7, -(2**31)], np.int32)
    divisors = np.array([-3, -1, 2, 3], np.int32)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(values, divisors))
    wide, by = a.astype(np.int64), b.astype(np.int64)
    cut = np.sign(wide) * np.sign(by) * (np.abs(wide) // np.abs(by))
    with np.errstate(over="ignore"):  # the type cannot represent its minimum divided by -1
        np.testing.assert_array_equal(kept("quotient(x, y)", a, b), cut.astype(np.int32))
        np.testing.assert_array_equal(kept("x // y", a, b), (wide // by).astype(np.int32))
        np.testing.assert_array_equal(kept("x % y", a, b), wide % by)
        np.testing.assert_array_equal(kept("fmod(x, y)", a, b), wide - cut * by)


def test_integer_division_by_0_is_0():
    x = np.array([[3, -3, 0]], np.int32)
    for expr in ("quotient(x, 0)", "x // 0", "x % 0"):
        np.testing.assert_array_equal(kept(expr, x), [[0, 0, 0]])


def test_shifts_beyond_the_number_of_bits():
    x, by = np.array([[-8, 4, 64, -1]], np.int8), np.array([[1, 9, 1, -3]], np.int8)
    np.testing.assert_array_equal(kept("shift_left(x, y)", x, by), [[-16, 0, -128, 0]])
    np.testing.assert_array_equal(kept("shift_right(x, y)", x, by), [[-4, 0, 32, -1]])


def test_keep_types_preserves_integer_types():
    large = np.array([[2**40 + 1]])
    assert kept("x + 1", large)[0, 0] == 2**40 + 2, "as a float32 it would be another"
    assert kept("x > y", np.array([[2**30 + 1]], np.int32), np.array([[2**30]], np.int32))[0, 0]
    assert kept("x", large).dtype == np.int64
    assert kept("isinf(x)", np.array([[np.inf, np.nan, 1]], np.float32)).tolist() == [[True, False, False]]
    assert kept("x ** 2", np.array([[9]], np.uint8)).dtype == np.uint8


@pytest.mark.parametrize(
    ("expr", "dtype", "message"),
    [
        ("x / 2", np.int32, "`/` is not defined for integers"),
        ("x + 0.5", np.int32, "0.5 must be an integer"),
        ("x + 1", np.bool_, "this is a condition, not a number"),
        ("x and x", np.int32, "this is not a condition"),
        ("exp(x)", np.int32, "Exp needs floats"),
    ],
)
def test_operations_not_defined_for_integers_are_reported(expr, dtype, message):
    with pytest.raises((ShapeMismatch, SpecError), match=message):
        kept(expr, np.ones((1, 2), dtype))

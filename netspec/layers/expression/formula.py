"""Translates the formulas of the layer Expression to graph values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import e, isfinite, pi
from typing import Any

from netspec.errors import did_you_mean, listing
from netspec.graph.op import Op
from netspec.graph.ops import unary as ops
from netspec.graph.ops.elementwise import (
    Equal,
    Greater,
    GreaterOrEqual,
    LessOrEqual,
    Maximum,
    Minimum,
    Pow,
    Where,
    cast,
    scalar,
)
from netspec.graph.ops.integer import (
    BitAnd,
    BitNot,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    TruncDiv,
    floor_div,
    floor_mod,
    power,
    trunc_mod,
)
from netspec.graph.ops.logic import And, Not, Or, Xor
from netspec.graph.ops.rounding import Ceil, Floor, IsInf, IsNaN, Round
from netspec.graph.ops.special import Erf
from netspec.graph.ops.trigonometry import Acos, Acosh, Asin, Asinh, Atan, Atanh, Cos, Cosh, Sin, Sinh, tan
from netspec.graph.types import DType
from netspec.graph.value import Value
from netspec.layers.activation import piecewise, smooth
from netspec.layers.activation.base import ActivationSpec
from netspec.schema.language.formula import Formula, Function
from netspec.schema.specs.kinds import ACTIVATIONS

CONSTANTS = {"pi": pi, "e": e}


def _where(condition: Value, a: Value, b: Value) -> Value:
    return Where()(condition, a, b)


def _clip(x: Value, low: Value, high: Value) -> Value:
    return Minimum()(Maximum()(x, low), high)


def _activations() -> dict[str, Function]:
    """All elementwise activation functions, with their default fields."""
    families = piecewise.__name__, smooth.__name__

    functions = {}
    for cls in ACTIVATIONS.registered():
        if cls.__module__ in families:
            activation = cls()
            assert isinstance(activation, ActivationSpec)
            functions[cls.model_fields["type"].default] = Function(activation.apply, 1, 1)
    return functions


_UNARY: dict[str, Op] = {
    "abs": ops.Abs(), "exp": ops.Exp(), "expm1": ops.Expm1(), "log": ops.Log(), "sqrt": ops.Sqrt(), "sign": ops.Sign(),
    "floor": Floor(), "ceil": Ceil(), "round": Round(), "sin": Sin(), "cos": Cos(), "asin": Asin(), "acos": Acos(),
    "atan": Atan(), "sinh": Sinh(), "cosh": Cosh(), "asinh": Asinh(), "acosh": Acosh(), "atanh": Atanh(), "erf": Erf(),
    "isnan": IsNaN(), "isinf": IsInf(),
}  # fmt: skip
_INTEGER_BINARY: dict[str, Op] = {
    "quotient": TruncDiv(), "bit_and": BitAnd(), "bit_or": BitOr(), "bit_xor": BitXor(), "shift_left": ShiftLeft(),
    "shift_right": ShiftRight(),
}  # fmt: skip
INTEGER_FUNCTIONS: dict[str, Function] = {
    **{name: Function(op, 2, 2) for name, op in _INTEGER_BINARY.items()},
    "bit_not": Function(BitNot(), 1, 1),
}
"""Functions that accept only integers, and return integers."""
FUNCTIONS: dict[str, Function] = {
    **{name: Function(op, 1, 1) for name, op in _UNARY.items()},
    "tan": Function(tan, 1, 1),
    "fmod": Function(trunc_mod, 2, 2),
    "xor": Function(Xor(), 2, 2),
    **INTEGER_FUNCTIONS,
    "min": Function(lambda *values: reduce(Minimum(), values), 2, None),
    "max": Function(lambda *values: reduce(Maximum(), values), 2, None),
    "clip": Function(_clip, 3, 3),
    "where": Function(_where, 3, 3),
    **_activations(),
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow,
}  # fmt: skip
"""Arithmetic on constants."""
_OF_VALUES: dict[str, Callable[[Value, Value], Value]] = _ARITHMETIC | {"//": floor_div, "%": floor_mod, "**": power}
"""Operations on values of the graph."""
_COMPARISONS: dict[str, Callable[[Value, Value], Value]] = {
    ">": Greater(),
    ">=": GreaterOrEqual(),
    "<": lambda a, b: Greater()(b, a),
    "<=": LessOrEqual(),
    "==": Equal(),
    "!=": lambda a, b: Not()(Equal()(a, b)),
}

TERMS: dict[Op, str] = {
    **{
        function.call: f"{name}({', '.join(f'{{{k}}}' for k in range(function.least))})"
        for name, function in FUNCTIONS.items()
        if isinstance(function.call, Op)
    },
    **{call: f"{{0}} {sign} {{1}}" for sign, call in _COMPARISONS.items() if isinstance(call, Op)},
    And(): "{0} and {1}",
    Or(): "{0} or {1}",
    Not(): "not {0}",
}
"""Ops that a formula expresses by one name or sign, as templates with the operands `{0}`, `{1}`, …"""


def as_value(value: Value) -> float:
    """Evaluate a value that is computed from constants."""
    import numpy as np

    def array(x: Value) -> Any:
        return x.op.forward(np, *map(array, x.inputs))

    with np.errstate(all="ignore"):
        return float(array(value))


class GraphFormula(Formula):
    """A formula that builds graph values: floats of one type, or also integers and booleans.

    Arithmetic between constants uses Python numbers; combined with a graph value, a constant takes its type.
    """

    functions = FUNCTIONS
    example = "x * sigmoid(1.7 * x)"
    grammar = "numbers, the names of inputs and parameters, + - * / // % **, comparisons, and/or/not, a if b else c"

    def __init__(self, text: str, dtype: DType = DType.FLOAT32) -> None:
        super().__init__(text)
        self.dtype = dtype

    def constant(self, node: ast.expr, value: Any) -> float:
        """A number; the formula has no string or boolean constants."""
        if isinstance(value, (bool, str)):
            raise self.fail(node, "this is not a number", expected=self.grammar)
        return self._finite(node, float(value))

    def variable(self, node: ast.Name, name: str, scope: Mapping[str, Any]) -> Any:
        """An input, a parameter, or a named constant."""
        value = scope.get(name, CONSTANTS.get(name))
        if value is None:
            variables = [*scope, *CONSTANTS]
            raise self.fail(
                node,
                f"`{name}` is a function"
                if name in self.functions
                else f"there is no input, parameter or constant `{name}`",
                expected=None if name in self.functions else f"one of {listing(variables)}",
                hint=f"write {name}(…)" if name in self.functions else did_you_mean(name, variables),
            )
        return value

    def negation(self, node: ast.expr, value: Any) -> Value:
        """The negated condition."""
        return Not()(self._condition(node, value))

    def logical(self, node: ast.BoolOp, values: Any, *, either: bool) -> Value:
        """Conditions joined by "and" or "or"; all of them are computed."""
        conditions = [self._condition(part, value) for part, value in zip(node.values, values, strict=True)]
        return reduce(Or() if either else And(), conditions)

    def with_sign(self, node: ast.expr, value: Any, *, negative: bool) -> Any:
        """The operand, or its negative."""
        number = self._number(node, value)
        return -number if negative else number

    def arithmetic(self, node: ast.BinOp, sign: str, left: Any, right: Any) -> Any:
        """A sum, product, quotient, remainder or power."""
        self._number(node.left, left)
        self._number(node.right, right)
        if sign not in _ARITHMETIC:
            raise self.fail(node, f"`{sign}` is not allowed here", expected=self.grammar)
        if not isinstance(left, Value) and not isinstance(right, Value):
            try:
                return self._finite(node, _ARITHMETIC[sign](left, right))
            except (ZeroDivisionError, OverflowError):
                raise self.fail(node, f"{self.source(node)} has no value") from None
        if sign == "**" and isinstance(left, Value) and left.dtype.is_float and not isinstance(right, Value):
            return Pow(right)(left)
        first, second = self._values(node, [left, right], common_type=sign != "**")
        if sign == "/" and not first.dtype.is_float:
            hint = "x // y rounds down, quotient(x, y) rounds toward 0"
            raise self.fail(node, "`/` is not defined for integers", hint=hint)
        return _OF_VALUES[sign](first, second)

    def comparison(self, node: ast.Compare, signs: Sequence[str], values: Sequence[Any]) -> Value:
        """A comparison, which is a condition for `where`."""
        for part, value in zip((node.left, *node.comparators), values, strict=True):
            self._number(part, value)
        if not set(signs) <= set(_COMPARISONS):
            raise self.fail(node, "this comparison is not allowed here", expected=f"one of {', '.join(_COMPARISONS)}")
        operands = self._values(node, values)
        return reduce(And(), (_COMPARISONS[sign](*operands[index : index + 2]) for index, sign in enumerate(signs)))

    def choice(self, node: ast.IfExp, test: Any, body: Callable[[], Any], orelse: Callable[[], Any]) -> Value:
        """Elementwise choice; both alternatives are computed."""
        return self._chosen(node, [node.test, node.body, node.orelse], [test, body(), orelse()], _where)

    def item(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """Refuse indexing: a formula is elementwise."""
        raise self.fail(node, "`[…]` is not allowed here", hint="the layers Slice and Split take parts of an input")

    def call(self, node: ast.Call, name: str, function: Function, values: list[Any]) -> Any:
        """Call a function of values."""
        if name == "where":
            return self._chosen(node, node.args, values, function.call)
        if name == "xor":
            return function.call(*(self._condition(*argument) for argument in zip(node.args, values, strict=True)))
        for part, value in zip(node.args, values, strict=True):
            self._number(part, value)
        if name in INTEGER_FUNCTIONS and not any(
            isinstance(value, Value) and not value.dtype.is_float for value in values
        ):
            hint = "`keep_types: true` computes with integers"
            raise self.fail(node, f"`{name}` needs an integer", hint=hint)
        if any(isinstance(value, Value) for value in values):
            return function.call(*self._values(node, values))
        result = function.call(*(scalar(value, DType.FLOAT64) for value in values))
        return self._finite(node, as_value(result))

    def _chosen(
        self, node: ast.expr, parts: Sequence[ast.expr], values: Sequence[Any], call: Callable[..., Value]
    ) -> Value:
        condition, others = self._condition(parts[0], values[0]), values[1:]
        for part, value in zip(parts[1:], others, strict=True):
            self._number(part, value)
        return call(condition, *self._values(node, others))

    def _condition(self, node: ast.expr, value: Any) -> Value:
        if not (isinstance(value, Value) and value.dtype == DType.BOOL):
            raise self.fail(node, "this is not a condition", expected="a comparison, such as x > 0")
        return value

    def _values(self, node: ast.expr, values: Sequence[Any], *, common_type: bool = True) -> list[Value]:
        """Convert constants to the type of the other operands; if `common_type`, convert all operands to one type."""
        types = dict.fromkeys(value.dtype for value in values if isinstance(value, Value))
        floats = [dtype for dtype in types if dtype.is_float]
        dtype = next(iter(types), self.dtype)
        if common_type and len(types) > 1:
            dtype = floats[0] if floats else DType.INT64
        for value in values:
            if not (isinstance(value, Value) or dtype.is_float or float(value).is_integer()):
                raise self.fail(node, f"{value:g} must be an integer: the expression computes with integers")
        operands = [value if isinstance(value, Value) else scalar(value, dtype) for value in values]
        return [cast(operand, dtype) for operand in operands] if common_type else operands

    def _number(self, node: ast.expr, value: Any) -> Any:
        if isinstance(value, Value) and value.dtype == DType.BOOL:
            raise self.fail(node, "this is a condition, not a number", hint="write `1 if condition else 0`")
        return value

    def _finite(self, node: ast.expr, value: Any) -> float:
        if isinstance(value, complex) or not isfinite(value):
            raise self.fail(node, f"{self.source(node)} is not a finite number")
        return float(value)

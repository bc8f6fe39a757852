"""The layer Expression: elementwise arithmetic written in the spec, as values of the graph."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import e, isfinite, pi
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.errors import did_you_mean, listing
from netspec.graph.ops import functions as ops
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
)  # fmt: skip
from netspec.graph.ops.logic import And, Not, Or
from netspec.graph.ops.source import Input
from netspec.graph.ops.special import Erf
from netspec.graph.ops.trigonometry import Atan, Cos, Sin, tan
from netspec.graph.types import DType, TensorType
from netspec.graph.value import Value
from netspec.layers import piecewise_activations, smooth_activations
from netspec.layers.activations import ActivationSpec
from netspec.layers.base import Builder, LayerSpec, Sample, need
from netspec.layers.constraints import Constraint
from netspec.layers.initializers import Initializer, Ones
from netspec.layers.regularizers import Regularizer
from netspec.schema.formula import ExpressionError, Formula, Function
from netspec.schema.kinds import ACTIVATIONS, LAYERS
from netspec.schema.named import Names
from netspec.schema.spec import Spec, problem

CONSTANTS = {"pi": pi, "e": e}
DEFAULT_NAMES = ("x", "y", "z")


def _where(condition: Value, a: Value, b: Value) -> Value:
    return Where()(condition, a, b)


def _clip(x: Value, low: Value, high: Value) -> Value:
    return Minimum()(Maximum()(x, low), high)


def _activations() -> dict[str, Function]:
    """All functions of single elements, with their default fields."""
    families = piecewise_activations.__name__, smooth_activations.__name__
    found = {}
    for cls in ACTIVATIONS.known():
        if cls.__module__ in families:
            made = cls()
            assert isinstance(made, ActivationSpec)
            found[cls.model_fields["type"].default] = Function(made.of, 1, 1)
    return found


FUNCTIONS: dict[str, Function] = {
    "abs": Function(ops.Abs(), 1, 1),
    "exp": Function(ops.Exp(), 1, 1),
    "expm1": Function(ops.Expm1(), 1, 1),
    "log": Function(ops.Log(), 1, 1),
    "sqrt": Function(ops.Sqrt(), 1, 1),
    "sign": Function(ops.Sign(), 1, 1),
    "sin": Function(Sin(), 1, 1),
    "cos": Function(Cos(), 1, 1),
    "tan": Function(tan, 1, 1),
    "atan": Function(Atan(), 1, 1),
    "erf": Function(Erf(), 1, 1),
    "min": Function(lambda *values: reduce(Minimum(), values), 2, None),
    "max": Function(lambda *values: reduce(Maximum(), values), 2, None),
    "clip": Function(_clip, 3, 3),
    "where": Function(_where, 3, 3),
    **_activations(),
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
_COMPARISONS: dict[str, Callable[[Value, Value], Value]] = {
    ">": Greater(),
    ">=": GreaterOrEqual(),
    "<": lambda a, b: Greater()(b, a),
    "<=": LessOrEqual(),
    "==": Equal(),
    "!=": lambda a, b: Not()(Equal()(a, b)),
}


def computed(value: Value) -> float:
    """The number that a value of constants alone is."""
    import numpy as np

    def array(one: Value) -> Any:
        return one.op.forward(np, *map(array, one.inputs))

    with np.errstate(all="ignore"):
        return float(array(value))


class GraphFormula(Formula):
    """A formula that makes values of a graph, of floats of one type; numbers stay numbers among themselves."""

    functions = FUNCTIONS
    example = "x * sigmoid(1.7 * x)"
    grammar = "numbers, the names of inputs and parameters, + - * / **, comparisons, and/or/not, a if b else c"

    def __init__(self, text: str, dtype: DType = DType.FLOAT32) -> None:
        super().__init__(text)
        self.dtype = dtype

    def constant(self, node: ast.expr, value: Any) -> float:
        """A number; there are no texts and truth values here."""
        if isinstance(value, (bool, str)):
            raise self.fail(node, "this is no number", expected=self.grammar)
        return self._finite(node, float(value))

    def variable(self, node: ast.Name, name: str, scope: Mapping[str, Any]) -> Any:
        """An input, a parameter, or a known number."""
        found = scope.get(name, CONSTANTS.get(name))
        if found is None:
            known = [*scope, *CONSTANTS]
            raise self.fail(
                node,
                f"`{name}` is a function" if name in self.functions else f"nothing here is called `{name}`",
                expected=None if name in self.functions else f"one of {listing(known)}",
                hint=f"write {name}(…)" if name in self.functions else did_you_mean(name, known),
            )
        return found

    def opposite(self, node: ast.expr, value: Any) -> Value:
        """The condition that holds where the other does not."""
        return Not()(self._condition(node, value))

    def joined(self, node: ast.BoolOp, values: Any, *, either: bool) -> Value:
        """A condition of conditions, all of which are computed."""
        conditions = [self._condition(part, value) for part, value in zip(node.values, values, strict=True)]
        return reduce(Or() if either else And(), conditions)

    def signed(self, node: ast.expr, value: Any, *, negative: bool) -> Any:
        """The number, or its negative."""
        number = self._number(node, value)
        return -number if negative else number

    def arithmetic(self, node: ast.BinOp, sign: str, left: Any, right: Any) -> Any:
        """Sums, products, quotients, and powers with numbers as exponents."""
        self._number(node.left, left)
        self._number(node.right, right)
        if sign == "**" and isinstance(left, Value):
            if isinstance(right, Value):
                raise self.fail(node.right, "the exponent is no number", hint="a power of e is written exp(…)")
            return Pow(right)(left)
        function = operator.pow if sign == "**" and not isinstance(right, Value) else _ARITHMETIC.get(sign)
        if function is None:
            raise self.fail(node, f"`{sign}` is not allowed here", expected=self.grammar)
        if isinstance(left, Value) or isinstance(right, Value):
            return function(left, right)
        try:
            return self._finite(node, function(left, right))
        except (ZeroDivisionError, OverflowError):
            raise self.fail(node, f"{self.source(node)} has no value") from None

    def comparison(self, node: ast.Compare, signs: Sequence[str], values: Sequence[Any]) -> Value:
        """A condition, for what chooses."""
        for part, value in zip((node.left, *node.comparators), values, strict=True):
            self._number(part, value)
        if not set(signs) <= set(_COMPARISONS):
            raise self.fail(node, "this comparison is not allowed here", expected=f"one of {', '.join(_COMPARISONS)}")
        made = list(map(self._value, values))
        return reduce(And(), (_COMPARISONS[sign](*made[index : index + 2]) for index, sign in enumerate(signs)))

    def choice(self, node: ast.IfExp, test: Any, body: Callable[[], Any], orelse: Callable[[], Any]) -> Value:
        """Each element from one of both; both are computed."""
        return self._chosen(node, [node.test, node.body, node.orelse], [test, body(), orelse()], _where)

    def item(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """There is none: a formula is of single elements."""
        raise self.fail(node, "`[…]` is not allowed here", hint="the layers Slice and Split take parts of an input")

    def called(self, node: ast.Call, name: str, function: Function, values: list[Any]) -> Any:
        """The function of values."""
        if name == "where":
            return self._chosen(node, node.args, values, function.call)
        for part, value in zip(node.args, values, strict=True):
            self._number(part, value)
        if any(isinstance(value, Value) for value in values):
            return function.call(*map(self._value, values))
        made = function.call(*(scalar(value, DType.FLOAT64) for value in values))
        return self._finite(node, computed(made))

    def _chosen(
        self, node: ast.expr, parts: Sequence[ast.expr], values: Sequence[Any], call: Callable[..., Value]
    ) -> Value:
        condition, others = self._condition(parts[0], values[0]), values[1:]
        for part, value in zip(parts[1:], others, strict=True):
            self._number(part, value)
        return call(condition, *map(self._value, others))

    def _condition(self, node: ast.expr, value: Any) -> Value:
        if not (isinstance(value, Value) and value.dtype == DType.BOOL):
            raise self.fail(node, "this is no condition", expected="a comparison, such as x > 0")
        return value

    def _value(self, value: Any) -> Value:
        return value if isinstance(value, Value) else scalar(value, self.dtype)

    def _number(self, node: ast.expr, value: Any) -> Any:
        if isinstance(value, Value) and value.dtype == DType.BOOL:
            raise self.fail(node, "this is a condition, and no number", hint="write `1 if condition else 0`")
        return value

    def _finite(self, node: ast.expr, value: Any) -> float:
        if isinstance(value, complex) or not isfinite(value):
            raise self.fail(node, f"{self.source(node)} is no finite number")
        return float(value)


class ParameterSpec(Spec):
    """A learned array in an Expression."""

    shape: tuple[int, ...] = Field(default=(), strict=False)
    """its sizes, which broadcast with the inputs: [] is one number for all, [C, 1, 1] one for each channel of images"""
    initializer: Initializer = Ones()
    """first values"""
    regularizer: Regularizer | None = None
    """penalty on it, added to the loss"""
    constraint: Constraint | None = None
    """what it is projected on after each step"""


@LAYERS.register
class Expression(LayerSpec):
    """Compute a formula of the inputs, element by element: `expr: "x * sigmoid(1.7 * x)"`.

    Inputs (N, …) of shapes that broadcast, output of their common shape. The formula has numbers, `+ - * / **` (with a
    number as exponent), `a if x > y and not x > 3 else b`, the constants pi and e, and functions: abs, exp, expm1, log,
    sqrt, sign, sin, cos, tan, atan, erf, min, max, clip(x, low, high), where(condition, a, b), and every activation
    function of single elements. It is part of the graph as any layer is: differentiated, fused with its neighbours.
    """

    one_way: ClassVar = "it is written as the operators that its formula is made of"
    type: Literal["Expression"] = "Expression"
    expr: str
    """the formula"""
    inputs: Names | None = None
    """what the formula calls the inputs, in the order of `from`; default: x, y, z"""
    parameters: dict[str, ParameterSpec] = Field(default_factory=dict)
    """learned arrays by the names that the formula has for them: `{beta: {shape: [], initializer: ones}}`"""

    samples: ClassVar[Any] = (
        Sample.of((2, 3, 4), expr="x * sigmoid(1.7 * x)"),
        Sample.of((2, 3, 4), expr="sin(x) * log(3) if -1 < x < 1 and x != 0 else cos(x) if not x > 2 or x > 4 else -x"),
        Sample.of((2, 3), (2, 1), expr="(x - y) ** 2 / (1 + abs(y)) + max(x, y, 0.1) - pi * atan(x)"),
        Sample.of(
            (2, 3, 2), (2, 3, 2), inputs=["a", "gate"], expr="a * gate if a > 0.1 else where(gate <= a, -a, tanh(gate))"
        ),
        Sample.of(
            (2, 3, 2),
            expr="gain * x + shift",
            parameters={"gain": {"shape": [3, 1]}, "shift": {"initializer": "zeros"}},
        ),
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        names = self.inputs or DEFAULT_NAMES
        for field, given in (("inputs", self.inputs or ()), ("parameters", tuple(self.parameters))):
            for index, name in enumerate(given):
                taken = name in FUNCTIONS or name in CONSTANTS
                if (
                    not name.isidentifier()
                    or taken
                    or (field == "parameters" and name in names)
                    or name in given[:index]
                ):
                    raise problem(
                        f"a formula can't call {'an input' if field == 'inputs' else 'a parameter'} `{name}`",
                        field=f"{field}.{index if field == 'inputs' else name}",
                        expected="a name of letters, digits and _, which nothing else has",
                        got=f"the name of {'a function' if name in FUNCTIONS else 'a number'}" if taken else repr(name),
                    )
        try:
            dry = {name: Input(name, TensorType((), DType.FLOAT32))() for name in (*names, *self.parameters)}
            made = GraphFormula(self.expr).walk(dry)
        except ExpressionError as error:
            raise problem(
                error.message, field="expr", expected=error.expected, hint=error.hint, inside=(self.expr, error.offset)
            ) from None
        if not isinstance(made, Value):
            raise problem("the formula is a number: it uses no input", field="expr", expected="a formula of the inputs")
        return self

    def build(self, net: Builder, x: Value, *others: Value) -> Value:
        """x, others: (N, …), which broadcast → (N, …)."""
        values = [net.floating(value) for value in (x, *others)]
        names = self.inputs or DEFAULT_NAMES[: len(values)]
        need(
            len(names) == len(values), "the formula has names for another number of inputs",
            expected=f"{len(names)} inputs: {', '.join(names)}", got=f"{len(values)} in `from`",
        )  # fmt: skip
        scope = dict(zip(names, values, strict=True))
        missing = sorted(GraphFormula(self.expr).names() - {*scope, *self.parameters, *CONSTANTS})
        need(
            not missing,
            f"the formula uses `{', '.join(missing)}`, and there is no such input",
            expected=", ".join(scope),
        )
        for name, one in self.parameters.items():
            scope[name] = net.parameter(name, one.shape, one.initializer, one.regularizer, one.constraint)
        y = GraphFormula(self.expr, values[0].dtype).walk(scope)
        fits = len(y.shape) == max(len(value.shape) for value in values) and y.shape[:1] == x.shape[:1]
        need(fits, "the parameters have more axes than the inputs", expected=f"as many as {x.type}", got=y.type)
        return cast(y, values[0].dtype)

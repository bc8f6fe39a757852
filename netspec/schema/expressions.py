"""The expressions of `${…}`: arithmetic over declared variables, by a walk over a parsed tree that can do nothing else.

Numbers, texts, `+ - * / // % **`, comparisons, `and or not`, `a if condition else b`, and the functions of
`FUNCTIONS`. There are no attributes, subscripts or calls of anything else, and the sizes of numbers, texts and of the
expression itself are bounded. `/` gives a float, `//` an integer; `round` rounds halves to even, as Python does.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from netspec.errors import did_you_mean, listing
from netspec.schema.scalars import MAX_INT

Value = bool | int | float | str

MAX_LENGTH = 1000
MAX_DEPTH = 60
MAX_TEXT = 10_000


class ExpressionError(Exception):
    """An expression that has no value: why, and where in its text (`offset`, in characters from 0)."""

    def __init__(self, message: str, offset: int = 0, *, expected: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.expected = expected
        self.hint = hint


class Unknown:
    """Stands in the scope for a variable whose own value is wrong, and has been reported."""


class Poisoned(Exception):
    """An expression uses an `Unknown` variable; no error of its own, as the cause has been reported."""


@dataclass(frozen=True)
class Function:
    """A function that expressions may call."""

    call: Callable[..., Any]
    least: int
    most: int | None


FUNCTIONS: dict[str, Function] = {
    "min": Function(min, 1, None),
    "max": Function(max, 1, None),
    "abs": Function(abs, 1, 1),
    "round": Function(round, 1, 2),
    "ceil": Function(math.ceil, 1, 1),
    "floor": Function(math.floor, 1, 1),
    "int": Function(int, 1, 1),
    "float": Function(float, 1, 1),
    "sqrt": Function(math.sqrt, 1, 1),
    "log": Function(math.log, 1, 2),
    "exp": Function(math.exp, 1, 1),
}

CONSTANTS: dict[str, Value] = {"true": True, "false": False}


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 63:
        raise OverflowError
    return base**exponent


_ARITHMETIC: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", _power),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


class Expression:
    """A parsed expression. Raises `ExpressionError` where its text is none."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._shift = len(text) - len(text.lstrip())
        body = text.strip().replace("\n", " ")
        if not body:
            raise ExpressionError("the expression is empty", expected="something like ${width * 2}")
        if len(body) > MAX_LENGTH:
            raise ExpressionError("the expression is too long", expected=f"at most {MAX_LENGTH} characters")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about odd literals; they parse all the same
                self._node = ast.parse(body, mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            column = (getattr(error, "offset", None) or 1) - 1
            raise ExpressionError(
                "this is no expression", self._shift + min(column, len(body)), expected="something like ${width * 2}"
            ) from None
        self._body = body.encode()

    def names(self) -> set[str]:
        """The variables it uses."""
        called = {id(node.func) for node in ast.walk(self._node) if isinstance(node, ast.Call)}
        names = (node for node in ast.walk(self._node) if isinstance(node, ast.Name) and id(node) not in called)
        return {node.id for node in names} - set(CONSTANTS)

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Its value where `scope` gives those of the variables. Raises `ExpressionError`, or `Poisoned`.

        One variable alone may be anything: a list that is given to a block, say.
        """
        if isinstance(self._node, ast.Name) and not isinstance(scope.get(self._node.id, Unknown()), Unknown):
            return scope[self._node.id]
        return self._value(self._node, scope, 0)

    def _fail(self, node: ast.AST, message: str, **facts: str | None) -> ExpressionError:
        column = getattr(node, "col_offset", 0)  # in bytes, and of the last of several lines
        return ExpressionError(message, self._shift + len(self._body[:column].decode(errors="replace")), **facts)

    def _value(self, node: ast.expr, scope: Mapping[str, Any], depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise self._fail(node, "the expression is nested too deeply", hint="give parts of it names in `vars`")
        below = depth + 1
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return self._bounded(node, value)
            case ast.Name(id=name):
                return self._variable(node, name, scope)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._value(operand, scope, below)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                number = self._number(operand, self._value(operand, scope, below), "-")
                return -number if isinstance(sign, ast.USub) else number
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return self._arithmetic(node, op, self._value(left, scope, below), self._value(right, scope, below))
            case ast.BoolOp(op=op, values=values):
                result: Value = False
                for item in values:
                    result = self._value(item, scope, below)
                    if bool(result) is isinstance(op, ast.Or):
                        break
                return result
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARISONS for op in ops):
                return self._comparison(node, [self._value(item, scope, below) for item in (left, *rights)])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._value(test, scope, below) else orelse, scope, below)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(node, name, [self._value(item, scope, below) for item in args])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            raise self._fail(node, "`^` is not allowed in an expression", hint="a power is written `**`")
        raise self._fail(
            node,
            "this is not allowed in an expression",
            expected=f"numbers, texts, variables, + - * / // % **, comparisons, and/or/not, a if b else c, "
            f"and the functions {listing(list(FUNCTIONS))}",
        )

    def _variable(self, node: ast.Name, name: str, scope: Mapping[str, Any]) -> Value:
        if name in scope:
            if isinstance(scope[name], Unknown):
                raise Poisoned
            value = scope[name]
            if isinstance(value, (bool, int, float, str)):
                return value
            kind = "nothing (null)" if value is None else "a mapping" if isinstance(value, Mapping) else "a list"
            raise self._fail(node, f"`{name}` is {kind}, which no arithmetic takes", hint=f"`${{{name}}}` alone is it")
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in FUNCTIONS:
            raise self._fail(node, f"`{name}` is a function", hint=f"write {name}(…)")
        raise self._fail(
            node,
            f"no variable `{name}` is declared",
            expected=f"one of {listing(list(scope))}" if scope else "a name declared under `vars`",
            hint=did_you_mean(name, scope) or (None if scope else f"declare it: `vars: {{{name}: …}}`"),
        )

    def _arithmetic(self, node: ast.BinOp, op: ast.operator, left: Value, right: Value) -> Value:
        sign, function = _ARITHMETIC[type(op)]
        if not (sign == "+" and isinstance(left, str) and isinstance(right, str)):
            self._number(node.left, left, sign)
            self._number(node.right, right, sign)
        return self._computed(node, function, left, right)

    def _number(self, node: ast.AST, value: Value, sign: str) -> int | float:
        if isinstance(value, (bool, str)):
            kind = "text" if isinstance(value, str) else "a truth value"
            raise self._fail(node, f"`{sign}` needs numbers, and this is {kind}: {_shown(value)}")
        return value

    def _comparison(self, node: ast.Compare, values: list[Value]) -> bool:
        for left, op, right in zip(values, node.ops, values[1:], strict=False):
            sign, function = _COMPARISONS[type(op)]
            if sign not in ("==", "!=") and isinstance(left, str) != isinstance(right, str):
                raise self._fail(node, f"`{sign}` can't compare {_shown(left)} with {_shown(right)}")
            if not function(left, right):
                return False
        return True

    def _call(self, node: ast.Call, name: str, values: list[Value]) -> Value:
        function = FUNCTIONS.get(name)
        if function is None:
            raise self._fail(
                node,
                f"no function `{name}` is known",
                expected=f"one of {listing(list(FUNCTIONS))}",
                hint=did_you_mean(name, FUNCTIONS),
            )
        if len(values) < function.least or (function.most is not None and len(values) > function.most):
            most = "or more" if function.most is None else f"to {function.most}"
            least = str(function.least)
            wanted = least if function.least == function.most else f"{least} {most}"
            raise self._fail(node, f"`{name}` takes {wanted} value{'' if wanted == '1' else 's'}, not {len(values)}")
        for item, value in zip(node.args, values, strict=True):
            if name not in ("int", "float"):
                self._number(item, value, name)
        return self._computed(node, function.call, *values)

    def _computed(self, node: ast.expr, function: Callable[..., Any], *values: Value) -> Value:
        try:
            value = function(*values)
        except ZeroDivisionError:
            raise self._fail(node, f"division by zero: {self._source(node)}") from None
        except OverflowError:
            raise self._fail(node, f"the number is too large: {self._source(node)}") from None
        except (ValueError, TypeError):
            given = ", ".join(_shown(value) for value in values)
            raise self._fail(node, f"{self._source(node)} has no value for {given}") from None
        if isinstance(value, complex):
            raise self._fail(node, f"{self._source(node)} is not a real number")
        return self._bounded(node, value)

    def _bounded(self, node: ast.expr, value: Value) -> Value:
        if isinstance(value, int) and abs(value) > MAX_INT:
            raise self._fail(node, f"the number is too large: {self._source(node)}", expected="less than 2 ** 63")
        if isinstance(value, float) and not math.isfinite(value):
            raise self._fail(node, f"the number is too large: {self._source(node)}", expected="a finite number")
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise self._fail(node, "the text is too long", expected=f"at most {MAX_TEXT} characters")
        return value

    def _source(self, node: ast.expr) -> str:
        text = ast.get_source_segment(self._body.decode(), node) or self.text
        return text if len(text) <= 40 else text[:39] + "…"


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)

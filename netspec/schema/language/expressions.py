"""The expressions in `${…}`: arithmetic with declared variables, interpreted on the syntax tree without `eval`.

Numbers, texts, `+ - * / // % **`, comparisons, `and or not`, `a if condition else b`, `list[0]`, `mapping['key']`,
`x in list`, and the functions of `FUNCTIONS`. There are no attributes, slices or calls of anything else, and the sizes
of numbers, texts and of the expression itself are bounded. `/` gives a float, `//` an integer; `round` rounds halves to
even, as Python does.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from netspec.errors import counted, did_you_mean, listing
from netspec.schema.language.formula import Formula, Function
from netspec.schema.yaml.scalars import MAX_INT

Plain = bool | int | float | str
Value = Plain | Sequence[Any] | Mapping[str, Any] | None
"""Variables may be lists and mappings; arithmetic is possible with their items only."""

MAX_TEXT = 10_000


class Unknown:
    """Placeholder in the scope for a variable with an invalid value, which has been reported."""


class Poisoned(Exception):
    """An expression uses an `Unknown` variable; it is not reported, because the cause has been."""


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
    "len": Function(len, 1, 1),
}
_TAKES_MORE = frozenset({"int", "float", "len"})
"""Functions that accept arguments other than numbers."""

CONSTANTS: dict[str, Plain] = {"true": True, "false": False}


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and exponent > 63:
        raise OverflowError
    return base**exponent


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": _power,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Expression(Formula):
    """A parsed expression that computes a number, a text or a boolean."""

    functions = FUNCTIONS
    example = "${width * 2}"
    grammar = "numbers, strings, variables, + - * / // % **, comparisons, and/or/not, a if b else c, a[0], a in b"
    too_deep = "give parts of it names in `vars`"

    def names(self) -> set[str]:
        """Return the variables that the expression uses."""
        return super().names() - set(CONSTANTS)

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Evaluate the expression with the values of variables in `scope`. Raises `ExpressionError` or `Poisoned`."""
        return self.walk(scope)

    def constant(self, node: ast.expr, value: Plain) -> Plain:
        """Return the value. Raises `ExpressionError` if it is too large."""
        return self._bounded(node, value)

    def variable(self, node: ast.Name, name: str, scope: Mapping[str, Any]) -> Value:
        """Return the value of a variable, which may be a list or a mapping, such as a parameter of a block."""
        if name in scope:
            if isinstance(scope[name], Unknown):
                raise Poisoned
            return scope[name]  # type: ignore[no-any-return]  # scopes hold what documents hold
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in FUNCTIONS:
            raise self.fail(node, f"`{name}` is a function", hint=f"write {name}(…)")
        raise self.fail(
            node,
            f"no variable `{name}` is declared",
            expected=f"one of {listing(list(scope))}" if scope else "a name declared under `vars`",
            hint=did_you_mean(name, scope) or (None if scope else f"declare it: `vars: {{{name}: …}}`"),
        )

    def negation(self, node: ast.expr, value: Value) -> bool:
        """Return whether the value is false in a condition."""
        return not self._plain(node, value)

    def with_sign(self, node: ast.expr, value: Value, *, negative: bool) -> Plain:
        """Return the number, negated if `negative`."""
        number = self._number(node, value, "-")
        return -number if negative else number

    def logical(self, node: ast.BoolOp, values: Iterable[Value], *, either: bool) -> Plain:
        """Return the first value that decides the result, or else the last, as Python's `and` and `or` do."""
        result: Plain = False
        for part, value in zip(node.values, values, strict=False):
            result = self._plain(part, value)
            if bool(result) is either:
                break
        return result

    def choice(self, node: ast.IfExp, test: Value, body: Callable[[], Value], orelse: Callable[[], Value]) -> Value:
        """Return one of both values; the other is not computed."""
        return body() if self._plain(node.test, test) else orelse()

    def arithmetic(self, node: ast.BinOp, sign: str, left: Value, right: Value) -> Plain:
        """Return the result of an arithmetic operator; `+` also joins texts."""
        if not (sign == "+" and isinstance(left, str) and isinstance(right, str)):
            self._number(node.left, left, sign)
            self._number(node.right, right, sign)
        return self._computed(node, _ARITHMETIC[sign], left, right)

    def _plain(self, node: ast.expr, value: Value) -> Plain:
        if isinstance(value, (bool, int, float, str)):
            return value
        source = self.source(node)
        raise self.fail(
            node,
            f"`{source}` is {_kind(value)}, which cannot be used here",
            expected="a number, text or boolean",
            hint=f"{source}[0] is its first item" if _is_list(value) and value else None,
        )

    def _number(self, node: ast.expr, value: Value, sign: str) -> int | float:
        value = self._plain(node, value)
        if isinstance(value, (bool, str)):
            kind = "text" if isinstance(value, str) else "a boolean"
            raise self.fail(node, f"`{sign}` needs numbers, but this is {kind}: {_shown(value)}")
        return value

    def comparison(self, node: ast.Compare, signs: Sequence[str], values: Sequence[Value]) -> bool:
        """Return whether all comparisons of a chain hold; stop at the first that does not."""
        parts = (node.left, *node.comparators)
        return all(
            self._holds(node, sign, parts[index : index + 2], values[index : index + 2])
            for index, sign in enumerate(signs)
        )

    def _holds(self, node: ast.Compare, sign: str, parts: Sequence[ast.expr], values: Sequence[Value]) -> bool:
        left = self._plain(parts[0], values[0])
        if sign in ("in", "not in"):
            container = values[1]
            if not (_is_list(container) or isinstance(container, (str, Mapping) if isinstance(left, str) else Mapping)):
                raise self.fail(parts[1], f"`{sign}` cannot search {_kind(container)} for {_shown(left)}",
                                expected="a list, a mapping, or text")  # fmt: skip
            return (left in container) is (sign == "in")
        right = self._plain(parts[1], values[1])
        if sign not in ("==", "!=") and isinstance(left, str) != isinstance(right, str):
            raise self.fail(node, f"`{sign}` can't compare {_shown(left)} with {_shown(right)}")
        return _COMPARISONS[sign](left, right)

    def item(self, node: ast.Subscript, value: Value, index: Value) -> Value:
        """Return an item of a list by its index (negative from the end), or of a mapping by its key."""
        source, index = self.source(node.value), self._plain(node.slice, index)
        if isinstance(value, Mapping):
            if index in value:
                return value[str(index)]  # type: ignore[no-any-return]  # documents hold anything
            raise self.fail(
                node.slice, f"`{source}` has no key {_shown(index)}", expected=f"one of {listing(list(value))}",
                hint=did_you_mean(str(index), list(value)),
            )  # fmt: skip
        if not _is_list(value):
            raise self.fail(node, f"`{source}` is {_kind(value)}, which has no items", expected="a list or a mapping")
        if isinstance(index, (bool, float, str)):
            raise self.fail(node.slice, f"a list index must be an integer, not {_shown(index)}")
        if not -len(value) <= index < len(value):
            last = f"an index from 0 to {len(value) - 1}" if value else "a list with items"
            raise self.fail(
                node.slice,
                f"index {index} is out of range: `{source}` has {counted(len(value), 'item')}",
                expected=last,
            )
        return value[index]  # type: ignore[no-any-return]  # likewise

    def call(self, node: ast.Call, name: str, function: Function, values: list[Value]) -> Plain:
        """Return the result of a function."""
        for item, value in zip(node.args, values, strict=True):
            if name not in _TAKES_MORE:
                self._number(item, value, name)
        return self._computed(node, function.call, *values)

    def _computed(self, node: ast.expr, function: Callable[..., Any], *values: Value) -> Plain:
        try:
            value = function(*values)
        except ZeroDivisionError:
            raise self.fail(node, f"division by zero: {self.source(node)}") from None
        except OverflowError:
            raise self.fail(node, f"the number is too large: {self.source(node)}") from None
        except (ValueError, TypeError):
            raise self.fail(node, f"{self.source(node)} cannot be computed") from None
        if isinstance(value, complex):
            raise self.fail(node, f"{self.source(node)} is not a real number")
        return self._bounded(node, value)

    def _bounded(self, node: ast.expr, value: Plain) -> Plain:
        if isinstance(value, int) and abs(value) > MAX_INT:
            raise self.fail(node, f"the number is too large: {self.source(node)}", expected="less than 2 ** 63")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.fail(node, f"the number is too large: {self.source(node)}", expected="a finite number")
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise self.fail(node, "the text is too long", expected=f"at most {MAX_TEXT} characters")
        return value


def _is_list(value: Value) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _kind(value: Value) -> str:
    if isinstance(value, (bool, int, float, str)):
        return "text" if isinstance(value, str) else "a boolean" if isinstance(value, bool) else "a number"
    return "nothing (null)" if value is None else "a mapping" if isinstance(value, Mapping) else "a list"


def _shown(value: Value) -> str:
    if _is_list(value) or isinstance(value, Mapping):
        return _kind(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)

"""Formulas: texts in the grammar of arithmetic, interpreted on the syntax tree without `eval`.

Numbers, texts, names, `+ - * / // % **`, comparisons, `and or not`, `a if condition else b`, `list[0]`, and calls of
functions by their names. There are no attributes, slices or calls of anything else, and the sizes of a text and of its
nesting are bounded. Subclasses define the meaning: `${…}` computes values, the layer Expression builds graph nodes.
"""

from __future__ import annotations

import ast
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from netspec.errors import did_you_mean, listing

MAX_LENGTH = 1000
MAX_DEPTH = 60


class ExpressionError(Exception):
    """An expression cannot be evaluated; `offset` is the position of the error in its text, in characters from 0."""

    def __init__(self, message: str, offset: int = 0, *, expected: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.expected = expected
        self.hint = hint


@dataclass(frozen=True)
class Function:
    """A function that expressions may call."""

    call: Callable[..., Any]
    least: int
    most: int | None


SIGNS: dict[type[ast.operator] | type[ast.cmpop], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
"""The symbol of each operator."""


class Formula(ABC):
    """A parsed formula. Raises `ExpressionError` if the text is not a formula."""

    functions: ClassVar[Mapping[str, Function]]
    example: ClassVar[str]
    """Example of a formula, for messages."""
    grammar: ClassVar[str]
    """Description of the grammar, for messages; the functions are added."""
    too_deep: ClassVar[str | None] = None
    """Advice for a formula that is nested too deeply."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._shift = len(text) - len(text.lstrip())
        body = text.strip().replace("\n", " ")
        if not body:
            raise ExpressionError("the expression is empty", expected=f"something like {self.example}")
        if len(body) > MAX_LENGTH:
            raise ExpressionError("the expression is too long", expected=f"at most {MAX_LENGTH} characters")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # literals such as `1if x` parse with a warning
                self.node = ast.parse(body, mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            column = (getattr(error, "offset", None) or 1) - 1
            raise ExpressionError(
                "invalid expression", self._shift + min(column, len(body)), expected=f"something like {self.example}"
            ) from None
        self._body = body.encode()

    def names(self) -> set[str]:
        """Return the names that the formula uses, other than those of functions."""
        called = {id(node.func) for node in ast.walk(self.node) if isinstance(node, ast.Call)}
        names = (node for node in ast.walk(self.node) if isinstance(node, ast.Name) and id(node) not in called)
        return {node.id for node in names}

    def walk(self, scope: Mapping[str, Any]) -> Any:
        """Evaluate the formula with the values of names in `scope`."""
        return self._walk(self.node, scope, 0)

    def _walk(self, node: ast.expr, scope: Mapping[str, Any], depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.fail(node, "the expression is nested too deeply", hint=self.too_deep)

        def below(part: ast.expr) -> Any:
            return self._walk(part, scope, depth + 1)

        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return self.constant(node, value)
            case ast.Name(id=name):
                return self.variable(node, name, scope)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.negation(operand, below(operand))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                return self.with_sign(operand, below(operand), negative=isinstance(sign, ast.USub))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SIGNS:
                return self.arithmetic(node, SIGNS[type(op)], below(left), below(right))
            case ast.BoolOp(op=op, values=values):
                return self.logical(node, (below(item) for item in values), either=isinstance(op, ast.Or))
            case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in SIGNS for op in ops):
                return self.comparison(node, [SIGNS[type(op)] for op in ops], [below(item) for item in (left, *rights)])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.choice(node, below(test), lambda: below(body), lambda: below(orelse))
            case ast.Subscript(value=value, slice=index) if not isinstance(index, (ast.Slice, ast.Tuple)):
                return self.item(node, below(value), below(index))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(node, name, [below(item) for item in args])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
            raise self.fail(node, "`^` is not allowed in an expression", hint="a power is written `**`")
        raise self.fail(
            node,
            f"`{self.source(node)}` is not allowed in an expression",
            expected=f"{self.grammar}, and the functions {listing(list(self.functions), 20)}",
        )

    @abstractmethod
    def constant(self, node: ast.expr, value: Any) -> Any:
        """A number, a text or a boolean as written."""

    @abstractmethod
    def variable(self, node: ast.Name, name: str, scope: Mapping[str, Any]) -> Any:
        """The value of a name."""

    @abstractmethod
    def negation(self, node: ast.expr, value: Any) -> Any:
        """`not value`"""

    @abstractmethod
    def with_sign(self, node: ast.expr, value: Any, *, negative: bool) -> Any:
        """`-value` or `+value`"""

    @abstractmethod
    def arithmetic(self, node: ast.BinOp, sign: str, left: Any, right: Any) -> Any:
        """`left sign right`"""

    @abstractmethod
    def logical(self, node: ast.BoolOp, values: Any, *, either: bool) -> Any:
        """`a or b or …` if `either`, else `a and b and …`; `values` is lazy."""

    @abstractmethod
    def comparison(self, node: ast.Compare, signs: Sequence[str], values: Sequence[Any]) -> Any:
        """`a < b < …`"""

    @abstractmethod
    def choice(self, node: ast.IfExp, test: Any, body: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
        """`body if test else orelse`"""

    @abstractmethod
    def item(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """`value[index]`"""

    @abstractmethod
    def call(self, node: ast.Call, name: str, function: Function, values: list[Any]) -> Any:
        """A call of a known function with a valid number of values."""

    def _call(self, node: ast.Call, name: str, values: list[Any]) -> Any:
        function = self.functions.get(name)
        if function is None:
            raise self.fail(
                node,
                f"unknown function `{name}`",
                expected=f"one of {listing(list(self.functions))}",
                hint=did_you_mean(name, self.functions),
            )
        if len(values) < function.least or (function.most is not None and len(values) > function.most):
            most = "or more" if function.most is None else f"to {function.most}"
            least = str(function.least)
            count = least if function.least == function.most else f"{least} {most}"
            raise self.fail(node, f"`{name}` takes {count} argument{'' if count == '1' else 's'}, got {len(values)}")
        return self.call(node, name, function, values)

    def fail(self, node: ast.AST, message: str, **facts: str | None) -> ExpressionError:
        """Return an error at the position of a node."""
        column = getattr(node, "col_offset", 0)  # in bytes of UTF-8
        return ExpressionError(message, self._shift + len(self._body[:column].decode(errors="replace")), **facts)

    def source(self, node: ast.expr) -> str:
        """The text of a node, shortened."""
        text = ast.get_source_segment(self._body.decode(), node) or self.text
        return text if len(text) <= 40 else text[:39] + "…"

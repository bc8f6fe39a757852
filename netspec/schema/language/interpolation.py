"""Evaluates `${…}` in the texts of a document with its `vars`, and inserts the values.

A text that is exactly one `${…}` takes the value's type; otherwise values are written into the text. `$${` stands for
a literal `${`. Variables may use each other in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from netspec.errors import Location, Problem
from netspec.schema.language.blocks import is_variable
from netspec.schema.language.expressions import MAX_TEXT, Expression, Poisoned, Unknown
from netspec.schema.language.formula import ExpressionError
from netspec.schema.yaml.tree import Map, Seq, copied

Part = str | tuple[int, Expression]
"""A piece of text, or an expression and where in the text its first character is."""

Scope = dict[str, Any]


class Evaluator:
    """Evaluates documents and collects problems; `failed` contains the locations of values that are unknown."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.failed: set[Location] = set()

    def scope(self, tree: Map, outer: Scope | None = None) -> Scope:
        """Evaluate the `vars` of a document in place; return all values by name, including those of `outer`."""
        variables = tree.get("vars")
        if not isinstance(variables, Map):
            return dict(outer or {})
        scope: Scope = dict(outer or {})
        parts: dict[str, list[Part]] = {}
        containers: dict[str, set[str]] = {}  # lists and mappings: the variables that the texts in them use
        for name, value in variables.items():
            scope[name] = Unknown()
            if not is_variable(name):
                self._add(
                    f"`{name}` cannot be the name of a variable",
                    variables.key_at[name],
                    f"vars.{name}",
                    expected="letters, digits and _, not starting with a digit",
                )
            elif isinstance(value, (bool, int, float)):
                scope[name] = value
            elif (
                isinstance(value, str)
                and (split := self._split(value, variables.value_at[name], f"vars.{name}")) is not None
            ):
                parts[name] = split
            elif isinstance(value, (Map, Seq)):
                containers[name] = set().union(*(variables_in(*text) for text in _texts(value)))
        uses = {name: {used for part in split if not isinstance(part, str) for used in part[1].names()}
                for name, split in parts.items()} | containers  # fmt: skip
        for name in self._ordered(variables, uses):
            if name in containers:
                self.evaluate(variables[name], scope, f"vars.{name}", ())
                scope[name] = self.evaluated(variables[name], variables.value_at[name])
                continue
            value = self._join(variables[name], parts[name], scope, variables.value_at[name], f"vars.{name}")
            scope[name] = value
            if not isinstance(value, Unknown):
                variables[name] = value
        return scope

    def evaluated(self, value: Any, location: Location) -> Any:
        """Return the value at `location`; `Unknown` if it, or anything in it, could not be evaluated."""
        if location in self.failed:
            return Unknown()
        inner = value.values() if isinstance(value, Map) else value if isinstance(value, Seq) else ()
        locations = (
            value.value_at.values() if isinstance(value, Map) else value.value_at if isinstance(value, Seq) else ()
        )
        items = zip(inner, locations, strict=True)
        return Unknown() if any(isinstance(self.evaluated(*item), Unknown) for item in items) else value

    def evaluate(self, tree: Map | Seq, scope: Scope, path: str = "", skip: tuple[str, ...] = ("vars",)) -> None:
        """Replace every text below `tree` by its value, in place; `skip` names top-level keys to leave unchanged."""
        items = list(tree.items()) if isinstance(tree, Map) else list(enumerate(tree))
        for step, value in items:
            if step in skip:
                continue
            below = f"{path}.{step}" if path else str(step)
            if isinstance(value, (Map, Seq)):
                self.evaluate(value, scope, below, ())
            elif isinstance(value, str) and "${" in value:
                location = tree.value_at[step]  # type: ignore[index]  # the step is the container's own
                tree[step] = self.text(value, scope, location, below)  # type: ignore[index]  # likewise

    def text(self, text: str, scope: Scope, location: Location, path: str) -> Any:
        """Evaluate one text; if that fails, return the text itself and add a problem."""
        parts = self._split(text, location, path)
        if parts is None:
            return text
        value = self._join(text, parts, scope, location, path)
        return text if isinstance(value, Unknown) else value

    def value(self, value: Any, scope: Scope, location: Location, path: str) -> Any:
        """Return a copy of a value with all texts in it evaluated."""
        holder = Seq(location)
        holder.add(copied(value), location)
        self.evaluate(holder, scope, path, ())
        return holder[0]

    def _add(self, message: str, location: Location, path: str, **facts: Any) -> None:
        self.problems.append(Problem(message, location, path, **facts))

    def _ordered(self, variables: Map, uses: dict[str, set[str]]) -> list[str]:
        """Return the variables in `uses`, each after those that it uses; cycles are reported and left out."""
        uses = {name: used & set(uses) for name, used in uses.items()}
        while True:
            try:
                return list(TopologicalSorter(uses).static_order())
            except CycleError as error:
                cycle: list[str] = list(reversed(error.args[1]))
                start = min(cycle, key=list(variables).index)
                turn = cycle.index(start)
                chain = [*cycle[turn:-1], *cycle[:turn], start] if turn else cycle
                self.failed.add(variables.value_at[start])
                itself = len(chain) == 2
                self._add(
                    "a variable depends on itself" if itself else "these variables depend on each other",
                    variables.value_at[start],
                    f"vars.{start}",
                    got=" → ".join(chain),
                    hint="set it to a value" if itself else "set one of them to a value without the others",
                )
                for name in set(cycle):
                    del uses[name]
                    self.failed.add(variables.value_at[name])
                uses = {name: used - set(cycle) for name, used in uses.items()}

    def _split(self, text: str, location: Location, path: str) -> list[Part] | None:
        """Split a text into its parts; None, with a problem, if an expression in it is invalid."""
        parts: list[Part] = []
        start = 0
        while (opening := text.find("${", start)) >= 0:
            if opening > start and text[opening - 1] == "$":
                parts.append(text[start : opening - 1] + "${")
                start = opening + 2
                continue
            parts.append(text[start:opening])
            end = _closing(text, opening + 2)
            try:
                if end is None:
                    raise ExpressionError("this `${` is not closed", -2, expected="a `}` after the expression")
                parts.append((opening + 2, Expression(text[opening + 2 : end])))
            except ExpressionError as error:
                self._fail(error, text, opening + 2, location, path)
                return None
            start = end + 1
        return [part for part in (*parts, text[start:]) if part != ""]

    def _join(self, text: str, parts: list[Part], scope: Scope, location: Location, path: str) -> Any:
        values: list[Any] = []
        for part in parts:
            if isinstance(part, str):
                values.append(part)
                continue
            offset, expression = part
            try:
                values.append(expression.evaluate(scope))
            except Poisoned:
                self.failed.add(location)
                return Unknown()
            except ExpressionError as error:
                self._fail(error, text, offset, location, path)
                return Unknown()
        if len(values) == 1:
            return copied(values[0])
        for part, value in zip(parts, values, strict=True):
            if not isinstance(value, (bool, int, float, str)):
                offset = part[0] if isinstance(part, tuple) else 0
                kind = "nothing (null)" if value is None else "a mapping" if isinstance(value, Map) else "a list"
                self._fail(ExpressionError(f"{kind} cannot be inserted into text"), text, offset, location, path)
                return Unknown()
        combined = "".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
        if len(combined) > max(MAX_TEXT, 2 * len(text)):
            self._fail(ExpressionError("the text is too long"), text, 0, location, path)
            return Unknown()
        return combined

    def _fail(self, error: ExpressionError, text: str, offset: int, location: Location, path: str) -> None:
        self.failed.add(location)
        self._add(
            error.message,
            location_in_text(location, text, offset, error.offset),
            path,
            expected=error.expected,
            hint=error.hint,
        )


def variables_in(text: str, location: Location) -> set[str]:
    """Return the variables that a text uses; empty if it is invalid, which its evaluation reports."""
    parts = Evaluator()._split(text, location, "") or []
    return {name for part in parts if not isinstance(part, str) for name in part[1].names()}


def _texts(value: Any) -> Iterator[tuple[str, Location]]:
    """The texts in a list or a mapping, with their locations."""
    items = (
        ((value[key], location) for key, location in value.value_at.items())
        if isinstance(value, Map)
        else zip(value, value.value_at, strict=True)
    )
    for item, location in items:
        if isinstance(item, str):
            yield item, location
        elif isinstance(item, (Map, Seq)):
            yield from _texts(item)


def _closing(text: str, start: int) -> int | None:
    """Return the position of the `}` that ends the expression starting at `start`; quotes may contain others."""
    quote = ""
    for index in range(start, len(text)):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "}":
            return index
    return None


def location_in_text(location: Location, text: str, start: int, offset: int) -> Location:
    """Return the location of character `start + offset` of a text written at `location`.

    Quotes, escapes and line breaks shift columns, so the expression is searched for in its line of the file. If it is
    not found, the location of the text is returned.
    """
    body = text[max(0, start - 2) : start + 200].partition("}")[0].partition("\n")[0]
    before = text[: max(0, start - 2)].count(body)
    column = location.column - 1
    for _ in range(before + 1):
        column = location.text.find(body, column)
        if column < 0:
            return location
        column += 1
    return replace(location, column=column + min(2, start) + max(offset, -2))


def escaped(value: Any) -> Any:
    """Return a value whose texts evaluate to themselves: `${` becomes `$${`, also in lists and mappings."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, (Map, Seq)):
        new = copied(value)
        for step, item in new.items() if isinstance(new, Map) else enumerate(new):
            new[step] = escaped(item)
        return new
    return value

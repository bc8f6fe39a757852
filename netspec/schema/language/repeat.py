"""`repeat`: what its variables are at each turn."""

from __future__ import annotations

from typing import Any

from netspec.errors import Location, Problem, listing
from netspec.schema.language.blocks import is_variable
from netspec.schema.language.interpolation import Evaluator, Scope, variables_in
from netspec.schema.specs.spec import describe
from netspec.schema.yaml.tree import Map, Seq

MAX_TURNS = 100_000

INDEX = "index"
"""The variable that counts the turns of a repetition, from 0."""


def turns(given: Any, place: Location, path: str, scope: Scope, evaluator: Evaluator) -> list[Scope] | None:
    """The values of the variables at each turn of the `repeat` written at `place`.

    A number counts `index`; a mapping has variables with a list of values, or a number to count to, all of one length.
    None, with a problem for the evaluator, if it cannot be determined.
    """
    path = f"{path}.repeat"
    value = evaluator.value(given, scope, place, path)
    several = isinstance(value, Map)
    variables: dict[str, Any] = value if several else {INDEX: value}
    problems: list[Problem] = []
    counts: dict[str, int] = {}
    unknown = place in evaluator.failed
    for name, one in variables.items():
        at = value.value_at[name] if several else place
        if at in evaluator.failed:
            unknown = True
        elif several and not is_variable(name):
            expected = "letters, digits and _, not starting with a digit"
            message = f"`{name}` can't be the name of a variable"
            problems.append(Problem(message, value.key_at[name], path, expected=expected))
        elif several and isinstance(one, Seq):
            counts[name] = len(one)
        elif isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= MAX_TURNS:
            counts[name] = one
        else:
            most = f"at most {MAX_TURNS} turns"
            expected = "a whole number of 0 or more, or variables with their values, such as `{width: [64, 128]}`"
            if isinstance(one, int) and one > MAX_TURNS:
                expected = most
            problems.append(
                Problem("`repeat` must be a number or lists of values", at, path, expected=expected, got=describe(one))
            )
    if not problems and not unknown and len(set(counts.values())) != 1:
        got = listing([f"{count} for `{name}`" for name, count in counts.items()]) or "no variable"
        message = "the variables of a `repeat` take as many values each"
        problems.append(Problem(message, place, path, expected="lists of one length, and numbers as large", got=got))
    evaluator.problems += problems
    if problems or unknown:
        return None
    return [
        {INDEX: turn, **{name: one[turn] if isinstance(one, Seq) else turn for name, one in variables.items()}}
        for turn in range(next(iter(counts.values())))
    ]


def uses(item: Map, key: str, variables: set[str]) -> bool:
    """Whether the text at `key`, or the first of a list of texts, uses one of the variables."""
    value = item[key]
    text = value[0] if isinstance(value, Seq) and value else value
    return isinstance(text, str) and not variables.isdisjoint(variables_in(text, item.value_at[key]))

"""`repeat`: the values of its variables in each repetition."""

from __future__ import annotations

from typing import Any

from netspec.errors import Location, Problem, listing
from netspec.schema.language.blocks import is_variable
from netspec.schema.language.interpolation import Evaluator, Scope, variables_in
from netspec.schema.specs.spec import describe
from netspec.schema.yaml.tree import Map, Seq

MAX_REPETITIONS = 100_000

INDEX = "index"
"""The variable that counts repetitions, from 0."""


def repetitions(repeat: Any, location: Location, path: str, scope: Scope, evaluator: Evaluator) -> list[Scope] | None:
    """Return the values of the variables in each repetition of the `repeat` written at `location`.

    `repeat` is a number of repetitions, or a mapping of variables to lists of equal length or numbers. Returns None,
    with a problem for the evaluator, if it is invalid.
    """
    path = f"{path}.repeat"
    value = evaluator.value(repeat, scope, location, path)
    has_variables = isinstance(value, Map)
    variables: dict[str, Any] = value if has_variables else {INDEX: value}
    problems: list[Problem] = []
    counts: dict[str, int] = {}
    unknown = location in evaluator.failed
    for name, values in variables.items():
        at = value.value_at[name] if has_variables else location
        if at in evaluator.failed:
            unknown = True
        elif has_variables and not is_variable(name):
            expected = "letters, digits and _, not starting with a digit"
            message = f"`{name}` cannot be the name of a variable"
            problems.append(Problem(message, value.key_at[name], path, expected=expected))
        elif has_variables and isinstance(values, Seq):
            counts[name] = len(values)
        elif isinstance(values, int) and not isinstance(values, bool) and 0 <= values <= MAX_REPETITIONS:
            counts[name] = values
        else:
            expected = "an integer of 0 or more, or variables with their values, such as `{width: [64, 128]}`"
            message = "`repeat` must be a number or lists of values"
            if isinstance(values, int) and values > MAX_REPETITIONS:
                message, expected = "`repeat` is too large", f"at most {MAX_REPETITIONS:,} repetitions"
            problems.append(Problem(message, at, path, expected=expected, got=describe(values)))
    if not problems and not unknown and len(set(counts.values())) != 1:
        got = listing([f"{count} for `{name}`" for name, count in counts.items()]) or "no variable"
        message = "the lists of a `repeat` differ in length"
        problems.append(Problem(message, location, path, expected="lists of equal length", got=got))
    evaluator.problems += problems
    if problems or unknown:
        return None
    return [
        {INDEX: index, **{name: item[index] if isinstance(item, Seq) else index for name, item in variables.items()}}
        for index in range(next(iter(counts.values())))
    ]


def uses(item: Map, key: str, variables: set[str]) -> bool:
    """Whether the text at `key`, or the first text of a list, uses one of the variables."""
    value = item[key]
    text = value[0] if isinstance(value, Seq) and value else value
    return isinstance(text, str) and not variables.isdisjoint(variables_in(text, item.value_at[key]))

"""Messages for the errors that pydantic finds in a single value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails

from netspec.errors import did_you_mean
from netspec.schema.language.expressions import Expression
from netspec.schema.language.formula import ExpressionError
from netspec.schema.specs.spec import describe
from netspec.schema.yaml.scalars import looks_quoted, resolve

_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "null",
}
_PLURALS = {"int": "integers", "float": "numbers", "str": "texts", "bool": "booleans"}
_NAME_RULE = "letters a to z, digits and _ . / : -, starting with a letter, a digit or _"


@dataclass(frozen=True)
class ValueMessage:
    """Message, expectation and hint for a value."""

    message: str
    expected: str | None
    got: str | None
    hint: str | None = None


def value_message(error: ErrorDetails, name: str, context: Mapping[str, Any]) -> ValueMessage:
    """Return the message for one error in the value called `name`."""
    kind, value = error["type"], error["input"]
    if kind in _TYPES:
        expected = _tuple_words(error) or _TYPES[kind]
        return ValueMessage(f"{name} is not {expected}", expected, describe(value), _type_hint(kind, value))
    bound = _bound(kind, value, context)
    if bound:
        return ValueMessage(f"{name} is {bound[0]}", bound[1], _amount(value))
    match kind:
        case "netspec_type" | "netspec":
            return ValueMessage(str(context["text"]), context.get("expected"), context.get("got"), context.get("hint"))
        case "literal_error":
            choices = re.findall(r"'([^']*)'", str(context["expected"])) or [str(context["expected"])]
            expected = f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]
            hint = _choice_hint(value, choices) if isinstance(value, str) else None
            fault = "is not a supported version of the spec language" if name == "`netspec`" else "has an unknown value"
            return ValueMessage(f"{name} {fault}", expected, describe(value), hint)
        case "string_pattern_mismatch":
            hint = "spaces are not allowed in names" if isinstance(value, str) and " " in value else None
            return ValueMessage(f"{name} is not a valid name", _NAME_RULE, describe(value), hint)
        case "finite_number":
            return ValueMessage(f"{name} is not a finite number", "a finite number", describe(value))
        case "value_error" | "assertion_error":
            return ValueMessage(f"{name}: {context.get('error', error['msg'])}", None, describe(value))
    return ValueMessage(f"{name}: {error['msg']}", None, describe(value))


def _choice_hint(value: str, choices: Sequence[str]) -> str | None:
    if value in choices:  # a number in quotes
        return f"remove the quotes: {value}"
    if value.lower() in ("none", "nil", "off"):
        return "write null for none, or leave the key out"
    return did_you_mean(value, choices)


def _bound(kind: str, value: Any, context: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the error and the expected values for a value out of bounds."""
    match kind:
        case "greater_than":
            limit = context["gt"]
            return "too small", f"{limit + 1} or more" if isinstance(limit, int) else f"more than {limit:g}"
        case "greater_than_equal":
            return "too small", f"{context['ge']:g} or more"
        case "less_than":
            return "too large", f"less than {context['lt']:g}"
        case "less_than_equal":
            return "too large", f"{context['le']:g} or less"
        case "multiple_of":
            return "not a multiple", f"a multiple of {context['multiple_of']}"
        case "too_short" | "string_too_short":
            return ("empty" if not value else "too short"), f"at least {_items(context['min_length'], value)}"
        case "too_long" | "string_too_long":
            return "too long", f"at most {_items(context['max_length'], value)}"
    return None


def _items(count: int, value: Any) -> str:
    word = "character" if isinstance(value, str) else "item"
    return f"{count} {word}{'' if count == 1 else 's'}"


def _amount(value: Any) -> str:
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else describe(value)


def _tuple_words(error: ErrorDetails) -> str | None:
    """Describe a member `tuple[int, int]` of a union: `a list of 2 integers`."""
    tag = str(error["loc"][-1]) if error["loc"] else ""
    match = re.search(r"tuple\[([^\]]*)\]", tag)
    if error["type"] != "tuple_type" or not match:
        return None
    items = [item.strip() for item in match.group(1).split(",")]
    words = {_PLURALS.get(re.sub(r"constrained-", "", item), "values") for item in items if item != "..."}
    count = "" if "..." in items else f"{len(items)} "
    return f"a list of {count}{words.pop() if len(words) == 1 else 'values'}"


def truth_hint(value: Any) -> str | None:
    """Return how to write the boolean that was probably meant."""
    if value in (0, 1):
        return f"write {'true' if value else 'false'}"
    meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(str(value).lower())
    return f"in YAML 1.2 `{value}` is text: write {meant}" if meant else _unquote(value, bool)


def _type_hint(kind: str, value: Any) -> str | None:
    """Return how to write the value that was probably meant."""
    if value is None:
        return "give a value after the `:`, or leave the key out"
    if kind == "string_type":
        return (
            f'write it in quotes: "{str(value).lower() if isinstance(value, bool) else value}"'
            if _is_scalar(value)
            else None
        )
    if kind == "bool_type":
        return truth_hint(value)
    if kind == "int_type" and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return f"write {int(value)}"
    if kind in ("int_type", "float_type"):
        if isinstance(value, list) and len(value) == 1 and type(value[0]) in (int, float):
            return f"write {value[0]}"
        return number_hint(value, int if kind == "int_type" else (int, float))
    if kind in ("list_type", "tuple_type"):
        if isinstance(value, dict):
            return _list_hint(value)
        return f"write [{value}]" if _is_scalar(value) else None
    if kind in ("dict_type", "model_type", "model_attributes_type") and isinstance(value, list):
        return "write a mapping as lines of `key: value` without `- `, or as `{key: value}`"
    return None


def _list_hint(value: Mapping[str, Any]) -> str:
    """Return how to write a mapping as a list: as one item, or with one item for each key."""
    first = next(iter(value), None)
    if first is not None and all(isinstance(item, dict) for item in value.values()):
        return f"write a list: `- {{name: {first}, …}}`, and so on"
    return "write it as an item of a list: put `- ` before it"


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def _unquote(value: Any, kinds: type | tuple[type, ...]) -> str | None:
    if not isinstance(value, str) or not looks_quoted(value):
        return None
    try:
        unquoted = resolve(value)
    except ValueError:
        return None
    return f"remove the quotes: {value}" if isinstance(unquoted, kinds) else None


def number_hint(value: Any, kinds: type | tuple[type, ...]) -> str | None:
    """Return how to write a text as a number, if it was probably meant as one."""
    unquoted = _unquote(value, kinds)
    if unquoted or not isinstance(value, str):
        return unquoted
    ungrouped = re.sub(r"(?<=[0-9])[_, ](?=[0-9]{3})", "", value)
    if ungrouped != value and isinstance(resolve(ungrouped), kinds):
        return f"write {ungrouped}"
    percent = re.fullmatch(r"\s*([0-9.]+)\s*%\s*", value)
    if percent and isinstance(resolve(percent.group(1)), (int, float)):
        return f"write {float(percent.group(1)) / 100:g}"
    arithmetic = value.replace("^", "**")
    try:
        Expression(arithmetic).evaluate({})
    except ExpressionError:
        return None
    return f"write arithmetic as ${{{arithmetic}}}"

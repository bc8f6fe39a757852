"""Names, and lists of them, as fields of specs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from netspec.schema.spec import describe, problem

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_./:\-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]


def as_names(value: Any) -> tuple[str, ...] | None:
    """A name or a list of them as a tuple; None as it is."""
    if value is None:
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise problem("not a name, or a list of names", expected="a name, or a list of names", got=describe(value))
    return tuple(names)


Names = Annotated[tuple[str, ...], BeforeValidator(as_names, json_schema_input_type=str | list[str])]
"""One name or a list of names; always a tuple once validated."""

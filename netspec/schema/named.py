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


def _some_or_none(value: Any) -> Any:
    """Names as a tuple; an empty list as none."""
    return () if isinstance(value, (list, tuple)) and not value else as_names(value)


NamesOrNone = Annotated[tuple[str, ...], BeforeValidator(_some_or_none, json_schema_input_type=str | list[str])]
"""One name, or a list of names that may be empty; always a tuple once validated."""

"""Types of fields: names, shapes of samples, amounts of memory."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PositiveInt

from netspec.schema.specs.spec import describe, problem

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_./:\-]*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]


def as_names(value: Any) -> tuple[str, ...] | None:
    """Convert a name or a list of names to a tuple; None stays None."""
    if value is None:
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise problem("has an invalid value", expected="a name, or a list of 1 or more names", got=describe(value))
    return tuple(names)


Names = Annotated[tuple[str, ...], BeforeValidator(as_names, json_schema_input_type=str | list[str])]
"""A name or a list of names; validated to a tuple."""


def _names_or_empty(value: Any) -> Any:
    """Convert names to a tuple, which may be empty."""
    return () if isinstance(value, (list, tuple)) and not value else as_names(value)


NamesOrNone = Annotated[tuple[str, ...], BeforeValidator(_names_or_empty, json_schema_input_type=str | list[str])]
"""A name, or a list of names that may be empty; validated to a tuple."""


def _shape(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise problem(
            "has an invalid value",
            expected="a list of sizes such as [1, 28, 28] (without the batch axis)",
            got=describe(value),
        )
    for index, size in enumerate(value):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise problem(
                "has an invalid value",
                field=str(index),
                expected="an integer of 1 or more",
                got=describe(size),
                hint="leave out the batch axis" if index == 0 and size in (None, -1) else None,
            )
    return tuple(value)


Shape = Annotated[tuple[int, ...], BeforeValidator(_shape, json_schema_input_type=list[int])]


UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE = rf"^[0-9]+(\.[0-9]+)? ?({'|'.join(UNITS)})$"


def _bytes(value: object) -> object:
    """Convert text with a unit to a number of bytes."""
    if not isinstance(value, str):
        return value
    if re.match(SIZE, value) is None:
        raise problem(
            "has an invalid value", expected="bytes, or a number and a unit, such as `512MB` or `2GiB`",
            got=describe(value), hint=f"units are {', '.join(UNITS)}",
        )  # fmt: skip
    number = value.rstrip("kKMGTiB ")
    return int(float(number) * UNITS[value.removeprefix(number).strip()])


Bytes = Annotated[
    PositiveInt, BeforeValidator(_bytes, json_schema_input_type=PositiveInt | Annotated[str, Field(pattern=SIZE)])
]
"""An amount of memory: a number of bytes, or a text such as `2GiB`."""

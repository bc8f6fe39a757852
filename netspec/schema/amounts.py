"""Amounts of memory: bytes, or a number with a unit."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveInt

from netspec.schema.spec import describe, problem

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE = rf"^[0-9]+(\.[0-9]+)? ?({'|'.join(UNITS)})$"


def _bytes(value: object) -> object:
    """A text with a unit as a number of bytes; anything else as it is."""
    if not isinstance(value, str):
        return value
    if re.match(SIZE, value) is None:
        raise problem(
            "not an amount of memory", expected="bytes, or a number and a unit, such as `512MB` or `2GiB`",
            got=describe(value), hint=f"units are {', '.join(UNITS)}",
        )  # fmt: skip
    number = value.rstrip("kKMGTiB ")
    return int(float(number) * UNITS[value.removeprefix(number).strip()])


Bytes = Annotated[
    PositiveInt, BeforeValidator(_bytes, json_schema_input_type=PositiveInt | Annotated[str, Field(pattern=SIZE)])
]
"""An amount of memory: a number of bytes, or a text such as `2GiB`."""

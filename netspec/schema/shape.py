"""Shapes of samples as fields of specs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from netspec.schema.spec import describe, problem


def _shape(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise problem(
            "not a shape", expected="a list of sizes such as [1, 28, 28] (without the batch axis)", got=describe(value)
        )
    for index, size in enumerate(value):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise problem(
                "a shape holds whole numbers of 1 or more",
                field=str(index),
                expected="a list of sizes such as [1, 28, 28]",
                got=describe(size),
                hint="the batch axis is left out" if index == 0 and size in (None, -1) else None,
            )
    return tuple(value)


Shape = Annotated[tuple[int, ...], BeforeValidator(_shape, json_schema_input_type=list[int])]

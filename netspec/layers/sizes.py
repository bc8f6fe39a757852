"""Sizes along spatial axes as fields: one number for all axes, or one for each; and data that has such axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator

from netspec.graph.ops.source import Input
from netspec.graph.value import Value
from netspec.layers.checks import need
from netspec.schema.spec import describe, problem

AXIS_NAMES = {1: "length", 2: "height, width", 3: "depth, height, width"}
"""The spatial axes of data by their number."""


def whole_numbers(count: int, least: int = 1) -> Callable[[Any], tuple[int, ...]]:
    """A validator of one whole number for each of `count` spatial axes, or one for all of them."""
    expected = "a whole number" + (f", or a list of {count} ({AXIS_NAMES[count]})" if count > 1 else "")
    message = {1: "not a whole number", 2: "not a pair", 3: "not three numbers"}[count]
    sign = "not a positive whole number" if least else "not a whole number of 0 or more"

    def validate(value: Any) -> tuple[int, ...]:
        items = (value,) * count if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(items, (list, tuple)) or len(items) != count:
            raise problem(message, expected=expected, got=describe(value))
        for index, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, int) or item < least:
                field_ = None if items is not value else str(index)
                raise problem(sign, field=field_, expected=f"{least} or more", got=describe(item))
        return tuple(items)

    return validate


def spatial(count: int, least: int = 1) -> Any:
    """What pydantic is told of such a field: how it is checked, and what the JSON Schema says."""
    return BeforeValidator(whole_numbers(count, least), json_schema_input_type=int | list[int])


Single = Annotated[tuple[int, ...], spatial(1)]
"""The size along the only spatial axis: a number, as a tuple."""
Pair = Annotated[tuple[int, ...], spatial(2)]
"""Two sizes, height and width; one number stands for both."""
Triple = Annotated[tuple[int, ...], spatial(3)]
"""Three sizes, depth, height and width; one number stands for all."""

SingleFrom0 = Annotated[tuple[int, ...], spatial(1, 0)]
PairFrom0 = Annotated[tuple[int, ...], spatial(2, 0)]
TripleFrom0 = Annotated[tuple[int, ...], spatial(3, 0)]
"""As `Single`, `Pair` and `Triple`, of numbers that may be 0."""


def need_image(x: Value) -> None:
    """Raise a located error unless `x` is (batch, channels, height, width)."""
    hint = None
    if isinstance(x.op, Input):
        sizes = list(x.shape[1:])
        if len(sizes) == 4:
            hint = f"the batch axis is left out: declare `{x.op.label}: {{shape: {sizes[1:]}}}`"
        elif len(sizes) == 2:
            hint = f"grey images have one channel: declare `{x.op.label}: {{shape: {[1, *sizes]}}}`"
    need(
        len(x.shape) == 4,
        "the input is not an image",
        expected="(batch, channels, height, width)",
        got=x.type,
        hint=hint,
    )


def need_spatial(x: Value, rank: int) -> None:
    """Raise a located error unless `x` is (batch, channels, …) with `rank` spatial axes."""
    if rank == 2:
        need_image(x)
        return
    hint, axes = None, len(x.shape) - 2
    if axes in AXIS_NAMES:
        hint = f"for (batch, channels, {AXIS_NAMES[axes]}) there are layers whose names end in {axes}D"
    elif isinstance(x.op, Input) and axes == rank + 1:
        hint = f"the batch axis is left out: declare `{x.op.label}: {{shape: {list(x.shape[2:])}}}`"
    need(
        len(x.shape) == rank + 2,
        {1: "the input is not a sequence of channels", 3: "the input is not a volume"}[rank],
        expected=f"(batch, channels, {AXIS_NAMES[rank]})",
        got=x.type,
        hint=hint,
    )

"""Fields of layers with a value for each spatial axis: sizes, strides, paddings; and checks of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator

from netspec.errors import did_you_mean
from netspec.graph.ops.source import Input
from netspec.graph.value import Value
from netspec.layers.checks import require
from netspec.schema.specs.spec import describe, problem

MAX_SIZE = 2**31 - 1
"""Largest size, stride or padding of a window that every kernel library can represent."""
AXIS_NAMES = {1: "length", 2: "height, width", 3: "depth, height, width"}
"""Names of the spatial axes by their number."""


def integers_per_axis(count: int, minimum: int = 1) -> Callable[[Any], tuple[int, ...]]:
    """A validator of one integer for each of `count` spatial axes, or one for all of them."""
    expected = "an integer" + (f", or a list of {count} ({AXIS_NAMES[count]})" if count > 1 else "")
    message = {1: "not an integer", 2: "not a pair", 3: "not three numbers"}[count]
    sign = "not a positive integer" if minimum else "not an integer of 0 or more"

    def validate(value: Any) -> tuple[int, ...]:
        items = (value,) * count if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(items, (list, tuple)) or len(items) != count:
            raise problem(message, expected=expected, got=describe(value))
        for index, item in enumerate(items):
            field_ = None if items is not value else str(index)
            if isinstance(item, bool) or not isinstance(item, int) or item < minimum:
                raise problem(sign, field=field_, expected=f"{minimum} or more", got=describe(item))
            if item > MAX_SIZE:
                raise problem(
                    "has a value that is too large", field=field_, expected=f"up to {MAX_SIZE:,}", got=describe(item)
                )
        return tuple(items)

    return validate


def _spatial_sizes(count: int, minimum: int = 1) -> Any:
    """Validator and JSON schema of a field with one integer per spatial axis."""
    return BeforeValidator(integers_per_axis(count, minimum), json_schema_input_type=int | list[int])


Size1D = Annotated[tuple[int, ...], _spatial_sizes(1)]
"""Size along the only spatial axis: an integer, stored as a tuple."""
Size2D = Annotated[tuple[int, ...], _spatial_sizes(2)]
"""Height and width; a single number sets both."""
Size3D = Annotated[tuple[int, ...], _spatial_sizes(3)]
"""Depth, height and width; a single number sets all."""
Offset1D = Annotated[tuple[int, ...], _spatial_sizes(1, 0)]
Offset2D = Annotated[tuple[int, ...], _spatial_sizes(2, 0)]
Offset3D = Annotated[tuple[int, ...], _spatial_sizes(3, 0)]
"""Integers of 0 or more, in the forms of `Size1D`, `Size2D` and `Size3D`."""


def require_image(x: Value) -> None:
    """Raise a located error unless `x` is (batch, channels, height, width)."""
    hint = None
    if isinstance(x.op, Input):
        sizes = list(x.shape[1:])
        if len(sizes) == 4:
            hint = f"the batch axis is left out: declare `{x.op.label}: {{shape: {sizes[1:]}}}`"
        elif len(sizes) == 2:
            hint = f"gray images have one channel: declare `{x.op.label}: {{shape: {[1, *sizes]}}}`"
    require(
        len(x.shape) == 4,
        "the input is not an image",
        expected="(batch, channels, height, width)",
        got=x.type,
        hint=hint,
    )


def require_spatial(x: Value, rank: int) -> None:
    """Raise a located error unless `x` is (batch, channels, …) with `rank` spatial axes."""
    if rank == 2:
        require_image(x)
        return
    hint, axes = None, len(x.shape) - 2
    if axes in AXIS_NAMES:
        hint = f"for (batch, channels, {AXIS_NAMES[axes]}) use a layer whose name ends in {axes}D"
    elif isinstance(x.op, Input) and axes == rank + 1:
        hint = f"the batch axis is left out: declare `{x.op.label}: {{shape: {list(x.shape[2:])}}}`"
    require(
        len(x.shape) == rank + 2,
        {1: "the input is not a sequence of channels", 3: "the input is not a volume"}[rank],
        expected=f"(batch, channels, {AXIS_NAMES[rank]})",
        got=x.type,
        hint=hint,
    )


def _padding(rank: int, names: tuple[str, ...]) -> Callable[[Any], str | tuple[tuple[int, int], ...]]:
    """A validator of a padding over `rank` axes."""
    named = "".join(f"`{name}`, " for name in names)
    expected = {
        1: f"{named}a number of 0 or more, or [before, after]",
        2: f"{named}a number of 0 or more, [height, width], or [[top, bottom], [left, right]]",
        3: f"{named}a number of 0 or more, [depth, height, width], or three pairs",
    }[rank]

    def validate(value: Any) -> str | tuple[tuple[int, int], ...]:
        if isinstance(value, str) and value in names:
            return value
        items = value
        if isinstance(items, int) and not isinstance(items, bool):
            items = [items] * rank
        elif rank == 1 and _sides(items) is not None:
            items = [items]
        fits = isinstance(items, (list, tuple)) and len(items) == rank
        sides = [side for item in (items if fits else ()) if (side := _sides(item)) is not None]
        if len(sides) != rank:
            raise problem(
                "has an invalid value",
                expected=expected,
                got=describe(value),
                hint=did_you_mean(value, names) if isinstance(value, str) else None,
            )
        return tuple(sides)

    return validate


def _sides(value: Any) -> tuple[int, int] | None:
    both = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, (list, tuple)) else ()
    fits = len(both) == 2 and all(isinstance(side, int) and not isinstance(side, bool) and side >= 0 for side in both)
    return (both[0], both[1]) if fits else None


ExplicitPadding: TypeAlias = tuple[tuple[int, int], ...]
PADDING_MODES = ("valid", "same")
PaddingSchema: TypeAlias = Literal["valid", "same"] | int | list[int] | list[list[int]]
"""JSON schema of a padding."""
Padding1D = Annotated[
    Literal["valid", "same"] | ExplicitPadding,
    BeforeValidator(_padding(1, PADDING_MODES), json_schema_input_type=PaddingSchema),
]
"""`Padding` for one spatial axis."""
CausalPadding = Annotated[
    Literal["valid", "same", "causal"] | ExplicitPadding,
    BeforeValidator(_padding(1, (*PADDING_MODES, "causal")), json_schema_input_type=Literal["causal"] | PaddingSchema),
]
"""`Padding1D` or `causal`: all zeros before the sequence, so that an output depends on no later element."""
Padding = Annotated[
    Literal["valid", "same"] | ExplicitPadding,
    BeforeValidator(_padding(2, PADDING_MODES), json_schema_input_type=PaddingSchema),
]
"""`valid`, `same`, or explicit zeros: a number for all sides, one per axis, or one per side."""
Padding3D = Annotated[
    Literal["valid", "same"] | ExplicitPadding,
    BeforeValidator(_padding(3, PADDING_MODES), json_schema_input_type=PaddingSchema),
]
"""`Padding` for three spatial axes."""


def _sides_of(rank: int) -> Any:
    return BeforeValidator(_padding(rank, ()), json_schema_input_type=int | list[int] | list[list[int]])


Sides1D = Annotated[ExplicitPadding, _sides_of(1)]
Sides2D = Annotated[ExplicitPadding, _sides_of(2)]
Sides3D = Annotated[ExplicitPadding, _sides_of(3)]
"""Numbers of 0 or more for both sides of each spatial axis: one for all sides, one per axis, or one per side."""

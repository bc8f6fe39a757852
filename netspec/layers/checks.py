"""Types of fields that many layers share, and checks of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from netspec.graph.types import TensorType
from netspec.graph.value import ShapeMismatch, Value, require_listable
from netspec.schema.specs.spec import describe, problem

PositiveInt = Annotated[int, Field(gt=0)]


def as_items(value: Any, fits: Callable[[Any], bool], expected: str, others: str = "a list of them") -> tuple[Any, ...]:
    """Convert a value or a list of values to a tuple.

    Raises unless each one `fits`, with the location of the wrong one. In the error, `expected` describes a single
    value, and `others` the alternative to it.
    """
    items = value if isinstance(value, (list, tuple)) else [value]
    for index, item in enumerate(items):
        if not fits(item):
            field, options = (str(index), expected) if items is value else (None, f"{expected}, or {others}")
            raise problem("has an invalid value", field=field, expected=options, got=describe(item))
    if not items:
        raise problem("has an invalid value", expected=f"{expected}, or {others}", got=describe(value))
    return tuple(items)


def is_integer(value: object) -> bool:
    """Whether a value is an integer, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is an integer or a finite float, and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _axes(value: Any) -> Any:
    return as_items(value, is_integer, "the index of an axis")


Axes = Annotated[tuple[int, ...], BeforeValidator(_axes, json_schema_input_type=int | list[int])]
"""One axis or several; negative ones count from the end."""


def require(
    valid: bool, message: str, *, expected: str | None = None, got: object = None, hint: str | None = None
) -> None:
    """Raise a located error unless a layer's inputs are `valid`; the compiler adds the layer and its line."""
    if not valid:
        shown = got.describe() if isinstance(got, TensorType) else got
        raise ShapeMismatch(message, expected, None if shown is None else str(shown), hint)


def sample_axis(x: Value, axis: int, purpose: str) -> int:
    """Check that `axis` of `x` exists and is not the batch, and count it from the front.

    `purpose` describes the axis in messages, such as "for classes".
    """
    rank = len(x.shape)
    require(rank >= 2, f"the input has no axis {purpose}", expected="(batch, …) with 2 axes or more", got=x.type)
    require(
        -rank <= axis < rank and axis % rank != 0,
        f"the input has no axis {axis} {purpose}",
        expected="axis 1" if rank == 2 else f"an axis from 1 to {rank - 1}, or -1 for the last",
        got=x.type,
        hint="axis 0 is the batch" if axis in (0, -rank) else None,
    )
    return axis % rank


def require_countable(count: int, axis: int) -> None:
    """Raise if an axis has too many elements to list."""
    require_listable(count, f"elements along axis {axis}")

"""Types of fields that many layers share, and checks of their inputs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from netspec.graph.value import ShapeMismatch, Value, require_listable
from netspec.schema.specs.spec import describe, problem

PositiveInt = Annotated[int, Field(gt=0)]


def _axes(value: Any) -> Any:
    axes = value if isinstance(value, (list, tuple)) else [value]
    if not axes or any(isinstance(axis, bool) or not isinstance(axis, int) for axis in axes):
        raise problem(
            "not the index of an axis, or a list of indices",
            expected="an integer, or a list of them",
            got=describe(value),
        )
    return tuple(axes)


Axes = Annotated[tuple[int, ...], BeforeValidator(_axes, json_schema_input_type=int | list[int])]
"""One axis or several; negative ones count from the end."""


def require(
    valid: bool, message: str, *, expected: str | None = None, got: object = None, hint: str | None = None
) -> None:
    """Raise a located error unless a layer's inputs are `valid`; the compiler adds the layer and its line."""
    if not valid:
        raise ShapeMismatch(message, expected, None if got is None else str(got), hint)


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

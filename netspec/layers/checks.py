"""What fields and inputs of layers are checked by: types of fields, and errors that say what was expected."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from netspec.graph.value import ShapeMismatch, Value
from netspec.schema.spec import describe, problem

PositiveInt = Annotated[int, Field(gt=0)]


def _axes(value: Any) -> Any:
    axes = value if isinstance(value, (list, tuple)) else [value]
    if not axes or any(isinstance(one, bool) or not isinstance(one, int) for one in axes):
        raise problem("not an axis", expected="a whole number, or a list of them", got=describe(value))
    return tuple(axes)


Axes = Annotated[tuple[int, ...], BeforeValidator(_axes, json_schema_input_type=int | list[int])]
"""One axis or several; negative ones count from the last."""


def need(fits: bool, message: str, *, expected: str | None = None, got: object = None, hint: str | None = None) -> None:
    """Raise a located error unless a layer's inputs fit; the layer and its line are added by the compiler."""
    if not fits:
        raise ShapeMismatch(message, expected, None if got is None else str(got), hint)


def sample_axis(x: Value, axis: int, what: str) -> int:
    """`axis` of `x` counted from the front. It must be there, and not be the batch: `what` is "of classes", say."""
    rank = len(x.shape)
    need(rank >= 2, f"the input has no axis {what}", expected="(batch, …) with 2 axes or more", got=x.type)
    need(
        -rank <= axis < rank and axis % rank != 0,
        f"there is no axis {axis} {what}",
        expected="axis 1" if rank == 2 else f"an axis from 1 to {rank - 1}, or -1 for the last",
        got=x.type,
        hint="axis 0 is the batch" if axis in (0, -rank) else None,
    )
    return axis % rank


MOST_PLACES = 2**24
"""So many places along an axis are listed one by one, at most: a list of more takes long, and much memory."""


def need_countable(count: int, axis: int) -> None:
    """Raise if there are more places along an axis than are listed one by one."""
    need(
        count <= MOST_PLACES,
        f"there are too many places along axis {axis}",
        expected=f"up to {MOST_PLACES:,}",
        got=f"{count:,}",
    )

"""`windows` of a table: samples of consecutive rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import NonNegativeInt, PositiveInt

from netspec.data.base import FieldType
from netspec.data.tabular.columns.base import LABEL
from netspec.schema.specs.spec import Spec

PAST = "past"
"""The field with the values of the label within the window."""


class RowWindows(Spec):
    """Windows of consecutive rows: each window is one sample, to predict the label of the rows that follow it.

    Rows must be in chronological order. The first axis of every field except the label is the rows of the window:
    `features` is `[length, columns]`. The field `past` `[length]` contains the label of these rows. `label` is
    `[horizon]`, or `[]` if `horizon` is 0 or 1. No window spans a row that is left out, or two groups. All targets of
    validation and test data belong to their own part of the table, but their windows may begin with earlier rows.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        "sequence_length": "use `length`",
        "window_size": "use `length`",
        "lookback": "use `length`",
        "sequence_stride": "use `stride`",
        "steps": "use `horizon`",
    }

    length: PositiveInt
    """Number of rows in a window."""
    horizon: NonNegativeInt = 1
    """Number of rows after the window whose labels are the target. 0: the target is the label of the window's last
    row."""
    stride: PositiveInt = 1
    """Number of rows from the start of one window to that of the next. Predictions for other files use 1, so that each
    row that has enough rows before it gets one."""
    group: str | None = None
    """Column that names the series of each row, in a table of several series. Rows of a series must be consecutive."""


def windowed_fields(
    fields: Mapping[str, FieldType], windows: RowWindows, *, targets: bool = True
) -> dict[str, FieldType]:
    """Return the fields of windows of rows with these fields; without `targets` there is no field `label`."""
    length, horizon = windows.length, windows.horizon
    windowed = {name: FieldType((length, *kind.shape), kind.dtype) for name, kind in fields.items() if name != LABEL}
    if LABEL in fields:
        label = fields[LABEL]
        windowed[PAST] = FieldType((length, *label.shape), label.dtype)
        if targets:
            windowed[LABEL] = FieldType((horizon, *label.shape) if horizon > 1 else label.shape, label.dtype)
    return windowed

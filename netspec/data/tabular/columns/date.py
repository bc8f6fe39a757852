"""`{type: date}`: a column of dates or times, as numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from netspec.data.tabular.columns.base import ColumnSetting, ColumnSpec
from netspec.data.tabular.columns.numeric import Normalized
from netspec.schema.specs.data import COLUMNS
from netspec.schema.specs.spec import problem

if TYPE_CHECKING:
    from netspec.data.tabular.column import Column

Part = Literal["year", "month", "day", "weekday", "day_of_year", "hour", "minute", "second", "timestamp"]
PARTS: tuple[str, ...] = get_args(Part)


def _distinct(parts: list[Part]) -> list[Part]:
    duplicates = sorted({part for part in parts if parts.count(part) > 1})
    if duplicates:
        raise problem("has a part twice", expected="each part once", got=", ".join(duplicates))
    return parts


@COLUMNS.register
class Date(ColumnSpec):
    """A date or time in each row, as one number for each of its `parts`, float32 in `features`.

    `month` and `day` count from 1, `weekday` from 0 (Monday), `day_of_year` from 1; `timestamp` is in seconds since
    1970-01-01 00:00 UTC, which float32 represents to one or two minutes unless it is normalized (in float64). A time
    with an offset is converted to UTC; one without is used as it is.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        **ColumnSpec.foreign_fields,
        "date_format": "use `format`",
        "normalize": "use `normalization`",
        "dayfirst": "use `format`: `%d/%m/%Y`",
        "add_indicator": "use `missing_indicator`",
    }

    type: Literal["date"] = "date"
    format: str | None = Field(default=None, min_length=1)
    """The format, in the notation of Python's `strptime`: `%d.%m.%Y`. By default ISO 8601, `2026-11`, `2026-11-20` or
    `2026-11-20T16:25:00+01:00`."""
    parts: Annotated[list[Part], Field(min_length=1), AfterValidator(_distinct)] = Field(
        default=["year", "month", "day", "weekday"]
    )
    """The numbers to compute from it, in this order."""
    missing: Literal["error", "drop", "mean"] = "error"
    """Handling of missing dates: an error, the row is left out (`drop`), or each part is the `mean` of the training
    split."""
    missing_indicator: bool = False
    """Whether to add a value that is 1 if the date is missing, else 0."""
    normalization: Normalized = "none"
    """Normalization of each part with statistics of the training split, as for the type `numeric`."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"format": "%d.%m.%Y", "parts": ["year", "month", "weekday"]},
        {"parts": ["timestamp"], "normalization": "standard", "missing": "drop"},
        {"parts": ["year"], "missing": "mean", "missing_indicator": True},
    )

    @model_validator(mode="after")
    def _indicator_of_something(self) -> Self:
        if self.missing_indicator and self.missing != "mean":
            raise problem(
                f"`missing_indicator` has no effect with `missing: {self.missing}`", field="missing_indicator",
                expected="`missing: mean`", got="true",
            )  # fmt: skip
        return self

    def reader(self, setting: ColumnSetting) -> Column:
        from netspec.data.tabular.date_reader import DateColumn

        return DateColumn(self, setting)

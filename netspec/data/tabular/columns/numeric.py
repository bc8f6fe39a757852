"""`{type: numeric}`: a column of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from netspec.data.tabular.columns.base import ColumnSetting, ColumnSpec, MissingNumber
from netspec.schema.specs.data import COLUMNS
from netspec.schema.specs.spec import problem

if TYPE_CHECKING:
    from netspec.data.tabular.column import Column

Normalized = Literal["none", "standard", "min_max"]


@COLUMNS.register
class Numeric(ColumnSpec):
    """A number in each row, float32 in `features`.

    `mean`, `median` and the statistics for `normalization` are those of the training split, computed in float64 (a
    median over more than a million values uses every second, fourth … one); they are saved with the weights. As the
    label, numbers are int32 if all are integers, and missing ones are errors unless configured otherwise.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        **ColumnSpec.foreign_fields,
        "normalize": "use `normalization`",
        "fillna": "use `missing`",
        "fill_value": "use `missing`",
        "impute": "use `missing`",
        "add_indicator": "use `missing_indicator`",
        "role": "the field `label` of the source names the label",
    }

    type: Literal["numeric"] = "numeric"
    unit: str | None = Field(default=None, min_length=1)
    """A unit before or after each number, such as `%`, `$` or `kg`. Every cell must contain it."""
    missing: MissingNumber | None = None
    """The replacement of a missing value: the `mean` or `median` of the training split, or this number; or it is an
    `error`, or the row is left out (`drop`). By default the source's `missing`."""
    missing_indicator: bool = False
    """Whether to add a value that is 1 if the number is missing, else 0."""
    normalization: Normalized = "none"
    """`standard`: (x − mean) / standard deviation; `min_max`: (x − min) / (max − min)."""

    samples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"missing": "median", "normalization": "standard"},
        {"missing": 0, "missing_indicator": True},
        {"unit": "%"},
    )

    @model_validator(mode="after")
    def _indicator_of_something(self) -> Self:
        if self.missing_indicator and self.missing in ("error", "drop"):
            raise problem(
                f"`missing_indicator` has no effect with `missing: {self.missing}`",
                field="missing_indicator",
                expected="`missing: mean`, `missing: median`, or `missing` with a number",
                got="true",
            )
        return self

    def reader(self, setting: ColumnSetting) -> Column:
        from netspec.data.tabular.numeric_reader import NumericColumn

        return NumericColumn(self, setting)

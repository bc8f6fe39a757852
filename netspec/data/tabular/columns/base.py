"""`ColumnSpec`: base of the declared columns of a table in YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from netspec.data.tabular.number_format import PLAIN, NumberFormat
from netspec.data.tabular.row_origin import RowOrigin
from netspec.schema.specs.data import COLUMNS
from netspec.schema.specs.spec import Member, Spec, describe, problem

if TYPE_CHECKING:
    from netspec.data.tabular.column import Column

FEATURES, LABEL = "features", "label"
"""The field of numeric columns, and the field of the column that `label` names."""


def _as_missing(value: Any) -> Any:
    choices = ("error", "mean", "median", "drop")
    if value not in choices and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise problem(
            "not a way to treat missing values",
            expected="`error`, `mean`, `median`, `drop`, or a number to use instead",
            got=describe(value),
        )
    return value


def as_texts(value: Any) -> Any:
    """Convert integers in a list to the texts that represent them in a table: categories are often numbered."""
    if not isinstance(value, list):
        return value
    return [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in value]


Texts = Annotated[list[str], BeforeValidator(as_texts, json_schema_input_type=list[str | int])]
MissingNumber = Annotated[Literal["error", "mean", "median", "drop"] | float, BeforeValidator(_as_missing)]


@dataclass(frozen=True)
class ColumnSetting:
    """Settings of a column that come from the table, in addition to its own declaration."""

    name: str
    """Name of the column in messages and in learned values."""
    is_label: bool
    missing: float | str
    """Handling of missing numbers, if the column does not define it."""
    absent: frozenset[str]
    """The cells that mean a missing value, in lower case."""
    learned: Mapping[str, Any] | None
    """Values that the training split learned for the column; None in the training split itself."""
    number_format: NumberFormat = PLAIN
    """The notation of numbers in the table."""
    alone: Callable[[str], str | None] | None = None
    """Hint for cells that look like several columns, if this is the only column of the table."""
    missing_values: Sequence[str] = ()
    """The cells that mean a missing value, as the source declares them."""
    origin: RowOrigin = RowOrigin.DATASET

    @property
    def is_target(self) -> bool:
        """Whether it is the label of samples to train or test on, rather than a column of rows to predict."""
        return self.is_label and not self.origin.is_predicted


class ColumnSpec(Spec):
    """Base of the column types in YAML."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "dtype": "use `type`: numeric, categorical, date",
        "name": "not needed: the key above is the column's name",
        "na_values": "use `missing_values`",
        "decimal": "use `decimal`, of the source",
        "thousands": "use `thousands`, of the source",
    }

    holds_text: ClassVar[bool] = False
    """Whether the cells are texts of several words."""
    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Example fields for the reference and its tests."""

    field: str | None = Field(default=None, min_length=1)
    """The field of the sample to which the column belongs. By default `label` for the label, the column's own name for
    integer categories, else `features`. Columns of the same field are concatenated in their order."""
    missing_values: Texts = Field(default_factory=list)
    """Cells that mean a missing value in this column, in addition to those of the source; case is ignored."""

    def field_of(self, name: str, *, is_label: bool) -> str:
        """Return the field of the column called `name`."""
        return self.field or (LABEL if is_label else FEATURES)

    @property
    def added_fields(self) -> tuple[str, ...]:
        """The fields whose values come from the column, in addition to its own."""
        return ()

    def fields_of(self, name: str, *, is_label: bool) -> set[str]:
        """Return all fields whose values come from the column called `name`."""
        return {self.field_of(name, is_label=is_label), *self.added_fields}

    @property
    def whole(self) -> bool:
        """Whether the values are integers, unless the column is the label."""
        return False

    def reader(self, setting: ColumnSetting) -> Column:
        """Return the reader of the column's cells. Only this imports NumPy."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is read")

    def added_readers(self, reader: Column) -> dict[str, Column]:
        """Return the readers for `added_fields`, given the reader of the column's own field."""
        return {}


def texts_for_missing(of_source: Sequence[str], column: ColumnSpec | None) -> frozenset[str]:
    """Return the cells that mean a missing value in a column, in lower case, including those of its source."""
    return frozenset(map(str.lower, [*of_source, *([] if column is None else column.missing_values)]))


AnyColumn = Annotated[ColumnSpec, Member(COLUMNS)]

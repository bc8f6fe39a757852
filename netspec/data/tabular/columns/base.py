"""`ColumnSpec`: what every declared column of a table has in YAML, and how its reader is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from netspec.schema.specs.data import COLUMNS
from netspec.schema.specs.spec import Member, Spec, describe, problem

if TYPE_CHECKING:
    from netspec.data.tabular.column import Column

FEATURES, LABEL = "features", "label"
"""The field of columns that are numbers, and that of the column that `label` names."""


def _as_missing(value: Any) -> Any:
    ways = ("error", "mean", "median", "drop")
    if value not in ways and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise problem(
            "not a way to treat missing values",
            expected="`error`, `mean`, `median`, `drop`, or the number to put there",
            got=describe(value),
        )
    return value


MissingNumber = Annotated[Literal["error", "mean", "median", "drop"] | float, BeforeValidator(_as_missing)]


@dataclass(frozen=True)
class ColumnSetting:
    """Settings of a column that come from the table, in addition to its own declaration."""

    name: str
    """What it is called in messages, and in what is learned."""
    is_label: bool
    missing: float | str
    """What is done where a number is missing, if the column does not say."""
    absent: frozenset[str]
    """The cells that mean that there is no value, in lower case."""
    learned: Mapping[str, Any] | None
    """What the training split learned of the column; None where this is that split."""
    alone: Callable[[str], str | None] | None = None
    """Where it is the table's only column: a hint, if a cell of it looks like several."""


class ColumnSpec(Spec):
    """What every column has in YAML."""

    foreign_fields: ClassVar[dict[str, str]] = {
        "dtype": "here it is `type`: numeric, categorical, date",
        "name": "the column's name is the key that this stands under",
        "na_values": "here it is `missing_values`, of the source",
    }

    samples: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Fields as they may be written, for the reference and its tests."""

    field: str | None = Field(default=None, min_length=1)
    """the field of the sample that it goes to; default: `label` for the label, the column's own name for a category as
    a whole number, else `features`. Columns that share a field lie side by side in their order"""

    def field_of(self, name: str, *, is_label: bool) -> str:
        """The field that the column called `name` goes to."""
        return self.field or (LABEL if is_label else FEATURES)

    @property
    def whole(self) -> bool:
        """Whether what it gives, where it is not the label, are whole numbers."""
        return False

    def reader(self, setting: ColumnSetting) -> Column:
        """What reads the column's cells; NumPy is imported from here on."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is read")


AnyColumn = Annotated[ColumnSpec, Member(COLUMNS)]

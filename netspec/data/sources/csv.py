"""`{source: csv}`: rows of numbers, and a label that is a number or a class name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from netspec.data.base import ClassNames, Dataset, Source, blamed_on
from netspec.schema.data import SOURCES
from netspec.schema.paths import FilePath, resolve_path
from netspec.schema.spec import describe, problem


def _as_column(value: Any) -> Any:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, str))
        or value == ""
        or (isinstance(value, int) and value < 1)
    ):
        raise problem(
            "not a column", expected="a name from the header, or a number counted from 1", got=describe(value)
        )
    return value


def _as_missing(value: Any) -> Any:
    if value != "error" and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise problem(
            "not a way to treat missing values", expected="`error`, or the number to put there", got=describe(value)
        )
    return value


def _as_delimiter(value: Any) -> Any:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0':
        raise problem("not a `delimiter`", expected='one character such as `,`, `;` or `"\\t"`', got=describe(value))
    return value


Delimiter = Annotated[str, BeforeValidator(_as_delimiter)]
Column = Annotated[int | str, BeforeValidator(_as_column)]
Missing = Annotated[Literal["error"] | float, BeforeValidator(_as_missing)]


@SOURCES.register
class Csv(Source):
    """The rows of a text table (UTF-8), one sample a row.

    Fields: `features` `[number of columns]` of float32; `label` `[]`, which is the place of its name in `classes`
    (int32), or where all labels are numbers, the number itself (int32 if all are whole, else float32).
    Blank lines are passed over; blanks around a cell do not count. Names of columns must differ, unless `columns` and
    `label` go by number.
    """

    source: Literal["csv"] = "csv"
    path: FilePath
    """path of the file, relative to this file"""
    header: bool
    """whether the first line holds the names of the columns"""
    columns: list[Column] | None = Field(default=None, min_length=1)
    """the columns that make `features`, by name or by number counted from 1; default: all but the label"""
    label: Column | None = None
    """the column of the label, by name or by number; default: there is no label"""
    classes: ClassNames | None = None
    """the class names in the order of their indices; default: those found, sorted, if any label is not a number"""
    delimiter: Delimiter = ","
    """what stands between two cells: `,`, `;`, `"\\t"`"""
    missing: Missing = "error"
    """what a missing feature becomes (an empty cell, `?`, `NA`, `N/A`, `NaN`, `null`): an error, or this number"""

    samples: ClassVar = ({"path": "train.csv", "header": True, "label": "species"},)

    def open(self, *, seed: int = 0, learned: Mapping[str, Any] | None = None) -> Dataset:
        """The table, read whole."""
        from netspec.data.readers.table import TableOptions, open_table

        with blamed_on(self, "path"):
            return open_table(
                resolve_path(self, "path"),
                TableOptions(
                    header=self.header,
                    columns=self.columns,
                    label=self.label,
                    classes=self.classes,
                    delimiter=self.delimiter,
                    missing=None if self.missing == "error" else self.missing,
                ),
            )

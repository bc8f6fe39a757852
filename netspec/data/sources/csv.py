"""`{source: csv}`: the rows of a text table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from netspec.data.tabular.number_format import NumberFormat
from netspec.data.tabular.source import TableSource
from netspec.schema.specs.data import SOURCES, ShuffleWindow
from netspec.schema.specs.spec import describe, problem

if TYPE_CHECKING:
    from netspec.data.tabular.table_file import TableFile


def _as_delimiter(value: Any) -> Any:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0':
        raise problem(
            "not a single character", expected='one character such as `,`, `;` or `"\\t"`', got=describe(value)
        )
    return value


def _as_header(value: Any) -> Any:
    names = isinstance(value, list) and value and all(isinstance(name, str) and name for name in value)
    if not isinstance(value, bool) and not names:
        raise problem(
            "not true, false, or a list of names",
            expected="true (the first line holds the names of the columns), false, or a list of the names",
            got=describe(value),
        )
    duplicates = sorted({name for name in value if value.count(name) > 1}) if names else []
    if duplicates:
        raise problem("has a name twice", expected="each name once", got=", ".join(map(repr, duplicates)))
    return value


Delimiter = Annotated[str, BeforeValidator(_as_delimiter)]
Header = Annotated[bool | list[str], BeforeValidator(_as_header)]


@SOURCES.register
class Csv(TableSource):
    """The rows of a text table, one sample per row: CSV, TSV and similar.

    Fields: `features` `[columns]` of float32, from columns of numbers, categories as `one_hot` vectors, and dates, in
    the order of `columns`; a separate field for each column that requests one; and `label` `[]`: the index of the class
    name (int32), or for numeric labels the number (int32 if all are integers, else float32). If `columns` does not
    describe the label, it is numeric if one of the first 4,096 values is a number.

    Blank lines are skipped, blanks around a cell are ignored. Names of columns must be distinct, unless `columns` and
    `label` use indices. Learned values (vocabularies, statistics) are those of the training split, for all splits.
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        **TableSource.foreign_fields,
        "sep": "use `delimiter`",
        "names": "use `header`, with a list of the names",
        "skiprows": "use `skip_lines`",
        "na_values": "use `missing_values`",
        "usecols": "use `columns`",
        "target": "use `label`",
    }

    source: Literal["csv"] = "csv"
    header: Header
    """Whether the first line contains the names of the columns; or the names, if it does not.

    A first line with exactly these names is skipped nevertheless.
    """
    delimiter: Delimiter = ","
    """The character between two cells: `,`, `;`, `"\t"`."""
    quotes: bool = True
    """Whether cells may be in double quotes, with delimiters and line ends inside."""
    comment: str | None = Field(default=None, min_length=1)
    """Lines that begin with this text are skipped."""
    skip_lines: int = Field(default=0, ge=0)
    """Number of lines at the beginning of the file to skip."""
    encoding: Literal["utf-8", "latin-1", "cp1252"] = "utf-8"
    """The character encoding."""

    decimal: Literal[".", ","] = "."
    """The decimal separator of numbers: `3.14` or, with `","`, `3,14`."""
    thousands: Literal[".", ",", " ", "'"] | None = None
    """The separator between groups of three digits, as in `1,234.5` with `","`. By default such numbers are errors."""

    samples: ClassVar = (
        {
            "path": "train.csv",
            "header": True,
            "columns": {"age": "numeric", "color": "categorical"},
            "label": "species",
        },
    )

    @model_validator(mode="after")
    def _separators_differ(self) -> Self:
        if self.thousands == self.decimal:
            raise problem(
                "`thousands` and `decimal` are the same character", field="thousands",
                expected="two different separators", got=repr(self.decimal),
            )  # fmt: skip
        return self

    @property
    def number_format(self) -> NumberFormat:
        """The notation of numbers."""
        return NumberFormat(self.decimal, self.thousands)

    def file(self, path: Path) -> TableFile:
        from netspec.data.random import BLOCKS
        from netspec.data.tabular.csv import SINGLE, STEP, TextFile, TextOptions

        step = SINGLE if self.shuffle else STEP
        if isinstance(self.shuffle, ShuffleWindow):  # neighbors stay together
            step = max(SINGLE, min(STEP, self.shuffle.window // BLOCKS))
        return TextFile(
            path,
            TextOptions(
                header=tuple(self.header) if isinstance(self.header, list) else self.header,
                delimiter=self.delimiter,
                quotes=self.quotes,
                comment=self.comment,
                skip_lines=self.skip_lines,
                encoding=self.encoding,
                step=step,
            ),
        )

    def other_file(self, path: Path) -> TableFile:
        from netspec.data.tabular.parquet import ParquetTable, has_parquet_content

        return ParquetTable(path) if has_parquet_content(path) else self.file(path)

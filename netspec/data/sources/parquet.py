"""`{source: parquet}`: the rows of a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from netspec.data.base import Survey
from netspec.data.tabular.source import TableSource
from netspec.schema.specs.data import SOURCES

if TYPE_CHECKING:
    from netspec.data.tabular.table_file import TableFile


@SOURCES.register
class Parquet(TableSource):
    """The rows of a Parquet file, one sample per row. Needs the extra `parquet`.

    Fields are those of the source `csv`. Nulls and NaN are missing values. Numbers and booleans become categories by
    their text (`3`, `true`). For a file larger than `cache`, row groups are read in full when needed: shuffle such a
    file in a window (`shuffle: {window: 100000}`).
    """

    foreign_fields: ClassVar[dict[str, str]] = {
        **TableSource.foreign_fields,
        "engine": "not needed: pyarrow reads it",
        "header": "not needed: the file knows the names of its columns",
        "target": "use `label`",
    }

    source: Literal["parquet"] = "parquet"

    samples: ClassVar = ({"path": "train.parquet", "columns": {"age": "numeric"}, "label": "species"},)

    def file(self, path: Path) -> TableFile:
        from netspec.data.tabular.parquet import ParquetTable

        return ParquetTable(path)

    def other_file(self, path: Path) -> TableFile:
        from netspec.data.tabular.csv import has_text_content
        from netspec.data.tabular.table_format import open_by_content

        return open_by_content(path) if has_text_content(path) else self.file(path)

    def survey(self) -> Survey:
        """Read the first rows, if pyarrow is installed."""
        from importlib.util import find_spec

        return Survey() if find_spec("pyarrow") is None else super().survey()

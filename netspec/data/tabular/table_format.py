"""Tables to predict, which may have another format than those of the training: it is recognized by the content."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from netspec.data.tabular.csv import TextFile, TextOptions, likely_delimiter
from netspec.data.tabular.parquet import ParquetTable, has_parquet_content

if TYPE_CHECKING:
    from netspec.data.tabular.table_file import TableFile


def open_by_content(path: Path) -> TableFile:
    """Open a Parquet file, or a text table with a header, whose delimiter is the one that divides rows most evenly.

    Raises `InputError` for other files.
    """
    if has_parquet_content(path):
        return ParquetTable(path)
    return TextFile(path, TextOptions(header=True, delimiter=likely_delimiter(path)))

"""`SampleRows`: the rows of a table file from which samples are made, with summaries of their columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array
from netspec.data.tabular.row_errors import BlockFaults, Faults
from netspec.data.tabular.statistics import ColumnStatistics

if TYPE_CHECKING:
    from netspec.data.tabular.cells import Cells
    from netspec.data.tabular.column import Column
    from netspec.data.tabular.table_file import RowBlock, TableFile

TYPES = {"f": "numeric", "i": "categorical", "M": "date", "O": "text"}
"""The type of a column, by the kind of the compact values that its reader returns."""
MAX_FREQUENT_CATEGORIES = 5


@dataclass
class ColumnSummary:
    """Findings about the cells of a column in the rows added so far."""

    name: str
    is_label: bool
    type: str = ""
    """`numeric`, `categorical`, `date` or `text`."""
    rows: int = 0
    missing: int = 0
    _numbers: ColumnStatistics = field(default_factory=ColumnStatistics)
    """Statistics of numbers, of dates as seconds since 1970, or of numbers of words."""
    _categories: Counter[str] = field(default_factory=Counter)

    def add(self, values: Array, cells: Cells, rows: Array) -> None:
        """Add the compact values (N,) of `cells` at `rows` (N,)."""
        self.type = TYPES[values.dtype.kind]
        self.rows += len(values)
        if self.type == "categorical":
            texts, text_indices = cells.distinct()
            present = text_indices[rows][values >= 0]
            self.missing += len(values) - len(present)
            self._categories.update(texts[index] for index in present.tolist())
            return
        if self.type == "date":
            numbers = np.where(np.isnat(values), np.nan, values.astype("datetime64[us]").astype(np.int64) / 1e6)
        elif self.type == "text":
            numbers = np.array([len(text.split()) if text else np.nan for text in values.tolist()])
        else:
            numbers = values
        self.missing += int(np.isnan(numbers).sum())
        self._numbers.add_values(numbers[None])

    @property
    def statistics(self) -> tuple[Any, Any, Any] | None:
        """Lowest value, mean and highest value; of texts, of their number of words. None if there are none."""
        if not np.all(self._numbers.count):
            return None
        numbers = self._numbers
        low, mean, high = (float(values[0]) for values in (numbers.low, numbers.mean, numbers.high))
        if self.type != "date":
            return low, mean, high
        unit = "s" if low % 86400 or high % 86400 else "D"
        moments = np.round([low, mean, high]).astype("datetime64[s]").astype(f"datetime64[{unit}]")
        return str(moments[0]), str(moments[1]), str(moments[2])

    @property
    def categories(self) -> int:
        """Number of different categories."""
        return len(self._categories)

    @property
    def frequent(self) -> dict[str, int]:
        """The number of rows of the most frequent categories."""
        return dict(sorted(self._categories.items(), key=lambda entry: (-entry[1], entry[0]))[:MAX_FREQUENT_CATEGORIES])

    def as_json(self) -> dict[str, Any]:
        """Return the findings as plain data."""
        data: dict[str, Any] = {"name": self.name, "type": self.type, "label": self.is_label, "missing": self.missing}
        if self.type == "categorical":
            return data | {"categories": self.categories, "most_frequent": self.frequent}
        low, mean, high = self.statistics or (None, None, None)
        statistics = {"low": low, "mean": mean, "high": high}
        return data | ({"words": statistics} if self.type == "text" else statistics)


@dataclass(frozen=True)
class SampleRows:
    """The rows of a table file from which samples are made."""

    file: TableFile
    columns: Sequence[Column]
    rows_of: Callable[[Array], Array]
    """Returns the rows in the file (N, R) of samples (N,): R is 1, or the number of rows of a window."""

    def cells(self, samples: Array) -> list[dict[str, str]]:
        """Return the cells of each sample as in the file, by column; for a window, the cells of its last row."""
        cells: list[dict[str, str]] = [{} for _ in samples]
        for positions, block, rows in self._blocks(self.rows_of(samples)[:, -1]):
            for position, row in zip(positions.tolist(), rows.tolist(), strict=True):
                texts = zip(self.columns, block.cells, strict=True)
                cells[position] = {column.name: column_cells.text(row) for column, column_cells in texts}
        return cells

    def summaries(self, samples: Array) -> list[ColumnSummary]:
        """Return the findings about each column in all rows of the samples."""
        summaries = [ColumnSummary(column.name, column.setting.is_label) for column in self.columns]
        for _, block, rows in self._blocks(np.unique(self.rows_of(samples))):
            faults = BlockFaults(Faults(self.file.title, skip=True), len(block), block.locate)  # not of these rows
            for summary, column, cells in zip(summaries, self.columns, block.cells, strict=True):
                summary.add(column.parse(cells, faults)[rows], cells, rows)
        return summaries

    def _blocks(self, rows: Array) -> Iterator[tuple[Array, RowBlock, Array]]:
        """Yield the pages that contain `rows`: positions in `rows`, the page, and the rows counted from its start."""
        starts = self.file.pages()
        pages = np.searchsorted(starts, rows, side="right") - 1
        for page in np.unique(pages).tolist():
            start, stop = starts[page : page + 2].tolist()
            positions = np.flatnonzero(pages == page)
            block = self.file.read(start, stop, [column.index for column in self.columns])
            yield positions, block, rows[positions] - start

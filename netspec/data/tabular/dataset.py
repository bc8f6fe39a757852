"""A table as samples: one pass learns and checks it; rows that do not fit in memory are read again by pages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array, Dataset, FieldType, Samples
from netspec.data.files import fingerprint
from netspec.data.readers.arrays import ArrayDataset
from netspec.data.tabular.columns.base import FEATURES
from netspec.data.tabular.row_errors import BlockFaults, Faults, describe_missing
from netspec.data.tabular.sample_rows import SampleRows
from netspec.errors import InputError, Problem

if TYPE_CHECKING:
    from netspec.data.tabular.column import Column
    from netspec.data.tabular.encodings import ColumnEncoding
    from netspec.data.tabular.table_file import RowBlock, TableFile

Fields = Mapping[str, Sequence["Column"]]
"""The columns of each field, in their order."""


WINDOWS_KEPT = 3
"""Number of shuffle windows whose pages stay in memory: two that a batch may span, and the overhang of pages."""


def open_table(
    file: TableFile,
    fields: Fields,
    *,
    skip: bool,
    limit: int | None,
    cache: int,
    window: int = 0,
    rows: Array | None = None,
    learned: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Dataset, Callable[[Array], Array]]:
    """Return the rows of a file as samples, and a function from indices of samples to indices of their rows.

    `cache` is the number of bytes of rows to keep.

    `rows` (N,) of bool says which rows of the file belong to this split; by default all do. Nothing is learned from
    the others.

    `learned` holds values for other splits in addition to those of the columns. More rows are kept if a shuffle
    `window` needs them, since pages would otherwise be read for every batch. Raises `InputError` with all problems of
    its rows; with `skip`, such rows are left out.
    """
    columns = [column for field_columns in fields.values() for column in field_columns]
    scanned = _Scan(file, columns, Faults(file.title, skip), limit, cache, rows)
    table = _Table(file, columns, fields, scanned.dropped, scanned.samples)
    learned = {**learned, **{column.name: column.learned for column in columns if column.learned}}
    classes = {
        name: field_columns[0].classes
        for name, field_columns in fields.items()
        if len(field_columns) == 1 and field_columns[0].classes
    }
    digest = file.digest if rows is None else fingerprint(file.digest, np.packbits(rows).tobytes())
    sample_bytes = sum(column.width * np.dtype(column.dtype).itemsize for column in columns)
    page = int(np.diff(file.pages()).max())
    if scanned.blocks is not None and scanned.samples * sample_bytes <= cache:
        values = [np.concatenate(parts) for parts in scanned.blocks]
        dataset: Dataset = ArrayDataset(
            table.encoded(values), digest=digest, describe=table.describe, identify=table.identify
        )
    else:
        least = WINDOWS_KEPT * max(window, page) if window else 0
        dataset = PagedDataset(table, digest, max(cache, least * sample_bytes))
    dataset.block = page  # the order of a shuffle must not depend on whether the table fits into the cache
    dataset.classes, dataset.learned = classes, learned
    dataset.skipped, dataset.damaged, dataset.rows_without = scanned.skipped, scanned.damaged, scanned.rows_without
    dataset.unknown_values = {column.name: column.unknown_values for column in columns if column.unknown_values}
    dataset.non_integer_labels = {
        name: field_columns[0].non_integer_labels
        for name, field_columns in fields.items()
        if field_columns[0].non_integer_labels
    }
    dataset.column_ranges, dataset.column_encodings = table.column_ranges, table.column_encodings
    dataset.source_rows = table.as_rows()
    return dataset, table.rows


class _Scan:
    """The first pass: learned values, the rows that are used, and their values if they fit in memory."""

    def __init__(
        self,
        file: TableFile,
        columns: Sequence[Column],
        faults: Faults,
        limit: int | None,
        cache: int,
        rows: Array | None,
    ) -> None:
        self._file = file
        self._columns = columns
        self._limit = limit
        self.blocks: list[list[Array]] | None = [[] for _ in columns]
        """The values of each column, block by block; None once they are too many."""
        self.samples = 0
        self.skipped = 0
        self.rows_without: dict[str, list[int]] = {}
        """Rows that `missing: drop` leaves out, by their first column without a value."""
        dropped: list[Array] = []
        first = kept_bytes = 0
        with closing(file.blocks([column.index for column in columns])) as blocks:
            for block in blocks:
                used, values = self._read(block, first, faults, rows)
                dropped.append(np.flatnonzero(~used) + first)
                first += len(block)
                kept_bytes += sum(column.bytes_of(cells) for column, cells in zip(columns, values, strict=True))
                if kept_bytes > cache:
                    self.blocks = None
                for column_blocks, cells in zip(self.blocks or [], values, strict=False):
                    column_blocks.append(cells)
                if faults.full or self.samples == limit:
                    break
        faults.raise_found()
        self.damaged = [
            f"{problem.location}: {problem.brief}" if problem.location else problem.brief for problem in faults.problems
        ]
        if not first:
            expected = "one row or more below the header" if file.named else "rows"
            raise InputError(f"{file.title} has no rows", expected=expected)
        if not self.samples:
            message = f"{'the only row' if first == 1 else f'all {first:,} rows'} of {file.title} "
            message += "is left out" if first == 1 else "are left out"
            got = describe_missing(self.rows_without) or None
            raise InputError([Problem(message, expected="one row or more that is used", got=got), *faults.problems])
        self.dropped = np.concatenate(dropped)
        for at, column in enumerate(columns):
            column.finish_learning(partial(self._reread, at))

    def _reread(self, at: int) -> Iterator[Array]:
        """Yield the values of a column in the used rows, from memory or from the file."""
        if self.blocks is not None:
            yield from self.blocks[at]
            return
        column, pages = self._columns[at], self._file.pages()
        for start, stop in pairwise(pages.tolist()):
            block = self._file.read(start, stop, [column.index])
            faults = BlockFaults(
                Faults(self._file.title, skip=True), len(block), block.locate
            )  # reported in the first pass
            used = ~np.isin(np.arange(start, stop), self.dropped)
            yield column.parse(block.cells[0], faults)[used]

    def _read(self, block: RowBlock, first: int, faults: Faults, rows: Array | None) -> tuple[Array, list[Array]]:
        """Return which of the selected `rows` of a block are used, and their values. `first` is its first row."""
        selected = None if rows is None else rows[first : first + len(block)]
        block_faults = BlockFaults(faults, len(block), block.locate)
        for fault in block.faults:
            block_faults.add([fault.row], None, fault.message, expected=fault.expected, got=fault.got, hint=fault.hint)
        values = [column.parse(cells, block_faults) for column, cells in zip(self._columns, block.cells, strict=True)]
        used = ~block_faults.bad
        self.skipped += int(block_faults.bad[slice(None) if selected is None else selected].sum())
        if selected is not None:
            used &= selected
        for column, column_values in zip(self._columns, values, strict=True):
            out = column.drops(column_values)
            if out is not None:
                if (used & out).any():
                    self.rows_without.setdefault(column.name, []).extend((np.flatnonzero(used & out) + first).tolist())
                used &= ~out
        if self._limit is not None:
            used[np.flatnonzero(used)[self._limit - self.samples :]] = False
        self.samples += int(used.sum())
        values = [cells[used] for cells in values]
        for column, column_values in zip(self._columns, values, strict=True):
            column.tally(column_values)
        return used, values


class _Table:
    """The fields of a table's rows, once all values are learned."""

    def __init__(
        self, file: TableFile, columns: Sequence[Column], fields: Fields, dropped: Array, samples: int
    ) -> None:
        self.file = file
        self.columns = columns
        self.samples = samples
        self._fields = fields
        self._before = dropped - np.arange(len(dropped))
        """Number of samples before each row that is left out."""

    def rows(self, samples: Array) -> Array:
        """Return the rows of samples."""
        return samples + np.searchsorted(self._before, samples, side="right")

    def as_rows(self) -> SampleRows:
        """Return the rows of the samples as they are in the file."""
        own = [column for column in self.columns if not column.is_derived]
        return SampleRows(self.file, own, lambda samples: self.rows(samples)[:, None])

    @property
    def column_ranges(self) -> dict[str, tuple[str, int, int]]:
        """The field of each column, and the range of its elements in a sample of that field."""
        ranges = {}
        for name, columns in self._fields.items():
            start = 0
            for column in columns:
                if not column.is_derived:
                    ranges[column.name] = (name, start, start + column.width)
                start += column.width
        return ranges

    @property
    def column_encodings(self) -> dict[str, tuple[ColumnEncoding | None, ...]]:
        """Return the encodings of the columns of each field, in their order."""
        return {name: tuple(column.encoding() for column in columns) for name, columns in self._fields.items()}

    def describe(self, index: int) -> str:
        return self.file.describe(int(self.rows(np.array([index]))[0]))

    def identify(self, index: int) -> tuple[str, str | int]:
        return "row", int(self.rows(np.array([index]))[0]) + 1

    def type_of(self, name: str) -> FieldType:
        """Return the type of a field."""
        return FieldType(self.shape_of(name), self._fields[name][0].dtype)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a field: a vector for `features`, several columns, or a column of vectors."""
        field_columns = self._fields[name]
        width = sum(column.width for column in field_columns)
        vector = name == FEATURES or len(field_columns) > 1 or field_columns[0].vector or width > 1
        return (width,) if vector else ()

    @property
    def types(self) -> dict[str, FieldType]:
        """The types of all fields."""
        return {name: self.type_of(name) for name in self._fields}

    def encoded(self, values: Sequence[Array]) -> dict[str, Array]:
        """Return the fields of rows, from the values (N,) of each column."""
        of = dict(zip(map(id, self.columns), values, strict=True))
        fields = {}
        for name, field_columns in self._fields.items():
            parts = [column.encode(of[id(column)]) for column in field_columns]
            joined = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
            fields[name] = joined.reshape(len(joined), *self.shape_of(name))
        return fields


class PagedDataset(Dataset):
    """A table of which only the pages read last are in memory, up to `cache` bytes."""

    def __init__(self, table: _Table, digest: str, cache: int) -> None:
        self._table, self.digest = table, digest
        self._cache = cache
        self._pages: OrderedDict[int, dict[str, Array]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()
        self._starts = table.file.pages()
        self.fields = table.types

    def __len__(self) -> int:
        return self._table.samples

    def describe(self, index: int) -> str:
        """Return the origin of a sample for messages."""
        return self._table.describe(index)

    def identify(self, index: int) -> tuple[str, str | int]:
        """Return the number of a sample's row in the file, counted from 1."""
        return self._table.identify(index)

    def read(self, indices: Array) -> dict[str, Samples]:
        """Return the samples at `indices`, reading each page at most once."""
        rows = self._table.rows(indices)
        pages = np.searchsorted(self._starts, rows, side="right") - 1
        shapes = {name: (len(rows), *self._table.shape_of(name)) for name in self.fields}
        fields = {name: np.empty(shape, self.fields[name].dtype) for name, shape in shapes.items()}
        with self._lock:  # columns record the names that they see
            for page in np.unique(pages).tolist():
                positions = np.flatnonzero(pages == page)
                for name, array in self._page(page).items():
                    fields[name][positions] = array[rows[positions] - self._starts[page]]
        return dict(fields)

    def _page(self, page: int) -> dict[str, Array]:
        if page in self._pages:
            self._pages.move_to_end(page)
            return self._pages[page]
        file, columns = self._table.file, self._table.columns
        start, stop = self._starts[page : page + 2].tolist()
        block = file.read(start, stop, [column.index for column in columns])
        faults = BlockFaults(
            Faults(file.title, skip=True), len(block), block.locate
        )  # reported or left out when the table was opened
        values = [column.parse(cells, faults) for column, cells in zip(columns, block.cells, strict=True)]
        fields = self._table.encoded(values)
        self._pages[page] = fields
        self._bytes += _size(fields)
        while self._bytes > self._cache and len(self._pages) > 1:
            self._bytes -= _size(self._pages.popitem(last=False)[1])
        return fields


def _size(arrays: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())

"""A table as samples: one pass learns and checks; what fits in memory stays, of more, pages are read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Dataset, FieldType
from netspec.data.readers.arrays import ArrayDataset
from netspec.data.tabular.columns.base import FEATURES
from netspec.data.tabular.row_errors import BlockFaults, Faults
from netspec.errors import InputError, Problem

if TYPE_CHECKING:
    from netspec.data.base import Array, Samples
    from netspec.data.tabular.column import Column
    from netspec.data.tabular.table_file import Block, TableFile

Fields = Mapping[str, Sequence["Column"]]
"""The columns of each field, in their order."""


WINDOWS_KEPT = 3
"""Windows of shuffled samples whose pages stay in memory: two that a batch may span, and what pages reach beyond."""


def open_table(
    file: TableFile,
    fields: Fields,
    *,
    skip: bool,
    limit: int | None,
    cache: int,
    window: int = 0,
    learned: Mapping[str, Any] = MappingProxyType({}),
) -> Dataset:
    """The rows of a file as samples; `cache` is how many bytes of them may be kept.

    `learned` is what other splits must know in addition to what the columns learn.
    More are kept where samples are shuffled in a `window` that needs more: its pages would be read for every batch.
    Raises InputError with all that is wrong with its rows; with `skip`, such rows are left out.
    """
    columns = [column for several in fields.values() for column in several]
    scanned = _Scan(file, columns, Faults(file.path, skip), limit, cache)
    table = _Table(file, columns, fields, scanned.dropped, scanned.samples)
    learned = {**learned, **{column.name: column.learned for column in columns if column.learned}}
    classes = {name: several[0].classes for name, several in fields.items() if len(several) == 1 and several[0].classes}
    facts: dict[str, Any] = {"classes": classes, "learned": learned}
    facts |= {"skipped": scanned.skipped, "damaged": scanned.damaged}
    facts["non_integer_labels"] = {
        name: several[0].non_integer_labels for name, several in fields.items() if several[0].non_integer_labels
    }
    sample_bytes = sum(column.width * np.dtype(column.dtype).itemsize for column in columns)
    page = int(np.diff(file.pages()).max())
    if scanned.kept is not None and scanned.samples * sample_bytes <= cache:
        values = [np.concatenate(parts) for parts in scanned.kept]
        made = ArrayDataset(table.encoded(values), digest=file.digest, describe=table.describe, **facts)
        made.block = page  # as if it were paged: the order of a shuffle must not depend on the memory
        return made
    least = WINDOWS_KEPT * max(window, page) if window else 0
    return PagedDataset(table, page, max(cache, least * sample_bytes), **facts)


class _Scan:
    """The first pass: what the columns learn, which rows are used, and their values where they fit in memory."""

    def __init__(
        self, file: TableFile, columns: Sequence[Column], faults: Faults, limit: int | None, cache: int
    ) -> None:
        self._file = file
        self._columns = columns
        self._limit = limit
        self.kept: list[list[Array]] | None = [[] for _ in columns]
        """The values of each column, block by block; None where they became too many."""
        self.samples = 0
        self.skipped = 0
        dropped: list[Array] = []
        first = kept_bytes = 0
        with closing(file.blocks([column.place for column in columns])) as blocks:
            for block in blocks:
                used, values = self._read(block, faults)
                dropped.append(np.flatnonzero(~used) + first)
                first += len(block)
                kept_bytes += sum(column.bytes_of(one) for column, one in zip(columns, values, strict=True))
                if kept_bytes > cache:
                    self.kept = None
                for kept, one in zip(self.kept or [], values, strict=False):
                    kept.append(one)
                if faults.full or self.samples == limit:
                    break
        faults.raise_found()
        self.damaged = [f"{one.location}: {one.brief}" if one.location else one.brief for one in faults.problems]
        if not first:
            expected = "one row or more below the header" if file.named else "rows"
            raise InputError(f"{file.path} has no rows", expected=expected)
        if not self.samples:
            expected = "one row or more that is used"
            raise InputError(
                [Problem(f"all {first:,} rows of {file.path} are left out", expected=expected), *faults.problems]
            )
        self.dropped = np.concatenate(dropped)
        for at, column in enumerate(columns):
            column.settle(partial(self._again, at))

    def _again(self, at: int) -> Iterator[Array]:
        """The values of a column in the rows that are used, from memory or from the file."""
        if self.kept is not None:
            yield from self.kept[at]
            return
        column, pages = self._columns[at], self._file.pages()
        for start, stop in pairwise(pages.tolist()):
            block = self._file.read(start, stop, [column.place])
            found = BlockFaults(Faults(self._file.path, skip=True), len(block), block.place)  # told at the first time
            used = ~np.isin(np.arange(start, stop), self.dropped)
            yield column.parse(block.cells[0], found)[used]

    def _read(self, block: Block, faults: Faults) -> tuple[Array, list[Array]]:
        """Which rows of the block are used, and their values."""
        found = BlockFaults(faults, len(block), block.place)
        for fault in block.faults:
            found.add([fault.row], None, fault.message, expected=fault.expected, got=fault.got, hint=fault.hint)
        values = [column.parse(cells, found) for column, cells in zip(self._columns, block.cells, strict=True)]
        used = ~found.bad
        self.skipped += int(found.bad.sum())
        for column, one in zip(self._columns, values, strict=True):
            out = column.drops(one)
            if out is not None:
                used &= ~out
        if self._limit is not None:
            used[np.flatnonzero(used)[self._limit - self.samples :]] = False
        self.samples += int(used.sum())
        values = [one[used] for one in values]
        for column, one in zip(self._columns, values, strict=True):
            column.tally(one)
        return used, values


class _Table:
    """The fields of a table's rows, once all is learned."""

    def __init__(
        self, file: TableFile, columns: Sequence[Column], fields: Fields, dropped: Array, samples: int
    ) -> None:
        self.file = file
        self.columns = columns
        self.samples = samples
        self._fields = fields
        self._dropped = dropped
        self._before = dropped - np.arange(len(dropped))
        """How many samples come before each row that is left out."""

    def rows(self, samples: Array) -> Array:
        """The rows that samples are."""
        return samples + np.searchsorted(self._before, samples, side="right")

    def describe(self, index: int) -> str:
        return self.file.describe(int(self.rows(np.array([index]))[0]))

    def type_of(self, name: str) -> FieldType:
        """The type of a field."""
        return FieldType(self.shape_of(name), self._fields[name][0].dtype)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of a field: a vector if it is `features`, has several columns, or one that makes vectors."""
        several = self._fields[name]
        width = sum(column.width for column in several)
        vector = name == FEATURES or len(several) > 1 or several[0].vector or width > 1
        return (width,) if vector else ()

    @property
    def types(self) -> dict[str, FieldType]:
        """The types of all fields."""
        return {name: self.type_of(name) for name in self._fields}

    def encoded(self, values: Sequence[Array]) -> dict[str, Array]:
        """The fields of rows, of the values (N,) of each column."""
        of = dict(zip(map(id, self.columns), values, strict=True))
        made = {}
        for name, several in self._fields.items():
            parts = [column.encode(of[id(column)]) for column in several]
            whole = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
            made[name] = whole.reshape(len(whole), *self.shape_of(name))
        return made


class PagedDataset(Dataset):
    """A table of which only some pages are in memory: those read last, as many as `cache` bytes hold."""

    def __init__(
        self,
        table: _Table,
        page: int,
        cache: int,
        *,
        classes: Mapping[str, tuple[str, ...]],
        learned: Mapping[str, Any],
        skipped: int,
        damaged: Sequence[str],
        non_integer_labels: Mapping[str, Sequence[Problem]],
    ) -> None:
        self._table = table
        self._cache = cache
        self._pages: OrderedDict[int, dict[str, Array]] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()
        self._starts = table.file.pages()
        self.block = page
        self.fields = table.types
        self.classes, self.learned = dict(classes), dict(learned)
        self.skipped, self.damaged, self.non_integer_labels = skipped, damaged, non_integer_labels
        self.digest = table.file.digest

    def __len__(self) -> int:
        return self._table.samples

    def describe(self, index: int) -> str:
        """Where sample `index` comes from."""
        return self._table.describe(index)

    def read(self, indices: Array) -> dict[str, Samples]:
        """The samples at `indices`, page by page: each page is read once at most."""
        rows = self._table.rows(indices)
        pages = np.searchsorted(self._starts, rows, side="right") - 1
        shapes = {name: (len(rows), *self._table.shape_of(name)) for name in self.fields}
        made = {name: np.empty(shape, self.fields[name].dtype) for name, shape in shapes.items()}
        with self._lock:  # columns note the names that they meet
            for page in np.unique(pages).tolist():
                wanted = np.flatnonzero(pages == page)
                for name, array in self._page(page).items():
                    made[name][wanted] = array[rows[wanted] - self._starts[page]]
        return dict(made)

    def _page(self, page: int) -> dict[str, Array]:
        if page in self._pages:
            self._pages.move_to_end(page)
            return self._pages[page]
        file, columns = self._table.file, self._table.columns
        start, stop = self._starts[page : page + 2].tolist()
        block = file.read(start, stop, [column.place for column in columns])
        found = BlockFaults(Faults(file.path, skip=True), len(block), block.place)  # told, or left out, at opening
        values = [column.parse(cells, found) for column, cells in zip(columns, block.cells, strict=True)]
        made = self._table.encoded(values)
        self._pages[page] = made
        self._bytes += _size(made)
        while self._bytes > self._cache and len(self._pages) > 1:
            self._bytes -= _size(self._pages.popitem(last=False)[1])
        return made


def _size(arrays: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())

"""Parquet files, read with pyarrow one row group at a time, and written batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from netspec.data.base import Array
from netspec.data.files import Watched, existing, head_of
from netspec.data.tabular.cells import TextCells, merged
from netspec.data.tabular.number_format import PLAIN, NumberFormat
from netspec.data.tabular.table_file import RowBlock
from netspec.errors import InputError, Location, Problem, install_command, kind_of_file

if TYPE_CHECKING:
    from types import ModuleType


Done = TypeVar("Done")
HEAD = 4096
"""Number of rows of the head of a file."""


def _library() -> ModuleType:
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "the library pyarrow, which reads and writes Parquet files, is not installed",
            hint=install_command("parquet"),
        ) from None
    module: ModuleType = pa
    return module


def has_parquet_content(path: Path) -> bool:
    """Return whether a file begins like a Parquet file."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


class ParquetTable:
    """A Parquet file. Raises `InputError` if it cannot be opened, or is another kind of file."""

    named = True

    def __init__(self, path: Path) -> None:
        self._pa = _library()
        self.path = existing(path)
        self.title = str(path)
        self._watched = Watched([path])
        self.digest = ""
        with self._opened() as file:
            schema = file.schema_arrow
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self.names: Sequence[str] = schema.names
        self._schema, self._types = schema, schema.types
        self.types = dict(zip(schema.names, schema.types, strict=True))
        """Arrow's types of the columns."""
        self.metadata: Mapping[bytes, bytes] = schema.metadata or {}
        """Metadata of the table, such as the types that pandas has for the columns."""
        self._starts = np.cumsum([0, *sizes])

    def _opened(self) -> Any:
        return self._guarded(lambda: self._pa.parquet.ParquetFile(self.path))

    def _guarded(self, act: Callable[[], Done]) -> Done:
        """Return the result of `act`. Raises `InputError` if pyarrow cannot read the file."""
        try:
            return act()
        except (self._pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise InputError(f"cannot read {self.path}", got=error.strerror or str(error)) from None
            raise InputError(self._damaged(error)) from None

    def _damaged(self, error: Exception) -> Problem:
        self._watched.check()
        head = head_of(self.path)
        if not head.startswith(b"PAR1"):
            expected, got = "a file that begins with PAR1", kind_of_file(head)
            return Problem(f"{self.path} is not a Parquet file", expected=expected, got=got)
        got, hint = str(error).splitlines()[0], "write or fetch it again"
        return Problem(f"{self.path} is damaged", expected="a complete Parquet file", got=got, hint=hint)

    def blocks(self, columns: Sequence[int]) -> Generator[RowBlock]:
        self._check_types(columns)
        try:
            for start, stop in zip(self._starts[:-1].tolist(), self._starts[1:].tolist(), strict=True):
                if start < stop:
                    yield self.read(start, stop, columns)
        finally:
            digest = sha256()
            with self.path.open("rb") as file:
                while part := file.read(1 << 20):
                    digest.update(part)
            self.digest = digest.hexdigest()
        self._watched.check()

    def _check_types(self, columns: Sequence[int]) -> None:
        """Raise `InputError` for columns whose cells are not single values."""
        types = self._pa.types
        tests = ("null", "boolean", "integer", "floating", "decimal", "string", "large_string", "string_view",
            "date", "timestamp")  # fmt: skip
        problems = []
        for column in columns:
            kind = self._types[column]
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if not any(getattr(types, f"is_{test}")(kind) for test in tests):
                message = f"column `{self.names[column]}` of {self.path} is of the type {kind}"
                problems.append(Problem(message, expected="numbers, text, dates, or booleans"))
        if problems:
            raise InputError(problems)

    def head(self, columns: Sequence[int]) -> tuple[RowBlock, bool]:
        self._check_types(columns)
        names = [self.names[column] for column in columns]

        def act() -> Any:
            with self._opened() as file:
                return list(islice(file.iter_batches(batch_size=HEAD, columns=names), 1))

        batches = self._guarded(act)
        table = self._pa.Table.from_batches(batches, None if batches else self._schema)
        cells = [ArrowCells(self._pa, table.column(name)) for name in names]
        return RowBlock(len(table), cells, lambda row, _: self._locate(row)), len(table) == self._starts[-1]

    def pages(self) -> Array:
        return self._starts

    def read(self, start: int, stop: int, columns: Sequence[int]) -> RowBlock:
        self._watched.check()
        group = int(np.searchsorted(self._starts, start, side="right")) - 1
        names = [self.names[column] for column in columns]

        def act() -> Any:
            with self._opened() as file:
                return file.read_row_group(group, columns=names)

        table = self._guarded(act)
        cells = [ArrowCells(self._pa, table.column(name)) for name in names]
        return RowBlock(stop - start, cells, lambda row, _: self._locate(start + row))

    def _locate(self, row: int) -> str:
        return f"{self.path}, row {row + 1}"

    def describe(self, row: int) -> str:
        return f"{self.path.name}, row {row + 1}"

    def heading(self, column: int) -> Location | None:
        return None

    def other_delimiter(self, text: str) -> str | None:
        return None


class ArrowCells:
    """Cells of an Arrow column."""

    def __init__(self, pa: ModuleType, column: Any) -> None:
        self._pa = pa
        types = pa.types
        self._column = column.cast(column.type.value_type) if types.is_dictionary(column.type) else column
        kind = self._column.type
        self.boolean = types.is_boolean(kind)
        self.is_number = self.boolean or any(
            test(kind) for test in (types.is_integer, types.is_floating, types.is_decimal)
        )
        self._is_moment = types.is_date(kind) or types.is_timestamp(kind)

    def __len__(self) -> int:
        return len(self._column)

    def text(self, row: int) -> str:
        texts, text_indices = self._distinct
        return texts[int(text_indices[row])]

    def numbers(self, format: NumberFormat = PLAIN) -> Array:
        if not self.is_number:
            texts = self._column.cast(self._pa.string()).to_pylist()
            return TextCells(["" if text is None else text for text in texts]).numbers(format)
        converted = self._column.cast(self._pa.int8()) if self.boolean else self._column
        return np.array(converted.cast(self._pa.float64(), safe=False).to_numpy(), np.float64)  # nulls become nan

    def moments(self) -> Array | None:
        if not self._is_moment:
            return None
        return np.array(self._column.cast(self._pa.timestamp("us"), safe=False).to_numpy(), "datetime64[us]")

    def distinct(self) -> tuple[list[str], Array]:
        return self._distinct

    def values(self) -> list[Any]:
        kind, column = self._column.type, self._column
        if self._pa.types.is_timestamp(kind):  # Python's dates have microseconds
            column = column.cast(self._pa.timestamp("us", kind.tz), safe=False)
        values: list[Any] = column.to_pylist()
        return values

    @cached_property
    def _distinct(self) -> tuple[list[str], Array]:
        coded = self._column.combine_chunks().dictionary_encode(null_encoding="encode")
        cells = coded.dictionary if self._is_moment else coded.dictionary.cast(self._pa.string())
        texts, positions = merged("" if cell is None else str(cell) for cell in cells.to_pylist())
        return texts, positions[coded.indices.to_numpy()]


def write_parquet(
    path: Path,
    batches: Iterable[Mapping[str, Sequence[Any]]],
    types: Mapping[str, Any] = MappingProxyType({}),
    metadata: Mapping[bytes, bytes] = MappingProxyType({}),
) -> None:
    """Write columns by name. Their types are those in `types` (Arrow's, or names of these), or of the first batch.

    Raises `InputError` with the column of the first value that is not of its type, and the `file` of its row.
    """
    pa = _library()
    writer = None
    try:
        for columns in batches:
            file = str(next(iter(columns.get("file", ())), "the table"))
            table = pa.table({
                name: _array(pa, values, types.get(name), f"`{name}` of {file}") for name, values in columns.items()
            })  # fmt: skip
            table = table.replace_schema_metadata(dict(metadata) or None)
            if writer is None:
                writer = pa.parquet.ParquetWriter(path, table.schema)
                types = dict(zip(table.schema.names, table.schema.types, strict=True))
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _array(pa: ModuleType, values: Sequence[Any], kind: Any, title: str) -> Any:
    """Return the values of the column `title` as an Arrow array of a type; texts are read, and numbers are written."""
    try:
        return pa.array(list(values), kind)
    except (pa.ArrowException, OverflowError):
        pass
    try:
        return pa.array([None if value == "" else value for value in values]).cast(kind)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            f"the column {title} cannot be written as {kind}, its type in the first file", got=str(error),
            hint="write a .csv file, or one Parquet file for each file",
        ) from None  # fmt: skip

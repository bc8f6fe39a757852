"""Text tables (CSV, TSV): rows split by the `csv` module, in blocks, with an index to read parts again."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from netspec.data.base import Array
from netspec.data.files import Watched, existing, explain_read_errors
from netspec.data.tabular.cells import TextCells
from netspec.data.tabular.table_file import Fault, RowBlock
from netspec.errors import InputError, Location, Problem, SettingHint, kind_of_file

BLOCK = 4096
"""Number of rows that are parsed at a time: enough for NumPy to pay off, few enough for the cache."""
BLOCK_BYTES = 2**24
"""A block ends early if its rows are long."""
DELIMITERS = (",", ";", "\t", "|")
HEAD = 2**16
"""Number of bytes in which the delimiter of a table is recognized."""
LONGEST = 2**20
"""Maximum number of characters in a cell: enough for a document, too few for an unclosed quotation mark."""
STEP, SINGLE = 1024, 32
"""Rows between two entries of the index, if neighboring rows are read together, and if any row may come next."""


@dataclass(frozen=True)
class TextOptions:
    """The format of a text table; see the source `csv`."""

    header: bool | tuple[str, ...]
    delimiter: str = ","
    quotes: bool = True
    comment: str | None = None
    skip_lines: int = 0
    encoding: str = "utf-8"
    step: int = STEP
    """Number of rows between two entries of the index; these are read again together."""


class _Row(NamedTuple):
    cells: list[str]
    offset: int
    """Number of bytes before it."""
    line: int
    """The line in which it begins, from 1."""
    undecoded: tuple[int, int, int] | None
    """Line, column and value of its first byte that cannot be decoded."""


class _Rows:
    """The rows of an open file from its position on, and the start of each."""

    def __init__(self, file: IO[bytes], options: TextOptions, offset: int = 0, line: int = 1) -> None:
        self._file, self._options = file, options
        self._offset, self._line = offset, line
        self._ignored = b" \t\n\r\v\f".replace(options.delimiter.encode(options.encoding), b"")
        self._comment = options.comment.encode(options.encoding) if options.comment else None
        self._between = True
        """Whether the next line begins a row, which it does not within quotes."""
        self._blank = False
        """Whether the row that was read is a blank line; a row of one empty cell is `""`."""
        self._undecoded: tuple[int, int, int] | None = None

    def __iter__(self) -> Iterator[_Row]:
        """Read all rows that are not blank. Raises `csv.Error` if they cannot be separated."""
        options = self._options
        csv.field_size_limit(max(LONGEST, csv.field_size_limit()))  # the limit is shared by all readers of a process
        reader = csv.reader(
            self._lines(),
            delimiter=options.delimiter,
            skipinitialspace=options.delimiter not in " \t",
            quoting=csv.QUOTE_MINIMAL if options.quotes else csv.QUOTE_NONE,
            strict=True,
        )
        offset, self.line = self._offset, self._line
        for cells in reader:
            if not self._blank:
                yield _Row(cells, offset, self.line, self._undecoded)
            offset, self.line = self._offset, self._line
            self._between, self._undecoded = True, None

    def _lines(self) -> Iterator[str]:
        encoding, comment = self._options.encoding, self._comment
        for raw in self._file:
            if not self._offset:
                raw, marked = raw.removeprefix(b"\xef\xbb\xbf"), len(raw)
                self._offset = marked - len(raw)
            self._offset += len(raw)
            self._line += 1
            if self._between:
                self._blank = not raw.strip(self._ignored)
                if self._line - 1 <= self._options.skip_lines or (comment and raw.startswith(comment)):
                    self._blank = True
                    yield "\n"
                    continue
                self._between = False
            try:
                yield raw.decode(encoding)
            except UnicodeDecodeError as error:
                before = raw[: error.start].decode(encoding)
                self._undecoded = self._undecoded or (self._line - 1, len(before) + 1, raw[error.start])
                yield raw.decode(encoding, "replace")


class _Hashed(io.RawIOBase):
    """A file that feeds every byte read to a digest."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.digest = sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = self._file.readinto(buffer) or 0
        self.digest.update(memoryview(buffer)[:size])
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def has_text_content(path: Path) -> bool:
    """Return whether a file begins like a text, in any encoding that extends ASCII."""
    try:
        with path.open("rb") as file:
            return kind_of_file(file.read(64).decode("ascii", "replace").encode()) == "a text file"
    except OSError:
        return False


def has_carriage_returns_alone(head: bytes) -> bool:
    """Return whether lines of a file that begins so end with carriage returns instead of line feeds."""
    return b"\r" in head.strip() and not {*b"\n\0"} & {*head}


def likely_delimiter(path: Path) -> str:
    """Return the delimiter with which the first rows of a text table are most regular."""
    with path.open("rb") as file:
        sample = file.read(HEAD).decode("utf-8-sig", "replace")
    return most_regular_delimiter(sample)[0]


def most_regular_delimiter(sample: str) -> tuple[str, float]:
    """Return the delimiter that gives most of the first rows the same number of cells, and the share of these rows."""
    shares = {delimiter: _regularity(sample, delimiter) for delimiter in DELIMITERS}
    delimiter = max(shares, key=lambda mark: shares[mark])
    return delimiter, shares[delimiter][0]


def _regularity(sample: str, delimiter: str) -> tuple[float, int]:
    """Return how regular a table is with a delimiter: the share of rows of the usual length, and that length."""
    rows = csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter, skipinitialspace=delimiter != "\t")
    filled = (row for row in rows if len(row) > 1 or (row and row[0].strip()))
    lengths = Counter(len(row) for row in islice(filled, 100))
    length, count = lengths.most_common(1)[0] if lengths else (1, 0)
    return (count / lengths.total() if length > 1 else 0.0, length)


def _refuse_packed(path: Path, head: bytes) -> None:
    """Raise `InputError` if the file begins like another known format."""
    hints = {
        "gzipped data": "unpack it first, for example with `gunzip`", "text in UTF-16": "convert it to UTF-8",
        "a Parquet file": "`source: parquet` reads such files; to use it here, convert it to CSV, for example with "
        "`pandas.read_parquet(…).to_csv(…, index=False)`",
    }  # fmt: skip
    kind = kind_of_file(head)
    if kind in hints:
        raise InputError(f"{path} is not plain text", expected="a table as text", got=kind, hint=hints[kind])


class TextFile:
    """A text table. Raises `InputError` if the file cannot be opened or has no first row."""

    def __init__(self, path: Path, options: TextOptions) -> None:
        self.path = existing(path)
        self.title = str(path)
        self._options = options
        self.delimiter = options.delimiter
        self._watched = Watched([path])
        self.digest = ""
        self.named = options.header is not False
        self._offsets = array("q")
        """The start of every `step`-th row, and its line."""
        self._lines = array("q")
        self._breaks: tuple[array[int], array[int]] = array("q"), array("q")
        """Rows that do not begin in the line after the previous one, including the first row, and their lines."""
        self._count = 0
        with self._opened() as file:
            _refuse_packed(path, file.read(4))
            file.seek(0)
            first = self._first(file)
        if first is None:
            raise InputError(f"{path} is empty", expected="a table")
        if isinstance(options.header, tuple):
            self.names: Sequence[str] = options.header
            self._repeated = [cell.strip() for cell in first.cells] == list(options.header)
        else:
            self._repeated = options.header
            cells = [cell.strip() for cell in first.cells]
            self.names = cells if options.header else [str(number + 1) for number in range(len(cells))]
        self._first_row = first
        if self._repeated and first.undecoded:
            raise InputError(self._undecoded(first))

    def _opened(self) -> IO[bytes]:
        with explain_read_errors(self.path):
            return self.path.open("rb")

    def _first(self, file: IO[bytes]) -> _Row | None:
        try:
            return next(iter(_Rows(file, self._options)), None)
        except csv.Error as error:
            raise InputError(self._unreadable(1, error)) from None

    def blocks(self, columns: Sequence[int]) -> Generator[RowBlock]:
        with explain_read_errors(self.path):
            raw = _Hashed(self.path)
        with io.BufferedReader(raw, 1 << 20) as file:
            source = _Rows(file, self._options)
            rows = iter(source)
            if self._repeated:
                next(rows)
            try:
                yield from self._indexed(rows, columns)
            except csv.Error as error:
                raise InputError(self._unreadable(source.line, error)) from None
            finally:
                while file.read(1 << 20):  # bytes beyond a limit count for the digest too
                    pass
                self.digest = raw.digest.hexdigest()
        self._watched.check()

    def head(self, columns: Sequence[int]) -> tuple[RowBlock, bool]:
        with self._opened() as file:
            source = _Rows(file, self._options)
            rows: list[_Row] = []
            try:
                for number, row in enumerate(source):
                    if number or not self._repeated:
                        rows.append(row)
                    if len(rows) > BLOCK or row.offset > BLOCK_BYTES:
                        return self._block(rows[:-1], 0, columns), False
            except csv.Error as error:
                raise InputError(self._unreadable(source.line, error)) from None
        return self._block(rows, 0, columns), True

    def _indexed(self, rows: Iterator[_Row], columns: Sequence[int]) -> Iterator[RowBlock]:
        rows_read: list[_Row] = []
        expected, step = -1, self._options.step
        for row in rows:
            if row.line != expected:
                self._breaks[0].append(self._count)
                self._breaks[1].append(row.line)
            expected = row.line + 1
            if self._count % step == 0:
                self._offsets.append(row.offset)
                self._lines.append(row.line)
            self._count += 1
            rows_read.append(row)
            if len(rows_read) == BLOCK or row.offset - rows_read[0].offset >= BLOCK_BYTES:
                yield self._block(rows_read, self._count - len(rows_read), columns)
                rows_read = []
        if rows_read:
            yield self._block(rows_read, self._count - len(rows_read), columns)

    def pages(self) -> Array:
        return np.append(np.arange(0, self._count, self._options.step), self._count)

    def read(self, start: int, stop: int, columns: Sequence[int]) -> RowBlock:
        self._watched.check()
        entry = start // self._options.step
        with self._opened() as file:
            file.seek(self._offsets[entry])
            rows = iter(_Rows(file, self._options, self._offsets[entry], self._lines[entry]))
            rows_read = [row for row, _ in zip(rows, range(stop - start), strict=False)]
        if len(rows_read) < stop - start:
            raise InputError(f"{self.path} changed while it was read", expected="the file found at opening")
        return self._block(rows_read, start, columns)

    def _block(self, rows: list[_Row], start: int, columns: Sequence[int]) -> RowBlock:
        width = len(self.names)
        split = [row.cells for row in rows]
        faults: list[Fault] = []
        if set(map(len, split)) != {width}:
            for number, cells in enumerate(split):
                if len(cells) != width:
                    faults.append(self._ragged(number, cells))
                    split[number] = [*cells, *[""] * width][:width]
        faults += [
            Fault(number, **self._undecoded_facts(row.undecoded)) for number, row in enumerate(rows) if row.undecoded
        ]
        table = list(zip(*split, strict=True)) or [()] * width
        return RowBlock(
            len(rows),
            [TextCells(table[column]) for column in columns],
            lambda row, column: self._locate(rows[row], column),
            faults,
        )

    def _ragged(self, number: int, cells: list[str]) -> Fault:
        single = self.names if len(self.names) == 1 else cells[: len(cells) == 1]
        where = (
            "in `header`"
            if isinstance(self._options.header, tuple)
            else "in the header"
            if self.named
            else "in the first row"
        )
        message = f"this row has {len(cells)} cell{'s' * (len(cells) != 1)}"
        return Fault(number, message, f"{len(self.names)}, as {where}", hint=self.other_delimiter("".join(single)))

    def _undecoded_facts(self, undecoded: tuple[int, int, int]) -> dict[str, Any]:
        encoding = self._options.encoding
        return {
            "message": f"this row is not {encoding.upper()} text",
            "expected": f"text in {encoding.upper()}",
            "got": f"the byte {undecoded[2]:#04x}",
            "hint": SettingHint(
                "`encoding` can be `latin-1` or `cp1252` too, which older programs write",
                settings={"encoding": "cp1252"},
                purpose="to read the files of older programs",
                data=f"save it as {encoding.upper()}",
            ),
        }

    def _undecoded(self, row: _Row) -> Problem:
        assert row.undecoded
        facts = self._undecoded_facts(row.undecoded)
        return Problem(
            facts.pop("message"), self._locate(row, None), "", facts["expected"], facts["got"], facts["hint"]
        )

    def _unreadable(self, line: int, error: csv.Error) -> Problem:
        with self._opened() as file:
            if has_carriage_returns_alone(file.read(HEAD)):
                message = f"the lines of {self.path} end with carriage returns alone"
                return Problem(
                    message, expected="lines that end with line feeds",
                    hint=f"convert it: `tr '\\r' '\\n' < {shlex.quote(self.path.name)} > new.csv`",
                )  # fmt: skip
        text = self._text_of(line)
        purpose = "to take quotation marks as they are"
        quotes = SettingHint(
            "`quotes: false` takes quotation marks as they are", settings={"quotes": False}, purpose=purpose,
            data="write a cell with a quotation mark in quotation marks, and those in the cell twice",
        )  # fmt: skip
        return Problem(
            "this row cannot be read",
            Location(str(self.path), line, 1, text),
            expected=f"cells in matching quotes, of at most {LONGEST:,} characters",
            got="a carriage return outside of quotes" if str(error).startswith("new-line") else str(error),
            hint=quotes if '"' in text else None,
        )

    def _locate(self, row: _Row, column: int | None) -> Location:
        """Return a row of the table, or a cell of it if this is in the row's first line."""
        if row.undecoded and column is None:
            line, position = row.undecoded[:2]
            return Location(str(self.path), line, position, self._text_of(line))
        text = self._text_of(row.line, row.offset)
        start = self._cell_start(text, column or 0)
        return Location(str(self.path), row.line, 1 if start is None else start + 1, text)

    def _cell_start(self, text: str, column: int) -> int | None:
        """Return the index of a cell in the first line of its row; None if a later line contains it."""
        delimiter, blanks = re.escape(self._options.delimiter), " \t".replace(self._options.delimiter, "")
        quoted, plain = re.compile(rf'"(?:[^"]|"")*"[^{delimiter}]*'), re.compile(f"[^{delimiter}]*")
        start = 0
        for _ in range(column):
            start = len(text) - len(text[start:].lstrip(blanks))
            is_quoted = self._options.quotes and text.startswith('"', start)
            cell = (quoted if is_quoted else plain).match(text, start)
            if cell is None or cell.end() == len(text):
                return None
            start = cell.end() + 1
        return len(text) - len(text[start:].lstrip(blanks)) if column else 0

    def _text_of(self, line: int, offset: int | None = None) -> str:
        """Return the text of a line, for a message."""
        with self._opened() as file:
            if offset is None:
                for _ in range(line - 1):
                    file.readline()
            else:
                file.seek(offset)
            raw = file.readline()
        text = raw.removeprefix(b"\xef\xbb\xbf").decode(self._options.encoding, "replace").rstrip("\r\n")
        return text.replace("\r", "\\r")  # a terminal would overwrite the line

    def describe(self, row: int) -> str:
        starts, lines = self._breaks
        index = bisect_right(starts, row) - 1
        return f"{self.path.name}, line {lines[index] + row - starts[index]}"

    def heading(self, column: int) -> Location | None:
        return self._locate(self._first_row, column) if self._repeated else None

    def other_delimiter(self, text: str) -> str | None:
        for delimiter, written in ((";", '";"'), ("\t", '"\\t"'), ("|", '"|"'), (",", '","'), (" ", '" "')):
            if delimiter != self._options.delimiter and delimiter in text:
                return SettingHint(
                    f"the line is a single cell: for this file set `delimiter: {written}`",
                    settings={"delimiter": delimiter}, purpose=f"to separate cells at {written}",
                    data=f"the line is a single cell: separate cells by {json.dumps(self._options.delimiter)}",
                )  # fmt: skip
        return None

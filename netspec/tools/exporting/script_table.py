"""The lines of an exported model's script that read a table as `netspec predict` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from netspec.data.tabular.csv import LONGEST
from netspec.data.tabular.encodings import CategoricalEncoding, ColumnEncoding, DateEncoding, NumberEncoding
from netspec.data.tabular.numeric_reader import BOOLEANS, FLOAT32_MAX
from netspec.data.tabular.row_times import EVERY_DAY, MAX_STEP_RATIO, UsualSteps
from netspec.tools.exporting.text_vocabulary import TextInput

if TYPE_CHECKING:
    from netspec.tools.exporting.raw_columns import RawColumns

Encoding = TypeVar("Encoding", NumberEncoding, CategoricalEncoding, DateEncoding)


@dataclass(frozen=True)
class ScriptTable:
    """A table whose columns are the inputs of an exported model."""

    columns: RawColumns | None
    texts: Sequence[TextInput] = ()
    """The columns of texts."""
    header: Sequence[str] | None = None
    """Names of the columns if the file has no header."""
    delimiter: str = ","
    encoding: str = "utf-8"
    quotes: bool = True
    comment: str | None = None
    """Text at the beginning of lines to skip."""
    skip_lines: int = 0
    """Number of lines at the beginning of the file to skip."""
    group: str | None = None
    """Column that names the series of a row, for samples of several rows."""
    time: str | None = None
    """Column of the time of a row, which a file may lack, for samples of several rows."""
    time_format: str | None = None
    """Format of the times, in the notation of `strptime`; None for numbers and ISO 8601."""
    time_steps: UsualSteps | None = None
    """The usual steps between rows in the training, if they are known."""

    @property
    def encodings(self) -> Mapping[str, ColumnEncoding]:
        """The encodings of the columns that are inputs."""
        return {} if self.columns is None else self.columns.encodings

    @property
    def length(self) -> int | None:
        """Number of rows of a sample; None if a sample is one row."""
        return None if self.columns is None else self.columns.length

    @property
    def dropping(self) -> list[str]:
        """The columns whose missing values leave rows out, in the order of the report."""
        columns = [] if self.columns is None else self.columns.dropping
        return [*columns, *(text.column for text in self.texts if text.missing == "drop")]

    @property
    def has_dates(self) -> bool:
        """Whether a column contains dates, or may contain them."""
        return self.time is not None or bool(self._of(DateEncoding))

    @property
    def uses_patterns(self) -> bool:
        """Whether numbers are checked with a regular expression."""
        return any(encoding.format.thousands is not None for encoding in self._of(NumberEncoding))

    @property
    def row_label(self) -> str:
        """The number of the row of an answer, as a field of an f-string."""
        if self.length is not None:
            return f"{{starts[row] + {self.length}}}"
        return "{kept[row] + 1}" if self.dropping else "{row + 1}"

    def functions(self) -> list[str]:
        """Return the lines of the functions that `read_table` calls."""
        parts = [self._define_read_rows(), self._define_read_parquet(), self._define_is_missing()]
        cells = self._of(NumberEncoding)
        numbers = [encoding for encoding in cells if not encoding.boolean]
        parts += [_define_read_number(numbers)] * bool(numbers) + [_define_read_date()] * self.has_dates
        parts += [_define_read_boolean()] * any(encoding.boolean for encoding in cells)
        parts += [_define_read_numbers()] * (bool(cells) or bool(self._of(DateEncoding)))
        parts += [self._define_check_times()] * (self.time is not None)
        if categories := self._of(CategoricalEncoding):
            parts.append(_define_read_categories([encoding.column for encoding in categories if not encoding.is_open]))
            parts += [_define_note_unknown_categories()] * bool(self.open_categories)
        return [line for part in parts for line in ("", "", *part)]

    def read_table(self) -> list[str]:
        """Return the lines that read the file `name` as `columns`, arrays by the names of inputs."""
        columns = [*self.encodings, *(text.column for text in self.texts)]
        needed = columns + [self.group] * (self.group is not None and self.group not in columns)
        lines = [
            "rows = read_rows(name)",
            f"absent = [column for column in {needed!r} if column not in rows[0]]",
            "if absent:",
            *self._refuse_absent(),
            *self._refuse_missing(),
            *[f"if {self.time!r} in rows[0]:", "    check_times(rows)"] * (self.time is not None),
            "columns = {}",
            *self._convert_columns(),
        ]
        if self.dropping:
            lines += _leave_rows_out(self.dropping)
            if self.length is None:
                lines.append("columns = {name: values[kept] for name, values in columns.items()}")
        lines += self._note_unknown()
        return lines if self.length is None else [*lines, *self._make_windows(self.length)]

    def _refuse_absent(self) -> list[str]:
        """Return the lines that report columns that the table does not have."""
        named: Sequence[ColumnEncoding | TextInput] = [*self.encodings.values(), *self.texts]
        optional = [each.column for each in named if each.missing not in ("error", "drop")]
        raise_error = """    raise ValueError(f"no column {', '.join(absent)}")"""
        if not optional:
            return [raise_error]
        return [
            f"    blank = [column for column in absent if column in {optional!r}]",
            """    fix = f"; add {', '.join(blank)} with empty cells" if blank else \"\"""",
            """    raise ValueError(f"no column {', '.join(absent)}{fix}")""",
        ]

    def _of(self, kind: type[Encoding]) -> list[Encoding]:
        return [encoding for encoding in self.encodings.values() if isinstance(encoding, kind)]

    def _define_read_rows(self) -> Iterator[str]:
        """Yield the lines of a function that reads rows: comments and blank lines count only between rows."""
        blank = b" \t\n\r\v\f".replace(self.delimiter.encode(self.encoding), b"")
        skipped = [f"number <= {self.skip_lines}"] * bool(self.skip_lines)
        if self.comment is not None:
            skipped.append(f"line.startswith({self.comment.encode(self.encoding)!r})")
        skipped.append(f"not line.strip({blank!r})")
        condition = f"({' or '.join(skipped)})" if len(skipped) > 1 else skipped[0]
        options = [f"delimiter={self.delimiter!r}"] * (self.delimiter != ",")
        options += ["skipinitialspace=True"] * (self.delimiter not in " \t")
        options += ["quoting=csv.QUOTE_NONE"] * (not self.quotes)
        yield "def read_rows(name):"
        yield '    with open(name, "rb") as file:'
        yield '        if file.read(4) == b"PAR1":'
        yield "            return read_parquet(name)"
        yield f"    csv.field_size_limit({LONGEST})"
        yield "    rows, number, between = [], 0, True"
        yield ""
        yield "    def lines(file):"
        yield "        nonlocal number, between"
        yield "        for number, line in enumerate(file, 1):"
        yield r'            line = line[3:] if number == 1 and line.startswith(b"\xef\xbb\xbf") else line'
        yield f"            if between and {condition}:"
        yield "                continue"
        yield "            between = False"
        yield f'            yield line.decode("{self.encoding}")'
        yield ""
        yield '    with open(name, "rb") as file:'
        yield "        try:"
        yield f"            for row in csv.reader(lines(file), {', '.join([*options, 'strict=True'])}):"
        yield "                rows.append([cell.strip() for cell in row])"
        yield "                between = True"
        yield "        except csv.Error as error:"
        yield '            raise ValueError(f"line {number}: {error}") from None'
        yield "        except UnicodeDecodeError as error:"
        yield "            byte = error.object[error.start]"
        others = " or ".join(f"`encoding: {name}`" for name in ("utf-8", "latin-1", "cp1252") if name != self.encoding)
        hint = f"save it as {self.encoding.upper()}, or train with {others}"
        yield f'            reason = f"not {self.encoding.upper()} (byte {{byte:#04x}}); {hint}"'
        yield '            raise ValueError(f"line {number}: {reason}") from None'
        if self.header is not None:
            yield f"    names = {list(self.header)!r}"
            yield "    rows = rows[rows[:1] == [names] :]  # without a line with the names"
        else:
            yield "    names, *rows = rows or [[]]"
        yield "    if not rows:"
        where = "" if self.header is not None else " below the header {', '.join(names)}"
        yield f'        raise ValueError({"f" * bool(where)}"no rows{where}")'
        yield "    for number, row in enumerate(rows, 1):"
        yield "        if len(row) != len(names):"
        yield '            raise ValueError(f"row {number}: {len(row)} cells, expected {len(names)}")'
        yield "    return [dict(zip(names, row)) for row in rows]"

    def _define_read_parquet(self) -> Iterator[str]:
        """Yield the lines of a function that reads the rows of a Parquet file as texts, as `netspec predict` does."""
        numbers = self._of(NumberEncoding)
        decimal = numbers[0].format.decimal if numbers else "."
        if self.has_dates:
            yield "class StoredDate(str):"
            yield '    "A date of a Parquet file, in ISO 8601."'
            yield from ("", "")
        yield "def read_parquet(name):"
        yield "    try:"
        yield "        import pyarrow.parquet"
        yield "    except ImportError:"
        yield '        raise ValueError("reading Parquet files needs pyarrow: `pip install pyarrow`") from None'
        yield ""
        yield "    def text(value, column):"
        yield "        if value is None or value != value:"
        yield '            return ""'
        yield "        if isinstance(value, bool):"
        yield "            return str(value).lower()"
        yield "        if isinstance(value, (int, float)):"
        yield '            number = str(value).removesuffix(".0")'
        if decimal != ".":
            yield f"            if column in {[encoding.column for encoding in numbers]!r}:"
            yield f'                return number.replace(".", {decimal!r})'
        yield "            return number"
        if self.has_dates:
            yield '        if hasattr(value, "isoformat"):'
            yield "            return StoredDate(value)"
        yield "        return str(value).strip()"
        yield ""
        yield "    rows = pyarrow.parquet.read_table(name).to_pylist()"
        yield "    if not rows:"
        yield '        raise ValueError("no rows")'
        yield "    return [{column: text(value, column) for column, value in row.items()} for row in rows]"

    def _define_is_missing(self) -> Iterator[str]:
        """Yield the lines of a function that says whether a value is missing; names of categories never are."""
        names = {encoding.column: list(encoding.names) for encoding in self._of(CategoricalEncoding)}
        read: Sequence[ColumnEncoding | TextInput] = [*self.encodings.values(), *self.texts]
        common = frozenset.intersection(*(frozenset(each.missing_values) for each in read))
        own = {each.column: [text for text in each.missing_values if text not in common] for each in read}
        own = {column: texts for column, texts in own.items() if texts}
        yield f"missing = {sorted({'', *common})!r}"
        if own:
            yield f"missing_in = {own!r}"
        if names:
            yield f"categories = {names!r}"
        yield ""
        yield ""
        yield "def is_missing(row, column):"
        known = " and row[column] not in categories.get(column, [])" if names else ""
        texts = "[*missing, *missing_in.get(column, [])]" if own else "missing"
        yield f"    return row[column].lower() in {texts}{known}"

    def _refuse_missing(self) -> list[str]:
        """Return the lines that report missing values in columns without `missing`."""
        strict = [encoding.column for encoding in self.encodings.values() if encoding.missing == "error"]
        strict += [text.column for text in self.texts if text.missing == "error"]
        return [
            f"for column in {strict!r}:",
            "    for number, row in enumerate(rows, 1):",
            "        if is_missing(row, column):",
            '            raise ValueError(f"row {number}: {column} is missing")',
        ] if strict else []  # fmt: skip

    def _convert_columns(self) -> Iterator[str]:
        """Yield the lines that convert the cells of each column."""
        readers: dict[str, list[str]] = {}
        read: list[NumberEncoding | DateEncoding] = [*self._of(NumberEncoding), *self._of(DateEncoding)]
        for encoding in read:
            readers.setdefault(_reader(encoding), []).append(encoding.column)
        for reader, columns in readers.items():
            yield f"for column in {columns!r}:"
            yield f"    columns[column] = read_numbers(rows, column, {reader})"
        if categories := [encoding.column for encoding in self._of(CategoricalEncoding)]:
            yield f"for column in {categories!r}:"
            yield "    columns[column] = read_categories(rows, column)"
        for text in self.texts:
            cell = f"row[{text.column!r}]"
            if text.missing != "error":
                cell = f'"" if is_missing(row, {text.column!r}) else {cell}'
            yield f'columns["{text.name}"] = np.array([{text.function}({cell}) for row in rows], np.int32)'

    @property
    def open_categories(self) -> list[str]:
        """The columns of categories in which unknown ones are allowed."""
        return [encoding.column for encoding in self._of(CategoricalEncoding) if encoding.is_open]

    def _note_unknown(self) -> Iterator[str]:
        """Yield the lines that report values that the training data does not have, as `netspec predict` does."""
        if columns := self.open_categories:
            yield f"for column in {columns!r}:"
            rows = "[rows[number] for number in kept]" if self.dropping else "rows"
            yield f"    note_unknown_categories({rows}, column)"
        numbers = "kept" if self.dropping else "range(len(rows))"
        for text in self.texts:
            if text.reserved_tokens:
                yield f"labels = [f'row {{number + 1}}' for number in {numbers}]"
                yield f'note_unknown_texts(columns["{text.name}"], {text.reserved_tokens}, labels)'

    def _define_check_times(self) -> Iterator[str]:
        """Yield the lines of a function that refuses rows in the wrong order, and reports unusual steps."""
        read = "float(cell)" if self.time_format is None else f"read_date(cell, {self.time_format!r})"
        yield "def check_times(rows):"
        yield f"    column, times = {self.time!r}, []"
        yield "    for number, cell in enumerate([row[column] for row in rows], 1):"
        yield "        try:"
        yield "            try:"
        yield f"                times.append({read})"
        yield "            except ValueError:"
        yield "                times.append(read_date(cell, None))"
        yield "        except ValueError:"
        yield '            raise ValueError(f"row {number}: cannot read {column} {cell!r}") from None'
        yield "    unusual = []"
        yield "    for number in range(1, len(rows)):"
        if self.group is not None:
            yield f"        if rows[number][{self.group!r}] != rows[number - 1][{self.group!r}]:"
            yield "            continue"
        yield "        step = times[number] - times[number - 1]"
        yield "        if step < 0:"
        yield '            raise ValueError(f"row {number + 1} is earlier than the row before: sort by {column}")'
        if self.time_steps is None:
            return
        if self.time_steps.weekmask != EVERY_DAY:  # 1970 began on a Thursday
            days = "range(int(times[number - 1] // 86400), int(times[number] // 86400))"
            yield f"        step -= 86400 * sum({self.time_steps.weekmask!r}[(day + 3) % 7] == '0' for day in {days})"
        shortest, longest = self.time_steps.shortest / MAX_STEP_RATIO, self.time_steps.longest * MAX_STEP_RATIO
        yield f"        if not {shortest!r} <= step <= {longest!r}:"
        yield "            unusual.append(number + 1)"
        yield "    if unusual:"
        yield '        reason = f"steps in `{column}` differ from the training data"'
        yield '        print(f"note: {reason}, the first before row {unusual[0]}", file=sys.stderr)'

    def _make_windows(self, length: int) -> Iterator[str]:
        """Yield the lines that turn columns into windows of consecutive rows, each within one group, without gaps."""
        yield f"starts = list(range(len(rows) - {length - 1}))"
        if self.group is not None:
            series = f"{{row[{self.group!r}] for row in rows[start : start + {length}]}}"
            yield f"starts = [start for start in starts if len({series}) == 1]"
        if self.dropping:
            yield "present = {*kept}"
            yield f"starts = [start for start in starts if present.issuperset(range(start, start + {length}))]"
        yield "if not starts:"
        yield f'    raise ValueError("fewer than {length} consecutive rows")'
        yield f"windows = np.array(starts)[:, None] + np.arange({length})"
        yield "columns = {name: values[windows] for name, values in columns.items()}"


def _define_read_number(encodings: Sequence[NumberEncoding]) -> Iterator[str]:
    """Yield the lines of a function that reads a number, in the notation of the table."""
    format_ = encodings[0].format  # columns of a table differ only in their units
    units = any(encoding.format.unit is not None for encoding in encodings)
    yield f"def read_number(cell{', unit=None' * units}):"
    yield "    text = cell"
    if units:
        yield "    if unit:"
        yield '        sign, text = (text[0], text[1:].lstrip()) if text[0] in "+-" else ("", text)'
        yield "        if text.startswith(unit) == text.endswith(unit):"
        yield "            raise ValueError(cell)"
        yield "        rest = text[len(unit) :] if text.startswith(unit) else text[: -len(unit)]"
        yield "        text = sign + rest.strip()"
    if format_.thousands == " ":
        yield r'    text = text.replace("\u00a0", " ").replace("\u202f", " ")'
    if format_.thousands is not None:
        yield f"    if {format_.thousands!r} in text:"
        yield f"        if not re.fullmatch({format_.grouped.pattern!r}, text, re.ASCII):"
        yield "            raise ValueError(cell)"
        yield f'        text = text.replace({format_.thousands!r}, "")'
    if format_.decimal != ".":
        yield '    if "." in text:'
        yield "        raise ValueError(cell)"
        yield f'    text = text.replace({format_.decimal!r}, ".")'
    yield f'    if "_" in text or not abs(float(text)) <= {FLOAT32_MAX}:'
    yield "        raise ValueError(cell)"
    yield "    return float(text)"


def _define_read_boolean() -> Iterator[str]:
    """Yield the lines of a function that reads a boolean as a number."""
    yield "def read_boolean(cell):"
    yield f"    values = {BOOLEANS!r}"
    yield "    if cell.lower() not in values:"
    yield "        raise ValueError(cell)"
    yield "    return values[cell.lower()]"


def _define_read_date() -> Iterator[str]:
    """Yield the lines of a function that reads dates as the model takes them."""
    yield "def read_date(text, form):"
    yield "    if isinstance(text, StoredDate):"
    yield "        form = None"
    yield "    try:"
    yield "        moment = datetime.strptime(text, form) if form else datetime.fromisoformat(text)"
    yield "    except ValueError:"
    yield '        moment = datetime.strptime(text, form or "%Y-%m")'
    yield "    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()"


def _define_read_numbers() -> Iterator[str]:
    """Yield the lines of a function that reads a column of numbers or dates."""
    yield "def read_numbers(rows, column, read):"
    yield "    values = []"
    yield "    for number, row in enumerate(rows, 1):"
    yield "        try:"
    yield "            values.append(np.nan if is_missing(row, column) else read(row[column]))"
    yield "        except ValueError:"
    yield '            raise ValueError(f"row {number}: cannot read {column} {row[column]!r}") from None'
    yield "    return np.array(values, np.float64)"


def _define_read_categories(closed: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a function that reads categories; unknown ones are an error in the columns `closed`."""
    yield "def read_categories(rows, column):"
    if closed:
        yield "    known = {*categories[column]}"
        yield "    for number, row in enumerate(rows, 1):"
        yield f"        if column in {list(closed)!r} and row[column] not in known and not is_missing(row, column):"
        yield '            raise ValueError(f"row {number}: {row[column]!r} is not a category of {column}")'
    yield "    return np.array([row[column] for row in rows], object)"


def _define_note_unknown_categories() -> Iterator[str]:
    """Yield the lines of a function that reports the categories of a column that the training data does not have."""
    yield "def note_unknown_categories(rows, column):"
    yield "    known = {*categories[column]}"
    yield "    cells = [row[column] for row in rows if row[column] not in known and not is_missing(row, column)]"
    yield "    if cells:"
    yield '        have = "row of `{}` has" if len(cells) == 1 else "rows of `{}` have"'
    yield "        example = max(dict.fromkeys(cells), key=Counter(cells).get)"
    yield '        reason = f"values that the training data does not have, such as {example!r}"'
    yield '        print(f"note: {len(cells):,} {have.format(column)} {reason}", file=sys.stderr)'


def _leave_rows_out(dropping: Sequence[str]) -> list[str]:
    """Return the lines that find the rows with values in these columns, and report the number of others."""
    return [
        "kept = range(len(rows))",
        f"for column in {list(dropping)!r}:",
        "    lost = [number for number in kept if is_missing(rows[number], column)]",
        "    kept = sorted({*kept} - {*lost})",
        "    if lost:",
        '        shown = ", ".join(str(number + 1) for number in lost[:10]) + ", …" * (len(lost) > 10)',
        '        reason = f"{len(lost)} of {len(rows)} rows left out: `{column}` is missing in row {shown}"',
        '        print(f"note: {name}: {reason}", file=sys.stderr)',
        "if not kept:",
        '    raise ValueError("no row is left")',
    ]


def _reader(encoding: NumberEncoding | DateEncoding) -> str:
    """Return an expression for a function that converts a cell to a number."""
    if isinstance(encoding, DateEncoding):
        return f"lambda cell: read_date(cell, {encoding.format!r})"
    if encoding.boolean:
        return "read_boolean"
    unit = encoding.format.unit
    return "read_number" if unit is None else f"lambda cell: read_number(cell, {unit!r})"

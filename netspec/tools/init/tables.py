"""Tables: the type of each column, the task of the target, and a multilayer perceptron."""

from __future__ import annotations

import csv
import io
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from netspec.data.tabular.csv import HEAD, has_carriage_returns_alone, most_regular_delimiter
from netspec.data.tabular.number_format import PLAIN
from netspec.data.tabular.source import MISSING_VALUES
from netspec.errors import InputError, counted, did_you_mean, format_digits, kind_of_file, listing
from netspec.tools.init.column_survey import (
    MAX_CLASSES,
    MIN_CATEGORY_COUNT,
    MIN_WORDS_PER_CELL,
    MISSING,
    SAMPLE,
    ColumnSurvey,
    is_usual_marker,
    notation_of,
    other_notations,
)
from netspec.tools.init.files import (
    Duplicates,
    Files,
    class_losses,
    class_monitor,
    comment,
    document,
    entries,
    entry,
    hold_out,
    items,
    nine_of_ten,
    training,
)
from netspec.tools.init.project import Project
from netspec.tools.init.search_space import DROPOUT, SearchSpace

if TYPE_CHECKING:
    from netspec.tools.init.texts import TextSurvey, Vocabulary

MAX_ROWS, MAX_CELLS = 200_000, 5_000_000
"""Limits of the rows that are looked at, and of their cells, which take some seconds."""
TARGETS = ("label", "target", "class", "y", "outcome")
"""Names of columns that are the target by default; `y` next to a column `x` is a coordinate."""
MAX_CATEGORIES = 50
"""Maximum number of categories with an index of their own; rarer ones are unknown."""
MIN_CATEGORY_SHARE = 1 / 20
"""In a small table, a category with a smaller share of the rows is unknown."""
MAX_CLASS_SHARE = 0.8
"""A warning reports a class with a larger share of the rows."""
MAX_UNKNOWN = 0.2
"""A warning reports a column with a larger share of rows whose category is unknown."""
FEW_ROWS = 30
"""With fewer rows than this, a column may predict the target by chance."""
SAME = 0.999
"""Columns with a larger correlation than this are the same quantity."""
OUTLIER = 3
"""Limit of normalized numbers, in standard deviations."""
REGULAR = 0.9
"""In a table as text, at least this share of the lines has the same number of cells."""
MAX_BYTES = 2**24
"""The encoding is chosen by this part of a file."""
NOT_ASCII = re.compile("[^\\x00-\\x7f]")
UNDECODED = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as `surrogateescape` decodes it."""


@dataclass
class TableSurvey:
    """Findings about a table."""

    source: dict[str, Any]
    """The fields of the source: `source`, `header`, `delimiter`."""
    columns: list[ColumnSurvey]
    reasons: dict[str, str] = field(default_factory=dict)
    """Reasons for fields of the source."""
    warnings: list[str] = field(default_factory=list)
    """Guesses that the user should check."""
    rows: int = 0
    complete: bool = True
    """Whether all rows were looked at."""
    duplicates: Duplicates = field(default_factory=lambda: Duplicates("rows"))
    sample: list[list[str]] = field(default_factory=list)
    """The first rows."""
    ragged: int = 0
    """Number of rows with a different number of cells than the header."""
    undecoded: int = 0
    """Number of rows that are not text in UTF-8."""
    first_undecoded: str = ""
    """Location of the first byte that is not UTF-8."""


def survey(path: Path) -> TableSurvey:
    """Look at the first rows of a table. Raises `InputError` for another kind of file."""
    source, names, rows, first_undecoded = _opened(path)
    result = TableSurvey(source, [ColumnSurvey(name) for name in names], first_undecoded=first_undecoded)
    if "encoding" in source:
        result.reasons["encoding"] = "the letters beyond ASCII are not UTF-8"
    most = min(MAX_ROWS, MAX_CELLS // max(1, len(names)))
    for number, row in enumerate(rows):
        if number >= most:
            result.complete = False
            break
        if not _is_decoded(row):
            result.undecoded += 1
            continue
        if len(row) != len(names):
            result.ragged += 1
            continue
        result.rows += 1
        if len(result.sample) < SAMPLE:
            result.sample.append(row)
        result.duplicates.add(hash(tuple(row)), f"row {number + 1:,}")
        for column, cell in zip(result.columns, row, strict=True):
            column.add(cell)
    if not result.rows:
        raise InputError(f"{path} has no rows", expected="a table with a header")
    return result


def _settle(result: TableSurvey, path: Path, label: ColumnSurvey) -> None:
    """Classify the columns, and add what they share to the fields of the source."""
    notation, why, is_guess = PLAIN, "", False
    if result.source["source"] == "csv":
        notation, why, is_guess = notation_of(result.columns, result.source.get("delimiter", ","))
    label.settle(notation)
    inputs = [column for column in result.columns if column is not label]
    for column in inputs:
        column.settle(notation)
    if is_guess:
        result.warnings.append(f"commas in numbers: {why}")
    result.warnings += other_notations(result.columns, notation)
    for name, value in (("decimal", notation.decimal), ("thousands", notation.thousands)):
        if value != getattr(PLAIN, name):
            result.source[name] = value
            result.reasons[name], why = why, ""
    markers: dict[str, str] = {}
    for column in (column for column in result.columns if column.markers):
        others = [other for other in result.columns if other is not column]
        names = {
            cell.lower() for other in others for cell in other.counts if other is label or not is_usual_marker(cell)
        }
        column.own_markers = [text for text in column.markers if text.lower() in names or _is_number(text)]
        markers |= {text: column.name for text in column.markers if text not in column.own_markers}
    for column in inputs:  # `missing_values` of the source apply to all columns
        column.count_as_missing(markers)
    result.warnings += _marker_warnings(result, path)
    if markers:
        result.source["missing_values"] = [*MISSING_VALUES, *markers]
        marked = listing([f"{marker!r} in `{name}`" for marker, name in markers.items()], 5)
        result.reasons["missing_values"] = f"the usual ones, and {marked}"


def _marker_warnings(result: TableSurvey, path: Path) -> list[str]:
    """Return a warning for each column with unusual texts among its numbers or dates, which are counted as missing."""
    unusual = {column.name: [text for text in column.markers if not is_usual_marker(text)] for column in result.columns}
    return [
        f"`{column.name}` has {'dates' if column.is_date else _numbers_of(column)} except for "
        f"{_located(result, path, column)}: counted as missing; correct the data if "
        f"{'a text means' if len(column.markers) > 1 else 'it means'} a {'date' if column.is_date else 'number'}"
        for column in result.columns if unusual[column.name]
    ]  # fmt: skip


def _located(result: TableSurvey, path: Path, column: ColumnSurvey) -> str:
    """Return the texts of a column that are counted as missing, each with its number of rows and the first one."""
    index = result.columns.index(column)
    rows: dict[str, list[int]] = {text: [] for text in column.markers}
    for number, row in enumerate(islice(_opened(path).rows, result.rows + result.ragged + result.undecoded), 1):
        if len(row) == len(result.columns) and row[index] in rows:
            rows[row[index]].append(number)
    return listing([
        f"{text!r} in " + (f"row {numbers[0]:,}" if len(numbers) == 1 else f"{len(numbers):,} rows")
        for text, numbers in rows.items()
    ], 5)  # fmt: skip


def rows_of(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a table that are text, with a cell for each column."""
    _, names, rows, _ = _opened(path)
    return (row for row in rows if len(row) == len(names) and _is_decoded(row))


class _OpenedTable(NamedTuple):
    source: dict[str, Any]
    """The fields of the source."""
    names: list[str]
    rows: Iterator[list[str]]
    first_undecoded: str = ""
    """Location of the first byte that is not UTF-8."""


def _opened(path: Path) -> _OpenedTable:
    return _parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _text(path)


def _parquet(path: Path) -> _OpenedTable:
    from netspec.data.tabular.parquet import ParquetTable

    table = ParquetTable(path)
    column_indices = list(range(len(table.names)))

    def rows() -> Iterator[list[str]]:
        for block in table.blocks(column_indices):
            columns = [cells.distinct() for cells in block.cells]
            for row in range(len(block)):
                yield [texts[text_indices[row]] for texts, text_indices in columns]

    return _OpenedTable({"source": "parquet"}, list(table.names), rows())


def _text(path: Path) -> _OpenedTable:
    with path.open("rb") as file:
        head = file.read(HEAD)
    _refuse_other_files(path, head)
    encoding, first_undecoded = _encoding_of(path)
    codec = "utf-8-sig" if encoding == "utf-8" else encoding
    sample = head.rsplit(b"\n", 1)[0].decode(codec, "surrogateescape")
    delimiter, _ = most_regular_delimiter(sample)
    first = list(_parsed(io.StringIO(sample, newline=""), delimiter))
    if not first:
        raise InputError(f"{path} is empty", expected="a table")
    named = _is_header(first)
    names = first[0] if named else [str(number + 1) for number in range(len(first[0]))]
    if not _is_decoded(names):
        raise InputError(
            f"{first_undecoded}: the header is not text in UTF-8", expected="names of columns in UTF-8",
            hint="write the file again in UTF-8, for example by `iconv -f latin1 -t utf8`",
        )  # fmt: skip
    _refuse_duplicates(path, names)
    source: dict[str, Any] = {"source": "csv", "header": named}
    source |= {"delimiter": delimiter} if delimiter != "," else {}
    source |= {"encoding": encoding} if encoding != "utf-8" else {}

    def rows() -> Iterator[list[str]]:
        with path.open(encoding=codec, errors="surrogateescape", newline="") as file:
            yield from islice(_parsed(file, delimiter), int(named), None)

    return _OpenedTable(source, names, rows(), first_undecoded)


def _encoding_of(path: Path) -> tuple[str, str]:
    """Return the encoding that fits most characters beyond ASCII, and the location of the first byte that isn't UTF-8.

    A few such bytes are damage; a file of an older program has nothing else.
    """
    first, characters, undecoded = "", 0, 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.isascii():
                text = line.decode("utf-8", "surrogateescape")
                wrong = [match.start() for match in UNDECODED.finditer(text)]
                undecoded += len(wrong)
                characters += len(NOT_ASCII.findall(text))
                first = first or (f"{path}:{number}:{wrong[0] + 1}" if wrong else "")
            if file.tell() > MAX_BYTES:
                break
    return "latin-1" if 2 * undecoded > characters else "utf-8", first


def _is_decoded(cells: Sequence[str]) -> bool:
    """Return whether all bytes of the cells are text."""
    text = "".join(cells)
    return text.isascii() or UNDECODED.search(text) is None


def delimited_names(path: Path) -> list[str]:
    """Return the cells of the first line of a file of text if nearly all lines have as many; else nothing."""
    with path.open("rb") as file:
        sample = file.read(HEAD).decode("utf-8-sig", "replace")
    delimiter, share = most_regular_delimiter(sample)
    return next(_parsed(io.StringIO(sample, newline=""), delimiter)) if share >= REGULAR else []


def _refuse_other_files(path: Path, head: bytes) -> None:
    """Raise `InputError` for a file that is not a table as text."""
    kind, hint = kind_of_file(head), None
    if head.lstrip()[:1] in (b"{", b"["):
        kind = "JSON"
        hint = "convert it, for example with `pandas.read_json(…).to_csv(…, index=False)`"
    elif path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        kind, hint = "a spreadsheet", "save the sheet as CSV"
    elif kind == "text in UTF-16":
        hint = "convert it to UTF-8"
    elif has_carriage_returns_alone(head):
        kind, hint = "text whose lines end with carriage returns alone", "convert it by `tr '\\r' '\\n'`"
    elif b"\0" not in head:
        return
    raise InputError(
        f"{path} is not a table", expected="a table as text (CSV, TSV) or a Parquet file; or a folder",
        got=kind, hint=hint,
    )  # fmt: skip


def _parsed(lines: Any, delimiter: str) -> Iterator[list[str]]:
    """Yield the rows that are not blank, without blanks around their cells."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=delimiter != "\t")
    for row in reader:
        if len(row) > 1 or (row and row[0].strip()):
            yield [cell.strip() for cell in row]


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row holds names: all different, none of them a number, and at most one of them empty.

    `DataFrame.to_csv` writes an index without a name. Names that occur twice are names if numbers follow.
    """
    first = rows[0]
    missing = [cell.lower() in MISSING for cell in first]
    if any(map(_is_number, first)) or any(missing[1:]):
        return False
    if len(set(first)) == len(first):
        return not missing[0] or len(first) > 1
    others = [row for row in rows[1:100] if len(row) == len(first)]
    return any(others and all(_is_number(row[index]) for row in others) for index in range(len(first)))


def _refuse_duplicates(path: Path, names: Sequence[str]) -> None:
    """Raise `InputError` if two columns have the same name."""
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise InputError(
            f"{path} has several columns with the name {listing(list(map(repr, duplicates)), 5)}",
            expected="a different name for each column in the first line",
        )  # fmt: skip


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def _target(table_survey: TableSurvey, path: Path, target: str | None) -> ColumnSurvey:
    """Return the column to predict. Raises `InputError` if it is missing or not obvious."""
    names = [column.name for column in table_survey.columns]
    if target is None:
        lowered = {name.lower(): name for name in reversed(names)}
        candidates = [name for name in TARGETS if name in lowered and not (name == "y" and "x" in lowered)]
        target = lowered[candidates[0]] if candidates else None
        if target is None:
            raise InputError(
                f"which column of {path} is to be predicted?", expected="--target with the name of a column",
                got=f"columns {listing(names, 20)}",
                hint=_target_hint(table_survey, path),
            )  # fmt: skip
    if target not in names:
        raise InputError(
            f"{path} has no column {target!r}", expected=f"one of {listing(names, 20)}",
            hint=did_you_mean(target, names),
        )  # fmt: skip
    return table_survey.columns[names.index(target)]


def _target_hint(table_survey: TableSurvey, path: Path) -> str | None:
    """Return a hint at the last column that can be predicted."""
    columns = table_survey.columns
    _settle(table_survey, path, columns[-1])
    name = next((column.name for column in reversed(columns) if _is_quantity_or_class(column)), None)
    if name is None:
        return None
    which = "" if name == columns[-1].name else " with numbers or classes"
    return f"for example --target {shlex.quote(name)}, the last one{which}"


def _is_quantity_or_class(column: ColumnSurvey) -> bool:
    """Return whether a column has numbers or names that recur, and does not number the rows."""
    if not column.name or len(column.counts) < 2 or column.is_identifier or column.is_date or column.has_sentences:
        return False
    return column.is_numeric or len(column.counts) <= max(MAX_CLASSES, column.filled // 2)


def table_files(project: Project, target: str | None, task: str | None) -> Files:
    """Return the files for a table."""
    path = project.data
    table_survey = survey(path)
    label = _target(table_survey, path, target)
    _settle(table_survey, path, label)
    if task == "forecast":
        from netspec.tools.init.series import series_files

        return series_files(project, table_survey, label)
    quantity = label.is_numeric and (len(label.counts) > MAX_CLASSES or label.whole < label.filled)
    regression = task == "regression" or (task != "classification" and quantity)
    _check_target(label, path, regression=regression)
    columns = TableColumns(table_survey, label, regression=regression, text=task == "text")
    if columns.text is None and not columns.width:
        reasons = "; ".join(f"`{name}`: {reason}" for name, reason in columns.left_out)
        has_texts = any(column.is_text for column in table_survey.columns if column is not label)
        raise InputError(
            f"no column of {path} is left to predict {label.name!r} from", expected="numbers, categories or dates",
            got=reasons or "no other column", hint="`--task text` classifies texts" if has_texts else None,
        )  # fmt: skip
    kind = "text" if task == "text" else "table"
    files = Files(f"{kind} {'regression' if regression else 'classification'}", "", "")
    files.findings, files.warnings = _findings(path, table_survey, label, columns, regression=regression)
    files.net = _net(project, table_survey, label, columns, regression=regression)
    files.train = _train(project, table_survey, label, columns, regression=regression)
    return files


def _check_target(label: ColumnSurvey, path: Path, *, regression: bool) -> None:
    """Raise `InputError` if a column cannot be predicted."""
    if not label.filled:
        raise InputError(f"column {label.name!r} of {path} is empty", expected="a target in some rows")
    if len(label.counts) < 2:
        (value,) = label.counts
        raise InputError(
            f"column {label.name!r} has one value only", expected="two classes or more, or numbers",
            got=f"{value!r} in {counted(label.filled, 'row')}"
            + (f", and {counted(label.missing, 'row')} without a value" if label.missing else ""),
        )  # fmt: skip
    if regression and not label.is_numeric:
        text = next(cell for cell in label.counts if isnan(label.number(cell)))
        raise InputError(
            f"column {label.name!r} cannot be predicted as a number", expected="numbers",
            got=f"{text!r} in {counted(label.counts[text], 'row')}", hint=label.number_format.hint(text),
        )  # fmt: skip
    if not regression and len(label.counts) > max(MAX_CLASSES, label.filled // 2):
        kind = "dates" if label.is_date else "texts" if label.is_text else "numbers" if label.is_numeric else "names"
        raise InputError(
            f"column {label.name!r} has a different value in nearly every row, so the values cannot be classes",
            expected="a column whose values recur, or numbers",
            got=f"{len(label.counts):,} different {kind} in {counted(label.filled, 'row')}",
            hint="`--task regression` predicts numbers" if label.is_numeric else None,
        )  # fmt: skip


class TableColumns:
    """The declaration of each column that is used, and the reasons for those that are not."""

    def __init__(
        self,
        table_survey: TableSurvey,
        label: ColumnSurvey,
        *,
        regression: bool,
        text: bool,
        date_parts: Sequence[str] | None = None,
    ) -> None:
        self._date_parts = date_parts
        self.used: list[tuple[str, dict[str, Any], str]] = []
        self.left_out: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self.width = 0
        self.text: ColumnSurvey | None = None
        if text:
            self.text = _text_column([column for column in table_survey.columns if column is not label])
        for column in table_survey.columns:
            if column is not label and column is not self.text:
                self._add(column)
        self._label(label, regression=regression)

    @cached_property
    def words(self) -> TextSurvey:
        """The words of the column of texts."""
        from netspec.tools.init.texts import TextSurvey

        return TextSurvey(() if self.text is None else self.text.counts.items())

    def leave_out_inputs(self, reason: str) -> None:
        """Use no column but the label."""
        *inputs, label = self.used
        self.left_out += [(name, reason) for name, _, _ in inputs]
        self.used, self.width = [label], 0

    def _add(self, column: ColumnSurvey) -> None:
        reason = (
            "it has no name" if not column.name
            else "it is empty" if not column.filled
            else "all rows have the same value" if len(column.counts) == 1 and not column.missing
            else "free text; `netspec init --task text` reads one such column" if column.is_text
            else "nearly every row has another value" if column.is_identifier
            else None
        )  # fmt: skip
        warning = _mixed_warning(column)
        if warning is not None:
            self.warnings.append(warning)
        if reason is not None:
            self.left_out.append((column.name, reason))
        elif column.is_date:
            self._date(column)
        elif column.is_numeric:
            self._numeric(column)
        else:
            self._categorical(column, is_mixed=warning is not None)

    def _date(self, column: ColumnSurvey) -> None:
        parts = [*self._date_parts] if self._date_parts is not None else ["timestamp", "month", "weekday"]
        parts += ["hour"] * (self._date_parts is None and column.has_times)
        if not parts:
            self.left_out.append((column.name, "its dates do not recur, so they don't help to forecast"))
            return
        declared = _with_markers("date", column)
        declared |= {"format": column.date_format} if column.date_format else {}
        declared |= {"parts": parts}
        facts = []
        if len(column.date_formats) > 1 and "%d" in column.date_format:
            first, second = column.date_formats[:2]
            facts.append(f"a guess, since no day is above 12: if the day comes first, the format is {second}")
            self.warnings.append(
                f"the dates in `{column.name}` fit both {first} and {second}: the month is read first, as in pandas"
            )
        if column.missing or self._date_parts is None:  # without the time of a row, a forecast would be wrong
            declared |= {"missing": "mean"}
        if column.missing:
            declared |= {"missing_indicator": True}
            facts.append(f"{_missing(column)}: replaced by the mean of each part, plus an indicator")
        if any("%z" in format for format in column.date_formats):
            facts.append("times are converted to UTC")
        self.width += len(parts) + bool(column.missing)
        self.used.append((column.name, {**declared, "normalization": "standard"}, "; ".join(facts)))

    def _numeric(self, column: ColumnSurvey) -> None:
        declared = _with_markers("numeric", column)
        declared |= {"unit": column.number_format.unit} if column.number_format.unit else {}
        declared |= {"missing": "median"}
        why = ""
        if column.missing:
            declared |= {"missing_indicator": True}
            why = f"{_missing(column)}: replaced by the median, plus an indicator"
        self.width += 1 + bool(column.missing)
        self.used.append((column.name, {**declared, "normalization": "standard"}, why))

    def _categorical(self, column: ColumnSurvey, *, is_mixed: bool) -> None:
        least = min(MIN_CATEGORY_COUNT, max(2, MIN_CATEGORY_SHARE * column.filled))
        frequent = [name for name, count in column.counts.most_common(MAX_CATEGORIES) if count >= least]
        if not frequent:
            words = "; `netspec init --task text` reads its words" * column.has_sentences
            self.left_out.append((column.name, f"no value occurs more than a few times{words}"))
            return
        vocabulary = sorted(frequent)
        declared: dict[str, Any] = {
            "type": "categorical",
            "unknown": "index",
            "missing": "unknown",
            "vocabulary": vocabulary,
        }
        rare = len(column.counts) - len(vocabulary)
        facts = [_missing(column)] * bool(column.missing)
        facts += [f"{counted(rare, 'rarer one')} {'counts' if rare == 1 else 'count'} as unknown"] * bool(rare)
        unknown = 1 - sum(column.counts[name] for name in vocabulary) / column.filled
        if unknown > MAX_UNKNOWN and not is_mixed:
            (example,) = column.counts.most_common()[-1:]
            self.warnings.append(
                f"`{column.name}` has {len(column.counts):,} different values such as {example[0]!r}: {unknown:.0%} of "
                "the rows have a rare one, which counts as unknown: "
                + (
                    "`netspec init --task text` reads its words instead"
                    if column.has_sentences
                    else "group them, or leave it out"
                )
            )
        self.width += 1 + len(vocabulary)
        self.used.append((column.name, declared, ", ".join(facts)))

    def _label(self, label: ColumnSurvey, *, regression: bool) -> None:
        missing = {"missing": "drop"} if label.missing else {}
        why = "rows without it are left out" if label.missing else ""
        if regression:
            unit = {"unit": label.number_format.unit} if label.number_format.unit else {}
            declared = {**_with_markers("numeric", label), **unit, **missing, "normalization": "standard"}
            why = "; ".join(filter(None, [why, "predictions are converted back to the unit of the column"]))
        else:
            declared = {**_with_markers("categorical", label), **missing, "vocabulary": _classes(label)}
        self.used.append((label.name, declared, why))


def _with_markers(kind: str, column: ColumnSurvey) -> dict[str, Any]:
    """Return the type of a column, with the texts that mean a missing value in this column alone."""
    return {"type": kind, **({"missing_values": column.own_markers} if column.own_markers else {})}


def _missing(column: ColumnSurvey) -> str:
    """Return the share of missing cells, or their number if they are few."""
    share = column.missing / column.rows
    return f"{share:.1%} missing" if share >= 0.001 else f"missing in {counted(column.missing, 'row')}"


def _mixed_warning(column: ColumnSurvey) -> str | None:
    """Return a warning about a column of numbers or dates that is not read as such because of other cells."""
    if column.has_mixed_units and not column.is_numeric and not column.is_date:
        units = " and ".join(f"`{unit}`" for unit in column.units)
        return f"`{column.name}` has numbers with the units {units}: convert them to one unit to read them as numbers"
    texts = column.undated or (column.texts() if column.has_numbers and not column.is_numeric else ())
    if not texts or column.is_date:
        return None
    kind = "dates" if column.undated else _numbers_of(column)
    described = [f"{text!r} ({counted(column.counts[text], 'row')})" for text in texts]
    return (
        f"`{column.name}` has {kind}, but also {listing(described, 3)}: it is not read as {kind}; to read them, "
        f"replace these cells by {kind} or by empty cells"
    )


def _numbers_of(column: ColumnSurvey) -> str:
    """Return what the numbers of a column are in messages: `numbers`, with their unit if they have one."""
    unit = column.number_format.unit
    return "numbers" if unit is None else f"numbers with the unit `{unit}`"


def _text_column(columns: Sequence[ColumnSurvey]) -> ColumnSurvey:
    """Return the column of texts, if possible one whose texts mostly differ. Raises `InputError` if there is none."""
    texts = [column for column in columns if column.has_sentences]
    if not texts:
        words = [f"`{column.name}` {column.words_per_cell:.1f}" for column in columns if column.filled]
        raise InputError(
            "no column holds texts",
            expected=f"a column whose cells have more than {MIN_WORDS_PER_CELL} words on average",
            got=f"words in a cell: {listing(words)}" if words else "no other column",
        )  # fmt: skip
    return max(texts, key=lambda column: (column.is_text, column.words))


def _classes(label: ColumnSurvey) -> list[str]:
    return sorted(label.counts, key=label.number) if label.is_numeric else sorted(label.counts)


def _findings(
    path: Path, table_survey: TableSurvey, label: ColumnSurvey, columns: TableColumns, *, regression: bool
) -> tuple[list[str], list[str]]:
    kinds = Counter(declared["type"] for name, declared, _ in columns.used if name != label.name)
    described = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    of = "" if table_survey.complete else "the first "
    findings = [f"{of}{table_survey.rows:,} rows, {len(table_survey.columns)} columns; inputs: {described or 'texts'}"]
    if regression:
        values = sorted(map(label.number, label.counts))
        findings.append(
            f"target `{label.name}`: numbers from {format_digits(values[0], 6)} to {format_digits(values[-1], 6)}"
        )
    else:
        shares = [f"{name} {count / label.filled:.1%}" for name, count in label.counts.most_common()]
        findings.append(f"target `{label.name}`: {len(label.counts)} classes: {listing(shares, 10)}")
    findings += [f"left out: `{name}`: {reason}" for name, reason in columns.left_out]
    warnings = [*table_survey.warnings, *columns.warnings]
    warnings += _leaks(table_survey, label, [name for name, _, _ in columns.used], regression=regression)
    warnings += _random_split_of_time(table_survey)
    if label.missing:
        have, are = ("has", "is") if label.missing == 1 else ("have", "are")
        warnings.append(f"{label.missing:,} of {label.rows:,} rows {have} no `{label.name}`, and {are} left out")
    if columns.text is None:
        warnings += table_survey.duplicates.warnings()
    else:
        warnings += _copies(path, table_survey, columns.text, None if regression else label)
    if table_survey.ragged:
        warnings.append(
            f"{counted(table_survey.ragged, 'row')} with a different number of cells than the header: "
            "left out, and counted in the log"
        )
    if table_survey.undecoded:
        warnings.append(_undecoded_warning(table_survey.undecoded, table_survey.first_undecoded or str(path)))
    if columns.text is not None:
        from netspec.tools.init.texts import empty_warning, tiny_warning

        text, words = columns.text, columns.words
        warnings += empty_warning(text.missing + words.without_words)
        longest = nine_of_ten(words.lengths)
        findings.append(f"texts: `{text.name}`: nine of ten have at most {longest:,} words")
        warnings += tiny_warning(text.filled)
    most, count = label.counts.most_common(1)[0]
    if not regression and count > MAX_CLASS_SHARE * label.filled:
        warnings.append(
            f"{count / label.filled:.0%} of the rows are {most!r}, and so would be the accuracy of always "
            "predicting it: `class_weight: balanced` in the loss gives all classes the same weight, and "
            "`netspec test --report` shows scores of each class"
        )
    rare = [name for name, count in label.counts.items() if count < 20]
    if not regression and rare:
        warnings.append(f"classes of fewer than 20 rows: {listing(rare, 5)}")
    return findings, warnings


def _copies(path: Path, table_survey: TableSurvey, text: ColumnSurvey, label: ColumnSurvey | None) -> list[str]:
    """Return warnings about texts that occur several times, and about those in several classes of the label."""
    indices = [table_survey.columns.index(column) for column in (text, label or text)]
    texts = Duplicates(
        "texts", f"`group: {column_key(text.name)}` in `split`, instead of `stratify`, keeps them together"
    )
    rows = islice(_opened(path).rows, table_survey.rows + table_survey.ragged + table_survey.undecoded)
    for number, row in enumerate(rows, 1):
        if len(row) == len(table_survey.columns) and row[indices[0]] in text.counts:
            texts.add(row[indices[0]], f"row {number:,}", None if label is None else row[indices[1]])
    return texts.warnings()


def _undecoded_warning(count: int, first: str) -> str:
    """Return a warning about rows that are not text in UTF-8, and the location of the first such byte."""
    rows = f"{counted(count, 'row')} {'is' if count == 1 else 'are'} not text in UTF-8"
    return (
        f"{rows} ({first}{', …' * (count > 1)}): left out, and counted in the log; to use "
        f"{'it' if count == 1 else 'them'}, write the file again in UTF-8"
    )


def _leaks(table_survey: TableSurvey, label: ColumnSurvey, used: Sequence[str], *, regression: bool) -> list[str]:
    """Return a warning for each used column that alone predicts the target in a sample of rows."""
    warnings = []
    target = table_survey.columns.index(label)
    for index, column in enumerate(table_survey.columns):
        if column is label or column.name not in used:
            continue
        pairs = [(row[index], row[target]) for row in table_survey.sample]
        pairs = [(cell, answer) for cell, answer in pairs if cell in column.counts and answer in label.counts]
        fact = _same_quantity(column, label, pairs) if regression else _same_classes(pairs)
        if fact:
            warnings.append(
                f"`{column.name}` alone predicts `{label.name}` ({fact}): leave it out if it is not known "
                "when a prediction is made"
            )
    return warnings


def _random_split_of_time(table_survey: TableSurvey) -> Iterator[str]:
    """Yield a warning if the rows are in chronological order, so that a random test set is easier than the future."""
    for index, column in enumerate(table_survey.columns):
        cells = [row[index] for row in table_survey.sample] if column.is_date else []
        moments = [moment for moment in map(column.moment, cells) if not math.isnan(moment)]
        is_ordered = moments in (sorted(moments), sorted(moments, reverse=True))
        if is_ordered and len(set(moments)) > max(1, len(moments) / 2):
            form = f', time_format: "{column.date_format}"' if column.date_format else ""
            yield (
                f"the rows are ordered by `{column.name}`, but the test rows are drawn at random: to test on the last "
                f"rows, write `time: {column_key(column.name)}{form}` in `split` instead of `stratify`"
            )
            return


def _same_quantity(column: ColumnSurvey, label: ColumnSurvey, pairs: Sequence[tuple[str, str]]) -> str | None:
    """Return the correlation of two columns of numbers if it is nearly 1 or −1; None otherwise."""
    import numpy as np

    if not column.is_numeric or len(pairs) < FEW_ROWS or len({cell for cell, _ in pairs}) < 2:
        return None
    x, y = np.array([(column.number(cell), label.number(answer)) for cell, answer in pairs]).T
    if not np.ptp(y):
        return None
    correlation = float(np.corrcoef(x, y)[0, 1])
    return f"correlation {correlation:.4f}" if abs(correlation) > SAME else None


def _same_classes(pairs: Sequence[tuple[str, str]]) -> str | None:
    """Return a note if each of a few recurring cells has only one class; None otherwise."""
    classes: dict[str, set[str]] = {}
    for cell, answer in pairs:
        classes.setdefault(cell, set()).add(answer)
    several = len({answer for _, answer in pairs}) > 1
    if len(pairs) < FEW_ROWS or not several or len(classes) > len(pairs) / 10 or max(map(len, classes.values())) > 1:
        return None
    return f"each of its {len(classes)} values has one class only"


def _hidden(rows: int) -> tuple[list[int], float, str]:
    """Return the units of the hidden layers, the dropout rate, and the reason."""
    if rows < 2_000:
        return [32], 0.2, f"one small layer: {rows:,} rows are too few for more"
    return [128, 64], 0.2 if rows < 20_000 else 0.05, f"two layers for {rows:,} rows"


def _perceptron(rows: int, outputs: int, space: SearchSpace) -> tuple[list[str], list[tuple[dict[str, Any], str]]]:
    """Return blocks and layers of a multilayer perceptron plus a linear function of the same inputs."""
    hidden, rate, why = _hidden(rows)
    dense = {"type": "Dense", "units": outputs}
    bounded = {"name": "bounded", "type": "Expression", "expr": f"clip(x, -{OUTLIER}, {OUTLIER})", "from": "features"}
    dropout = {"type": "Dropout", "rate": space.net_variable("dropout", rate, DROPOUT, "share of values set to 0")}
    blocks, layers = list[str](), list[tuple[dict[str, Any], str]]()
    if space.searched:
        blocks, layers = _searched_hidden(hidden, dropout, space)
    else:
        for number, units in enumerate(hidden):
            layers.append(({"type": "Dense", "units": units, "activation": "relu"}, why if not number else ""))
            layers.append((dropout, "against overfitting" if not number else ""))
    return blocks, [
        (bounded, f"outliers: normalized numbers beyond {OUTLIER} standard deviations"),
        *layers,
        ({"name": "deep", **dense}, ""),
        ({"name": "linear", **dense, "from": "bounded"}, "what a linear model finds need not pass the hidden layers"),
    ]


def _searched_hidden(
    hidden: Sequence[int], dropout: dict[str, Any], space: SearchSpace
) -> tuple[list[str], list[tuple[dict[str, Any], str]]]:
    """Return a block for the hidden layers with a shortcut as an option, and its call, with variables."""
    space.net_variable(
        "width", hidden[0], {"low": 16, "high": 512, "log": True},
        "units of the first hidden layer; each later layer has half as many, at least 8",
    )  # fmt: skip
    depth = space.net_variable("depth", len(hidden), {"low": 1, "high": 4}, "hidden layers")
    space.net_variable(
        "block", "plain", {"choices": ["plain", "residual"]}, "`residual` adds the input of a layer to its output"
    )
    is_residual = "${block == 'residual'}"
    body = {"name": "dense", "type": "Dense", "units": "${units}", "activation": "relu"}
    shortcut = {"name": "shortcut", "type": "Dense", "from": "x", "units": "${units}", "use_bias": False}
    blocks = [
        "blocks:",
        "  hidden:",
        "    params: {units}",
        "    inputs: [x]",
        "    layers:",
        *items([
            (body, ""),
            ({"name": "kept", **dropout}, "against overfitting"),
            ({**shortcut, "if": is_residual}, ""),
            ({"type": "Add", "from": ["kept", "shortcut"], "if": is_residual}, ""),
        ], 6),
    ]  # fmt: skip
    call = {"type": "hidden", "repeat": depth, "units": "${max(8, width // 2 ** index)}"}
    return blocks, [(call, "")]


def _net(
    project: Project, table_survey: TableSurvey, label: ColumnSurvey, columns: TableColumns, *, regression: bool
) -> str:
    space = project.space
    blocks: list[str] = []
    last: dict[str, Any] = {"name": "logits", "type": "Dense", "units": len(label.counts)}
    why_last = "one output for each class"
    if regression:
        last, why_last = {"name": "dense", "type": "Dense", "units": 1}, "the normalized target"
    if columns.text is not None:
        from netspec.tools.init.texts import text_layers

        vocabulary, length = _text_of(columns, table_survey)
        inputs, layers = text_layers(length, vocabulary, last, why_last, space, columns.width)
        first = "A small net for texts" + " and other columns" * bool(columns.width)
    else:
        inputs = {"features": {"shape": [columns.width]}}
        blocks, layers = _perceptron(table_survey.rows, last["units"], space)
        total: dict[str, Any] = {"name": "total" if regression else "logits", "type": "Add", "from": ["deep", "linear"]}
        layers.append((total, why_last))
        first = "A multilayer perceptron for a table"
    if regression:
        layers.append(({"name": "value", "type": "Reshape", "target_shape": []}, ""))
    lines = project.net_head(f"{first}: it predicts `{label.name}`.")
    for key, value in inputs.items():
        why = (
            "one value per number, one per category, as in `columns` of the training file" if key == "features" else ""
        )
        lines += entry(key, value, why, 2)
    kind = {"shape": []} if regression else {"shape": [], "dtype": "int32"}
    lines += [*entry("label", kind, f"the column `{label.name}`", 2), *blocks, "layers:", *items(layers, 2)]
    if regression:
        pair = {"from": ["value", "label"]}
        lines += entry("losses", [{"type": "Huber", **pair}], "the squared error, but large errors count linearly")
        lines += ["metrics:", *items([
            ({"type": "MeanAbsoluteError", "name": "mae", **pair}, "results have it in the target's unit as well"),
            ({"type": "R2Score", "name": "r2", **pair}, "1: perfect, 0: no better than the mean"),
        ], 2)]  # fmt: skip
    else:
        lines += class_losses()
    return document(lines)


def _text_of(columns: TableColumns, table_survey: TableSurvey) -> tuple[Vocabulary, int]:
    """Return the vocabulary of the column of texts, and the number of words of a text that the net reads."""
    from netspec.tools.init.texts import text_length

    words = columns.words
    return words.vocabulary(words.texts, complete=table_survey.complete), text_length(words.lengths)


def _train(
    project: Project, table_survey: TableSurvey, label: ColumnSurvey, columns: TableColumns, *, regression: bool
) -> str:
    used, path, space = list(columns.used), project.path_of(project.data), project.space
    if columns.text is not None:
        from netspec.tools.init.texts import TEXT

        vocabulary, length = _text_of(columns, table_survey)
        text = {"type": "text", "tokenizer": vocabulary.tokenizer, "length": length, "missing": "empty"}
        text |= {"field": TEXT} if columns.text.name != TEXT else {}
        used.insert(0, (columns.text.name, text, f"nine of ten texts are not longer; {vocabulary.why}"))
    lines = project.train_head(f"to predict `{label.name}` of {path}")
    source = {"source": table_survey.source["source"], "path": path, **table_survey.source, "label": label.name}
    lines += [*entries(source, 4, table_survey.reasons), "    columns:"]
    for key, declared, why in used:
        lines += entry(column_key(key), declared, why, 6)
    if columns.left_out:
        lines += comment("Left out: " + "; ".join(f"{name}: {reason}" for name, reason in columns.left_out), 4)
    unusable = [
        reason for count, reason in ((table_survey.ragged, "with a different number of cells"),
                                     (table_survey.undecoded, "that are not text in UTF-8")) if count
    ]  # fmt: skip
    if unusable:
        lines += entry("on_error", "skip", f"leaves out rows {' or '.join(unusable)}", 4)
    split, why = hold_out(table_survey.rows, stratify=label.name)
    lines += entry("split", split, why, 4)
    batch = 32 if table_survey.rows < 2_000 else 128 if table_survey.rows < 50_000 else 256
    if columns.text is not None:
        from netspec.tools.init.texts import BATCH, text_training

        batch = BATCH
    lines += [*entry("batch_size", batch, "", 4), *entry("shuffle", True, "", 4)]
    monitor = "loss" if regression else class_monitor(table_survey.rows, batch)
    if columns.text is not None:
        return document([*lines, *text_training(table_survey.rows, monitor, space)])
    epochs = 300 if table_survey.rows < 2_000 else 100 if table_survey.rows < 50_000 else 40
    return document([*lines, *training(monitor=monitor, epochs=epochs, patience=12, space=space)])


def column_key(name: str) -> str:
    """Return the name of a column as a key in YAML."""
    from netspec.schema.yaml.flow_style import plain

    return plain(name)

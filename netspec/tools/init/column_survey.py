"""Findings about a column of a table: numbers with their notation, dates with their format, names or texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import isnan

import numpy as np

from netspec.data.tabular.number_format import PLAIN, NumberFormat, unit_of, with_plain_spaces
from netspec.data.tabular.source import MISSING_MARKERS, MISSING_VALUES
from netspec.data.timestamps import date_formats, moment_of

MISSING = frozenset({"", *map(str.lower, MISSING_VALUES)})
"""Cells that mean a missing value by default, in lower case."""
MAX_CLASSES = 20
"""A target of integers with more distinct values than this is a number, not a class."""
MIN_CATEGORY_COUNT = 5
"""A category that occurs less often is unknown."""
SEVERAL = 5
"""With fewer different numbers than this, a column of numbers and texts may have categories."""
STRAY_SHARE = 1 / 100
"""Up to this share of the cells, texts among numbers or dates are mistakes."""
MAX_STRAYS, MAX_MARKERS = 20, 5
"""Maximum number of different texts among numbers or dates that are mistakes, or mean a missing value."""
MAX_UNITS = 4
"""Numbers with more different units than this are taken for codes, such as `LHR 123`."""
SAMPLE = 1_000
"""Number of distinct cells of a column by which the notation of numbers is chosen."""
NOTATIONS = (
    PLAIN, NumberFormat(","), NumberFormat(".", ","), NumberFormat(",", "."), NumberFormat(".", " "),
    NumberFormat(",", " "), NumberFormat(".", "'"), NumberFormat(",", "'"),
)  # fmt: skip
"""Notations of numbers, the likeliest first."""
MIN_WORDS_PER_CELL = 3
"""Texts have more words than this on average."""
MAX_TOKEN = 40
"""Longest cell that may be a number or a date, in characters."""


@dataclass
class ColumnSurvey:
    """Findings about a column of the sample."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    """Number of rows of each cell that is not missing."""
    rows: int = 0
    missing: int = 0
    numbers: int = 0
    whole: int = 0
    distinct_numbers: int = 0
    words: int = 0
    number_format: NumberFormat = PLAIN
    date_formats: Sequence[str] = ()
    """The formats in which all cells are dates, in the notation of `strptime`; the text `""` stands for ISO 8601."""
    markers: Sequence[str] = ()
    """Texts among numbers or dates that are counted as missing."""
    undated: Sequence[str] = ()
    """Cells that are not dates in a column of mostly dates, if there are too many to count as missing."""
    own_markers: Sequence[str] = ()
    """The `markers` that are numbers or occur in other columns, so they mean a missing value only here."""

    def add(self, cell: str) -> None:
        """Add a cell without surrounding blanks."""
        self.rows += 1
        if cell.lower() in MISSING:
            self.missing += 1
            return
        self.counts[cell] += 1

    @cached_property
    def _tokens(self) -> list[str]:
        """The distinct cells that may be numbers or dates."""
        return [cell for cell in self.counts if any(map(str.isdigit, cell))]

    def fits(self, notation: NumberFormat) -> bool:
        """Return whether numbers of the column may be in this notation."""
        notation = replace(notation, unit=self._unit)
        sample = list(islice(self._tokens, SAMPLE))
        texts = [cell for cell in sample if isnan(_number(cell, notation))]
        return bool(sample) and (not texts or self._strays.issuperset(texts))

    @cached_property
    def _strays(self) -> set[str]:
        """The texts with digits that are not numbers in any notation, if they are few among numbers."""
        texts: set[str] = set()
        for cell in islice(self._tokens, SAMPLE):
            if not self._is_number(cell):
                texts.add(cell)
                if len(texts) > MAX_MARKERS:  # as in columns of names
                    return set()
        return texts if len(texts) < len(self._tokens) / 2 else set()

    def _is_number(self, cell: str) -> bool:
        """Return whether a cell is a number in some notation."""
        return not all(isnan(_number(cell, replace(notation, unit=self._unit))) for notation in NOTATIONS)

    @cached_property
    def units(self) -> list[str]:
        """The units of the numbers, the most frequent first, if most of the numbers have one."""
        units = Counter(unit_of(cell) for cell in islice(self._tokens, SAMPLE))
        without = units.pop(None, 0)
        return [unit for unit, _ in units.most_common() if unit] if units.total() > without else []

    @property
    def _unit(self) -> str | None:
        """The unit that most of the numbers have; None if others have another one."""
        return self.units[0] if len(self.units) == 1 else None

    @property
    def has_mixed_units(self) -> bool:
        """Whether the cells are numbers in several units, with too many distinct values to be categories."""
        return 1 < len(self.units) <= MAX_UNITS and len(self.counts) > MAX_CLASSES

    def example(self, notation: NumberFormat) -> str:
        """Return a number with a separator of this notation; the first number if none has one."""
        return self.separated(notation) or self._tokens[0]

    def separated(self, notation: NumberFormat) -> str | None:
        """Return the first number with a separator of this notation."""
        separator = notation.thousands or notation.decimal
        return next((cell for cell in self._tokens if separator in with_plain_spaces(cell)), None)

    def settle(self, notation: NumberFormat) -> None:
        """Classify the distinct cells, with numbers in the notation of the table."""
        self.number_format = replace(notation, unit=self._unit)
        self.words = sum(count * len(cell.split()) for cell, count in self.counts.items())
        tokens = self._tokens
        dates, self.date_formats = _regular_dates(tokens)
        values = {cell: self.number(cell) for cell in (dates if self.date_formats else tokens)}
        if not self.date_formats and _are_codes(tokens):
            values = {}
        numbers = {cell: value for cell, value in values.items() if not isnan(value)}
        texts = [cell for cell in self.counts if cell not in (values if self.date_formats else numbers)]
        if texts and self._are_missing(texts):
            self.markers = texts
            self.count_as_missing(texts)
        elif self.date_formats:
            self.undated = texts
        if any(cell not in values for cell in self.counts):
            self.date_formats = ()
        self.numbers = sum(self.counts[cell] for cell in numbers)
        self.whole = sum(self.counts[cell] for cell, value in numbers.items() if value.is_integer())
        self.distinct_numbers = len(numbers)

    def _are_missing(self, texts: Sequence[str]) -> bool:
        """Return whether texts among numbers or dates are missing values, or mistakes.

        Among few different numbers, a text that occurs more often may be a category.
        """
        if not self.date_formats and any(map(self._is_number, islice(texts, MAX_STRAYS))):
            return False
        values, share = len(self.counts) - len(texts), self._share(texts)
        if share <= STRAY_SHARE and len(texts) <= MAX_STRAYS:
            recur = any(self.counts[text] >= MIN_CATEGORY_COUNT for text in texts)
            return values > MAX_CLASSES or (len(texts) < values and not recur)
        if values > MAX_CLASSES:
            return share <= 0.5 and len(texts) <= MAX_MARKERS
        return share <= 0.1 and len(texts) <= MAX_MARKERS and all(map(is_usual_marker, texts))

    def _share(self, cells: Sequence[str]) -> float:
        return sum(self.counts[cell] for cell in cells) / self.filled

    def count_as_missing(self, texts: Collection[str]) -> None:
        """Count cells with these texts, in any case, as missing."""
        lowered = {text.lower() for text in texts}
        for cell in [cell for cell in self.counts if cell.lower() in lowered]:
            self.missing += self.counts.pop(cell)

    def texts(self) -> list[str]:
        """Return the distinct cells that are not numbers in any notation, the most frequent first."""
        return [cell for cell, _ in self.counts.most_common() if not self._is_number(cell)]

    def number(self, cell: str) -> float:
        """Return the number in a cell; nan if there is none."""
        return _number(cell, self.number_format)

    def moment(self, cell: str) -> float:
        """Return the date in a cell in seconds since 1970; nan if there is none."""
        moment = moment_of(cell, self.date_format or None)
        return float("nan") if np.isnat(moment) else float(moment.astype(np.int64)) / 1e6

    @property
    def filled(self) -> int:
        """Number of cells that are not missing."""
        return self.rows - self.missing

    @property
    def is_numeric(self) -> bool:
        """Whether all known cells are numbers."""
        return self.filled > 0 and self.numbers == self.filled

    @property
    def has_numbers(self) -> bool:
        """Whether at least half of the cells are numbers, of which several are different."""
        return self.numbers >= self.filled / 2 and self.distinct_numbers >= SEVERAL

    @property
    def is_date(self) -> bool:
        """Whether all known cells are dates in one format."""
        return self.filled > 0 and bool(self.date_formats)

    @property
    def date_format(self) -> str:
        """The format of the dates; empty for ISO 8601."""
        return self.date_formats[0] if self.date_formats else ""

    @property
    def has_times(self) -> bool:
        """Whether the dates have different hours."""
        return self.is_date and len({self.moment(cell) % 86400 // 3600 for cell in islice(self.counts, SAMPLE)}) > 1

    @property
    def is_text(self) -> bool:
        """Whether the cells are sentences."""
        return self.has_sentences and len(self.counts) > self.filled / 2

    @property
    def has_sentences(self) -> bool:
        """Whether the cells have more than three words on average."""
        return self.words_per_cell > MIN_WORDS_PER_CELL and not self.is_numeric and not self.is_date

    @property
    def words_per_cell(self) -> float:
        """Mean number of words of the cells that are not missing."""
        return self.words / max(1, self.filled)

    @property
    def is_identifier(self) -> bool:
        """Whether the column identifies rows: nearly each row has another name, or the rows are numbered."""
        if self.filled < 50 or len(self.counts) < 0.95 * self.filled or self.is_date:
            return False
        if not self.is_numeric:
            return True
        if self.whole < self.filled:
            return False
        if self.name.lower() in ("id", "uuid") or self.name.endswith(("_id", "_ID", "Id", "ID", " id")):
            return True
        numbers = [self.number(cell) for cell in self.counts]
        return max(numbers) - min(numbers) < 1.05 * self.filled


def is_usual_marker(text: str) -> bool:
    """Return whether a text mostly means a missing value among numbers or dates."""
    return text.lower() in MISSING_MARKERS


def notation_of(columns: Sequence[ColumnSurvey], delimiter: str) -> tuple[NumberFormat, str, bool]:
    """Return the notation of numbers that most columns of a table fit, the reason, and whether it is a guess."""
    order = list(NOTATIONS)
    if delimiter == ",":  # commas in quoted cells rather separate thousands
        order[1:3] = order[2:0:-1]
    fitting = {notation: [column for column in columns if column.fits(notation)] for notation in order}
    chosen = max(order, key=lambda notation: len(fitting[notation]))
    if chosen.is_plain:
        return chosen, "", False
    if chosen in order[1:3] and all(len(fitting[notation]) == len(fitting[chosen]) for notation in order[1:3]):
        other = '`thousands: ","`' if chosen.thousands is None else '`decimal: ","`'
        return chosen, f"a guess, since three digits follow each comma: {other} is the other possibility", True
    examples = (column.separated(chosen) for column in fitting[chosen])
    return chosen, f"numbers such as {next(filter(None, examples), fitting[chosen][0].example(chosen))}", False


def other_notations(columns: Sequence[ColumnSurvey], notation: NumberFormat) -> list[str]:
    """Return a warning for each column of numbers that are not in the notation of the table."""
    warnings = []
    for column in columns:
        others = [other for other in NOTATIONS if column.fits(other)]
        if others and not column.is_date and not column.fits(notation):
            example = column.example(others[0])
            warnings.append(
                f"`{column.name}` has numbers such as {example}, which the notation of the other columns does not "
                "allow: they are read as names until all columns have the same notation"
            )
    return warnings


def _number(cell: str, notation: NumberFormat) -> float:
    try:
        return float("nan") if "_" in cell or len(cell) > MAX_TOKEN else float(notation.plain(cell))
    except ValueError:
        return float("nan")


def _are_codes(cells: Sequence[str]) -> bool:
    """Return whether digits begin with zeros, as in postal codes: in most cells, or in some of cells of one length."""
    codes = sum(len(cell) > 1 and cell.isdigit() and cell.startswith("0") and cell.strip("0") != "" for cell in cells)
    return codes > 0 and (2 * codes >= len(cells) or len(set(map(len, cells))) == 1)


def _formats(cells: Sequence[str]) -> list[str]:
    """Return the formats in which all cells are dates, the likeliest first."""
    if not cells or any(len(cell) > MAX_TOKEN for cell in islice(cells, SAMPLE)):
        return []
    if all(_is_iso(cell) for cell in cells):
        return [""]
    formats = date_formats(cells)
    if formats == ["%Y%m%d"] and not all("1900" <= cell[:4] <= "2100" for cell in cells):
        return []
    return formats


def _regular_dates(cells: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Return the cells that are dates in the format of most of the cells, and the formats that fit all of these.

    If most cells share no format, return all cells and no formats.
    """
    if formats := _formats(cells):
        return cells, formats
    sample = cells[:SAMPLE]
    counts = Counter(format for cell in sample for format in _formats([cell]))
    usual = [format for format, count in counts.most_common(1) if count > len(sample) / 2]
    dates = [cell for cell in cells if usual[0] in _formats([cell])] if usual else []
    return (dates, _formats(dates)) if usual else (cells, [])


def _is_iso(cell: str) -> bool:
    return len(cell) >= 7 and cell[4:5] == "-" and not np.isnat(moment_of(cell))

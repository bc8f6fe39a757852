"""Print the report of `netspec data show`: statistics of fields, classes, and what the training data determines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from netspec.cli.output import count, table
from netspec.data.tabular.encodings import CategoricalEncoding, ColumnEncoding, NumberEncoding
from netspec.data.tabular.row_errors import describe_missing
from netspec.data.text.tokenizers.base import TOKENIZER
from netspec.errors import and_more, counted, listing
from netspec.tools.data_report import MAX_VALUES, short_number, short_text

if TYPE_CHECKING:
    from netspec.data.statistics import FieldStatistics, ScanResult
    from netspec.data.tabular.sample_rows import ColumnSummary
    from netspec.tools.data_report import DataReport

MAX_CLASSES, MAX_CHANNELS, MAX_DAMAGED = 40, 16, 5
MAX_COLUMNS = 20
"""Largest number of columns of a table, and of learned values, that are listed."""
MAX_CELLS, ROW_WIDTH = 8, 96
"""Largest number of cells of a printed row, and of their characters."""
BAR = 30


def print_report(report: DataReport, rows: Sequence[dict[str, Any]]) -> None:
    """Print statistics of the data, classes, what the training data determines, and rows of samples."""
    statistics, total = report.scanned, report.pipeline.samples
    over = "" if statistics.read == total else f"; statistics of {count(statistics.read)} of them"
    print(f"{report.part}: {counted(total, 'sample')} of `{getattr(report.split, 'source', '')}`{over}")
    if report.dataset.skipped:
        print(f"{counted(report.dataset.skipped, 'damaged sample')} left out when the data was opened:")
        for line in report.dataset.damaged[:MAX_DAMAGED]:
            print(f"  {line}")
    if report.dataset.rows_without:
        left_out = sum(map(len, report.dataset.rows_without.values()))
        print(f"{counted(left_out, 'row')} left out: {describe_missing(report.dataset.rows_without)}")
    if statistics.damaged:
        print(f"{counted(len(statistics.damaged), 'damaged sample')} left out:")
        for line in statistics.damaged[:MAX_DAMAGED]:
            print(f"  {line}")
    print()
    if report.columns:
        _print_columns(report)
        print()
    _print_statistics(statistics, of_table=bool(report.columns))
    for name, field_statistics in statistics.raw.items():
        if field_statistics.counts is not None and (
            field_statistics.names or len(field_statistics.counts) <= MAX_CLASSES
        ):
            _print_classes(name, field_statistics)
    _print_learned(report)
    if rows:
        print()
        _print_rows(report, rows)


def _print_columns(report: DataReport) -> None:
    """Print a row for each column of a table: its values in the file, and how they are encoded."""
    lines = []
    shown = [column for at, column in enumerate(report.columns) if at < MAX_COLUMNS or column.is_label]
    for column in shown:
        missing = f"{100 * column.missing / column.rows:.1f} %" if column.missing else ""
        kind = column.type + ", label" * column.is_label
        statistics = [value if isinstance(value, str) else short_number(value) for value in column.statistics or ()]
        if column.type == "text":
            statistics = [f"{value} words" for value in statistics]
        shares = [f"{short_text(name)} {100 * number / column.rows:.0f} %" for name, number in column.frequent.items()]
        frequent = ", ".join(shares) + and_more(column.categories - len(shares))
        lines.append([column.name, kind, missing, *(statistics or [""] * 3), frequent, _place(report, column)])
    if more := len(report.columns) - len(shown):
        lines.append([counted(more, "more column"), *[""] * 7])
    columns = ["column", "type", "missing", "lowest", "mean", "highest", "most frequent", "field"]
    _print_table(columns, lines, right=range(2, 6), drop_empty=True)


def _place(report: DataReport, column: ColumnSummary) -> str:
    """Return the field of a column, with its elements if the field has other columns as well: `features[3:8]`."""
    name, start, stop = report.dataset.column_ranges[column.name]
    shape = report.dataset.fields[name].shape
    if not shape or shape[-1] == stop - start:
        return name
    return f"{name}[{start}]" if stop == start + 1 else f"{name}[{start}:{stop}]"


def _print_rows(report: DataReport, rows: Sequence[dict[str, Any]]) -> None:
    """Print samples, each as a row: its fields, or the first cells of its row in a table and the label."""
    if not report.columns:
        table(list(rows[0]), [[short_text(value) for value in row.values()] for row in rows])
        return
    labels = [column.name for column in report.columns if column.is_label]
    inputs = [column.name for column in report.columns if not column.is_label]
    more = len(inputs) - MAX_CELLS
    names = [*inputs[:MAX_CELLS], *labels]
    width = ROW_WIDTH // len(names)
    lines = [[row["sample"], *(short_text(row["cells"][name], width) for name in names)] for row in rows]
    table(["sample", *names], lines)
    if more > 0:
        print(f"and {counted(more, 'more column')}")


def _print_statistics(statistics: ScanResult, *, of_table: bool) -> None:
    """Print a row for each field and channel, raw and prepared; fields of a table have one row for all columns."""
    lines = []
    for name in dict.fromkeys([*statistics.raw, *statistics.prepared]):
        for stage, by_field in (("raw", statistics.raw), ("prepared", statistics.prepared)):
            if name not in by_field or (stage == "prepared" and _unchanged(statistics, name)):
                continue
            lines += _lines(name, stage, by_field[name], together=of_table)
    columns = ["field", "", "type", "channel", "lowest", "highest", "mean", "std", "missing"]
    _print_table(columns, lines, right=range(3, len(columns)), drop_empty=of_table)


def _print_table(columns: Sequence[str], lines: list[list[str]], *, right: Iterable[int], drop_empty: bool) -> None:
    """Print a table, without its empty columns if `drop_empty`."""
    used = [at for at in range(len(columns)) if not drop_empty or any(line[at] for line in lines)]
    shown = [[line[at] for at in used] for line in lines]
    table([columns[at] for at in used], shown, right=[used.index(at) for at in right if at in used])


def _unchanged(statistics: ScanResult, name: str) -> bool:
    return name in statistics.raw and statistics.raw[name].as_json() == statistics.prepared[name].as_json()


def _lines(name: str, stage: str, field_statistics: FieldStatistics, *, together: bool) -> list[list[str]]:
    """Return a row for each channel, or one for all channels `together`."""
    kind = str(field_statistics.kind)
    if field_statistics.kind.ragged:
        kind += (
            f", {' × '.join(f'{low} to {high}' if low != high else str(low) for low, high in field_statistics.sizes)}"
        )
    missing = count(field_statistics.missing) if field_statistics.missing else ""
    if field_statistics.is_empty:
        return [[name, stage, kind, "", "", "", "", "", missing]]
    if together and field_statistics.channels > 1:
        low, high = short_number(min(field_statistics.low)), short_number(max(field_statistics.high))
        return [[name, stage, kind, "", low, high, "", "", missing]]
    numbers = zip(
        field_statistics.low, field_statistics.high, field_statistics.mean, field_statistics.deviation, strict=True
    )
    lines = [
        [name, stage, kind, str(channel) if field_statistics.channels > 1 else "", *map(short_number, row), missing]
        if channel == 0
        else ["", "", "", str(channel), *map(short_number, row), ""]
        for channel, row in enumerate(numbers)
    ]
    more = len(lines) - MAX_CHANNELS
    return [*lines[:MAX_CHANNELS], ["", "", "", f"{more} more", *[""] * 5]] if more > 0 else lines


def _print_classes(name: str, field_statistics: FieldStatistics) -> None:
    """Print each class with its number of samples, pixels of masks or boxes, and a bar."""
    classes = list(field_statistics.classes().items())
    most = max((number for _, number in classes), default=0)
    print()
    total = max(1, sum((field_statistics.counts or {}).values()))
    lines = [
        [title, count(number), f"{100 * number / total:.1f} %", "#" * -(-BAR * number // max(1, most))]
        for title, number in classes[:MAX_CLASSES]
    ]
    if len(classes) > MAX_CLASSES:
        lines.append([f"{len(classes) - MAX_CLASSES} more classes", "", "", ""])
    table([name, field_statistics.labeled, "share", ""], lines, right=(1, 2))


def _print_learned(report: DataReport) -> None:
    """Print what the training data determines for all data."""
    learned = report.pipeline.learned
    encodings = {
        encoding.column: text
        for field in report.dataset.column_encodings.values()
        for encoding in field
        if encoding is not None and (text := _formula(encoding))
    }
    lines = [
        [key, name.strip(), encodings[name] if key == "source" and name in encodings else _learned_text(value)]
        for key, values in [*learned.values.items(), ("source", learned.source)]
        for name, value in values.items()
        if value != []
    ]
    if lines:
        print("\nlearned from the training data:")
        table(["", "", ""], lines[:MAX_COLUMNS])
        if len(lines) > MAX_COLUMNS:
            print(f"and {counted(len(lines) - MAX_COLUMNS, 'more value')}")


def _learned_text(value: Any) -> str:
    """Return a learned value as text: a vocabulary by its size and first names, of a tokenizer as well."""
    if isinstance(value, Mapping):
        value = value.get(TOKENIZER, value)
        if "untrained" in value and "vocabulary" not in value:
            return f"indices without training rows: {listing([*map(str, value['untrained'])], MAX_VALUES)}"
        vocabulary = value.get("vocabulary")
        if isinstance(vocabulary, (list, tuple)):
            names = [short_text(name, 20) for name in vocabulary[:MAX_VALUES]]
            return f"vocabulary of {len(vocabulary):,}: {', '.join(names)}{and_more(len(vocabulary) - len(names))}"
    return short_text(value)


def _formula(encoding: ColumnEncoding) -> str:
    """Return how an encoding computes its elements from numbers or dates; empty for names."""
    if isinstance(encoding, CategoricalEncoding):
        return ""
    fills: Sequence[float]
    if isinstance(encoding, NumberEncoding):
        parts = [("x", encoding.offset, encoding.scale)]
        fills = () if encoding.fill is None else (encoding.fill,)
    else:
        parts = list(zip(encoding.parts, encoding.offsets, encoding.scales, strict=True))
        fills = encoding.fills or ()
    formulas = [
        f"({part} − {short_number(offset)}) / {short_number(scale)}" if (offset, scale) != (0, 1) else part
        for part, offset, scale in parts
    ]
    missing = [f"missing: {', '.join(map(short_number, fills))}"] if fills else []
    return "; ".join([", ".join(formulas), *missing])

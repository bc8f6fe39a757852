"""Print the report of `netspec data show`: statistics of fields, classes, and what the training data determines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netspec.cli.output import count, table
from netspec.errors import counted
from netspec.tools.data_report import short_number, short_text

if TYPE_CHECKING:
    from netspec.data.pipeline import Learned
    from netspec.data.statistics import FieldStatistics, ScanResult
    from netspec.tools.data_report import DataReport

MOST_CLASSES, MOST_CHANNELS, MOST_DAMAGED = 40, 16, 5
BAR = 30


def print_report(report: DataReport, rows: Sequence[dict[str, Any]]) -> None:
    """Print statistics of the data, classes, what the training data determines, and rows of samples."""
    statistics, total = report.scanned, report.pipeline.samples
    over = "" if statistics.read == total else f"; statistics of {count(statistics.read)} of them"
    print(f"{report.part}: {counted(total, 'sample')} of `{getattr(report.split, 'source', '')}`{over}")
    if report.dataset.skipped:
        print(f"{counted(report.dataset.skipped, 'damaged sample')} left out when the data was opened:")
        for line in report.dataset.damaged[:MOST_DAMAGED]:
            print(f"  {line}")
    if statistics.damaged:
        print(f"{counted(len(statistics.damaged), 'damaged sample')} left out:")
        for line in statistics.damaged[:MOST_DAMAGED]:
            print(f"  {line}")
    print()
    _print_figures(statistics)
    for name, figures in statistics.raw.items():
        if figures.counts is not None and (figures.names or len(figures.counts) <= MOST_CLASSES):
            _print_classes(name, figures)
    _print_learned(report.pipeline.learned)
    if rows:
        print()
        table(list(rows[0]), [[short_text(value) for value in row.values()] for row in rows])


def _print_figures(statistics: ScanResult) -> None:
    """Print a row for each field and channel, raw and prepared."""
    lines = []
    for name in dict.fromkeys([*statistics.raw, *statistics.prepared]):
        for stage, all_figures in (("raw", statistics.raw), ("prepared", statistics.prepared)):
            if name not in all_figures or (stage == "prepared" and _unchanged(statistics, name)):
                continue
            lines += _lines(name, stage, all_figures[name])
    columns = ["field", "", "type", "channel", "lowest", "highest", "mean", "std", "missing"]
    table(columns, lines, right=range(3, len(columns)))


def _unchanged(statistics: ScanResult, name: str) -> bool:
    return name in statistics.raw and statistics.raw[name].as_json() == statistics.prepared[name].as_json()


def _lines(name: str, stage: str, figures: FieldStatistics) -> list[list[str]]:
    kind = str(figures.kind)
    if figures.kind.ragged:
        kind += f", {' × '.join(f'{low} to {high}' if low != high else str(low) for low, high in figures.sizes)}"
    missing = count(figures.missing) if figures.missing else ""
    if figures.low is None:
        return [[name, stage, kind, "", "", "", "", "", missing]]
    numbers = zip(figures.low, figures.high, figures.mean, figures.deviation, strict=True)
    lines = [
        [name, stage, kind, str(channel) if figures.channels > 1 else "", *map(short_number, row), missing]
        if channel == 0
        else ["", "", "", str(channel), *map(short_number, row), ""]
        for channel, row in enumerate(numbers)
    ]
    more = len(lines) - MOST_CHANNELS
    return [*lines[:MOST_CHANNELS], ["", "", "", f"{more} more", *[""] * 5]] if more > 0 else lines


def _print_classes(name: str, figures: FieldStatistics) -> None:
    """Print each class with its number of samples, pixels of masks or boxes, and a bar."""
    classes = list(figures.classes().items())
    most = max((number for _, number in classes), default=0)
    print()
    total = max(1, sum((figures.counts or {}).values()))
    lines = [
        [title, count(number), f"{100 * number / total:.1f} %", "#" * -(-BAR * number // max(1, most))]
        for title, number in classes[:MOST_CLASSES]
    ]
    if len(classes) > MOST_CLASSES:
        lines.append([f"{len(classes) - MOST_CLASSES} more classes", "", "", ""])
    table([name, figures.labelled, "share", ""], lines, right=(1, 2))


def _print_learned(learned: Learned) -> None:
    """Print what the training data determines for all data."""
    lines = [
        [key, name.strip(), short_text(value)]
        for key, values in [*learned.values.items(), ("source", learned.source)]
        for name, value in values.items()
        if value != []
    ]
    if lines:
        print("\nlearned from the training data:")
        table(["", "", ""], lines)

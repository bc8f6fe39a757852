"""Print numbers, tables and JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from netspec.schema.plain_json import json_text

UNITS = ("", "k", "M", "G", "T", "P")
STATES = {
    "parameter": "parameters", "statistic": "moving statistics", "slot": "solver states",
    "gradient": "accumulated gradients", "residual": "residuals", "center": "centers",
    "gathered": "gathered shards",
}  # fmt: skip
"""Names of states, by role."""


def print_json(data: Any) -> None:
    """Print one JSON value on stdout, indented."""
    print(json_text(data, indent=2))


def print_json_line(data: Any) -> None:
    """Print one JSON value on a line of its own, flushed for readers that follow it."""
    print(json_text(data), flush=True)


def count(number: int) -> str:
    """Format an integer with separators of thousands: `1,234,567`."""
    return f"{number:,}"


def scaled(number: float, unit: str) -> str:
    """Format a number with a unit and three digits: `2.29 MFLOP`, `431 kB`. Prefixes are powers of 1000."""
    power = 0
    while abs(number) >= 999.5 and power < len(UNITS) - 1:
        number, power = number / 1000, power + 1
    digits = 0 if power == 0 or abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f"{number:.{digits}f} {UNITS[power]}{unit}"


def size(nbytes: int) -> str:
    """Format a number of bytes: `1.72 MB`."""
    return scaled(nbytes, "B")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> None:
    """Print a table; the columns at the positions `right` hold numbers.

    On a terminal it fits its width; into a file or a pipe lines are as long as they need to be.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, highlight=False) if terminal else Console(file=sys.stdout, width=100_000)
    grid = Table(box=SIMPLE_HEAD if terminal else None, pad_edge=False, show_header=any(columns))
    numbers = set(right)
    for position, column in enumerate(columns):
        grid.add_column(Text(column, "bold"), justify="right" if position in numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))  # brackets in texts such as `[64, 1, 28, 28]` are not markup
    if terminal:
        console.print(grid)
        return
    with console.capture() as captured:
        console.print(grid)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def note_transforms(transforms: Sequence[str]) -> None:
    """Note on stderr which transforms of the training the inputs of a model do not pass through."""
    if transforms:
        print("note: transforms are not applied here; in training, inputs were transformed by:", file=sys.stderr)
        print("".join(f"  {line}\n" for line in transforms), end="", file=sys.stderr)

"""Encodings of the cells of a column as numbers: plain data, for programs that encode outside of netspec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netspec.data.tabular.number_format import PLAIN, NumberFormat


@dataclass(frozen=True)
class NumberEncoding:
    """(x − offset) / scale in float64, then float32; a missing x is replaced by `fill`."""

    column: str
    fill: float | None
    """None: missing values are not replaced, so the result is NaN."""
    offset: float = 0.0
    scale: float = 1.0
    indicator: bool = False
    """Whether the number is followed by an indicator: 1 if x is missing, else 0."""
    format: NumberFormat = PLAIN
    """The notation of numbers in the cells."""
    boolean: bool = False
    """Whether the cells are booleans, with the texts `true` for 1 and `false` for 0."""
    missing: str = "error"
    """Handling of missing values: `error`, `drop` (the row is left out), or anything else: they are replaced."""
    missing_values: tuple[str, ...] = ()
    """Texts that mean a missing value, in lower case, in addition to the empty text."""

    @property
    def is_identity(self) -> bool:
        """Whether the result is the number in the cell."""
        return (self.fill, self.offset, self.scale, self.indicator) == (None, 0.0, 1.0, False)


@dataclass(frozen=True)
class CategoricalEncoding:
    """The index of a name, as an integer or as a one-hot vector."""

    column: str
    indices: Mapping[str, int]
    """Index of each name, and of each text that stands for a missing name, including the empty text; −1 for a vector of
    zeros."""
    names: Sequence[str]
    """The names, without texts that stand for a missing one."""
    default: int
    """Index of all other names; −1 for a vector of zeros."""
    width: int
    """Length of the vector; 0 for an integer."""
    missing: str = "error"
    """Handling of missing values: `error`, `drop` (the row is left out), or anything else: they are replaced."""
    missing_values: tuple[str, ...] = ()
    """Texts that mean a missing value, in lower case, in addition to the empty text."""
    is_open: bool = False
    """Whether other names are allowed."""


@dataclass(frozen=True)
class DateEncoding:
    """The parts of a time, each as (part − offset) / scale in float64, then float32; a missing time has `fills`."""

    column: str
    parts: tuple[str, ...]
    """`year`, `month`, `day`, `weekday`, `day_of_year`, `hour`, `minute`, `second` or `timestamp`."""
    offsets: tuple[float, ...]
    scales: tuple[float, ...]
    format: str | None
    """Format of the cells in the notation of `strptime`; None for ISO 8601."""
    fills: tuple[float, ...] | None = None
    """Value of each part of a missing time; None: missing times are not replaced, so the results are NaN."""
    indicator: bool = False
    """Whether the parts are followed by an indicator: 1 if the time is missing, else 0."""
    missing: str = "error"
    """Handling of missing values: `error`, `drop` (the row is left out), or anything else: they are replaced."""
    missing_values: tuple[str, ...] = ()
    """Texts that mean a missing value, in lower case, in addition to the empty text."""


ColumnEncoding = NumberEncoding | CategoricalEncoding | DateEncoding

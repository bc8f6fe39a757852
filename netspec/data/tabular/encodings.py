"""How a column's cells become numbers, as plain data, for programs that repeat it outside of netspec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class NumberEncoding:
    """(x − offset) / scale in float64, then float32; a missing x is replaced by `fill`."""

    column: str
    fill: float | None
    """None: there is no replacement, so the result is missing, too."""
    offset: float = 0.0
    scale: float = 1.0
    indicator: bool = False
    """Whether a value follows that is 1 if x is missing, else 0."""


@dataclass(frozen=True)
class NameEncoding:
    """The index of a name, as an integer or as a one-hot vector."""

    column: str
    indices: Mapping[str, int]
    """Index of each name, and of each text for a missing one, including the empty text."""
    default: int
    """Index of other names; −1: they have none, and a vector is zero."""
    width: int
    """Length of the vector; 0 for an integer."""


ColumnEncoding = NumberEncoding | NameEncoding

"""Statistics of numeric columns, gathered block by block: mean, variance, extremes, median."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from netspec.data.base import Array

if TYPE_CHECKING:
    from netspec.data.tabular.columns.numeric import Normalized

MAX_KEPT = 2**20
"""Number of values kept for a median; of more values, every second, fourth, … one is used."""
EPSILON = 1e-7
"""Lower bound of the standard deviation or range in a division: constant columns become zeros."""


class ColumnStatistics:
    """Mean, sum of squares, minimum and maximum of (N, C) values, for each column; nan is ignored.

    Blocks are merged by the formula of Chan, Golub and LeVeque ("Updating formulae …", 1979), which is accurate for
    large means.
    """

    def __init__(self) -> None:
        self.count: Any = 0
        self.mean: Any = 0.0
        self._squares: Any = 0.0
        self.least: Any = np.inf
        self.greatest: Any = -np.inf

    def add(self, values: Array) -> None:
        """Add values, (N, C) of float64."""
        present = ~np.isnan(values)
        size = present.sum(axis=0)
        filled = np.where(present, values, 0.0)
        mean = filled.sum(axis=0) / np.maximum(size, 1)
        squares = (np.where(present, values - mean, 0.0) ** 2).sum(axis=0)
        total = self.count + size
        delta = mean - self.mean
        share = size / np.maximum(total, 1)
        self._squares = self._squares + squares + delta**2 * self.count * share
        self.mean = self.mean + delta * share
        self.count = total
        self.least = np.minimum(self.least, np.where(present, values, np.inf).min(axis=0, initial=np.inf))
        self.greatest = np.maximum(self.greatest, np.where(present, values, -np.inf).max(axis=0, initial=-np.inf))

    def normalization(self, kind: Normalized) -> dict[str, list[float]]:
        """Return `{"offset": …, "scale": …}` with a value for each column: x becomes (x − offset) / scale."""
        if kind == "none" or not np.all(self.count):
            return {}
        if kind == "standard":
            scale = np.sqrt(self._squares / self.count)
            offset = self.mean
        else:
            scale, offset = self.greatest - self.least, self.least
        return {"offset": np.asarray(offset).tolist(), "scale": np.maximum(scale, EPSILON).tolist()}


class Median:
    """The median of values that are added block by block; nan is ignored."""

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._count = 0
        self._seen = 0
        self._stride = 1

    def add(self, values: Array) -> None:
        """Add values, (N,) of float64."""
        present = values[~np.isnan(values)]
        sampled = present[-self._seen % self._stride :: self._stride].copy()
        self._seen += len(present)
        self._kept.append(sampled)
        self._count += len(sampled)
        while self._count > MAX_KEPT:
            self._kept = [np.concatenate(self._kept)[::2].copy()]
            self._count = len(self._kept[0])
            self._stride *= 2

    def value(self) -> float | None:
        """Return the median; None if there were no values."""
        return float(np.median(np.concatenate(self._kept))) if self._count else None


NOT_NORMALIZED = (("offset", 0.0), ("scale", 1.0))
"""Values of a column that is not normalized."""


def normalized(values: Array, learned: dict[str, list[float]]) -> Array:
    """Normalize values (N, C) in float64 with the result of `ColumnStatistics.normalization`; return float32."""
    if not learned:
        return values.astype(np.float32)
    result: Array = ((values - np.array(learned["offset"])) / np.array(learned["scale"])).astype(np.float32)
    return result

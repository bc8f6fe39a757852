"""Statistics of numeric columns, gathered block by block: mean, variance, extremes, median."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netspec.data.base import Array
from netspec.data.moments import RunningMoments

if TYPE_CHECKING:
    from netspec.data.tabular.columns.numeric import Normalized

MAX_KEPT = 2**20
"""Number of values kept for a median; of more values, every second, fourth, … one is used."""
EPSILON = 1e-7
"""Lower bound of the standard deviation or range in a division: constant columns become zeros."""


class ColumnStatistics(RunningMoments):
    """Statistics of the columns of a table, or of the parts of dates, each a row of the values."""

    def normalization(self, kind: Normalized) -> dict[str, list[float]]:
        """Return `{"offset": …, "scale": …}` with a value for each column: x becomes (x − offset) / scale."""
        if kind == "none" or not np.all(self.count):
            return {}
        if kind == "standard":
            scale, offset = self.deviation, self.mean
        else:
            scale, offset = self.high - self.low, self.low
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

"""Mean, deviation, minimum and maximum of values that are added block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from netspec.data.base import Array


class RunningMoments:
    """Mean, sum of squares, minimum and maximum of each row of (C, N) values; nan is ignored.

    Blocks are merged by the formula of Chan, Golub and LeVeque ("Updating formulae …", 1979), which is accurate for
    large means.
    """

    def __init__(self) -> None:
        self.count: Any = 0
        self.mean: Any = 0.0
        self._squares: Any = 0.0
        self.low: Any = np.inf
        self.high: Any = -np.inf

    @property
    def is_empty(self) -> bool:
        """Whether no values were added."""
        return np.ndim(self.count) == 0

    def add_values(self, values: Array) -> None:
        """Add values, (C, N) of float64."""
        present = ~np.isnan(values)
        size = present.sum(axis=1)
        mean = np.where(present, values, 0.0).sum(axis=1) / np.maximum(size, 1)
        squares = (np.where(present, values - mean[:, None], 0.0) ** 2).sum(axis=1)
        total = self.count + size
        delta = mean - self.mean
        share = size / np.maximum(total, 1)
        self._squares = self._squares + squares + delta**2 * self.count * share
        self.mean = self.mean + delta * share
        self.count = total
        self.low = np.minimum(self.low, np.where(present, values, np.inf).min(axis=1, initial=np.inf))
        self.high = np.maximum(self.high, np.where(present, values, -np.inf).max(axis=1, initial=-np.inf))

    @property
    def deviation(self) -> Array:
        """The standard deviation of each row, (C,)."""
        return np.asarray(np.sqrt(self._squares / np.maximum(self.count, 1)))

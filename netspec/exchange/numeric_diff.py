"""Differences of results: the largest one of finite elements, and counts of NaN and infinities that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Arrays: TypeAlias = "Mapping[str, NDArray[Any]]"


@dataclass(frozen=True)
class Gap:
    """Elementwise difference of two arrays. NaN equals NaN, and equal infinities are equal."""

    size: int
    """Number of elements."""
    finite_abs: float
    """The largest absolute difference of elements that are finite on both sides."""
    finite_scaled: float
    """The same, divided by the largest finite magnitude of the first side if that is above 1."""
    same_not_finite: int = 0
    """Number of elements that are NaN on both sides, or the same infinity."""
    nan_alone: int = 0
    """Number of elements that are NaN on one side only."""
    infinite_alone: int = 0
    """Number of elements that are infinite on one side and differ on the other."""

    @property
    def max_abs(self) -> float:
        """The largest absolute difference; infinite if one side has a NaN or an infinity and the other side differs."""
        return inf if self.nan_alone or self.infinite_alone else self.finite_abs

    @property
    def scaled(self) -> float:
        """Like `max_abs`, divided by the largest magnitude (see `finite_scaled`)."""
        return inf if self.nan_alone or self.infinite_alone else self.finite_scaled

    @property
    def finite(self) -> int:
        """Number of elements that are finite on both sides."""
        return self.size - self.same_not_finite - self.nan_alone - self.infinite_alone

    def __str__(self) -> str:
        scaled = f" (relative {self.finite_scaled:.2g})" if self.finite_scaled != self.finite_abs else ""
        measured = f"largest difference {self.finite_abs:.3g}{scaled}"
        if self.finite == self.size:
            return measured
        others = (
            (self.same_not_finite, "NaN or infinite alike on both sides"),
            (self.nan_alone, "NaN on one side alone"),
            (self.infinite_alone, "infinite on one side, another number on the other"),
        )
        parts = [f"{measured} of those that are finite"] if self.finite else []
        parts += [f"{condition}: {count:,} of {self.size:,} numbers" for count, condition in others if count]
        return "; ".join(parts)

    @property
    def relative(self) -> str:
        """A difference for messages: the scaled figure, or the counts of elements that are not finite."""
        return f"{self.scaled:.3g}" if self.finite == self.size else str(self)

    @classmethod
    def largest(cls, gaps: Iterable[Gap]) -> Gap:
        """Combine the differences of several pairs of arrays."""
        several = list(gaps)
        return cls(
            sum(gap.size for gap in several),
            max((gap.finite_abs for gap in several), default=0.0),
            max((gap.finite_scaled for gap in several), default=0.0),
            sum(gap.same_not_finite for gap in several),
            sum(gap.nan_alone for gap in several),
            sum(gap.infinite_alone for gap in several),
        )


@dataclass(frozen=True)
class OutputComparison:
    """Differences of results from the net's own, by output."""

    gaps: dict[str, Gap]

    @property
    def whole(self) -> Gap:
        """The combined differences of all outputs."""
        return Gap.largest(self.gaps.values())

    @property
    def max_abs(self) -> dict[str, float]:
        """The largest absolute differences."""
        return {name: gap.max_abs for name, gap in self.gaps.items()}

    @classmethod
    def largest(cls, comparisons: Sequence[OutputComparison]) -> OutputComparison:
        """Combine several comparisons of one model."""
        return cls(
            {name: Gap.largest(comparison.gaps[name] for comparison in comparisons) for name in comparisons[0].gaps}
        )


def compare(ours: Arrays, theirs: Arrays) -> OutputComparison:
    """Differences by name; infinite if shapes differ, or one side lacks a name."""
    names = {**ours, **theirs}
    return OutputComparison({name: gap_of(ours.get(name), theirs.get(name)) for name in names})


def gap_of(ours: NDArray[Any] | None, theirs: NDArray[Any] | None) -> Gap:
    """The difference of two arrays; infinite if one is missing, or has the wrong shape."""
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return Gap(0, inf, inf)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    nan = np.isnan(a), np.isnan(b)
    alike = (nan[0] & nan[1]) | (~finite & (a == b))
    nan_alone = nan[0] ^ nan[1]
    gaps = np.abs(np.subtract(a, b, where=finite, out=np.zeros_like(a)))
    worst = float(gaps.max(initial=0.0))
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=1.0))
    others = [int(np.count_nonzero(mask)) for mask in (alike, nan_alone, ~(finite | alike | nan_alone))]
    return Gap(a.size, worst, worst / scale, *others)

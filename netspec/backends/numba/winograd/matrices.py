"""Matrices of minimal filtering: m outputs of a filter of r taps by m + r - 1 multiplications (Winograd 1980).

y = Aᵀ[(G w) ∘ (Bᵀ x)], by evaluating polynomials at points (Toom-Cook). Points are chosen for small
rounding errors (B. Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution", 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import log2, prod

Matrix = tuple[tuple[float, ...], ...]

POINTS: dict[int, tuple[Fraction, ...]] = {
    4: (Fraction(0), Fraction(1), Fraction(-1)),
    6: (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2)),
}
"""Number of multiplications → the finite points. Of 12 sets of six tried, these six had the least error
(1.4e-6 of the result's length for 256 channels, where 0, ±1, ±2 have 3.1e-6); their powers, and
the elements of `Bᵀ` and `Aᵀ` computed from them, are exact in float32."""


@dataclass(frozen=True)
class MinimalFilter:
    """F(m, r): `outputs` m and `taps` r, along each axis of a tile."""

    outputs: int
    taps: int

    @property
    def size(self) -> int:
        """Number of points, and of inputs, along an axis."""
        return self.outputs + self.taps - 1

    @property
    def points(self) -> int:
        """Multiplications for a tile."""
        return self.size**2

    @cached_property
    def _scaled(self) -> tuple[Matrix, Matrix]:
        """Bᵀ and G. A power of two is moved between their rows, so that both have similar magnitude."""
        points = POINTS[self.size]
        data, kernel = [], []
        for j, point in enumerate(points):
            others = [other for k, other in enumerate(points) if k != j]
            row = [*_with_roots(others), Fraction(0)]
            scale = prod((point - other for other in others), start=Fraction(1))
            taps = [point**k / scale for k in range(self.taps)]
            factor = Fraction(2) ** round(log2(sum(map(abs, row)) / sum(map(abs, taps))) / 2)
            data.append(tuple(float(value / factor) for value in row))
            kernel.append(tuple(float(tap * factor) for tap in taps))
        data.append(tuple(map(float, _with_roots(points))))
        kernel.append((*(0.0,) * (self.taps - 1), 1.0))
        return tuple(data), tuple(kernel)

    @property
    def data(self) -> Matrix:
        """Bᵀ (size, size), applied to the input."""
        return self._scaled[0]

    @property
    def kernel(self) -> Matrix:
        """G (size, taps), applied to the filter."""
        return self._scaled[1]

    @property
    def result(self) -> Matrix:
        """Aᵀ (outputs, size), applied to the products."""
        ends = [0.0] * (self.outputs - 1) + [1.0]
        return tuple((*(float(point**i) for point in POINTS[self.size]), ends[i]) for i in range(self.outputs))


def transposed(matrix: Matrix) -> Matrix:
    """The transposed matrix."""
    return tuple(zip(*matrix, strict=True))


def _with_roots(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the polynomial with these roots, the constant one first."""
    coefficients = [Fraction(1)]
    for root in roots:
        coefficients = [
            a - root * b for a, b in zip([Fraction(0), *coefficients], [*coefficients, Fraction(0)], strict=True)
        ]
    return coefficients

"""Line charts, and how they are drawn in the terminal, with braille dots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Any

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the 4 × 2 dots of a braille character, by row and column."""
BLANK = 0x2800
ROWS = 12
"""Height of a chart in the terminal, in characters."""


@dataclass(frozen=True)
class Curve:
    """Points in the order of x; points that are not finite are left out."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    note: str = ""
    """Remark next to the name."""
    group: str = ""
    """Name of the curves that have the same color, if a chart compares several runs."""
    kind: str = ""
    """Property that distinguishes the curves of a group: they are dashed differently."""

    def points(self, scale: AxisScale, across: AxisScale | None = None) -> list[tuple[float, float]]:
        """Return the positions of the points that a scale can show; `across` is the scale of x."""
        across = across or AxisScale()
        return [
            (across.position(x), scale.position(y)) for x, y in zip(self.xs, self.ys, strict=True) if scale.shows(y)
        ]


@dataclass(frozen=True)
class AxisScale:
    """A linear or logarithmic axis."""

    logarithmic: bool = False

    def shows(self, y: float) -> bool:
        """Whether a value can be shown."""
        return isfinite(y) and (y > 0 or not self.logarithmic)

    def position(self, y: float) -> float:
        """Return the position of a value."""
        return log10(y) if self.logarithmic else y

    def value(self, position: float) -> float:
        """Return the value at a position."""
        return 10.0**position if self.logarithmic else position


@dataclass(frozen=True)
class Chart:
    """Curves over one axis."""

    title: str
    x: str
    curves: Sequence[Curve]
    scale: AxisScale = AxisScale()
    across: AxisScale = AxisScale()
    """Scale of x."""
    marks: Sequence[float] = ()
    """Values of x with a vertical line."""

    def as_json(self) -> dict[str, Any]:
        """The chart as plain data."""
        curves = [
            {
                "name": curve.name,
                "x": list(curve.xs),
                "y": list(curve.ys),
                **({"note": curve.note} if curve.note else {}),
                **({"group": curve.group, "kind": curve.kind} if curve.group else {}),
            }
            for curve in self.curves
        ]
        return {"title": self.title, "x": self.x, "curves": curves}

    def bounds(self, curves: Sequence[Curve]) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """Return the ranges of x and of the position of y over some curves; None if there is nothing to draw."""
        points = [point for curve in curves for point in curve.points(self.scale, self.across)]
        if not points:
            return None
        xs, ys = zip(*points, strict=True)
        return (min(xs), max(xs)), _separated(min(ys), max(ys))


def _separated(low: float, high: float) -> tuple[float, float]:
    """Return bounds that differ: equal ones are moved apart."""
    if high > low:
        return low, high
    room = abs(low) / 2 or 1.0
    return low - room, high + room


def number(value: float) -> str:
    """Format a number of an axis."""
    if value == 0:
        return "0"
    if 1e4 > abs(value) >= 1e-3:
        return f"{value:.4g}"
    if 1e7 > abs(value) >= 1e4:
        return f"{value:,.0f}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def as_text(chart: Chart, width: int) -> Iterator[str]:
    """Yield the lines of a chart for a terminal that is `width` characters wide, one curve below the other."""
    for curve in chart.curves:
        named = chart.title if len(chart.curves) == 1 else f"{chart.title}: {curve.name}"
        yield f"{named} ({curve.note})" if curve.note else named
        bounds = chart.bounds(chart.curves if curve.group else [curve])
        if bounds is None or not curve.points(chart.scale):
            yield "  nothing to draw: no value is finite" + (" and above 0" if chart.scale.logarithmic else "")
            continue
        if len(points := curve.points(chart.scale, chart.across)) == 1:
            x, y = points[0]
            yield f"  {number(chart.scale.value(y))} at {chart.x} {number(chart.across.value(x))}"
            continue
        (first, last), (low, high) = bounds
        labels = {row: number(chart.scale.value(high - (high - low) * row / (ROWS - 1))) for row in (0, 3, 6, 9, 11)}
        margin = max(map(len, labels.values()))
        columns = max(10, width - margin - 3)
        for row, line in enumerate(_dotted(points, columns, bounds)):
            yield f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}{line}".rstrip()
        low_label, high_label = (number(chart.across.value(position)) for position in (first, last))
        yield f"{'':>{margin}} └{'─' * columns}"
        room = max(1, columns - len(low_label) - len(high_label))
        yield f"{'':>{margin}}  {low_label}{chart.x:^{room}}{high_label}".rstrip()


def _dotted(
    points: Sequence[tuple[float, float]], columns: int, bounds: tuple[tuple[float, float], tuple[float, float]]
) -> list[str]:
    """Draw points, joined by straight lines, in braille; return the lines of text."""
    (first, last), (low, high) = bounds
    wide, tall = 2 * columns - 1, 4 * ROWS - 1
    cells = [[0] * columns for _ in range(ROWS)]

    def placed(x: float, y: float) -> tuple[int, int]:
        across = (x - first) / (last - first) if last > first else 0.0
        return round(across * wide), round((high - y) / (high - low) * tall)

    dots = [placed(*point) for point in points]
    for start, end in zip(dots, dots[1:] or dots, strict=False):
        for column, row in _line(start, end):
            cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    return ["".join(chr(BLANK + cell) if cell else " " for cell in line) for line in cells]


def _line(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the dots of the line from `start` to `end`, both included."""
    (x, y), (u, v) = start, end
    steps = max(abs(u - x), abs(v - y))
    for step in range(steps + 1):
        share = step / steps if steps else 0.0
        yield round(x + (u - x) * share), round(y + (v - y) * share)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers within bounds: multiples of 1, 2 or 5 times a power of ten."""
    least = (high - low) / max(1, most - 1)
    power = 10.0 ** floor(log10(least))
    stride = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    return [stride * index for index in range(ceil(low / stride - 1e-9), floor(high / stride + 1e-9) + 1)]

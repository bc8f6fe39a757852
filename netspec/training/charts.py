"""Line charts: in the terminal, of braille dots, and as SVG. No library is needed for lines, axes and a legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10
from pathlib import Path
from typing import Any

from netspec.exchange.files import write_atomically

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the 4 × 2 dots of a braille character, by row and column."""
BLANK = 0x2800
ROWS = 12
"""Height of a chart in the terminal, in characters."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by the colour-blind too: Okabe and Ito 2008, "Color Universal Design"."""
DASHES = ("none", "6 3", "2 2")
"""Dash patterns of curves beyond the number of colours."""
WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 32, 44
"""Margins around the plotted area of a chart in an SVG."""
NAMED_INSIDE = 3
"""Maximum number of curves whose names fit above the plotted area; more names go to its right."""
BESIDE = 160
"""Width of that."""


@dataclass(frozen=True)
class Curve:
    """Points in the order of x; what is not finite is left out."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    note: str = ""
    """Remark next to the name."""

    def points(self, scale: AxisScale, across: AxisScale | None = None) -> list[tuple[float, float]]:
        """Positions of the points that a scale can show; `across` is the scale of x."""
        across = across or AxisScale()
        return [(across.place(x), scale.place(y)) for x, y in zip(self.xs, self.ys, strict=True) if scale.shows(y)]


@dataclass(frozen=True)
class AxisScale:
    """A linear or logarithmic axis."""

    logarithmic: bool = False

    def shows(self, y: float) -> bool:
        """Whether a value has a place."""
        return isfinite(y) and (y > 0 or not self.logarithmic)

    def place(self, y: float) -> float:
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

    def as_json(self) -> dict[str, Any]:
        """The chart as plain data."""
        curves = [
            {
                "name": curve.name,
                "x": list(curve.xs),
                "y": list(curve.ys),
                **({"note": curve.note} if curve.note else {}),
            }
            for curve in self.curves
        ]
        return {"title": self.title, "x": self.x, "curves": curves}

    def bounds(self, curves: Sequence[Curve]) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """The least and the largest x and place of y of some curves; None where there is nothing to draw."""
        points = [point for curve in curves for point in curve.points(self.scale, self.across)]
        if not points:
            return None
        xs, ys = zip(*points, strict=True)
        return (min(xs), max(xs)), _apart(min(ys), max(ys))


def _apart(low: float, high: float) -> tuple[float, float]:
    """Bounds with room between them."""
    if high > low:
        return low, high
    room = abs(low) / 2 or 1.0
    return low - room, high + room


def number(value: float) -> str:
    """A number of an axis."""
    if value == 0:
        return "0"
    if 1e4 > abs(value) >= 1e-3:
        return f"{value:.4g}"
    if 1e7 > abs(value) >= 1e4:
        return f"{value:,.0f}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def as_text(chart: Chart, width: int) -> Iterator[str]:
    """The lines of a chart for a terminal that is `width` characters wide; one curve below the other."""
    for curve in chart.curves:
        named = chart.title if len(chart.curves) == 1 else f"{chart.title}: {curve.name}"
        yield f"{named} ({curve.note})" if curve.note else named
        bounds = chart.bounds([curve])
        if bounds is None:
            yield "  nothing to draw: no value is finite" + (" and above 0" if chart.scale.logarithmic else "")
            continue
        (first, last), (low, high) = bounds
        labels = {row: number(chart.scale.value(high - (high - low) * row / (ROWS - 1))) for row in (0, 3, 6, 9, 11)}
        margin = max(map(len, labels.values()))
        columns = max(10, width - margin - 3)
        for row, line in enumerate(_dotted(curve.points(chart.scale, chart.across), columns, bounds)):
            yield f"{labels.get(row, ''):>{margin}} {'┤' if row in labels else '│'}{line}".rstrip()
        low_label, high_label = (number(chart.across.value(position)) for position in (first, last))
        yield f"{'':>{margin}} └{'─' * columns}"
        room = max(1, columns - len(low_label) - len(high_label))
        yield f"{'':>{margin}}  {low_label}{chart.x:^{room}}{high_label}".rstrip()


def _dotted(
    points: Sequence[tuple[float, float]], columns: int, bounds: tuple[tuple[float, float], tuple[float, float]]
) -> list[str]:
    """The area of a chart as lines of braille: points, joined by straight lines."""
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
    """The dots from one to another, both among them."""
    (x, y), (u, v) = start, end
    steps = max(abs(u - x), abs(v - y))
    for step in range(steps + 1):
        share = step / steps if steps else 0.0
        yield round(x + (u - x) * share), round(y + (v - y) * share)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers within bounds: multiples of 1, 2 or 5 times a power of ten."""
    least = (high - low) / max(1, most - 1)
    power = 10.0 ** floor(log10(least))
    stride = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    return [stride * index for index in range(ceil(low / stride - 1e-9), floor(high / stride + 1e-9) + 1)]


def as_svg(charts: Sequence[Chart]) -> str:
    """The charts one below the other as an SVG document."""
    total = HEIGHT * len(charts)
    size = f'width="{WIDTH}" height="{total}" viewBox="0 0 {WIDTH} {total}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, chart in enumerate(charts):
        parts += [f'<g transform="translate(0 {index * HEIGHT})">', *_drawn(chart), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def write_svg(charts: Sequence[Chart], path: Path) -> None:
    """Write the charts to an SVG file."""

    def write(staged: Path) -> None:
        staged.write_text(as_svg(charts), encoding="utf-8")

    write_atomically(path, write)


def _drawn(chart: Chart) -> Iterable[str]:
    """One chart as SVG elements."""
    yield f'<text x="{LEFT}" y="20" font-weight="bold">{escape(chart.title)}</text>'
    bounds = chart.bounds(chart.curves)
    if bounds is None:
        yield f'<text x="{LEFT}" y="{TOP + 20}">nothing to draw</text>'
        return
    (first, last), (low, high) = bounds
    right = RIGHT + (BESIDE if len(chart.curves) > NAMED_INSIDE else 0)
    wide, tall = WIDTH - LEFT - right, HEIGHT - TOP - BOTTOM
    span = (last - first) or 1.0

    def across(x: float) -> str:
        return f"{LEFT + wide * (x - first) / span:.1f}"

    def down(position: float) -> str:
        return f"{TOP + tall * (high - position) / (high - low):.1f}"

    for position in ticks(low, high):
        y = down(position)
        yield f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - right}" y2="{y}" stroke="#ddd"/>'
        label = number(chart.scale.value(position))
        yield f'<text x="{LEFT - 6}" y="{y}" text-anchor="end" dominant-baseline="middle">{label}</text>'
    base = TOP + tall
    for x in _marks(chart, first, last):
        yield f'<line x1="{across(x)}" y1="{base}" x2="{across(x)}" y2="{base + 5}" stroke="black"/>'
        said = number(chart.across.value(x))
        yield f'<text x="{across(x)}" y="{base + 18}" text-anchor="middle">{said}</text>'
    yield f'<path d="M{LEFT} {TOP}V{base}H{WIDTH - RIGHT}" fill="none" stroke="black"/>'
    yield f'<text x="{LEFT + wide / 2:.1f}" y="{base + 36}" text-anchor="middle">{escape(chart.x)}</text>'
    for index, curve in enumerate(chart.curves):
        color = COLORS[index % len(COLORS)]
        points = [(across(x), down(position)) for x, position in curve.points(chart.scale, chart.across)]
        if len(points) == 1:
            yield f'<circle cx="{points[0][0]}" cy="{points[0][1]}" r="2" fill="{color}"/>'
        line = " ".join(f"{x},{y}" for x, y in points)
        dashes = f' stroke-dasharray="{DASHES[index // len(COLORS) % len(DASHES)]}"' if index >= len(COLORS) else ""
        if right > RIGHT:  # right of the area there is room for a piece of the line
            begin, level = WIDTH - right + 8, 16 + 15 * index
            yield f'<line x1="{begin}" y1="{level}" x2="{begin + 20}" y2="{level}" stroke="{color}"{dashes}/>'
        yield f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"{dashes}/>'
        said = escape(f"{curve.name} ({curve.note})" if curve.note else curve.name)
        yield f'<text x="{WIDTH - RIGHT}" y="{20 + 15 * index}" text-anchor="end" fill="{color}">{said}</text>'


def _marks(chart: Chart, first: float, last: float) -> list[float]:
    """Labels of x: round numbers, or on a logarithmic axis the curves' own values, at most 12."""
    if last <= first:
        return [first]
    if not chart.across.logarithmic:
        return ticks(first, last, 8)
    values = sorted({x for curve in chart.curves for x, _ in curve.points(chart.scale, chart.across)})
    return values[:: -(-len(values) // 12)]

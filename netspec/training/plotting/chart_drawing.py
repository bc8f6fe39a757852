"""Charts as shapes: grid, axes, curves, legend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from netspec.errors import InputError
from netspec.training.plotting.charts import Chart, Curve, number, ticks
from netspec.training.plotting.drawing import (
    CHARACTER,
    SUFFIXES,
    Dot,
    Drawing,
    Polyline,
    Shape,
    StraightLine,
    Text,
    moved,
    svg,
    write_drawing,
)

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Colors that color-blind readers can distinguish: Okabe and Ito 2008, "Color Universal Design"."""
GRAY = "#666666"
DASHES: tuple[tuple[int, ...], ...] = ((), (6, 3), (2, 2))
"""Lengths of the dashes of lines and of the gaps between them; () for a solid line."""
WIDTH, HEIGHT = 720, 320
"""Size of a chart without its legend."""
LEFT, RIGHT, TOP, BOTTOM = 72, 16, 32, 44
"""Margins around the plotted area."""
ROW = 17
"""Height of a row of the legend."""
PADDING = 0.03
"""Space around single points, in parts of the axes."""
GAP = 10
"""Space around the legend."""


@dataclass(frozen=True)
class LegendEntry:
    """An entry of a legend."""

    text: str
    color: str
    dash: tuple[int, ...] = ()
    is_dot: bool = False
    """Whether its curve has a single point."""

    @property
    def width(self) -> float:
        """Width of the entry, including the sample of its line."""
        return 34 + CHARACTER * len(self.text) + 14


def write_charts(charts: Sequence[Chart], path: Path) -> None:
    """Write charts, one below the other, to an SVG or PNG file, by suffix. Raises `InputError` for other suffixes."""
    if path.suffix.lower() not in SUFFIXES:
        expected = " or ".join(f"a file name that ends in {suffix}" for suffix in SUFFIXES)
        raise InputError("charts are written as SVG or PNG", expected=expected, got=str(path))
    write_drawing(_drawing(charts), path)


def as_svg(charts: Sequence[Chart]) -> str:
    """Return charts, one below the other, as an SVG document."""
    return svg(_drawing(charts))


def _drawing(charts: Sequence[Chart]) -> Drawing:
    return Drawing(WIDTH, round(sum(map(height, charts))), list(_stacked(charts)))


def height(chart: Chart) -> float:
    """Return the height of a chart, with its legend."""
    return HEIGHT + GAP + ROW * len(_legend_rows(chart))


def _stacked(charts: Sequence[Chart]) -> Iterator[Shape]:
    """Yield the shapes of charts one below the other."""
    top = 0.0
    for chart in charts:
        yield from (moved(shape, top) for shape in _shapes(chart))
        top += height(chart)


def _shapes(chart: Chart) -> Iterator[Shape]:
    """Yield the shapes of one chart: grid, axes, curves, legend."""
    yield Text(LEFT, 16, chart.title, bold=True)
    bounds = chart.bounds(chart.curves)
    if bounds is None:
        yield Text(LEFT, TOP + 20, "nothing to draw")
        return
    (first, last), (low, high) = bounds
    if any(len(curve.points(chart.scale)) == 1 for curve in chart.curves):  # a dot on the edge would look cut
        first, last = first - PADDING * (last - first), last + PADDING * (last - first)
        low, high = low - PADDING * (high - low), high + PADDING * (high - low)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    span, base = (last - first) or 1.0, TOP + tall

    def across(x: float) -> float:
        return LEFT + wide * (x - first) / span

    def down(position: float) -> float:
        return TOP + tall * (high - position) / (high - low)

    for position in ticks(low, high):
        y = down(position)
        yield StraightLine(LEFT, y, WIDTH - RIGHT, y, "#dddddd")
        yield Text(LEFT - 6, y, number(chart.scale.value(position)), "end")
    for x in _marks(chart, first, last):
        yield StraightLine(across(x), base, across(x), base + 5)
        yield Text(across(x), base + 14, number(chart.across.value(x)), "middle")
    yield StraightLine(LEFT, TOP, LEFT, base)
    yield StraightLine(LEFT, base, WIDTH - RIGHT, base)
    yield Text(LEFT + wide / 2, base + 32, chart.x, "middle")
    for curve, (color, dash) in zip(chart.curves, _styles(chart), strict=True):
        points = [(across(x), down(position)) for x, position in curve.points(chart.scale, chart.across)]
        if len(points) == 1:
            yield Dot(*points[0], color)
        elif points:
            yield Polyline(points, color, 1.5, dash)
    for x_mark in chart.marks:
        x = across(chart.across.position(x_mark))
        yield StraightLine(x, TOP, x, base, GRAY, 1.0, DASHES[1])
    yield from _legend(chart)


def _styles(chart: Chart) -> list[tuple[str, tuple[int, ...]]]:
    """Return color and dashes of each curve: a color per curve or per group, in which dashes distinguish the kinds."""
    if not any(curve.group for curve in chart.curves):
        count = len(COLORS)
        return [(COLORS[index % count], DASHES[index // count % len(DASHES)]) for index in range(len(chart.curves))]
    groups, kinds = _groups(chart), _kinds(chart)
    return [
        (COLORS[groups.index(curve.group) % len(COLORS)], DASHES[kinds.index(curve.kind) % len(DASHES)])
        for curve in chart.curves
    ]


def _groups(chart: Chart) -> list[str]:
    return list(dict.fromkeys(curve.group for curve in chart.curves))


def _kinds(chart: Chart) -> list[str]:
    """Return the kinds of curves in a chart, those of evaluations first: solid lines are for these."""
    return sorted(dict.fromkeys(curve.kind for curve in chart.curves), key=lambda kind: kind.startswith("training"))


def _entries(chart: Chart) -> list[LegendEntry]:
    """Return the entries of the legend."""
    if not any(curve.group for curve in chart.curves):
        named = zip(chart.curves, _styles(chart), strict=True)
        return [
            LegendEntry(f"{curve.name} ({curve.note})" if curve.note else curve.name, *style, _is_dot(chart, [curve]))
            for curve, style in named
        ]
    groups, kinds = _groups(chart), _kinds(chart)
    entries = [LegendEntry(group, COLORS[index % len(COLORS)]) for index, group in enumerate(groups)]
    of_kind = [[curve for curve in chart.curves if curve.kind == kind] for kind in kinds]
    dashes = [
        LegendEntry(kind, GRAY, DASHES[index % len(DASHES)], _is_dot(chart, of_kind[index]))
        for index, kind in enumerate(kinds)
    ]
    return entries + (dashes if len(kinds) > 1 else [])


def _is_dot(chart: Chart, curves: Sequence[Curve]) -> bool:
    """Return whether each of these curves has a single point."""
    return all(len(curve.points(chart.scale)) == 1 for curve in curves)


def _legend_rows(chart: Chart) -> list[list[LegendEntry]]:
    """Return the entries of the legend by row, as many in a row as fit."""
    rows: list[list[LegendEntry]] = []
    for entry in _entries(chart):
        if rows and sum(other.width for other in rows[-1]) + entry.width <= WIDTH - LEFT - RIGHT:
            rows[-1].append(entry)
        else:
            rows.append([entry])
    return rows


def _legend(chart: Chart) -> Iterator[Shape]:
    """Yield the legend below the chart."""
    for index, row in enumerate(_legend_rows(chart)):
        x, y = float(LEFT), HEIGHT + GAP / 2 + ROW * index
        for entry in row:
            if entry.is_dot:
                yield Dot(x + 13, y, entry.color)
            else:
                yield StraightLine(x, y, x + 26, y, entry.color, 1.5, entry.dash)
            yield Text(x + 34, y, entry.text)
            x += entry.width


def _marks(chart: Chart, first: float, last: float) -> Iterable[float]:
    """Return the labels of x: round numbers, or on a logarithmic axis powers of ten or the curves' own values."""
    if last <= first:
        return [first]
    if not chart.across.logarithmic:
        return ticks(first, last, 8)
    values = sorted({x for curve in chart.curves for x, _ in curve.points(chart.scale, chart.across)})
    if len(values) > 24:
        return [float(power) for power in range(-30, 31) if first - 1e-9 <= power <= last + 1e-9] or [first, last]
    return values[:: -(-len(values) // 12)]

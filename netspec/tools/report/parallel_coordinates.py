"""Parallel coordinates: an axis for each field of a search and for the result, a line for each trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from netspec.training.plotting.drawing import Drawing, Shape, StraightLine, Text
from netspec.training.plotting.drawing import Polyline as Line

AXIS_DISTANCE, HEIGHT, MARGIN, HEAD = 170, 300, 90, 50
"""Distance between axes, height of an axis, and space left, right and above; in pixels."""
LOGARITHMIC = 30
"""Ratio of the highest to the lowest positive number above which an axis is logarithmic."""
MAX_LETTERS = 22
BEST, WORST = (8, 48, 107), (198, 219, 239)
"""Colors of lines, red, green and blue."""


@dataclass(frozen=True)
class _Axis:
    """The positions of values on an axis, 0 at the bottom and 1 at the top."""

    name: str
    values: Sequence[Any]
    """Without duplicates; numbers in their order."""

    @property
    def is_numeric(self) -> bool:
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)

    @property
    def is_logarithmic(self) -> bool:
        return self.is_numeric and self.values[0] > 0 and self.values[-1] / self.values[0] > LOGARITHMIC

    def position(self, value: Any) -> float:
        """The position of a value."""
        if len(self.values) == 1:
            return 0.5
        if not self.is_numeric:
            return self.values.index(value) / (len(self.values) - 1)
        scale = log if self.is_logarithmic else float
        low, high = scale(self.values[0]), scale(self.values[-1])
        return (scale(value) - low) / (high - low)

    def labels(self) -> list[tuple[float, str]]:
        """Positions and texts: both ends of numbers, and all other values."""
        shown = [self.values[0], self.values[-1]] if self.is_numeric and len(self.values) > 1 else self.values
        return [(self.position(value), _short(value)) for value in shown]


def parallel_coordinates(rows: Sequence[Mapping[str, Any]], result: str) -> Drawing:
    """Draw rows of values, the best first; the axis `result` is the last one. A row may lack a value."""
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != result]
    axes = [_axis(name, rows) for name in [*names, result]]
    shapes: list[Shape] = []
    for rank, row in reversed(list(enumerate(rows))):
        points = [
            (MARGIN + AXIS_DISTANCE * number, HEAD + HEIGHT * (1 - axis.position(row[axis.name])))
            for number, axis in enumerate(axes)
            if axis.name in row
        ]
        is_best = rank == 0
        shapes.append(Line(points, _color(rank / max(len(rows) - 1, 1)), width=3.0 if is_best else 1.2))
    for number, axis in enumerate(axes):
        x = MARGIN + AXIS_DISTANCE * number
        shapes.append(StraightLine(x, HEAD, x, HEAD + HEIGHT, color="#444444"))
        # of a dotted path, the end says most
        name = axis.name if len(axis.name) <= MAX_LETTERS else f"…{axis.name[1 - MAX_LETTERS :]}"
        shapes.append(Text(x, HEAD - 30, name, "middle", bold=True))
        if axis.is_logarithmic:
            shapes.append(Text(x, HEAD - 14, "logarithmic", "middle", color="#666666"))
        for height, text in axis.labels():
            shapes.append(Text(x + 6, HEAD + HEIGHT * (1 - height), text, color="#222222"))
    width = 2 * MARGIN + AXIS_DISTANCE * (len(axes) - 1)
    return Drawing(width, HEAD + HEIGHT + 25, shapes, title=f"values of {len(rows)} trials and their {result}")


def _axis(name: str, rows: Sequence[Mapping[str, Any]]) -> _Axis:
    axis = _Axis(name, list(dict.fromkeys(row[name] for row in rows if name in row)))
    return _Axis(name, sorted(axis.values)) if axis.is_numeric else axis


def _color(share: float) -> str:
    mixed = (round(best + (worst - best) * share) for best, worst in zip(BEST, WORST, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _short(value: Any) -> str:
    """A value that fits between two axes."""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_LETTERS else f"{text[: MAX_LETTERS - 1]}…"

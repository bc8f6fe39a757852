"""Drawings of lines, boxes and texts as images: SVG, and PNG drawn with Pillow. Both draw the same shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Literal

from netspec.exchange.files import write_atomically

SUFFIXES = (".svg", ".png")
"""Image formats, by suffix."""
FONT, CHARACTER = 12, 6.4
"""Height of the text, and average width of a character."""
SHARPNESS = 2
"""Pixels of a PNG per unit."""
SMOOTHING = 2
"""Factor by which a PNG is drawn larger and then reduced, so that lines are smooth."""


@dataclass(frozen=True)
class Polyline:
    """Straight lines between points."""

    points: Sequence[tuple[float, float]]
    color: str = "#000000"
    width: float = 1.0
    dash: tuple[int, ...] = ()


@dataclass(frozen=True)
class StraightLine:
    """A straight line of a grid, an axis or a legend."""

    x1: float
    y1: float
    x2: float
    y2: float
    color: str = "#000000"
    width: float = 1.0
    dash: tuple[int, ...] = ()

    @property
    def points(self) -> Sequence[tuple[float, float]]:
        """Both ends."""
        return (self.x1, self.y1), (self.x2, self.y2)


@dataclass(frozen=True)
class Dot:
    """A filled circle."""

    x: float
    y: float
    color: str
    radius: float = 4.0


@dataclass(frozen=True)
class Text:
    """A line of text; `anchor` is the position of `x` in it, and `y` its vertical middle."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    color: str = "#000000"
    bold: bool = False


@dataclass(frozen=True)
class Box:
    """A filled rectangle with rounded corners."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "#ffffff"
    color: str = "#000000"
    radius: float = 5.0


Shape = Polyline | StraightLine | Dot | Text | Box


@dataclass(frozen=True)
class Drawing:
    """Shapes on a white background."""

    width: int
    height: int
    shapes: Sequence[Shape]
    title: str = ""
    """Description for readers that do not see the drawing."""


def write_drawing(drawing: Drawing, path: Path) -> None:
    """Write a drawing to an SVG or PNG file, by suffix."""
    write = _write_svg if path.suffix.lower() == ".svg" else _write_png
    write_atomically(path, lambda staged: write(drawing, staged))


def svg(drawing: Drawing) -> str:
    """Return a drawing as an SVG document."""
    size = f'width="{drawing.width}" height="{drawing.height}" viewBox="0 0 {drawing.width} {drawing.height}"'
    title = [f"<title>{escape(drawing.title)}</title>"] if drawing.title else []
    role = ' role="img"' if drawing.title else ""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}{role} font-family="sans-serif" font-size="{FONT}">',
        *title,
        '<rect width="100%" height="100%" fill="white"/>',
        *map(_element, drawing.shapes),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _write_svg(drawing: Drawing, path: Path) -> None:
    path.write_text(svg(drawing), encoding="utf-8")


def _element(shape: Shape) -> str:
    """Return a shape as an element of SVG."""
    match shape:
        case Polyline() | StraightLine():
            dashes = f' stroke-dasharray="{" ".join(map(str, shape.dash))}"' if shape.dash else ""
            stroke = f'stroke="{shape.color}" stroke-width="{shape.width:g}"{dashes}'
            if isinstance(shape, StraightLine):
                x1, y1, x2, y2 = (f"{value:.1f}" for value in (shape.x1, shape.y1, shape.x2, shape.y2))
                return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {stroke}/>'
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            return f'<polyline points="{points}" fill="none" {stroke}/>'
        case Dot():
            return f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:g}" fill="{shape.color}"/>'
        case Box():
            place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
            return f'<rect {place} rx="{shape.radius:g}" fill="{shape.fill}" stroke="{shape.color}"/>'
    bold = ' font-weight="bold"' if shape.bold else ""
    attributes = f'x="{shape.x:.1f}" y="{shape.y:.1f}" dominant-baseline="middle" text-anchor="{shape.anchor}"'
    return f'<text {attributes} fill="{shape.color}"{bold}>{escape(shape.text)}</text>'


def _write_png(drawing: Drawing, path: Path) -> None:
    """Draw the shapes at a larger scale, and reduce the image, so that lines are smooth."""
    from PIL import Image, ImageDraw

    from netspec.data.imaging.lettering import drawable, font_for

    unit = SHARPNESS * SMOOTHING
    size = drawing.width * unit, drawing.height * unit
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    font = font_for((shape.text for shape in drawing.shapes if isinstance(shape, Text)), FONT * unit)
    anchors = {"start": "lm", "middle": "mm", "end": "rm"}
    for shape in drawing.shapes:
        match shape:
            case Polyline() | StraightLine():
                for piece in _dashed(shape.points, shape.dash):
                    points = [(x * unit, y * unit) for x, y in piece]
                    draw.line(points, fill=shape.color, width=round(shape.width * unit), joint="curve")
            case Dot():
                x, y, radius = shape.x * unit, shape.y * unit, shape.radius * unit
                draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=shape.color)
            case Box():
                x, y, right, bottom = shape.x, shape.y, shape.x + shape.width, shape.y + shape.height
                corners = (x * unit, y * unit, right * unit, bottom * unit)
                radius = shape.radius * unit
                draw.rounded_rectangle(corners, radius, fill=shape.fill, outline=shape.color, width=unit)
            case Text():
                stroke = 1 if shape.bold else 0
                position = shape.x * unit, shape.y * unit
                text, anchor = drawable(shape.text, font), anchors[shape.anchor]
                draw.text(position, text, fill=shape.color, font=font, anchor=anchor, stroke_width=stroke)
    reduced = image.resize((size[0] // SMOOTHING, size[1] // SMOOTHING), Image.Resampling.BOX)
    reduced.save(path, format="PNG", optimize=True)


def _dashed(points: Sequence[tuple[float, float]], dash: tuple[int, ...]) -> Iterator[Sequence[tuple[float, float]]]:
    """Yield the visible pieces of lines between points."""
    if not dash:
        yield points
        return
    on, off = dash
    travelled = 0.0
    for (x1, y1), (x2, y2) in pairwise(points):
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        begin = 0.0
        while begin < length:
            phase = (travelled + begin) % (on + off)
            end = min(length, begin + (on - phase if phase < on else on + off - phase))
            if phase < on:
                shares = begin / length, end / length
                yield [(x1 + (x2 - x1) * share, y1 + (y2 - y1) * share) for share in shares]
            begin = max(end, begin + 1e-6)
        travelled += length


def moved(shape: Shape, down: float) -> Shape:
    """Return a shape at a lower position."""
    match shape:
        case Polyline():
            return replace(shape, points=[(x, y + down) for x, y in shape.points])
        case StraightLine():
            return replace(shape, y1=shape.y1 + down, y2=shape.y2 + down)
    return replace(shape, y=shape.y + down)

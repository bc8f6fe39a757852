"""Boxes drawn on images, in the colors of their classes."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw
from PIL.ImageFont import FreeTypeFont

from netspec.data.imaging.lettering import drawable, font_for
from netspec.data.imaging.palette import class_colors

TEXT, LARGEST_TEXT = 12, 24
"""Height of labels in pixels, on small and on large images."""
SMALL = 400
"""Side of an image in pixels below which it is enlarged by a whole factor."""
DARK, LIGHT = (20, 20, 20), (255, 255, 255)
LUMINANCE = (0.299, 0.587, 0.114)


def with_boxes(
    image: Image.Image, boxes: Sequence[Sequence[float]], classes: Sequence[int], labels: Sequence[str]
) -> Image.Image:
    """Return an RGB image with boxes (left, top, right, bottom in pixels), each in the color of its class.

    Small images are enlarged by a whole factor, so that labels are readable.
    """
    scale = max(1, SMALL // max(image.size))
    drawing = image.convert("RGB").resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(drawing)
    width = max(2, max(drawing.size) // 300)
    font = font_for(labels, min(LARGEST_TEXT, max(TEXT, max(drawing.size) // 40)))
    for box, number, label in reversed(list(zip(boxes, classes, labels, strict=True))):  # the most probable on top
        color = tuple(class_colors()[(number + 1) % 256].tolist())
        left, top, right, bottom = (edge * scale for edge in box)
        draw.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=color, width=width)
        _draw_label(draw, (left, top), drawable(label, font), color, font)
    return drawing


def _draw_label(
    draw: ImageDraw.ImageDraw,
    corner: tuple[float, float],
    label: str,
    color: tuple[int, ...],
    font: FreeTypeFont,
) -> None:
    """Write a label above a corner, or below it at the upper edge of the image; inside the image if it fits."""
    left, top, right, bottom = draw.textbbox((0, 0), label, font)
    width, height = right - left + 4, bottom - top + 4
    x, y = max(0.0, min(corner[0], draw.im.size[0] - width)), corner[1]
    y = y - height if y >= height else y
    draw.rectangle((x, y, x + width, y + height), fill=color)
    luminance = sum(part * value for part, value in zip(LUMINANCE, color, strict=True))
    draw.text((x + 2 - left, y + 2 - top), label, DARK if luminance > 128 else LIGHT, font)

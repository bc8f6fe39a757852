"""Contact sheets: samples as images side by side, with captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw
from PIL.ImageFont import FreeTypeFont

from netspec.data.base import Array
from netspec.data.imaging.lettering import drawable, font_for
from netspec.data.imaging.palette import class_colors

SIDE, MAX_SIDE = 96, 160
"""Size in pixels to which small images are enlarged by whole factors and large ones are reduced."""
WIDTH = 1200
GAP, LINE, TEXT = 6, 16, 12
PAPER, INK, RAW = (255, 255, 255), (20, 20, 20), (0, 110, 200)


@dataclass(frozen=True)
class Strip:
    """A sample: images (H, W, 3) of uint8, the first one before the transforms, and captions."""

    images: Sequence[Array]
    texts: Sequence[str]
    """One caption for all images, or one for each."""


def span_of(images: Sequence[Array]) -> tuple[float, float]:
    """Return the values shown as black and white: 0 and 255 for uint8, 0 and 1 if all are within, else the extremes."""
    if all(image.dtype == np.uint8 for image in images):
        return 0.0, 255.0
    low = min(float(np.nanmin(image)) for image in images)
    high = max(float(np.nanmax(image)) for image in images)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return (low, high) if high > low else (low, low + 1)


def displayable(image: Array, span: tuple[float, float]) -> Array:
    """Convert an image (C, H, W) of any type to (H, W, 3) of uint8, in gray unless it has 3 channels or more."""
    low, high = span
    channels = image[:3] if len(image) >= 3 else image.mean(axis=0, keepdims=True)
    values = (np.nan_to_num(channels.astype(np.float64)) - low) * (255 / (high - low))
    pixels: Array = np.rint(values).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
    return pixels if pixels.shape[2] == 3 else pixels.repeat(3, axis=2)


def overlaid(pixels: Array, mask: Array) -> Array:
    """Draw the class of each pixel (H, W) in its color over an image (H, W, 3) of uint8, except class 0."""
    colors = class_colors()[mask.astype(np.uint8)]
    mixed: Array = np.where((mask == 0)[:, :, None], pixels, pixels // 2 + colors // 2)
    return mixed


def outlined(pixels: Array, boxes: Array, classes: Array) -> Array:
    """Draw boxes (K, 4), in fractions of an image (H, W, 3), in the colors of their classes (K)."""
    image = Image.fromarray(np.ascontiguousarray(pixels))
    draw = ImageDraw.Draw(image)
    scale = np.array([image.width, image.height] * 2)
    for box, number in zip(np.rint(boxes * scale).astype(int).tolist(), classes.tolist(), strict=True):
        left, top, right, bottom = box
        color = tuple(class_colors()[(number + 1) % 256].tolist())
        draw.rectangle(
            (left, top, max(left, right - 1), max(top, bottom - 1)), outline=color, width=max(1, image.width // 150)
        )
    drawn: Array = np.asarray(image)
    return drawn


def contact_sheet(strips: Sequence[Strip], title: str) -> Image.Image:
    """Draw all strips below the title, as many in a row as fit. The first image of each has a frame."""
    font = font_for([title, *(text for strip in strips for text in strip.texts)], TEXT)
    tiles = [[_tile(image) for image in strip.images] for strip in strips]
    wide = max(tile.width for row in tiles for tile in row)
    tall = max(tile.height for row in tiles for tile in row)
    strip_width = max(len(row) for row in tiles) * (wide + GAP) + 2 * GAP
    across = max(1, min(len(strips), WIDTH // strip_width))
    down = -(-len(strips) // across)
    strip_height = tall + LINE + 2 * GAP
    top = LINE + 2 * GAP
    sheet = Image.new("RGB", (max(across * strip_width + GAP, 320), top + down * strip_height), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, GAP), _fitting(draw, title, sheet.width - 2 * GAP, font), INK, font)
    for number, (strip, row) in enumerate(zip(strips, tiles, strict=True)):
        left, upper = number % across * strip_width + GAP, top + number // across * strip_height
        for column, tile in enumerate(row):
            x = left + column * (wide + GAP)
            sheet.paste(tile, (x, upper))
            if column == 0 and len(row) > 1:
                draw.rectangle((x - 2, upper - 2, x + tile.width + 1, upper + tile.height + 1), outline=RAW, width=2)
        space = strip_width - GAP if len(strip.texts) == 1 else wide
        for column, text in enumerate(strip.texts):
            below = (left + column * (wide + GAP), upper + tall + 2)
            draw.text(below, _fitting(draw, text, space, font), INK, font)
    return sheet


def _tile(pixels: Array) -> Image.Image:
    tile = Image.fromarray(np.ascontiguousarray(pixels))
    longest = max(tile.size)
    if longest > MAX_SIDE:
        share = MAX_SIDE / longest
        return tile.resize((max(1, round(tile.width * share)), max(1, round(tile.height * share))))
    times = max(1, SIDE // longest)
    return tile.resize((tile.width * times, tile.height * times), Image.Resampling.NEAREST)


def _fitting(draw: ImageDraw.ImageDraw, text: str, width: int, font: FreeTypeFont) -> str:
    """Return as much of the text as fits on one line."""
    text = drawable(" ".join(text.split()), font)
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(f"{text}…", font) > width:
        text = text[:-1]
    return f"{text}…"

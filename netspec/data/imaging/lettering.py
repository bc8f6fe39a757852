"""Text on images: a font that has the characters, and a spelling for those that it lacks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from unicodedata import combining, normalize

from PIL import ImageFont
from PIL.ImageFont import FreeTypeFont

SYSTEM_FONTS = "DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf", "arial.ttf"
"""Fonts with the letters of most languages, of which Linux, macOS and Windows have at least one."""
UNASSIGNED = "\U0010ffff"
"""A character that no font has: it is drawn as a box."""
SPELLINGS = {"ß": "ss", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "æ": "ae", "Æ": "AE", "×": "x", "–": "-", "→": ">"}


def font_for(texts: Iterable[str], size: float) -> FreeTypeFont:
    """Return the font that is part of Pillow if it has all characters of `texts`, else a font of the system.

    The font of Pillow has ASCII and few other characters. It is also returned if the system has none of the fonts.
    """
    return _font(size, needs_system=any(_lacks(_font(size), character) for character in set().union(*texts)))


def drawable(text: str, font: FreeTypeFont) -> str:
    """Return a text without characters that the font lacks: letters lose their accents, others become `?`."""
    return "".join(_spelled(character, font) for character in text)


def _spelled(character: str, font: FreeTypeFont) -> str:
    if not _lacks(font, character):
        return character
    plain = "".join(part for part in normalize("NFKD", SPELLINGS.get(character, character)) if not combining(part))
    return "".join("?" if _lacks(font, part) else part for part in plain)


@cache
def _font(size: float, *, needs_system: bool = False) -> FreeTypeFont:
    for name in SYSTEM_FONTS if needs_system else ():
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    font = ImageFont.load_default(size)
    assert isinstance(font, FreeTypeFont)  # with a size, it is
    return font


@cache
def _lacks(font: FreeTypeFont, character: str) -> bool:
    return not character.isspace() and bytes(font.getmask(character)) == bytes(font.getmask(UNASSIGNED))

"""All letters on drawn images have glyphs, instead of boxes."""

from __future__ import annotations

import pytest

from netspec.data.imaging import lettering
from netspec.data.imaging.lettering import drawable, font_for


def test_ascii_is_drawn_with_the_same_font_on_all_machines():
    font = font_for(["cats", "2 dogs"], 13)
    assert drawable("cats", font) == "cats"
    assert font is font_for(["birds"], 13)


def test_letters_that_the_font_lacks_lose_their_accents(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lettering, "SYSTEM_FONTS", ("no such font.ttf",))
    lettering._font.cache_clear()
    font = font_for(["Münzen", "Straße"], 13)
    lettering._font.cache_clear()
    assert [drawable(text, font) for text in ("Münzen", "Straße", "3 × 4 …", "木")] == [
        "Munzen", "Strasse", "3 x 4 …", "?",
    ]  # fmt: skip


def test_a_font_of_the_system_has_the_letters():
    font = font_for(["Münzen"], 13)
    if font is font_for([], 13):
        pytest.skip("none of the fonts is installed on this machine")
    assert drawable("Münzen, Łódź, Θ", font) == "Münzen, Łódź, Θ"

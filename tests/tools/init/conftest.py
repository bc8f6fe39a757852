"""Small folders and tables as users have them."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """40 color images of 24 × 32 and 30 × 32 pixels in two classes, which differ in brightness."""
    noise = np.random.default_rng(0)
    for index in range(40):
        name = ("cat", "dog")[index % 2]
        pixels = noise.integers(0, 128, (24 + 6 * (index % 3 == 0), 32, 3)) + 100 * (name == "dog")
        path = tmp_path / "photos" / name / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """400 rows with gaps, an identifier, a constant, a date, free text, a price and a class."""
    noise = np.random.default_rng(0)
    lines = ["id,age,town,joined,country,remark,price,left"]
    for row in range(400):
        years = int(noise.integers(18, 80))
        age = "" if row % 10 == 0 else str(years)
        town = ("Lund", "Turku", "Bergen")[noise.integers(3)]
        left = "yes" if years > 45 else "no"
        remark = f"called {row} times about the bill of {town}"
        day = f"2026-0{1 + row % 9}-{1 + row % 28:02}"
        lines.append(f"{1000 + row},{age},{town},{day},FI,{remark},{3.5 * years + noise.normal():.2f},{left}")
    path = tmp_path / "customers.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """60 short texts in two class folders."""
    for index in range(60):
        name, word = (("bad", "awful"), ("good", "great"))[index % 2]
        path = tmp_path / "reviews" / name / f"{index}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"A {word} film with number {index}, really {word}.")
    return tmp_path / "reviews"


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """12 tones of each of two classes; one in four has another rate, the last one of each class is a copy."""
    for name, pitch in (("high", 1200), ("low", 300)):
        (tmp_path / "tones" / name).mkdir(parents=True)
        for number in range(12):
            rate = 22_050 if number % 4 == 0 else 8_000
            seconds = 0.3 + 0.01 * min(number, 10)
            time = np.arange(int(seconds * rate)) / rate
            tone = np.sin(2 * np.pi * (pitch + 20 * min(number, 10)) * time)
            with wave.open(str(tmp_path / "tones" / name / f"{number:02}.wav"), "wb") as file:
                file.setparams((1, 2, rate if number < 11 else 8_000, 0, "NONE", ""))
                file.writeframes((8000 * tone).astype("<i2").tobytes())
    (tmp_path / "tones" / "low" / "broken.wav").write_bytes(b"RIFF")
    return tmp_path / "tones"

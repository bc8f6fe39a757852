"""Write images with masks for a segmentation net: circles and squares, or cell nuclei from a microscope.

    python make_images.py FOLDER                            # 400 synthetic images, a quarter of them for test
    python make_images.py FOLDER --nuclei stardist-*.whl    # parts of an image in the Python package stardist

Needs NumPy and Pillow.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE = 64
"""Height and width of an image in pixels."""


def shapes(count: int) -> Iterator[tuple[str, str, Image.Image, Image.Image]]:
    """Yield the split, name, image and mask of color images with circles (class 1) and squares (class 2)."""
    random = np.random.default_rng(0)
    for number in range(count):
        noise = random.integers(0, 80, (8, 8, 3)).astype(np.uint8)
        image = Image.fromarray(noise).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        mask = Image.new("L", (SIDE, SIDE))
        for _ in range(random.integers(1, 5)):
            kind, size = int(random.integers(1, 3)), int(random.integers(10, 28))
            left, top = random.integers(0, SIDE - size, 2).tolist()
            box, color = (left, top, left + size, top + size), tuple(random.integers(90, 256, 3).tolist())
            for drawing, fill in ((image, color), (mask, kind)):
                draw = ImageDraw.Draw(drawing)
                (draw.ellipse if kind == 1 else draw.rectangle)(box, fill=fill)
        grain = np.asarray(image, np.float32) + random.normal(0, 12, (SIDE, SIDE, 3))
        split = "test" if number % 4 == 3 else "train"
        yield split, f"{number:03}", Image.fromarray(grain.clip(0, 255).astype(np.uint8)), mask


def nuclei(wheel: Path) -> Iterator[tuple[str, str, Image.Image, Image.Image]]:
    """Yield 64 parts of the microscope image in stardist's wheel and of its mask, of which the lower quarter is test."""
    archive = zipfile.ZipFile(wheel)
    image, mask = (
        np.asarray(Image.open(BytesIO(archive.read(f"stardist/data/images/{name}2d.tif")))) for name in ("img", "mask")
    )
    gray = (np.clip(image / np.percentile(image, 99.8), 0, 1) * 255).astype(np.uint8)
    for top in range(0, 512, SIDE):
        for left in range(0, 512, SIDE):
            part = slice(top, top + SIDE), slice(left, left + SIDE)
            color = np.repeat(gray[part][..., None], 3, axis=2)
            nucleus = Image.fromarray((mask[part] > 0).astype(np.uint8))
            yield "test" if top >= 384 else "train", f"{top:03}_{left:03}", Image.fromarray(color), nucleus


def main() -> None:
    """Write FOLDER/train and FOLDER/test, each with images, masks and classes.txt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=400, help="number of synthetic images")
    parser.add_argument("--nuclei", type=Path, metavar="WHEEL", help="the wheel of stardist 0.9.2")
    options = parser.parse_args()
    if options.nuclei is not None and not options.nuclei.is_file():
        parser.error(f"no file {options.nuclei}: run `pip download --no-deps stardist==0.9.2`")
    classes = ("background", "circle", "square") if options.nuclei is None else ("background", "nucleus")
    for split in ("train", "test"):
        for kind in ("images", "masks"):
            (options.folder / split / kind).mkdir(parents=True, exist_ok=True)
        (options.folder / split / "classes.txt").write_text("\n".join(classes) + "\n")
    samples = shapes(options.count) if options.nuclei is None else nuclei(options.nuclei)
    for split, name, image, mask in samples:
        image.save(options.folder / split / "images" / f"{name}.png")
        mask.save(options.folder / split / "masks" / f"{name}.png")


if __name__ == "__main__":
    main()

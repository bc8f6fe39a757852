"""Write images with boxes for a first detector: shapes or digits of MNIST on noisy backgrounds, or cell nuclei.

    python make_images.py FOLDER                            # circles, squares and triangles
    python make_images.py FOLDER --digits                   # digits of MNIST
    python make_images.py FOLDER --nuclei stardist-*.whl    # crops of a microscope image in the Python package stardist

The boxes are written in three formats: FOLDER/train.json and test.json (COCO), FOLDER/Annotations (Pascal VOC, with the
parts in ImageSets/Main), and FOLDER/data.yaml with FOLDER/labels (YOLO). Needs netspec, which includes MNIST.
"""

from __future__ import annotations

import argparse
import gzip
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIDE = 96
"""Height and width of an image in pixels."""
SHAPES = ("circle", "square", "triangle")
MAX_OBJECTS = 4


@dataclass
class Thing:
    """An object in an image: its class, and its box in pixels."""

    label: int
    box: tuple[int, int, int, int]  # left, top, right, bottom; right and bottom are the first pixels outside


class Objects:
    """Draws objects of some size on noisy backgrounds."""

    names: tuple[str, ...]

    def size(self, random: np.random.Generator) -> tuple[int, int]:
        """Return the height and width of the next object."""
        raise NotImplementedError

    def draw(self, image: Image.Image, box: tuple[int, int, int, int], random: np.random.Generator) -> int:
        """Draw the object into a box, and return its class."""
        raise NotImplementedError

    def image(self, random: np.random.Generator) -> tuple[Image.Image, list[Thing]]:
        """Return an image with 1 to 4 objects that hardly overlap, and these objects."""
        image, things = background(random), list[Thing]()
        for _ in range(int(random.integers(1, MAX_OBJECTS + 1))):
            height, width = self.size(random)
            for _ in range(20):
                left, top = int(random.integers(0, SIDE - width + 1)), int(random.integers(0, SIDE - height + 1))
                box = (left, top, left + width, top + height)
                if all(_apart(box, thing.box) for thing in things):
                    things.append(Thing(self.draw(image, box, random), box))
                    break
        return image, things


class Shapes(Objects):
    """Draws shapes in random colors."""

    names = SHAPES

    def size(self, random: np.random.Generator) -> tuple[int, int]:
        """Return a height and a width."""
        side = int(random.integers(14, 40))
        return side, side

    def draw(self, image: Image.Image, box: tuple[int, int, int, int], random: np.random.Generator) -> int:
        """Draw a shape into a box, and return its class."""
        label, (left, top, right, bottom) = int(random.integers(len(SHAPES))), box
        color = tuple(int(value) for value in random.integers(0, 256, 3))
        canvas, edges = ImageDraw.Draw(image), (left, top, right - 1, bottom - 1)
        if SHAPES[label] == "circle":
            canvas.ellipse(edges, fill=color)
        elif SHAPES[label] == "square":
            canvas.rectangle(edges, fill=color)
        else:
            canvas.polygon([(left, bottom - 1), (right - 1, bottom - 1), ((left + right - 1) / 2, top)], fill=color)
        return label


class Digits(Objects):
    """Pastes digits of MNIST, enlarged at random."""

    names = tuple(map(str, range(10)))

    def __init__(self, part: str) -> None:
        from netspec.schema.bundled import zoo_root

        folder = zoo_root() / "data" / "mnist"
        prefix = "train" if part == "train" else "t10k"
        self._images = _idx(folder, f"{prefix}-images-idx3-ubyte", 16).reshape(-1, 28, 28)
        self._labels = _idx(folder, f"{prefix}-labels-idx1-ubyte", 8)
        self._index = 0

    def size(self, random: np.random.Generator) -> tuple[int, int]:
        """Choose a digit, and return its height and width."""
        self._index, scale = int(random.integers(len(self._labels))), random.uniform(1, 2)
        rows, columns = (np.flatnonzero(self._images[self._index].any(axis=axis)) for axis in (1, 0))
        self._part = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
        left, top, right, bottom = self._part
        return max(4, round((bottom - top) * scale)), max(4, round((right - left) * scale))

    def draw(self, image: Image.Image, box: tuple[int, int, int, int], random: np.random.Generator) -> int:
        """Paste the digit into a box, and return its class."""
        left, top, right, bottom = box
        digit = Image.fromarray(self._images[self._index]).crop(self._part)
        mask = digit.resize((right - left, bottom - top), Image.Resampling.BILINEAR)
        image.paste(tuple(int(value) for value in random.integers(160, 256, 3)), (left, top), mask)
        return int(self._labels[self._index])


class Nuclei:
    """Crops of the microscope image in stardist's wheel: for the test from its lowest rows, else from the others."""

    names = ("nucleus",)
    min_side = 4
    """Height and width in pixels below which a nucleus, cut off at the edge of a crop, gets no box."""

    def __init__(self, wheel: Path, part: str) -> None:
        archive = zipfile.ZipFile(wheel)
        image, mask = (
            np.asarray(Image.open(BytesIO(archive.read(f"stardist/data/images/{name}2d.tif"))))
            for name in ("img", "mask")
        )
        gray = (np.clip(image / np.percentile(image, 99.8), 0, 1) * 255).astype(np.uint8)
        rows = slice(-SIDE, None) if part == "test" else slice(-SIDE)
        self._gray, self._mask = gray[rows], mask[rows]

    def image(self, random: np.random.Generator) -> tuple[Image.Image, list[Thing]]:
        """Return a crop at a random place, and its nuclei."""
        top, left = (int(random.integers(0, extent - SIDE + 1)) for extent in self._mask.shape)
        part = slice(top, top + SIDE), slice(left, left + SIDE)
        mask = self._mask[part]
        things = []
        for nucleus in np.unique(mask[mask > 0]):
            rows, columns = (np.flatnonzero((mask == nucleus).any(axis=axis)) for axis in (1, 0))
            box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
            if min(box[2] - box[0], box[3] - box[1]) >= self.min_side:
                things.append(Thing(0, box))
        return Image.fromarray(np.repeat(self._gray[part][..., None], 3, axis=2)), things


def _idx(folder: Path, name: str, header: int) -> np.ndarray:
    return np.frombuffer(gzip.decompress((folder / f"{name}.gz").read_bytes()), np.uint8, offset=header)


def background(random: np.random.Generator) -> Image.Image:
    """Return a dark image: a gradient between two colors, with noise."""
    corners = random.uniform(20, 130, (2, 2, 3))
    rows, columns = (np.linspace(0, 1, SIDE)[:, None, None], np.linspace(0, 1, SIDE)[None, :, None])
    upper = corners[0, 0] * (1 - columns) + corners[0, 1] * columns
    lower = corners[1, 0] * (1 - columns) + corners[1, 1] * columns
    values = upper * (1 - rows) + lower * rows + random.normal(0, 8, (SIDE, SIDE, 1))
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def _apart(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two boxes do not overlap."""
    return first[2] <= second[0] or second[2] <= first[0] or first[3] <= second[1] or second[3] <= first[1]


def write_part(folder: Path, part: str, images: list[list[Thing]], names: Sequence[str]) -> None:
    """Write the boxes of a part in three formats."""
    coco = {
        "images": [
            {"id": number, "file_name": f"images/{part}/{number:05d}.png", "width": SIDE, "height": SIDE}
            for number in range(len(images))
        ],
        "categories": [{"id": label + 1, "name": name} for label, name in enumerate(names)],
        "annotations": [
            {
                "image_id": number, "category_id": thing.label + 1, "iscrowd": 0,
                "bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top),
            }
            for number, things in enumerate(images)
            for thing in things
            for left, top, right, bottom in [thing.box]
        ],
    }  # fmt: skip
    for number, annotation in enumerate(coco["annotations"], 1):
        annotation["id"] = number
    (folder / f"{part}.json").write_text(json.dumps(coco))
    for kind in (f"labels/{part}", "Annotations", "ImageSets/Main"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number, things in enumerate(images):
        lines = [
            f"{thing.label} {(left + right) / 2 / SIDE:.6f} {(top + bottom) / 2 / SIDE:.6f} "
            f"{(right - left) / SIDE:.6f} {(bottom - top) / SIDE:.6f}\n"
            for thing in things
            for left, top, right, bottom in [thing.box]
        ]
        (folder / f"labels/{part}/{number:05d}.txt").write_text("".join(lines))
        objects = "".join(
            f"  <object>\n    <name>{names[thing.label]}</name>\n    <difficult>0</difficult>\n    <bndbox>"
            f"<xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox>\n"
            "  </object>\n"
            for thing in things
            for left, top, right, bottom in [thing.box]
        )
        (folder / f"Annotations/{part}_{number:05d}.xml").write_text(
            f"<annotation>\n  <filename>images/{part}/{number:05d}.png</filename>\n"
            f"  <size><width>{SIDE}</width><height>{SIDE}</height><depth>3</depth></size>\n{objects}</annotation>\n"
        )
    stems = [f"{part}_{number:05d}\n" for number in range(len(images))]
    (folder / f"ImageSets/Main/{part}.txt").write_text("".join(stems))


def write_images(
    folder: Path, counts: dict[str, int], *, digits: bool = False, nuclei: Path | None = None, seed: int = 1
) -> None:
    """Write images and boxes: `counts` has the number of images of each part, `nuclei` is stardist's wheel."""
    names: Sequence[str] = ()
    for stream, (part, count) in enumerate(counts.items()):
        random = np.random.default_rng([seed, stream])
        objects = Nuclei(nuclei, part) if nuclei else Digits(part) if digits else Shapes()
        names = objects.names
        (folder / "images" / part).mkdir(parents=True, exist_ok=True)
        images = []
        for number in range(count):
            image, things = objects.image(random)
            image.save(folder / "images" / part / f"{number:05d}.png")
            images.append(things)
        write_part(folder, part, images, names)
    listed = "".join(f"  {label}: {name}\n" for label, name in enumerate(names))
    parts = "".join(f"{'val' if part == 'test' else part}: images/{part}\n" for part in counts)
    (folder / "data.yaml").write_text(f"path: .\n{parts}names:\n{listed}")


def main() -> None:
    """Read the command line, and write the images."""
    parser = argparse.ArgumentParser(description="Write images with boxes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=2000, metavar="N", help="number of training images [2000]")
    parser.add_argument("--test", type=int, default=300, metavar="N", help="number of test images [300]")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--digits", action="store_true", help="paste digits of MNIST instead of drawing shapes")
    kind.add_argument(
        "--nuclei", type=Path, metavar="WHEEL", help="cut crops out of the image in the wheel of stardist 0.9.2"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random choices [1]")
    options = parser.parse_args()
    if options.nuclei is not None and not options.nuclei.is_file():
        parser.error(f"no file {options.nuclei}: run `pip download --no-deps stardist==0.9.2`")
    counts = {"train": options.train, "test": options.test}
    write_images(options.folder, counts, digits=options.digits, nuclei=options.nuclei, seed=options.seed)


if __name__ == "__main__":
    main()

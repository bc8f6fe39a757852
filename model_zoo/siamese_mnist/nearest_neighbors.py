"""Classify test digits by the nearest training image in the embedding space.

    python nearest_neighbors.py [MODEL] [--plot FILE.png]

MODEL is a run of this net, by default `siamese_mnist` with its weights. `--plot` draws the points of 4,000 test images.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import netspec

MNIST = netspec.zoo_model("siamese_mnist").folder.parent / "data" / "mnist"
BLOCK = 500
"""Number of test images whose distances to all training images are computed at a time."""
COLORS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"]
"""The color of each digit."""
SIZE, MARGIN, DRAWN = 420, 10, 4000
"""Width and margin of the drawing in pixels, and the number of its points."""


def read_bytes(name: str, header: int) -> Any:
    """Return the bytes of an MNIST file after its header."""
    return np.frombuffer(gzip.decompress((MNIST / f"{name}.gz").read_bytes()), np.uint8, offset=header)


def points_and_digits(model: netspec.Model, split: str, count: int | None) -> tuple[Any, Any]:
    """Return the points (N, dimensions) and digits (N,) of the first `count` images of a split, `train` or `t10k`."""
    images = read_bytes(f"{split}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)[:count]
    digits = read_bytes(f"{split}-labels-idx1-ubyte", 8)[:count]
    (points,) = model.predict({"image": images / np.float32(256)}).values()  # scaled as in train.yaml
    return points.astype(np.float64), digits


def accuracy(model: netspec.Model, train_images: int | None = None, test_images: int | None = None) -> float:
    """Return the share of test images whose nearest training image shows the same digit."""
    known_points, known_digits = points_and_digits(model, "train", train_images)
    points, digits = points_and_digits(model, "t10k", test_images)
    squares, correct = (known_points**2).sum(axis=1), 0
    for start in range(0, len(points), BLOCK):
        # The squared distance, less the square of the test point, which is the same for all training images.
        distances = squares - 2 * points[start : start + BLOCK] @ known_points.T
        correct += int((known_digits[distances.argmin(axis=1)] == digits[start : start + BLOCK]).sum())
    return correct / len(points)


def plot(model: netspec.Model, path: str) -> None:
    """Draw the first two coordinates of points of test images, and each digit at the middle of its points."""
    points, digits = points_and_digits(model, "t10k", DRAWN)
    low, high = points[:, :2].min(axis=0), points[:, :2].max(axis=0)
    pixels = MARGIN + (points[:, :2] - low) / (high - low) * (SIZE - 2 * MARGIN)
    drawing = Image.new("RGB", (SIZE, SIZE), "white")
    pen = ImageDraw.Draw(drawing)
    for (x, y), digit in zip(pixels, digits, strict=True):
        pen.ellipse((x - 1.5, y - 1.5, x + 1.5, y + 1.5), fill=COLORS[digit])
    for digit in range(10):
        pen.text(tuple(np.median(pixels[digits == digit], axis=0)), str(digit), fill="black", font_size=18)
    drawing.quantize(16).save(path)


def main() -> None:
    """Print the accuracy, and draw the points if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="siamese_mnist", help="the run to use [siamese_mnist of the zoo]")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the points of test images")
    arguments = parser.parse_args()
    model = netspec.load(arguments.model)
    print(f"nearest neighbor accuracy: {accuracy(model):.2%}")
    if arguments.plot is not None:
        plot(model, arguments.plot)


if __name__ == "__main__":
    try:
        main()
    except netspec.NetspecError as error:
        sys.exit(error.render())
    except OSError as error:
        sys.exit(f"error: {error}")

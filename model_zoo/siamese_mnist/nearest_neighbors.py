"""Classify test digits by the nearest training image in the embedding space.

    python nearest_neighbors.py [MODEL]

MODEL is a run of this net, by default `siamese_mnist` with its weights.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import netspec
from netspec.data.readers.idx import read_idx
from netspec.schema.bundled import zoo_root

MNIST = zoo_root() / "data" / "mnist"
BLOCK = 500
"""Number of test images whose distances to all training images are computed at a time."""


def points_and_digits(model: netspec.Model, split: str, count: int | None) -> tuple[Any, Any]:
    """Return the points (N, dimensions) and the digits (N,) of the first `count` images of a split, `train` or `t10k`."""
    images = read_idx(MNIST / f"{split}-images-idx3-ubyte.gz")[0][:count]
    digits = read_idx(MNIST / f"{split}-labels-idx1-ubyte.gz")[0][:count]
    # scaled as in train.yaml
    (points,) = model.predict({"image": images[:, None] / np.float32(256)}).values()
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


def main() -> None:
    """Print the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="siamese_mnist", help="use this run [siamese_mnist, with its weights]")
    print(f"nearest neighbor accuracy: {accuracy(netspec.load(parser.parse_args().model)):.2%}")


if __name__ == "__main__":
    main()

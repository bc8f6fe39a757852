"""The windows of PyTorch's fractional pooling along an axis, for many random samples in float32."""

from __future__ import annotations

from importlib import import_module

import numpy as np

SIZES = [(5, 2, 1), (5, 2, 2), (6, 2, 5), (9, 3, 4), (28, 2, 19), (57, 3, 40), (224, 2, 158)]
"""Elements of the axis, elements of a window, number of windows."""


def samples() -> np.ndarray:
    """(256,) in [0, 1), including both ends and multiples of 1/8."""
    drawn = np.random.default_rng(3).random(256, dtype=np.float32)
    drawn[:8] = np.arange(8, dtype=np.float32) / 8
    drawn[8] = np.float32(1) - np.float32(2.0**-24)
    return drawn


def record() -> dict[str, np.ndarray]:
    """Return the first index of each window, (256, windows), for each of `SIZES`."""
    torch = import_module("torch")
    images = torch.tensor(samples())
    recorded = {}
    for number, (size, window, count) in enumerate(SIZES):
        # With these values, a maximum is at the end of its window.
        x = torch.arange(size, dtype=torch.float32).repeat(1, len(images), 1, 1)
        pool = torch.nn.FractionalMaxPool2d(
            (1, window), (1, count), return_indices=True, _random_samples=images[None, :, None].repeat(1, 1, 2)
        )
        recorded[str(number)] = (pool(x)[1][0, :, 0] - (window - 1)).numpy()
    return recorded

"""Cases of transforms of images that are compared with Keras, with the values of their random draws."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class ImageCase(NamedTuple):
    """A transform of one image."""

    type: str
    fields: dict[str, Any]
    """All arguments of Keras's layer. Ranges have both ends: netspec and Keras read a single number differently."""
    numbers: tuple[float, ...] = ()
    """The random numbers in [0, 1), in the order in which the transform draws them."""
    margin: int = 0
    """Number of pixels at each edge that differ from Keras's, as the transform documents."""
    values: tuple[float, float] = (0.0, 255.0)
    """The range of the image."""

    @property
    def id(self) -> str:
        return f"{self.type} {self.fields} {self.numbers}"


def image(case: ImageCase) -> np.ndarray:
    """The image, (3, 13, 10): integers from 0 to 255, rescaled to the range of the case."""
    rng = np.random.default_rng(7)
    smooth = rng.integers(30, 226, (3, 13, 10)) + np.arange(10) * 3 - 13
    low, high = case.values
    return (smooth.clip(0, 255) / 255 * (high - low) + low).astype(np.float32)


_UNIT: Any = {"values": (0.0, 1.0)}

CASES = (
    ImageCase("Resizing", {"height": 7, "width": 5, "antialias": True}),
    ImageCase("Resizing", {"height": 20, "width": 17, "antialias": True}),
    ImageCase("Resizing", {"height": 6, "width": 23, "antialias": False}),
    ImageCase("Resizing", {"height": 6, "width": 4, "interpolation": "bicubic", "antialias": True}),
    ImageCase("Resizing", {"height": 26, "width": 20, "interpolation": "nearest", "antialias": False}),
    ImageCase("Resizing", {"height": 9, "width": 5, "antialias": True, "crop_to_aspect_ratio": True}),
    ImageCase("Resizing", {"height": 7, "width": 14, "antialias": True, "pad_to_aspect_ratio": True, "fill_value": 9}),
    ImageCase("CenterCrop", {"height": 6, "width": 7}),
    ImageCase("RandomFlip", {"mode": "horizontal"}, (0.2, 0.9)),
    ImageCase("RandomFlip", {"mode": "vertical"}, (0.9, 0.2)),
    ImageCase("RandomCrop", {"height": 6, "width": 7}, (0.6, 0.9)),
    ImageCase("RandomRotation", {"factor": [-0.25, 0.25]}, (0.7,)),
    ImageCase("RandomRotation", {"factor": [0.0, 1.0], "fill_mode": "wrap"}, (0.9,)),
    ImageCase("RandomRotation", {"factor": [-0.5, 0.5], "fill_mode": "nearest", "interpolation": "nearest"}, (0.13,)),
    ImageCase("RandomRotation", {"factor": [-0.5, 0.5], "fill_mode": "constant", "fill_value": 9.0}, (0.6,)),
    ImageCase("RandomTranslation", {"height_factor": [-0.5, 0.5], "width_factor": [0.1, 1.0]}, (0.23, 0.77)),
    ImageCase(
        "RandomTranslation",
        {"height_factor": [-0.5, 0.5], "width_factor": [-0.5, 0.5], "fill_mode": "constant"},
        (0.23, 0.77),
    ),
    ImageCase("RandomZoom", {"height_factor": [-0.5, 0.5], "width_factor": [0.1, 1.0]}, (0.2, 0.8)),
    ImageCase("RandomZoom", {"height_factor": [-0.5, 0.5], "fill_mode": "constant", "fill_value": 9.0}, (0.9, 0.1)),
    ImageCase("RandomShear", {"x_factor": [0.1, 0.5], "y_factor": [0.0, 0.7]}, (0.9, 0.6, 0.3)),
    ImageCase(
        "RandomPerspective", {"factor": [1.0, 1.0], "scale": 0.4}, (0, 0, 0.1, 0.9, 0.3, 0.7, 0.6, 0.2, 0.9, 0.4)
    ),
    ImageCase("RandomErasing", {"factor": [1.0, 1.0], "fill_value": 77.0}, (0.0, 0.0, 0.4, 0.8, 0.3, 0.6)),
    ImageCase("RandomErasing", {"factor": [0.2, 0.4], "fill_value": 77.0}, (0.5, 0.31, 0.4, 0.8, 0.3, 0.6)),
    ImageCase("RandomBrightness", {"factor": [-0.5, 0.5]}, (0.8,)),
    ImageCase("RandomBrightness", {"factor": [-0.5, 0.5], "value_range": [0, 1]}, (0.3,), **_UNIT),
    ImageCase("RandomContrast", {"factor": [0.9, 0.9]}, (0.1,)),
    ImageCase("RandomContrast", {"factor": [0.2, 0.9]}, (0.9,)),
    ImageCase("RandomSaturation", {"factor": [0.0, 1.0], "value_range": [0, 1]}, (0.3,), **_UNIT),
    ImageCase("RandomSaturation", {"factor": [0.0, 1.0], "value_range": [0, 1]}, (0.8,), **_UNIT),
    ImageCase("RandomHue", {"factor": [0.0, 1.0]}, (0.2, 0.4)),
    ImageCase("RandomHue", {"factor": [0.0, 1.0]}, (0.7, 0.9)),
    ImageCase("RandomColorDegeneration", {"factor": [0.0, 1.0]}, (0.6,)),
    ImageCase("RandomGrayscale", {"factor": 0.5}, (0.4,)),
    ImageCase("RandomInvert", {"factor": [0.0, 0.6]}, (0.5, 0.2)),
    ImageCase("RandomPosterization", {"factor": [3, 3]}, (0.1,)),
    ImageCase("Solarization", {"addition_factor": [0.0, 0.3], "threshold_factor": [0.0, 1.0]}, (0.5, 0.4)),
    ImageCase("AutoContrast", {}),
    ImageCase("AutoContrast", {"value_range": [-1, 1]}, values=(-1.0, 1.0)),
    ImageCase("Equalization", {}),
    ImageCase("Equalization", {"bins": 16}),
    ImageCase("RandomGaussianBlur", {"factor": [1.0, 1.0], "kernel_size": 5, "sigma": [0.2, 1.0]}, (0, 0, 0.7, 0.4), 2),
    ImageCase("RandomSharpness", {"factor": [0.0, 1.0]}, (0.1,), 1),
    ImageCase("RandomSharpness", {"factor": [0.0, 1.0]}, (0.9,), 1),
)

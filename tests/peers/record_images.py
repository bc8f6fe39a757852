"""Record Keras's (on PyTorch) transforms of an image, for given random numbers.

    KERAS_BACKEND=torch .venv-peers/bin/python -m tests.peers.record_images [--output DIRECTORY]

Calls each layer's `transform_images` with the numbers of the case, converted by the formulas of its
`get_random_transformation`. Nothing of netspec is used.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib import import_module
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from tests.peers.image_cases import CASES, ImageCase, image
from tests.peers.recordings import RECORDED, save_answers

BATCH = (1, 3, 13, 10)
HEIGHT, WIDTH = BATCH[2:]


def tensor(values: Any) -> Any:
    return import_module("torch").tensor(np.asarray(values, np.float32))


def span(fields: dict[str, Any], name: str, number: float) -> float:
    low, high = map(float, fields[name])
    return low + (high - low) * number


def happens(f: dict[str, Any], u: tuple[float, ...]) -> Any:
    return import_module("torch").tensor([u[1] < span(f, "factor", u[0])])


def rotation(f: dict[str, Any], u: tuple[float, ...], layer: Any) -> dict[str, Any]:
    zero, ones_ = tensor([0.0]), tensor([1.0])
    matrix = layer._compute_affine_matrix(
        center_x=0.5, center_y=0.5, angle=tensor([360 * span(f, "factor", u[0])]), translate_x=zero, translate_y=zero,
        scale=ones_, shear_x=zero, shear_y=zero, height=tensor(HEIGHT), width=tensor(WIDTH),
    )  # fmt: skip
    return {"rotation_matrix": matrix}


def translation(f: dict[str, Any], u: tuple[float, ...], layer: Any) -> dict[str, Any]:
    moves = [[WIDTH * span(f, "width_factor", u[1]), HEIGHT * span(f, "height_factor", u[0])]]
    return {"translations": tensor(moves), "input_shape": BATCH}


def zoom(f: dict[str, Any], u: tuple[float, ...], layer: Any) -> dict[str, Any]:
    height = 1 + span(f, "height_factor", u[0])
    width = 1 + span(f, "width_factor", u[1]) if "width_factor" in f else height
    return {"height_zoom": tensor([[height]]), "width_zoom": tensor([[width]]), "input_shape": BATCH}


def shear(f: dict[str, Any], u: tuple[float, ...], layer: Any) -> dict[str, Any]:
    sign = -1 if u[0] > 0.5 else 1
    return {"shear_factor": tensor([[sign * span(f, "x_factor", u[1]), sign * span(f, "y_factor", u[2])]])}


def perspective(f: dict[str, Any], u: tuple[float, ...], layer: Any) -> dict[str, Any]:
    start = np.array([[[0.0, 0.0], [WIDTH - 1, 0.0], [0.0, HEIGHT - 1], [WIDTH - 1, HEIGHT - 1]]])
    moved = (np.array(u[2:]).reshape(1, 4, 2) - 0.5) * f["scale"]
    ends = {"start_points": tensor(start), "end_points": tensor(start + start * moved)}
    return {"apply_perspective": happens(f, u), **ends, "input_shape": BATCH}


def erasing(f: dict[str, Any], u: tuple[float, ...], layer: Any) -> dict[str, Any]:
    low, high = layer.scale
    width, height = (sqrt(low + (high - low) * number) * size for number, size in ((u[2], WIDTH), (u[3], HEIGHT)))
    x, y = u[4] * (WIDTH - width), u[5] * (HEIGHT - height)
    masks = layer._generate_batch_mask(BATCH, tuple(tensor([edge]) for edge in (x, x + width, y, y + height)))
    return {"batch_masks": masks, "apply_erasing": happens(f, u), "fill_value": tensor(np.full(BATCH, f["fill_value"]))}


def saturation(f: dict[str, Any], u: tuple[float, ...], layer: Any) -> dict[str, Any]:
    factor = span(f, "factor", u[0])
    return {"factor": tensor([factor / (1 - factor + 1e-7)])}


DRAWN: dict[str, Callable[[dict[str, Any], tuple[float, ...], Any], Any]] = {
    "RandomFlip": lambda f, u, layer: {"flips": tensor([[[[u[f["mode"] == "vertical"] <= 0.5]]]]) > 0},
    "RandomCrop": lambda f, u, layer: (int(u[0] * (HEIGHT - f["height"] + 1)), int(u[1] * (WIDTH - f["width"] + 1))),
    "RandomRotation": rotation,
    "RandomTranslation": translation,
    "RandomZoom": zoom,
    "RandomShear": shear,
    "RandomPerspective": perspective,
    "RandomErasing": erasing,
    "RandomBrightness": lambda f, u, layer: {
        "rgb_delta": tensor([[[[span(f, "factor", u[0]) * (layer.value_range[1] - layer.value_range[0])]]]])
    },
    "RandomContrast": lambda f, u, layer: {
        "contrast_factor": tensor([[[[1 - f["factor"][0] + u[0] * sum(f["factor"])]]]])
    },
    "RandomSaturation": saturation,
    "RandomHue": lambda f, u, layer: {"factor": tensor([(-0.5 if u[0] > 0.5 else 0.5) * span(f, "factor", u[1])])},
    "RandomColorDegeneration": lambda f, u, layer: {"factor": tensor([[[[span(f, "factor", u[0])]]]])},
    "RandomGrayscale": lambda f, u, layer: tensor([[[[u[0] < f["factor"]]]]]) > 0,
    "RandomInvert": lambda f, u, layer: {"apply_inversion": happens(f, u)},
    "RandomPosterization": lambda f, u, layer: {
        "shift_factor": import_module("torch").tensor([8 - f["factor"][0]]).byte()
    },
    "Solarization": lambda f, u, layer: {
        "additions": tensor([[[[255 * span(f, "addition_factor", u[0])]]]]),
        "thresholds": tensor([[[[255 * span(f, "threshold_factor", u[1])]]]]),
    },
    "RandomGaussianBlur": lambda f, u, layer: {
        "should_apply_blur": happens(f, u),
        "blur_factor": tensor([span(f, "sigma", u[2]) + 1e-6, span(f, "sigma", u[3]) + 1e-6]),
    },
    "RandomSharpness": lambda f, u, layer: {"factor": tensor([span(f, "factor", u[0])])},
}


def answer(case: ImageCase) -> dict[str, np.ndarray]:
    """Return Keras's result for the image and, if it reads beyond the image, the fraction of each pixel inside."""
    layers, fields = import_module("keras").layers, dict(case.fields)
    # AutoContrast always takes extremes over axes 1 and 2.
    channels_last = case.type == "AutoContrast"
    layer = getattr(layers, case.type)(data_format="channels_last" if channels_last else "channels_first", **fields)

    def changed(values: np.ndarray) -> np.ndarray:
        drawn = DRAWN[case.type](fields, case.numbers, layer) if case.type in DRAWN else None
        x = tensor(values[None])
        x = x.movedim(1, -1) if channels_last else x
        y = layer.transform_images(x, drawn, training=True)
        return np.asarray((y.movedim(-1, 1) if channels_last else y)[0], np.float32)

    answers = {"image": changed(image(case))}
    if case.type == "RandomPerspective" or fields.get("fill_mode") == "constant":
        layer.fill_value = 0.0
        answers["within"] = changed(np.ones(BATCH[1:]))
    return answers


def main() -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORDED)
    output = parser.parse_args().output
    recorded: dict[str, np.ndarray] = {}
    for number, case in enumerate(CASES):
        recorded[f"{number}/of"] = np.array(case.id)
        recorded |= {f"{number}/{name}": array for name, array in answer(case).items()}
    path = save_answers(output, "images", recorded)
    print(f"{path}: {len(CASES)} answers of Keras {import_module('keras').__version__}")


if __name__ == "__main__":
    main()

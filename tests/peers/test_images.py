"""Transforms of images against Keras's layers with the same random numbers, recorded by `record_images.py`."""

from __future__ import annotations

import numpy as np
import pytest

import netspec.data  # noqa: F401  # the transforms are found through it
from netspec.data.base import FieldType, SampleKeys
from netspec.data.imaging.base import Draw, ImageTransform
from netspec.schema.specs.data import TRANSFORMS
from tests.peers.image_cases import CASES, ImageCase, image
from tests.peers.recordings import load_answers

MOVED = ("Resizing", "RandomRotation", "RandomTranslation", "RandomZoom", "RandomShear", "RandomPerspective")
"""Transforms of positions, for which Pillow truncates results to integers or rounds weights to some bits."""


def ours(case: ImageCase, dtype: str) -> np.ndarray:
    fields = dict(case.fields)
    if dtype == "float32" and "value_range" in TRANSFORMS[case.type].model_fields:
        fields.setdefault("value_range", [0, 255])
    transform = TRANSFORMS.parse({"type": case.type, **fields})
    assert isinstance(transform, ImageTransform)
    pixels = image(case).astype(dtype)
    transform.infer(FieldType(pixels.shape, dtype))
    draw = Draw(case.numbers, SampleKeys(0, 0, np.zeros(1, np.int64), 0), 0)
    return transform.change(pixels.transpose(1, 2, 0), draw).transpose(2, 0, 1)


ALL = [
    pytest.param(number, case, dtype, id=f"{case.id} {dtype}")
    for number, case in enumerate(CASES)
    for dtype in ("float32", "uint8")
    if dtype == "float32" or case.values == (0.0, 255.0)
]


@pytest.mark.parametrize(("number", "case", "dtype"), ALL)
def test_agrees_with_keras(number: int, case: ImageCase, dtype: str) -> None:
    stored = load_answers("images")
    repeated = "record the peers' answers: make test-peers, then tests/peers/record_images.py"
    assert str(stored[f"{number}/of"]) == case.id, repeated
    expected = stored[f"{number}/image"]
    within = stored[f"{number}/within"] if f"{number}/within" in stored else np.ones(expected.shape)
    actual = ours(case, dtype)
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    # Beyond the edges, Keras mixes a constant with the outermost pixels; netspec has sharp edges.
    sharp = (within > 1 - 1e-4) | (within < 1e-4)
    assert sharp.mean() > 0.5
    inner = np.zeros(expected.shape, bool)
    rows, columns = (slice(case.margin, size - case.margin or None) for size in expected.shape[1:])
    inner[:, rows, columns] = True
    away = np.abs(actual.astype(np.float64) - expected)[sharp & inner] / (case.values[1] - case.values[0])
    # Keras computes some sums and products in float32 (2⁻²⁴); bytes are rounded, and by Pillow once more.
    bound = 2e-5 if dtype == "float32" else (1.01 if case.type in MOVED else 0.51) / 255
    assert away.max() <= bound

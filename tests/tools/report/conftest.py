"""A run on small images of classes whose names are HTML, with everything that a report shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import netspec
from netspec.tools.measuring import timing
from netspec.tools.measuring.roofline import Roofline

EVIL = "<img src=x onerror=alert(1)>"
TRAINING = """
netspec: 1
name: colors
description: "Colors </script><script>alert(2)</script>"
net:
  netspec: 1
  name: colors
  inputs: {image: {shape: [3, 4, 4]}, label: {shape: [], dtype: int32}}
  layers:
    - {name: block, repeat: 2, layers: [{name: conv, type: Conv2D, filters: 2, kernel_size: 1}, {type: LeakyReLU}]}
    - {type: Flatten}
    - {name: logits, type: Dense, units: 3}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
  metrics: [{type: SparseCategoricalAccuracy, name: accuracy, from: [logits, label]}]
data:
  train: {source: image_folder, path: images, size: [4, 4], batch_size: 6, shuffle: true}
  test: {source: image_folder, path: images, size: [4, 4], batch_size: 5}
solver: {type: SGD, learning_rate: 0.00002}
callbacks: [{type: Histograms}]
train: {max_steps: 6, test_every: 2, log_every: 1, seed: 1, log_gradient_norm: true}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Train a run; timing a step is fast here."""
    folder = tmp_path_factory.mktemp("work")
    for number, (name, color) in enumerate(
        {"blue": (20, 30, 230), EVIL: (230, 30, 20), "green": (20, 220, 30)}.items()
    ):
        (folder / "images" / name).mkdir(parents=True)
        for index in range(4):
            pixels = tuple(max(0, value - 20 * index) for value in color)
            Image.new("RGB", (4, 4), pixels).save(folder / "images" / name / f"{number}{index}.png")
    (folder / "train.yaml").write_text(TRAINING)
    netspec.train(folder / "train.yaml", run_dir=folder / "runs" / "first", device="reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "BUDGET", 0.0)
        patch.setattr(timing, "measure_roofline", lambda device, dtype: Roofline(1e9, 1e9))
        yield folder / "runs" / "first"

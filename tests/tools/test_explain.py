"""Explanations find the parts of an image, and the columns of a table, that decide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.cli import main

IMAGES = """\
netspec: 1
net:
  netspec: 1
  inputs: {image: {shape: [1, 24, 24]}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Flatten, from: image}
    - {type: Dense, name: logits, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: image_folder
    path: photos
    channels: 1
    batch_size: 8
    transforms: [{type: Rescaling, scale: 0.004}]
solver: {type: Adam, learning_rate: 0.01}
train: {max_epochs: 30}
"""


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on images whose class is that of a bright square on the left or on the right."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    for index in range(16):
        pixels = random.integers(0, 80, (24, 24), np.uint8)
        name, columns = (("left", slice(2, 10)), ("right", slice(14, 22)))[index % 2]
        pixels[8:16, columns] = 250
        Path("photos", name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(f"photos/{name}/{index}.png")
    Path("train.yaml").write_text(IMAGES)
    return netspec.train("train.yaml", run_dir=tmp_path / "run").run_dir


def test_the_heat_map_marks_the_square(images: Path) -> None:
    explanation = netspec.explain_image(images, "photos/left/0.png", output="why.png")
    assert explanation.label == "left"
    assert explanation.probability > 0.9
    heat = explanation.heat
    assert heat.shape == (24, 24)
    top, left = np.unravel_index(int(heat.argmax()), heat.shape)
    assert 8 <= top < 16
    assert 2 <= left < 10
    other = netspec.explain_image(images, "photos/left/0.png", label="right")
    np.testing.assert_allclose(other.heat, -heat, atol=1e-6)  # the probabilities of two classes sum to 1
    with Image.open("why.png") as image:
        red, _, blue = np.asarray(image)[..., 0], np.asarray(image)[..., 1], np.asarray(image)[..., 2]
        assert (red.astype(int) - blue).max() > 50


def test_mistakes_are_explained(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "run", "--input", "photos/left/0.png"]) == 2
    assert "--output is missing" in capsys.readouterr().err
    assert main(["explain", "run", "--input", "photos/left/0.png", "--output", "x.png", "--class", "rihgt"]) == 2
    assert "did you mean `right`?" in capsys.readouterr().err
    assert main(["explain", "run"]) == 2
    assert "the training reads no table" in capsys.readouterr().err


TABLE = """\
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [4]}, label: {shape: [], dtype: int32}}
  layers: [{type: Dense, name: logits, units: 2}]
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: csv
    path: rows.csv
    header: true
    label: answer
    columns: {size: {type: numeric, normalization: standard}, color: categorical, noise: {type: numeric}}
    batch_size: 32
solver: {type: Adam, learning_rate: 0.05}
train: {max_epochs: 20}
"""


def test_the_column_that_decides_is_the_most_important(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(2)
    rows = [(random.normal(), random.choice(["red", "blue"]), random.random()) for _ in range(300)]
    lines = ["size,color,noise,answer"]
    lines += [
        f"{size},{color},{noise},{'yes' if size + 0.5 * (color == 'red') > 0.2 else 'no'}"
        for size, color, noise in rows
    ]
    Path("rows.csv").write_text("\n".join(lines) + "\n")
    Path("train.yaml").write_text(TABLE)
    run = netspec.train("train.yaml", run_dir=tmp_path / "run")
    importances = netspec.explain_columns(run.run_dir)
    assert [each.column for each in importances][:2] == ["size", "color"]
    by_column = {each.column: each.increase for each in importances}
    assert by_column["size"] > 10 * abs(by_column["noise"])
    assert importances == netspec.explain_columns(run.run_dir)

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


TEXTS = """\
netspec: 1
net:
  netspec: 1
  inputs: {text: {shape: [6], dtype: int32}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Embedding, from: text, input_dim: 20, output_dim: 4, mask_zero: true}
    - {type: Permute, dims: [2, 1]}
    - {type: GlobalAveragePooling1D}
    - {type: Dense, name: logits, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: documents
    path: reviews
    tokenizer: {type: words, padding: true, unknown: true}
    transforms: [{type: Padding, length: 6}]
    batch_size: 8
solver: {type: Adam, learning_rate: 0.05}
train: {max_epochs: 30}
"""


def test_the_word_that_decides_contributes_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for index in range(16):
        name, word = (("bad", "awful"), ("good", "lovely"))[index % 2]
        Path("reviews", name).mkdir(parents=True, exist_ok=True)
        Path("reviews", name, f"{index}.txt").write_text(f"the film {'and plot ' * (index % 3)}is {word}")
    Path("train.yaml").write_text(TEXTS)
    run = netspec.train("train.yaml", run_dir=tmp_path / "run").run_dir
    explanation = netspec.explain_text(run, "the film\nis lovely")
    assert explanation.label == "good"
    assert [word for word, _ in explanation.words] == ["the", "film", "is", "lovely"]
    assert max(explanation.words, key=lambda each: each.contribution).word == "lovely"
    other = netspec.explain_text(run, "the film is lovely", label="bad")
    np.testing.assert_allclose(
        [each.contribution for each in other.words], [-each.contribution for each in explanation.words], atol=1e-6
    )
    Path("new.txt").write_text("the film is lovely")
    capsys.readouterr()
    assert main(["explain", "run", "--input", "new.txt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("good: ")
    assert lines[2].split()[0] == "lovely"
    assert main(["explain", "run", "--input", "new.txt", "--output", "why.png"]) == 2
    assert "--output draws images" in capsys.readouterr().err
    with pytest.raises(netspec.InputError, match="too short"):
        netspec.explain_text(run, "lovely")
    with pytest.raises(netspec.InputError, match="there is no class 'goood'"):
        netspec.explain_text(run, "the film is lovely", label="goood")


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

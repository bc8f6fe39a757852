"""Explanations find the parts of an image, text, sound or row, and the columns of a table, that decide."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import netspec
from netspec.cli import main
from netspec.cli.explain import _aligned
from netspec.layers.vision.boxes import BoxSelection
from netspec.tools.inference.explained_value import explained_box
from netspec.training.inference.decoding import Decoder

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
def images(current_folder: Path) -> Path:
    """A run on images whose class is that of a bright square on the left or on the right."""
    random = np.random.default_rng(1)
    for index in range(16):
        pixels = random.integers(0, 80, (24, 24), np.uint8)
        name, columns = (("left", slice(2, 10)), ("right", slice(14, 22)))[index % 2]
        pixels[8:16, columns] = 250
        Path("photos", name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(f"photos/{name}/{index}.png")
    Path("train.yaml").write_text(IMAGES)
    return netspec.train("train.yaml", run_dir=current_folder / "run").run_dir


def test_the_heat_map_marks_the_square(images: Path) -> None:
    explanation = netspec.explain_image(images, "photos/left/0.png", output="why.png")
    assert explanation.label == "left"
    assert explanation.value > 0.9
    heat = explanation.heat_map
    assert heat.shape == (24, 24)
    top, left = np.unravel_index(int(heat.argmax()), heat.shape)
    assert 8 <= top < 16
    assert 2 <= left < 10
    other = netspec.explain_image(images, "photos/left/0.png", label="right")
    np.testing.assert_allclose(other.heat_map, -heat, atol=1e-6)  # the probabilities of two classes sum to 1
    with Image.open("why.png") as image:
        red, _, blue = np.asarray(image)[..., 0], np.asarray(image)[..., 1], np.asarray(image)[..., 2]
        assert (red.astype(int) - blue).max() > 50


def test_mistakes_are_explained(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "run", "--input", "photos/left/0.png"]) == 2
    assert "--output is missing" in capsys.readouterr().err
    assert main(["explain", "run", "--input", "photos/left/0.png", "--output", "x.png", "--class", "rihgt"]) == 2
    assert "did you mean `right`?" in capsys.readouterr().err
    assert main(["explain", "run", "--input", "photos", "--output", "x.png"]) == 2
    assert "photos is not a file" in capsys.readouterr().err
    assert main(["explain", "run"]) == 2
    assert "only a net trained on a table has columns to rank" in capsys.readouterr().err


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


def test_the_word_that_decides_contributes_most(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index in range(16):
        name, word = (("bad", "awful"), ("good", "lovely"))[index % 2]
        Path("reviews", name).mkdir(parents=True, exist_ok=True)
        Path("reviews", name, f"{index}.txt").write_text(f"the film {'and plot ' * (index % 3)}is {word}")
    Path("train.yaml").write_text(TEXTS)
    run = netspec.train("train.yaml", run_dir=current_folder / "run").run_dir
    explanation = netspec.explain_text(run, "the film\nis lovely")
    assert explanation.label == "good"
    assert [word for word, _ in explanation.parts] == ["the", "film", "is", "lovely"]
    assert max(explanation.parts, key=lambda each: each.contribution).part == "lovely"
    other = netspec.explain_text(run, "the film is lovely", label="bad")
    np.testing.assert_allclose(
        [each.contribution for each in other.parts], [-each.contribution for each in explanation.parts], atol=1e-6
    )
    Path("new.txt").write_text("the film is lovely")
    capsys.readouterr()
    assert main(["explain", "run", "--input", "new.txt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("class good: ")
    assert lines[2].split()[0] == "lovely"
    assert main(["explain", "run", "--input", "new.txt", "--output", "why.png"]) == 2
    assert "--output draws images, and the parts of new.txt (text) are printed" in capsys.readouterr().err
    with pytest.raises(netspec.InputError, match="too short"):
        netspec.explain_text(run, "lovely")
    with pytest.raises(netspec.InputError, match="there is no class 'goood'"):
        netspec.explain_text(run, "the film is lovely", label="goood")


def test_words_of_a_table_of_texts(
    text_table_run: Path, current_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("new.csv").write_text('review\nnice great\n"poor, awful"\n')
    Path("new.txt").write_text("nice great\nreview")
    explanation = netspec.explain_row(text_table_run, "new.csv", row=2)
    assert (explanation.label, explanation.row) == ("bad", 2)
    assert [each.part for each in explanation.parts] == ["poor,", "awful"]
    assert (
        netspec.explain_row(text_table_run, {"text": "nice great"}).parts
        == netspec.explain_text(text_table_run, "nice great").parts
    )
    assert main(["explain", str(text_table_run), "--input", "new.txt"]) == 0
    assert main(["explain", str(text_table_run), "--input", "new.csv", "--row", "1"]) == 0
    texts, row = capsys.readouterr().out.split("row 1, ")
    assert sorted(line.split()[0] for line in texts.splitlines()[2:]) == ["great", "nice", "review"]
    assert sorted(line.split()[0] for line in row.splitlines()[2:]) == ["great", "nice"]
    assert main(["explain", str(text_table_run), "--input", "new.txt", "--row", "1"]) == 2
    assert "--row chooses rows of a table, which new.txt is not" in capsys.readouterr().err


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


def test_the_column_that_decides_is_the_most_important(current_folder: Path) -> None:
    random = np.random.default_rng(2)
    rows = [(random.normal(), random.choice(["red", "blue"]), random.random()) for _ in range(300)]
    lines = ["size,color,noise,answer"]
    lines += [
        f"{size},{color},{noise},{'yes' if size + 0.5 * (color == 'red') > 0.2 else 'no'}"
        for size, color, noise in rows
    ]
    Path("rows.csv").write_text("\n".join(lines) + "\n")
    Path("train.yaml").write_text(TABLE)
    run = netspec.train("train.yaml", run_dir=current_folder / "run")
    importances = netspec.explain_columns(run.run_dir)
    assert [each.column for each in importances][:2] == ["size", "color"]
    by_column = {each.column: each.increase for each in importances}
    assert by_column["size"] > 10 * abs(by_column["noise"])
    assert importances == netspec.explain_columns(run.run_dir)


@pytest.mark.parametrize(("values", "cells"), [
    ([116947.4, -39053.21, 0.3], ["+116947", "-39053", "+0"]),
    ([-1.5, 0.25], ["-1.50000", "+0.25000"]),
    ([2.5e-4, 1e-5], ["+0.000250000", "+0.000010000"]),
    ([0.0], ["+0"]),
    ([float("nan"), 1.0], ["+nan", "+1"]),
])  # fmt: skip
def test_numbers_of_a_column_have_the_same_decimals(values: list[float], cells: list[str]) -> None:
    assert _aligned(values, "+") == cells


def test_rows_that_changed_since_the_training_are_a_warning(
    current_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"{size},red,0.5,{'yes' if size > 10 else 'no'}" for size in range(20)]
    Path("rows.csv").write_text("\n".join(["size,color,noise,answer", *lines]) + "\n")
    text = TABLE.replace("    batch_size", "    split: {test: 0.5}\n    batch_size").replace("shape: [4]", "shape: [3]")
    Path("train.yaml").write_text(text.replace("max_epochs: 20", "max_epochs: 1"))
    netspec.train("train.yaml", run_dir="run", device="reference")
    commands = (["explain", "run"], ["explain", "run", "--input", "rows.csv"])
    for words in commands:
        assert main(words) == 0
    printed = capsys.readouterr()
    assert "changed" not in printed.err
    assert "on 10 samples of the test data; near 0 or below: the predictions hardly depend on the column" in printed.out
    Path("rows.csv").write_text("\n".join(["size,color,noise,answer", *lines, *lines]) + "\n")
    for words in commands:
        assert main(words) == 0
        assert "warning: the data has changed since the run (10 test samples then, 20 now)" in capsys.readouterr().err


def test_the_columns_of_a_row_contribute_to_its_class(current_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(2)
    sizes = random.normal(size=200)
    lines = [f"{size},{random.choice(['red', 'blue'])},0.5,{'yes' if size > 0 else 'no'}" for size in sizes]
    Path("rows.csv").write_text("\n".join(["size,color,noise,answer", *lines]) + "\n")
    Path("train.yaml").write_text(
        TABLE.replace("color: categorical", "color: {type: categorical, unknown: index}").replace("[4]", "[5]")
    )
    netspec.train("train.yaml", run_dir="run", device="reference")
    capsys.readouterr()
    Path("new.csv").write_text("size,color,noise\n-2,red,0.5\n2,red,0.5\n")
    assert main(["explain", "run", "--input", "new.csv", "--row", "1"]) == 0
    summary, _, first = capsys.readouterr().out.splitlines()[:3]
    assert summary == "row 1, class no: 100.0%"
    assert first.split()[0] == "size"
    Path("new.csv").write_text("size,color,noise\n-2,pink,0.5\n2,red,0.5\n")
    assert main(["explain", "run", "--input", "new.csv", "--row", "1"]) == 0
    note = "note: 1 row of `color` has values that the training data does not have, such as 'pink'\n"
    assert note in capsys.readouterr().err
    frame = pa.table({"size": [0.0, 2.0], "color": ["red", "red"], "noise": [0.5, 0.5]})
    assert netspec.explain_row("run", frame, split="train").row == 2
    explanation = netspec.explain_row("run", {"size": 2, "color": "red", "noise": 0.5})
    assert explanation.label == "yes"
    contributions = dict(explanation.parts)
    assert contributions["size"] > 0.3
    assert contributions["noise"] == pytest.approx(0, abs=1e-6)  # a constant column
    assert main(["explain", "run", "--input", "new.csv", "--row", "3"]) == 2
    assert "there is no prediction for row 3" in capsys.readouterr().err
    assert main(["explain", "run", "--row", "3"]) == 2
    assert "need --input" in capsys.readouterr().err


FORECAST = """\
netspec: 1
net:
  netspec: 1
  inputs: {past: {shape: [4]}, features: {shape: [4, 1]}, label: {shape: []}}
  layers:
    - {type: Flatten, from: features}
    - {type: Concatenate, from: [past, flatten]}
    - {type: Dense, name: forecast, units: 1}
    - {type: Flatten}
    - {type: Reshape, name: value, target_shape: []}
  losses: [{type: MeanSquaredError, from: [value, label]}]
data:
  train:
    source: csv
    path: rows.csv
    header: true
    columns: {value: {type: numeric, normalization: standard}, noise: numeric}
    label: value
    windows: {length: 4}
    batch_size: 32
solver: {type: Adam, learning_rate: 0.05}
train: {max_epochs: 40}
"""


def test_a_forecast_depends_on_the_row_that_it_repeats(current_folder: Path) -> None:
    random = np.random.default_rng(4)
    values = np.tile([1.0, 5.0, 2.0], 40) + random.normal(0, 0.1, 120)
    Path("rows.csv").write_text(
        "value,noise\n" + "".join(f"{value},{noise}\n" for value, noise in zip(values, random.random(120), strict=True))
    )
    Path("train.yaml").write_text(FORECAST)
    netspec.train("train.yaml", run_dir="run", device="reference")
    explanation = netspec.explain_row("run", "rows.csv", row=121 - 2)
    assert explanation.label is None
    assert explanation.quantity == "prediction"
    assert explanation.value == pytest.approx(2, abs=0.5)  # in the unit of the data
    contributions = dict(explanation.parts)
    assert list(contributions) == ["noise", "value", "lag 4", "lag 3", "lag 2", "lag 1"]
    assert abs(contributions["noise"]) < 0.1
    assert contributions["value"] == pytest.approx(2 - 8 / 3, abs=0.4)  # the mean of the other forecasts is 8/3
    with pytest.raises(netspec.InputError, match="predicts numbers, not classes"):
        netspec.explain_row("run", "rows.csv", label="yes")


SOUNDS = """\
netspec: 1
net:
  netspec: 1
  inputs: {audio: {shape: [1, 400]}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Activation, activation: relu, from: audio}
    - {type: AveragePooling1D, pool_size: 100}
    - {type: Flatten}
    - {type: Dense, name: logits, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
data:
  train:
    source: audio
    path: sounds
    sampling_rate: 1000
    transforms: [{type: Padding, length: 400}]
    batch_size: 8
solver: {type: Adam, learning_rate: 0.1}
train: {max_epochs: 40}
"""


@pytest.mark.parametrize("width", [1, 2])
def test_the_loud_part_of_a_sound_contributes_most(
    current_folder: Path, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    random = np.random.default_rng(5)
    for index in range(16):
        name, loud = (("early", slice(20, 40)), ("late", slice(320, 340)))[index % 2]
        signal = random.normal(0, 0.01, 400)
        signal[loud] += random.choice([-0.9, 0.9], 20)
        Path("sounds", name).mkdir(parents=True, exist_ok=True)
        with wave.open(f"sounds/{name}/{index}.wav", "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(width)
            file.setframerate(1000)
            if width == 1:
                file.writeframes((signal.clip(-0.99, 0.99) * 127 + 128).astype(np.uint8).tobytes())
            else:
                file.writeframes((signal.clip(-0.99, 0.99) * 32767).astype("<i2").tobytes())
    Path("train.yaml").write_text(SOUNDS)
    netspec.train("train.yaml", run_dir="run", device="reference")
    explanation = netspec.explain_audio("run", "sounds/late/1.wav")
    assert explanation.label == "late"
    assert len(explanation.parts) == 20
    largest = max(explanation.parts, key=lambda each: each.contribution)
    assert largest.part == "0.32–0.34 s"
    assert largest.contribution > 0.1
    capsys.readouterr()
    assert main(["explain", "run", "--input", "sounds/late/1.wav"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("0.32–0.34 s")
    assert main(["explain", "run", "--input", "sounds/late/1.wav", "--row", "1"]) == 2
    assert "which sounds/late/1.wav is not" in capsys.readouterr().err


def test_the_value_of_a_box_is_its_score_and_overlap() -> None:
    selection = BoxSelection()
    cells = np.array([[[0, 0, 0.5, 0.5, 0.1, 0.8], [0.5, 0.5, 1, 1, 0.6, 0.0]]])
    explained = explained_box(Decoder(lambda *_: {}, ("cat", "dog")), selection, cells[0], None)
    assert (explained.label, explained.quantity, explained.value) == ("dog", "score", 0.8)
    moved = cells.copy()
    moved[0, 0, 2] = 0.25  # half of the box
    np.testing.assert_allclose(explained.of_output(np.concatenate([cells, moved])), [0.8, 0.4])
    assert explained_box(Decoder(lambda *_: {}, ("cat", "dog")), selection, cells[0], "cat").value == 0.6
    with pytest.raises(netspec.InputError, match="finds no box"):
        explained_box(Decoder(lambda *_: {}), selection, cells[0] * 0.1, None)

"""`netspec export RUN --output DIR`: the model, a card, and a script that prints the answers of `predict`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from netspec.tools.exporting.model_script import _identifier
from netspec.tools.inference.predict import predict
from tests.cli.conftest import Netspec
from tests.cli.exported_scripts import script_lines, train_spec

PHOTOS = """
netspec: 1
description: Red or blue images.
net:
  netspec: 1
  name: colors
  inputs: {image: {shape: [3, 6, 8]}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Flatten, from: image}
    - {type: Dense, name: scores, units: UNITS}
  losses: [{type: LOSS, from: [scores, label], from_logits: true}]
  metrics: [{type: METRIC, name: accuracy, from: [scores, label]}]
solver: {type: Adam, learning_rate: 0.01}
train: {max_epochs: 4}
data:
  train: &data
    source: image_folder
    path: photos
    batch_size: 6
    SIZE
    transforms: [STEPS{type: Rescaling, scale: 0.0039}]
  test: *data
"""
CLASSES = {"UNITS": "2", "LOSS": "SparseCategoricalCrossentropy", "METRIC": "SparseCategoricalAccuracy"}
BINARY = {"UNITS": "1", "LOSS": "BinaryCrossentropy", "METRIC": "BinaryAccuracy"}
SIZE = {"SIZE": "size: [6, 8]", "STEPS": ""}
RESIZING = {"SIZE": "channels: 3", "STEPS": "{type: Resizing, height: 6, width: 8, interpolation: bicubic}, "}


@pytest.fixture
def photos(work: Path) -> list[str]:
    """Twelve noisy images of different sizes, red or blue; three of them in other modes."""
    random = np.random.default_rng(0)
    for index in range(12):
        folder = Path("photos") / ("blue", "red")[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 120, (9 + index, 14 + 2 * index, 3), np.uint8)
        pixels[:, :, 0 if index % 2 else 2] += 100
        image = Image.fromarray(pixels)
        if index == 4:
            image = image.convert("P")
        if index == 5:
            image = image.convert("L")
        if index == 6:
            image = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 256 + 7)
        image.save(folder / f"{index:02}.{'jpg' if index == 3 else 'png'}")
    return sorted(map(str, Path("photos").glob("*/*")))


def deployed(netspec: Netspec, settings: dict[str, str]) -> None:
    """Train, and export to the folder `deployed`."""
    train_spec(netspec, PHOTOS, **settings)
    netspec.ok("export", "run", "--output", "deployed")


def test_the_resizing_of_the_source_is_listed(netspec: Netspec, photos: list[str]) -> None:
    deployed(netspec, CLASSES | SIZE)
    for _ in range(2):  # first from the run's weights, then from the weights file that the export wrote
        result = netspec("export", "train.yaml", "--weights", "run/best.h5", "--output", "copy.h5")
        note = result.err.partition("inputs were transformed by:")[2].splitlines()[1:]
        assert [line.partition(",")[0].strip() for line in note] == ["`image`: Resizing", "`image`: Rescaling"]
        assert "height 6, width 8" in note[0]
        Path("copy.h5").replace("run/best.h5")


def assert_predicted(lines: list[str], paths: list[str]) -> None:
    """Compare the answers of the script with those of `predict`; resizing may change percentages by 0.2."""
    answers = predict("run", paths).answers
    found = [re.fullmatch(r"(.*): (\w+) ([\d.]+)%", line) for line in lines]
    assert [(match[1], match[2]) for match in found if match] == list(
        zip(answers["file"], answers["class"], strict=True)
    )
    percentages = [float(match[3]) for match in found if match]
    np.testing.assert_allclose(percentages, 100 * np.array(answers["probability"]), atol=0.2)


@pytest.mark.parametrize("name", ["max", "print", "classes", "score", "lambda", "1st"])
def test_variables_of_outputs_shadow_nothing_in_the_script(name):
    assert _identifier(name) == f"output_{name}"


def test_the_script_prints_the_answers_of_predict(netspec, photos):
    deployed(netspec, {**CLASSES, **SIZE})
    lines = script_lines(*photos)
    assert_predicted(lines, photos)
    assert len({line.split(": ")[1].split()[0] for line in lines}) == 2


def test_the_card_describes_the_model(netspec, photos):
    deployed(netspec, {**CLASSES, **SIZE})
    card = Path("deployed/README.md").read_text()
    for part in (
        "# colors", "Red or blue images.", "chooses one of 2 classes",
        "| `image` | [N, 3, height, width] | uint8 | pixels",
        "| `probabilities` | [N, 2] | float32 | probability of each class |", "blue (0), red (1)",
        "In the model: Resizing, Rescaling, softmax.", "python run.py IMAGE...", "| test | 12 | 0.", "after ",
        "convert it to Pillow's mode `RGB` (of 16 bits, keep the upper 8). `run.py` does this.",
    ):  # fmt: skip
        assert part in card, part


def printed_by_card() -> str:
    """Run the program in the card, and return what it prints."""
    (program,) = re.findall(r"```python\n(.*?)```", Path("deployed/README.md").read_text(), re.DOTALL)
    assert len(program.splitlines()) < 16
    result = subprocess.run(
        [sys.executable, "-c", program], cwd="deployed", capture_output=True, text=True, check=False, env={}
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_program_in_the_card_runs(netspec, photos):
    deployed(netspec, {**CLASSES, **SIZE})
    shutil.copy(photos[0], "deployed/photo.png")
    answers = predict("run", photos[:1]).answers
    name, probability = printed_by_card().split()
    assert name == answers["class"][0]
    assert abs(float(probability) - answers["probability"][0]) < 0.002


def test_the_program_in_the_card_of_a_table_has_names_and_zeros(netspec, work):
    Path("rows.csv").write_text("length,color,kind\n1,red,long\n2,,short\n3,blue,long\n4,red,short\n")
    text = PHOTOS[: PHOTOS.index("data:")].replace("image: {shape: [3, 6, 8]}", "features: {shape: [3]}")
    for old, new in {**CLASSES, "from: image": "from: features"}.items():
        text = text.replace(old, new)
    columns = "{length: numeric, color: {type: categorical, missing: most_frequent}}"
    Path("train.yaml").write_text(f"""{text}data:
  train: {{source: csv, path: rows.csv, header: true, label: kind, batch_size: 4, columns: {columns}}}
""")
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    netspec.ok("export", "run", "--output", "deployed")
    Path("zero.csv").write_text("length,color\n0,blue\n")
    answers = predict("run", "zero.csv").answers
    name, probability = printed_by_card().split()
    assert name == answers["class"][0]
    assert abs(float(probability) - answers["probability"][0]) < 1e-5
    assert "| `color` | [N] | string | name: blue, red |" in Path("deployed/README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [CLASSES, BINARY])
@pytest.mark.parametrize("steps", [SIZE, RESIZING])
def test_the_script_resizes_as_the_data_does(netspec, photos, kind, steps):
    deployed(netspec, {**kind, **steps})
    assert_predicted(script_lines(*photos), photos)


def test_a_net_without_images_reads_arrays(netspec, trained):
    netspec.ok("export", "run", "--output", "deployed")
    features = np.load("blobs.npz")["features"][:5]
    np.savez("in.npz", features=features)
    answers = predict("run", {"features": features}).answers
    expected = [
        f"{row}: {name} {probability:.1%}"
        for row, name, probability in zip(answers["row"], answers["class"], answers["probability"], strict=True)
    ]
    assert script_lines("in.npz") == expected


def test_files_of_others_are_not_replaced(netspec, trained):
    Path("README.md").write_text("My project")
    result = netspec("export", "run", "--output", ".")
    assert result.status == 2
    assert "README.md was not written by netspec export" in result.err
    assert not Path("model.onnx").exists()
    assert Path("README.md").read_text() == "My project"
    for _ in range(2):  # its own files are
        netspec.ok("export", "run", "--output", "deployed")


def test_without_preprocessing_the_card_lists_what_is_missing(netspec, photos):
    deployed(netspec, {**CLASSES, **SIZE})
    netspec.ok("export", "run", "--output", "deployed", "--without-preprocessing")
    card = Path("deployed/README.md").read_text()
    assert "- `image`: Rescaling, scale 0.0039, offset 0.0" in card
    assert "| `scores` | [N, 2] | float32 | score of each class |" in card

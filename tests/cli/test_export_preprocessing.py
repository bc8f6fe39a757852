"""`netspec export --with-preprocessing`: models that take pixels and return the probabilities of `netspec predict`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from PIL import Image

from netspec.schema.load import load_train
from netspec.tools.inference.predict import predict
from netspec.tools.model_inputs import load
from netspec.training.inference.predict_files import input_arrays
from tests.cli.conftest import Netspec, Outcome
from tests.cli.exported_scripts import run_script, train_spec

IMAGES = """
netspec: 1
net:
  netspec: 1
  inputs: {image: {shape: [3, 4, 6]}, label: {shape: [], dtype: int32}}
  layers:
    - {type: Conv2D, name: conv, from: image, filters: 2, kernel_size: 3}
    - {type: Flatten, name: flat}
    - {type: Dense, name: scores, units: UNITS}
  losses:
    - LOSS
solver: {type: SGD, learning_rate: 0.01}
train: {max_epochs: 1}
data:
  train:
    {source: image_folder, path: photos, channels: 3, batch_size: 4, transforms: [STEPS]}
  test:
    {source: image_folder, path: photos, channels: 3, batch_size: 4, transforms: [STEPS]}
"""
SOFTMAX = "{type: SparseCategoricalCrossentropy, from: [scores, label], from_logits: true}"
SIGMOID = "{type: BinaryCrossentropy, from: [scores, label], from_logits: true}"
STEPS = (
    "{type: CenterCrop, height: 4, width: 6}, {type: ReverseChannels}, {type: Rescaling, scale: 0.0039}, "
    "{type: Normalization, adapt: true}"
)


@pytest.fixture
def pixels(current_folder: Path) -> NDArray[np.uint8]:
    """Six images in two folders, in the order in which the source reads them: (6, 3, 5, 9) of uint8."""
    pixels = np.random.default_rng(1).integers(0, 256, (6, 5, 9, 3), np.uint8)
    for index, image in enumerate(pixels):
        Path(f"photos/{index // 3}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(f"photos/{index // 3}/{index}.png")
    return pixels.transpose(0, 3, 1, 2)


def train(netspec: Netspec, units: int = 2, loss: str = SOFTMAX, steps: str = STEPS) -> None:
    train_spec(netspec, IMAGES, UNITS=str(units), LOSS=loss, STEPS=steps)


def export(netspec: Netspec, *words: str) -> Outcome:
    return netspec("export", "run", "--output", "net.onnx", "--with-preprocessing", *words)


def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])


def test_the_model_takes_pixels_and_gives_the_probabilities_of_predict(netspec, pixels):
    train(netspec)
    result = export(netspec)
    assert result.status == 0, result.err
    assert "image [N, 3, 5, 9] → probabilities [N, 2]" in result.out
    assert "in the model: CenterCrop, ReverseChannels, Rescaling, Normalization, softmax" in result.out
    assert "on 6 samples of the data, onnxruntime gives the same results: largest difference" in result.out
    assert "transformed first" not in result.err
    assert "does not contain" not in result.err
    (probabilities,) = session().run(["probabilities"], {"image": pixels})
    answers = predict("run", "photos").answers
    metadata = session().get_modelmeta().custom_metadata_map
    names = json.loads(metadata["netspec_classes"])["probabilities"]
    assert [names[index] for index in probabilities.argmax(1)] == answers["class"]
    # after the net, the model computes in float32, `predict` in float64
    np.testing.assert_allclose(probabilities.max(1), answers["probability"], rtol=1e-4)
    assert json.loads(metadata["netspec_transforms"]) == []
    inside = json.loads(metadata["netspec_included_transforms"])
    assert [step["type"] for step in inside] == ["CenterCrop", "ReverseChannels", "Rescaling", "Normalization"]


def test_a_binary_model_gives_the_probability_of_the_second_class(netspec, pixels):
    train(netspec, 1, SIGMOID)
    assert export(netspec).status == 0
    (probabilities,) = session().run(["probabilities"], {"image": pixels})
    answers = predict("run", "photos").answers
    second = probabilities[:, 0] > 0.5
    assert [str(int(is_second)) for is_second in second] == answers["class"]
    expected = np.where(second, probabilities[:, 0], 1 - probabilities[:, 0])
    np.testing.assert_allclose(expected, answers["probability"], rtol=1e-4)


def test_transforms_without_an_exact_form_are_listed_and_come_first(netspec, pixels):
    train(netspec, steps=f"{{type: AutoContrast}}, {STEPS}")
    result = export(netspec)
    assert result.status == 0, result.err
    assert "`image`: AutoContrast, which ONNX cannot compute exactly" in result.err
    report = export(netspec, "--json").json
    assert report["left_out"] == ["`image`: AutoContrast, which ONNX cannot compute exactly"]
    assert report["inputs"] == {"image": ["N", 3, 5, 9]}
    metadata = session().get_modelmeta().custom_metadata_map
    assert [step["type"] for step in json.loads(metadata["netspec_transforms"])] == ["AutoContrast"]


def test_gray_images_of_one_size_keep_their_size(netspec, pixels):
    train(netspec, steps=f"{{type: Grayscale, num_output_channels: 3}}, {STEPS}")
    report = export(netspec, "--json").json
    assert report["left_out"] == []
    assert report["inputs"] == {"image": ["N", *pixels.shape[1:]]}
    (probabilities,) = session().run(["probabilities"], {"image": pixels})
    np.testing.assert_allclose(probabilities.max(1), predict("run", "photos").answers["probability"], rtol=1e-4)


def test_a_normalized_target_is_predicted_in_the_units_of_the_data(netspec, work):
    rows = [f"{index}.5,1.5,{100 + 7 * index}.0" for index in range(8)]
    Path("prices.csv").write_text("\n".join(["x,y,price", *rows]))
    Path("train.yaml").write_text("""
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [2]}, label: {shape: []}}
  layers: [{type: Dense, name: price, units: 1}]
  losses: [{type: MeanSquaredError, from: [price, label]}]
data:
  train: {source: csv, path: prices.csv, header: true, label: price, batch_size: 8,
    columns:
    {x: {type: numeric, normalization: standard}, y: numeric, price: {type: numeric, normalization: standard}}}
solver: {type: SGD, learning_rate: 0.01}
train: {max_steps: 2}
""")
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    result = export(netspec)
    assert result.status == 0, result.err
    assert "in the model: 2 columns, predictions converted back to the unit of the target" in result.out
    assert "the model does not contain:\n  errors for missing values in `x`, `y`\n" in result.err
    (prediction,) = session().run(["prediction"], {"x": np.arange(8) + 0.5, "y": np.full(8, 1.5)})
    np.testing.assert_allclose(prediction[:, 0], predict("run", "prices.csv").answers["prediction"], rtol=1e-5)


TABLE = """
netspec: 1
net:
  netspec: 1
  inputs: {features: {shape: [10]}, town: {shape: [], dtype: int32}, label: {shape: [], dtype: int32}}
  layers:
    - {name: towns, type: Embedding, from: town, input_dim: 4, output_dim: 3}
    - {name: joined, type: Concatenate, from: [features, towns]}
    - {name: scores, type: Dense, units: 2}
  losses: [{type: SparseCategoricalCrossentropy, from: [scores, label], from_logits: true}]
solver: {type: SGD, learning_rate: 0.01}
train: {max_steps: 2}
data:
  train:
    source: csv
    path: rows.csv
    header: true
    delimiter: ";"
    thousands: ","
    label: "left"
    batch_size: 8
    columns:
      age: {type: numeric, missing: median, missing_indicator: true, normalization: standard}
      size: {type: numeric, unit: "%", missing: 7.5}
      rate: {type: numeric, missing: mean, normalization: min_max}
      color:
        {type: categorical, unknown: index, missing: unknown, vocabulary: [blue, green, "7"], replace: {teal: green}}
      shape: {type: categorical, missing: most_frequent}
      town: {type: categorical, output_mode: int, unknown: index, missing: unknown}
      left: {type: categorical, vocabulary: ["yes", "no"]}
"""


def table() -> None:
    """Write 40 rows with gaps, blanks around cells, and texts for missing values; and the training on them."""
    random = np.random.default_rng(2)
    columns = {
        "age": ["18", " 30.25", "1e2", "", "?", "NA"], "size": ["1,000 %", "2%", "null"],
        "rate": ["1700000000.5", "1.7e9", ""],
        "color": ["blue", "green", "7", "teal", "red", "", "?"], "shape": ["round", "flat ", "", "n/a"],
        "town": ["Lund", "Turku", "Bergen", "?"], "left": ["yes", "no"],
    }  # fmt: skip
    rows = [";".join(random.choice(values) for values in columns.values()) for _ in range(40)]
    Path("rows.csv").write_text("\n".join([";".join(columns), *rows]) + "\n")
    Path("train.yaml").write_text(TABLE)


def test_the_columns_of_a_table_are_inputs(netspec, work):
    table()
    netspec.ok("train", "train.yaml", "--run-dir", "run")
    result = netspec.ok("export", "run", "--output", "deployed")
    assert "in the model: 6 columns, softmax" in result.out
    assert "on 40 samples of the data, onnxruntime gives the same results" in result.out
    assert "the model does not contain:\n  errors for unknown categories in `shape`\n" in result.err
    answers = predict("run", "rows.csv").answers
    expected = [
        f"{row}: {name} {probability:.1%}"
        for row, name, probability in zip(answers["row"], answers["class"], answers["probability"], strict=True)
    ]
    script = run_script("rows.csv")
    assert script.out.splitlines() == expected, script.err
    card = Path("deployed/README.md").read_text()
    assert "| `age` | [N] | float64 | number; NaN if it is missing |" in card
    assert "| `color` | [N] | string | name: blue, green, 7, teal |" in card
    assert "python run.py TABLE.csv" in card
    assert re.search(r'"age": np.full\(\(1,\), \d+\.\d+, "float64"\)', card)
    netspec.ok("export", "run", "--output", "deployed", "--batch-size", "5")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("export", "run", "--output", "a.keras", "--with-preprocessing"), "only ONNX models can contain"),
        (("export", "run", "--output", "a.onnx", "--with-preprocessing", "--form", "training"), "the training form"),
        (("export", "run", "--output", "a.onnx", "--with-preprocessing", "--inputs", "x.npz"), "--inputs are inputs"),
        (
            ("export", "net.yaml", "--weights", "run/weights.h5", "--output", "a.onnx", "--with-preprocessing"),
            "a net without its training has no preprocessing",
        ),
    ],
)
def test_other_exports_cannot_contain_preprocessing(netspec, trained, words, message):
    result = netspec(*words)
    assert result.status == 2
    assert message in result.err
    assert not Path(words[-1]).with_suffix(".onnx").exists()


@pytest.mark.parametrize(("units", "loss"), [(2, SOFTMAX), (1, SIGMOID)])
@pytest.mark.parametrize("options", [("--without-preprocessing",), ()])
def test_class_names_survive_an_export_and_an_import(netspec, pixels, units, loss, options):
    Path("photos/0").rename("photos/cat")
    Path("photos/1").rename("photos/dog")
    train(netspec, units, loss)
    netspec.ok("export", "run", "--output", "net.onnx", *options)
    netspec.ok("import", "net.onnx", "--output", "imported")
    steps = [{"type": "CenterCrop"}, {"type": "ReverseChannels"}, {"type": "Rescaling"}, {"type": "Normalization"}]
    model = load("imported")
    assert [{"type": step["type"]} for step in model.preprocessing.transforms or ()] == steps
    expected = predict("run", "photos").answers
    inputs = input_arrays(load("run"), load_train("run/spec.yaml"), Path("photos"))["image"]
    answers = predict("imported", {"image": inputs}).answers
    assert answers["class"] == expected["class"]
    assert set(answers["class"]) <= {"cat", "dog"}
    np.testing.assert_allclose(answers["probability"], expected["probability"], rtol=1e-4)
    netspec.ok("export", "imported", "--output", "again.onnx")
    assert predict("again.onnx", {"image": inputs}).answers["class"] == expected["class"]

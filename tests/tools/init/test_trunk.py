"""`netspec.init` with a trunk: a trained model without its head becomes a net for other images."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image

import netspec
from netspec.data.sources.image_folder import ImageFolder
from netspec.data.sources.mnist import Mnist
from netspec.errors import InputError
from netspec.schema.specs.paths import FilePath
from netspec.tools.init import init

SCENES = """\
netspec: 1
name: scenes
inputs: {image: {shape: [3, 16, 16]}, label: {shape: [], dtype: int32}}
layers:
  - {name: conv, type: Conv2D, filters: 6, kernel_size: 3, padding: same}
  - {name: norm, type: BatchNormalization}
  - {name: pool, type: MaxPooling2D}
  - {name: flat, type: Flatten}
  - {name: logits, type: Dense, units: 2}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""
TRAINING = """\
netspec: 1
net: scenes.yaml
data:
  train:
    source: image_folder
    path: scenes
    size: [16, 16]
    batch_size: 8
    transforms: [{type: RandomFlip, mode: horizontal}, {type: Normalization, mean: [100, 110, 120], variance: 4000}]
solver: {type: SGD, learning_rate: 0.01}
train: {max_steps: 2}
"""


def images(folder: Path, classes: tuple[str, ...], count: int, size: tuple[int, int] = (18, 20)) -> None:
    random = np.random.default_rng(len(classes))
    for index in range(count):
        path = folder / classes[index % len(classes)] / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 200, (*size, 3), np.uint8)
        pixels[:, :, index % len(classes)] += 50
        Image.fromarray(pixels).save(path)


@pytest.fixture
def model(current_folder: Path) -> Path:
    """A trained run in `run`, its ONNX model, and 30 images of three other classes in `photos`."""
    images(Path("scenes"), ("sea", "wood"), 16)
    images(Path("photos"), ("a", "b", "c"), 30)
    Path("scenes.yaml").write_text(SCENES)
    Path("training.yaml").write_text(TRAINING)
    netspec.train("training.yaml", run_dir="run", device="reference")
    netspec.export("run", "model.onnx")
    return Path("model.onnx")


def frozen(run: netspec.Run, *trunk: str | Path) -> bool:
    """Whether a run kept the weights of the trunk, and trained the head."""
    old, new = netspec.load(*trunk).parameters, netspec.load(run.run_dir).parameters
    same = all((new[f"trunk/{name}"] == array).all() for name, array in old.items())
    return same and bool((new["logits/bias"] != 0).any())


def test_three_commands(model: Path) -> None:
    netspec.import_model(model, "trunk", drop_head=1)
    result = init("photos", trunk="trunk")
    assert "trunk `trunk`: 4 layers, for images of 16 × 16" in result.findings
    assert not any("prepared" in warning for warning in result.warnings)
    text = result.train.read_text()
    assert "{type: Normalization, mean: [100.0, 110.0, 120.0], variance: 4000.0}" in text  # as in the trunk
    assert "size: [16, 16]" in text
    assert "early_stopping: " in text
    assert netspec.check(result.train).kind == "training"
    run = netspec.train(result.train, run_dir="tuned", device="reference", train={"max_epochs": 2})
    assert frozen(run, "trunk")
    assert netspec.load("tuned").predict({"image": np.zeros((1, 3, 16, 16), np.float32)})["logits"].shape == (1, 3)


@pytest.mark.parametrize("source", ["run", "model.onnx"])
def test_a_run_or_a_model_file_loses_its_head(model: Path, source: str) -> None:
    result = init("photos", trunk=source)
    assert "trunk: {net: trunk.yaml}" in result.net.read_text()
    assert "logits" not in Path("photos/trunk.yaml").read_text()
    run = netspec.train(result.train, run_dir="tuned", device="reference", train={"max_epochs": 1})
    assert frozen(run, Path("photos/trunk.yaml"), Path("photos/trunk.h5"))


def test_files_of_a_trunk_are_no_class_of_the_data(model: Path) -> None:
    init("photos", trunk="run")
    assert sorted(path.name for path in Path("photos").iterdir() if path.is_dir()) == ["a", "b", "c"]
    again = init("photos", trunk="lenet_mnist", force=True)  # replaces the first trunk
    assert "trunk `lenet_mnist`: 6 layers, for images of 28 × 28" in again.findings
    run = netspec.train(again.train, run_dir="tuned", device="reference", train={"max_epochs": 1})
    assert frozen(run, Path("photos/trunk.yaml"), Path("photos/trunk.h5"))
    assert ImageFolder(path=FilePath("photos"), batch_size=1).open().classes == {"label": ("a", "b", "c")}


def test_files_of_a_trunk_are_overwritten_on_request_only(model: Path) -> None:
    Path("photos/trunk.yaml").write_text("mine")
    with pytest.raises(InputError, match=r"photos/trunk\.yaml exists already"):
        init("photos", trunk="run")
    assert Path("photos/trunk.yaml").read_text() == "mine"
    assert not Path("photos/net.yaml").exists()


def test_an_imported_trunk_leaves_files_of_its_name_alone(model: Path) -> None:
    netspec.import_model(model, "trunk", drop_head=1)
    Path("photos/trunk.yaml").write_text("mine")
    init("photos", trunk="trunk")
    assert Path("photos/trunk.yaml").read_text() == "mine"


@pytest.mark.parametrize("gray", [True, False])
def test_a_trunk_for_images_of_other_colors(model: Path, gray: bool) -> None:
    trunk, warning = "lenet_mnist", "the trunk takes gray images, but yours have color, which is dropped"
    if gray:
        trunk = "run"
        warning = "the trunk takes color images, but yours are gray: each is copied to all 3 channels"
        for file in Path("photos").rglob("*.png"):
            Image.open(file).convert("L").save(file)
    result = init("photos", trunk=trunk)
    assert warning in result.warnings
    assert f"   # {warning}\n" in result.train.read_text()


@pytest.mark.parametrize(
    ("trunk", "output"), [("unet", "`logits` [3, 64, 64]"), ("shapes_detector", "`detections` [144, 7]")]
)
def test_a_trunk_of_a_net_that_does_not_predict_for_whole_images(
    trunk: str,
    output: str,
    current_folder: Path,
) -> None:
    images(Path("photos"), ("a", "b", "c"), 30)
    warnings = init("photos", trunk=trunk).warnings
    assert any(f"the net of the trunk predicts {output}, not one vector per image" in text for text in warnings)
    assert not any("different task" in warning for warning in init("photos", trunk="lenet_mnist", force=True).warnings)


def test_an_unknown_preprocessing_is_guessed_with_a_note(model: Path) -> None:
    Path("plain.yaml").write_text(SCENES.replace("[3, 16, 16]", "[16, 16, 3]").replace(
        "layers:", "layers:\n  - {name: first, type: Permute, dims: [3, 1, 2]}"
    ))  # fmt: skip
    netspec.load("plain.yaml").save_weights("plain.h5")
    netspec.import_model("plain.yaml", "trunk", weights="plain.h5", until=["pool"])
    result = init("photos", trunk="trunk")
    assert any("does not say how its images were prepared" in warning for warning in result.warnings)
    text = result.train.read_text()
    assert "- {type: Rescaling, scale: 0.00392156862745098}" in text
    assert "mean: [123.675, 116.28, 103.53]" in text.replace("\n      # ", " ")
    net = result.net.read_text()
    assert "{type: Permute, dims: [2, 3, 1]}" in net  # channels last
    assert "GlobalAveragePooling2D" in net  # the output of the trunk is not a vector per image
    assert frozen(netspec.train(result.train, run_dir="tuned", device="reference", train={"max_epochs": 1}), "trunk")


def test_trunks_that_do_not_fit(model: Path) -> None:
    def complaint(data: str, trunk: str) -> str:
        with pytest.raises(InputError) as caught:
            init(data, trunk=trunk)
        return str(caught.value)

    assert "no such file or folder: trank" in complaint("photos", "trank")
    Path("table.csv").write_text("x,y\n1,2\n3,4\n")
    assert "`trunk` needs images" in complaint("table.csv", "run")
    netspec.import_model("run", "two", until=["conv", "pool"])
    assert "two has 2 outputs" in complaint("photos", "two")
    Path("flat.yaml").write_text("netspec: 1\ninputs: {x: {shape: [5]}}\nlayers: [{type: Dense, units: 3}]\n")
    netspec.load("flat.yaml").save_weights("flat.h5")
    netspec.import_model("flat.yaml", "flat", weights="flat.h5")
    assert "flat does not take images" in complaint("photos", "flat")


def test_few_images_train_for_some_steps(model: Path) -> None:
    text = init("photos").train.read_text()
    assert "early_stopping: {patience: 150}" in text  # an epoch has one step
    assert "monitor: loss" in text


SMALL_LENET = """\
netspec: 1
name: digits
inputs: {image: {shape: [1, 28, 28]}, label: {shape: [], dtype: int32}}
layers:
  - {type: Conv2D, filters: 16, kernel_size: 5, activation: relu}
  - {type: MaxPooling2D}
  - {type: Conv2D, filters: 32, kernel_size: 5, activation: relu}
  - {type: MaxPooling2D}
  - {type: Flatten}
  - {name: logits, type: Dense, units: 5}
losses: [{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}]
"""


def digits(folder: Path, split: Literal["train", "test"], classes: range, count: int) -> None:
    """Write the first images of some digits of MNIST as PNG files, in a folder for each digit."""
    dataset = Mnist(split=split, batch_size=1).open()
    labels = np.asarray(dataset.read(np.arange(10_000))["label"])
    for digit in classes:
        (folder / str(digit)).mkdir(parents=True)
        indices = np.flatnonzero(labels == digit)[:count]
        for index, image in zip(indices, dataset.read(indices)["image"], strict=True):
            Image.fromarray(image[0]).save(folder / str(digit) / f"{index:05}.png")


@pytest.mark.exhaustive
def test_a_trunk_beats_a_training_from_scratch_on_few_samples(current_folder: Path) -> None:
    digits(Path("low"), "train", range(5), 300)
    digits(Path("high/train"), "train", range(5, 10), 5)
    digits(Path("high/test"), "test", range(5, 10), 100)
    Path("net.yaml").write_text(SMALL_LENET)
    training = TRAINING.replace("scenes.yaml", "net.yaml").replace("path: scenes", "path: low")
    start = training.index("    transforms:")
    steps = "    channels: 1\n    shuffle: true\n    transforms: [{type: Rescaling, scale: 0.0039}]\n"
    Path("low.yaml").write_text(training[:start].replace("[16, 16]", "[28, 28]") + steps + """\
solver: {type: Adam, learning_rate: 0.001}
train: {max_epochs: 3}
""")  # fmt: skip
    netspec.train("low.yaml", run_dir="low_run")
    netspec.export("low_run", "low.onnx")
    netspec.import_model("low.onnx", "trunk", drop_head=1)
    accuracies = {}
    for trunk in ("trunk", None):
        result = init("high", trunk=trunk, force=True)
        run = netspec.train(result.train, run_dir=f"run_{trunk}", train={"max_epochs": 40})
        assert run.test is not None
        assert run.test.samples == 500
        accuracies[trunk] = run.test.metrics["accuracy"]
    assert accuracies["trunk"] > accuracies[None] + 0.04, accuracies
    assert accuracies["trunk"] > 0.7, accuracies


def test_a_model_of_the_zoo(current_folder: Path) -> None:
    images(Path("letters"), ("a", "b", "c"), 10, (28, 28))
    result = init("letters", trunk="lenet_mnist")
    assert "trunk `lenet_mnist`: 6 layers, for images of 28 × 28" in result.findings
    assert "channels: 1" in result.train.read_text()
    with pytest.raises(InputError, match="the model `resnet18` of the zoo has no trained weights"):
        init("letters", trunk="resnet18", force=True)
    with pytest.raises(InputError, match="did you mean the model `lenet_mnist` of the zoo"):
        init("letters", trunk="lenet_mnits", force=True)

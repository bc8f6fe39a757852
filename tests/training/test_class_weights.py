"""`class_weight: balanced`: weights from the targets of the training data, for tables, images, texts and masks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from netspec.data.base import Source
from netspec.data.class_counts import count_classes
from netspec.errors import InputError
from netspec.exchange.formats.native.hdf5 import read_weights
from netspec.layers.targets import BALANCED
from netspec.schema.load import load_train
from netspec.training.class_weights import balanced_weights, with_class_weights
from netspec.training.evaluation import test as evaluated
from netspec.training.events import Event
from netspec.training.run import run
from tests.data.conftest import split_of

SpecMaker = Callable[..., dict[str, Any]]


def with_weights(spec: dict[str, Any], weights: Any) -> dict[str, Any]:
    changed = copy.deepcopy(spec)
    changed["net"]["losses"][0]["class_weight"] = weights
    return changed


def test_weights_equal_scikit_learn():
    sklearn = pytest.importorskip("sklearn.utils.class_weight", reason="scikit-learn is an extra")
    targets = np.repeat([0, 1, 4], [700, 40, 3])
    expected = sklearn.compute_class_weight("balanced", classes=np.array([0, 1, 4]), y=targets)
    weights = balanced_weights({0: 700, 1: 40, 4: 3})
    assert list(weights) == [0, 1, 4]
    np.testing.assert_allclose(list(weights.values()), expected, rtol=1e-5)  # six digits are kept


def test_balanced_trains_as_the_weights_that_it_stands_for(spec: SpecMaker, points: Path, tmp_path: Path):
    values, counts = np.unique(np.load(points / "train.npz")["label"], return_counts=True)
    weights = balanced_weights(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    events: list[Event] = []
    balanced_run = run(with_weights(spec(), BALANCED), run_dir=tmp_path / "balanced", listeners=[events.append])
    explicit = run(with_weights(spec(), weights), run_dir=tmp_path / "explicit")
    assert balanced_run.weights.read_bytes() == explicit.weights.read_bytes()
    notes = [event["message"] for event in events if event["event"] == "note" and "class_weight" in event["message"]]
    listed = ", ".join(f"{value} {weights[value]:g} ({count})" for value, count in zip(values, counts, strict=True))
    assert notes == [
        "class_weight: balanced: weight of each class in loss `sparse_categorical_crossentropy` "
        "(number of targets in parentheses): " + listed
    ]
    saved = load_train(tmp_path / "balanced/spec.yaml").net.losses[0]
    assert getattr(saved, "class_weight", None) == weights


def test_a_resumed_run_has_bit_identical_weights(spec: SpecMaker, tmp_path: Path):
    balanced = with_weights(spec(), BALANCED)
    balanced["solver"]["learning_rate"] = 0.01
    uninterrupted = run(balanced, run_dir=tmp_path / "whole")
    run(balanced, ["train.max_steps=20"], run_dir=tmp_path / "resumed")
    resumed = run(balanced, run_dir=tmp_path / "resumed", resume=True)
    assert resumed.steps == uninterrupted.steps == 40
    first, second = (read_weights(result.last_weights).arrays for result in (uninterrupted, resumed))
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value)


def test_stages_of_a_run_have_the_same_weights(spec: SpecMaker, points: Path, tmp_path: Path):
    staged = with_weights(spec(), BALANCED)
    staged["stages"] = [{"max_steps": 4, "freeze": ["fc1"]}, {"max_steps": 5}]
    events: list[Event] = []
    first = run(staged, run_dir=tmp_path / "run", listeners=[events.append])
    assert sum("class_weight: balanced" in event.get("message", "") for event in events) == 1
    resumed = run(staged, run_dir=tmp_path / "run", resume=True)
    assert resumed.steps == first.steps == 9
    files = [tmp_path / "run/spec.yaml", tmp_path / "run/stage-1/spec.yaml", tmp_path / "run/stage-2/spec.yaml"]
    saved = [getattr(load_train(file).net.losses[0], "class_weight", None) for file in files]
    assert saved[0] != BALANCED
    assert saved[0] == saved[1] == saved[2]


def test_evaluation_of_a_file_counts_the_training_data(spec: SpecMaker, tmp_path: Path):
    finished = run(with_weights(spec(), BALANCED), run_dir=tmp_path / "run")
    of_run = evaluated(finished.run_dir / "spec.yaml", finished.weights)
    of_file = evaluated(with_weights(spec(), BALANCED), finished.weights)
    assert of_file.loss == of_run.loss
    assert evaluated(with_weights(spec(), None), finished.weights).loss != of_run.loss


def counts_of(folder: Path, field: str, **fields: Any) -> dict[int, int]:
    split = split_of(str(folder / "train.yaml"), **fields)
    assert isinstance(split, Source)
    dataset = split.open(seed=0)
    return count_classes(dataset, field, len(dataset), skip=split.on_error == "skip")


def test_classes_of_tables_images_texts_and_masks_are_counted(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,no\n" * 7 + "2,yes\n" * 3)
    table = {"source": "csv", "path": "a.csv", "header": True, "label": "y"}
    assert counts_of(tmp_path, "label", **table) == {0: 7, 1: 3}
    assert counts_of(tmp_path, "label", **table, split={"validation": 0.2, "stratify": "y"}) == {0: 6, 1: 2}
    for name, count in (("cat", 3), ("dog", 2)):
        for index in range(count):
            image, text = tmp_path / f"photos/{name}/{index}.png", tmp_path / f"texts/{name}/{index}.txt"
            for path in (image, text):
                path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(image)
            text.write_text("a text")
    assert counts_of(tmp_path, "label", source="image_folder", path="photos") == {0: 3, 1: 2}
    texts = {"source": "documents", "path": "texts", "tokenizer": "words"}
    assert counts_of(tmp_path, "label", **texts) == {0: 3, 1: 2}


def test_pixels_of_masks_are_counted_without_those_to_ignore(tmp_path: Path):
    for index in range(3):
        mask = np.zeros((5, 8), np.uint8)
        mask[0, : index + 1], mask[4] = 2, 255
        for name, pixels in (("images", np.zeros((5, 8, 3), np.uint8)), ("masks", mask)):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / f"{name}/{index}.png")
    (tmp_path / "masks/2.png").write_bytes(b"damaged")
    folder = {"source": "segmentation_folder", "path": str(tmp_path), "on_error": "skip"}
    assert counts_of(tmp_path, "mask", **folder) == {0: 61, 2: 3, 255: 16}
    loss = {"type": "SparseCategoricalCrossentropy", "from_logits": True, "axis": 1, "class_weight": BALANCED}
    spec = {
        "netspec": 1,
        "net": {
            "netspec": 1, "name": "pixels",
            "inputs": {"image": {"shape": [3, 5, 8]}, "mask": {"shape": [5, 8], "dtype": "int32"}},
            "layers": [{"type": "Conv2D", "filters": 3, "kernel_size": 1}], "losses": [{**loss, "ignore_class": 255}],
        },
        "data": {"train": {**folder, "batch_size": 1}},
        "solver": {"type": "SGD", "learning_rate": 0.1},
        "train": {"max_steps": 1},
    }  # fmt: skip
    resolved, (note,) = with_class_weights(load_train(spec))
    assert getattr(resolved.net.losses[0], "class_weight", None) == {0: round(64 / 2 / 61, 6), 2: 10.6667}
    assert "255" not in note


@pytest.mark.parametrize(
    ("inputs", "message", "expected"),
    [
        ({"label": "x"}, "the classes of `x` cannot be counted", "class indices"),
        ({"label": "y"}, "the target `label` of loss", "one of label, x"),
    ],
)
def test_targets_that_are_not_classes_are_located_at_the_loss(
    spec: SpecMaker, tmp_path: Path, inputs, message, expected
):
    import yaml

    fields = with_weights(spec(), BALANCED)
    fields["data"]["train"]["inputs"] = inputs
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(fields, sort_keys=False))
    with pytest.raises(InputError) as error:
        run(path, run_dir=tmp_path / "run")
    (problem,) = error.value.problems
    assert problem.message.startswith(message)
    assert expected in (problem.expected or "")
    assert problem.location is not None
    assert problem.location.text.strip() == "class_weight: balanced"
    assert not (tmp_path / "run").exists()

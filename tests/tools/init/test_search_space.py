"""`netspec.init` with `search`: variables in the same net, and values to try that the files can take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netspec
from netspec.tools.init import InitResult, init
from netspec.tools.specs import load_train
from tests.tools.init.test_boxes import boxed_images, coco
from tests.tools.init.test_masks import write_pairs
from tests.tools.init.test_series import hourly

COMMON = {"net.vars.dropout", "solver.learning_rate.schedule", "solver.weight_decay"}
SIZES = {"net.vars.width", "net.vars.depth"}
BLOCK = {"net.vars.block"}


def searched(data: Path, **options: Any) -> InitResult:
    """Write both kinds of files. Those with a search have the same layers with the same fields, and pass `check`."""
    result, plain = (init(data, output=data.parent / name, search=name == "s", **options) for name in "sp")
    assert netspec.check(result.train).warnings == netspec.check(plain.train).warnings == ()
    net, plain_net = load_train(result.train).net, load_train(plain.train).net
    assert [fields(layer) for layer in net.layers] == [fields(layer) for layer in plain_net.layers]
    assert "search" not in plain.train.read_text()
    return result


def fields(layer: Any) -> dict[str, Any]:
    return {name: value for name, value in layer.model_dump().items() if name not in ("name", "from_")}


def names(result: InitResult) -> set[str]:
    search = load_train(result.train).search
    assert search is not None
    assert search.baseline
    return set(search.fields)


def layers(result: InitResult, **values: Any) -> list[str]:
    """Return the layers for these values of variables; all shapes must fit."""
    overrides = {f"net.vars.{name}": value for name, value in values.items()}
    assert netspec.check(result.train, overrides=overrides, data=False).kind == "training"
    return [str(getattr(layer, "type", "")) for layer in load_train(result.train, overrides).net.layers]


def test_images(photos: Path) -> None:
    result = searched(photos)
    assert names(result) == COMMON | SIZES | BLOCK | {"vars.shift", "vars.erasing"}
    assert layers(result, depth=3, block="residual", width=16).count("Conv2D") == 2 * (3 + 1)


def test_sounds(sounds: Path) -> None:
    result = searched(sounds)
    assert names(result) == COMMON | SIZES | BLOCK
    assert layers(result, depth=2, width=16).count("Conv2D") == 6


@pytest.mark.parametrize("target", ["left", "price"])
def test_tables(table: Path, target: str) -> None:
    result = searched(table, target=target)
    assert names(result) == COMMON | SIZES | BLOCK
    assert layers(result, depth=4, block="residual").count("Dense") == 4 + 4 + 2


def test_texts(reviews: Path) -> None:
    result = searched(reviews)
    assert names(result) == COMMON | SIZES
    assert layers(result, depth=2).count("Conv1D") == 2


@pytest.mark.parametrize("large", [False, True])
def test_running_text(tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netspec.tools.init.language_model.LARGE", 0 if large else 10**9)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("To be, or not to be.\n" * 400)
    result = searched(tmp_path / "text")
    assert names(result) == COMMON | {"net.vars.width", "net.vars.depth", "net.vars.dropout"}
    layer = "MultiHeadAttention" if large else "LSTM"
    assert layers(result, depth=2).count(layer) == 2


def test_texts_with_other_columns(table: Path) -> None:
    assert names(searched(table, target="left", task="text")) == COMMON | SIZES


def test_a_forecast(tmp_path: Path) -> None:
    result = searched(hourly(tmp_path, stations=2), target="demand", task="forecast")
    assert names(result) == COMMON | SIZES
    assert layers(result, depth=3).count("Dropout") == 3


def test_a_linear_forecast_is_compared_on_validation_data(tmp_path: Path) -> None:
    result = searched(hourly(tmp_path, hours=400), target="demand", task="forecast")
    assert names(result) == {"net.vars.penalty", "solver.learning_rate.initial"}
    assert load_train(result.train).data.monitored == "validation"


def test_masks(tmp_path: Path) -> None:
    write_pairs(tmp_path / "set/images", tmp_path / "set/masks", 10)
    (tmp_path / "set/classes.txt").write_text("soil\ncrop\nweed\n")
    assert names(searched(tmp_path / "set")) == COMMON - {"net.vars.dropout"} | {"net.vars.width"}


def test_boxes(tmp_path: Path) -> None:
    folder = tmp_path / "pets"
    coco(folder, boxed_images(folder, 40, 64, 16), 64)
    assert names(searched(folder)) == {"net.vars.width", "solver.learning_rate.initial"}


def test_reasons_are_in_the_files(photos: Path) -> None:
    result = init(photos, search=True)
    assert "  depth: 2   # convolutions in a stage\n" in result.net.read_text()
    train = result.train.read_text()
    assert "  shift: 2   # largest shift of an image, in pixels\n" in train
    assert 'padding: "${shift}"}' in train
    assert "  baseline: true   # the first trial has the values above and in the net file\n" in train

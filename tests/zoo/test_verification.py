"""`netspec zoo verify`: true facts pass, and each untrue fact fails separately."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from netspec.errors import SpecError
from netspec.tools.zoo import ZooModel, zoo_model
from netspec.tools.zoo_verification import verify_zoo_model


@pytest.fixture
def model(tmp_path: Path) -> ZooModel:
    """A copy of LeNet, with its data."""
    folder = tmp_path / "lenet_mnist"
    zoo_model("lenet_mnist").copy(folder)
    return ZooModel("lenet_mnist", folder)


def change(model: ZooModel, old: str, new: str) -> None:
    card = model.folder / "card.yaml"
    text = card.read_text()
    assert old in text
    card.write_text(text.replace(old, new))


def statuses(model: ZooModel) -> dict[str, str]:
    limited = ["data.test.limit=500", "data.test.batch_size=100"]
    return {check.name: check.status for check in verify_zoo_model(model, limited)}


def test_a_true_card_passes(model: ZooModel) -> None:
    change(model, "metric: accuracy,", "metric: accuracy, tolerance: 0.02,")
    change(model, "metric: loss,", "metric: loss, tolerance: 0.05,")
    assert set(statuses(model).values()) == {"passed"}


def test_results_on_data_that_split_holds_out_are_measured_again(model: ZooModel) -> None:
    change(model, "metric: accuracy,", "metric: accuracy, tolerance: 0.02,")
    change(model, "metric: loss,", "metric: loss, tolerance: 0.05,")
    overrides = ["~data.test", "data.train.split={test: 0.01}"]
    (check,) = [check for check in verify_zoo_model(model, overrides) if check.name == "results"]
    assert check.status == "passed", check.detail


def test_each_untrue_fact_fails(model: ZooModel) -> None:
    change(model, "count: 431080", "count: 431081")
    change(model, "count: 4586000", "count: 4586002")
    change(model, "value: 0.9925", "value: 0.5")
    weights = bytearray((model.folder / "weights.h5").read_bytes())
    weights[-1] ^= 1
    (model.folder / "weights.h5").write_bytes(weights)
    found = statuses(model)
    assert found.pop("specs") == "passed"
    assert set(found.values()) == {"failed"}, found


def test_data_that_is_not_here_is_named(model: ZooModel) -> None:
    shutil.rmtree(model.folder / "data", ignore_errors=True)
    text = (model.folder / "train.yaml").read_text()
    (model.folder / "train.yaml").write_text(text.replace("source: mnist", "source: mnist\n    path: nowhere"))
    (check,) = [check for check in verify_zoo_model(model) if check.name == "results"]
    assert check.status == "skipped"
    assert "nowhere" in check.detail
    assert "MNIST" in check.detail


def test_a_wrong_card_is_located(model: ZooModel) -> None:
    change(model, "netspec: 1\n", "netspec: 1\ncolour: red\n")
    with pytest.raises(SpecError) as error:
        _ = model.card
    assert error.value.problems[0].location is not None
    assert "card.yaml:2:1" in str(error.value)

"""A training in a file that is written for Keras: what an import restores, and notes on the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.exchange.formats.keras.exporting import keras_model, write_keras
from netspec.exchange.importing import import_model
from netspec.schema.load import load_train
from netspec.schema.specs.train import LossScale
from tests.exchange.nets import net_data
from tests.peers.keras_training import DONE, IMAGES, LEARNED, SEQUENCES, Training, trainings

RATE = {"learning_rate"}


@pytest.mark.parametrize(
    "case", [training for training in trainings() if training.net is not LEARNED], ids=lambda training: training.name
)
def test_solver_states_and_step_round_trip(case: Training, tmp_path: Path) -> None:
    exportable = case.exportable()
    write_keras(tmp_path / "model.keras", exportable)
    imported = import_model(tmp_path / "model.keras")
    assert imported.step == DONE
    assert imported.slots.keys() == exportable.slots.keys()
    for name, array in exportable.slots.items():
        np.testing.assert_array_equal(imported.slots[name], array, err_msg=name)
    (tmp_path / "net.yaml").write_text(imported.net, encoding="utf-8")
    (tmp_path / "train.yaml").write_text(imported.train, encoding="utf-8")
    after: Any = load_train(tmp_path / "train.yaml")
    before: Any = case.spec
    assert after.solver.model_dump(exclude=RATE) == before.solver.model_dump(exclude=RATE)
    for step in range(25):  # a schedule that depends on the length of the training contains it in the file
        assert after.solver.learning_rate.value(step, 1000) == before.solver.learning_rate.value(step, 20)
    assert [loss.weight for loss in after.net.losses] == sorted(loss.weight for loss in before.net.losses)
    assert sorted(metric.type for metric in after.net.metrics) == sorted(metric.type for metric in before.net.metrics)


def test_states_of_learned_arrays_become_states_of_keras_layers(tmp_path: Path) -> None:
    """In Keras, Bias is an Embedding of one row, and Scale an EinsumDense: same values, other names and shapes."""
    (training,) = (training for training in trainings() if training.net is LEARNED)
    exportable = training.exportable()
    write_keras(tmp_path / "model.keras", exportable)
    imported = import_model(tmp_path / "model.keras")

    def numbers(slots: Mapping[str, np.ndarray]) -> list[tuple[str, str, list[float]]]:
        return sorted((name.split("/")[1], name.split("/")[-1], each.ravel().tolist()) for name, each in slots.items())

    assert imported.step == DONE
    assert numbers(imported.slots) == numbers(exportable.slots)


def notes(net: dict[str, Any], solver: dict[str, Any], **loop: Any) -> tuple[list[str], Any]:
    case = Training("other", net, solver)
    exportable = case.exportable()
    spec = exportable.train
    assert spec is not None
    model, message = keras_model(
        replace(exportable, train=spec.model_copy(update={"train": spec.train.model_copy(update=loop)}))
    )
    return [note for note in message if not note.endswith("channels last")], model


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        ({"type": "SGD", "weight_decay": 0.1}, "`weight_decay` of the solver is left out"),
        ({"type": "RMSprop", "epsilon_in_root": False}, "`epsilon_in_root` of the solver is left out"),
        ({"type": "SGD", "momentum": {"type": "CyclicLR", "initial": 0.75, "peak": 0.5, "step_size_up": 4}},
         "`momentum` of the solver is the number 0.5625: Keras does not support a schedule for it"),
        ({"type": "Adam", "ema": 0.9}, "`ema` of the solver is left out: the weights are the averages"),
        ({"type": "Adam", "groups": [{"match": "*/bias", "learning_rate_multiplier": 2}]}, "`groups` of the solver"),
        ({"type": "SGD", "learning_rate": {"type": "StepDecay", "initial": 0.1, "step_size": 2}},
         "the learning rate is the number 0.01: Keras has no StepDecay"),
        ({"type": "SGD", "learning_rate": {"type": "InverseTimeDecay", "initial": 0.1, "decay_rate": 1, "power": 2}},
         "the learning rate is the number 0.00625: Keras has no InverseTimeDecay like that"),
        ({"type": "Muon", "flatten": True}, "Keras's Muon updates `conv2d/kernel`, `p_re_lu/alpha`, "),
        ({"type": "Adafactor"}, "Keras's Adafactor averages along the last two axes, which differ"),
    ],
)  # fmt: skip
def test_settings_that_an_optimizer_lacks_are_noted(solver: dict[str, Any], message: str) -> None:
    imported, model = notes(IMAGES, solver)
    assert [note.startswith(message) for note in imported] == [True]
    assert model.compiled["optimizer"]["class_name"] == solver["type"]
    assert len(model.optimizer) >= 2


def test_a_matrix_that_is_a_vector_in_keras_is_updated_by_adamw() -> None:
    imported, model = notes(LEARNED, {"type": "Muon"})
    (note,) = imported
    assert note.startswith("Keras's Muon updates `own/value` by AdamW, whose states start from zero")
    message = model.compiled["optimizer"]["config"]
    assert (message["exclude_layers"], message["exclude_embeddings"]) == (["^places/", "^bias/", "^own/"], False)


def test_averages_along_other_axes_stand_for_the_same_second_moments() -> None:
    case = Training("other", IMAGES, {"type": "Adafactor"})
    model, _ = keras_model(case.exportable())
    fresh = replace(case.exportable(), slots={name: array * 0 for name, array in case.exportable().slots.items()})
    assert [note for note in keras_model(fresh)[1] if "which differ for `conv2d/kernel`, " in note]
    rows, columns = (np.array(case.compiler.states[f"solver/conv2d/kernel/{name}"]) for name in ("rows", "columns"))
    (axis,) = (axis for axis, sizes in enumerate(zip(rows.shape, columns.shape, strict=True)) if sizes[1] < sizes[0])
    second = (rows * columns / rows.mean(axis=axis, keepdims=True)).transpose(2, 3, 1, 0)
    for imported, expected in zip(model.optimizer[2:5], (second.mean(-1), second.mean(-2), second), strict=True):
        np.testing.assert_allclose(imported, expected, rtol=1e-6)


def test_a_solver_that_keras_lacks_is_left_out() -> None:
    imported, model = notes(IMAGES, {"type": "LARS"})
    assert imported == ["the training configuration is left out: Keras has no optimizer like LARS"]
    assert (model.compiled, model.optimizer) == ({}, [])


def test_states_of_some_weights_only_are_left_out() -> None:
    groups = [{"match": "*/bias", "solver": {"type": "SGD"}}]
    imported, model = notes(IMAGES, {"type": "Adam", "groups": groups})
    assert [
        note
        for note in imported
        if note.startswith("the states of the solver are left out: they do not match all weights")
    ]
    assert model.optimizer == []


def test_settings_of_gradients_are_written_or_noted() -> None:
    imported, model = notes(IMAGES, {"type": "SGD"}, accumulate=2, loss_scale=LossScale(initial=8.0, growth_steps=None))
    assert imported == ["`accumulate` of the training is left out"]
    assert model.compiled["optimizer"]["config"]["loss_scale_factor"] == 8.0
    imported, _ = notes(IMAGES, {"type": "SGD"}, loss_scale=LossScale())
    assert imported == ["a `loss_scale` that adapts is left out"]


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (IMAGES | {"metrics": [{"type": "ConfusionMatrix", "from": ["classes", "target"]}]},
         "the metric `confusion_matrix` is left out: Keras has no ConfusionMatrix"),
        (SEQUENCES | {"outputs": ["last"]},
         "the loss `mean_squared_error` is left out: `means` is not an output of the net"),
        (SEQUENCES | {"losses": [{"type": "Huber", "reduction": "batch_size", "from": ["last", "b"]}]},
         "the loss `huber` is left out: Keras has no reduction `batch_size`"),
        (SEQUENCES | {"losses": [{"type": "Poisson", "log_input": True, "from": ["last", "b"]}]},
         "the loss `poisson` is left out: Keras's Poisson has no `log_input`"),
    ],
)  # fmt: skip
def test_losses_that_keras_computes_differently_are_noted(net: dict[str, Any], message: str) -> None:
    imported, model = notes(net, {"type": "SGD"})
    assert message in imported
    assert bool(model.compiled) == (
        "the training configuration is left out: a Keras model cannot be compiled with any of its losses"
        not in imported
    )


def test_losses_of_images_use_the_last_axis() -> None:
    last: dict[str, Any] = {"from": ["conv2d", "image"]}
    net = net_data(
        {"type": "Conv2D", "filters": 2, "kernel_size": 1},
        inputs={"image": {"shape": [2, 5, 4]}},
        losses=[{"type": "CategoricalCrossentropy", "axis": 1, **last}],
        metrics=[
            {"type": "CategoricalAccuracy", "axis": 1, **last}, {"type": "CosineSimilarity", "axis": 2, **last},
            {"type": "KLDivergence", **last},
        ],
    )  # fmt: skip
    imported, model = notes(net, {"type": "SGD"})
    assert imported == [
        "the metric `kl_divergence` is left out: Keras reduces the last axis, which has the channels there"
    ]  # fmt: skip
    assert model.compiled["loss"]["config"]["axis"] == -1
    assert [metric["config"].get("axis") for metric in model.compiled["metrics"]] == [None, 1]


def test_multipliers_of_layers_are_noted_with_and_without_a_training() -> None:
    layer = {"type": "Conv2D", "name": "slow", "filters": 2, "kernel_size": 1, "learning_rate_multiplier": 0.1}
    case = Training("other", {**IMAGES, "layers": [layer, *IMAGES["layers"]]}, {"type": "SGD"})
    for exportable in (case.exportable(), replace(case.exportable(), train=None, slots={}, step=0)):
        assert "`learning_rate_multiplier` of `slow` is left out" in keras_model(exportable)[1]


def test_a_momentum_without_the_rate_is_left_out() -> None:
    message, model = notes(IMAGES, {"type": "SGD", "momentum": 0.9, "rate_in_velocity": False})
    assert any(note.startswith("`rate_in_velocity` of the solver is left out") for note in message)
    assert any("Keras's velocity contains the rate" in note for note in message)
    assert not model.optimizer


def test_a_training_without_a_checkpoint_starts_afresh() -> None:
    case = next(iter(trainings()))
    model, _ = keras_model(replace(case.exportable(), slots={}, step=0))
    assert model.compiled["optimizer"]["class_name"] == "SGD"
    assert model.optimizer == []

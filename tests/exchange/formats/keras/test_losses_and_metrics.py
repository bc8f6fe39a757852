"""Losses and metrics of compiled models: Keras's own are imported by name, all others are left out with a note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.importing import import_model
from netspec.exchange.interface import Imported
from tests.exchange.formats.keras.recorded import opened
from tests.exchange.formats.keras.written import archive, layer, new, new_model, old_file, sequential, tree

UNITS = 3


def compiled(folder: Path, loss: Any, metrics: Sequence[Any] = (), units: int = UNITS, **more: Any) -> Imported:
    """Import a Dense layer from a `.keras` file that was compiled with these."""
    config = {"loss": loss, "metrics": list(metrics), "optimizer": "adam", **more}
    arrays = {"layers/dense/vars/0": np.ones((4, units), np.float32), "layers/dense/vars/1": np.ones(units, np.float32)}
    model = new_model(new("Dense", name="out", units=units)) | {"compile_config": config}
    return import_model(archive(folder / "m.keras", model, tree(arrays)))


def compiled_old(folder: Path, loss: Any, metrics: Sequence[Any] = (), version: str = "2.15.0", **of: Any) -> Imported:
    """The same for an HDF5 file of Keras 1 or 2."""
    units = of.get("units", UNITS)
    model = sequential(layer("Dense", name="out", units=units, batch_input_shape=[None, 4], trainable=True))
    weights = {"out": {"kernel:0": np.ones((4, units), np.float32), "bias:0": np.ones(units, np.float32)}}
    training = {
        "loss": loss,
        "metrics": list(metrics),
        "optimizer_config": {"class_name": "SGD", "config": {"lr": 0.1}},
    }
    return import_model(old_file(folder / "m.h5", model, weights, version, training_config=training))


def judged(imported: Imported) -> list[str]:
    """The types of the losses and metrics."""
    assert imported.draft is not None
    return [metric["type"] for metric in (*imported.draft.losses, *imported.draft.metrics)]


def own(name: str) -> dict[str, Any]:
    """Return a custom function as a `.keras` file refers to it."""
    return {"module": "builtins", "class_name": "function", "config": name, "registered_name": "function"}


CUSTOM = (
    "dice_loss", "recall_m", "qscore", "precision_m", "auc_roc", "huber_los", "nll_loss", "f1", "Mse", "iou",
    "crossentropy_loss", "rmse", "r2", "triplet_loss", "Contrastive", "Euclidean", "ConfusionMatrix", "meanabsolute",
)  # fmt: skip


@pytest.mark.parametrize("name", CUSTOM)
def test_no_name_is_guessed(name: str, tmp_path: Path) -> None:
    """Names that are similar to Keras's, or that only netspec or other tools have: strings, functions, classes."""
    classes = {"module": None, "class_name": name, "config": {"name": "x"}, "registered_name": name}
    for setting in (name, own(name), classes, {"class_name": name, "config": {}}):
        for imported in (compiled(tmp_path, setting, [setting]), compiled_old(tmp_path, setting, [setting])):
            assert judged(imported) == []
            for kind in ("loss", "metric"):
                assert any(f"the {kind} '{name}' of `out` is left out" in note for note in imported.notes)
            model = opened(imported, tmp_path)
            assert model.predict({next(iter(model.spec.inputs)): np.ones((1, 4), np.float32)})


@pytest.mark.parametrize(
    "setting",
    [
        own("mine>mean_squared_error"),
        own("Custom>huber"),
        own("mse"),  # the name is an alias, not the name of a function of Keras
        {"module": None, "class_name": "MeanSquaredError", "config": {}, "registered_name": "MeanSquaredError"},
        {"module": "mine.losses", "class_name": "Hinge", "config": {}, "registered_name": "Hinge"},
        {"module": "keras.losses", "class_name": "Hinge", "config": {}, "registered_name": "mine>Hinge"},
        {"class_name": "mine>MeanSquaredError", "config": {}},
        {"class_name": "__lambda__", "config": {"value": ["", None, None]}},
        "mine>mean_squared_error",
        "<lambda>",
    ],
)  # fmt: skip
def test_user_registered_losses_and_metrics_are_left_out(setting: Any, tmp_path: Path) -> None:
    for imported in (compiled(tmp_path, setting, [setting]), compiled_old(tmp_path, setting, [setting])):
        assert judged(imported) == []
        assert sum("is left out" in note for note in imported.notes) == 2


def wrapped(function: Any, wrapper: str = "MeanMetricWrapper") -> dict[str, Any]:
    return {"class_name": wrapper, "config": {"name": "x", "fn": function}}


@pytest.mark.parametrize(
    ("loss", "metrics", "types"),
    [
        ("mse", ["mae", "MAE"], ["MeanSquaredError", "MeanAbsoluteError", "MeanAbsoluteError"]),
        (own("mean_squared_error"), [own("binary_accuracy")], ["MeanSquaredError", "BinaryAccuracy"]),
        ("KLD", ["f1_score", "recall"], ["KLDivergence", "F1Score", "Recall"]),
        (wrapped(own("log_cosh"), "LossFunctionWrapper"), [wrapped(own("hinge"))], ["LogCosh", "Hinge"]),
        ("huber", [wrapped({"class_name": "CategoricalHinge", "config": {}})], ["Huber", "CategoricalHinge"]),
        ("categorical_crossentropy", ["acc", "ce"],
         ["CategoricalCrossentropy", "CategoricalAccuracy", "CategoricalCrossentropy"]),
        ("binary_crossentropy", ["accuracy"], ["BinaryCrossentropy", "CategoricalAccuracy"]),
        ("mean_absolute_error", ["accuracy"], ["MeanAbsoluteError", "CategoricalAccuracy"]),
    ],
)  # fmt: skip
def test_names_that_keras_defines(loss: Any, metrics: list[Any], types: list[str], tmp_path: Path) -> None:
    assert judged(compiled(tmp_path, loss, metrics)) == types


@pytest.mark.parametrize(
    ("version", "units", "loss", "metric", "type_"),
    [
        ("2.3.1", 3, "binary_crossentropy", "accuracy", "BinaryAccuracy"),
        ("2.2.4-tf", 3, "binary_crossentropy", "acc", "BinaryAccuracy"),
        ("2.3.0-tf", 3, "binary_crossentropy", "accuracy", "CategoricalAccuracy"),
        ("2.4.0", 3, "binary_crossentropy", "accuracy", "CategoricalAccuracy"),
        ("1.2.2", 1, "mse", "accuracy", "BinaryAccuracy"),
        ("2.9.0", 1, "mse", "accuracy", "BinaryAccuracy"),
        ("2.9.0", 3, "sparse_categorical_crossentropy", "accuracy", "SparseCategoricalAccuracy"),
        ("2.9.0", 3, "mse", wrapped("sparse_top_k_categorical_accuracy"), ""),
        ("2.9.0", 3, "mse", "recall", ""),  # only in Keras 3
        ("2.9.0", 3, "mse", {"class_name": "Recall", "config": {"name": "recall"}}, "Recall"),
    ],
)
def test_accuracy_is_the_one_that_its_version_of_keras_takes(
    version: str, units: int, loss: str, metric: Any, type_: str, tmp_path: Path
) -> None:
    assert judged(compiled_old(tmp_path, loss, [metric], version, units=units))[1:] == [type_][: bool(type_)]


MISFITS: Mapping[str, tuple[Any, list[Any], list[str]]] = {
    "another target": ("sparse_categorical_crossentropy", ["mae", "accuracy"], ["mae"]),
    "thresholds of classes": ("sparse_categorical_crossentropy", ["Recall", "Precision"], ["Recall", "Precision"]),
    "too many classes": ("sparse_categorical_crossentropy", [
        {"class_name": "SparseTopKCategoricalAccuracy", "config": {"k": 5}}], ["SparseTopKCategoricalAccuracy"]),
    "no sequence": ("ctc", ["mae"], ["ctc"]),
    "a class that is not there": ("mse", [{"class_name": "Precision", "config": {"class_id": 7}}], ["Precision"]),
    "a field of another type": ({"class_name": "Huber", "config": {"delta": "wide"}}, [], ["Huber"]),
    "a reduction that is none": ({"class_name": "Huber", "config": {"reduction": "none"}}, [], ["Huber"]),
    "an axis that is not there": ({"class_name": "CosineSimilarity", "config": {"axis": 4}}, [], ["CosineSimilarity"]),
    "axes of another kind": ({"class_name": "Dice", "config": {"axis": "x"}}, [], ["Dice"]),
    "no name": ({"class_name": 3}, [7, None, []], ["3", "7"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_losses_that_do_not_fit_are_left_out(name: str, tmp_path: Path) -> None:
    loss, metrics, left = MISFITS[name]
    imported = compiled(tmp_path, loss, metrics)
    notes = [note for note in imported.notes if "is left out" in note]
    assert [any(f"'{name}'" in note for note in notes) for name in left] == [True] * len(left), imported.notes
    assert (
        len(judged(imported)) == 1 + len(metrics) - len(left)
        if metrics and name != "no name"
        else judged(imported) == []
    )
    (array,) = dict(opened(imported, tmp_path).predict({"x": np.ones((2, 4), np.float32)})).values()
    np.testing.assert_array_equal(array, np.full((2, UNITS), 5.0, np.float32))


def test_a_weight_that_no_loss_can_have_leaves_the_loss_out(tmp_path: Path) -> None:
    imported = compiled(tmp_path, "mse", loss_weights=float("inf"))
    assert judged(imported) == []
    assert any("the loss 'mse' of `out` is left out" in note for note in imported.notes)


def test_outputs_of_one_layer_have_keras_names(tmp_path: Path) -> None:
    """A layer that is called twice has the outputs `out` and `out_1`."""

    def entry(class_name: str, name: str, *reads: str, **config: Any) -> dict[str, Any]:
        nodes = [[[read, 0, 0, {}]] for read in reads]
        return {**layer(class_name, name=name, trainable=True, **config), "name": name, "inbound_nodes": nodes}

    layers = [entry("InputLayer", "x", batch_input_shape=[None, 4]), entry("ReLU", "a", "x"),
              entry("Dense", "out", "x", "a", units=2)]  # fmt: skip
    config = {"name": "m", "layers": layers, "input_layers": [["x", 0, 0]],
              "output_layers": [["out", 0, 0], ["out", 1, 0]]}  # fmt: skip
    weights = {"out": {"kernel:0": np.ones((4, 2), np.float32), "bias:0": np.ones(2, np.float32)}}
    training = {
        "loss": {"out": "mse", "out_1": "mae"},
        "optimizer_config": {"class_name": "SGD", "config": {"lr": 0.1}},
    }
    model = {"class_name": "Functional", "config": config}
    imported = import_model(old_file(tmp_path / "m.h5", model, weights, "2.15.0", training_config=training))
    assert judged(imported) == ["MeanSquaredError", "MeanAbsoluteError"]
    assert not any("no output" in note for note in imported.notes)


def test_metrics_of_one_type_have_names_of_their_own(tmp_path: Path) -> None:
    several = [{"class_name": "Precision", "config": {"class_id": index}} for index in range(3)]
    imported = compiled(tmp_path, "mse", several)
    assert imported.draft is not None
    assert [metric["name"] for metric in imported.draft.metrics] == [
        "out_Precision",
        "out_Precision_1",
        "out_Precision_2",
    ]
    opened(imported, tmp_path)


@pytest.mark.parametrize("name", ["Scale", "Power", "Split", "InstanceNormalization", "LocalResponseNormalization"])
def test_a_user_layer_is_not_netspecs_layer_of_that_name(name: str, tmp_path: Path) -> None:
    """Old files do not state where a class is defined; Keras defines none of these."""
    model = sequential(layer(name, name="a", batch_input_shape=[None, 4], trainable=True))
    with pytest.raises(InputError, match="a user-defined class, since Keras has no layer of that name"):
        import_model(old_file(tmp_path / "m.h5", model, {"a": {}}, "2.9.0"))


@pytest.mark.parametrize(
    "layer",
    [
        {**new("Dense", name="a", units=2), "module": None, "registered_name": "Dense"},
        new("Dense", name="a", units=2, activation=own("relu_6")),
        new("Dense", name="a", units=2, activation=own("Swish")),
        new("Dense", name="a", units=2, activation=own("mine>relu")),
        new("Dense", name="a", units=2, activation={
            "module": None, "class_name": "ReLU", "config": {}, "registered_name": "ReLU"}),
        new("Dense", name="a", units=2, kernel_initializer={
            "module": None, "class_name": "Zeros", "config": {}, "registered_name": "Zeros"}),
        new("Dense", name="a", units=2, kernel_initializer={"class_name": "Bilinear", "config": {}}),
        new("Dense", name="a", units=2, kernel_initializer="heuniform"),
        new("Dense", name="a", units=2, kernel_regularizer={"class_name": "mine>L2", "config": {"l2": 0.1}}),
        new("Dense", name="a", units=2, kernel_constraint={"class_name": "Maxnorm", "config": {"max_value": 1}}),
        new("TimeDistributed", name="a", layer={"class_name": "Scale", "config": {"name": "b"}}),
        new("RNN", name="a", cell={
            "module": None, "class_name": "GRUCell", "config": {"units": 2}, "registered_name": "GRUCell"}),
    ],
)  # fmt: skip
def test_user_defined_objects_in_layers_are_refused(layer: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="user-defined"):
        import_model(archive(tmp_path / "m.keras", new_model(layer, shape=(3, 4))))

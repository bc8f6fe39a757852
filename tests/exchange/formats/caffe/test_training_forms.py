"""A training written for Caffe: data, losses, fillers and the solver; and what of it Caffe cannot say."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import netspec.data
import netspec.solvers  # noqa: F401  # what training files name is found through both
from netspec.exchange.formats.caffe.blobs import blob_array
from netspec.exchange.formats.caffe.proto.binary import read_binary
from netspec.exchange.formats.caffe.proto.text import read_text
from netspec.exchange.formats.caffe.reading import read_prototxt
from netspec.exchange.formats.caffe.solver.reading import read_solver
from netspec.exchange.formats.caffe.writing.files import preflight_caffe, write_caffe
from netspec.exchange.formats.registry import ExportOptions
from netspec.exchange.interface import ImportOptions
from netspec.schema.load import load_net, load_train
from netspec.schema.yaml.reader import parse_yaml
from tests.exchange.formats.caffe.catalogue import exportable
from tests.exchange.nets import Net
from tests.exchange.samples import inputs_of

MODELS = os.environ.get("NETSPEC_MODELS")
LAYERS: list[dict[str, Any]] = [
    {"name": "conv", "type": "Conv2D", "filters": 4, "kernel_size": 3, "activation": "relu"},
    {"name": "norm", "type": "BatchNormalization", "epsilon": 1e-5, "momentum": 0.999},
    {"name": "flat", "type": "Flatten"},
    {"name": "fc", "type": "Dense", "units": 3},
]
LOSS = {"type": "SparseCategoricalCrossentropy", "from": ["fc", "label"], "from_logits": True}
ACCURACY = {"type": "SparseCategoricalAccuracy", "from": ["fc", "label"], "name": "accuracy"}
DATA = {"source": "lmdb", "path": "train_lmdb", "batch_size": 8, "inputs": {"image": "image", "label": "label"}}
SGD = {"type": "SGD", "learning_rate": 0.1, "momentum": 0.9}


def training(**changes: Any) -> dict[str, Any]:
    """A training that Caffe can say in full, with some of its fields changed."""
    net = {
        "netspec": 1, "name": "small",
        "inputs": {"image": {"shape": [2, 6, 6]}, "label": {"shape": [], "dtype": "int32"}},
        "layers": changes.pop("layers", LAYERS), "losses": changes.pop("losses", [LOSS]),
        "metrics": changes.pop("metrics", [ACCURACY]),
    }  # fmt: skip
    return {
        "netspec": 1, "net": net, "data": changes.pop("data", {"train": DATA, "test": {**DATA, "limit": 40}}),
        "solver": changes.pop("solver", SGD),
        "train": {"max_steps": 50, "test_every": 10, "checkpoint_every": 20, **changes},
    }  # fmt: skip


def written(folder: Path, spec: dict[str, Any]) -> tuple[str, ...]:
    """What is told of a training that is written as `m.prototxt`."""
    train = load_train(spec)
    return write_caffe(folder / "m.prototxt", exportable(Net(train.net), train))


def solver_of(folder: Path) -> dict[str, Any]:
    """The fields of the solver that was written."""
    solver = read_text(folder / "m_solver.prototxt", "SolverParameter", "a solver")
    return {name: solver[name] for name in solver}


def layer_of(folder: Path, name: str) -> Any:
    net = read_text(folder / "m_train_val.prototxt", "NetParameter", "a net")
    (found_layer,) = [layer for layer in net["layer"] if layer["name"] == name]
    return found_layer


def test_a_training_that_caffe_supports_comes_back(tmp_path):
    spec = training()
    assert written(tmp_path, spec) == ()
    imported = read_solver(tmp_path / "m_solver.prototxt", ImportOptions(weights=tmp_path / "m.caffemodel"))
    (tmp_path / "net.yaml").write_text(imported.net)
    (tmp_path / "train.yaml").write_text(imported.train)
    before, after = load_train(spec), load_train(tmp_path / "train.yaml")
    assert after.solver == before.solver
    assert after.train == before.train
    assert [getattr(layer, "type", "") for layer in after.net.layers] == [layer["type"] for layer in LAYERS]
    assert [getattr(loss, "type", "") for loss in after.net.losses] == [LOSS["type"]]
    for name in ("train", "test"):
        split = getattr(after.data, name)
        assert (getattr(split, "source", ""), split.batch_size) == ("lmdb", 8)
    kernel = after.net.layers[0].kernel_initializer  # type: ignore[attr-defined]  # a Conv2D
    assert (kernel.scale, kernel.mode, kernel.distribution) == (1.0, "fan_avg", "uniform")


def test_the_state_of_a_solver_has_caffes_layout(tmp_path):
    """Statistics have a history that is 0, shared arrays one."""
    layers = [
        {"name": "conv", "type": "Conv2D", "filters": 2, "kernel_size": 3, "padding": "same", "strides": 1},
        LAYERS[1],
        {"name": "again", "type": "Conv2D", "filters": 2, "kernel_size": 3, "padding": "same", "share": "conv"},
        *LAYERS[2:],
    ]
    rate = {"type": "MultiStepDecay", "initial": 0.1, "milestones": [5, 20, 30]}
    train = load_train(training(layers=layers, solver={**SGD, "learning_rate": rate}))
    net, random = Net(train.net), np.random.default_rng(2)
    slots = {
        f"solver/{name}/velocity": random.normal(size=array.shape).astype(np.float32)
        for name, array in net.states.items()
        if "moving" not in name
    }
    write_caffe(tmp_path / "m.caffemodel", replace(exportable(net, train), slots=slots, step=20))
    state = read_binary(tmp_path / "m.solverstate", "SolverState", "a state")
    assert (state["iter"], state["learned_net"], state["current_step"]) == (20, "m.caffemodel", 1)
    assert len(state["history"]) == 2 + 3 + 2 + 2
    write_caffe(tmp_path / "m.caffemodel.h5", replace(exportable(net, train), slots=slots, step=20))
    with h5py.File(tmp_path / "m.solverstate.h5") as file:  # of the types that Caffe's reader takes
        assert {name: str(file[name].dtype) for name in ("iter", "current_step", "learned_net")} == {
            "iter": "int32", "current_step": "int32", "learned_net": "|S16",
        }  # fmt: skip
        assert file["iter"].shape == (1,)
        assert file["learned_net"][()] == b"m.caffemodel.h5"
        for index, blob in enumerate(state["history"]):
            np.testing.assert_array_equal(file[f"history/{index}"], blob_array(blob))
    imported = read_solver(tmp_path / "m_solver.prototxt", ImportOptions(weights=tmp_path / "m.solverstate"))
    assert imported.step == 20
    assert imported.slots.keys() == slots.keys()
    for name, array in slots.items():
        np.testing.assert_array_equal(imported.slots[name], array)


RATES: dict[str, tuple[Any, dict[str, Any]]] = {
    "fixed": (0.1, {"base_lr": 0.1}),
    "step": ({"type": "StepDecay", "initial": 0.1, "gamma": 0.5, "step_size": 7}, {"gamma": 0.5, "stepsize": 7}),
    "multistep": ({"type": "MultiStepDecay", "initial": 0.1, "milestones": [5, 9]}, {"stepvalue": [5, 9]}),
    "exp": ({"type": "ExponentialDecay", "initial": 0.1, "decay_rate": 0.25, "decay_steps": 2}, {"gamma": 0.5}),
    "inv": (
        {"type": "InverseTimeDecay", "initial": 0.1, "decay_rate": 0.5, "decay_steps": 5, "power": 0.75},
        {"gamma": 0.1, "power": 0.75},
    ),
    "poly": ({"type": "PolynomialDecay", "initial": 0.1, "end": 0.0, "power": 2}, {"power": 2.0}),
    "sigmoid": (
        {"type": "SigmoidDecay", "initial": 0.1, "gamma": -0.5, "step_size": 9},
        {"gamma": -0.5, "stepsize": 9},
    ),
}  # fmt: skip


@pytest.mark.parametrize("policy", RATES)
def test_schedules_become_policies(tmp_path, policy):
    rate, expected = RATES[policy]
    written(tmp_path, training(solver={**SGD, "learning_rate": rate}))
    solver = solver_of(tmp_path)
    assert solver["lr_policy"] == policy
    for name, value in expected.items():
        assert solver[name] == pytest.approx(value)


SOLVERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "SGD", "momentum": 0.9, "nesterov": True}, {"type": "Nesterov", "momentum": 0.9}),
    ({"type": "SGD", "weight_decay": 0.01, "weight_decay_norm": "L1"},
     {"weight_decay": 0.01, "regularization_type": "L1"}),
    ({"type": "SGD", "global_clipnorm": 2.0}, {"clip_gradients": 6.0, "iter_size": 3}),
    ({"type": "Adagrad", "initial_accumulator_value": 0.0, "epsilon_in_root": False, "epsilon": 0.1},
     {"type": "AdaGrad", "delta": 0.1}),
    ({"type": "RMSprop", "rho": 0.8, "epsilon_in_root": False, "epsilon": 0.1},
     {"type": "RMSProp", "rms_decay": 0.8, "delta": 0.1}),
    ({"type": "Adadelta", "rho": 0.8, "epsilon": 0.1}, {"type": "AdaDelta", "momentum": 0.8, "delta": 0.1}),
    ({"type": "Adam", "beta_1": 0.8, "beta_2": 0.9, "epsilon": 0.1},
     {"type": "Adam", "momentum": 0.8, "momentum2": 0.9, "delta": 0.1}),
]  # fmt: skip


@pytest.mark.parametrize(("solver", "expected"), SOLVERS, ids=lambda one: str(one.get("type", "SGD")))
def test_solvers_are_those_of_caffe(tmp_path, solver, expected):
    written(tmp_path, training(solver={"learning_rate": 0.1, **solver}, accumulate=expected.get("iter_size", 1)))
    written_solver = solver_of(tmp_path)
    assert {name: written_solver[name] for name in expected} == pytest.approx(expected)


UNLIKE: dict[str, dict[str, Any]] = {
    "Caffe has no solver Lion": {"type": "Lion"},
    "Caffe's RMSProp has `epsilon_in_root: false`, not `true`": {"type": "RMSprop"},
    "Caffe's Adam has `amsgrad: false`, not `true`": {"type": "Adam", "amsgrad": True},
    "Caffe keeps no average of the weights": {**SGD, "ema": 0.99},
    "Caffe clips all gradients together, by `global_clipnorm`": {**SGD, "clipnorm": 1.0},
    "Caffe's momentum must be a number: `momentum` is a schedule": {
        **SGD, "momentum": {"type": "CyclicLR", "initial": 0.9, "peak": 0.8},
    },
    "Caffe's decay is a part of the gradient": {**SGD, "weight_decay": 0.1, "decoupled_weight_decay": True},
    "Caffe has no policy like CosineDecay": {**SGD, "learning_rate": {"type": "CosineDecay", "initial": 0.1}},
    "Caffe has one solver and one rate, times a factor for each parameter": {
        **SGD, "groups": [{"match": "*/bias", "learning_rate": 0.2}],
    },
}  # fmt: skip


def test_everything_that_caffe_lacks_is_reported_before_training(tmp_path):
    layers = [
        {**LAYERS[0], "kernel_regularizer": {"type": "L2", "l2": 0.1}, "kernel_initializer": "he_normal"},
        {"type": "GaussianNoise", "name": "noise", "stddev": 0.1}, *LAYERS[1:],
    ]  # fmt: skip
    spec = training(
        layers=layers, solver={**UNLIKE["Caffe has no solver Lion"], "ema": 0.99}, max_steps=None, max_epochs=1
    )
    train = load_train(spec)
    exported = exportable(Net(train.net), train)
    lost = preflight_caffe(replace(exported, arrays={}), ExportOptions())
    assert lost.problems == ()
    net, solver = lost.notes
    assert "`kernel_regularizer` of `conv` cannot be written for Caffe" in net
    assert "`noise` (GaussianNoise) cannot be written" in net
    assert solver == (
        "small_solver.prototxt is not written: Caffe has no solver Lion; "
        "Caffe counts steps, not epochs: give `train.max_steps`; Caffe keeps no average of the weights"
    )
    assert write_caffe(tmp_path / "small.prototxt", exported) == lost.notes  # the same words, from the same place


@pytest.mark.parametrize("reason", UNLIKE)
def test_a_solver_that_caffe_lacks_is_noted(tmp_path, reason):
    (note,) = written(tmp_path, training(solver=UNLIKE[reason]))
    assert note == f"m_solver.prototxt is not written: {reason}"
    assert (tmp_path / "m_train_val.prototxt").exists()
    assert not (tmp_path / "m_solver.prototxt").exists()


def test_groups_and_layers_say_the_multipliers(tmp_path):
    layers = [{**LAYERS[0], "learning_rate_multiplier": {"bias": 2}}, *LAYERS[1:3], {**LAYERS[3], "trainable": False}]
    groups = [{"match": "conv/*", "learning_rate_multiplier": 3, "weight_decay": 0.02}]
    written(tmp_path, training(layers=layers, solver={**SGD, "weight_decay": 0.01, "groups": groups}))
    rates = [(param["lr_mult"], param["decay_mult"]) for param in layer_of(tmp_path, "conv")["param"]]
    assert rates == [(3, 2), (6, 2)]
    assert [param["lr_mult"] for param in layer_of(tmp_path, "fc")["param"]] == [0, 0]


LOSSES: list[tuple[dict[str, Any], str, float]] = [
    ({"type": "SparseCategoricalCrossentropy", "from_logits": True, "reduction": "batch_size"}, "SoftmaxWithLoss", 1),
    ({"type": "MultinomialLogistic"}, "MultinomialLogisticLoss", 1),
    ({"type": "OneVsRestHinge", "norm": "L2", "weight": 0.5}, "HingeLoss", 0.5),
]


@pytest.mark.parametrize(("loss", "kind", "weight"), LOSSES, ids=lambda one: str(one)[:40])
def test_losses_of_classes(tmp_path, loss, kind, weight):
    assert written(tmp_path, training(losses=[{**loss, "from": ["fc", "label"], "name": "loss"}])) == ()
    layer = layer_of(tmp_path, "loss")
    assert layer["type"] == kind
    assert (list(layer["loss_weight"]) or [1]) == [weight]


@pytest.mark.parametrize(
    ("type_", "fields", "kind", "factor"),
    [
        ("MeanSquaredError", {}, "EuclideanLoss", 2 / 3),
        ("Euclidean", {}, "EuclideanLoss", 1),
        ("BinaryCrossentropy", {"from_logits": True, "reduction": "batch_size"}, "SigmoidCrossEntropyLoss", 1 / 3),
        ("BinaryCrossentropy", {"from_logits": True}, "SigmoidCrossEntropyLoss", 1),
    ],
)
def test_losses_of_values(tmp_path, type_, fields, kind, factor):
    spec = training(losses=[{"type": type_, "from": ["fc", "label"], "name": "loss", **fields}], metrics=[])
    spec["net"]["inputs"]["label"] = {"shape": [3]}
    written(tmp_path, spec)
    layer = layer_of(tmp_path, "loss")
    assert layer["type"] == kind
    assert (list(layer["loss_weight"]) or [1]) == pytest.approx([factor])
    if kind == "SigmoidCrossEntropyLoss":  # without the field, this layer divides by the batch size
        expected = fields.get("reduction", "valid").upper()
        assert layer["loss_param"].get("normalization", None) == expected


def test_the_matrix_of_a_loss_is_a_file(tmp_path):
    loss = {
        "type": "InfoGain", "from": ["fc", "label"], "from_logits": True, "name": "loss",
        "matrix": [[1.0, 0.25, 0.0], [0.0, 2.0, 0.5], [0.0, 0.0, 1.0]],
    }  # fmt: skip
    assert written(tmp_path, training(losses=[loss])) == ()
    assert layer_of(tmp_path, "loss")["infogain_loss_param"]["source"] == "m_loss.binaryproto"
    imported = read_solver(tmp_path / "m_solver.prototxt", ImportOptions(weights=tmp_path / "m.caffemodel"))
    (again,) = load_net(parse_yaml(imported.net, "net.yaml")).losses
    assert (again.type, again.matrix, again.from_logits) == ("InfoGain", loss["matrix"], True)  # type: ignore[attr-defined]  # of InfoGain


def test_obstacles_to_training_are_noted(tmp_path):
    layers = [{**LAYERS[0], "kernel_regularizer": {"type": "L2", "l2": 0.1}}, *LAYERS[1:]]
    loss = {**LOSS, "label_smoothing": 0.1}
    (note,) = written(tmp_path, training(layers=layers, losses=[loss]))
    assert note.startswith("m_train_val.prototxt is not written: ")
    assert "`kernel_regularizer` of `conv` cannot be written for Caffe" in note
    assert "Caffe's losses do not smooth labels" in note
    assert (tmp_path / "m.prototxt").exists()


IMAGES = {"source": "image_folder", "path": "photos", "list": "train.txt", "size": [6, 6], "batch_size": 8}
SPLITS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "numbers": (
        {**DATA, "transforms": [
            {"type": "RandomCrop", "height": 6, "width": 6}, {"type": "RandomFlip", "mode": "horizontal"},
            {"type": "Normalization", "mean": [10.0, 20.0], "variance": 4.0}, {"type": "Rescaling", "scale": 0.5},
        ]},
        "Data", {"crop_size": 6, "mirror": True, "mean_value": [10.0, 20.0], "scale": 0.25},
    ),
    "an offset": (
        {**DATA, "transforms": [{"type": "Rescaling", "scale": 0.5, "offset": -2.0}]},
        "Data", {"mean_value": [4.0], "scale": 0.5},
    ),
    "a mean image": (
        {**DATA, "transforms": [{"type": "MeanImage", "file": "m.binaryproto"}]},
        "Data", {"mean_file": "m.binaryproto"},
    ),
    "images by a list": ({**IMAGES, "shuffle": True, "transforms": [{"type": "ReverseChannels"}]}, "ImageData", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPLITS)
def test_data_layers_have_transforms(tmp_path, name):
    split, kind, expected = SPLITS[name]
    written(tmp_path, training(data={"train": split}, metrics=[]))
    layer = layer_of(tmp_path, "train_data")
    assert (layer["type"], list(layer["top"])) == (kind, ["image", "label"])
    param = layer["transform_param"]
    assert {field: list(param[field]) if field == "mean_value" else param[field] for field in param} == expected


OTHER_DATA: dict[str, dict[str, Any]] = {
    "Caffe does not read `source: mnist`": {"source": "mnist", "split": "train", "batch_size": 8},
    "Caffe reads an LMDB in its order, not shuffled": {**DATA, "shuffle": True},
    "Caffe does not transform images as RandomRotation does here": {
        **DATA, "transforms": [{"type": "RandomRotation", "factor": 0.1}],
    },
    "Caffe reads images as blue, green, red: without ReverseChannels the net was trained otherwise": IMAGES,
}  # fmt: skip


@pytest.mark.parametrize("reason", OTHER_DATA)
def test_data_that_caffe_has_no_layer_for_is_read_from_hdf5(tmp_path, reason):
    notes = written(tmp_path, training(data={"train": OTHER_DATA[reason]}, metrics=[]))
    assert notes[0].startswith(f"TRAIN: {reason}: write image, label as the net takes them into HDF5 files")
    layer = layer_of(tmp_path, "train_data")
    assert (layer["type"], layer["hdf5_data_param"]["source"]) == ("HDF5Data", "train.txt")


@pytest.mark.skipif(not MODELS, reason="NETSPEC_MODELS names no folder with the models")
@pytest.mark.parametrize("name", ["mtcnn/det1", "mtcnn/det2", "lenet/lenet", "cifar10_quick/cifar10_quick"])
def test_real_nets_come_back(tmp_path, name):
    """To the last bit: the same layers with the same weights."""
    assert MODELS is not None
    path = Path(MODELS, "caffe", f"{name}.prototxt")
    (weights,) = [file for file in path.parent.glob(f"{path.stem}*.caffemodel*") if "reference" not in file.name]
    imported = read_prototxt(path, ImportOptions(weights=weights))
    (tmp_path / "net.yaml").write_text(imported.net)
    before = Net(load_net(tmp_path / "net.yaml"), imported.arrays)
    write_caffe(tmp_path / "m.caffemodel", exportable(before))
    again = read_prototxt(tmp_path / "m.prototxt", ImportOptions(weights=tmp_path / "m.caffemodel"))
    (tmp_path / "again.yaml").write_text(again.net)
    after = Net(load_net(tmp_path / "again.yaml"), again.arrays)
    inputs = inputs_of(before, size=1)
    expected, actual = before.predict(inputs), after.predict(inputs)
    assert expected.keys() == actual.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(actual[key], array)

"""`netspec import solver.prototxt`: the net, its phases and its data; and states of solvers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import netspec.data
import netspec.solvers  # noqa: F401  # what training files name is found through both
from netspec.errors import InputError
from netspec.exchange.formats.caffe.proto.binary import encode
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.solver.reading import read_solver
from netspec.exchange.formats.registry import format_of
from netspec.exchange.interface import Imported, ImportOptions
from netspec.schema.load import load_train
from netspec.schema.specs.train import TrainSpec

MODELS = os.environ.get("NETSPEC_MODELS")
real = pytest.mark.skipif(not MODELS, reason="NETSPEC_MODELS names no folder with the models")

NET = """
name: "small"
layer {
  name: "d" type: "MemoryData" top: "data" top: "label" include { phase: TRAIN }
  memory_data_param { batch_size: 6 channels: 2 height: 3 width: 3 }
}
layer {
  name: "d" type: "MemoryData" top: "data" top: "label" include { phase: TEST stage: "all" }
  memory_data_param { batch_size: 4 channels: 2 height: 3 width: 3 }
}
layer {
  name: "ip" type: "InnerProduct" bottom: "data" top: "ip" param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
"""
LAYERS = ["\nlayer {" + part for part in NET.split("\nlayer {")[1:]]
SOLVER = 'base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 50\n'


def imported(folder: Path, solver: str, weights: Path | None = None, **files: str) -> Imported:
    for name, text in files.items():
        (folder / f"{name}.prototxt").write_text(text)
    (folder / "solver.prototxt").write_text(solver)
    assert format_of(folder / "solver.prototxt").name == "caffe_solver"
    return read_solver(folder / "solver.prototxt", ImportOptions(weights=weights))


def loaded(folder: Path, result: Imported) -> TrainSpec:
    """Load the training as netspec reads it."""
    (folder / "net.yaml").write_text(result.net)
    (folder / "train.yaml").write_text(result.train)
    return load_train(folder / "train.yaml")


def test_a_net_in_the_same_folder_with_its_tests(tmp_path):
    solver = SOLVER + 'net: "examples/small.prototxt" test_iter: 3 test_interval: 10 test_state { stage: "all" }'
    result = imported(tmp_path, solver, small=NET)
    assert result.train == (
        "# Imported from solver.prototxt\n"
        "netspec: 1\n"
        "net: net.yaml\n"
        "data:\n"
        "  train: {source: python, fields: [data, label], batch_size: 6}\n"
        "  test: {source: python, fields: [data, label], batch_size: 4, limit: 12}\n"
        "solver: {type: SGD, learning_rate: 0.1, momentum: 0.9}\n"
        "train: {max_steps: 50, test_every: 10, checkpoint_every: 0}\n"
    )
    spec = loaded(tmp_path, result)
    (layer,) = [layer for layer in spec.net.layers if layer.name == "ip"]
    assert layer.learning_rate_multiplier == {"bias": 2}
    assert layer.weight_decay_multiplier == {"bias": 0}
    assert [metric.name for metric in spec.net.metrics] == ["accuracy"]


def test_without_test_data_the_net_is_built_for_training(tmp_path):
    spec = loaded(tmp_path, imported(tmp_path, SOLVER + 'net: "small.prototxt"', small=NET))
    assert spec.data.test is None
    assert spec.net.metrics == []


def test_a_net_within_the_solver(tmp_path):
    spec = loaded(tmp_path, imported(tmp_path, SOLVER + f"net_param {{ {NET} }}"))
    assert spec.net.name == "small"


def test_nets_of_their_own_for_training_and_tests(tmp_path):
    data, _, ip, loss, accuracy = LAYERS
    train = f'name: "small" {data} {ip} {loss}'
    test = f'name: "small" {data.replace("TRAIN", "TEST").replace("6", "4")} {ip} {accuracy}'
    solver = SOLVER + 'train_net: "train.prototxt" test_net: "test.prototxt" test_iter: 2 test_interval: 5'
    spec = loaded(tmp_path, imported(tmp_path, solver, train=train, test=test))
    assert spec.data.train.batch_size == 6
    assert spec.data.test is not None
    assert (spec.data.test.batch_size, spec.data.test.limit) == (4, 8)
    assert [metric.name for metric in spec.net.metrics] == ["accuracy"]
    assert [layer.name for layer in spec.net.layers if layer.name.startswith("ip")] == ["ip_flatten", "ip"]


def test_of_several_tests_the_first_is_taken(tmp_path):
    net = NET.replace('stage: "all"', "")
    solver = SOLVER + (
        'net: "small.prototxt" test_iter: 3 test_iter: 4 test_interval: 10 '
        'test_state { stage: "some" } test_state { stage: "all" }'
    )
    result = imported(tmp_path, solver, small=net)
    assert "only the first of the tests some, all is imported: a training file has one test split" in result.notes


def test_the_run_is_called_as_its_snapshots(tmp_path):
    for prefix, name in (("examples/first try", "first_try"), ("examples/small", None)):
        result = imported(tmp_path, SOLVER + f'net: "small.prototxt" snapshot_prefix: "{prefix}"', small=NET)
        assert loaded(tmp_path, result).name == name


def test_shapes_come_from_a_net_in_the_same_folder(tmp_path):
    data = 'layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 2 } }'
    net = "".join(['name: "small"', data, *LAYERS[2:]])
    deploy = 'input: "data" input_shape { dim: 1 dim: 2 dim: 3 dim: 3 }' + LAYERS[2]
    other = deploy.replace("dim: 3 dim: 3", "dim: 9 dim: 9").replace('"ip"', '"fc"')
    result = imported(tmp_path, SOLVER + 'net: "small.prototxt"', small=net, deploy=deploy, another=other)
    assert "the shape of `data`, [2, 3, 3], is that of deploy.prototxt next to the net" in result.notes
    (tmp_path / "deploy.prototxt").unlink()
    with pytest.raises(InputError, match="the shape of the input `data` is not in the file"):
        imported(tmp_path, SOLVER + 'net: "small.prototxt"', small=net)


WRONG = {
    "": ("the solver names no net to train", "one of net, net_param, train_net, train_net_param"),
    'net: "small.prototxt" train_net: "small.prototxt"': ("the solver names two nets to train", "one of net"),
    'net: "other/missing.prototxt"': ("solver.prototxt names a net that does not exist", "other/missing.prototxt"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_solver_without_its_net(tmp_path, text):
    with pytest.raises(InputError) as error:
        imported(tmp_path, SOLVER + text, small=NET)
    (problem,) = error.value.problems
    message, expected = WRONG[text]
    assert message in problem.message
    assert problem.expected is not None
    assert expected in problem.expected


def test_problems_of_the_solver_and_of_its_net_are_reported_together(tmp_path):
    broken = NET.replace('type: "InnerProduct"', 'type: "InnerProdukt"')
    with pytest.raises(InputError) as error:
        imported(tmp_path, 'base_lr: 0.1 lr_policy: "cosine" max_iter: 5 net: "small.prototxt"', small=broken)
    assert len(error.value.problems) == 2


# States


def weights_of(folder: Path, kernel: np.ndarray, bias: np.ndarray) -> Path:
    with h5py.File(folder / "small_iter_7.caffemodel.h5", "w") as file:
        file["data/ip/0"], file["data/ip/1"] = kernel, bias
    return folder / "small_iter_7.caffemodel.h5"


def state_of(folder: Path, kind: str, history: list[np.ndarray], learned: str, step: int = 7) -> Path:
    """Write a solver state in one of Caffe's formats: HDF5, or a binary message."""
    path = folder / f"small_iter_7.solverstate{kind}"
    if kind:
        with h5py.File(path, "w") as file:
            file["iter"], file["current_step"] = np.array([step], np.int32), np.array([0], np.int32)
            file["learned_net"] = learned
            for index, array in enumerate(history):
                file[f"history/{index}"] = array
        return path
    message = Message("SolverState", iter=step, learned_net=learned)
    for array in history:
        blob = Message("BlobProto", shape=Message("BlobShape", dim=list(array.shape)), data=array.reshape(-1))
        message.add("history", blob)
    path.write_bytes(encode(message))
    return path


SLOTS = {
    "SGD": ({"velocity": -1.0}, "momentum: 0.9"),
    "Nesterov": ({"velocity": -1.0}, "momentum: 0.9"),
    "AdaGrad": ({"accumulator": 1.0}, ""),
    "RMSProp": ({"second_moment": 1.0}, ""),
    "AdaDelta": ({"accumulator": 1.0, "delta_accumulator": 1.0}, "momentum: 0.9"),
    "Adam": ({"first_moment": 1.0, "second_moment": 1.0}, "momentum: 0.9"),
}


@pytest.mark.parametrize("kind", ["", ".h5"])
@pytest.mark.parametrize("type_", SLOTS)
def test_the_history_becomes_slots(tmp_path, type_, kind):
    """The history has all first slots, then all second slots; matrices of InnerProduct are transposed."""
    random = np.random.default_rng(1)
    slots, more = SLOTS[type_]
    shapes = [(5, 18), (5,)] * len(slots)
    history = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    weights_of(tmp_path, random.normal(size=(5, 18)).astype(np.float32), np.zeros(5, np.float32))
    state = state_of(tmp_path, kind, history, "models/small_iter_7.caffemodel.h5")
    assert format_of(state).name == "solverstate"
    solver = f'base_lr: 0.1 lr_policy: "fixed" max_iter: 50 type: "{type_}" {more} net: "small.prototxt"'
    result = imported(tmp_path, solver, state, small=NET)
    assert result.step == 7
    assert result.arrays["ip/kernel"].shape == (18, 5)
    expected: dict[str, Any] = {}
    for part, (slot, factor) in enumerate(slots.items()):
        expected[f"solver/ip/kernel/{slot}"] = factor * history[2 * part].T
        expected[f"solver/ip/bias/{slot}"] = factor * history[2 * part + 1]
    assert result.slots.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(result.slots[name], array)


def test_untrained_parameters_have_no_slots(tmp_path):
    history = [np.ones((5, 18), np.float32), np.ones(5, np.float32)]
    weights_of(tmp_path, *history)
    state = state_of(tmp_path, ".h5", history, "small_iter_7.caffemodel.h5")
    frozen = NET.replace("lr_mult: 2 decay_mult: 0", "lr_mult: 0")
    assert [*imported(tmp_path, SOLVER + 'net: "small.prototxt"', state, small=frozen).slots] == [
        "solver/ip/kernel/velocity"
    ]
    plain = SOLVER.replace("momentum: 0.9", "")
    assert imported(tmp_path, plain + 'net: "small.prototxt"', state, small=NET).slots == {}


def damaged(folder: Path, name: str) -> Path:
    weights_of(folder, np.ones((5, 18), np.float32), np.ones(5, np.float32))
    history = [np.ones((5, 18), np.float32), np.ones(5, np.float32)]
    learned = "small_iter_7.caffemodel.h5"
    match name:
        case "too few":
            return state_of(folder, ".h5", history[:1], learned)
        case "other shapes":
            return state_of(folder, "", [history[1], history[0]], learned)
        case "no weights":
            return state_of(folder, "", history, "elsewhere.caffemodel")
        case "unnamed weights":
            return state_of(folder, ".h5", history, "")
        case "before the start":
            return state_of(folder, ".h5", history, learned, step=-3)
        case "cut short":
            path = state_of(folder, "", history, learned)
            path.write_bytes(path.read_bytes()[:-5])
            return path
        case "a link":
            path = state_of(folder, ".h5", history, learned)
            with h5py.File(path, "a") as file:
                del file["history/1"]
                file["history/1"] = h5py.ExternalLink("/etc/passwd", "x")
            return path
        case "a group":
            path = state_of(folder, ".h5", history[:1], learned)
            with h5py.File(path, "a") as file:
                file.create_group("history/1")
            return path
        case "a bomb":
            path = state_of(folder, ".h5", history[:1], learned)
            with h5py.File(path, "a") as file:
                file.create_dataset("history/1", (2**40,), "f4", chunks=(2**20,))
            return path
    path = state_of(folder, ".h5", history, learned)
    path.write_bytes(path.read_bytes()[:900])
    return path


DAMAGED = {
    "too few": "is the state of another net or solver",
    "other shapes": "is the state of another net",
    "no weights": "names weights that does not exist: elsewhere.caffemodel",
    "unnamed weights": "does not name its weights",
    "before the start": "is not the state of a solver",
    "cut short": "small_iter_7.solverstate",
    "a link": "is refused: 'history/1' is a link, not stored here",
    "a bomb": "is refused",
    "a group": "is refused: 'history/1' is not an array",
    "half of the file": "small_iter_7.solverstate.h5",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_or_foreign_states(tmp_path, name):
    with pytest.raises(InputError) as error:
        imported(tmp_path, SOLVER + 'net: "small.prototxt"', damaged(tmp_path, name), small=NET)
    assert DAMAGED[name] in str(error.value)


# Real files


@real
def test_all_solvers_of_bvlc_import():
    assert MODELS is not None
    solvers = sorted(Path(MODELS, "caffe/bvlc").rglob("*solver*.prototxt"))
    assert len(solvers) == 25
    open_sizes = {"data": (784,), "pair_data": (2, 28, 28)}
    for path in solvers:
        if path.name == "lenet_auto_solver.prototxt":  # a notebook creates its nets
            with pytest.raises(InputError, match=r"names a net that does not exist: mnist/lenet_auto_train\.prototxt"):
                read_solver(path, ImportOptions())
            continue
        unknown = "autoencoder" in path.name or "siamese" in path.name
        result = read_solver(path, ImportOptions(shapes=open_sizes if unknown else {}))
        assert result.train.startswith(f"# Imported from {path.name}"), path


@real
def test_a_real_state_resumes(tmp_path):
    assert MODELS is not None
    solver = Path(MODELS, "caffe/bvlc/examples/cifar10/cifar10_quick_solver_lr1.prototxt")
    state = Path(MODELS, "caffe/cifar10_quick/cifar10_quick_iter_5000.solverstate.h5")
    result = read_solver(solver, ImportOptions(weights=state))
    assert result.step == 5000
    assert result.slots.keys() == {f"solver/{name}/velocity" for name in result.arrays}
    with h5py.File(state, "r") as file:
        np.testing.assert_array_equal(result.slots["solver/ip2/kernel/velocity"], -file["history/8"][()].T)
    assert loaded(tmp_path, result).train.max_steps == 5000

"""Import of the compiled training and its state: the next step equals Keras's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest

import netspec.solvers  # noqa: F401  registers the solvers
from netspec.cli import main
from netspec.compile import LEARNING_RATE, STEP, Compiler, ProgramKind
from netspec.exchange.formats.keras.importing.fields import ReadContext
from netspec.exchange.formats.keras.importing.optimizer import keras_matrices, solver_of
from netspec.exchange.formats.keras.names import to_keras, variables
from netspec.exchange.importing import import_model
from netspec.exchange.unsupported import UnsupportedFeature
from netspec.schema.load import load_train
from netspec.schema.specs.kinds import LAYERS
from tests.exchange.formats.keras.recorded import FILES
from tests.exchange.formats.keras.written import archive, layer, new, new_model, old_file, sequential, tree
from tests.peers.keras_nets import OPTIMIZERS, batch
from tests.peers.recordings import load_answers

TRAINED = [*(f"trained_{name}.keras" for name in OPTIMIZERS), "trained_adam.h5"]
LAYERS_OF_IT = {
    "conv2d": {"type": "Conv2D", "filters": 3, "kernel_size": 3},
    "batch_normalization": {"type": "BatchNormalization"},
    "classes": {"type": "Dense", "units": 4},
}


@pytest.mark.parametrize("name", TRAINED)
def test_the_next_step_equals_keras(name: str, tmp_path: Path) -> None:
    """Keras took three steps and a fourth, which must equal netspec's: weights, moving averages and slots matter."""
    imported = import_model(FILES / name)
    (tmp_path / "net.yaml").write_text(imported.net, encoding="utf-8")
    (tmp_path / "train.yaml").write_text(imported.train, encoding="utf-8")
    spec = load_train(tmp_path / "train.yaml")
    solver: Any = spec.solver
    compiler = Compiler(spec.net, solver=solver, device="reference", loop=spec.train)
    states = imported.arrays | imported.slots
    assert set(compiler.names("parameter", "statistic", "slot")) == set(states)
    for key, array in states.items():
        compiler.states.assign(key, array)
    images, labels = batch(3)
    assert imported.step == 3
    program = compiler.program(ProgramKind.TRAIN, len(images))
    rate = np.array(solver.learning_rate.value(imported.step, 100), np.float32)
    program({"image": np.moveaxis(images, -1, 1), "target": labels, LEARNING_RATE: rate, STEP: np.array(4.0)})
    after = load_answers(f"keras/{name.partition('.')[0]}")
    compared = 0
    (factored,) = [note for note in imported.notes if note.startswith("Adafactor keeps")] or [""]
    assert ("for `conv2d/kernel`: they go on" in factored) == ("adafactor" in name)
    for name_of_layer, fields in LAYERS_OF_IT.items():
        state_names = [key.partition("/")[2] for key in imported.arrays if key.startswith(f"{name_of_layer}/")]
        for field in variables(LAYERS.parse(fields), state_names):
            keys = [key for key in after if key.startswith("after_") and key.endswith(f"/{field.name}")]
            (expected,) = [after[key] for key in keys if name_of_layer in key]
            actual = to_keras(np.asarray(compiler.states[f"{name_of_layer}/{field.state}"]), field)
            # Rows are in the order (C, H, W) here, (H, W, C) in Keras.
            if name_of_layer == "classes" and field.state == "kernel":
                actual = actual.reshape(3, 3, 2, 4).transpose(1, 2, 0, 3).reshape(18, 4)
            compared += 1
            if f"`{name_of_layer}/{field.state}`" in factored:  # the note says that this update rule differs
                continue
            # A step changes weights by some 1e-2; sums in another order differ by 1e-6 of that.
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6, err_msg=f"{name_of_layer}/{field.state}")
    assert compared == len(imported.arrays)


def test_a_training_file_has_the_solver_and_notes_missing_data() -> None:
    imported = import_model(FILES / "trained_sgd.keras")
    assert imported.train.startswith("# Imported from trained_sgd.keras (Keras ")
    assert (
        "solver:\n  type: SGD\n  learning_rate: {type: CosineDecay, initial: 0.1, decay_steps: 20}\n  momentum: 0.9\n"
        in imported.train
    )
    assert "losses:\n  - {type: SparseCategoricalCrossentropy, from: [classes, target]}\n" in imported.net
    assert "metrics:\n  - {type: SparseCategoricalAccuracy, from: [classes, target]}\n" in imported.net
    assert any("the file does not name the data" in note for note in imported.notes)


def test_a_model_that_was_not_compiled_has_no_training_file() -> None:
    imported = import_model(FILES / "images.keras")
    assert (imported.train, imported.slots, imported.step) == ("", {}, 0)


def optimizer(name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": name, "config": {"name": name.lower(), **config}}


@pytest.mark.parametrize(
    ("setting", "solver", "loop"),
    [
        ("adam", {"type": "Adam", "learning_rate": 0.001}, {}),
        (optimizer("SGD", lr=0.1, decay=0.01), {"type": "SGD", "learning_rate": {
            "type": "InverseTimeDecay", "initial": 0.1, "decay_rate": 0.01, "decay_steps": 1}}, {}),
        (optimizer("AdamW", learning_rate=0.01, weight_decay=0.004), {"type": "AdamW", "learning_rate": 0.01}, {}),
        (optimizer("Adam", learning_rate=0.01, weight_decay=0.1, use_ema=True, ema_momentum=0.9), {
            "type": "Adam", "learning_rate": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True,
            "ema": {"decay": 0.9}}, {}),
        (optimizer("Adamax", learning_rate=0.01, gradient_accumulation_steps=4), {
            "type": "Adamax", "learning_rate": 0.01}, {"accumulate": 4}),
        ({"class_name": "LossScaleOptimizer", "config": {"inner_optimizer": optimizer("SGD", learning_rate=0.5),
                                                         "initial_scale": 128.0, "dynamic_growth_steps": 10}},
         {"type": "SGD", "learning_rate": 0.5}, {"loss_scale": {"initial": 128.0, "growth_steps": 10}}),
        (optimizer("Muon", learning_rate=0.01, muon_a=2.0, weight_decay=None, adam_weight_decay=None, rms_rate=None), {
            "type": "Muon", "learning_rate": 0.01, "ns_coefficients": [2.0, -4.775, 2.0315], "weight_decay": 0.0,
            "adam_weight_decay": 0.0, "rms_rate": None}, {}),
        (optimizer("SGD", learning_rate={"class_name": "CosineDecay", "config": {
            "initial_learning_rate": 0.0, "decay_steps": 9, "warmup_target": 0.5, "warmup_steps": 3}}),
         {"type": "SGD", "learning_rate": {"type": "Warmup", "steps": 3, "initial": 0.0,
                                           "then": {"type": "CosineDecay", "initial": 0.5, "decay_steps": 9}}}, {}),
    ],
)  # fmt: skip
def test_optimizers_are_solvers(setting: Any, solver: dict[str, Any], loop: dict[str, Any]) -> None:
    assert solver_of(setting, ReadContext()) == (solver, loop)


OLD = {
    "Nadam of TensorFlow 2.0 to 2.10": (
        "2.9.0", optimizer("Nadam", learning_rate=0.002, decay=0.01), {"learning_rate": 0.002, "momentum_decay": 0.01}),
    "Nadam of Keras up to 2.3": (
        "2.2.4", optimizer("Nadam", lr=0.002, schedule_decay=0.01), {"learning_rate": 0.002, "momentum_decay": 0.01}),
    "Nadam of Keras 2.3 by default": (
        "2.3.1", optimizer("Nadam", lr=0.002), {"learning_rate": 0.002, "momentum_decay": 0.004}),
    "Nadam since TensorFlow 2.11": ("2.15.0", optimizer("Nadam", learning_rate=0.002), {"learning_rate": 0.002}),
    "Adagrad of Keras up to 2.2": (
        "2.2.4", optimizer("Adagrad", lr=0.1, epsilon=None, decay=0.0),
        {"learning_rate": 0.1, "epsilon_in_root": False, "initial_accumulator_value": 0.0}),
    "Adagrad of TensorFlow": (
        "2.9.0", optimizer("Adagrad", learning_rate=0.1, decay=0.0, initial_accumulator_value=0.1),
        {"learning_rate": 0.1, "epsilon_in_root": False}),
    "RMSprop without momentum": (
        "2.9.0", optimizer("RMSprop", learning_rate=0.1, decay=0.0, momentum=0.0),
        {"learning_rate": 0.1, "epsilon_in_root": False}),
    "RMSprop with momentum": (
        "2.9.0", optimizer("RMSprop", learning_rate=0.1, decay=0.0, momentum=0.5),
        {"learning_rate": 0.1, "momentum": 0.5}),
    "RMSprop since TensorFlow 2.11": ("2.15.0", optimizer("RMSprop", learning_rate=0.1), {"learning_rate": 0.1}),
    "a norm of all gradients": (
        "2.2.4", optimizer("SGD", lr=0.1, clipnorm=1.0), {"learning_rate": 0.1, "global_clipnorm": 1.0}),
    "a norm of each gradient": (
        "2.9.0", optimizer("SGD", learning_rate=0.1, decay=0.0, clipnorm=1.0), {"learning_rate": 0.1, "clipnorm": 1.0}),
    "a clipping by 0": ("1.2.2", optimizer("SGD", lr=0.1, clipnorm=0, clipvalue=0.5),
                        {"learning_rate": 0.1, "clipvalue": 0.5}),
    "Nesterov's rule without momentum": (
        "3.0.0", optimizer("SGD", learning_rate=0.1, momentum=0.0, nesterov=True), {"learning_rate": 0.1}),
    "a decay that is whole": (
        "3.0.0", optimizer("SGD", learning_rate=0.1, weight_decay=1),
        {"learning_rate": 0.1, "weight_decay": 1, "decoupled_weight_decay": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_optimizers_keep_the_rules_of_their_version(name: str) -> None:
    version, setting, expected = OLD[name]
    solver, _ = solver_of(setting, ReadContext(int(version[0]), version))
    assert solver == {"type": setting["class_name"], **expected}


@pytest.mark.parametrize(("shapes", "slots"), [
    ([(), (), *[(4, 2), (2,)] * 2], 5), ([(), *[(4, 2), (2,)] * 2], 5), ([(4, 2), (2,)] * 2, 0), ([()], 0),
])  # fmt: skip
def test_states_of_an_old_nadam(shapes: list[tuple[int, ...]], slots: int, tmp_path: Path) -> None:
    """States with and without the product of momenta, without the step, and before the first step."""
    step = 2 if len(shapes) > 1 else 0
    setting = [np.full(shape, step if index == 0 else 0.25, np.float32) for index, shape in enumerate(shapes)]
    training = {"loss": "mse", "optimizer_config": optimizer("Nadam", lr=0.1, schedule_decay=0.5)}
    model = sequential(layer("Dense", name="out", units=2, batch_input_shape=[None, 4], trainable=True))
    weights = {"out": {"kernel:0": np.ones((4, 2), np.float32), "bias:0": np.ones(2, np.float32)}}
    path = old_file(tmp_path / "m.h5", model, weights, "2.3.1", training_config=training)
    with h5py.File(path, "a") as file:
        group = file.create_group("optimizer_weights")
        group.attrs["weight_names"] = [f"w{index}".encode() for index in range(len(setting))]
        for index, array in enumerate(setting):
            group[f"w{index}"] = array
    imported = import_model(path)
    assert (len(imported.slots), imported.step) == (slots, 2 if slots else 0)
    if slots:
        expected = 0.25 if shapes[1] == () else np.prod([0.9 * (1 - 0.5 * 0.96 ** (0.5 * t)) for t in (1, 2)])
        np.testing.assert_allclose(imported.slots["solver/$all/momentum_product"], expected, rtol=1e-6)
    assert any("the file does not state the step" in note for note in imported.notes) == (shapes[0] != ())


def test_a_net_without_parameters_has_no_training_file(tmp_path: Path) -> None:
    model = new_model(new("ReLU", name="out")) | {"compile_config": {"loss": "mse", "optimizer": "adam"}}
    imported = import_model(archive(tmp_path / "m.keras", model))
    assert imported.train == ""
    assert "no training file is written: no layer has parameters to train" in imported.notes


def test_keras_2_registers_its_own_optimizers() -> None:
    assert solver_of(optimizer("Custom>Adam", learning_rate=0.1), ReadContext(2))[0] == {
        "type": "Adam",
        "learning_rate": 0.1,
    }
    with pytest.raises(UnsupportedFeature, match="Addons>AdamW is a user-defined class"):
        solver_of(optimizer("Addons>AdamW"), ReadContext(2))


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("gradient_boosting", "no solver for the optimizer 'gradient_boosting'"),
        (optimizer("SGD", learning_rate={"class_name": "MySchedule", "config": {}}), "no schedule 'MySchedule'"),
        ({"class_name": "Mine", "module": "my_package", "config": {}}, "a class of the package 'my_package'"),
        (optimizer("Custom>Adam"), "Custom>Adam is a user-defined class"),
        (optimizer("Addons>AdamW"), "Addons>AdamW is a user-defined class"),
        ({**optimizer("Adam"), "module": None, "registered_name": "Adam"}, "Adam is a user-defined class"),
        (
            optimizer(
                "SGD",
                learning_rate={
                    "class_name": "CosineDecay",
                    "config": {},
                    "module": None,
                    "registered_name": "mine>CosineDecay",
                },
            ),
            "mine>CosineDecay is a user-defined",
        ),
        (3, "not described"),
    ],
)
def test_an_unknown_optimizer_is_noted(setting: Any, reason: str) -> None:
    with pytest.raises(UnsupportedFeature, match=reason):
        solver_of(setting, ReadContext())


@pytest.mark.parametrize(
    ("expressions", "moved", "left"),
    [
        (["class"], ["conv/kernel"], 0),
        (["^classes/(.*/)?kernel$", "conv"], [], 0),
        ([r"(a+)+$", "[a-z]*", "x" * 300], ["conv/kernel", "classes/kernel"], 3),
        (["conv"] * 300, ["classes/kernel"], 44),
    ],
)
def test_names_of_layers_are_excluded_and_no_slow_expression_is_run(
    expressions: list[str], moved: list[str], left: int
) -> None:
    def parameter(name: str) -> tuple[Any, Any]:
        layer = SimpleNamespace(path=("net", name), class_name="Dense")
        target = SimpleNamespace(
            configured=layer, draft=SimpleNamespace(name=name), prefix="", shapes={"kernel": (2, 3)}
        )
        return target, SimpleNamespace(state="kernel", group="", name="kernel")

    file: Any = SimpleNamespace(training={"optimizer": optimizer("Muon", exclude_layers=expressions)})
    reading = ReadContext()
    assert keras_matrices(file, [parameter("conv"), parameter("classes")], reading) == moved
    assert [note.split()[0] for note in reading.notes] == ([str(left)] if left else [])


UNTRAINABLE = {
    "a rate of 0": optimizer("SGD", learning_rate=0.0),
    "a rate below 0": optimizer("SGD", learning_rate=-0.1),
    "a rate that is none": optimizer("SGD", learning_rate=float("nan")),
    "a schedule from 0": optimizer("SGD", learning_rate={
        "class_name": "ExponentialDecay", "config": {"initial_learning_rate": 0.0, "decay_steps": 1, "decay_rate": 1}}),
    "steps that are none": optimizer("SGD", learning_rate={
        "class_name": "CosineDecay", "config": {"initial_learning_rate": 0.1, "decay_steps": "many"}}),
    "a momentum that is text": optimizer("SGD", learning_rate=0.1, momentum="high"),
    "two ways to clip": optimizer("SGD", learning_rate=0.1, clipnorm=1.0, clipvalue=1.0),
    "an average that is none": optimizer("SGD", learning_rate=0.1, use_ema=True, ema_momentum=7.0),
    "accumulation of 0.5 batches": optimizer("SGD", learning_rate=0.1, gradient_accumulation_steps=0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTRAINABLE)
def test_an_optimizer_that_netspec_refuses_keeps_no_net_from_being_imported(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"loss": "mse", "optimizer": UNTRAINABLE[name]}
    arrays = {"layers/dense/vars/0": np.ones((4, 2), np.float32), "layers/dense/vars/1": np.ones(2, np.float32)}
    model = new_model(new("Dense", name="out", units=2)) | {"compile_config": config}
    archive(tmp_path / "m.keras", model, tree(arrays))
    assert main(["import", str(tmp_path / "m.keras"), "--output", str(tmp_path / "out")]) == 0
    assert "note: no training file is written, since netspec does not support it: " in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["net.yaml", "weights.h5"]


def test_the_rate_at_the_end_of_training_is_imported(tmp_path: Path) -> None:
    """The configuration contains only `compile("adam")`, even if a callback has changed the learning rate."""
    arrays = {"layers/dense/vars/0": np.ones((4, 2), np.float32), "layers/dense/vars/1": np.ones(2, np.float32)}
    slots = [
        np.array(5),
        np.array(2.5e-5, np.float32),
        *(np.zeros_like(array) for array in arrays.values() for _ in "mv"),
    ]
    arrays |= {f"optimizer/vars/{index}": slot for index, slot in enumerate(slots)}
    model = new_model(new("Dense", name="out", units=2)) | {"compile_config": {"loss": "mse", "optimizer": "adam"}}
    imported = import_model(archive(tmp_path / "m.keras", model, tree(arrays)))
    assert "solver: {type: Adam, learning_rate: 2.5e-05}" in imported.train
    assert (imported.step, len(imported.slots)) == (5, 4)

"""What a model was compiled with, and how far it was trained: the next step is the one that Keras takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import netspec.solvers  # noqa: F401  registers the solvers
from netspec.compile import LEARNING_RATE, STEP, Compiler, Purpose
from netspec.exchange.importing import import_model
from netspec.exchange.keras_import.fields import Reading, Unsupported
from netspec.exchange.keras_import.orthogonal import matrices_there
from netspec.exchange.keras_import.solving import solver_of
from netspec.exchange.keras_names import to_keras, variables
from netspec.schema.kinds import LAYERS
from netspec.schema.load import load_train
from tests.exchange.keras.recorded import FILES
from tests.peers.keras_nets import OPTIMIZERS, batch

TRAINED = [*(f"trained_{name}.keras" for name in OPTIMIZERS), "trained_adam.h5"]
LAYERS_OF_IT = {
    "conv2d": {"type": "Conv2D", "filters": 3, "kernel_size": 3},
    "batch_normalization": {"type": "BatchNormalization"},
    "classes": {"type": "Dense", "units": 4},
}


@pytest.mark.parametrize("name", TRAINED)
def test_the_next_step_is_that_of_keras(name: str, tmp_path: Path) -> None:
    """Three steps in Keras, the fourth in both: weights, moving averages and slots all count in it."""
    found = import_model(FILES / name)
    (tmp_path / "net.yaml").write_text(found.net, encoding="utf-8")
    (tmp_path / "train.yaml").write_text(found.train, encoding="utf-8")
    spec = load_train(tmp_path / "train.yaml")
    solver: Any = spec.solver
    compiler = Compiler(spec.net, solver=solver, device="reference", loop=spec.train)
    states = found.arrays | found.slots
    assert set(compiler.names("parameter", "statistic", "slot")) == set(states)
    for key, array in states.items():
        compiler.states.assign(key, array)
    images, labels = batch(3)
    assert found.step == 3
    program = compiler.program(Purpose.TRAIN, len(images))
    rate = np.array(solver.learning_rate.value(found.step, 100), np.float32)
    program({"image": np.moveaxis(images, -1, 1), "target": labels, LEARNING_RATE: rate, STEP: np.array(4.0)})
    after = np.load(FILES / f"{name.partition('.')[0]}.npz")
    compared = 0
    (factored,) = [note for note in found.notes if note.startswith("Adafactor keeps")] or [""]
    assert ("for `conv2d/kernel`: they go on" in factored) == ("adafactor" in name)
    for layer, fields in LAYERS_OF_IT.items():
        own = [key.partition("/")[2] for key in found.arrays if key.startswith(f"{layer}/")]
        for one in variables(LAYERS.parse(fields), own):
            keys = [key for key in after.files if key.startswith("after_") and key.endswith(f"/{one.name}")]
            (expected,) = [after[key] for key in keys if layer in key]
            got = to_keras(np.asarray(compiler.states[f"{layer}/{one.state}"]), one)
            if layer == "classes" and one.state == "kernel":  # (C, H, W) rows here, (H, W, C) there
                got = got.reshape(3, 3, 2, 4).transpose(1, 2, 0, 3).reshape(18, 4)
            compared += 1
            if f"`{layer}/{one.state}`" in factored:  # of which the rule differs, as the note says
                continue
            # A step moves weights by some 1e-2; of sums in float32 in another order 1e-6 of that is left.
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6, err_msg=f"{layer}/{one.state}")
    assert compared == len(found.arrays)


def test_a_training_file_says_the_rule_and_the_data_that_are_missing() -> None:
    found = import_model(FILES / "trained_sgd.keras")
    assert (
        "solver: {type: SGD, learning_rate: {type: CosineDecay, initial: 0.1, decay_steps: 20}, momentum: 0.9"
        in found.train
    )
    assert "losses:\n  - {type: SparseCategoricalCrossentropy, from: [classes, target]}\n" in found.net
    assert "metrics:\n  - {type: SparseCategoricalAccuracy, from: [classes, target]}\n" in found.net
    assert any("the file does not say the data" in note for note in found.notes)


def test_a_model_that_was_not_compiled_has_no_training_file() -> None:
    found = import_model(FILES / "images.keras")
    assert (found.train, found.slots, found.step) == ("", {}, 0)


def optimizer(name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": name, "config": {"name": name.lower(), **config}}


@pytest.mark.parametrize(
    ("given", "solver", "loop"),
    [
        ("adam", {"type": "Adam", "learning_rate": 0.001}, {}),
        (optimizer("SGD", lr=0.1, decay=0.01), {"type": "SGD", "learning_rate": {
            "type": "InverseTimeDecay", "initial": 0.1, "decay_rate": 0.01, "decay_steps": 1}}, {}),
        (optimizer("AdamW", learning_rate=0.01, weight_decay=0.004), {"type": "AdamW", "learning_rate": 0.01}, {}),
        (optimizer("Adam", learning_rate=0.01, weight_decay=0.1, use_ema=True, ema_momentum=0.9), {
            "type": "Adam", "learning_rate": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True,
            "ema": {"decay": 0.9}}, {}),
        (optimizer("Custom>Adamax", learning_rate=0.01, gradient_accumulation_steps=4), {
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
def test_optimizers_are_solvers(given: Any, solver: dict[str, Any], loop: dict[str, Any]) -> None:
    assert solver_of(given, Reading()) == (solver, loop)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("gradient_boosting", "no solver for the optimizer 'gradient_boosting'"),
        (optimizer("SGD", learning_rate={"class_name": "MySchedule", "config": {}}), "no schedule 'MySchedule'"),
        ({"class_name": "Mine", "module": "my_package", "config": {}}, "a class of the package 'my_package'"),
        (3, "not described"),
    ],
)
def test_what_is_no_solver_is_told(given: Any, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        solver_of(given, Reading())


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
        one = SimpleNamespace(layer=layer, draft=SimpleNamespace(name=name), prefix="", shapes={"kernel": (2, 3)})
        return one, SimpleNamespace(state="kernel", group="", name="kernel")

    file: Any = SimpleNamespace(training={"optimizer": optimizer("Muon", exclude_layers=expressions)})
    reading = Reading()
    assert matrices_there(file, [parameter("conv"), parameter("classes")], reading) == moved
    assert [note.split()[0] for note in reading.notes] == ([str(left)] if left else [])

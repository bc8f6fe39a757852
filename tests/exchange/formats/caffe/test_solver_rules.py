"""Rules and rates of Caffe's solver files against Caffe's formulas in plain NumPy (solver_formulas.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.errors import InputError
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import parse
from netspec.exchange.formats.caffe.solver.context import Diagnostics
from netspec.exchange.formats.caffe.solver.rules import loop, update_rule
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from tests.exchange.formats.caffe.solver_formulas import Caffe
from tests.solvers.problem import MULTIPLIERS, Quadratic, training

STEPS = 10
# Only rounding differs: 10 steps of some 20 operations on values near 1 in float64 (ε = 1e-16). The root of a sum of
# squares near 1e-8 can amplify this a million times.
TOLERANCE = 1e-10

RATES: dict[str, dict[str, Any]] = {
    "fixed": {"lr_policy": "fixed"},
    "step": {"lr_policy": "step", "gamma": 0.5, "stepsize": 3},
    "step of 1": {"lr_policy": "step", "gamma": 1.0, "stepsize": 3},
    "rising steps": {"lr_policy": "step", "gamma": 1.5, "stepsize": 3},
    "exp": {"lr_policy": "exp", "gamma": 0.8},
    "rising exp": {"lr_policy": "exp", "gamma": 1.25},
    "inv": {"lr_policy": "inv", "gamma": 0.3, "power": 0.75},
    "inv of 0": {"lr_policy": "inv", "gamma": 0.0, "power": 0.75},
    "multistep": {"lr_policy": "multistep", "gamma": 0.5, "stepvalue": (2, 5, 6)},
    "multistep that rises": {"lr_policy": "multistep", "gamma": 2.0, "stepvalue": (2, 5)},
    "multistep in disorder": {"lr_policy": "multistep", "gamma": 0.5, "stepvalue": (0, 4, 4, 2, 9, 40)},
    "multistep of nothing": {"lr_policy": "multistep", "gamma": 0.5},
    "poly": {"lr_policy": "poly", "power": 0.5},
    "poly of 0": {"lr_policy": "poly", "power": 0.0},
    "sigmoid": {"lr_policy": "sigmoid", "gamma": -0.7, "stepsize": 4},
}
RULES: list[dict[str, Any]] = [
    {"momentum": 0.9, "weight_decay": 0.01},
    {"type": "SGD"},
    {"type": "Nesterov", "momentum": 0.95, "weight_decay": 0.01},
    {"solver_type": "NESTEROV", "momentum": 0.0},
    {"type": "AdaGrad", "weight_decay": 0.01},
    {"solver_type": "ADAGRAD", "delta": 1e-3},
    {"type": "RMSProp", "rms_decay": 0.7},
    {"solver_type": "RMSPROP", "delta": 1e-2, "weight_decay": 0.01},
    {"type": "AdaDelta", "momentum": 0.95, "delta": 1e-6},
    {"type": "Adam", "momentum": 0.9},
    {"type": "Adam", "momentum": 0.5, "momentum2": 0.9, "delta": 1e-3, "weight_decay": 0.02},
    {"momentum": 0.9, "weight_decay": 0.01, "regularization_type": "L1"},
    {"momentum": 0.9, "weight_decay": 0.01, "clip_gradients": 1.5},
    {"momentum": 0.9, "weight_decay": 0.01, "clip_gradients": 1.5, "iter_size": 3},
]


def text_of(fields: dict[str, Any]) -> str:
    """Write fields as in a solver file; values of enums have no quotes."""
    several = {name: value if isinstance(value, tuple) else (value,) for name, value in fields.items()}
    plain = {name: name == "solver_type" for name in fields}
    return "\n".join(
        f"{name}: {value if plain[name] or not isinstance(value, str) else repr(value)}"
        for name, values in several.items()
        for value in values
    )


def solver_of(**fields: Any) -> Message:
    return parse(text_of({"base_lr": 0.1, "lr_policy": "fixed", "max_iter": STEPS, **fields}), "SolverParameter")


def read(message: Message) -> tuple[SolverSpec, list[str]]:
    remarks = Diagnostics()
    fields = update_rule(message, remarks)
    remarks.check()
    solver = SOLVERS.parse(fields)
    assert isinstance(solver, SolverSpec)
    return solver, remarks.notes


@pytest.mark.parametrize("policy", RATES.values(), ids=RATES)
def test_rates_equal_caffe_at_every_step(policy):
    solver, _ = read(solver_of(**policy))
    caffe = Caffe({"base_lr": 0.1, "max_iter": STEPS, **policy}, {})
    for step in range(STEPS):
        assert solver.learning_rate.value(step, STEPS) == pytest.approx(caffe.rate(), rel=1e-12, abs=0)
        caffe.iteration += 1


def test_a_policy_that_changes_nothing_is_a_number():
    for name in ("fixed", "step of 1", "inv of 0", "multistep of nothing", "poly of 0"):
        assert update_rule(solver_of(**RATES[name]), Diagnostics())["learning_rate"] == 0.1


@pytest.mark.parametrize("fields", RULES, ids=lambda fields: " ".join(map(str, fields.values())))
def test_ten_steps_equal_caffe(fields):
    """With multipliers of learning rates and decays, and a decreasing rate."""
    policy = {"lr_policy": "inv", "gamma": 0.3, "power": 0.75}
    solver, notes = read(solver_of(**policy, **fields))
    assert notes == []
    new_names = {"NESTEROV": "Nesterov", "ADAGRAD": "AdaGrad", "RMSPROP": "RMSProp"}
    type_field = {"type": new_names[fields["solver_type"]]} if "solver_type" in fields else {}
    batches = fields.get("iter_size", 1)
    quadratic = Quadratic.random()
    caffe = Caffe({"base_lr": 0.1, **policy, **fields, **type_field}, MULTIPLIERS)
    weights = dict(quadratic.start)
    rates = [solver.learning_rate.value(step, STEPS) for step in range(STEPS)]
    built = training(solver, MULTIPLIERS)
    for states in built.steps(rates):
        sums = {name: batches * quadratic.gradient(name, w) for name, w in weights.items()}
        weights = caffe.step(weights, sums)
        for name, w in weights.items():
            assert np.abs(states[name] - w).max() <= TOLERANCE * np.abs(w).max(), name


def test_clipping_has_something_to_clip():
    quadratic = Quadratic.random()
    squares = sum((quadratic.gradient(name, w) ** 2).sum() for name, w in quadratic.start.items())
    assert np.sqrt(squares) > 1.5


WRONG = {
    "base_lr: 0": ("the learning rate must be positive", "base_lr above 0"),
    "base_lr: -1": ("the learning rate must be positive", "base_lr above 0"),
    "lr_policy: 'cosine'": ("unknown policy of the learning rate", "one of fixed, step, exp, inv, multistep"),
    "lr_policy: 'step' gamma: 0.5": ("`stepsize` must be ≥ 1", "stepsize above 0"),
    "lr_policy: 'exp'": ("the policy `exp` needs a factor", "gamma above 0"),
    "lr_policy: 'exp' gamma: 2 max_iter: 100000": ("a rate that rises so often has no counterpart", "gamma of 1"),
    "lr_policy: 'exp' gamma: 1e30 max_iter: 100": ("a rate that rises so often has no counterpart", "gamma of 1"),
    "lr_policy: 'inv' gamma: 1 power: -1": ("a rate that rises has no counterpart", "gamma and power of 0 or more"),
    "lr_policy: 'poly' power: -1": ("a rate that rises has no counterpart", "power of 0 or more"),
    "lr_policy: 'sigmoid'": ("the policy `sigmoid` needs `stepsize` and `gamma`", "stepsize above 0"),
    "type: 'Adamw'": ("unknown solver", "one of SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam"),
    "momentum: 1": ("`momentum` is the decay rate of an average", "0 or more, below 1"),
    "type: 'Adam' momentum2: 1.5": ("`momentum2` is the decay rate of an average", "0 or more, below 1"),
    "type: 'Adam' delta: -1": ("`delta` must be 0 or more", "0 or more"),
    "weight_decay: -0.1": ("`weight_decay` must be 0 or more", "0 or more"),
    "regularization_type: 'L3'": ("unknown kind of decay", "L1 or L2"),
    "clip_gradients: 0": ("`clip_gradients` must be positive, or negative for no clipping", "above 0"),
}


@pytest.mark.parametrize("text", WRONG)
def test_invalid_solver_fields_are_reported_with_their_position(text):
    message, expected = WRONG[text]
    usual = {"base_lr": "0.1", "lr_policy": "'fixed'", "max_iter": "10"}
    start = "".join(f"{name}: {value}\n" for name, value in usual.items() if f"{name}:" not in text)
    with pytest.raises(InputError) as error:
        read(parse(start + text, "SolverParameter", "solver.prototxt"))
    (problem,) = error.value.problems
    assert problem.message == message
    assert problem.expected is not None
    assert problem.expected.startswith(expected)
    assert problem.location is not None


def test_all_problems_are_reported_at_once():
    remarks = Diagnostics()
    update_rule(parse("base_lr: 0 lr_policy: 'fixed' momentum: 2 weight_decay: -1", "SolverParameter"), remarks)
    assert len(remarks.problems) == 3


def test_momentum_without_counterpart_in_caffe_and_a_delta_of_0():
    message = solver_of(type="AdaGrad", momentum=0.9, delta=0.0)
    _, notes = read(message)
    assert update_rule(message, Diagnostics())["epsilon"] == 1e-30
    assert [note.split(":")[0] for note in notes] == [
        "momentum 0.9 is left out", "delta 0 is written as epsilon 1e-30",
    ]  # fmt: skip


def test_the_loop():
    remarks = Diagnostics()
    message = parse(
        "max_iter: 900 test_interval: 50 snapshot: 300 display: 20 random_seed: 1701 iter_size: 4 average_loss: 40 "
        "solver_mode: GPU device_id: 1 debug_info: true snapshot_after_train: false test_initialization: true "
        "momentun: 0.9",
        "SolverParameter",
    )
    assert loop(message, remarks, tested=True) == {
        "max_steps": 900, "test_every": 50, "checkpoint_every": 300, "log_every": 20, "seed": 1701, "accumulate": 4,
    }  # fmt: skip
    assert [note.partition(" is ")[0] for note in remarks.notes] == [
        "average_loss 40", "debug_info True", "test_initialization true",
        "snapshot_after_train false", "`momentun` of the solver",
    ]  # fmt: skip
    remarks.check()


def test_a_loop_without_a_length_gets_one_with_a_note():
    remarks = Diagnostics()
    assert loop(parse("base_lr: 0.1", "SolverParameter"), remarks, tested=False) == {
        "max_steps": 10_000, "checkpoint_every": 0,
    }  # fmt: skip
    assert remarks.notes == ["the solver has no max_iter: max_steps 10000 is a guess"]


def test_a_loop_that_takes_no_step_is_refused():
    remarks = Diagnostics()
    loop(parse("max_iter: 0 iter_size: 0 display: -1 snapshot: -1 test_interval: -1", "SolverParameter"), remarks,
         tested=True)  # fmt: skip
    assert [problem.message for problem in remarks.problems] == [
        "no step is taken", "`test_interval` counts steps", "`snapshot` counts steps", "`display` counts steps",
        "no batch in a step",
    ]  # fmt: skip

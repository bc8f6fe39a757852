"""Validation of solver specs, and the graph that their transforms build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from netspec.graph.graph import Graph
from netspec.graph.ops.elementwise import Cast
from netspec.graph.ops.source import Input, State
from netspec.graph.ops.unary import Expm1
from netspec.graph.types import DType, TensorType
from netspec.graph.verify import verify
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.adam import AdamW
from netspec.solvers.base import Param
from netspec.solvers.rules import debias
from netspec.solvers.schedules.constant import Constant
from netspec.solvers.sgd import SGD, Momentum
from netspec.solvers.transform import Chain, Slots, Step, Updates, UpdateTransform
from tests.interpret import run
from tests.solvers.problem import MULTIPLIERS, training

SCALAR = TensorType((), DType.FLOAT32)


def errors_of(fields: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (field, message) of each validation error of a solver."""
    with pytest.raises(ValidationError) as caught:
        SOLVERS[fields["type"]].model_validate(fields)
    errors = caught.value.errors()
    return [(str(e.get("ctx", {}).get("field") or ".".join(map(str, e["loc"]))), e["msg"]) for e in errors]


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"type": "SGD", "momentum": 1.0}, "momentum", "less than 1"),
        ({"type": "SGD", "momentum": -0.1}, "momentum", "greater than or equal to 0"),
        ({"type": "SGD", "nesterov": True}, "nesterov", "without momentum"),
        ({"type": "SGD", "learning_rate": 0}, "learning_rate", "must be positive"),
        ({"type": "SGD", "learning_rate": -0.1}, "learning_rate", "must be positive"),
        ({"type": "SGD", "learning_rate": True}, "learning_rate", "has an invalid value"),
        ({"type": "SGD", "learning_rate": [0.1]}, "learning_rate", "has an invalid value"),
        ({"type": "SGD", "learning_rate": None}, "learning_rate", "has an invalid value"),
        ({"type": "SGD", "learning_rate": float("inf")}, "learning_rate", "must be positive"),
        ({"type": "SGD", "learning_rate": float("nan")}, "learning_rate", "must be positive"),
        ({"type": "SGD", "learning_rate": 10**400}, "learning_rate", "must be positive"),
        ({"type": "SGD", "learning_rate": "cosine"}, "learning_rate", "unknown schedule"),
        ({"type": "SGD", "learning_rate": {"initial": 0.1}}, "learning_rate", "has no `type`"),
        ({"type": "SGD", "weight_decay": -1e-4}, "weight_decay", "greater than or equal to 0"),
        ({"type": "SGD", "clipnorm": 0}, "clipnorm", "greater than 0"),
        ({"type": "SGD", "clipnorm": 1, "global_clipnorm": 1}, "global_clipnorm", "several kinds"),
        ({"type": "SGD", "clipvalue": 1, "clipnorm": 1}, "clipvalue", "several kinds"),
        ({"type": "Adam", "beta_1": 1.0}, "beta_1", "less than 1"),
        ({"type": "Adam", "beta_2": -0.1}, "beta_2", "greater than or equal to 0"),
        ({"type": "AdamW", "epsilon": 0}, "epsilon", "greater than 0"),
        ({"type": "AdamW", "momentum": 0.9}, "momentum", "not permitted"),
    ],
    ids=lambda value: str(value)[:80],
)
def test_invalid_solver_field_is_refused(fields, field, says) -> None:
    ((location, message),) = errors_of(fields)
    assert location == field
    assert says in message


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"type": "StepDecay", "initial": 0.1, "step_size": 0}, "step_size", "greater than 0"),
        ({"type": "StepDecay", "initial": 0.1, "step_size": 5, "gamma": 1.5}, "gamma", "less than or equal to 1"),
        ({"type": "ExponentialDecay", "initial": 0.1, "decay_rate": 96}, "decay_rate", "less than or equal to 1"),
        ({"type": "InverseTimeDecay", "initial": 0.1}, "decay_rate", "required"),
        ({"type": "PolynomialDecay", "initial": 0.1, "decay_steps": 1.5}, "decay_steps", "integer"),
        ({"type": "CosineDecay", "initial": 0.1, "alpha": 2}, "alpha", "less than or equal to 1"),
        ({"type": "PiecewiseConstantDecay", "boundaries": [3, 3], "values": [1, 2, 3]}, "boundaries", "must increase"),
        ({"type": "PiecewiseConstantDecay", "boundaries": [3], "values": [1]}, "values", "one element more"),
        ({"type": "PiecewiseConstantDecay", "boundaries": [], "values": [1]}, "boundaries", "at least 1"),
        ({"type": "Warmup", "steps": 3, "then": 0}, "then", "must be positive"),
    ],
    ids=lambda value: str(value)[:80],
)
def test_invalid_schedule_field_is_refused(fields, field, says) -> None:
    ((outer, message),) = errors_of({"type": "SGD", "learning_rate": fields})
    assert outer == "learning_rate"
    assert says in message
    assert field in message


def test_number_is_a_constant_schedule() -> None:
    spec = SOLVERS.parse({"type": "SGD", "learning_rate": 1})
    assert isinstance(spec, SGD)
    assert spec.learning_rate == Constant(initial=1.0)
    assert spec.learning_rate.value(999, 1000) == 1.0


def test_json_schema_of_learning_rate_has_all_forms() -> None:
    forms = SGD.model_json_schema()["properties"]["learning_rate"]["anyOf"]
    parts = {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["schedule"]}}
    assert forms == [{"type": "number", "exclusiveMinimum": 0}, parts, {"x-netspec-registry": "schedule"}]


def test_defaults_equal_keras() -> None:
    adamw = AdamW()
    assert (adamw.learning_rate.value(0, 1), adamw.beta_1, adamw.beta_2, adamw.epsilon, adamw.weight_decay) == (
        0.001, 0.9, 0.999, 1e-7, 0.004,
    )  # fmt: skip
    assert (SGD().learning_rate.value(0, 1), SGD().momentum, SGD().nesterov, SGD().weight_decay) == (0.01, 0, False, 0)


def test_slot_labels() -> None:
    def names(spec: Any) -> list[str]:
        return [slot.label for slot in training(spec).solution.slots if slot.param == "conv/bias"]

    assert names(SGD()) == []
    assert names(SGD(momentum=0.9)) == ["solver/conv/bias/velocity"]
    assert names(AdamW(amsgrad=True)) == [
        f"solver/conv/bias/{name}" for name in ("first_moment", "second_moment", "largest_second_moment")
    ]


def test_update_of_no_parameters_is_empty() -> None:
    solution = SGD(momentum=0.9, global_clipnorm=1.0).build([], [Input("lr", SCALAR)()], Input("step", SCALAR)())
    assert (solution.updates, solution.slots, solution.slot_updates) == ({}, [], {})


def test_scalars_are_cast_to_the_type_of_the_parameter() -> None:
    type_ = TensorType((3,), DType.FLOAT32)
    weight = State("w", type_)()
    wide = TensorType((), DType.FLOAT64)
    rate, step = Input("learning_rate", wide)(), Input("step", wide)()
    solution = AdamW(global_clipnorm=1.0).build([Param("w", weight, Input("g", type_)())], [rate], step)
    graph = verify(Graph(updates={**solution.updates, **solution.slot_updates}))
    assert solution.updates["w"].type == type_
    assert any(isinstance(node.op, Cast) for node in graph.nodes())


def test_default_decay_and_multiplier_add_no_nodes() -> None:
    """The update of SGD is a product and a sum for each parameter, and the negated rate."""
    update_nodes = [node for node in training(SGD()).graph.nodes() if node.scope.phase == "update" and node.inputs]
    assert sorted(node.op.name for node in update_nodes) == sorted(["Neg", "Mul", "Add"] * 3)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 0.999999])
def test_bias_correction_is_accurate_in_float32(beta) -> None:
    """Computed as 1 - pow(beta, t), it would lose 6 of 7 digits at beta = 0.999999 and t = 1."""
    result = debias(beta, Input("t", SCALAR)())
    for t in (1, 2, 10, 1000, 1_000_000):
        outputs, _ = run(Graph(outputs={"y": result}), {"t": np.float32(t)}, {})
        exact = -np.expm1(np.float64(t) * np.log(np.float64(beta))) if beta else 1.0
        assert outputs["y"] == pytest.approx(exact, rel=4e-7)


def test_gradient_of_expm1_is_exp() -> None:
    from netspec.graph.autodiff import gradients

    x = Input("x", TensorType((), DType.FLOAT64))()
    (gradient,) = gradients(Expm1()(x), [x])
    outputs, _ = run(Graph(outputs={"dy": gradient}), {"x": np.float64(0.3)}, {})
    assert outputs["dy"] == pytest.approx(np.exp(0.3), rel=1e-14)


def test_learning_rate_multiplier_scales_the_step() -> None:
    plain = next(training(SGD()).steps([0.1]))
    scaled = next(training(SGD(), MULTIPLIERS).steps([0.1]))
    start = training(SGD()).quadratic.start
    for name, (rate, _) in MULTIPLIERS.items():
        np.testing.assert_allclose(scaled[name] - start[name], rate * (plain[name] - start[name]), rtol=1e-12)


def test_chain_composes_its_transforms() -> None:
    @dataclass(frozen=True)
    class Times(UpdateTransform):
        factor: float

        def update(self, updates: Updates, slots: Slots, step: Step) -> tuple[Updates, Slots]:
            return [update * self.factor for update in updates], slots

    x = Input("x", SCALAR)()
    step = Step((Param("p", x, x),), x, x)
    nested = Chain((Times(2.0), Chain((Times(3.0), Momentum(0.5)))))
    slot = Input("v", SCALAR)()
    (update,), (slots,) = nested.update([x], [{"velocity": slot}], step)
    outputs, _ = run(Graph(outputs={"u": update, "v": slots["velocity"]}), {"x": np.float32(1), "v": np.float32(8)}, {})
    assert outputs["u"] == 10.0
    assert outputs["v"] == 10.0


def test_chain_refuses_two_slots_of_the_same_name() -> None:
    value = next(iter(training(SGD()).solution.updates.values()))
    with pytest.raises(ValueError, match="velocity"):
        Chain((Momentum(0.9), Momentum(0.5))).init(Param("w", value, value))

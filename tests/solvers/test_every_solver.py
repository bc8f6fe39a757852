"""Every registered solver against its published formula in plain NumPy (formulas.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netspec.graph.verify import verify
from netspec.schema.specs.annotations import fields_by_name
from netspec.schema.specs.docs import field_docs
from netspec.schema.specs.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from tests.solvers.formulas import FORMULAS, Slots, decoupled, usual_decay
from tests.solvers.problem import MULTIPLIERS, PLAIN, Quadratic, samples, training
from tests.solvers.test_every_schedule import formula as rate_at

STEPS = 10
# The rate changes, because formulas differ in how they use the rates of earlier steps.
RATES = [0.05 * 0.8**step + 0.01 for step in range(STEPS)]

# Only rounding separates graph and formula: 10 steps of at most 15 operations on numbers near 1 in float64 (ε = 1e-16)
# and float32 (ε = 6e-8). Errors are measured against the largest element, since elements may pass through 0.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}

CLIPPING: list[dict[str, float]] = [{}, {"clipnorm": 0.7}, {"clipvalue": 0.4}, {"global_clipnorm": 1.5}]
SAMPLES = samples(SOLVERS)
CHAINS = [(type_, sample) for type_, sample in SAMPLES if not SOLVERS[type_].full_batch]  # type: ignore[attr-defined]  # a registry of specs
"""Samples of solvers that are chains of transforms; others are compared with their peers in complete trainings."""


def clipped(gradients: dict[str, Any], kind: str, limit: float) -> dict[str, Any]:
    """Clip gradients in one of Keras's three ways."""
    if kind == "clipvalue":
        return {name: np.clip(g, -limit, limit) for name, g in gradients.items()}
    if kind == "clipnorm":
        norms = {name: np.linalg.norm(g.ravel()) for name, g in gradients.items()}
    else:
        norms = dict.fromkeys(gradients, np.linalg.norm(np.concatenate([g.ravel() for g in gradients.values()])))
    return {name: g * limit / norms[name] if norms[name] > limit else g for name, g in gradients.items()}


def reference(type_: str, spec: dict[str, Any], multipliers: dict[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """Return the parameters after each step, by the formula."""
    formula = FORMULAS[type_]
    if spec.get("decoupled_weight_decay"):
        formula = decoupled(formula)
    quadratic = Quadratic.random()
    weights = dict(quadratic.start)
    slots: dict[str, Slots] = {name: {"name": name} for name in weights}
    history = []
    for t, lr in enumerate(RATES, start=1):
        scheduled = {key: rate_at(t - 1, STEPS, value) for key, value in spec.items() if key in ("momentum", "beta_1")}
        gradients = {name: quadratic.gradient(name, w) for name, w in weights.items()}
        for kind in ("clipnorm", "clipvalue", "global_clipnorm"):
            if kind in spec:
                gradients = clipped(gradients, kind, spec[kind])
        for name, w in weights.items():
            rate, decay = multipliers[name]
            wd = usual_decay(type_, spec, slots[name], w) * decay
            slots[name]["scheduled"] = lr
            weights[name] = formula(w, gradients[name], lr * rate, wd, t, slots[name], {**spec, **scheduled})
        averages = {f"solver/{name}/average": s["average"] for name, s in slots.items() if "average" in s}
        history.append(weights | averages)
    return history


def solver(type_: str, **fields: Any) -> SolverSpec:
    spec = SOLVERS.parse({"type": type_, **fields})
    assert isinstance(spec, SolverSpec)
    return spec


FORMS = [*(("".join(fields) or "unclipped", fields, PLAIN) for fields in CLIPPING), ("multipliers", {}, MULTIPLIERS)]
"""Name, clipping and multipliers of the updates that are compared: all in float64, the first one in float32 too."""


@pytest.mark.parametrize(
    ("clipping", "multipliers", "dtype"),
    [
        *(pytest.param(*form, "float64", id=f"{name}-float64") for name, *form in FORMS),
        *(
            pytest.param(
                *form, "float32", id=f"{name}-float32",
                marks=pytest.mark.slow if name == "unclipped" else pytest.mark.exhaustive,
            )
            for name, *form in FORMS
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("type_", "sample"), CHAINS, ids=lambda value: str(value))
def test_update_equals_published_formula(type_, sample, clipping, multipliers, dtype) -> None:
    built = training(solver(type_, **sample, **clipping), multipliers, dtype)
    verify(built.graph)
    expected = reference(type_, {**sample, **clipping}, multipliers)
    for states, weights in zip(built.steps(RATES), expected, strict=True):
        for name, w in weights.items():
            assert np.abs(states[name] - w).max() <= TOLERANCE[dtype] * np.abs(w).max(), name


def test_limits_clip_the_first_gradients() -> None:
    """The first gradients exceed the limits of `CLIPPING`, so the tests of the formulas also test clipping."""
    quadratic = Quadratic.random()
    gradients = {name: quadratic.gradient(name, w) for name, w in quadratic.start.items()}
    for fields in CLIPPING[1:]:
        ((kind, limit),) = fields.items()
        assert any((clipped(gradients, kind, limit)[name] != g).any() for name, g in gradients.items()), kind


@pytest.mark.parametrize(("type_", "sample"), CHAINS, ids=lambda value: str(value))
def test_slots_and_scopes_of_the_update(type_, sample) -> None:
    """Slots have labels and types; the nodes of the update have the layer and the phase."""
    built = training(solver(type_, **sample))
    params = built.values
    assert set(built.solution.updates) == set(params)
    labels = [slot.label for slot in built.solution.slots]
    assert set(built.solution.slot_updates) == set(labels)
    assert len(set(labels)) == len(labels)
    for slot in built.solution.slots:
        assert slot.label == f"solver/{slot.param}/{slot.name}"
        assert built.solution.slot_updates[slot.label].type == slot.value.type
        if not slot.param.startswith("$"):  # a shared slot
            assert slot.value.node.scope.layer == slot.param.split("/")[0]
    assert built.solution.evaluated.keys() <= params.keys()
    assert set(built.solution.evaluated.values()) <= set(labels)
    for name, value in built.solution.updates.items():
        assert value.type == params[name].type
        assert value.node.scope.layer == name.split("/")[0]
    solver_nodes = [node for node in built.graph.nodes() if node.serial > built.first_of_solver]
    assert {node.scope.phase for node in solver_nodes} == {"update"}


@pytest.mark.parametrize("cls", list(SOLVERS), ids=lambda cls: cls.__name__)
def test_solver_has_docs_samples_and_a_formula(cls) -> None:
    name = cls.model_fields["type"].default
    assert name == cls.__name__
    assert cls.__dict__.get("__doc__"), "a docstring with purpose, formula and source"
    assert "samples" in cls.__dict__
    assert cls.samples
    assert name in FORMULAS or cls.full_batch, "add the published formula to formulas.py"
    assert fields_by_name(cls).keys() - field_docs(cls).keys() <= {"type"}


@pytest.mark.parametrize(("type_", "sample"), SAMPLES, ids=lambda value: str(value))
def test_solver_survives_dump_and_parse(type_, sample) -> None:
    spec = solver(type_, **sample)
    assert SOLVERS.parse(spec.model_dump(by_alias=True)) == spec

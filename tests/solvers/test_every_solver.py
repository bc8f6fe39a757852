"""Every registered solver against its published formula, written here in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from netspec.graph.verify import verify
from netspec.schema.annotations import fields_by_name
from netspec.schema.docs import field_docs
from netspec.schema.kinds import SOLVERS
from netspec.solvers.base import SolverSpec
from tests.solvers.problem import MULTIPLIERS, PLAIN, Quadratic, samples, training

STEPS = 10
# A rate that changes, since what a formula does with the rate of earlier steps is where formulas differ.
RATES = [0.05 * 0.8**step + 0.01 for step in range(STEPS)]

# Only rounding separates graph and formula: 10 steps of at most 15 operations on numbers near 1 in float64 (ε = 1e-16)
# and float32 (ε = 6e-8). Errors are measured against the largest element, since elements may pass through 0.
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}

Slots = dict[str, Any]


def sgd(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Sutskever et al. 2013 in the form of Keras's and Caffe's documentation."""
    momentum = spec.get("momentum", 0.0)
    g = g + decay * w
    s["velocity"] = momentum * s.get("velocity", 0.0) - lr * g
    if spec.get("nesterov"):
        return w + momentum * s["velocity"] - lr * g
    return w + s["velocity"]


def adam(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Kingma and Ba 2015, end of section 2; Reddi et al. 2018 for amsgrad."""
    b1, b2, eps = spec.get("beta_1", 0.9), spec.get("beta_2", 0.999), spec.get("epsilon", 1e-7)
    g = g + decay * w
    s["m"] = b1 * s.get("m", 0.0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0.0) + (1 - b2) * g**2
    s["max"] = np.maximum(s.get("max", 0.0), s["v"])
    lr_t = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
    return w - lr_t * s["m"] / (np.sqrt(s["max"] if spec.get("amsgrad") else s["v"]) + eps)


def adamw(w: Any, g: Any, lr: float, decay: float, t: int, s: Slots, spec: dict[str, Any]) -> Any:
    """Loshchilov and Hutter 2019, algorithm 2, as Keras orders it: the decay first."""
    return adam(w - lr * decay * w, g, lr, 0.0, t, s, spec)


REFERENCES: dict[str, tuple[Callable[..., Any], float]] = {
    "SGD": (sgd, 0.0),
    "Adam": (adam, 0.0),
    "AdamW": (adamw, 0.004),
}
"""Type → (the formula, the default weight decay)."""

CLIPPING: list[dict[str, float]] = [{}, {"clipnorm": 0.7}, {"clipvalue": 0.4}, {"global_clipnorm": 1.5}]
SAMPLES = samples(SOLVERS)


def clipped(gradients: dict[str, Any], kind: str, limit: float) -> dict[str, Any]:
    """Keras's three ways of clipping."""
    if kind == "clipvalue":
        return {name: np.clip(g, -limit, limit) for name, g in gradients.items()}
    if kind == "clipnorm":
        norms = {name: np.linalg.norm(g.ravel()) for name, g in gradients.items()}
    else:
        norms = dict.fromkeys(gradients, np.linalg.norm(np.concatenate([g.ravel() for g in gradients.values()])))
    return {name: g * limit / norms[name] if norms[name] > limit else g for name, g in gradients.items()}


def reference(type_: str, spec: dict[str, Any], multipliers: dict[str, tuple[float, float]]) -> list[dict[str, Any]]:
    """The parameters after each step, by the formula."""
    formula, default_decay = REFERENCES[type_]
    quadratic = Quadratic.random()
    weights = dict(quadratic.start)
    slots: dict[str, Slots] = {name: {} for name in weights}
    history = []
    for t, lr in enumerate(RATES, start=1):
        gradients = {name: quadratic.gradient(name, w) for name, w in weights.items()}
        for kind in ("clipnorm", "clipvalue", "global_clipnorm"):
            if kind in spec:
                gradients = clipped(gradients, kind, spec[kind])
        for name, w in weights.items():
            rate, decay = multipliers[name]
            wd = spec.get("weight_decay", default_decay) * decay
            weights[name] = formula(w, gradients[name], lr * rate, wd, t, slots[name], spec)
        history.append(dict(weights))
    return history


def solver(type_: str, **fields: Any) -> SolverSpec:
    made = SOLVERS.parse({"type": type_, **fields})
    assert isinstance(made, SolverSpec)
    return made


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("multipliers", [PLAIN, MULTIPLIERS], ids=["plain", "multipliers"])
@pytest.mark.parametrize("clipping", CLIPPING, ids=lambda fields: "".join(fields) or "unclipped")
@pytest.mark.parametrize(("type_", "sample"), SAMPLES, ids=lambda value: str(value))
def test_it_follows_the_published_formula(type_, sample, clipping, multipliers, dtype) -> None:
    built = training(solver(type_, **sample, **clipping), multipliers, dtype)
    verify(built.graph)
    expected = reference(type_, {**sample, **clipping}, multipliers)
    for states, weights in zip(built.steps(RATES), expected, strict=True):
        for name, w in weights.items():
            assert np.abs(states[name] - w).max() <= TOLERANCE[dtype] * np.abs(w).max(), name


def test_clipping_has_something_to_clip() -> None:
    """The limits of `CLIPPING` are passed by the first gradients, else the formula's test proves nothing of them."""
    quadratic = Quadratic.random()
    gradients = {name: quadratic.gradient(name, w) for name, w in quadratic.start.items()}
    for fields in CLIPPING[1:]:
        ((kind, limit),) = fields.items()
        assert any((clipped(gradients, kind, limit)[name] != g).any() for name, g in gradients.items()), kind


@pytest.mark.parametrize(("type_", "sample"), SAMPLES, ids=lambda value: str(value))
def test_what_it_builds_is_in_its_place(type_, sample) -> None:
    """Slots have the parameters' types and start at their first value; nodes have the layer and the phase."""
    built = training(solver(type_, **sample))
    params = {name: value for name, value in built.graph.states().items() if not name.startswith("solver/")}
    assert set(built.solution.updates) == set(params)
    labels = [slot.label for slot in built.solution.slots]
    assert set(built.solution.slot_updates) == set(labels)
    assert len(set(labels)) == len(labels)
    for slot in built.solution.slots:
        assert slot.label == f"solver/{slot.param}/{slot.name}"
        assert slot.value.type == params[slot.param].type
        assert slot.initial == 0.0
        assert slot.value.node.scope.layer == slot.param.split("/")[0]
    for name, value in built.solution.updates.items():
        assert value.type == params[name].type
        assert value.node.scope.layer == name.split("/")[0]
    made_by_solver = [node for node in built.graph.nodes() if node.serial > built.first_of_solver]
    assert {node.scope.phase for node in made_by_solver} == {"update"}


@pytest.mark.parametrize("cls", list(SOLVERS), ids=lambda cls: cls.__name__)
def test_it_is_documented_sampled_and_checked(cls) -> None:
    name = cls.model_fields["type"].default
    assert name == cls.__name__
    assert cls.__dict__.get("__doc__"), "a docstring: what it does, the formula, its source"
    assert "samples" in cls.__dict__
    assert cls.samples
    assert name in REFERENCES, "write the published formula down in this file"
    assert fields_by_name(cls).keys() - field_docs(cls).keys() <= {"type"}


@pytest.mark.parametrize(("type_", "sample"), SAMPLES, ids=lambda value: str(value))
def test_it_survives_being_written_down(type_, sample) -> None:
    made = solver(type_, **sample)
    assert SOLVERS.parse(made.model_dump(by_alias=True)) == made

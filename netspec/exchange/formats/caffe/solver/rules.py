"""Caffe's solvers → the fields `solver` and `train` of a training file.

Formulas: Caffe's solver documentation and sources. Caffe clips the gradient, divides it by `iter_size`, and then adds
the decay; netspec divides first, so that the limit is divided too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.solver.context import Diagnostics
from netspec.exchange.formats.caffe.solver.policies import schedule

OLD_NAMES = {
    "SGD": "SGD", "NESTEROV": "Nesterov", "ADAGRAD": "AdaGrad", "RMSPROP": "RMSProp", "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}  # fmt: skip
"""Values of the enum `solver_type` → of the string `type` that replaced it."""

LEAST_EPSILON = 1e-30
"""Replaces a `delta` of 0, by which Caffe may divide."""


@dataclass(frozen=True)
class UpdateRule:
    """A solver of Caffe as a solver of netspec."""

    type: str
    """The type of the solver here."""
    fields: Mapping[str, str]
    """Our field for each of Caffe's."""
    imported: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which differ from our defaults."""


UPDATE_RULES: Mapping[str, UpdateRule] = {
    # V ← momentum · V + rate · g; w ← w - V
    "SGD": UpdateRule("SGD", {"momentum": "momentum"}),
    # V' ← momentum · V + rate · g; w ← w - (1 + momentum) · V' + momentum · V
    "Nesterov": UpdateRule("SGD", {"momentum": "momentum"}, {"nesterov": True}),
    # a ← a + g²; w ← w - rate · g / (√a + delta)
    "AdaGrad": UpdateRule(
        "Adagrad", {"delta": "epsilon"}, {"initial_accumulator_value": 0.0, "epsilon_in_root": False}
    ),
    # a ← rms_decay · a + (1 - rms_decay) · g²; w ← w - rate · g / (√a + delta)
    "RMSProp": UpdateRule("RMSprop", {"rms_decay": "rho", "delta": "epsilon"}, {"epsilon_in_root": False}),
    # a ← momentum · a + (1 - momentum) · g²; Δ = √((d + delta) / (a + delta)) · g; d average of Δ²; w ← w - rate · Δ
    "AdaDelta": UpdateRule("Adadelta", {"momentum": "rho", "delta": "epsilon"}),
    # m, v averages of g, g²; w ← w - rate · √(1 - momentum2ᵗ) / (1 - momentumᵗ) · m / (√v + delta)
    "Adam": UpdateRule("Adam", {"momentum": "beta_1", "momentum2": "beta_2", "delta": "epsilon"}),
}


def update_rule(solver: Message, remarks: Diagnostics) -> dict[str, Any]:
    """The field `solver` of a training file."""
    name = OLD_NAMES[solver["solver_type"]] if "solver_type" in solver else solver["type"]
    rate = schedule(solver, remarks)
    if name not in UPDATE_RULES:
        remarks.problem("unknown solver", solver, "type", expected=f"one of {', '.join(UPDATE_RULES)}", got=repr(name))
        return {}
    rule = UPDATE_RULES[name]
    if solver["momentum"] and "momentum" not in rule.fields:
        remarks.notes.add(f"momentum {solver['momentum']:g} is left out: Caffe's {name} has none, and refuses it")
    fields: dict[str, Any] = {
        ours: _epsilon(solver, remarks) if theirs == "delta" else _decay_rate(solver, theirs, remarks)
        for theirs, ours in rule.fields.items()
    }
    fields = {} if rule.type == "SGD" and not fields["momentum"] else {**fields, **rule.imported}
    return {
        "type": rule.type, "learning_rate": rate, **fields, **_weight_decay(solver, remarks),
        **_clipping(solver, remarks),
    }  # fmt: skip


def _decay_rate(solver: Message, name: str, remarks: Diagnostics) -> float:
    """The decay rate of an average, in [0, 1)."""
    rate: float = solver[name]
    if not 0 <= rate < 1:
        remarks.problem(
            f"`{name}` is the decay rate of an average", solver, name, expected="0 or more, below 1", got=rate
        )
    return rate


def _epsilon(solver: Message, remarks: Diagnostics) -> float:
    delta: float = solver["delta"]
    if delta == 0:
        remarks.notes.add(f"delta 0 is written as epsilon {LEAST_EPSILON:g}: nothing is divided by 0 here")
        return LEAST_EPSILON
    if not 0 < delta < inf:
        remarks.problem("`delta` must be 0 or more", solver, "delta", expected="0 or more", got=delta)
    return delta


def _weight_decay(solver: Message, remarks: Diagnostics) -> dict[str, Any]:
    """`weight_decay`, of L2 or L1 norms by `regularization_type`."""
    decay, norm = solver["weight_decay"], solver["regularization_type"]
    if not 0 <= decay < inf:
        remarks.problem("`weight_decay` must be 0 or more", solver, "weight_decay", expected="0 or more", got=decay)
    if norm not in ("L1", "L2"):
        remarks.problem("unknown kind of decay", solver, "regularization_type", expected="L1 or L2", got=repr(norm))
    if not decay:
        return {}
    return {"weight_decay": decay, **({"weight_decay_norm": "L1"} if norm == "L1" else {})}


def _clipping(solver: Message, remarks: Diagnostics) -> dict[str, Any]:
    """`clip_gradients`: limit of the L2 norm of all gradients together, summed over `iter_size` batches."""
    limit, batches = solver["clip_gradients"], max(1, solver["iter_size"])
    if limit < 0:
        return {}
    if not 0 < limit < inf:
        remarks.problem(
            "`clip_gradients` must be positive, or negative for no clipping",
            solver,
            "clip_gradients",
            expected="above 0",
            got=limit,
        )
    return {"global_clipnorm": limit / batches}


GUESSED_STEPS = 10_000
"""Number of steps if the file does not specify it, since the program that calls Caffe does."""

WITHOUT_COUNTERPART = {
    "average_loss": "the log has the loss of each step",
    "debug_info": "`netspec plan` and the log describe a run",
    "snapshot_diff": "checkpoints do not contain gradients",
    "test_compute_loss": "evaluations always contain the losses",
    "layer_wise_reduce": "a training file does not specify how gradients are reduced",
    "weights": "pass them to `netspec train`: `netspec train train.yaml --weights FILE`",
}
"""Fields without a counterpart, and why none is needed."""


def loop(solver: Message, remarks: Diagnostics, *, tested: bool) -> dict[str, Any]:
    """The field `train`; `tested` if there is a test split."""
    fields: dict[str, Any] = {"max_steps": solver["max_iter"]}
    if "max_iter" not in solver:
        fields["max_steps"] = GUESSED_STEPS
        remarks.notes.add(f"the solver has no max_iter: max_steps {GUESSED_STEPS} is a guess")
    elif solver["max_iter"] < 1:
        remarks.problem("no step is taken", solver, "max_iter", expected="max_iter above 0", got=solver["max_iter"])
    if tested:
        fields["test_every"] = _count(solver, "test_interval", remarks)
    fields["checkpoint_every"] = _count(solver, "snapshot", remarks)
    if _count(solver, "display", remarks):
        fields["log_every"] = solver["display"]
    if solver["random_seed"] >= 0:
        fields["seed"] = solver["random_seed"]
    if solver["iter_size"] > 1:
        fields["accumulate"] = solver["iter_size"]
    elif solver["iter_size"] < 1:
        remarks.problem("no batch in a step", solver, "iter_size", expected="above 0", got=solver["iter_size"])
    _left_out(solver, remarks)
    return fields


def _count(solver: Message, name: str, remarks: Diagnostics) -> int:
    """An interval in steps; 0: only at the end."""
    steps: int = solver[name]
    if steps < 0:
        remarks.problem(f"`{name}` counts steps", solver, name, expected="0 or more", got=steps)
    return steps


def _left_out(solver: Message, remarks: Diagnostics) -> None:
    for name, reason in WITHOUT_COUNTERPART.items():
        if name in solver:
            value = solver[name]
            text = ", ".join(value) if isinstance(value, list) else str(value)
            remarks.notes.add(f"{name} {text} is left out: {reason}")
    if solver["test_initialization"] and "test_initialization" in solver and solver["test_interval"]:
        remarks.notes.add("test_initialization true is left out: the first evaluation comes after test_every steps")
    if not solver["snapshot_after_train"]:
        remarks.notes.add("snapshot_after_train false is left out: the last step is always kept")
    for unknown in solver.unknown:
        remarks.notes.add(f"`{unknown.name}` of the solver is unknown, and left out")

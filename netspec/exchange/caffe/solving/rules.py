"""Caffe's solvers → solvers whose steps are the same, and back. Formulas: Caffe's solver documentation and sources.

Caffe's gradient is clipped, divided by `iter_size`, and only then grows by the decay; netspec divides first, so the
limit of the clipping is divided too.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.solving.policies import schedule
from netspec.exchange.caffe.solving.remarks import Remarks

OLD_NAMES = {
    "SGD": "SGD", "NESTEROV": "Nesterov", "ADAGRAD": "AdaGrad", "RMSPROP": "RMSProp", "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}  # fmt: skip
"""Of the enum `solver_type` → of the text `type`, which took its place."""

LEAST_EPSILON = 1e-30
"""What stands for a `delta` of 0, which may be divided by in Caffe."""


def type_of(solver: Message) -> str:
    """Caffe's name of the rule."""
    found: str = OLD_NAMES[solver["solver_type"]] if "solver_type" in solver else solver["type"]
    return found


def rule(solver: Message, remarks: Remarks) -> dict[str, Any]:
    """The field `solver` of a training file."""
    kind = type_of(solver)
    made = _RULES.get(kind)
    rate = schedule(solver, remarks)
    if made is None:
        remarks.problem("unknown solver", solver, "type", expected=f"one of {', '.join(_RULES)}", got=repr(kind))
        return {}
    type_, fields = made(solver, remarks)
    return {"type": type_, "learning_rate": rate, **fields, **_decay(solver, remarks), **_clipping(solver, remarks)}


def _sgd(solver: Message, remarks: Remarks) -> tuple[str, dict[str, Any]]:
    """V ← momentum · V + rate · g; w ← w - V"""
    momentum = _share(solver, "momentum", remarks)
    return "SGD", {"momentum": momentum} if momentum else {}


def _nesterov(solver: Message, remarks: Remarks) -> tuple[str, dict[str, Any]]:
    """V' ← momentum · V + rate · g; w ← w - (1 + momentum) · V' + momentum · V"""
    momentum = _share(solver, "momentum", remarks)
    return "SGD", {"momentum": momentum, "nesterov": True} if momentum else {}


def _adagrad(solver: Message, remarks: Remarks) -> tuple[str, dict[str, Any]]:
    """a ← a + g²; w ← w - rate · g / (√a + delta)"""
    _no_momentum(solver, remarks)
    fields = {"initial_accumulator_value": 0.0, "epsilon": _delta(solver, remarks), "epsilon_in_root": False}
    return "Adagrad", fields


def _rmsprop(solver: Message, remarks: Remarks) -> tuple[str, dict[str, Any]]:
    """a ← rms_decay · a + (1 - rms_decay) · g²; w ← w - rate · g / (√a + delta)"""
    _no_momentum(solver, remarks)
    fields = {"epsilon": _delta(solver, remarks), "epsilon_in_root": False}
    return "RMSprop", {"rho": _share(solver, "rms_decay", remarks), **fields}


def _adadelta(solver: Message, remarks: Remarks) -> tuple[str, dict[str, Any]]:
    """a ← momentum · a + (1 - momentum) · g²; Δ = √((d + delta) / (a + delta)) · g; d: of Δ²; w ← w - rate · Δ"""
    return "Adadelta", {"rho": _share(solver, "momentum", remarks), "epsilon": _delta(solver, remarks)}


def _adam(solver: Message, remarks: Remarks) -> tuple[str, dict[str, Any]]:
    """m, v averages of g, g²; w ← w - rate · √(1 - momentum2ᵗ) / (1 - momentumᵗ) · m / (√v + delta)"""
    betas = {"beta_1": _share(solver, "momentum", remarks), "beta_2": _share(solver, "momentum2", remarks)}
    return "Adam", {**betas, "epsilon": _delta(solver, remarks)}


_RULES: dict[str, Callable[[Message, Remarks], tuple[str, dict[str, Any]]]] = {
    "SGD": _sgd,
    "Nesterov": _nesterov,
    "AdaGrad": _adagrad,
    "RMSProp": _rmsprop,
    "AdaDelta": _adadelta,
    "Adam": _adam,
}


def _share(solver: Message, name: str, remarks: Remarks) -> float:
    """A share of the past."""
    found: float = solver[name]
    if not 0 <= found < 1:
        remarks.problem(f"`{name}` is a share of the past", solver, name, expected="0 or more, below 1", got=found)
    return found


def _delta(solver: Message, remarks: Remarks) -> float:
    found: float = solver["delta"]
    if found == 0:
        remarks.note(f"delta 0 is written as epsilon {LEAST_EPSILON:g}: nothing is divided by 0 here")
        return LEAST_EPSILON
    if not 0 < found < inf:
        remarks.problem("`delta` keeps from a division by 0", solver, "delta", expected="0 or more", got=found)
    return found


def _no_momentum(solver: Message, remarks: Remarks) -> None:
    if solver["momentum"]:
        remarks.note(f"momentum {solver['momentum']:g} is left out: Caffe's {type_of(solver)} has none, and refuses it")


def _decay(solver: Message, remarks: Remarks) -> dict[str, Any]:
    """`weight_decay`, of squares or, as `regularization_type` says, of magnitudes."""
    decay, norm = solver["weight_decay"], solver["regularization_type"]
    if not 0 <= decay < inf:
        remarks.problem("`weight_decay` pulls weights to 0", solver, "weight_decay", expected="0 or more", got=decay)
    if norm not in ("L1", "L2"):
        remarks.problem("unknown kind of decay", solver, "regularization_type", expected="L1 or L2", got=repr(norm))
    if not decay:
        return {}
    return {"weight_decay": decay, **({"weight_decay_norm": "L1"} if norm == "L1" else {})}


def _clipping(solver: Message, remarks: Remarks) -> dict[str, Any]:
    """`clip_gradients`: the L2 norm of all gradients together, of the sum over `iter_size` batches."""
    limit, batches = solver["clip_gradients"], max(1, solver["iter_size"])
    if limit < 0:
        return {}
    if not 0 < limit < inf:
        remarks.problem("clipping to 0 leaves no gradients", solver, "clip_gradients", expected="above 0", got=limit)
    return {"global_clipnorm": limit / batches}

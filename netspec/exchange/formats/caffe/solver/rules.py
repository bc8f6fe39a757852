"""Caffe's solvers, learning-rate policies and loops → the fields `solver` and `train` of a training file.

Formulas: Caffe's solver documentation and sources, and the comment on `lr_policy` in caffe.proto; iterations count from
0 there, as steps do here. Caffe clips the gradient, divides it by `iter_size`, and then adds the decay; netspec divides
first, so that the limit is divided too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf, isfinite, log
from typing import Any

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import real
from netspec.exchange.formats.caffe.solver.context import Diagnostics

LARGEST = 80.0
"""Logarithm of the largest learning rate, somewhat less than that of the largest float32."""
MOST_RISES = 1000
"""Largest number of rates in a schedule that rises."""


def schedule(solver: Message, remarks: Diagnostics) -> Any:
    """The field `learning_rate` of a solver: a number, or the mapping of a schedule; None if there is a problem."""
    policy, initial = solver["lr_policy"], solver["base_lr"]
    if not 0 < initial < inf:
        remarks.problem("the learning rate must be positive", solver, "base_lr", expected="base_lr above 0",
                        got=real(initial) if "base_lr" in solver else "none")  # fmt: skip
        return None
    made = _POLICIES.get(policy)
    if made is None:
        remarks.problem(
            "unknown policy of the learning rate", solver, "lr_policy", expected=f"one of {', '.join(_POLICIES)}",
            got=repr(policy) if policy else "no `lr_policy`",
        )  # fmt: skip
        return None
    return made(solver, initial, remarks)


def _fixed(solver: Message, initial: float, remarks: Diagnostics) -> Any:
    return initial


def _step(solver: Message, initial: float, remarks: Diagnostics) -> Any:
    """rate = base_lr · gamma^⌊iter / stepsize⌋"""
    gamma, size = _gamma(solver, remarks), solver["stepsize"]
    if size < 1:
        remarks.problem("a rate that falls in steps needs their size", solver, "stepsize",
                        expected="stepsize above 0", got=size)  # fmt: skip
    if gamma is None or size < 1:
        return None
    if gamma > 1:
        return _rising(solver, initial, gamma, range(size, solver["max_iter"], size), remarks)
    return initial if gamma == 1 else {"type": "StepDecay", "initial": initial, "gamma": gamma, "step_size": size}


def _exp(solver: Message, initial: float, remarks: Diagnostics) -> Any:
    """rate = base_lr · gamma^iter"""
    gamma = _gamma(solver, remarks)
    if gamma is None:
        return None
    if gamma > 1:
        return _rising(solver, initial, gamma, range(1, solver["max_iter"]), remarks)
    made = {"type": "ExponentialDecay", "initial": initial, "decay_rate": gamma, "decay_steps": 1}
    return initial if gamma == 1 else made


def _inv(solver: Message, initial: float, remarks: Diagnostics) -> Any:
    """rate = base_lr · (1 + gamma · iter)^-power"""
    gamma, power = solver["gamma"], solver["power"]
    if not (0 <= gamma < inf and 0 <= power < inf):
        remarks.problem("a rate that rises has no counterpart", solver, "power" if power < 0 else "gamma",
                        expected="gamma and power of 0 or more", got=f"gamma {gamma:g}, power {power:g}")  # fmt: skip
        return None
    made = {"type": "InverseTimeDecay", "initial": initial, "decay_rate": gamma, "power": power}
    return made if gamma and power else initial


def _multistep(solver: Message, initial: float, remarks: Diagnostics) -> Any:
    """rate = base_lr · gamma^n, where n goes up by one at each `stepvalue`, by one in an iteration at most."""
    gamma = _gamma(solver, remarks)
    values = [max(0, int(step)) for step in solver["stepvalue"]]
    if gamma is None:
        return None
    steps = list(accumulate(values, lambda before, one: max(before + 1, one)))
    at_once = sum(step < 1 for step in steps[:1])  # counted before the first rate is used
    initial, steps = initial * gamma**at_once, steps[at_once:]
    if not steps or gamma == 1:
        return initial
    if gamma > 1:
        return _rising(solver, initial, gamma, steps, remarks)
    return {"type": "MultiStepDecay", "initial": initial, "milestones": steps, "gamma": gamma}


def _poly(solver: Message, initial: float, remarks: Diagnostics) -> Any:
    """rate = base_lr · (1 - iter / max_iter)^power"""
    power = solver["power"]
    if not 0 <= power < inf:
        remarks.problem("a rate that rises has no counterpart", solver, "power", expected="power of 0 or more",
                        got=f"{power:g}")  # fmt: skip
        return None
    return {"type": "PolynomialDecay", "initial": initial, "end": 0.0, "power": power} if power else initial


def _sigmoid(solver: Message, initial: float, remarks: Diagnostics) -> Any:
    """rate = base_lr / (1 + exp(-gamma · (iter - stepsize)))"""
    gamma, size = solver["gamma"], solver["stepsize"]
    if size < 1 or not isfinite(gamma):
        remarks.problem(
            "a sigmoid needs its middle and how steep it is", solver, "stepsize" if size < 1 else "gamma",
            expected="stepsize above 0, a finite gamma", got=f"stepsize {size}, gamma {gamma:g}",
        )  # fmt: skip
        return None
    return {"type": "SigmoidDecay", "initial": initial, "gamma": gamma, "step_size": size}


def _gamma(solver: Message, remarks: Diagnostics) -> float | None:
    """The factor of each decay; None, and a problem, if it is not positive."""
    gamma: float = solver["gamma"]
    if 0 < gamma < inf:
        return gamma
    remarks.problem(f"the policy `{solver['lr_policy']}` needs a factor", solver, "gamma", expected="gamma above 0",
                    got=f"{gamma:g}" if "gamma" in solver else "no `gamma`")  # fmt: skip
    return None


def _rising(solver: Message, initial: float, gamma: float, steps: Any, remarks: Diagnostics) -> Any:
    """A piecewise schedule whose rate grows by a factor at each of these steps."""
    steps = [step for step in steps if step < solver["max_iter"]] if len(steps) <= MOST_RISES else None
    if steps is None or log(initial) + len(steps) * log(gamma) > LARGEST:
        remarks.problem("a rate that rises so often has no counterpart", solver, "gamma",
                        expected=f"gamma of 1 or less, or at most {MOST_RISES} rises", got=f"{gamma:g}")  # fmt: skip
        return None
    rates = [initial * gamma**count for count in range(len(steps) + 1)]
    made = {"type": "PiecewiseConstantDecay", "boundaries": [step - 1 for step in steps], "values": rates}
    return made if steps else initial


_POLICIES: dict[str, Callable[[Message, float, Diagnostics], Any]] = {
    "fixed": _fixed,
    "step": _step,
    "exp": _exp,
    "inv": _inv,
    "multistep": _multistep,
    "poly": _poly,
    "sigmoid": _sigmoid,
}


OLD_NAMES = {
    "SGD": "SGD", "NESTEROV": "Nesterov", "ADAGRAD": "AdaGrad", "RMSPROP": "RMSProp", "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}  # fmt: skip
"""Values of the enum `solver_type` → of the string `type` that replaced it."""

LEAST_EPSILON = 1e-30
"""Replaces a `delta` of 0, by which Caffe may divide."""


@dataclass(frozen=True)
class UpdateRule:
    """A solver of Caffe as a solver of netspec, in both directions."""

    type: str
    """The type of the solver here."""
    fields: Mapping[str, str]
    """Our field for each of Caffe's."""
    imported: Mapping[str, Any] = field(default_factory=dict)
    """Further fields, which differ from our defaults."""
    required: Mapping[str, Any] = field(default_factory=dict)
    """Fields that must have these values, which are our defaults, for the steps to be the same."""


UPDATE_RULES: Mapping[str, UpdateRule] = {
    # V ← momentum · V + rate · g; w ← w - V
    "SGD": UpdateRule(
        "SGD", {"momentum": "momentum"},
        required={"nesterov": False, "dampening": 0.0, "rate_in_velocity": True},
    ),
    # V' ← momentum · V + rate · g; w ← w - (1 + momentum) · V' + momentum · V
    "Nesterov": UpdateRule(
        "SGD", {"momentum": "momentum"}, {"nesterov": True}, {"dampening": 0.0, "rate_in_velocity": True}
    ),
    # a ← a + g²; w ← w - rate · g / (√a + delta)
    "AdaGrad": UpdateRule(
        "Adagrad", {"delta": "epsilon"}, {"initial_accumulator_value": 0.0, "epsilon_in_root": False}
    ),
    # a ← rms_decay · a + (1 - rms_decay) · g²; w ← w - rate · g / (√a + delta)
    "RMSProp": UpdateRule(
        "RMSprop", {"rms_decay": "rho", "delta": "epsilon"}, {"epsilon_in_root": False},
        {"momentum": 0.0, "centered": False},
    ),
    # a ← momentum · a + (1 - momentum) · g²; Δ = √((d + delta) / (a + delta)) · g; d: of Δ²; w ← w - rate · Δ
    "AdaDelta": UpdateRule("Adadelta", {"momentum": "rho", "delta": "epsilon"}),
    # m, v averages of g, g²; w ← w - rate · √(1 - momentum2ᵗ) / (1 - momentumᵗ) · m / (√v + delta)
    "Adam": UpdateRule(
        "Adam", {"momentum": "beta_1", "momentum2": "beta_2", "delta": "epsilon"},
        required={"amsgrad": False, "epsilon_mode": "uncorrected"},
    ),
}  # fmt: skip


def type_of(solver: Message) -> str:
    """Caffe's name of the solver."""
    found: str = OLD_NAMES[solver["solver_type"]] if "solver_type" in solver else solver["type"]
    return found


def rule(solver: Message, remarks: Diagnostics) -> dict[str, Any]:
    """The field `solver` of a training file."""
    kind = type_of(solver)
    found = UPDATE_RULES.get(kind)
    rate = schedule(solver, remarks)
    if found is None:
        remarks.problem("unknown solver", solver, "type", expected=f"one of {', '.join(UPDATE_RULES)}", got=repr(kind))
        return {}
    if solver["momentum"] and "momentum" not in found.fields:
        remarks.note(f"momentum {solver['momentum']:g} is left out: Caffe's {kind} has none, and refuses it")
    fields: dict[str, Any] = {
        ours: _delta(solver, remarks) if theirs == "delta" else _share(solver, theirs, remarks)
        for theirs, ours in found.fields.items()
    }
    fields = {} if found.type == "SGD" and not fields["momentum"] else {**fields, **found.imported}
    return {
        "type": found.type, "learning_rate": rate, **fields, **_decay(solver, remarks), **_clipping(solver, remarks),
    }  # fmt: skip


def _share(solver: Message, name: str, remarks: Diagnostics) -> float:
    """The decay rate of an average, in [0, 1)."""
    found: float = solver[name]
    if not 0 <= found < 1:
        remarks.problem(
            f"`{name}` is the decay rate of an average", solver, name, expected="0 or more, below 1", got=found
        )
    return found


def _delta(solver: Message, remarks: Diagnostics) -> float:
    found: float = solver["delta"]
    if found == 0:
        remarks.note(f"delta 0 is written as epsilon {LEAST_EPSILON:g}: nothing is divided by 0 here")
        return LEAST_EPSILON
    if not 0 < found < inf:
        remarks.problem("`delta` keeps from a division by 0", solver, "delta", expected="0 or more", got=found)
    return found


def _decay(solver: Message, remarks: Diagnostics) -> dict[str, Any]:
    """`weight_decay`, of L2 or L1 norms by `regularization_type`."""
    decay, norm = solver["weight_decay"], solver["regularization_type"]
    if not 0 <= decay < inf:
        remarks.problem("`weight_decay` pulls weights to 0", solver, "weight_decay", expected="0 or more", got=decay)
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
        remarks.problem("clipping to 0 leaves no gradients", solver, "clip_gradients", expected="above 0", got=limit)
    return {"global_clipnorm": limit / batches}


GUESSED_STEPS = 10_000
"""Number of steps if the file does not specify it; Caffe's callers do then."""

OF_CAFFE = {
    "average_loss": "the log has the loss of each step",
    "debug_info": "`netspec plan` and the log describe a training",
    "snapshot_diff": "checkpoints do not contain gradients",
    "test_compute_loss": "evaluations always contain the losses",
    "layer_wise_reduce": "a training file does not specify how gradients are reduced",
    "weights": "give them to the training: `netspec train train.yaml --weights FILE`",
}
"""Fields without a counterpart, and why none is needed."""


def loop(solver: Message, remarks: Diagnostics, *, tested: bool) -> dict[str, Any]:
    """The field `train`; `tested` if there is a test split."""
    made: dict[str, Any] = {"max_steps": solver["max_iter"]}
    if "max_iter" not in solver:
        made["max_steps"] = GUESSED_STEPS
        remarks.note(f"the solver has no max_iter: max_steps {GUESSED_STEPS} is a guess")
    elif solver["max_iter"] < 1:
        remarks.problem("no step is taken", solver, "max_iter", expected="max_iter above 0", got=solver["max_iter"])
    if tested:
        made["test_every"] = _count(solver, "test_interval", remarks)
    made["checkpoint_every"] = _count(solver, "snapshot", remarks)
    if _count(solver, "display", remarks):
        made["log_every"] = solver["display"]
    if solver["random_seed"] >= 0:
        made["seed"] = solver["random_seed"]
    if solver["iter_size"] > 1:
        made["accumulate"] = solver["iter_size"]
    elif solver["iter_size"] < 1:
        remarks.problem("no batch in a step", solver, "iter_size", expected="above 0", got=solver["iter_size"])
    _left_out(solver, remarks)
    return made


def _count(solver: Message, name: str, remarks: Diagnostics) -> int:
    """An interval in steps; 0: only at the end."""
    found: int = solver[name]
    if found < 0:
        remarks.problem(f"`{name}` counts steps", solver, name, expected="0 or more", got=found)
    return found


def _left_out(solver: Message, remarks: Diagnostics) -> None:
    for name, why in OF_CAFFE.items():
        if name in solver:
            value = solver[name]
            told = ", ".join(value) if isinstance(value, list) else str(value)
            remarks.note(f"{name} {told} is left out: {why}")
    if solver["test_initialization"] and "test_initialization" in solver and solver["test_interval"]:
        remarks.note("test_initialization true is left out: the first evaluation comes after test_every steps")
    if not solver["snapshot_after_train"]:
        remarks.note("snapshot_after_train false is left out: the last step is always kept")
    for unknown in solver.unknown:
        remarks.note(f"`{unknown.name}` of the solver is unknown, and left out")

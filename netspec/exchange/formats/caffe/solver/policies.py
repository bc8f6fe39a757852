"""Caffe's learning-rate policies → schedules.

Formulas: the comment on `lr_policy` in caffe.proto; iterations count from 0 there, as steps do here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf, isfinite, log
from typing import Any

from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.proto.text import real
from netspec.exchange.formats.caffe.solver.context import Diagnostics

MAX_LOG_RATE = 80.0
"""Logarithm of the largest learning rate, somewhat less than that of the largest float32."""
MAX_RISES = 1000
"""Largest number of rates in a schedule that rises."""


@dataclass(frozen=True)
class Policy:
    """A policy of Caffe as a schedule of netspec."""

    schedule: str
    """The type of the schedule."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Our field for each of Caffe's."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the schedule, which differ from our defaults."""


POLICIES: Mapping[str, Policy] = {
    # base_lr
    "fixed": Policy("Constant"),
    # base_lr · gamma^⌊iter / stepsize⌋
    "step": Policy("StepDecay", {"gamma": "gamma", "stepsize": "step_size"}),
    # base_lr · gamma^iter
    "exp": Policy("ExponentialDecay", {"gamma": "decay_rate"}, {"decay_steps": 1}),
    # base_lr · (1 + gamma · iter)^-power
    "inv": Policy("InverseTimeDecay", {"gamma": "decay_rate", "power": "power"}),
    # base_lr · gamma^n, where n goes up by one at each stepvalue, by one in an iteration at most
    "multistep": Policy("MultiStepDecay", {"stepvalue": "milestones", "gamma": "gamma"}),
    # base_lr · (1 - iter / max_iter)^power
    "poly": Policy("PolynomialDecay", {"power": "power"}, {"end": 0.0}),
    # base_lr / (1 + exp(-gamma · (iter - stepsize)))
    "sigmoid": Policy("SigmoidDecay", {"gamma": "gamma", "stepsize": "step_size"}),
}


def schedule(solver: Message, remarks: Diagnostics) -> Any:
    """The field `learning_rate` of a solver: a number, or the mapping of a schedule; None if there is a problem."""
    name, initial = solver["lr_policy"], solver["base_lr"]
    if not 0 < initial < inf:
        remarks.problem("the learning rate must be positive", solver, "base_lr", expected="base_lr above 0",
                        got=real(initial) if "base_lr" in solver else "none")  # fmt: skip
        return None
    if name not in POLICIES:
        remarks.problem(
            "unknown policy of the learning rate", solver, "lr_policy", expected=f"one of {', '.join(POLICIES)}",
            got=repr(name) if name else "no `lr_policy`",
        )  # fmt: skip
        return None
    count = len(remarks.problems)
    _check_fields(solver, name, remarks)
    if len(remarks.problems) > count:
        return None
    policy, gamma, steps = POLICIES[name], solver["gamma"], solver["stepvalue"]
    if name == "multistep":
        initial, steps = _milestones(solver, initial)
    if name in ("step", "exp", "multistep") and gamma > 1:
        period = solver["stepsize"] if name == "step" else 1
        rises = steps if name == "multistep" else range(period, solver["max_iter"], period)
        return _rising(solver, initial, rises, remarks)
    is_constant = {
        "fixed": True, "step": gamma == 1, "exp": gamma == 1, "inv": not (gamma and solver["power"]),
        "multistep": not steps or gamma == 1, "poly": not solver["power"],
    }  # fmt: skip
    if is_constant.get(name):
        return initial
    values = {ours: solver[theirs] for theirs, ours in policy.fields.items()}
    if name == "multistep":
        values["milestones"] = steps
    return {"type": policy.schedule, "initial": initial, **values, **policy.fixed}


def _check_fields(solver: Message, policy: str, remarks: Diagnostics) -> None:
    """Report fields of a policy whose values have no counterpart."""
    gamma, power, size = solver["gamma"], solver["power"], solver["stepsize"]
    if policy == "step" and size < 1:
        remarks.problem("`stepsize` must be ≥ 1", solver, "stepsize", expected="stepsize above 0", got=size)
    if policy in ("step", "exp", "multistep") and not 0 < gamma < inf:
        remarks.problem(f"the policy `{policy}` needs a factor", solver, "gamma", expected="gamma above 0",
                        got=f"{gamma:g}" if "gamma" in solver else "no `gamma`")  # fmt: skip
    if policy == "sigmoid" and (size < 1 or not isfinite(gamma)):
        remarks.problem(
            "the policy `sigmoid` needs `stepsize` and `gamma`", solver, "stepsize" if size < 1 else "gamma",
            expected="stepsize above 0, a finite gamma", got=f"stepsize {size}, gamma {gamma:g}",
        )  # fmt: skip
    if policy == "inv" and not (0 <= gamma < inf and 0 <= power < inf):
        remarks.problem("a rate that rises has no counterpart", solver, "power" if power < 0 else "gamma",
                        expected="gamma and power of 0 or more", got=f"gamma {gamma:g}, power {power:g}")  # fmt: skip
    if policy == "poly" and not 0 <= power < inf:
        remarks.problem("a rate that rises has no counterpart", solver, "power", expected="power of 0 or more",
                        got=f"{power:g}")  # fmt: skip


def _milestones(solver: Message, initial: float) -> tuple[float, list[int]]:
    """The first rate, and the steps at which Caffe multiplies it; each is later than the previous one."""
    values = [max(0, int(step)) for step in solver["stepvalue"]]
    steps = list(accumulate(values, lambda previous, step: max(previous + 1, step)))
    passed = sum(step < 1 for step in steps[:1])  # counted before the first rate is used
    return initial * solver["gamma"] ** passed, steps[passed:]


def _rising(solver: Message, initial: float, steps: Any, remarks: Diagnostics) -> Any:
    """A piecewise schedule whose rate grows by `gamma` at each of these steps."""
    gamma = solver["gamma"]
    steps = [step for step in steps if step < solver["max_iter"]] if len(steps) <= MAX_RISES else None
    if steps is None or log(initial) + len(steps) * log(gamma) > MAX_LOG_RATE:
        remarks.problem("a rate that rises so often has no counterpart", solver, "gamma",
                        expected=f"gamma of 1 or less, or at most {MAX_RISES} rises", got=f"{gamma:g}")  # fmt: skip
        return None
    rates = [initial * gamma**count for count in range(len(steps) + 1)]
    boundaries = [step - 1 for step in steps]
    return {"type": "PiecewiseConstantDecay", "boundaries": boundaries, "values": rates} if steps else initial

"""Caffe's policies of the learning rate → schedules, whose values are the same at every step.

The formulas are those of caffe.proto's comment on `lr_policy` and of the solver's documentation; iterations count from
0 there as steps do here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import inf, isfinite, log
from typing import Any

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.proto.printing import real
from netspec.exchange.caffe.solving.remarks import Remarks

LARGEST = 80.0
"""The logarithm of the largest rate that a float32 holds, less some."""
MOST_RISES = 1000
"""How many rates are written out where a rate rises step by step."""


def schedule(solver: Message, remarks: Remarks) -> Any:
    """The field `learning_rate` of a solver: a number, or the mapping of a schedule; None where there is none."""
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


def _fixed(solver: Message, initial: float, remarks: Remarks) -> Any:
    return initial


def _step(solver: Message, initial: float, remarks: Remarks) -> Any:
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


def _exp(solver: Message, initial: float, remarks: Remarks) -> Any:
    """rate = base_lr · gamma^iter"""
    gamma = _gamma(solver, remarks)
    if gamma is None:
        return None
    if gamma > 1:
        return _rising(solver, initial, gamma, range(1, solver["max_iter"]), remarks)
    made = {"type": "ExponentialDecay", "initial": initial, "decay_rate": gamma, "decay_steps": 1}
    return initial if gamma == 1 else made


def _inv(solver: Message, initial: float, remarks: Remarks) -> Any:
    """rate = base_lr · (1 + gamma · iter)^-power"""
    gamma, power = solver["gamma"], solver["power"]
    if not (0 <= gamma < inf and 0 <= power < inf):
        remarks.problem("a rate that rises has no counterpart", solver, "power" if power < 0 else "gamma",
                        expected="gamma and power of 0 or more", got=f"gamma {gamma:g}, power {power:g}")  # fmt: skip
        return None
    made = {"type": "InverseTimeDecay", "initial": initial, "decay_rate": gamma, "power": power}
    return made if gamma and power else initial


def _multistep(solver: Message, initial: float, remarks: Remarks) -> Any:
    """rate = base_lr · gamma^n, where n goes up by one at each `stepvalue`, by one in an iteration at most."""
    gamma = _gamma(solver, remarks)
    values = [max(0, int(one)) for one in solver["stepvalue"]]
    if gamma is None:
        return None
    steps = list(accumulate(values, lambda before, one: max(before + 1, one)))
    at_once = sum(one < 1 for one in steps[:1])  # counted before the first rate is asked for
    initial, steps = initial * gamma**at_once, steps[at_once:]
    if not steps or gamma == 1:
        return initial
    if gamma > 1:
        return _rising(solver, initial, gamma, steps, remarks)
    return {"type": "MultiStepDecay", "initial": initial, "milestones": steps, "gamma": gamma}


def _poly(solver: Message, initial: float, remarks: Remarks) -> Any:
    """rate = base_lr · (1 - iter / max_iter)^power"""
    power = solver["power"]
    if not 0 <= power < inf:
        remarks.problem("a rate that rises has no counterpart", solver, "power", expected="power of 0 or more",
                        got=f"{power:g}")  # fmt: skip
        return None
    return {"type": "PolynomialDecay", "initial": initial, "end": 0.0, "power": power} if power else initial


def _sigmoid(solver: Message, initial: float, remarks: Remarks) -> Any:
    """rate = base_lr / (1 + exp(-gamma · (iter - stepsize)))"""
    gamma, size = solver["gamma"], solver["stepsize"]
    if size < 1 or not isfinite(gamma):
        remarks.problem(
            "a sigmoid needs its middle and how steep it is", solver, "stepsize" if size < 1 else "gamma",
            expected="stepsize above 0, a finite gamma", got=f"stepsize {size}, gamma {gamma:g}",
        )  # fmt: skip
        return None
    return {"type": "SigmoidDecay", "initial": initial, "gamma": gamma, "step_size": size}


def _gamma(solver: Message, remarks: Remarks) -> float | None:
    """The factor of each fall; None, and a problem, where it leaves no rate."""
    gamma: float = solver["gamma"]
    if 0 < gamma < inf:
        return gamma
    remarks.problem(f"the policy `{solver['lr_policy']}` needs a factor", solver, "gamma", expected="gamma above 0",
                    got=f"{gamma:g}" if "gamma" in solver else "no `gamma`")  # fmt: skip
    return None


def _rising(solver: Message, initial: float, gamma: float, steps: Any, remarks: Remarks) -> Any:
    """Rates that grow by a factor from each of these steps on, written out."""
    steps = [one for one in steps if one < solver["max_iter"]] if len(steps) <= MOST_RISES else None
    if steps is None or log(initial) + len(steps) * log(gamma) > LARGEST:
        remarks.problem("a rate that rises so often has no counterpart", solver, "gamma",
                        expected=f"gamma of 1 or less, or at most {MOST_RISES} rises", got=f"{gamma:g}")  # fmt: skip
        return None
    rates = [initial * gamma**count for count in range(len(steps) + 1)]
    made = {"type": "PiecewiseConstantDecay", "boundaries": [one - 1 for one in steps], "values": rates}
    return made if steps else initial


_POLICIES: dict[str, Callable[[Message, float, Remarks], Any]] = {
    "fixed": _fixed,
    "step": _step,
    "exp": _exp,
    "inv": _inv,
    "multistep": _multistep,
    "poly": _poly,
    "sigmoid": _sigmoid,
}

"""A training → Caffe's solver file, where there is a solver that steps the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import isclose
from typing import Any

from netspec.exchange.caffe.proto.message import Message
from netspec.exchange.caffe.writing.writer import NoForm


def solver_message(train: Any, net: str, prefix: str, notes: list[str]) -> Message:
    """The solver of a training whose net is in the file `net`. Raises `NoForm` with all that Caffe has not."""
    rule, loop = train.solver, train.train
    parts: dict[str, Any] = {}
    reasons = []
    for part, *given in ((_rate, rule.learning_rate, loop.max_steps), (_rule, rule)):
        try:
            parts |= part(*given)
        except NoForm as reason:
            reasons.append(str(reason))
    reasons += _lacking(rule, loop)
    if reasons:
        raise NoForm("; ".join(reasons))
    test = train.data.test
    fields = {"net": net, **(_tests(test, loop, notes) if test is not None else {}), **parts}
    if loop.precision not in ("float32", "float64"):
        notes.append(f"`precision: {loop.precision}` is left out: Caffe computes in float32")
    if rule.weight_decay:
        fields["weight_decay"] = rule.weight_decay
        if getattr(rule, "weight_decay_norm", "L2") == "L1":
            fields["regularization_type"] = "L1"
    if rule.global_clipnorm is not None:
        fields["clip_gradients"] = rule.global_clipnorm * loop.accumulate
    if loop.accumulate > 1:
        fields["iter_size"] = loop.accumulate
    fields |= {"display": loop.log_every, "max_iter": loop.max_steps}
    if loop.checkpoint_every:
        fields["snapshot"] = loop.checkpoint_every
    fields |= {"snapshot_prefix": prefix, "random_seed": loop.seed}
    return Message("SolverParameter", **fields)


def _lacking(rule: Any, loop: Any) -> Iterator[str]:
    """What no solver of Caffe's has."""
    if loop.max_steps is None:
        yield "Caffe counts steps, not epochs: give `train.max_steps`"
    if rule.clipnorm is not None or rule.clipvalue is not None:
        yield "Caffe clips all gradients together, by `global_clipnorm`"
    if rule.ema is not None:
        yield "Caffe keeps no average of the weights"
    if getattr(rule, "decoupled_weight_decay", False):
        yield "Caffe's decay is a part of the gradient"
    if any(group.solver is not None or group.learning_rate is not None for group in rule.groups):
        yield "Caffe has one solver and one rate, times a factor for each parameter"
    if any(group.weight_decay for group in rule.groups) and not rule.weight_decay:
        yield "Caffe's decays are factors of that of the solver, which is 0"


def _tests(test: Any, loop: Any, notes: list[str]) -> dict[str, Any]:
    if test.limit:
        batches = -(-test.limit // test.batch_size)
    else:
        batches = 100
        notes.append("test_iter 100 is a guess: test_iter × batch_size samples are tested")
    made: dict[str, Any] = {"test_iter": [batches]}
    every = loop.test_every if loop.test_every is not None else 0
    return made | {"test_interval": every or loop.max_steps, "test_initialization": False}


def _sgd(rule: Any) -> dict[str, Any]:
    kind = {"type": "Nesterov"} if rule.nesterov else {}
    return {**kind, **({"momentum": rule.momentum} if rule.momentum else {})}


def _adagrad(rule: Any) -> dict[str, Any]:
    if rule.initial_accumulator_value or rule.epsilon_in_root:
        raise NoForm("Caffe's AdaGrad starts at 0 and adds delta to the root: `initial_accumulator_value: 0`, "
                     "`epsilon_in_root: false`")  # fmt: skip
    return {"type": "AdaGrad", "delta": rule.epsilon}


def _rmsprop(rule: Any) -> dict[str, Any]:
    if rule.momentum or rule.centered or rule.epsilon_in_root:
        raise NoForm("Caffe's RMSProp has no momentum, is not centered, and adds delta to the root")
    return {"type": "RMSProp", "rms_decay": rule.rho, "delta": rule.epsilon}


def _adadelta(rule: Any) -> dict[str, Any]:
    return {"type": "AdaDelta", "momentum": rule.rho, "delta": rule.epsilon}


def _adam(rule: Any) -> dict[str, Any]:
    if rule.amsgrad:
        raise NoForm("Caffe's Adam is not AMSGrad")
    return {"type": "Adam", "momentum": rule.beta_1, "momentum2": rule.beta_2, "delta": rule.epsilon}


_RULES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "SGD": _sgd,
    "Adagrad": _adagrad,
    "RMSprop": _rmsprop,
    "Adadelta": _adadelta,
    "Adam": _adam,
}


def _rule(rule: Any) -> dict[str, Any]:
    made = _RULES.get(rule.type)
    if made is None:
        raise NoForm(f"Caffe has no solver {rule.type}")
    return made(rule)


def _rate(one: Any, steps: int | None) -> dict[str, Any]:
    """`base_lr` and `lr_policy` of a schedule."""
    made = _SCHEDULES.get(one.type)
    if made is None:
        raise NoForm(f"Caffe has no policy as {one.type}")
    return made(one, steps or 1)  # without a number of steps there is no solver, which is told of all at once


def _exponential(one: Any, steps: int) -> dict[str, Any]:
    period = one.decay_steps or steps
    if one.staircase:
        return {"base_lr": one.initial, "lr_policy": "step", "gamma": one.decay_rate, "stepsize": period}
    return {"base_lr": one.initial, "lr_policy": "exp", "gamma": one.decay_rate ** (1 / period)}


def _inverse(one: Any, steps: int) -> dict[str, Any]:
    if one.staircase and one.decay_steps > 1:
        raise NoForm("Caffe's policy `inv` falls at every step")
    gamma = one.decay_rate / one.decay_steps
    return {"base_lr": one.initial, "lr_policy": "inv", "gamma": gamma, "power": one.power}


def _polynomial(one: Any, steps: int) -> dict[str, Any]:
    if one.end or one.cycle or one.decay_steps not in (None, steps):
        raise NoForm("Caffe's policy `poly` falls to 0, at the end of the training")
    return {"base_lr": one.initial, "lr_policy": "poly", "power": one.power}


def _piecewise(one: Any, steps: int) -> dict[str, Any]:
    factors = [after / before for before, after in pairwise(one.values)]
    if not all(isclose(factor, factors[0], rel_tol=1e-9) for factor in factors):
        raise NoForm("Caffe's policy `multistep` has one factor for all its steps")
    values = [boundary + 1 for boundary in one.boundaries]
    return {"base_lr": one.values[0], "lr_policy": "multistep", "gamma": factors[0], "stepvalue": values}


_SCHEDULES: Mapping[str, Callable[[Any, int], dict[str, Any]]] = {
    "Constant": lambda one, _: {"base_lr": one.initial, "lr_policy": "fixed"},
    "StepDecay": lambda one, _: {
        "base_lr": one.initial, "lr_policy": "step", "gamma": one.gamma, "stepsize": one.step_size,
    },
    "MultiStepDecay": lambda one, _: {
        "base_lr": one.initial, "lr_policy": "multistep", "gamma": one.gamma, "stepvalue": list(one.milestones),
    },
    "ExponentialDecay": _exponential,
    "InverseTimeDecay": _inverse,
    "PolynomialDecay": _polynomial,
    "PiecewiseConstantDecay": _piecewise,
    "SigmoidDecay": lambda one, _: {
        "base_lr": one.initial, "lr_policy": "sigmoid", "gamma": one.gamma, "stepsize": one.step_size,
    },
}  # fmt: skip

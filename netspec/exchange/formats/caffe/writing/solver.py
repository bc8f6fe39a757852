"""A training → Caffe's solver file, and the states of its solver → `.solverstate` and `.solverstate.h5`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import isclose
from typing import TYPE_CHECKING, Any

from netspec.exchange.formats.caffe.blobs import array_blob, blob_array
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.solver.rules import UPDATE_RULES
from netspec.exchange.formats.caffe.solver.states import KEPT
from netspec.exchange.formats.caffe.writing.training import trained
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.unsupported import UnsupportedFeature

if TYPE_CHECKING:
    from numpy.typing import NDArray


def solver_message(train: Any, net: str, prefix: str, notes: list[str]) -> Message:
    """The solver of a training whose net is the file `net`. Raises `UnsupportedFeature` with all reasons."""
    solver, loop = train.solver, train.train
    fields: dict[str, Any] = {"net": net}
    if (test := train.data.splits().get(train.data.monitored)) is not None:
        if not test.limit:
            notes.append("test_iter 100 is a guess: test_iter × batch_size samples are tested")
        fields["test_iter"] = [-(-test.limit // test.batch_size) if test.limit else 100]
        fields |= {"test_interval": loop.test_every or loop.max_steps, "test_initialization": False}
    rate, rate_reason = _learning_rate(solver.learning_rate, loop.max_steps or 1)
    rule, rule_reasons = _update_rule(solver)
    if reasons := [reason for reason in (rate_reason, *rule_reasons, *_unsupported(solver, loop)) if reason]:
        raise UnsupportedFeature("; ".join(reasons))
    fields |= rate | rule
    if loop.precision not in ("float32", "float64"):
        notes.append(f"`precision: {loop.precision}` is left out: Caffe computes in float32")
    if solver.weight_decay:
        fields["weight_decay"] = solver.weight_decay
        fields |= {"regularization_type": "L1"} if getattr(solver, "weight_decay_norm", "L2") == "L1" else {}
    if solver.global_clipnorm is not None:
        fields["clip_gradients"] = solver.global_clipnorm * loop.accumulate
    if loop.accumulate > 1:
        fields["iter_size"] = loop.accumulate
    fields |= {"display": loop.log_every, "max_iter": loop.max_steps}
    fields |= {"snapshot": loop.checkpoint_every} if loop.checkpoint_every else {}
    return Message("SolverParameter", **fields, snapshot_prefix=prefix, random_seed=loop.seed)


def _unsupported(solver: Any, loop: Any) -> Iterator[str]:
    """What no solver of Caffe has."""
    if loop.max_steps is None:
        yield "Caffe counts steps, not epochs: give `train.max_steps`"
    if solver.clipnorm is not None or solver.clipvalue is not None:
        yield "Caffe clips all gradients together, by `global_clipnorm`"
    if solver.ema is not None:
        yield "Caffe keeps no average of the weights"
    for name in solver.scheduled_momenta():
        yield f"Caffe's momentum must be a number: `{name}` is a schedule"
    if getattr(solver, "decoupled_weight_decay", False):
        yield "Caffe's decay is a part of the gradient"
    if any(group.solver is not None or group.learning_rate is not None for group in solver.groups):
        yield "Caffe has one solver and one rate, times a factor for each parameter"
    if any(group.weight_decay for group in solver.groups) and not solver.weight_decay:
        yield "Caffe's decays are factors of that of the solver, which is 0"


def _update_rule(solver: Any) -> tuple[dict[str, Any], list[str]]:
    """Type and constants of a solver; the reasons if Caffe does not have it."""
    nesterov = getattr(solver, "nesterov", False)
    rules = {name: rule for name, rule in UPDATE_RULES.items() if rule.type == solver.type}
    if not rules:
        return {}, [f"Caffe has no solver {solver.type}"]
    name = "Nesterov" if nesterov else next(iter(rules))
    rule = rules[name]
    momentum = getattr(solver, "momentum", 0) or solver.type != "SGD"  # what needs it does not matter without it
    required = {**rule.imported, **rule.required} if momentum else {}
    reasons = [
        f"Caffe's {name} has `{field}: {_shown(value)}`, not `{_shown(found)}`"
        for field, value in required.items()
        if (found := getattr(solver, field)) != value
    ]
    fields = {theirs: getattr(solver, ours) for theirs, ours in rule.fields.items()}
    return {**({"type": name} if name != "SGD" else {}), **(fields if momentum else {})}, reasons


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _learning_rate(schedule: Any, steps: int) -> tuple[dict[str, Any], str]:
    """The policy of a schedule; the reason if Caffe does not have it."""
    reason = ""
    fields: dict[str, Any] = {}
    match schedule.type:
        case "Constant":
            fields = {"lr_policy": "fixed"}
        case "StepDecay" | "SigmoidDecay":
            policy = "step" if schedule.type == "StepDecay" else "sigmoid"
            fields = {"lr_policy": policy, "gamma": schedule.gamma, "stepsize": schedule.step_size}
        case "MultiStepDecay":
            fields = {"lr_policy": "multistep", "gamma": schedule.gamma, "stepvalue": list(schedule.milestones)}
        case "ExponentialDecay":
            period, rate = schedule.decay_steps or steps, schedule.decay_rate
            fields = {"lr_policy": "exp", "gamma": rate ** (1 / period)}
            if schedule.staircase:
                fields = {"lr_policy": "step", "gamma": rate, "stepsize": period}
        case "InverseTimeDecay":
            if schedule.staircase and schedule.decay_steps > 1:
                reason = "Caffe's policy `inv` falls at every step"
            gamma = schedule.decay_rate / schedule.decay_steps
            fields = {"lr_policy": "inv", "gamma": gamma, "power": schedule.power}
        case "PolynomialDecay":
            if schedule.end or schedule.cycle or schedule.decay_steps not in (None, steps):
                reason = "Caffe's policy `poly` falls to 0, at the end of the training"
            fields = {"lr_policy": "poly", "power": schedule.power}
        case "PiecewiseConstantDecay":
            factors = [after / before for before, after in pairwise(schedule.values)]
            if not all(isclose(factor, factors[0], rel_tol=1e-9) for factor in factors):
                reason = "Caffe's policy `multistep` has one factor for all its steps"
            values = [boundary + 1 for boundary in schedule.boundaries]
            fields = {"lr_policy": "multistep", "gamma": factors[0], "stepvalue": values}
        case other:
            reason = f"Caffe has no policy like {other}"
    first = schedule.values[0] if schedule.type == "PiecewiseConstantDecay" else getattr(schedule, "initial", None)
    return {"base_lr": first, **fields}, reason


def state_message(exported: Exportable, solver: Message, learned: str) -> Message:
    """The states of the solver in a checkpoint; the file `learned` contains its weights.

    The history has an array for each parameter of the net for training, then the solver's second ones. A slot is
    written as its parameter is, so that its layout is the same. `current_step` counts the values of `multistep` that
    are passed: Caffe moves on before a step, not after it.
    """
    import numpy as np

    train: Any = exported.train
    state = Message("SolverState", iter=exported.step, learned_net=learned)
    for slot, factor in KEPT[train.solver.type]:
        prefix, suffix = "solver/", f"/{slot}"
        slots = {
            name.removeprefix(prefix).removesuffix(suffix): factor * array
            for name, array in exported.slots.items()
            if name.startswith(prefix) and name.endswith(suffix)
        }
        for weight in trained(replace(exported, arrays={**exported.arrays, **slots}), "").parameters():
            values = weight.values if weight.state in slots else np.zeros(weight.values.shape)
            state.add("history", array_blob(np.asarray(values, np.float32, order="C")))
    state["current_step"] = sum(value < exported.step for value in solver["stepvalue"])
    return state


def hdf5_state(state: Message) -> dict[str, NDArray[Any]]:
    """The datasets of a `.solverstate.h5`: Caffe reads numbers as arrays of one, and texts with a 0 at the end."""
    import numpy as np

    learned = state["learned_net"].encode()
    arrays = {name: np.array([state[name]], np.int32) for name in ("iter", "current_step")}
    arrays["learned_net"] = np.array(learned, f"S{len(learned) + 1}")
    return arrays | {f"history/{index}": blob_array(blob) for index, blob in enumerate(state["history"])}

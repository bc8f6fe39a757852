"""A training → Caffe's solver file, and the states of its solver → `.solverstate` and `.solverstate.h5`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from netspec.exchange.formats.caffe.blobs import array_blob
from netspec.exchange.formats.caffe.proto.message import Message
from netspec.exchange.formats.caffe.solver.policies import policy_fields
from netspec.exchange.formats.caffe.solver.rules import update_rule_fields
from netspec.exchange.formats.caffe.solver.states import SLOTS
from netspec.exchange.formats.caffe.writing.training import trained
from netspec.exchange.formats.registry import Exportable
from netspec.exchange.unsupported import UnsupportedFeature


def solver_message(train: Any, net: str, prefix: str, notes: list[str]) -> Message:
    """The solver of a training whose net is the file `net`. Raises `UnsupportedFeature` with all reasons."""
    solver, loop = train.solver, train.train
    fields: dict[str, Any] = {"net": net}
    if (test := train.data.splits().get(train.data.monitored)) is not None:
        if not test.limit:
            notes.append("test_iter 100 is a guess: test_iter × batch_size samples are tested")
        fields["test_iter"] = [-(-test.limit // test.batch_size) if test.limit else 100]
        fields |= {"test_interval": loop.test_every or loop.max_steps, "test_initialization": False}
    rate, rate_reason = policy_fields(solver.learning_rate, loop.max_steps or 1)
    rule, rule_reasons = update_rule_fields(solver)
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


def state_message(exported: Exportable, solver: Message, learned: str) -> Message:
    """The states of the solver in a checkpoint; the file `learned` contains its weights.

    The history has an array for each parameter of the net for training, then the solver's second ones. A slot is
    written as its parameter is, so that its layout is the same. `current_step` counts the values of `multistep` that
    are passed: Caffe moves on before a step, not after it.
    """
    train: Any = exported.train
    state = Message("SolverState", iter=exported.step, learned_net=learned)
    for slot, factor in SLOTS[train.solver.type]:
        prefix, suffix = "solver/", f"/{slot}"
        slots = {
            name.removeprefix(prefix).removesuffix(suffix): factor * array
            for name, array in exported.slots.items()
            if name.startswith(prefix) and name.endswith(suffix)
        }
        for _, _, weight in trained(replace(exported, arrays={**exported.arrays, **slots}), "").parameters():
            values = weight.values if weight.state in slots else np.zeros_like(weight.values)
            state.add("history", array_blob(values))
    state["current_step"] = sum(value < exported.step for value in solver["stepvalue"])
    return state

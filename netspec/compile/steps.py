"""Losses and their gradients, from which `compile/training.py` builds training steps."""

from __future__ import annotations

from netspec.compile.build import LOSS, NetGraph, total
from netspec.errors import InputError, Problem, SpecError
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.value import Value
from netspec.layers.states import StateInfo
from netspec.passes.base import run_passes
from netspec.passes.clamp_sinking import SinkClamps
from netspec.schema.specs.net import NetSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec

LEARNING_RATE, MOMENTUM, STEP = "$learning_rate", "$momentum", "$step"
"""Inputs of a training program in addition to the data; the inputs of a net cannot have these names."""
FIRST, SHARE = "$first", "$share"
"""Further inputs if a step reads several batches, in addition to `WEIGHT`, the weight of a batch: whether the batch is
the first of the step, and the factor of the sum of the gradients."""
TOTAL = "$total"
"""Output of a program that computes one of several batches on several workers: the total weight of the batch."""


def scheduled_inputs(solver: SolverSpec) -> dict[str, ScheduleSpec]:
    """Return the schedules of a solver, by the inputs of a training program that they feed.

    Learning rates come first, then scheduled momenta; inputs of parameter groups are numbered from 1.
    """
    rates, momenta = enumerate(solver.schedules()), enumerate(solver.momenta(), not solver.scheduled_momenta())
    kinds = ((LEARNING_RATE, rates), (MOMENTUM, momenta))
    return {f"{kind}/{n}" if n else kind: one for kind, several in kinds for n, one in several}


def is_rate(name: str) -> bool:
    """Whether an input is a learning rate, which is scaled if the updates of several workers add up."""
    return name.partition("/")[0] == LEARNING_RATE


NEW = "new"
"""Last part of the name of an output that is the value of a state after a step."""
FORWARD_PASSES = (SinkClamps(),)
"""Before gradients are made: what changes their form."""


def losses(built: NetGraph) -> dict[str, Value]:
    """Return the total loss and its parts, by their names in a program's results; empty if there are no losses."""
    if not built.losses:
        return {}
    return {LOSS: total(built.losses.values())} | {f"{LOSS}/{name}": value for name, value in built.losses.items()}


def forward_graph(spec: NetSpec, built: NetGraph) -> Graph:
    """Return the losses and new moving averages that gradients start from. Raises `SpecError` without a loss."""
    if not built.losses:
        example = "{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}"
        message, hint = "the net has no losses: there is nothing to train for", f"add e.g. `losses: [{example}]`"
        raise SpecError(Problem(message, spec.where(), "losses", hint=hint))
    return run_passes(Graph(losses(built), built.builder.updates), FORWARD_PASSES)


def training_form(built: NetGraph) -> Graph:
    """Outputs, losses and new states as layers make them in training: what a program elsewhere trains.

    The new value of a state is called `STATE/new`. Raises `InputError` where an output is called as the losses are.
    """
    found = losses(built)
    if LOSS in found and LOSS in built.outputs:
        raise InputError(f"an output is called `{LOSS}`, as the sum of the losses is", expected="another name")
    new = {f"{name}/{NEW}": value for name, value in built.builder.updates.items()}
    return Graph({**built.outputs, **found, **new}, named=built.values)


def updated_start(forward: Graph, name: str, info: StateInfo) -> Value:
    """Return the value that an update of a parameter starts from: its layer's new value, or the parameter."""
    return forward.updates.get(name, info.value)


def gradients_graph(spec: NetSpec, built: NetGraph) -> Graph:
    """Losses, and the gradient of their sum by each trained parameter, as a training step starts from it."""
    forward = forward_graph(spec, built)
    made = forward.outputs
    trained = {
        name: updated_start(forward, name, info) for name, info in built.builder.states.items() if info.trainable
    }
    found = gradients(made[LOSS], list(trained.values()))
    return Graph({**made, **{f"gradient/{name}": one for name, one in zip(trained, found, strict=True)}})

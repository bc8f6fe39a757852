"""What programs compute: losses and their gradients; `compile/training.py` makes training steps of them."""

from __future__ import annotations

from netspec.compile.build import LOSS, Built, total
from netspec.errors import InputError, Problem, SpecError
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.value import Value
from netspec.layers.states import StateInfo
from netspec.passes.base import run_passes
from netspec.passes.sink import SinkClamps
from netspec.schema.net import NetSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec

LEARNING_RATE, STEP = "$learning_rate", "$step"
"""Inputs of a training program beside the data; no input of a net can be called so."""
FIRST, SHARE = "$first", "$share"
"""Further inputs where a step reads several batches, beside `WEIGHT`, what a batch counts: whether it is the step's
first, and what the sum of their gradients is multiplied by."""
TOTAL = "$total"
"""Output of a program of one of several batches on several workers: what the batch counts on all of them."""


def rate_inputs(solver: SolverSpec) -> dict[str, ScheduleSpec]:
    """The schedules of a solver by the inputs of a training program that take their values at each step."""
    return {f"{LEARNING_RATE}/{n}" if n else LEARNING_RATE: one for n, one in enumerate(solver.schedules())}


NEW = "new"
"""Last part of the name of an output that is the value of a state after a step."""
FORWARD_PASSES = (SinkClamps(),)
"""Before gradients are made: what changes their form."""


def losses(built: Built) -> dict[str, Value]:
    """The total loss and its parts by their names among the results of a program; nothing where there are none."""
    if not built.losses:
        return {}
    return {LOSS: total(built.losses.values())} | {f"{LOSS}/{name}": value for name, value in built.losses.items()}


def forward_graph(spec: NetSpec, built: Built) -> Graph:
    """Losses and new moving averages as the gradients are made of them. Raises `SpecError` where there is no loss."""
    if not built.losses:
        example = "{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}"
        message, hint = "the net has no losses: there is nothing to train for", f"add e.g. `losses: [{example}]`"
        raise SpecError(Problem(message, spec.where(), "losses", hint=hint))
    return run_passes(Graph(losses(built), built.builder.updates), FORWARD_PASSES)


def training_form(built: Built) -> Graph:
    """Outputs, losses and new states as layers make them in training: what a program elsewhere trains.

    The new value of a state is called `STATE/new`. Raises `InputError` where an output is called as the losses are.
    """
    found = losses(built)
    if LOSS in found and LOSS in built.outputs:
        raise InputError(f"an output is called `{LOSS}`, as the sum of the losses is", expected="another name")
    new = {f"{name}/{NEW}": value for name, value in built.builder.updates.items()}
    return Graph({**built.outputs, **found, **new}, named=built.values)


def start_of(forward: Graph, name: str, info: StateInfo) -> Value:
    """What a training step moves a parameter on from: what its layer made of it, or the parameter as it is."""
    return forward.updates.get(name, info.value)


def gradients_graph(spec: NetSpec, built: Built) -> Graph:
    """Losses, and the gradient of their sum by each trained parameter, as a training step starts from it."""
    forward = forward_graph(spec, built)
    made = forward.outputs
    trained = {name: start_of(forward, name, info) for name, info in built.builder.states.items() if info.trainable}
    found = gradients(made[LOSS], list(trained.values()))
    return Graph({**made, **{f"gradient/{name}": one for name, one in zip(trained, found, strict=True)}})

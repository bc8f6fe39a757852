"""Losses and their gradients, from which `compile/training.py` builds training steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from netspec.compile.build import LOSS, REGULARIZATION, NetGraph, total
from netspec.errors import InputError, Problem, SpecError
from netspec.graph.autodiff import gradients
from netspec.graph.graph import Graph
from netspec.graph.value import Value
from netspec.layers.states import StateInfo
from netspec.passes.base import run_passes
from netspec.passes.clamp_sinking import SinkClamps
from netspec.schema.specs.field_types import Names
from netspec.schema.specs.net import NetSpec
from netspec.solvers.base import SolverSpec
from netspec.solvers.schedules.base import ScheduleSpec

LEARNING_RATE, MOMENTUM, STEP = "$learning_rate", "$momentum", "$step"
"""Inputs of a training program in addition to the data; the inputs of a net cannot have these names."""
FIRST, SHARE = "$first", "$share"
"""Inputs of a step of several batches, in addition to `WEIGHT`: whether the batch is the first one of the step, and
the factor of the sum of the gradients."""
TOTAL = "$total"
"""Output of a program that computes one of several batches on several workers: the total weight of the batch."""


def scheduled_inputs(solver: SolverSpec) -> dict[str, ScheduleSpec]:
    """Return the schedules of a solver, by the inputs of a training program that they feed.

    Learning rates come first, then scheduled momenta; inputs of parameter groups are numbered from 1.
    """
    rates, momenta = enumerate(solver.schedules()), enumerate(solver.momenta(), not solver.scheduled_momenta())
    kinds = ((LEARNING_RATE, rates), (MOMENTUM, momenta))
    return {f"{kind}/{n}" if n else kind: schedule for kind, numbered in kinds for n, schedule in numbered}


def is_rate(name: str) -> bool:
    """Whether an input is a learning rate; these are scaled if the updates of several workers are summed."""
    return name.partition("/")[0] == LEARNING_RATE


NEW = "new"
"""Last part of the names of outputs that are values of states after a step."""
FORWARD_PASSES = (SinkClamps(),)
"""Passes that run before differentiation, since they change the gradients."""


def losses(net: NetGraph) -> dict[str, Value]:
    """Return the total loss and its parts, by their names in a program's results; empty if there are no losses."""
    if not net.losses:
        return {}
    return {LOSS: total(net.losses.values())} | {f"{LOSS}/{name}": value for name, value in net.losses.items()}


def mean_totals(net: NetGraph) -> dict[str, Value]:
    """Return the totals of the metrics whose totals are scalars, by their names in a program's results."""
    return {
        f"{name}/{index}": value
        for name, (metric, values) in net.metrics.items()
        if not metric.collects and all(value.shape == () for value in values)
        for index, value in enumerate(values)
    }


def forward_graph(spec: NetSpec, net: NetGraph, *, with_metrics: bool = False) -> Graph:
    """Return the graph before differentiation: losses, new moving averages, and totals of metrics on request.

    Raises `SpecError` without a loss.
    """
    if not net.losses:
        example = "{type: SparseCategoricalCrossentropy, from: [logits, label], from_logits: true}"
        message, hint = "the net has no losses: there is nothing to minimize", f"add e.g. `losses: [{example}]`"
        raise SpecError(Problem(message, spec.where(), "losses", hint=hint))
    outputs = {**losses(net), **(mean_totals(net) if with_metrics else {})}
    return run_passes(Graph(outputs, net.builder.updates), FORWARD_PASSES)


def training_form(net: NetGraph) -> Graph:
    """Return the graph of the training form, for training in another framework: outputs, losses and new states.

    The new value of a state is named `STATE/new`. Raises `InputError` if an output has the name of the total loss.
    """
    loss_values = losses(net)
    if LOSS in loss_values and LOSS in net.outputs:
        raise InputError(
            f"an output has the name `{LOSS}`, which is reserved for the total loss", expected="a different name"
        )
    new = {f"{name}/{NEW}": value for name, value in net.builder.updates.items()}
    return Graph({**net.outputs, **loss_values, **new}, named=net.values)


def updated_start(forward: Graph, name: str, info: StateInfo) -> Value:
    """Return the value that an update of a parameter starts from: its layer's new value, or the parameter."""
    return forward.updates.get(name, info.value)


def parameter_gradients(
    forward: Graph, starts: Mapping[str, Value], solver: SolverSpec | None, factor: Callable[[Value], Value]
) -> dict[str, Value]:
    """Return the gradients with respect to `starts`, each of the losses that its parameter minimizes.

    `forward` has the losses, of which each parameter group of the solver may minimize some. `factor` scales a loss.
    """
    objectives: dict[Names | None, list[str]] = {}
    for name in starts:
        objectives.setdefault(None if solver is None else solver.losses_of(name), []).append(name)
    computed: dict[str, Value] = {}
    for names, members in objectives.items():
        loss = forward.outputs[LOSS] if names is None else _partial_loss(forward, names)
        computed |= zip(members, gradients(factor(loss), [starts[name] for name in members]), strict=True)
    return {name: computed[name] for name in starts}


def _partial_loss(forward: Graph, names: Sequence[str]) -> Value:
    """Return the sum of some losses, and of the penalties of layers."""
    labels = [f"{LOSS}/{name}" for name in (*names, REGULARIZATION)]
    return total(forward.outputs[label] for label in labels if label in forward.outputs)


def gradients_graph(spec: NetSpec, net: NetGraph, solver: SolverSpec | None) -> Graph:
    """Return the graph of the losses and of the gradients with respect to trained parameters."""
    forward = forward_graph(spec, net)
    trained = {name: updated_start(forward, name, info) for name, info in net.builder.states.items() if info.trainable}
    computed = parameter_gradients(forward, trained, solver, lambda loss: loss)
    return Graph({**forward.outputs, **{f"gradient/{name}": value for name, value in computed.items()}})
